"""Where the machines of a launch meet: a port of the first machine, reached over one network."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass

from accel_runtime.errors import ConfigError, WorldError
from accel_runtime.launch.network import address_towards, interface_of, require_free
from accel_runtime.options import Settings

DEFAULT_PORT = 29500
PATIENCE = 600.0  # seconds that the other machines may take to come


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """`here` is this machine's own address on the way to the rendezvous; the first machine is its host."""

    host: str
    port: int
    here: str
    is_first: bool
    patience: float = PATIENCE

    def agent_arguments(self) -> list[str]:
        """How torch.distributed.run is told; all machines must give the same endpoint and id."""
        return [
            f"--rdzv-endpoint={self.host}:{self.port}",
            f"--rdzv-id=accel-{self.port}",
            f"--rdzv-conf=is_host={int(self.is_first)},join_timeout={self.patience:.0f}",
            f"--local-addr={self.here}",
        ]

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Gloo would offer the other machines the address of the host name, which often is loopback."""
        name = None if "GLOO_SOCKET_IFNAME" in environ else interface_of(self.here)
        return {"GLOO_SOCKET_IFNAME": name} if name else {}


def rendezvous_of(settings: Settings) -> Rendezvous:
    """The rendezvous that every machine's settings name, or what is missing from them."""
    host, port = settings.main_process_ip, settings.main_process_port
    if not host:
        raise ConfigError("several machines need main_process_ip: the address of the first machine, on every machine")
    if port == 0:
        raise ConfigError("main_process_port 0 finds a free port on one machine; several machines must name the same")
    port = port or DEFAULT_PORT
    here = address_towards(host, port)
    by_address = here in (host, socket.gethostbyname(host))
    is_first = by_address if settings.machine_rank is None else settings.machine_rank == 0
    if is_first:
        require_free(port)
        if not by_address:
            sys.stderr.write(
                f"accel launch: this is the first machine by machine_rank 0, and main_process_ip {host} is not its address "
                f"({here}); unless that leads here all the same, name {here} on every machine\n"
            )
    return Rendezvous(host, port, here, is_first, settings.timeout or PATIENCE)


def wait_for_first_machine(rendezvous: Rendezvous) -> None:
    """Return when the first machine listens; torch would give up after a minute, with a stack of C++ frames."""
    deadline = time.monotonic() + rendezvous.patience
    asked = time.monotonic() + 5
    while not _listens(rendezvous.host, rendezvous.port):
        if time.monotonic() > deadline:
            raise WorldError(
                f"nobody listens at {rendezvous.host}:{rendezvous.port} after {rendezvous.patience:.0f} s; "
                "start accel launch on the first machine and let this port through"
            )
        if time.monotonic() > asked:
            sys.stderr.write(f"accel launch: waiting for the first machine at {rendezvous.host}:{rendezvous.port}\n")
            asked = deadline
        time.sleep(0.2)


def _listens(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=2):
            return True
    except OSError:
        return False
