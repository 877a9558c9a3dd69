"""A device that comes from outside, as an option or a parameter: it is set anew once the Accelerator is made."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from accel_migrate.analysis.distribution.replacements import Distribution
from accel_migrate.analysis.moves.devices import DeviceDefinition, Move
from accel_migrate.analysis.placement.overriding import is_overridden
from accel_migrate.analysis.placement.reach import NAME, Reach
from accel_migrate.analysis.values.loops import CallGraph
from accel_migrate.analysis.values.origins import Where, where
from accel_migrate.analysis.values.provenance import NotMigrated, chain
from accel_migrate.flow.nodes import calls_method, unparse
from accel_migrate.flow.scopes import Module, Scope, Variable


@dataclass(frozen=True, eq=False)
class OutsideDevice:
    """`args.device` or a parameter `device`, as the scope that makes the Accelerator writes it."""

    variable: Variable
    reads: tuple[ast.expr, ...]  # what still reads it after migration, in any file
    as_text: bool = False  # some ask for it as a text, or it is an option, which may be stored with the others

    def rebound(self) -> tuple[str, ...]:
        """`args.device = accelerator.device`, where the script goes on reading it."""
        now = f"str({NAME}.device)" if self.as_text else f"{NAME}.device"
        return (f"{self.variable.name} = {now}",) if self.reads else ()


def find_outside_device(
    graph: CallGraph,
    creation: Scope,
    moves: list[Move],
    modules: tuple[Module, ...],
    gone: frozenset[ast.AST],
    reach: Reach,
    distribution: Distribution,
) -> OutsideDevice | None:
    """The device that this training's moves name and nothing visible to the analysis decides on."""
    for move in moves:
        variable = move.module.variable(move.device) if move.device is not None else None
        for link in chain(graph, variable):
            if is_number(move) or is_told(distribution, link):
                continue
            outside = _comes_from_outside(link) or is_overridden(graph, link)
            if _is_visible(link, creation) and outside:
                replaced = set(_replaced(graph, reach))
                reads = [(m, n) for m in modules for n in _reads(graph, m, link) if n not in gone and n not in replaced]
                texts = [(m, n) for m, n in reads if is_asked_as_text(m, n)]
                _check_numbers(link, texts)
                asked = any(getattr(m.parents[n], "attr", "") in _OF_DEVICE for m, n in reads)
                as_text = bool(texts) or ("." in link.name and not asked)
                return OutsideDevice(link, tuple(node for _, node in reads), as_text)
    return None


def is_number(move: Move) -> bool:
    """`.cuda(args.gpu)`: the number of a GPU, which stays one for whatever else reads it."""
    return calls_method(move.call, "cuda")


def is_told(distribution: Distribution, variable: Variable) -> bool:
    """Whether a variable holds who this process is: the Accelerator says that from now on."""
    if variable in distribution.ranks or variable.name.endswith("local_rank"):
        return True
    spawned, worker = distribution.spawned, distribution.worker
    if spawned is not None and variable.scope.node is spawned.function:
        return variable.name in [name for name, _ in spawned.lost]
    told = (worker.gpu, *[unparse(copy.targets[0]) for copy in worker.copies]) if worker is not None else ()
    return variable.name in told


def _is_visible(link: Variable, creation: Scope) -> bool:
    """Whether the scope that makes the Accelerator can read it, and set it anew."""
    return link.scope is creation or (link.scope is creation.module.root and "." in link.name)


def _survives_number(module: Module, read: ast.expr) -> bool:
    """Whether a question to the text has the same answer for "cuda" and "cuda:0"."""
    parent = module.parents[read]
    if isinstance(parent, ast.Attribute):
        asked = module.parents[parent]
        words = asked.args if isinstance(asked, ast.Call) and asked.func is parent else []
        if parent.attr == "split":
            first = module.parents[asked]
            return isinstance(first, ast.Subscript) and unparse(first.slice) == "0"
        named = [word.value for word in words if isinstance(word, ast.Constant) and isinstance(word.value, str)]
        return parent.attr == "type" or (parent.attr == "startswith" and len(named) == 1 and ":" not in named[0])
    if isinstance(parent, ast.Compare) and len(parent.ops) == 1:
        other = parent.comparators[0] if parent.left is read else parent.left
        word = other.value if isinstance(other, ast.Constant) else None
        return word == "cpu" or (
            isinstance(parent.ops[0], ast.In | ast.NotIn) and parent.left is other and word == "cuda"
        )
    return False


def _comes_from_outside(variable: Variable) -> bool:
    if variable.scope.is_class:
        return False
    bindings = variable.scope.module.bindings(variable)
    if "." in variable.name:
        return not bindings
    return bool(bindings) and all(binding.kind == "parameter" for binding in bindings)


_OF_DEVICE = ("type", "index")  # a device's own
_KINDS = {"cuda", "mps", "xpu", "npu", "hpu"}


def texts_of(
    graph: CallGraph, definition: DeviceDefinition, modules: tuple[Module, ...], gone: frozenset[ast.AST]
) -> tuple[tuple[Module, ast.expr], ...]:
    """Where a script that keeps its device by name asks for that name: there it is the device's type."""
    if not definition.is_text:
        reads = [(m, node) for m in modules for node in _reads(graph, m, definition.variable) if node not in gone]
        return tuple((module, node) for module, node in reads if _asks_for_kind(module, node))
    own = {n for s in (definition.statement, *definition.later) for n in definition.module.walk(s)}
    found = tuple(
        (module, node)
        for module in modules
        for node in _reads(graph, module, definition.variable)
        if node not in gone and node not in own and is_asked_as_text(module, node)
    )
    if any(
        where(graph.roles, definition.module, value) & (Where.NUMBERED | Where.UNKNOWN) for value in definition.values
    ):
        _check_numbers(definition.variable, found)
    return found


def _asks_for_kind(module: Module, read: ast.expr) -> bool:
    """`str(device) == "cuda"`, which is not so of a device with a number; NotMigrated for `device == torch.device("cuda")`."""
    written = module.parents[read]
    match written:
        case ast.Call(func=ast.Name(id="str"), args=[_]):
            asked = module.parents[written]
        case _:
            asked = written
    if not isinstance(asked, ast.Compare) or not all(isinstance(op, ast.Eq | ast.NotEq) for op in asked.ops):
        return False
    kinds = [module.parents[part] for part in module.walk(asked, ast.Constant) if part.value in _KINDS]
    if asked is written:
        kinds = [made for made in kinds if isinstance(made, ast.Call)]  # no device is equal to a text, as before
    if kinds and asked is written:
        message = f"`{unparse(asked)}` is asked of a device that has a number from now on; ask for its type"
        raise NotMigrated(message, (module, read))
    return bool(kinds)


def _check_numbers(device: Variable, reads: Iterable[tuple[Module, ast.expr]]) -> None:
    """NotMigrated where a text is asked whose answer depends on whether the device has a number."""
    for module, node in reads:
        if not _survives_number(module, node):
            asked = module.parents[node]
            others = [asked.left, *asked.comparators] if isinstance(asked, ast.Compare) else [node]
            plain = all(  # `args.gpu is not None`, `args.gpu >= 0`
                isinstance(each, ast.Constant) and not isinstance(each.value, str)
                for each in others
                if each is not node
            )
            raise NotMigrated(
                f"`{device.name}` is the device, and asked for a number or None by `{unparse(asked)}`; keep the device in a "
                "variable of its own"
                if plain and len(others) > 1
                else f"`{device.name}` is compared with the name of a device, which may have a number from now on",
                (module, node),
            )


def is_asked_as_text(module: Module, read: ast.expr) -> bool:
    """`args.device == "cpu"`, `device.startswith(...)`: asked as a text, which the Accelerator's device is not."""
    parent = module.parents[read]
    if isinstance(parent, ast.Attribute):
        return parent.attr not in _OF_DEVICE
    return isinstance(parent, ast.Compare | ast.Subscript | ast.BinOp)


def _replaced(graph: CallGraph, reach: Reach) -> Iterator[ast.expr]:
    """Arguments in whose place the Accelerator is handed over."""
    for function, parameter in reach.parameters.items():
        if parameter.device is not None:
            for _, call in graph.sites.get(function, ()):
                yield from call.args
                yield from (keyword.value for keyword in call.keywords)


def _reads(graph: CallGraph, module: Module, given: Variable) -> Iterator[ast.expr]:
    last = given.name.rpartition(".")[2]
    for node in module.walk(module.tree, ast.Name, ast.Attribute):
        name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
        if name == last and isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            variable = module.variable(node)
            if given in chain(graph, variable):
                yield node
