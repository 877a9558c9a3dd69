"""How the ranks of this machine end: torch's elastic agent, which remembers who ended before the launcher ended the rest."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class End:
    """Of one process; `moment` is when the launcher saw it, in seconds."""

    rank: int
    pid: int
    code: int
    moment: float
    by_launcher: bool = False


@dataclass(slots=True)
class Attempt:
    """One start of all ranks; the first has the number 0."""

    number: int = 0
    started: float = field(default_factory=time.time)
    ends: dict[int, End] = field(default_factory=dict)


class Watch:
    """The attempt that is under way; `on_restart` is told of each that failed before the next one starts."""

    def __init__(self, on_restart: Callable[[Attempt, int], None]) -> None:
        self.attempt = Attempt()
        self._on_restart = on_restart

    def failed(self, restarts: int) -> None:
        """All ranks start again, for the n-th time."""
        self._on_restart(self.attempt, restarts)
        self.attempt = Attempt(restarts)

    def note(self, processes: dict[int, Any], by_launcher: bool) -> bool:
        """Notes which of the processes, by rank, have ended; whether any of them is new."""
        before = len(self.attempt.ends)
        for rank, process in processes.items():
            code = process.poll()
            if code is not None and rank not in self.attempt.ends:
                self.attempt.ends[rank] = End(rank, process.pid, code, time.time(), by_launcher)
        return len(self.attempt.ends) > before


def watched_agent(watch: Watch) -> type:
    """Torch's agent, watched. Its own report lists those that it ended beside those that failed."""
    from torch.distributed.elastic.agent.server.api import RunResult, WorkerState
    from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent

    class WatchedAgent(LocalElasticAgent):
        def _monitor_workers(self, worker_group: Any) -> Any:
            # Any: torch's agent hands its processes to nobody.
            handlers: Any = getattr(self._pcontext, "subprocess_handlers", {})
            processes = {worker_group.workers[local].global_rank: one.proc for local, one in handlers.items()}
            # Newer agents may be asked to let their workers be for a while; they see to that themselves.
            patient = getattr(self, "_uninterruptible_state_timeout", 0) > 0
            if not watch.note(processes, by_launcher=False) and not patient:
                return RunResult(state=WorkerState.HEALTHY)
            result = super()._monitor_workers(worker_group)
            if result.state == WorkerState.FAILED:
                watch.note(processes, by_launcher=True)
            return result

        def _restart_workers(self, worker_group: Any) -> None:
            watch.failed(worker_group.spec.max_restarts - self._remaining_restarts)
            super()._restart_workers(worker_group)

    return WatchedAgent
