"""Moves to a device, and the variables that hold one."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from accel_migrate.analysis.homes import NoHome
from accel_migrate.analysis.roles import Role, Roles
from accel_migrate.analysis.scopes import Binding, Module, Scope, Variable

SETTERS = ("torch.cuda.set_device", "torch.accelerator.set_device_index")
_SPEAKS_OF_DEVICES = re.compile(r"cuda|gpu|cpu|device|accel", re.I)
_DEVICE_NUMBER = re.compile(r"(^|[._])(local_rank|rank|gpu|gpu_id|device_id|cuda_id)$")


@dataclass(frozen=True, eq=False)
class Move:
    """`receiver.to(device, ...)` or `receiver.cuda(...)`; `kept` are the arguments that say more than where."""

    module: Module
    call: ast.Call
    receiver: ast.expr
    device: ast.expr | None  # None: `.cuda()`
    kept: tuple[ast.expr | ast.keyword, ...] = ()
    non_blocking: bool = False


def moves_in(roles: Roles, module: Module) -> list[Move]:
    return [move for call in module.calls if (move := _move(roles, module, call)) is not None]


def _move(roles: Roles, module: Module, call: ast.Call) -> Move | None:
    function = call.func
    if not isinstance(function, ast.Attribute) or module.qualified(function) is not None:
        return None
    non_blocking = any(keyword.arg == "non_blocking" for keyword in call.keywords)
    if function.attr == "cuda":
        device = call.args[0] if call.args else None
        return Move(module, call, function.value, device, (), non_blocking)
    if function.attr != "to":
        return None
    named = [keyword for keyword in call.keywords if keyword.arg == "device"]
    device = named[0].value if named else (call.args[0] if call.args else None)
    if device is None or not is_device(roles, module, device):
        return None
    kept: list[ast.expr | ast.keyword] = list(call.args if named else call.args[1:2])
    kept += [keyword for keyword in call.keywords if keyword.arg in ("dtype", "memory_format")]
    return Move(module, call, function.value, device, tuple(kept), non_blocking)


def is_device(roles: Roles, module: Module, node: ast.expr) -> bool:
    """Whether an expression names the device that training runs on; the CPU by name does not count."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and node.value.startswith(("cuda", "mps", "xpu"))
    dotted = module.qualified(node)
    if dotted is not None:
        return _is_imported_device(roles, module, dotted)
    if isinstance(node, ast.Attribute) and node.attr == "device":
        variable = module.variable(node)
        # `x.device` of a tensor follows the tensor and needs no change; `self.device`, `args.device` hold one.
        return variable is not None and (bool(roles.of(variable) & Role.DEVICE) or _is_settings(node.value))
    variable = module.variable(node)
    if variable is not None and names_cpu(module, variable):
        return False
    if roles.role(module, node) & Role.DEVICE:
        return True
    text = ast.unparse(node) if isinstance(node, ast.Name | ast.Attribute) else ""
    return bool(_DEVICE_NUMBER.search(text)) or text.endswith("device")


def _is_imported_device(roles: Roles, module: Module, dotted: str) -> bool:
    """`config.DEVICE` and `from config import DEVICE`: set by another file of the project."""
    owner, _, name = dotted.rpartition(".")
    other = roles.project.imported_module(module, owner) if owner else None
    if other is None:
        return name.lower() == "device" and not dotted.startswith("torch.")
    variable = Variable(other.root, name)
    return bool(roles.of(variable) & Role.DEVICE) and not names_cpu(other, variable)


def _is_settings(node: ast.expr) -> bool:
    text = ast.unparse(node)
    return bool(re.search(r"(^|\.)(args?|opts?|options?|config|cfg|hparams|params|flags|FLAGS|conf|settings)$", text))


def names_cpu(module: Module, variable: Variable) -> bool:
    """`cpu = torch.device("cpu")`: a device of its own, not the one that training runs on."""
    bindings = [b for b in module.bindings(variable) if b.value is not None]
    return "cpu" in variable.name.lower() and bool(bindings) and all(_is_cpu(b.value) for b in bindings)


def _is_cpu(node: ast.expr | None) -> bool:
    if isinstance(node, ast.Call) and len(node.args) == 1:
        node = node.args[0]
    return isinstance(node, ast.Constant) and node.value == "cpu"


@dataclass(frozen=True, eq=False)
class DeviceDefinition:
    """The statement that decides on the device: one assignment, or an `if` whose branches do nothing else."""

    module: Module
    scope: Scope
    variable: Variable
    statement: ast.stmt
    value: ast.expr | None  # of a single assignment
    later: tuple[ast.stmt, ...] = ()  # `if torch.cuda.is_available(): device = "cuda"` below `device = "cpu"`

    @property
    def is_text(self) -> bool:
        """Whether the device is kept by its name, which a script may compare."""
        parts = [node for statement in (self.statement, *self.later) for node in ast.walk(statement)]
        return not any(isinstance(node, ast.Attribute) and node.attr == "device" for node in parts)


def device_definition(roles: Roles, variable: Variable) -> DeviceDefinition | None:
    """What sets a variable that holds the device."""
    module = variable.scope.module
    if not roles.of(variable) & Role.DEVICE or names_cpu(module, variable):
        return None
    bindings = [b for b in module.bindings(variable) if b.kind == "assign" and b.value is not None]
    if not bindings or not all(_is_plain(b, roles, module) for b in bindings):
        return None
    statements = {_whole(module, binding.statement, variable): binding for binding in bindings}
    statement, binding = next(iter(statements.items()))
    single = binding.value if statement is binding.statement else None
    inside = set(module.walk(statement))
    later = tuple(b.statement for b in bindings if b.statement not in inside)
    return DeviceDefinition(module, variable.scope, variable, statement, single, later)


def check_later(definition: DeviceDefinition) -> None:
    """NoHome unless what sets the device again only refines the first choice."""
    module, first = definition.module, definition.value
    block = module.block(definition.statement)
    for statement in definition.later:
        again = statement.value if isinstance(statement, ast.Assign) else None
        same = first is not None and again is not None and ast.dump(first) == ast.dump(again)
        refines = any(statement in module.walk(item) for item in block) and (_is_cpu(first) != _is_cpu(again))
        known = first is not None and again is not None and module.scope(statement) is definition.scope
        if not known or not (same or refines):
            raise NoHome(
                f"`{definition.variable.name}` is set to several devices, and only one can be the Accelerator's",
                statement.lineno,
                module,
            )


def _is_plain(binding: Binding, roles: Roles, module: Module) -> bool:
    statement = binding.statement
    return (
        isinstance(statement, ast.Assign)
        and len(statement.targets) == 1
        and statement.value is binding.value
        and not binding.path
    )


def _whole(module: Module, statement: ast.stmt, variable: Variable) -> ast.stmt:
    """The outermost `if` around an assignment whose branches set this variable and nothing else."""
    whole = statement
    parent = module.parents.get(statement)
    while isinstance(parent, ast.If) and _sets_only(module, [*parent.body, *parent.orelse], variable) and parent.orelse:
        whole = parent
        parent = module.parents.get(parent)
    return whole


def _sets_only(module: Module, statements: list[ast.stmt], variable: Variable) -> bool:
    for statement in statements:
        if isinstance(statement, ast.If):
            if not _sets_only(module, [*statement.body, *statement.orelse], variable):
                return False
        elif not _sets_card(module, statement) and not (
            isinstance(statement, ast.Assign)
            and len(statement.targets) == 1
            and module.variable(statement.targets[0]) == variable
        ):
            return False
    return True


def _sets_card(module: Module, statement: ast.stmt) -> bool:
    """`torch.cuda.set_device(args.gpu)`: the Accelerator sets the device of its process."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(call, ast.Call) and module.qualified(call.func) in SETTERS


def cpu_wish(module: Module, definition: DeviceDefinition) -> str | None:
    """The condition under which the script asked for the CPU although a GPU is there; None if it never did."""
    refined = [s for s in definition.later if isinstance(module.parents[s], ast.If)]
    if refined and definition.value is not None:
        return _refined_wish(module, definition.value, refined[0])
    statement = definition.statement
    if isinstance(statement, ast.If):
        first = statement.body[-1]
        chosen = first.value if isinstance(first, ast.Assign) else None
        test: ast.expr | None = statement.test
        other = statement.orelse[-1].value if isinstance(statement.orelse[-1], ast.Assign) else None
    else:
        chosen, test, other = definition.value, None, None
    if (
        isinstance(chosen, ast.Call)
        and module.qualified(chosen.func) == "torch.device"
        and chosen.args
        and test is None
    ):
        chosen = chosen.args[0]
    choice = chosen
    if isinstance(choice, ast.IfExp):
        chosen, test, other = choice.body, choice.test, choice.orelse
    if _is_cpu(chosen) and test is None:
        return "True"
    asked = _asked_by_name(module, chosen)
    if test is None:
        return asked
    if _is_cpu(chosen) and not _is_cpu(other):
        test = ast.UnaryOp(ast.Not(), test)
    return _negated(_without_availability(module, test)) or asked


def _refined_wish(module: Module, first: ast.expr, later: ast.stmt) -> str | None:
    """`device = "cpu"`, then `if args.cuda: device = "cuda"`; or the other way round."""
    guard = module.parents[later]
    assert isinstance(guard, ast.If)
    test: ast.expr = guard.test if later in guard.body else ast.UnaryOp(ast.Not(), guard.test)
    return _negated(_without_availability(module, test)) if _is_cpu(first) else ast.unparse(test)


def guard_wish(scope: Scope, moves: list[Move]) -> str | None:
    """The same wish where no device is named: `if args.cuda: model.cuda()`, read in the scope that can ask it."""
    for move in moves:
        module = move.module
        if move.device is not None or module is not scope.module or module.scope(move.call) is not scope:
            continue
        guards = [parent for parent in module.ancestors(move.call) if isinstance(parent, ast.If)]
        for guard in guards[:1]:
            if not any(move.call in module.walk(statement) for statement in guard.body):
                continue
            test = _without_availability(module, guard.test)
            if test is not None and _SPEAKS_OF_DEVICES.search(ast.unparse(test)):
                return _negated(test)
    return None


def _asked_by_name(module: Module, chosen: ast.expr | None) -> str | None:
    """`args.device` may say "cpu" by itself."""
    if isinstance(chosen, ast.Call) and module.qualified(chosen.func) == "torch.device" and chosen.args:
        chosen = chosen.args[0]
    if isinstance(chosen, ast.Attribute) and chosen.attr == "device" and _is_settings(chosen.value):
        return f'{ast.unparse(chosen)} == "cpu"'
    return None


def _without_availability(module: Module, test: ast.expr, depth: int = 0) -> ast.expr | None:
    """The condition with "a GPU is there" taken as true; None when nothing else is asked."""
    if isinstance(test, ast.Call) and ast.unparse(test.func).endswith(("is_available", "device_count")):
        return None
    if isinstance(test, ast.Attribute) and test.attr == "is_available":
        return None  # the call is forgotten, and the script always takes the GPU
    if isinstance(test, ast.Compare) and "device_count" in ast.unparse(test):
        return None
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        parts = [part for value in test.values if (part := _without_availability(module, value, depth)) is not None]
        if not parts:
            return None
        return parts[0] if len(parts) == 1 else ast.BoolOp(ast.And(), parts)
    if isinstance(test, ast.Name) and depth < 3:
        variable = module.variable(test)
        bindings = module.bindings(variable) if variable is not None else []
        if len(bindings) == 1 and bindings[0].value is not None and "is_available" in ast.unparse(bindings[0].value):
            return _without_availability(module, bindings[0].value, depth + 1)
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = test.operand
        if isinstance(inner, ast.Call) and ast.unparse(inner.func).endswith("is_available"):
            return None
    return test


def _negated(test: ast.expr | None) -> str | None:
    if test is None:
        return None
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return ast.unparse(test.operand)
    if isinstance(test, ast.Constant):
        return None
    return (
        f"not {ast.unparse(test)}"
        if isinstance(test, ast.Name | ast.Attribute | ast.Call)
        else f"not ({ast.unparse(test)})"
    )
