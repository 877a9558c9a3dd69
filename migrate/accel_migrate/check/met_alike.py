"""AM969: tensors that met on one device still do, and what stayed on the CPU for those who need it there still does."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.check.condition import Condition, Project, Violation
from accel_migrate.check.evidence import Evidence, Side, is_accelerator, step_of
from accel_migrate.check.moved_later import moved_no_more, run_before_their_move
from accel_migrate.check.scattered import takes_to_gpu
from accel_migrate.check.whereabouts import CPU, DEVICE, Where, Whereabouts
from accel_migrate.flow.definitions import BUILTINS
from accel_migrate.flow.fields import self_of
from accel_migrate.flow.nodes import called_name, unparse, walk
from accel_migrate.flow.program import Function
from accel_migrate.flow.scopes import Module

CODE = "AM969"
Key = tuple[str, str]  # the function, and what is done in it
_MOVES = frozenset({"to", "cuda", "cpu"})
# Draws by the generator of the device that the tensor is on, and what only the CPU has.
_NEED_CPU = frozenset(
    {
        "numpy", "bernoulli", "bernoulli_", "multinomial", "normal_", "uniform_", "random_", "exponential_", "apply_", "map_",
        "rand_like", "randn_like", "randint_like", "pack_padded_sequence", "__array__", "pin_memory",
    }
)  # fmt: skip
_ANYWHERE = frozenset(
    {
        "len", "print", "isinstance", "type", "str", "repr", "int", "float", "bool", "range", "zip", "enumerate", "list", "tuple",
        "dict", "set", "sum", "max", "min", "abs", "sorted", "iter", "next", "tqdm", "Variable", "id", "hasattr", "getattr",
        "append", "extend", "insert", "update", "add", "save", "deepcopy", "copy", "format", "reversed", "all", "any", "round",
        "pow", "make_grid", "save_image", "info", "debug", "write",
    }
)  # fmt: skip
_TENSORS = (
    "torch.",
    "torchvision.",
    "torchmetrics.",
    "torch_geometric.",
    "dgl.",
    "einops.",
    "kornia.",
    "pytorch_msssim.",
)


def find(project: Project) -> Iterator[Violation]:
    for file, node, message in _found(project):
        if project.evidence.after.may_have_gpu(file, node):
            yield Violation(CODE, file.path, node.lineno, message)


def _found(project: Project) -> Iterator[tuple[Module, ast.stmt | ast.expr, str]]:
    evidence = project.evidence
    if not evidence.after.created or (evidence.after.kept_on_cpu and not evidence.after.scripts_with_gpu):
        return
    before, after = evidence.before.once(Whereabouts), evidence.after.once(Whereabouts)
    yield from _left_before_prepare(evidence)
    yield from run_before_their_move(evidence)
    yield from moved_no_more(evidence)
    for pair in project.files:
        old, new = evidence.before.file(pair.path), evidence.after.file(pair.path)
        if old is None or new is None or new not in evidence.after.involved:
            continue
        known = _meetings(old)
        for key, nodes in _meetings(new).items():
            others = known.get(key, [])
            if len(others) != len(nodes):
                continue
            for node, other in zip(nodes, others):
                message = _parted(after, new, node, before, old, other) or _needed(after, new, node, before, old, other)
                message = message or _left_behind(evidence.after, after, new, node, before, old, other)
                if not message or _takes_any(evidence.after, new, node) or _scatters(old, other):
                    continue
                if evidence.after.runs(new, node):
                    yield new, node, message


def _left_before_prepare(evidence: Evidence) -> Iterator[tuple[Module, ast.stmt, str]]:
    """`if predict_only: return` in a constructor above prepare(), of a model that nothing else moves any more."""
    side = evidence.after
    for file, call in side.asked("prepare"):
        scope = file.scope(call).frame
        old = evidence.before.file(file.path)
        known = {each.path: each for each in old.scopes.values()} if old is not None else {}
        graph, was = side.graph(scope), known.get(scope.path)
        prepared = step_of(file, call, graph)
        if old is None or was is None or prepared is None or not isinstance(scope.node, Function):
            continue
        for field in [part for part in call.args if isinstance(part, ast.Attribute) and self_of(file, part.value)]:
            text = unparse(field)
            if not _moved(was.node, text) or _moved(scope.node, text):
                continue
            made = [n for n in walk(scope.node) if isinstance(n, ast.Assign) and unparse(n.targets[0]) == text]
            for node in walk(scope.node):
                if (
                    isinstance(node, ast.Return)
                    and graph.holds(node)
                    and any(
                        graph.holds(first) and first is not prepared and graph.reachable_past(first, node, [prepared])
                        for first in made
                    )
                ):
                    yield file, node, f"`{text}` would stay on the CPU where `{unparse(node)}` leaves before prepare()"
                    break


def _moved(function: ast.AST, text: str) -> bool:
    """Whether a function moves a field, by itself or as it is made."""
    for node in walk(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("to", "cuda"):
            if unparse(node.func.value) == text:
                return True
        elif isinstance(node, ast.Assign) and unparse(node.targets[0]) == text:
            value = node.value
            if isinstance(value, ast.Call) and getattr(value.func, "attr", "") in ("to", "cuda"):
                return True
    return False


def _takes_any(side: Side, file: Module, node: ast.expr) -> bool:
    """Whether a call is the project's own, which is looked into, or that of a module of torch, which is where its inputs are."""
    if not isinstance(node, ast.Call):
        return False
    return bool(side.flows.callees.get(node)) or any(
        (file.qualified(call.func) or "").startswith("torch.nn.") for call in _makers(file, node)
    )


def _scatters(file: Module, node: ast.expr) -> bool:
    """Whether a model was in a wrapper that takes its inputs to the GPU from wherever they are."""
    return isinstance(node, ast.Call) and any(takes_to_gpu(file, call) for call in _makers(file, node))


def _makers(file: Module, call: ast.Call) -> list[ast.Call]:
    """The calls whose results what is called was set to."""
    text = unparse(call.func)
    made = [n.value for n in file.walk(file.tree, ast.Assign) if unparse(n.targets[0]) == text]
    return [part for value in made for part in walk(value) if isinstance(part, ast.Call)]


def _meetings(file: Module) -> dict[Key, list[ast.expr]]:
    """Where a function lets values meet, or hands them on, by what it does: the third `a == b` of it, the first `f(x)`."""
    found: dict[Key, list[ast.expr]] = {}
    for node in file.walk(file.tree, ast.Call, ast.BinOp, ast.Compare, ast.Subscript):
        if type(node) is ast.Call:
            name = called_name(node)
            if name in _MOVES or (isinstance(node.func, ast.Attribute) and is_accelerator(node.func.value)):
                continue
        else:
            name = type(node).__name__ + type(getattr(node, "op", None)).__name__
        found.setdefault((file.scope(node).frame.path, name), []).append(node)
    return found


def _operands(file: Module, node: ast.expr) -> list[ast.expr]:
    match node:
        case ast.Call():
            owner = [node.func.value] if isinstance(node.func, ast.Attribute) and not file.qualified(node.func) else []
            return [*owner, *node.args, *[keyword.value for keyword in node.keywords]]
        case ast.BinOp():
            return [node.left, node.right]
        case ast.Compare() if not any(isinstance(o, ast.Is | ast.IsNot | ast.In | ast.NotIn) for o in node.ops):
            return [node.left, *node.comparators]
        case ast.Subscript():
            return [node.value, node.slice]
    return []


def _parted(after: Whereabouts, new: Module, node: ast.expr, before: Whereabouts, old: Module, other: ast.expr) -> str:
    """What is on the CPU, and meets something on the device, though it did not before."""
    parts = _operands(new, node)
    if sum(not isinstance(part, ast.Constant) for part in parts) < 2:
        return ""  # a number or a text is nowhere
    if isinstance(node, ast.Call) and not (_is_of_tensors(new, node) or _is_method(new, node)):
        return ""
    places = [(part, after.of(new, part)) for part in parts]
    alone = [part for part, where in places if where == {CPU}]
    if isinstance(node, ast.Subscript):
        alone = [part for part in alone if part is node.value]  # an index may be on the CPU
    if not alone or not any(where == {DEVICE} for _, where in places):
        return ""
    had = [_was(before, old, part) for part in _operands(old, other)]
    if len(had) != len(places) or not any(
        was in ({CPU}, {DEVICE}) and was != now for was, (_, now) in zip(had, places)
    ):
        return ""  # so it was, or nobody knows
    if {CPU} in had and {DEVICE} in had:
        return ""  # a number in a tensor may be anywhere
    return f"`{unparse(alone[0])[:40]}` would be on the CPU in `{unparse(node)[:60]}`, and what it meets on the device"


def _was(before: Whereabouts, old: Module, part: ast.expr) -> Where:
    """Where a value of the original is: all of a program that moves nothing is on the CPU."""
    found = before.of(old, part)
    return found if before.moves_anything or not found else frozenset({CPU})


def _needed(after: Whereabouts, new: Module, node: ast.expr, before: Whereabouts, old: Module, other: ast.expr) -> str:
    """What was on the CPU and would be on the device, where it is handed to somebody who may need it on the CPU."""
    if not isinstance(node, ast.Call) or not isinstance(other, ast.Call) or not _may_need_cpu(new, node):
        return ""
    if not before.moves_anything and not (_is_of_library(new, node) or called_name(node) == "numpy"):
        return ""  # all goes to the device together, with its draws
    for part, was in zip(_operands(new, node), _operands(old, other)):
        where: Where = after.of(new, part)
        if where == {DEVICE} and _was(before, old, was) == {CPU}:
            return f"`{unparse(part)[:40]}` was on the CPU in `{unparse(node)[:60]}`, and would be on the device"
    return ""


def _left_behind(
    side: Side, after: Whereabouts, new: Module, node: ast.expr, before: Whereabouts, old: Module, other: ast.expr
) -> str:
    """What was on the device whenever something out of sight, such as a model, was called with it, and no longer always is."""
    if not isinstance(node, ast.Call) or not isinstance(other, ast.Call) or not _is_variable(new, node.func):
        return ""
    function = new.scope(node).frame.node
    above = side.above(function) if isinstance(function, Function) else []
    entries: list[ast.Call | None] = [site.call for site in above] or [None]
    for part, was in zip(_operands(new, node), _operands(old, other)):
        places = [after.of(new, part, entry) for entry in entries]
        if {CPU} in places and before.of(old, was) == {DEVICE}:
            return f"`{unparse(part)[:40]}` was on the device in `{unparse(node)[:60]}`, and would be on the CPU"
    return ""


def _is_variable(file: Module, called: ast.expr) -> bool:
    """Whether what is called is a value of the program, `model` or `self.model`, and not a function by its name."""
    if isinstance(called, ast.Attribute):
        return self_of(file, called.value) is not None
    return isinstance(called, ast.Name) and called.id not in BUILTINS and file.qualified(called) is None


def _may_need_cpu(file: Module, call: ast.Call) -> bool:
    name = called_name(call)
    if name in _NEED_CPU:
        return True
    return not (name in _ANYWHERE or _is_of_tensors(file, call) or _is_method(file, call))


def _is_of_library(file: Module, call: ast.Call) -> bool:
    return file.qualified(call.func) is not None and not _is_of_tensors(file, call)


def _is_of_tensors(file: Module, call: ast.Call) -> bool:
    return (file.qualified(call.func) or "").startswith(_TENSORS)


def _is_method(file: Module, call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and not file.qualified(call.func)


CONDITION = Condition(
    code=CODE,
    name="met_alike",
    summary="tensors that met on one device would part, or what is needed on the CPU would be on the device",
    why="Batches of a prepared loader are on the device. What the script left on the CPU, for numpy, for lengths, to compare "
    "with something that is there, or for a function that nobody can look into, must stay there.",
    example_before="rows = table_on_cpu[indices]  # indices: of a prepared loader",
    example_after="loader = accelerator.prepare(loader, device_placement=[False])",
    find=find,
)
