"""Whether a device is the machine's GPU wherever there is one, on every path: what an Accelerator takes that is told nothing."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from accel_migrate.check.devices_together import Devices
from accel_migrate.check.evidence import Side, argument_of, parameter_names
from accel_migrate.check.with_a_gpu import GPUS, WithAGpu
from accel_migrate.flow.nodes import unparse, walk
from accel_migrate.flow.program import Function, default_of
from accel_migrate.flow.scopes import Module
from accel_migrate.flow.sequence import follows

_BLOCKS = (ast.If, ast.IfExp, ast.For, ast.AsyncFor, ast.While, ast.Try, ast.Match)
_CURRENT = ("torch.cuda.current_device", "torch.accelerator.current_accelerator")
Valued = Iterable[tuple[Module, ast.expr]]


class MachinesGpu:
    """What is not proven to be a GPU on a machine that has one: the CPU by name, None, an option, whatever cannot be read."""

    def __init__(self, side: Side) -> None:
        self._side = side
        self._devices = side.once(Devices)
        self._asked: dict[Module, WithAGpu] = {}
        self._seen: set[ast.expr] = set()

    def doubted(self, file: Module, node: ast.expr) -> str | None:
        """The part of a device's origins that is not proven; None if all are."""
        self._seen = set()
        return self._doubted(file, node)

    def is_there(self, file: Module, node: ast.expr, depth: int = 4) -> bool:
        """Whether a model or tensor was moved to such a GPU before, wherever it comes from: a move to None leaves it there."""
        match node:
            case ast.Call(func=ast.Attribute(attr="cuda")):
                return True
            case ast.Call(func=ast.Attribute(attr="to"), args=[device, *_]):
                return self.doubted(file, device) is None
            case ast.Name() if depth:
                values = list(self._values(file, node))
                return bool(values) and all(self.is_there(home, value, depth - 1) for home, value in values)
        return False

    def holds(self, file: Module, test: ast.expr, depth: int = 4) -> bool:
        """Whether a condition holds on every machine with a GPU, whatever its options: `DiceLoss(use_gpu=True)`."""
        if self._condition(file, test) is True:
            return True
        if not depth or not isinstance(test, ast.Name | ast.Attribute):
            return False
        values = list(self._values(file, test))
        return bool(values) and all(self.holds(home, value, depth - 1) for home, value in values)

    def _doubted(self, file: Module, node: ast.expr) -> str | None:
        if node in self._seen:
            return None  # what is made of itself is what else it is made of
        self._seen.add(node)
        match node:
            case ast.Attribute(attr="device") if self._devices.follows(file, node):
                return None
            case ast.Constant(value=str(text)) if text.split(":")[0] in GPUS:
                return None
            case ast.Constant(value=int()) | ast.JoinedStr() | ast.BinOp():  # its number is another question
                return None
            case ast.IfExp() if any(getattr(part, "attr", "") in ("is_cuda", "device") for part in walk(node.test)):
                return None  # as a tensor is: it follows what it meets
            case ast.IfExp():
                return self._any((file, part) for part in self._taken(file, node))
            case ast.BoolOp():
                return self._any((file, part) for part in node.values)
            case ast.Call(func=ast.Attribute(attr="format", value=ast.Constant())):
                return None
            case ast.Call() if file.qualified(node.func) in _CURRENT:
                return None
            case ast.Call(args=[first, *_]) if (
                file.qualified(node.func) == "torch.device" or unparse(node.func) == "str"
            ):
                return self._doubted(file, first)
            case ast.Call():
                return self._any(self._returned(node), f"what {unparse(node)[:60]} gives")
            case ast.Attribute(attr="type", value=device) if not self._devices.set_to(file, node):
                return self._doubted(file, device)
            case ast.Name() | ast.Attribute():
                return self._any(self._values(file, node), f"`{unparse(node)}`")
            case ast.Subscript(slice=ast.Constant(value=str(key))):
                return self._any(self._devices.entries(key), f"`{unparse(node)[:60]}`")
        return f"`{unparse(node)[:60]}`"

    def _any(self, parts: Valued, unknown: str | None = None) -> str | None:
        """The first doubt about several origins; None where nothing is in doubt."""
        parts = list(parts)
        found = (self._doubted(file, part) for file, part in parts)
        return next((text for text in found if text is not None), unknown if not parts else None)

    def _taken(self, file: Module, node: ast.IfExp) -> list[ast.expr]:
        """The branches of a choice that are taken on a machine with a GPU."""
        chosen = self._condition(file, node.test)
        return [node.body, node.orelse] if chosen is None else [node.body if chosen else node.orelse]

    def _condition(self, file: Module, test: ast.expr) -> bool | None:
        """The answer to a condition on a machine with a GPU; None where something else decides."""
        if file not in self._asked:
            self._asked[file] = WithAGpu(file)
        answer = self._asked[file].condition(test)
        return answer if isinstance(answer, bool) else None

    def _returned(self, call: ast.Call) -> Valued:
        for function in self._side.flows.callees.get(call, ()):
            file = self._side.flows.function_file[function]
            returns = file.walk(function, ast.Return)
            own = [node for node in returns if file.scope(node).frame.node is function and self._runs(file, node)]
            for number, node in enumerate(own):
                if not any(self._surely(file, earlier, node) for earlier in own[:number]):
                    yield file, node.value or ast.Constant(None)

    def _values(self, file: Module, node: ast.Name | ast.Attribute) -> Valued:
        """What a name or an attribute may hold on a machine with a GPU."""
        known = [(home, value) for home, value in self._devices.set_to(file, node) if self._runs(home, value)]
        for home, value in known:
            later = [other for there, other in known if there is home and follows(home, value, other)]
            if not any(self._surely(home, other, value) for other in later):
                yield home, value
        scope = file.binder(node.id, file.scope(node)) if isinstance(node, ast.Name) else None
        function = scope.node if scope is not None else None
        if isinstance(node, ast.Name) and isinstance(function, Function) and node.id in parameter_names(function):
            default = default_of(function, node.id)
            sites = self._side.above(function)
            handed = [(site.file, argument_of(function, site.call, node.id)) for site in sites] or [(file, None)]
            for home, given in handed:
                if given is not None:
                    yield home, given
                elif default is not None:
                    yield file, default
        if isinstance(node, ast.Attribute) and self._devices.is_option(file, node):
            yield file, ast.Constant(None)

    def _runs(self, file: Module, value: ast.AST) -> bool:
        """Whether no `if` around it keeps it from a machine with a GPU."""
        return not any(
            isinstance(above, ast.If) and self._condition(file, above.test) == (below in above.orelse)
            for below, above in _above(file, value)
        )

    def _surely(self, file: Module, value: ast.AST, beside: ast.AST) -> bool:
        """Whether a value takes the place of another on every machine with a GPU: no block holds it alone but such an `if`."""
        if file.scope(value).frame is not file.scope(beside).frame:
            return False
        around = {above: below for below, above in _above(file, beside)}
        for below, above in _above(file, value):
            if not isinstance(above, _BLOCKS):
                continue
            if above in around:
                return not isinstance(above, ast.If) or (below in above.body) == (around[above] in above.body)
            if not isinstance(above, ast.If) or self._condition(file, above.test) != (below in above.body):
                return False
        return True


def _above(file: Module, node: ast.AST) -> list[tuple[ast.AST, ast.AST]]:
    """What is around a node in its function, each with the part that holds the node."""
    found: list[tuple[ast.AST, ast.AST]] = []
    for above in file.ancestors(node):
        if isinstance(above, (Function, ast.Module)):
            break
        found.append((node, above))
        node = above
    return found
