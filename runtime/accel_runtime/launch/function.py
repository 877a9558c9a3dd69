"""Running a function, rather than a script, on many processes of torch's elastic agent."""

from __future__ import annotations

import logging
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accel_runtime.errors import ProcessFailed, UsageError
from accel_runtime.launch.digest import failures_of, last_words
from accel_runtime.launch.ends import Attempt, End
from accel_runtime.launch.network import address_towards
from accel_runtime.launch.whole_lines import WholeLines
from accel_runtime.launch.worker import die_with_launcher, record_failure
from accel_runtime.terminal import SHOW_RANKS, log_of, print_to
from accel_runtime.world import may_seed


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionLaunch:
    """How the processes are started and meet, in the words of torch's agent."""

    local_processes: int
    machines: int
    machine_rank: int
    backend: str
    endpoint: str
    configuration: Mapping[str, Any]
    run_id: str
    max_restarts: int
    monitor_interval: float
    log_line_prefix_template: str | None
    start_method: str
    show_ranks: str

    def here(self) -> str:
        """This machine's address on the way to where the processes meet."""
        host, _, port = self.endpoint.rpartition(":")
        return "127.0.0.1" if self.machines == 1 else address_towards(host, int(port))

    def environment(self, environ: Mapping[str, str], cores: int) -> dict[str, str]:
        """The variables that the processes need beyond the settings."""
        # OpenMP's threads do not survive a fork: a forked process that asks for its pool waits for ever.
        threads = 1 if self.start_method == "fork" else max(1, cores // self.local_processes)
        limit = {} if "OMP_NUM_THREADS" in environ else {"OMP_NUM_THREADS": str(threads)}
        # As for scripts: each attempt needs a store of its own.
        apart = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"} if self.max_restarts else {}
        return {**limit, **apart, SHOW_RANKS: self.show_ranks}


def run_function(function: Callable[..., Any], args: tuple[Any, ...], launch: FunctionLaunch) -> None:
    """Run to the end on all processes; the first failure is raised here with its traceback."""
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    _require_transportable(function, launch.start_method)
    place = {"rank": launch.machine_rank} if launch.backend == "static" else {"is_host": launch.machine_rank == 0}
    with tempfile.TemporaryDirectory(prefix="accel-") as scratch, _own_signals_afterwards(), _quiet_agent():
        config = LaunchConfig(
            min_nodes=launch.machines,
            max_nodes=launch.machines,
            nproc_per_node=launch.local_processes,
            logs_specs=DefaultLogsSpecs(log_dir=scratch),
            run_id=launch.run_id,
            rdzv_backend=launch.backend,
            rdzv_endpoint=launch.endpoint,
            rdzv_configs={**place, **launch.configuration},
            max_restarts=launch.max_restarts,
            monitor_interval=launch.monitor_interval,
            start_method=launch.start_method,
            log_line_prefix_template=launch.log_line_prefix_template,
            local_addr=launch.here(),
        )
        attempt = Attempt()
        try:
            elastic_launch(config, call_function)(function, os.getpid(), *args)
        except SignalException as ended:
            raise KeyboardInterrupt(f"ended by {ended.sigval.name}; no process is left") from None
        except ChildFailedError as failure:
            attempt.number = launch.max_restarts
            for rank, process in failure.failures.items():
                # Torch lists those that it has ended, too.
                by_launcher = process.exitcode == -signal.SIGTERM
                attempt.ends[rank] = End(rank, process.pid, process.exitcode, process.timestamp, by_launcher)
            first = failures_of(attempt, Path(scratch))[0]
            sys.stderr.write(last_words(first.rank, attempt, Path(scratch)))
            # The agent's own error says nothing more; chained, it would be printed above what matters.
            raise ProcessFailed(f"rank {first.rank} failed: {first.reason}\n\n{first.trace}".rstrip()) from None


def call_function(function: Callable[..., Any], launcher: int, *args: Any) -> None:
    """What each process runs: the user's function, with its failure left where the digest looks."""
    import torch

    from accel_runtime.seeding import seed_alike

    die_with_launcher(launcher)
    # A forked process has inherited the agent's handler, which would turn an ordered end into an error.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # The silence that was meant for the agent, too.
    logging.disable(logging.NOTSET)
    # And OpenMP, which has read the variable long ago.
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    if log := log_of(os.environ):
        print_to(log)
    sys.stdout = lines = WholeLines(sys.stdout)
    if may_seed(os.environ):  # what was imported before the fork is not looked up again
        seed_alike(os.environ)
    sys.excepthook = record_failure
    try:
        function(*args)
    except Exception as error:
        sys.excepthook(type(error), error, error.__traceback__)  # a strategy may have a word to add
        sys.exit(1)
    finally:
        lines.close()


@contextmanager
def variables(values: Mapping[str, str]) -> Iterator[None]:
    """Have these environment variables for a while; the processes started meanwhile inherit them."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _own_signals_afterwards() -> Iterator[None]:
    """The agent takes over the signals and does not give them back: the notebook could no longer be interrupted."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    taken = [signal.Signals[name] for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT") if hasattr(signal, name)]
    before = {number: signal.getsignal(number) for number in taken}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _quiet_agent() -> Iterator[None]:
    """Without the agent's commentary: the first failure is raised, and that is the whole story."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        yield
    finally:
        logging.disable(before)


def _require_transportable(function: Callable[..., Any], start_method: str) -> None:
    if start_method != "fork" and getattr(function, "__module__", None) == "__main__" and not _main_is_a_file():
        raise UsageError(
            f"{getattr(function, '__name__', function)} is defined in the notebook, and on this device processes must "
            "import it; write its cell to a file with %%writefile train.py and import it from there"
        )


def _main_is_a_file() -> bool:
    return hasattr(sys.modules["__main__"], "__file__")
