"""A loop that is left as it was beside one that is migrated: neither may train what the other's loss goes through."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.check.evidence import Found, Side, is_accelerator
from accel_migrate.check.loss_paths import RUNS_NOTHING, Losses
from accel_migrate.flow.calls import Place
from accel_migrate.flow.nodes import children, unparse, walk
from accel_migrate.flow.program import Function
from accel_migrate.flow.scopes import Module

_QUIET = ("no_grad", "inference_mode")
_BEGINNINGS = ("expression", "item", "name", "result")
_HANDED_ON = frozenset(["requires_grad_", "parameters", "named_parameters"])
_LOOKED_AT = frozenset(["next", "sum", "len", "any", "all", "print"])  # `next(net.parameters()).device`


def left_beside(side: Side) -> Found:
    yield from _through_what_is_left(side)
    for file, call in side.calls:
        if is_plain_backward(side, call) and side.runs(file, call) and _is_stepped(side, file, call):
            calls = side.once(Losses).calls(file, call)
            through = [each for each, at in calls.items() if _runs_prepared(side, at, each)]
            if through:
                run = unparse(next(each for _, each in side.calls if each in through))[:50]
                yield file, call, f"`{unparse(call)[:50]}` is left as it was, and `{run}` runs what would be prepared"


def is_plain_backward(side: Side, call: ast.Call) -> bool:
    """`loss.backward()`, not that of the Accelerator or of a class of the project."""
    function = call.func
    if not isinstance(function, ast.Attribute) or function.attr != "backward" or is_accelerator(function.value):
        return False
    return not side.flows.callees.get(call)


def _through_what_is_left(side: Side) -> Found:
    """A loss that comes through a model which an optimizer steps, and neither of them is prepared."""
    trained = _trained_elsewhere(side)
    for file, backward in side.asked("backward") if trained else ():
        for call, at in side.once(Losses).calls(file, backward).items():
            if getattr(call.func, "attr", "") in RUNS_NOTHING:
                continue
            met = [origin for part in _chain(call.func) for origin in _origins(side, at, part) if origin in trained]
            if met and not _is_quiet(at, call):
                reason = f"which `{trained[met[0]][:50]}` trains and nothing prepares, so nobody averages its gradients"
                yield file, backward, f"the loss would come through `{unparse(call)[:50]}`, {reason}"
                break


def _trained_elsewhere(side: Side) -> dict[Place, str]:
    """Where the models began whose parameters something is handed, without what is prepared, its parts and what is frozen."""
    handed: dict[Place, str] = {}
    frozen: set[Place] = set()
    freed: set[Place] = set()
    prepared = _Prepared(side)
    for file, call in side.calls:
        if not isinstance(call.func, ast.Attribute) or call.func.attr not in _HANDED_ON or not side.runs(file, call):
            continue
        if call.func.attr == "requires_grad_":
            flag = unparse(call)
        else:
            above = file.parents[call]
            flag = unparse(above) if isinstance(above, ast.For) else ""
            if not _is_looked_at(file, call):
                _, *owners = _chain(call.func.value)
                if not any(prepared.holds(origin) for owner in owners for origin in _origins(side, file, owner)):
                    handed |= dict.fromkeys(_origins(side, file, call.func.value), unparse(above))
        if "requires_grad" in flag:
            (frozen if "False" in flag else freed).update(_origins(side, file, call.func.value))
    pending = list(handed)
    for origin in pending:  # a builder makes the model and its optimizer: what each call of it returns is trained
        if not prepared.holds(origin):
            brought = [places for places in side.flows.outside(origin).values() if not any(map(prepared.holds, places))]
            new = set().union(*brought) - handed.keys()
            handed |= dict.fromkeys(new, handed[origin])
            pending += new
    still = frozen - freed
    return {origin: text for origin, text in handed.items() if origin not in still and not prepared.holds(origin)}


class _Prepared:
    """The models that are prepared, with what they are made of; an optimizer is of no part of one."""

    def __init__(self, side: Side) -> None:
        run = {
            made
            for file, call in side.calls
            if getattr(call.func, "attr", "") not in RUNS_NOTHING
            for part in _chain(call.func)
            for made in side.flows.made(file, part, "prepared")
        }
        given = [(f, argument, (call, i)) for f, call in side.asked("prepare") for i, argument in enumerate(call.args)]
        models = [(file, argument) for file, argument, at in given if at in {(made.node, made.index) for made in run}]
        self._origins = {origin for file, argument in models for origin in _origins(side, file, argument)}
        self._classes = {made.node for file, argument in models for made in side.flows.made(file, argument, "instance")}
        self._side = side
        pending = list(self._origins)
        while pending:
            origin = pending.pop()
            made = {each for each in side.flows.inside(origin) if self._is_all_of(each)}
            new = (_parts(side, origin) | made) - self._origins
            self._origins |= new
            pending += new

    def _is_all_of(self, made: Place) -> bool:
        """Whether every call of a builder brings out something prepared."""
        return all(places & self._origins for places in self._side.flows.outside(made).values())

    def holds(self, origin: Place) -> bool:
        match origin:
            case ("expression" | "item", ast.Call() as call, *_):
                file = next(file for file in self._side.files if call in file.parents)
                return origin in self._origins or any(above in self._classes for above in file.ancestors(call))
        return origin in self._origins


def _parts(side: Side, origin: Place) -> set[Place]:
    """What the call that made something was handed: `Pair(encoder, decoder)`."""
    match origin:
        case ("expression" | "item", ast.Call() as call, *_) if getattr(call.func, "attr", "") != "prepare":
            file = next(file for file in side.files if call in file.parents)
            given = [part for argument in children(call) if argument is not call.func for part in walk(argument)]
            names = [part for part in given if isinstance(part, ast.Name | ast.Attribute | ast.Call)]
            return {each for name in names for each in _origins(side, file, name)}
    return set()


def _origins(side: Side, file: Module, node: ast.expr) -> set[Place]:
    """Where a value began; only if that is not visible, the field or the key that it is read from."""
    found = side.flows.origins(side.flows.place(file, node))
    return {each for each in found if isinstance(each, tuple) and each[0] in _BEGINNINGS} or found


def _chain(node: ast.expr) -> Iterator[ast.expr]:
    """`net.encode`, `net`"""
    yield node
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
        yield node


def _runs_prepared(side: Side, file: Module, call: ast.Call) -> bool:
    return not _is_quiet(file, call) and bool(side.flows.made(file, call.func, "prepared"))


def _is_quiet(file: Module, node: ast.AST) -> bool:
    """Whether no gradient is kept of what a node computes."""
    for above in file.ancestors(node):
        around = [item.context_expr for item in above.items] if isinstance(above, ast.With) else []
        if isinstance(above, ast.FunctionDef):
            around = above.decorator_list
        if any(word in unparse(each) for each in around for word in _QUIET):
            return True
    return False


def _is_looked_at(file: Module, parameters: ast.Call) -> bool:
    """`sum(p.numel() for p in net.parameters())`, `for p in net.parameters(): p.requires_grad = False`"""
    for above in file.ancestors(parameters):
        if isinstance(above, ast.For):
            return not any(getattr(node, "attr", "") in ("append", "extend", "add_param_group") for node in walk(above))
        if isinstance(above, ast.Call) and getattr(above.func, "id", "") in _LOOKED_AT:
            return True
        if isinstance(above, ast.stmt):
            return False
    return False


def _is_stepped(side: Side, file: Module, backward: ast.Call) -> bool:
    """Whether an optimizer is stepped where a backward pass runs, or by who calls it: gradients of an input alone are not."""
    function = file.scope(backward).frame.node
    sites = side.above(function) if isinstance(function, Function) else []
    around = [_round(file, backward), *[_round(site.file, site.call) for site in sites]]
    called = [node for each in around for node in walk(each) if isinstance(node, ast.Call)]
    return any(getattr(call.func, "attr", "") == "step" for call in called)


def _round(file: Module, node: ast.AST) -> ast.AST:
    """The loop or the function in which a node runs."""
    around = (above for above in file.ancestors(node) if isinstance(above, ast.For | ast.While | Function))
    return next(around, file.tree)
