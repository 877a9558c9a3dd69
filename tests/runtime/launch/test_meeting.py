"""Waiting for the first machine, and giving up in words."""

from __future__ import annotations

import socket

import pytest
from accel_runtime.errors import ConfigError, WorldError
from accel_runtime.launch.meeting import Meeting, wait_for_first_machine
from accel_runtime.launch.network import address_towards, interface_of


def test_a_machine_that_listens_is_there() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        wait_for_first_machine(Meeting("127.0.0.1", server.getsockname()[1], "127.0.0.1", False, patience=5))


def test_a_machine_that_does_not_come_is_named() -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
        with pytest.raises(WorldError, match=f"nobody listens at 127.0.0.1:{port} after 0 s; start accel launch on"):
            wait_for_first_machine(Meeting("127.0.0.1", port, "127.0.0.1", False, patience=0.1))


def test_the_way_to_an_address() -> None:
    assert address_towards("127.0.0.1", 1) == "127.0.0.1"
    assert interface_of("127.0.0.1") == "lo"
    assert interface_of("203.0.113.9") is None
    with pytest.raises(ConfigError, match="this machine has no way there"):
        address_towards("no such host", 1)
