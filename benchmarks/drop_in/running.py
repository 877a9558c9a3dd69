"""Runs a script in forked processes that have torch and transformers loaded already, and records what it trains."""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import random
import re
import runpy
import signal
import socket
import sys
import time
import traceback
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import RandomSampler
from torch.utils.data._utils.fetch import _MapDatasetFetcher

LIMIT = 300.0  # seconds that one run may take
FIGURES = re.compile(r"(epoch \d+:.*|Evaluation metrics.*|\{'.*\}$|best_metric.*|\| val_loss.*)", re.MULTILINE)


@dataclass(frozen=True)
class Run:
    """What one run of a script left: its losses by process, and the weights and figures of the first."""

    failure: str = ""
    losses: tuple[tuple[float, ...], ...] = ()
    weights: str = ""
    printed: tuple[str, ...] = ()

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Run:
        held = json.loads(text)
        losses = tuple(tuple(one) for one in held["losses"])
        return Run(held["failure"], losses, held["weights"], tuple(held["printed"]))


@dataclass(frozen=True)
class Order:
    """A script to be run; `still` switches dropout off, and shuffles alike whatever the runtime draws."""

    script: Path
    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    processes: int
    still: bool


def run(order: Order) -> Run:
    """Forks the processes of one run, and waits for all of them."""
    place = order.script.parent
    for old in place.glob("journal*"):
        old.unlink()
    port = _free_port()
    children = []
    for rank in range(order.processes):
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            _become(order, rank, port)
        children.append(child)
    failed = _wait(children)
    output = "".join((place / f"output{rank}").read_text(errors="replace") for rank in range(order.processes))
    if failed:
        return Run(failed if "limit" in failed else _reason(output))
    journals = [json.loads((place / f"journal{rank}").read_text()) for rank in range(order.processes)]
    first = (place / "output0").read_text(errors="replace")
    printed = [*FIGURES.findall(first), *_results(place)]
    return Run("", tuple(tuple(one["losses"]) for one in journals), journals[0]["weights"], tuple(printed))


def _become(order: Order, rank: int, port: int) -> None:
    """The child's whole life: never returns."""
    place = order.script.parent
    with (place / f"output{rank}").open("w") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    os.chdir(place)
    os.environ.update(order.environment)
    if order.processes > 1:
        os.environ.update(
            RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(order.processes), LOCAL_WORLD_SIZE=str(order.processes),
            MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
        )  # fmt: skip
    sys.argv = [order.script.name, *order.arguments]
    sys.path.insert(0, str(place))
    journal = _record()
    if order.still:
        _hold_still()
    code = 1
    try:
        runpy.run_path(str(order.script), run_name="__main__")
        code = 0
    except SystemExit as exit:
        code = int(bool(exit.code))
        print(exit.code)
    except BaseException:
        traceback.print_exc()
    if code == 0:
        (place / f"journal{rank}").write_text(json.dumps(journal.written()))
        atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


class Journal:
    """The losses that reach a backward pass, and the parameters that optimizers have stepped on."""

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.optimizers: dict[int, torch.optim.Optimizer] = {}

    def written(self) -> dict[str, Any]:
        digest = hashlib.sha256()
        for optimizer in self.optimizers.values():
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    digest.update(_whole(parameter).detach().double().cpu().numpy().tobytes())
        return {"losses": self.losses, "weights": digest.hexdigest()}


def _whole(parameter: torch.Tensor) -> torch.Tensor:
    return parameter.to_local() if hasattr(parameter, "to_local") else parameter


def _record() -> Journal:
    journal = Journal()
    plain = torch.autograd.backward

    def backward(tensors: Any, *args: Any, **kwargs: Any) -> None:
        for tensor in [tensors] if isinstance(tensors, torch.Tensor) else tensors:
            journal.losses.append(float(tensor.detach().double().sum()))
        plain(tensors, *args, **kwargs)

    torch.autograd.backward = backward
    register_optimizer_step_post_hook(
        lambda optimizer, *rest: journal.optimizers.setdefault(id(optimizer), optimizer) and None
    )
    return journal


class StillSampler(RandomSampler):
    """The n-th pass is the n-th order, whatever the runtime and the script have drawn so far."""

    # Not on the sampler: a checkpoint keeps what is there.
    passes: ClassVar[Counter[int]] = Counter()

    def __iter__(self) -> Iterator[int]:
        self.passes[id(self)] += 1
        generator = torch.Generator().manual_seed(self.passes[id(self)])
        yield from torch.randperm(len(self.data_source), generator=generator).tolist()  # type: ignore[arg-type]


def _hold_still() -> None:
    """What draws random numbers in an order that two right runtimes may choose differently."""
    fetch = _MapDatasetFetcher.fetch

    def still_fetch(self: Any, indices: Any) -> Any:
        """What transforms and collators draw depends on the samples alone."""
        kept = torch.get_rng_state(), random.getstate(), numpy.random.get_state()
        seed = zlib.crc32(repr(indices).encode())
        torch.manual_seed(seed)
        random.seed(seed)
        numpy.random.seed(seed)
        try:
            return fetch(self, indices)
        finally:
            torch.set_rng_state(kept[0])
            random.setstate(kept[1])
            numpy.random.set_state(kept[2])

    def begin(module: torch.nn.Module, inputs: Any) -> None:
        """What a layer, a loss or the next model draws does not depend on what was drawn before."""
        torch.manual_seed(3)

    torch.nn.modules.module.register_module_forward_pre_hook(begin)
    _MapDatasetFetcher.fetch = still_fetch  # type: ignore[method-assign]
    torch.utils.data.dataloader.RandomSampler = StillSampler  # type: ignore[misc]
    torch.nn.Dropout.forward = lambda self, input: input  # type: ignore[method-assign]
    torch.nn.functional.dropout = lambda input, *args, **kwargs: input
    attention = torch.nn.functional.scaled_dot_product_attention

    def still_attention(*args: Any, dropout_p: float = 0.0, **kwargs: Any) -> torch.Tensor:
        return attention(*args, **kwargs)

    torch.nn.functional.scaled_dot_product_attention = still_attention


def _wait(children: list[int]) -> str:
    """Why a run failed, or nothing; when one process fails, the others are ended."""
    left, end = set(children), time.monotonic() + LIMIT
    failure = ""
    while left:
        for child in list(left):
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                left.discard(child)
                failure = failure or ("failed" if status else "")
        if left and (failure or time.monotonic() > end):
            failure = failure or f"over the limit of {LIMIT:.0f} seconds"
            time.sleep(1)  # for the other's own words on what went wrong
            for child in left:
                os.kill(child, signal.SIGKILL)
        time.sleep(0.02)
    return failure


def _reason(output: str) -> str:
    errors = re.findall(r"^(?:\w+\.)*\w*(?:Error|Exception|Exit|Interrupt)\b.*", output, re.MULTILINE)
    lines = [line for line in output.splitlines() if line.strip()]
    return (errors or lines or ["no output"])[-1][:300]


def _results(place: Path) -> list[str]:
    return [file.read_text() for file in sorted(place.glob("saved/*results.json"))]


def _free_port() -> int:
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        return int(chosen.getsockname()[1])
