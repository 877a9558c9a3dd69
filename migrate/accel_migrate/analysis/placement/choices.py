"""What the script and its user choose of the device, as arguments of the Accelerator: the CPU, or a device by its name."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from accel_migrate.analysis.distribution.replacements import Distribution
from accel_migrate.analysis.moves.devices import DeviceDefinition, Move, is_cpu, set_by, set_gpu, unwrapped
from accel_migrate.analysis.placement.outside_device import OutsideDevice, is_number
from accel_migrate.analysis.values.origins import Where, of_any, options_added, where
from accel_migrate.analysis.values.provenance import NotMigrated
from accel_migrate.analysis.values.roles import Role, Roles
from accel_migrate.flow.main_guard import asks_for_name
from accel_migrate.flow.nodes import calls_method, is_call_of, is_none, opposite, unparse, walk
from accel_migrate.flow.points import ends
from accel_migrate.flow.scopes import Module, Scope, Variable

_AVAILABLE = ("is_available", "is_built", "device_count")
_LOOSE = (ast.BoolOp, ast.IfExp, ast.Lambda, ast.NamedExpr)
_KIND = re.compile(r"\b(cuda|mps|xpu|npu|hpu)\b")


@dataclass(frozen=True)
class Choice:
    """`cpu=` or `device=`; `stays`: what decides on the device is too long for an argument, and stays above."""

    cpu: str | None = None
    device: str | None = None
    stays: bool = False


def find_choice(
    roles: Roles,
    creation: Scope,
    device: DeviceDefinition | None,
    given: OutsideDevice | None,
    moves: list[Move],
    distribution: Distribution,
) -> Choice:
    """What the script chooses of its device, wherever it does."""
    if device is not None:
        choice = choice_of(roles, device, distribution.ranks)
    elif given is not None:
        moved = of_any(roles, [(move.module, move.device) for move in moves if move.device is not None])
        choice = Choice(device=_or_cpu(given.variable.name, moved))
    else:
        wish, worker = guard_wish(roles, creation, moves, distribution), distribution.worker
        # Whether a worker is one of several the Accelerator tells it: that cannot be asked before there is one.
        choice = Choice(cpu=None if worker is not None and wish is not None and worker.flag in wish else wish)
    choice = _with_inline_wishes(creation, moves, choice, device is not None or given is not None)
    named = _inline_choice(roles, creation, moves, distribution.ranks, device is not None or given is not None)
    if named is None and choice == Choice():
        named = _set_by_hand(roles, creation, distribution)
    if named is not None:
        wishes = [choice.cpu] if choice.cpu is not None else []
        if any(_asks_for_cuda(move) for move in moves):
            wishes.append("not torch.cuda.is_available()")
            if creation.module.imports.get("torch") != "torch":
                raise NotMigrated(
                    "torch, which knows whether there is a GPU, is not imported where the Accelerator is created", 1
                )
        choice = Choice(device=f'"cpu" if {" or ".join(wishes)} else {named}' if wishes else named)
    text = _text_choice(creation.module, distribution)
    return Choice(device=text) if choice == Choice() and text is not None else choice


def _asks_for_cuda(move: Move) -> bool:
    """Whether a move is made only where there is CUDA: by an `if` around it that asks, also through a name."""
    module = move.module
    tests = [above.test for above in module.ancestors(move.call) if isinstance(above, ast.If | ast.IfExp)]
    for test in tests:
        for node in module.walk(test):
            values = [b.value for b in module.bindings_of(node) if b.value is not None]
            asked = [part for value in (node, *values) for part in walk(value)]
            if any(isinstance(part, ast.Attribute) and part.attr == "is_available" for part in asked):
                return True
    return False


def _with_inline_wishes(creation: Scope, moves: list[Move], choice: Choice, decided: bool) -> Choice:
    """The choice, with what moves ask in their place: `x.to("cuda" if args.gpu else "cpu")`; NotMigrated if they disagree."""
    for move in moves:
        if not isinstance(move.device, ast.IfExp) or is_cpu(move.device.body) == is_cpu(move.device.orelse):
            continue
        wish = _on_each_kind(move.module, [move.device], partial(_wish_of_value, move.module, move.device))
        names = [node for node in walk(move.device.test) if isinstance(node, ast.Name)]
        known = all(creation.module.resolve(n.id, creation) == move.module.variable(n) for n in names)
        if not decided and choice == Choice() and wish is not None and known:
            choice = Choice(cpu=wish)
        if choice.device is not None or choice.cpu != wish:
            raise NotMigrated(
                f"`{move.module.source.code(move.device)}` chooses a device by a condition of its own, and the "
                "Accelerator has one device",
                (move.module, move.call),
            )
    return choice


def _wish_of_value(module: Module, value: ast.expr, kind: str | None) -> bool | ast.expr:
    value = unwrapped(module, value)
    if isinstance(value, ast.IfExp):
        body, orelse = (_wish_of_value(module, part, kind) for part in (value.body, value.orelse))
        return _chosen(simplified(module, value.test, kind), body, orelse)
    return is_cpu(value) or is_none(value)


def _on_each_kind(
    module: Module, asked: Sequence[ast.AST], wish: Callable[[str | None], bool | ast.expr]
) -> str | None:
    """The wish on a machine with a GPU, of CUDA or any kind asked for; where it depends on that, in the script's own words.

    No machine has GPUs of two kinds: that each is there must not be assumed at once. A script that knows of others and not
    of CUDA trains on the CPU where there is CUDA.
    """
    wishes = {text_of(wish(kind)) for kind in {"cuda", *_kinds(module, asked)}}
    return wishes.pop() if len(wishes) == 1 else text_of(wish(None))


def _kinds(module: Module, asked: Sequence[ast.AST]) -> set[str]:
    """The kinds of GPU that are named or asked for, also by what a name in it is bound to."""
    found: set[str] = set()
    pending = list(asked)
    for node in pending:
        for part in walk(node):
            if isinstance(part, ast.Constant | ast.Attribute | ast.Call):
                found.update(_KIND.findall(unparse(part)))
            values = [b.value for b in module.bindings_of(part) if b.value]
            pending += [value for value in values if value not in pending and "is_available" in unparse(value)]
    return found


def _text_choice(module: Module, distribution: Distribution) -> str | None:
    """A device that is kept as text: `device = "cuda"`, later `f"cuda:{rank}"`."""
    for replacement in distribution.replacements:
        statement = replacement.statement
        kept_as_text = replacement.text is not None and replacement.text.startswith("str(")
        if kept_as_text and isinstance(statement, ast.Assign) and statement.value is replacement.node:
            return module.source.code(statement.targets[0])
    return None


def below_definition(device: DeviceDefinition) -> ast.stmt:
    """The statement that follows all that decides on the device."""
    module = device.module
    block = module.block(device.statement)
    last = max(
        i for i, item in enumerate(block) if any(s in module.walk(item) for s in (device.statement, *device.later))
    )
    if last + 1 == len(block):
        raise NotMigrated("nothing follows the choice of the device in its block", (module, device.statement))
    return block[last + 1]


def _inline_choice(
    roles: Roles, creation: Scope, moves: list[Move], ranks: frozenset[Variable], decided: bool
) -> str | None:
    """The one GPU by its number that moves name in their place; NotMigrated where there are several, or one beside another."""
    found: dict[str | None, Move] = {}
    for move in moves:
        if move.device is None:
            found.setdefault(None, move)
            continue
        if is_number(move) and not names_rank(move.module, move.device, ranks):
            if is_gpu_number(roles, move.module, move.device):
                found.setdefault(f'f"cuda:{{{unparse(move.device)}}}"', move)
            continue
        meant = where(roles, move.module, move.device)
        is_text = not isinstance(move.device, ast.Name | ast.Attribute)
        if not is_text or meant & Where.UNKNOWN or names_rank(move.module, move.device, ranks):
            continue
        found.setdefault(device_text(move.module, move.device) if meant & Where.NUMBERED else None, move)
    numbered = [text for text in found if text is not None]
    if not numbered:
        return None
    second = found[numbered[-1]]
    if len(found) > 1 or decided:
        raise NotMigrated(
            f"`{numbered[-1]}` is a second device, and the Accelerator has one", (second.module, second.call)
        )
    names = [node for node in walk(second.device or second.call) if isinstance(node, ast.Name)]
    if any(creation.module.resolve(n.id, creation) != second.module.variable(n) for n in names):
        raise NotMigrated(
            f"`{numbered[0]}` is not known where the Accelerator is created", (second.module, second.call)
        )
    return numbered[0]


def _set_by_hand(roles: Roles, creation: Scope, distribution: Distribution) -> str | None:
    """The one GPU that `torch.cuda.set_device(1)` makes current, on no condition: what says no more than `cuda` is there."""
    module = creation.module
    found = [call for r in distribution.replacements if r.module is module and (call := set_gpu(module, r.statement))]
    of_cuda = len(found) == 1 and len(found[0].args) == 1 and module.full_name(found[0].func).startswith("torch.cuda.")
    given = found[0].args[0] if of_cuda else None
    if given is None or distribution.joins or module.block(module.statement(given)) is not creation.node.body:  # type: ignore[attr-defined]
        return None
    value = module.only_value(given) or given
    if isinstance(value, ast.Constant):
        text = f"cuda:{value.value}" if type(value.value) is int else str(value.value)
        return f'"{text}"' if text not in ("cuda", "cuda:0") else None
    return f'f"cuda:{{{unparse(given)}}}"' if is_gpu_number(roles, module, given) else None


def is_gpu_number(roles: Roles, module: Module, node: ast.expr, depth: int = 3) -> bool:
    """Whether an expression is the number of a GPU that the user chooses: an option that always is an integer."""
    value = module.only_value(node)
    if value is not None and depth:
        return is_gpu_number(roles, module, value, depth - 1)
    if not isinstance(node, ast.Attribute) or module.bindings_of(node):
        return False
    options = options_added(roles.project, node.attr)
    return bool(options) and all(_is_integer(call) for _, call in options)


def _is_integer(call: ast.Call) -> bool:
    said = {keyword.arg: keyword.value for keyword in call.keywords}
    default, kind = said.get("default"), said.get("type")
    if "nargs" in said or not isinstance(default, ast.Constant) or type(default.value) is not int:
        return False
    return isinstance(kind, ast.Name) and kind.id == "int"


def choice_of(roles: Roles, definition: DeviceDefinition, ranks: frozenset[Variable]) -> Choice:
    """The choice that the definition of the device makes."""
    module = definition.module
    values = definition.values
    meant = of_any(roles, [(module, value) for value in values])
    if definition.does_more:
        return Choice(device=definition.variable.name, stays=True)
    picked = [value for value in values if where(roles, module, value) & (Where.NUMBERED | Where.UNKNOWN)]
    if not picked or any(names_rank(module, value, ranks) for value in picked):
        return Choice(cpu=cpu_wish(module, definition))
    text = device_text(module, definition.value) if definition.value is not None else ""
    if len(values) > 1 or not text or (meant & Where.UNMOVED and "(" in text):
        return Choice(device=_or_cpu(definition.variable.name, meant), stays=True)
    return Choice(device=_or_cpu(text, meant))


def _or_cpu(text: str, meant: Where) -> str:
    """A device by its name, or the CPU where the name is None: that moved nothing, and an Accelerator takes a GPU for it."""
    return f'"cpu" if {text} is None else {text}' if meant & Where.UNMOVED else text


def device_text(module: Module, value: ast.expr) -> str:
    """`args.device` of `torch.device(args.device)`: the Accelerator takes a device or its name."""
    if isinstance(value, ast.Call) and len(value.args) == 1 and not value.keywords:
        value = unwrapped(module, value)
    code = module.source.code(value)
    return unparse(value) if "\n" in code else code


def names_rank(module: Module, value: ast.expr, ranks: frozenset[Variable]) -> bool:
    """Whether a device is the one of this process, by its number: that one the Accelerator takes by itself."""
    for node in module.walk(value):
        if isinstance(node, ast.Constant) and node.value in ("LOCAL_RANK", "RANK"):
            return True
        if isinstance(node, ast.Call) and module.full_name(node.func).startswith("torch.distributed."):
            return True
        if isinstance(node, ast.Name | ast.Attribute):
            variable = module.variable(node)
            if variable is not None and (variable in ranks or variable.name.endswith("local_rank")):
                return True
    return False


def cpu_wish(module: Module, definition: DeviceDefinition) -> str | None:
    """The condition under which the script asked for the CPU although a GPU is there; None if it never did."""
    refined = [later for later in definition.later if isinstance(module.parents[later], ast.If)]
    deciding = (definition.statement, *refined)
    block = [s for s in module.block(definition.statement) if any(module.holds(s, each) for each in deciding)]
    return _on_each_kind(module, block, lambda kind: _wish_after(module, block, definition.variable, False, kind))


def _wish_after(
    module: Module, block: list[ast.stmt], device: Variable, wish: bool | ast.expr, kind: str | None
) -> bool | ast.expr:
    """The wish below a block that sets the device, in branches too, or leaves it."""
    for statement in block:
        if isinstance(statement, ast.If):
            body, orelse = (
                _wish_after(module, part, device, wish, kind) for part in (statement.body, statement.orelse)
            )
            wish = _chosen(simplified(module, statement.test, kind), body, orelse)
        elif (value := set_by(module, statement, device)) is not None:
            wish = _wish_of_value(module, value, kind)
        elif any(module.holds(statement, binding.statement) for binding in module.bindings(device)):
            raise NotMigrated("the device is chosen inside a block that is not an `if`", (module, statement))
    return wish


def _chosen(test: bool | ast.expr, body: bool | ast.expr, orelse: bool | ast.expr) -> bool | ast.expr:
    """`body if test else orelse`, as short as it can be said."""
    if isinstance(test, bool):
        return body if test else orelse
    if body is orelse:
        return body
    return _either(_both(test, body), _both(negated(test), orelse))


def guard_wish(roles: Roles, scope: Scope, moves: list[Move], distribution: Distribution) -> str | None:
    """The same wish where no device is named: `if args.cuda: model.cuda()`, read in the scope that can ask it.

    NotMigrated where the moves depend on different conditions, unless the script chooses among processes by them.
    """
    found: dict[str | None, ast.Call] = {}
    wrapped = {part for w in distribution.wrappings for part in w.module.walk(w.call)}
    moves = [move for move in moves if move.call not in wrapped]
    models = [move for move in moves if roles.role(move.module, move.receiver) & Role.MODEL]
    for move in models or moves:
        module = move.module
        names_none = move.device is None or (calls_method(move.call, "cuda"))
        guard = _guard(module, move.call)
        if names_none and module is scope.module and _is_asked_in(scope, module.scope(move.call), guard):
            found.setdefault(text_of(negated(guard)), move.call)
    if len(found) > 1 and None not in found and not distribution:
        told = " and ".join(f"`{text}`" for text in found)
        raise NotMigrated(
            f"what is moved to the GPU depends on several conditions ({told})", list(found.values())[1].lineno
        )
    return next(iter(found)) if len(found) == 1 else None


def _is_asked_in(scope: Scope, own: Scope, guard: bool | ast.expr) -> bool:
    """Whether a scope asks this by itself; a class in its constructor, or of what its object has in any method."""
    if not scope.is_class:
        return own is scope
    names = {node.id for node in walk(guard) if isinstance(node, ast.Name)} if not isinstance(guard, bool) else set()
    return own.owner_class is scope and (own.name == "__init__" or names <= {own.self_name, *scope.module.imports})


def _guard(module: Module, call: ast.expr) -> bool | ast.expr:
    """The condition under which `.cuda()` is called on a machine with CUDA: `args.cuda`, and true where it has no condition."""
    for choice, holds in module.branches(call):
        test = simplified(module, choice.test, "cuda")
        one_way = isinstance(choice, ast.If) and ends(choice.orelse if holds else choice.body)
        if not isinstance(test, bool) and not one_way:
            return test if holds else negated(test)
    return True


def simplified(module: Module, test: ast.expr, kind: str | None, depth: int = 0) -> bool | ast.expr:
    """A condition on a machine with a GPU of a kind: whether one is there is known, and what else is asked stays.

    Without a kind, what asks for a GPU stays as well.
    """
    if isinstance(test, ast.Constant):
        return bool(test.value)
    if isinstance(test, ast.Call) and (
        unparse(test.func).endswith(_AVAILABLE) or unparse(test).startswith("hasattr(torch")
    ):
        return _is_there(test, kind)
    if is_call_of(test, "bool") and test.args:
        return simplified(module, test.args[0], kind, depth)
    if isinstance(test, ast.Attribute) and test.attr == "is_available":
        return True  # the call is forgotten, and the script always takes the GPU
    if isinstance(test, ast.Compare) and asks_for_name(test):
        return True
    if isinstance(test, ast.Compare) and "device_count" in unparse(test):
        return _is_there(test, kind)
    if isinstance(test, ast.BoolOp):
        joined = _both if isinstance(test.op, ast.And) else _either
        result: bool | ast.expr = isinstance(test.op, ast.And)
        for value in test.values:
            result = joined(result, simplified(module, value, kind, depth))
        return result
    if isinstance(test, ast.IfExp):
        return _chosen(*(simplified(module, part, kind, depth) for part in (test.test, test.body, test.orelse)))
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return negated(simplified(module, test.operand, kind, depth))
    if isinstance(test, ast.Name) and kind is not None and depth < 3:
        named = module.only_value(test)
        if named is not None and "is_available" in unparse(named):
            return simplified(module, named, kind, depth + 1)
    return test


def _is_there(question: ast.expr, kind: str | None) -> bool | ast.expr:
    """The answer on a machine with a GPU of a kind: true as well where the question names none."""
    asked = _KIND.findall(unparse(question))
    return question if kind is None else not asked or kind in asked


def _both(left: bool | ast.expr, right: bool | ast.expr) -> bool | ast.expr:
    if isinstance(left, bool):
        return right if left else False
    if isinstance(right, bool):
        return left if right else False
    return ast.BoolOp(ast.And(), [left, right])


def _either(left: bool | ast.expr, right: bool | ast.expr) -> bool | ast.expr:
    if isinstance(left, bool):
        return True if left else right
    if isinstance(right, bool):
        return True if right else left
    return ast.BoolOp(ast.Or(), [left, right])


def negated(test: bool | ast.expr) -> bool | ast.expr:
    return not test if isinstance(test, bool) else opposite(test)


def text_of(test: bool | ast.expr) -> str | None:
    """`cpu=...` as it is written; None where it is never wished."""
    if isinstance(test, bool):
        return "True" if test else None
    if isinstance(test, ast.BoolOp):  # `a and not b`, where ast writes `a and (not b)`
        parts = [f"({unparse(v)})" if isinstance(v, _LOOSE) else unparse(v) for v in test.values]
        return (" and " if isinstance(test.op, ast.And) else " or ").join(parts)
    return unparse(test)
