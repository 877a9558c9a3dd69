"""The operators of the first training steps, until every optimizer has taken one: what is proven about them is read from it."""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from accel_migrate.proof.recorder.journal import Journal, fills_up
from accel_migrate.proof.recorder.samples import fingerprint

MOST_NODES = 20_000
LARGEST_VIEW = 1 << 22  # entries; beyond it two views are taken to overlap
# Sparse tensors have no storage, operators of a higher order no schema; a script must not end for that.
UNREADABLE = (AttributeError, LookupError, NotImplementedError, RuntimeError, TypeError, ValueError)
PLAIN = (bool, int, float, str, type(None))


class StepTrace:
    """Numbers the values of a window: from the first batch to the first one after each optimizer has stepped."""

    def __init__(self, torch: Any, journal: Journal, world: int) -> None:
        self.torch = torch
        self.journal = journal
        self.world = world
        self.state = "waiting"
        self.mode: Any = None
        self.optimizers: list[Any] = []
        self.stepped: set[int] = set()
        self.values: list[dict[str, Any]] = []
        self.nodes: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []
        self.changed: set[int] = set()  # storages that an operator wrote to
        self.storages: dict[int, tuple[Any, dict[Any, int]]] = {}  # a weak reference keeps the address from reuse
        self.chance: object = None
        self.stopped = ""  # why nothing more is written down
        self.inside = False  # an operator is being written down: torch has set the mode aside

    # The window

    def batch(self, leaves: list[Any], trains: bool) -> None:
        """A batch came: the window begins, goes on, or has all that it needs."""
        if self.state == "waiting" and trains:
            self.state = "recording"
            self._enter()
        if self.state != "recording":
            return
        if self.stopped or (self.optimizers and len(self.stepped) == len(self.optimizers)):
            self.finish()
            return
        number = sum(event["kind"] == "batch" for event in self.events)
        with self.suspended():
            tensors = [leaf for leaf in leaves if self.torch.is_tensor(leaf)]
            ids = [self._new(leaf, source=["batch", number, index]) for index, leaf in enumerate(tensors)]
            self.note("batch", values=ids, numbers=any(_has_numbers(leaf) for leaf in leaves))

    @property
    def recording(self) -> bool:
        return self.state == "recording"

    def finish(self) -> None:
        if self.state != "recording":
            return
        self._leave()
        self.state = "done"
        self.storages.clear()
        told = {"world": self.world, "rank": self.journal.rank, "stopped": self.stopped}
        told |= {"optimizers": len(self.optimizers), "stepped": len(self.stepped)}
        told |= {"values": self.values, "nodes": self.nodes, "events": self.events}
        (self.journal.folder / f"step-{self.journal.rank}.json").write_text(json.dumps(told))

    def took(self, optimizer: Any) -> None:
        """An optimizer has changed its parameters, by what it was made with and by their gradients."""
        if self.state != "recording":
            return
        number = next(index for index, each in enumerate(self.optimizers) if each is optimizer)
        self.stepped.add(number)
        groups = [list(group["params"]) for group in optimizer.param_groups]
        self.forget([each for group in groups for each in group])
        numbers = {id(each): index for index, each in enumerate(self.parameters())}
        moved = [numbers[id(each)] for group in groups for each in group if each.grad is not None]
        settings = [
            {name: value for name, value in group.items() if isinstance(value, (*PLAIN, tuple))}
            for group in optimizer.param_groups
        ]
        self.note("step", optimizer=number, parameters=moved, kind_of=type(optimizer).__name__, settings=settings)
        self.go_on()

    def note(self, kind: str, **facts: Any) -> None:
        file, line = self.journal.place() or ("", 0)
        self.events.append({"kind": kind, "file": file, "line": line, "at": len(self.nodes), **facts})

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """What happens meanwhile is not the script's own computation."""
        if self.mode is None or self.inside:
            yield
            return
        self._leave()
        try:
            yield
        finally:
            if self.state == "recording":
                self._enter()

    def pause(self) -> None:
        if self.mode is not None:
            self._leave()

    def go_on(self) -> None:
        if self.state == "recording" and self.mode is None:
            self._enter()

    def _enter(self) -> None:
        self.chance = _python_chance()
        self.mode = _mode(self.torch, self._ran)
        self.mode.__enter__()

    def _leave(self) -> None:
        if self.mode is not None:
            self.mode.__exit__(None, None, None)
            self.mode = None
            if _python_chance() != self.chance:
                self.note("python draws")

    # Values

    def forget(self, tensors: list[Any]) -> None:
        """They were changed where nobody looked."""
        for tensor in tensors:
            self.storages.pop(tensor.untyped_storage()._cdata, None)
            self.changed.discard(tensor.untyped_storage()._cdata)

    def known(self, tensor: Any) -> int:
        """The number of a value, which is given one when it comes from outside of the window."""
        found = self._views(tensor).get(_key(tensor))
        if found is not None:
            return found
        source = self._outside(tensor)
        if source[0] != "gradient" and tensor.untyped_storage()._cdata in self.changed:
            source = ["changed", len(self.nodes)]  # through another view of it
        return self._new(tensor, source)

    def _outside(self, tensor: Any) -> list[Any]:
        for number, each in enumerate(self.parameters()):
            if each is tensor or (each.data_ptr() == tensor.data_ptr() and each.shape == tensor.shape):
                return ["parameter", number]
            if each.grad is not None and each.grad.data_ptr() == tensor.data_ptr():
                return ["gradient", number]
        with self.suspended():
            return ["outside", fingerprint(self.torch, [tensor])]

    def parameters(self) -> list[Any]:
        every = [p for optimizer in self.optimizers for group in optimizer.param_groups for p in group["params"]]
        return list({id(each): each for each in every}.values())

    def _views(self, tensor: Any) -> dict[Any, int]:
        storage = tensor.untyped_storage()
        if storage._cdata not in self.storages:
            weak = sys.modules["torch.multiprocessing.reductions"].StorageWeakRef(storage)
            self.storages[storage._cdata] = (weak, {})
        return self.storages[storage._cdata][1]

    def _new(self, tensor: Any, source: list[Any]) -> int:
        self.values.append({"shape": list(tensor.shape), "dtype": str(tensor.dtype), "source": source})
        self._views(tensor)[_key(tensor)] = len(self.values) - 1
        return len(self.values) - 1

    def _ran(self, function: Any, args: Any, kwargs: Any) -> Any:
        """Runs one operator, and writes down what it took and made."""
        if os.getpid() != self.journal.process or self.stopped or fills_up():
            return function(*args, **kwargs)
        self.inside = True
        try:
            return self._written(function, args, kwargs)
        finally:
            self.inside = False

    def _written(self, function: Any, args: Any, kwargs: Any) -> Any:
        try:
            given = _given(function, args, kwargs)
            taken = {name: self._encoded(value) for name, value in given.items()}
        except UNREADABLE:
            self.stopped = f"an operator that cannot be written down ({function})"
            return function(*args, **kwargs)
        result = function(*args, **kwargs)
        changed = [given[a.name] for a in function._schema.arguments if a.is_write and a.name in given]
        draws = self.torch.Tag.nondeterministic_seeded in function.tags
        try:
            self._made(str(function), draws, taken, given, result, _tensors(self.torch, changed))
        except UNREADABLE:
            self.stopped = f"an operator that cannot be written down ({function})"
        if len(self.nodes) > MOST_NODES:
            self.stopped = f"more than {MOST_NODES} operators"
        return result

    def _encoded(self, value: Any) -> Any:
        if self.torch.is_tensor(value):
            return {"value": self.known(value)}
        if isinstance(value, list | tuple):
            return [self._encoded(each) for each in value]
        return value if isinstance(value, PLAIN) else str(value)

    def _made(self, name: str, draws: bool, taken: Any, given: Any, result: Any, changed: list[Any]) -> None:
        made = _tensors(self.torch, [result])
        if not made and not changed:
            if not isinstance(result, PLAIN) or result is None:
                return
            values = [self.known(each) for each in _tensors(self.torch, list(given.values()))]
            self.note("read", values=values)
            return
        for each in changed:
            views, own = self._views(each), _key(each)
            for key in [key for key in views if _overlap(self.torch, own, key)]:
                del views[key]
            self.changed.add(each.untyped_storage()._cdata)
        node, numbers = ["node", len(self.nodes)], []
        for each in [*made, *(one for one in changed if not any(one is other for other in made))]:
            found = self._views(each).get(_key(each))
            numbers.append(found if found is not None else self._new(each, node))
        if all(self.values[number]["source"] != node for number in numbers):
            return  # another name of what is known: detach, alias, a view of the same shape
        file, line = self.journal.place() or ("", 0)
        facts = {"random": draws, **({"ignores": _ignores(given)} if "nll_loss" in name else {})}
        self.nodes.append({"op": name, "args": taken, "made": numbers, "file": file, "line": line, **facts})


def _mode(torch: Any, ran: Callable[..., Any]) -> Any:
    class Operators(sys.modules["torch.utils._python_dispatch"].TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return ran(function, args, kwargs or {})

    return Operators()


def _given(function: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    """The arguments by their names, with those that were left out."""
    names = function._schema.arguments
    given = {each.name: each.default_value for each in names if each.has_default_value()}
    given |= {each.name: value for each, value in zip(names, args)}
    return {**given, **kwargs}


def _key(tensor: Any) -> Any:
    return tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), tensor.dtype


def _overlap(torch: Any, one: Any, two: Any) -> bool:
    """Whether two views of a storage have an entry in common."""
    (first, last), (begin, end) = _extent(one), _extent(two)
    if one[3] != two[3] or one[:3] == two[:3]:
        return True
    if last < begin or end < first:
        return False
    size = max(last, end) + 1 - min(first, begin)
    if size > LARGEST_VIEW:
        return True
    marked = torch.zeros(size, dtype=torch.bool)
    start = min(first, begin)
    marked.as_strided(one[1], one[2], one[0] - start).fill_(True)
    return bool(marked.as_strided(two[1], two[2], two[0] - start).any())


def _extent(key: Any) -> tuple[int, int]:
    """The first and the last entry of a view in its storage."""
    offset, shape, stride, _ = key
    return offset, offset + sum((size - 1) * step for size, step in zip(shape, stride) if size)


def _tensors(torch: Any, values: list[Any]) -> list[Any]:
    flat: list[Any] = []
    for value in values:
        if torch.is_tensor(value):
            flat.append(value)
        elif isinstance(value, list | tuple):
            flat.extend(_tensors(torch, list(value)))
    return flat


def _ignores(given: Mapping[str, Any]) -> bool:
    return bool((given["target"] == given["ignore_index"]).any()) if "target" in given else True


def _has_numbers(leaf: Any) -> bool:
    items = leaf if isinstance(leaf, list | tuple) else [leaf]
    return any(isinstance(item, int | float) and not isinstance(item, bool) for item in items)


def _python_chance() -> object:
    numpy = sys.modules.get("numpy")
    of_numpy = numpy.random.get_state() if numpy is not None else ("", b"", 0)
    return hash((random.getstate(), bytes(of_numpy[1]), of_numpy[2]))
