"""Moves to a device, and the variables that hold one."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from accel_migrate.analysis.values.origins import Where, is_options, of_variable, where
from accel_migrate.analysis.values.provenance import NotMigrated
from accel_migrate.analysis.values.roles import Role, Roles
from accel_migrate.flow.nodes import calls_method, is_none, unparse, walk
from accel_migrate.flow.once import once
from accel_migrate.flow.scopes import Binding, Module, Scope, Variable

SETTERS = ("torch.cuda.set_device", "torch.accelerator.set_device_index")
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


@once
def moves_in(roles: Roles, module: Module) -> list[Move]:
    return [move for call in module.calls if (move := _move(roles, module, call)) is not None]


def _move(roles: Roles, module: Module, call: ast.Call) -> Move | None:
    function = call.func
    if not isinstance(function, ast.Attribute) or function.attr not in ("to", "cuda"):
        return None
    if module.qualified(function) is not None:
        return None
    non_blocking = any(keyword.arg == "non_blocking" for keyword in call.keywords)
    if function.attr == "cuda":
        device = call.args[0] if call.args else None
        return Move(module, call, function.value, device, (), non_blocking)
    named = [keyword for keyword in call.keywords if keyword.arg == "device"]
    device = named[0].value if named else (call.args[0] if call.args else None)
    if device is None or not is_device(roles, module, device):
        return None
    kept: list[ast.expr | ast.keyword] = list(call.args if named else call.args[1:2])
    kept += [keyword for keyword in call.keywords if keyword.arg in ("dtype", "memory_format")]
    return Move(module, call, function.value, device, tuple(kept), non_blocking)


@once
def is_device(roles: Roles, module: Module, node: ast.expr) -> bool:
    """Whether an expression names the device that training runs on: not the CPU beside a GPU, nor where a tensor is."""
    meant = where(roles, module, node)
    if meant & (Where.GPU | Where.FIRST | Where.NUMBERED):
        return True
    if isinstance(node, ast.Constant) or not meant & ~Where.IN_PLACE:
        return False
    if not meant & ~(Where.CPU | Where.IN_PLACE):
        variable = module.variable(node)
        return variable is not None and _model_goes_to(roles, variable)
    dotted = module.qualified(node)
    if dotted is not None:
        return _is_imported_device(roles, module, dotted)
    variable = module.variable(node)
    if variable is not None and _model_goes_to(roles, variable) and not _is_type(variable):
        return True
    if isinstance(node, ast.Attribute) and node.attr == "device":
        if variable is None:
            return False
        bound = variable.scope.module.bindings(variable)
        # `self.device = device`, or of a configuration
        handed = [b.value for b in bound if isinstance(b.value, ast.Name | ast.Attribute) and b.value is not node]
        return (
            bool(roles.of(variable) & Role.DEVICE)
            or _is_settings(node.value)
            or any(is_device(roles, variable.scope.module, name) for name in handed)
        )
    if roles.role(module, node) & Role.DEVICE:
        return True
    text = unparse(node) if isinstance(node, ast.Name | ast.Attribute) else ""
    return bool(_DEVICE_NUMBER.search(text)) or text.endswith("device")


def _is_type(variable: Variable) -> bool:
    """`half = torch.float16`: what `.to` takes beside devices."""
    module = variable.scope.module
    return any(b.value is not None and "torch." in module.full_name(b.value) for b in module.bindings(variable))


def _model_goes_to(roles: Roles, variable: Variable) -> bool:
    """Whether a model is moved to what a variable holds: then the CPU is what the script trains on."""
    module = variable.scope.module
    return any(
        calls_method(call, "to")
        and any(module.variable(argument) == variable for argument in call.args)
        and bool(roles.role(module, call.func.value) & Role.MODEL)
        for call in module.calls
    )


def _is_imported_device(roles: Roles, module: Module, dotted: str) -> bool:
    """`config.DEVICE` and `from config import DEVICE`: set by another file of the project."""
    variable = roles.project.imported_variable(module, dotted)
    if variable is None:
        return dotted.rpartition(".")[2].lower() == "device" and not dotted.startswith("torch.")
    return bool(roles.of(variable) & Role.DEVICE)


def _is_settings(node: ast.expr) -> bool:
    text = unparse(node)
    return bool(re.search(r"(^|\.)(args?|opts?|options?|config|cfg|hparams|params|flags|FLAGS|conf|settings)$", text))


def names_cpu(roles: Roles, variable: Variable) -> bool:
    """`cpu = torch.device("cpu")`: a device of its own, not the one that training runs on."""
    return of_variable(roles, variable) == Where.CPU and not _model_goes_to(roles, variable)


def is_cpu(node: ast.expr | None) -> bool:
    """The CPU by its name."""
    if isinstance(node, ast.Call) and len(node.args) == 1:
        node = node.args[0]
    return isinstance(node, ast.Constant) and node.value == "cpu"


def unwrapped(module: Module, value: ast.expr) -> ast.expr:
    """`name` of `torch.device(name)`; anything else is itself."""
    made = isinstance(value, ast.Call) and module.qualified(value.func) == "torch.device" and value.args
    return value.args[0] if made and isinstance(value, ast.Call) else value


@dataclass(frozen=True, eq=False)
class DeviceDefinition:
    """The statement that decides on the device: one assignment, or an `if` whose branches do nothing else."""

    module: Module
    scope: Scope
    variable: Variable
    statement: ast.stmt
    value: ast.expr | None  # of a single assignment
    later: tuple[ast.stmt, ...] = ()  # `if torch.cuda.is_available(): device = "cuda"` below `device = "cpu"`
    does_more: bool = False  # it sets something else too, so it stays

    @property
    def values(self) -> list[ast.expr]:
        """All that it may set the variable to."""
        nodes = [node for s in (self.statement, *self.later) for node in walk(s)]
        return [value for node in nodes if (value := set_by(self.module, node, self.variable)) is not None]

    @property
    def is_text(self) -> bool:
        """Whether the device is kept by its name, which a script may compare."""
        parts = [node for statement in (self.statement, *self.later) for node in walk(statement)]
        return not any(
            isinstance(node, ast.Attribute) and node.attr == "device" and not _is_settings(node.value) for node in parts
        )


def device_definition(roles: Roles, variable: Variable) -> DeviceDefinition | None:
    """What sets a variable that holds the device."""
    module = variable.scope.module
    unknown = not roles.of(variable) and (_model_goes_to(roles, variable) or variable.name.endswith("device"))
    is_one = roles.of(variable) & Role.DEVICE or unknown
    if not is_one or names_cpu(roles, variable):
        return None
    bound = [b for b in module.bindings(variable) if b.kind == "assign" and b.value is not None]
    bindings = _choosing(module, bound)
    scope = variable.scope if bindings == bound else module.scope(bindings[0].statement)
    apart = [b for b in bindings if set_by(module, b.statement, variable) is not b.value]
    if any(isinstance(_item(b), ast.Name | ast.Attribute) for b in apart):  # `self.net, self.device = net, device`
        return None
    if len(bindings) == 1 and apart:  # `device, count = pick()`
        return DeviceDefinition(module, variable.scope, variable, bindings[0].statement, None, does_more=True)
    if not bindings or apart:
        return None
    both = _branches(roles, module, bindings)
    if both is not None and not _sets_only(module, [*both.body, *both.orelse], variable):
        return DeviceDefinition(module, scope, variable, both, None, does_more=True)
    statements = {_whole(module, binding.statement, variable): binding for binding in bindings}
    statement, binding = next(iter(statements.items()))
    single = binding.value if statement is binding.statement else None
    inside = set(module.walk(statement))
    later = tuple(b.statement for b in bindings if b.statement not in inside)
    return DeviceDefinition(module, scope, variable, statement, single, later)


def _choosing(module: Module, bindings: list[Binding]) -> list[Binding]:
    """Without `device = None` of the globals, where one function chooses: until then nothing is moved."""
    chosen = [b for b in bindings if not is_none(b.value)]
    functions = {module.scope(b.statement) for b in chosen}
    empty = all(b in chosen or module.scope(b.statement) is module.root for b in bindings)
    return chosen if empty and len(functions) == 1 and module.root not in functions else bindings


def _item(binding: Binding) -> ast.expr | None:
    """Of several things that are set at once from as many, the one that is set here."""
    value = binding.value
    for index in binding.path:
        value = value.elts[index] if isinstance(value, ast.Tuple | ast.List) and index < len(value.elts) else None
    return value


def _branches(roles: Roles, module: Module, bindings: list[Binding]) -> ast.If | None:
    """The `if` whose branches all set the device, each once, to no number but the user's, and not among processes."""
    parent = module.parents[bindings[0].statement]
    if len(bindings) < 2 or not isinstance(parent, ast.If):
        return None
    if not all(b.value is not None and _is_picked(roles, module, b.value) for b in bindings):
        return None
    called = [module.full_name(c.func) for c in module.walk(parent, ast.Call)]
    if any(name in SETTERS or name.startswith("torch.distributed") for name in called):
        return None
    blocks, last = [parent.body], parent.orelse
    while len(last) == 1 and isinstance(last[0], ast.If):
        blocks, last = [*blocks, last[0].body], last[0].orelse
    blocks.append(last)
    each = [sum(b.statement in block for b in bindings) for block in blocks]
    return parent if each == [1] * len(bindings) else None


def _is_picked(roles: Roles, module: Module, value: ast.expr) -> bool:
    """Whether a device is the CPU, the GPU, one by a number that is an option of the user's as it stands, or one by its name."""
    meant = where(roles, module, value)
    match value:
        case ast.Call(args=[ast.Name() as name], keywords=[]) if meant & Where.UNKNOWN:
            bound = module.bindings_of(name) if module.full_name(value.func) == "torch.device" else []
            return bool(bound) and all(
                b.kind == "assign" and b.value is not None and _is_setting(b.value) for b in bound
            )
    if meant & ~(Where.CPU | Where.GPU | Where.FIRST | Where.NUMBERED):
        return False
    options = [n for n in module.walk(value, ast.Attribute) if is_options(roles, module.variable(n.value))]
    if any(module.bindings_of(n) or n.attr.endswith("local_rank") for n in options):
        return False
    known = {option.value for option in options}
    others = [n for n in module.walk(value, ast.Name) if n not in known and module.qualified(n) is None]
    return not meant & Where.NUMBERED or all(n.id in ("str", "int") for n in others)


def _is_setting(value: ast.expr) -> bool:
    """`args.device`, `config["device"]`, `config.get("device", "cpu")`: what somebody wrote down, and no process's own."""
    names = [part for part in walk(value) if isinstance(part, ast.Constant | ast.Attribute)]
    told = [str(part.value if isinstance(part, ast.Constant) else part.attr) for part in names]
    read = isinstance(value, ast.Attribute | ast.Subscript | ast.Constant) or calls_method(value, "get")
    return read and not any(each.lower().endswith("rank") for each in told)


def check_later(definition: DeviceDefinition) -> None:
    """NotMigrated unless what sets the device again only refines the first choice."""
    module, first = definition.module, definition.value
    block = module.block(definition.statement)
    for statement in definition.later:
        again = statement.value if isinstance(statement, ast.Assign) else None
        same = first is not None and again is not None and ast.dump(first) == ast.dump(again)
        if isinstance(again, ast.Call) and module.qualified(again.func) == "torch.device" and len(again.args) == 1:
            same = same or module.variable(again.args[0]) == definition.variable  # `device = torch.device(device)`
        refines = _is_refined(definition, block, statement) and (is_cpu(first) != is_cpu(again))
        known = first is not None and again is not None and module.scope(statement) is definition.scope
        if not known or not (same or refines):
            raise NotMigrated(
                f"`{definition.variable.name}` is set to several devices, and only one can be the Accelerator's",
                (module, statement),
            )


def _is_refined(definition: DeviceDefinition, block: list[ast.stmt], later: ast.stmt) -> bool:
    """Whether a later `if` changes the choice before anything reads it."""
    module = definition.module
    top = next((index for index, item in enumerate(block) if later in module.walk(item)), None)
    if top is None or not isinstance(module.parents[later], ast.If):
        return False
    between = block[block.index(definition.statement) + 1 : top]
    return not any(
        isinstance(node, ast.Name | ast.Attribute) and module.variable(node) == definition.variable
        for statement in between
        for node in module.walk(statement)
        if statement not in definition.later
    )


def set_by(module: Module, statement: ast.AST, variable: Variable) -> ast.expr | None:
    """What an assignment, with an annotation or without, sets a variable to, and nothing else."""
    match statement:
        case ast.Assign(targets=[target]) | ast.AnnAssign(target=target) if module.variable(target) == variable:
            return statement.value
    return None


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
        elif set_gpu(module, statement) is None and set_by(module, statement, variable) is None:
            return False
    return True


def set_gpu(module: Module, statement: ast.stmt) -> ast.Call | None:
    """`torch.cuda.set_device(args.gpu)`: the Accelerator sets the device of its process."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    return call if isinstance(call, ast.Call) and module.qualified(call.func) in SETTERS else None
