"""Notes what the variables of the project's own code hold while it runs: models, optimizers, loaders and the like."""

from __future__ import annotations

import functools
import json
import os
import sys
from argparse import Namespace
from pathlib import Path
from types import BuiltinFunctionType, FrameType, FunctionType, SimpleNamespace
from typing import Any

OFTEN_ENOUGH = 50  # looks at the variables of one function
TRACED_ENOUGH = 5  # losses of one line
BACKWARD = "backward pass"
Place = tuple[
    str, int, str
]  # a file of the project, the first line of the function (0 is the file itself), the variable


class Observer:
    """Looks at variables whenever a function of the project returns or waits for a backward pass."""

    def __init__(self, torch: Any, folder: Path, copy: Path) -> None:
        self.torch = torch
        self.folder = folder
        self.copy = copy.resolve()
        self.process = os.getpid()
        self.files: dict[str, str | None] = {}
        self.looks: dict[Any, int] = {}
        self.kinds: dict[Place, dict[str, int]] = {}  # how often each kind was seen at a place
        self.objects: dict[int, Any] = {}  # kept, so that no other object gets their number
        self.places: dict[int, set[Place]] = {}
        self.learned: dict[Place, list[set[int]]] = {}  # the parameters that each loss of a line was computed from

    def begin(self) -> None:
        def returned(frame: FrameType, event: str, argument: Any) -> None:
            if event == "return":
                self.look(frame)

        sys.setprofile(returned)

    def look_around(self) -> None:
        """At all functions that are waiting for this one."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            self.look(frame)
            frame = frame.f_back

    def trace(self, line: tuple[str, int] | None, losses: list[Any]) -> None:
        """Which parameters a loss was computed from, at the line of its backward pass."""
        if line is None or os.getpid() != self.process:
            return
        traced = self.learned.setdefault((*line, BACKWARD), [])
        if len(traced) < TRACED_ENOUGH:
            traced.append({number for loss in losses for number in _leaves(loss)})

    def look(self, frame: FrameType) -> None:
        code = frame.f_code
        file = self._file(code.co_filename)
        if file is None or os.getpid() != self.process:
            return
        whole = code.co_name == "<module>"
        if not whole and code.co_name.startswith("<"):
            return  # a comprehension or lambda
        self.looks[code] = self.looks.get(code, 0) + 1
        if self.looks[code] <= OFTEN_ENOUGH:
            line = 0 if whole else code.co_firstlineno
            for name, value in list(frame.f_locals.items()):
                self._variable((file, line, name), value)

    def _variable(self, place: Place, value: Any) -> None:
        file, line, name = place
        kind = self._kind(value)
        if kind == "own function" and value.__name__ == name:
            return  # its own definition
        if kind:
            counts = self.kinds.setdefault(place, {})
            counts[kind] = counts.get(kind, 0) + 1
            self.objects[id(value)] = value
            self.places.setdefault(id(value), set()).add(place)
        if kind in ("", "options") and "." not in name and self._holds_attributes(value):
            for attribute, inner in list(vars(value).items()):
                self._variable((file, line, f"{name}.{attribute}"), inner)

    def _kind(self, value: Any) -> str:
        torch = self.torch
        if isinstance(value, torch.nn.Module):
            if any(parameter.requires_grad for parameter in value.parameters()):
                return "model"
            return "frozen model" if next(value.parameters(), None) is not None else "module without weights"
        if isinstance(value, torch.optim.Optimizer):
            return "optimizer"
        if isinstance(value, torch.utils.data.DataLoader):
            return "loader"
        if isinstance(value, torch.optim.lr_scheduler.LRScheduler):
            return "scheduler"
        if isinstance(value, torch.amp.GradScaler):
            return "scaler"
        if isinstance(value, Namespace | SimpleNamespace):
            return "options"
        if isinstance(value, FunctionType | BuiltinFunctionType | functools.partial):
            if self._is_of_a_library(value):
                return "function"
            return "own function" if isinstance(value, FunctionType) and self._file(value.__code__.co_filename) else ""
        return ""

    def _defined(self, function: FunctionType) -> Place:
        code = function.__code__
        return self.files[code.co_filename] or "", code.co_firstlineno, code.co_name

    def _is_of_a_library(self, function: Any) -> bool:
        """A function of the project may use weights, and the code tells what it does."""
        if isinstance(function, functools.partial):
            handed = [*function.args, *function.keywords.values()]
            return self._is_of_a_library(function.func) and all(isinstance(each, int | float | str) for each in handed)
        module = sys.modules.get(getattr(function, "__module__", None) or "")
        outside = self._file(getattr(module, "__file__", None) or "") is None
        return outside and module is not None and getattr(function, "__self__", None) in (None, module)

    def _holds_attributes(self, value: Any) -> bool:
        """Options, and objects of the project's own classes."""
        if isinstance(value, Namespace | SimpleNamespace):
            return True
        module = sys.modules.get(type(value).__module__)
        return hasattr(value, "__dict__") and self._file(getattr(module, "__file__", None) or "") is not None

    def _file(self, name: str) -> str | None:
        if name not in self.files:
            path = Path(name).resolve() if name else self.copy.parent
            inside = path.is_relative_to(self.copy) and path.is_file()
            self.files[name] = path.relative_to(self.copy).as_posix() if inside else None
        return self.files[name]

    def write(self) -> None:
        """Each variable that held one kind of thing, and of an optimizer the models whose parameters it updates."""
        if os.getpid() != self.process:
            return
        sys.setprofile(None)
        of: dict[Place, list[int]] = {}
        for number, places in self.places.items():
            for place in places:
                of.setdefault(place, []).append(number)
        certain = {place: counts for place, counts in self.kinds.items() if len(counts) == 1}
        facts = []
        for place, counts in certain.items():
            ((kind, times),) = counts.items()
            over = self._over(kind, of[place]) & certain.keys()
            same = self._same(place, kind, of)
            facts.append({"place": place, "kind": kind, "times": times, "over": sorted(over), "same": sorted(same)})
        for place, traced in self.learned.items():
            through = self._holding(set.intersection(*traced)) & certain.keys()
            facts.append({"place": place, "kind": BACKWARD, "times": len(traced), "over": sorted(through), "same": []})
        (self.folder / "facts.json").write_text(json.dumps(facts), "utf-8")

    def _holding(self, parameters: set[int]) -> set[Place]:
        """The places of models that hold some of these parameters."""
        models = {n: m for n, m in self.objects.items() if isinstance(m, self.torch.nn.Module)}
        held = [n for n, m in models.items() if any(id(parameter) in parameters for parameter in m.parameters())]
        return {place for number in held for place in self.places[number]}

    def _same(self, place: Place, kind: str, of: dict[Place, list[int]]) -> set[Place]:
        """The other variables that held this one object and no other; of the project's function, where it is written."""
        (first, *others) = of[place]
        if others or kind == "function":
            return set()
        if kind == "own function":
            return {self._defined(self.objects[first])}
        same = self.places[first] - {place}
        return {each for each in same if of[each] == [first] and len(self.kinds[each]) == 1}

    def _over(self, kind: str, numbers: list[int]) -> set[Place]:
        """The places of the models all of whose learning parameters one optimizer updates, or one other model holds."""
        if kind == "optimizer":
            groups = [group for number in numbers for group in self.objects[number].param_groups]
            return self._within({id(parameter) for group in groups for parameter in group["params"]}, numbers)
        if kind == "model" and len(numbers) == 1:
            return self._within(self._learning[numbers[0]], numbers)
        return set()

    def _within(self, parameters: set[int], but: list[int]) -> set[Place]:
        held = [number for number, own in self._learning.items() if own <= parameters and number not in but]
        return {place for number in held for place in self.places[number]}

    @functools.cached_property
    def _learning(self) -> dict[int, set[int]]:
        """The parameters of each model that learn."""
        models = {number: model for number, model in self.objects.items() if self._kind(model) == "model"}
        return {n: {id(each) for each in model.parameters() if each.requires_grad} for n, model in models.items()}


def _leaves(loss: Any) -> set[int]:
    """The parameters that a loss was computed from."""
    pending, seen, found = [loss.grad_fn], set(), set()
    while pending:
        node = pending.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            found.add(id(node.variable))
        pending += [parent for parent, _ in node.next_functions]
    return found
