"""Waiting for the first machine, and giving up in words."""

from __future__ import annotations

import socket

import pytest
from accel_runtime.errors import ConfigError, WorldError
from accel_runtime.launch.network import address_towards, interface_of
from accel_runtime.launch.rendezvous import Rendezvous, rendezvous_of, wait_for_first_machine
from accel_runtime.options import Settings


def test_a_machine_that_listens_is_there() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        wait_for_first_machine(Rendezvous("127.0.0.1", server.getsockname()[1], "127.0.0.1", False, patience=5))


def test_a_machine_that_does_not_come_is_named() -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
        with pytest.raises(WorldError, match=f"nobody listens at 127.0.0.1:{port} after 0 s; start accel launch on"):
            wait_for_first_machine(Rendezvous("127.0.0.1", port, "127.0.0.1", False, patience=0.1))


def test_the_way_to_an_address() -> None:
    assert address_towards("127.0.0.1", 1) == "127.0.0.1"
    assert interface_of("127.0.0.1") == "lo"
    assert interface_of("203.0.113.9") is None
    with pytest.raises(ConfigError, match="this machine has no way there"):
        address_towards("no such host", 1)


def test_a_first_machine_whose_address_is_another_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as probe:
        probe.bind(("", 0))
        port = probe.getsockname()[1]
    settings = Settings(main_process_ip="127.0.0.9", main_process_port=port, machine_rank=0)
    assert rendezvous_of(settings).is_first
    said = capsys.readouterr().err
    assert "main_process_ip 127.0.0.9 is not its address (127.0.0.1)" in said and "name 127.0.0.1 on every" in said
    rendezvous_of(Settings(main_process_ip="127.0.0.1", main_process_port=port, machine_rank=0))
    assert capsys.readouterr().err == ""
