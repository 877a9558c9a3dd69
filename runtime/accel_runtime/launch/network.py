"""The network between the machines of a launch: which of our addresses leads to the others, and which port is free."""

from __future__ import annotations

import socket

from accel_runtime.errors import ConfigError

ELSEWHERE = "192.0.2.1"  # of a network that is for documentation: it leads outwards, and nothing is sent there


def address_towards(host: str, port: int) -> str:
    """This machine's own address on the network that leads to `host`; nothing is sent."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((host, port))
            return str(probe.getsockname()[0])
    except OSError as error:
        raise ConfigError(f"main_process_ip is {host}, and this machine has no way there: {error}") from error


def own_address() -> str:
    """This machine's address as others would use it; that of itself alone where it has no network."""
    try:
        return address_towards(ELSEWHERE, 1)
    except ConfigError:
        return "127.0.0.1"


def interface_of(address: str) -> str | None:
    """The network interface that carries an address."""
    import psutil

    carriers = (name for name, given in psutil.net_if_addrs().items() if any(one.address == address for one in given))
    return next(carriers, None)


def require_free(port: int) -> None:
    """Refuse a port that somebody listens on, before anything has started."""
    with socket.socket() as probe:
        # As the store binds it: a port that is only in TIME_WAIT is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            reason = f"port {port} is in use here ({error.strerror})"
            raise ConfigError(f"{reason}; main_process_port 0 finds a free one") from error
