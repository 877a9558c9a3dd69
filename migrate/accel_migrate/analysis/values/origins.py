"""Which device an expression means: the CPU, the machine's GPU, one by its number, or wherever a tensor is."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from enum import Flag, auto
from functools import reduce
from operator import or_

from accel_migrate.analysis.values.entries import entries, fields
from accel_migrate.analysis.values.roles import Role, Roles, given_by
from accel_migrate.effects import more_than_an_answer
from accel_migrate.flow.nodes import calls_method, is_call_of, keyword_value, unparse, walk
from accel_migrate.flow.program import Definition, Program, default_of
from accel_migrate.flow.scopes import Binding, Function, Module, Variable

_DEPTH = 10
_ASKS_TORCH = {
    "torch.accelerator.current_accelerator", "torch.cuda.current_device", "torch.accelerator.current_device_index",
}  # fmt: skip


class Where(Flag):
    """What an expression may mean; several where branches differ."""

    NOTHING = 0
    CPU = auto()
    GPU = auto()  # "cuda", without a number: the current one, which an Accelerator sets for its process
    FIRST = auto()  # "cuda:0": what an Accelerator takes on one process
    NUMBERED = auto()  # one that the author or the user picked
    FOLLOWS = auto()  # `x.device`: where something is already
    UNMOVED = auto()  # None: `x.to(None)` moves nothing
    UNKNOWN = auto()
    IN_PLACE = FOLLOWS | UNMOVED


def where(roles: Roles, module: Module, node: ast.expr, depth: int = 0) -> Where:
    """The device that an expression means."""
    if depth > _DEPTH:
        return Where.UNKNOWN
    if isinstance(node, ast.Constant):
        return of_constant(node.value)
    if isinstance(node, ast.IfExp):
        return where(roles, module, node.body, depth + 1) | where(roles, module, node.orelse, depth + 1)
    if isinstance(node, ast.BoolOp):
        found = Where.NOTHING
        for value in node.values:
            found &= ~Where.UNMOVED if isinstance(node.op, ast.Or) else found  # what is None leaves it to the next
            found |= where(roles, module, value, depth + 1)
        return found
    if isinstance(node, ast.Call):
        return _of_call(roles, module, node, depth)
    if isinstance(node, ast.JoinedStr | ast.BinOp):
        return _of_text(roles, module, node, list(_filled_in(node)), depth)
    if isinstance(node, ast.Name | ast.Attribute):
        return _of_name(roles, module, node, depth)
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return of_any(roles, entries(roles, module, node.value, node.slice.value, depth), depth + 1) or Where.UNKNOWN
    return Where.UNKNOWN


def of_any(roles: Roles, values: Iterable[tuple[Module, ast.expr]], depth: int = 0) -> Where:
    """The devices that one of several expressions may mean."""
    return reduce(or_, (where(roles, module, value, depth) for module, value in values), Where.NOTHING)


def of_constant(value: object) -> Where:
    if value is None:
        return Where.UNMOVED
    if isinstance(value, int) and not isinstance(value, bool):
        return Where.FIRST if value == 0 else Where.NUMBERED
    if value == "cpu":
        return Where.CPU
    found = re.fullmatch(r"(cuda|mps|xpu|npu|hpu)(?::(\d+))?", value) if isinstance(value, str) else None
    if found is None:
        return Where.UNKNOWN
    if found[2] is None:
        return Where.GPU
    return Where.FIRST if found[2] == "0" else Where.NUMBERED


def _of_text(roles: Roles, module: Module, text: ast.expr, numbers: list[ast.expr], depth: int) -> Where:
    """`f"cuda:{n}"`: the first GPU where the number is known to be 0."""
    if not _starts_with_cuda(text):
        return Where.UNKNOWN
    first = bool(numbers) and all(where(roles, module, number, depth + 1) == Where.FIRST for number in numbers)
    return Where.FIRST if first else Where.NUMBERED


def _filled_in(text: ast.expr) -> Iterator[ast.expr]:
    """What a text is put together of: `n` of `f"cuda:{n}"`, `"cuda:" + str(n)` and `"cuda:%d" % n`."""
    if isinstance(text, ast.JoinedStr):
        yield from (part.value for part in text.values if isinstance(part, ast.FormattedValue))
    elif isinstance(text, ast.BinOp):
        yield text.right


def _starts_with_cuda(node: ast.expr) -> bool:
    """`f"cuda:{n}"`, `"cuda:" + n`, `"cuda:%d" % n`."""
    while isinstance(node, ast.BinOp):
        node = node.left
    first = node.values[0] if isinstance(node, ast.JoinedStr) and node.values else node
    return isinstance(first, ast.Constant) and str(first.value).startswith("cuda")


def _of_call(roles: Roles, module: Module, call: ast.Call, depth: int) -> Where:
    dotted = module.full_name(call.func)
    if dotted == "torch.device" and call.args:
        kind = where(roles, module, call.args[0], depth + 1)
        numbers = [*call.args[1:], *[keyword.value for keyword in call.keywords if keyword.arg == "index"]]
        if numbers and kind & Where.GPU:  # of `torch.device("cuda", n)`
            always_first = where(roles, module, numbers[0], depth + 1) == Where.FIRST
            return kind & ~Where.GPU | (Where.FIRST if always_first else Where.NUMBERED)
        return kind
    if dotted in _ASKS_TORCH:
        return Where.GPU
    if calls_method(call, "format"):
        return _of_text(roles, module, call.func.value, call.args, depth)
    if is_call_of(call, "str") and len(call.args) == 1:
        return where(roles, module, call.args[0], depth + 1)
    if is_call_of(call, "getattr") and len(call.args) > 1:
        return (
            Where.FOLLOWS
            if isinstance(call.args[1], ast.Constant) and call.args[1].value == "device"
            else Where.UNKNOWN
        )
    if unparse(call.func).endswith((".get", "getenv")) and call.args:  # of the environment, or of a configuration
        rest = [*call.args[1:], *[keyword.value for keyword in call.keywords]]
        return Where.UNKNOWN | (where(roles, module, rest[0], depth + 1) if rest else Where.UNMOVED)
    target = roles.target(module, call)
    if target is None or isinstance(target.node, ast.ClassDef):
        return Where.UNKNOWN
    found = of_any(roles, [(target.module, value) for value in target.returned], depth + 1)
    if _depends_on_caller(target) or _does_more(roles, target):
        return Where.UNKNOWN | found & Where.UNMOVED
    return found or Where.UNKNOWN


def _depends_on_caller(target: Definition) -> bool:
    """Whether a function that chooses a device asks for more than whether there is a GPU."""
    node = target.node
    if isinstance(node, ast.ClassDef) or node.args.kwonlyargs:
        return True
    given = {argument.arg for argument in node.args.args}
    if given - {target.scope.self_name} or any(isinstance(part, ast.Name) and part.id in given for part in walk(node)):
        return True
    tests = [part.test for part in walk(node) if isinstance(part, ast.If | ast.IfExp)]
    asked = [part for test in tests for part in walk(test) if isinstance(part, ast.Name)]
    if not all(name.id == "hasattr" or target.module.full_name(name).startswith("torch") for name in asked):
        return True
    return not all("is_available" in unparse(test) or "device_count" in unparse(test) for test in tests)


def _does_more(roles: Roles, target: Definition) -> bool:
    """Whether a function that chooses a device acts too, so that its call must stay."""

    def called(call: ast.Call) -> list[Function]:
        found = next((roles.function(module, call) for module in roles.project.modules if call in module.parents), None)
        return [found.node] if found is not None else []

    return not isinstance(target.node, ast.ClassDef) and more_than_an_answer(target.node, called) is not None


def _of_name(roles: Roles, module: Module, node: ast.Name | ast.Attribute, depth: int) -> Where:
    dotted = module.qualified(node)
    if dotted is not None:
        imported = roles.project.imported_variable(module, dotted)
        if imported is not None:
            return of_variable(roles, imported, depth + 1)
    variable = module.variable(node)
    if dotted is None and variable is not None and variable.scope.module.bindings(variable):
        return of_variable(roles, variable, depth + 1)
    written = fields(roles, module, node) if isinstance(node, ast.Attribute) else []
    if written or dotted is not None:
        return of_any(roles, written, depth + 1) or Where.UNKNOWN
    defaults = _defaults_of_option(roles, module, node)
    if defaults:
        return of_any(roles, defaults, depth + 1) | Where.UNKNOWN
    if isinstance(node, ast.Attribute) and node.attr == "device":
        return _of_attribute(roles, module, node, variable, depth)
    return Where.UNKNOWN


def _defaults_of_option(roles: Roles, module: Module, node: ast.Name | ast.Attribute) -> list[tuple[Module, ast.expr]]:
    """The defaults that parsers give to `args.place`; None where the option may be left out without one."""
    if not isinstance(node, ast.Attribute) or module.variable(node) is None:
        return []
    found: list[tuple[Module, ast.expr]] = []
    for home, call in options_added(roles.project, node.attr):
        said = {keyword.arg: keyword.value for keyword in call.keywords}
        flag = call.args[0].value if call.args and isinstance(call.args[0], ast.Constant) else ""
        left_out = str(flag).startswith("-") and not {"required", "action"} & {*said}
        default = said.get("default", ast.Constant(None) if left_out else None)
        found += [(home, default)] if default is not None else []
    return found if found and is_options(roles, module.variable(node.value)) else []


def options_added(project: Program, name: str) -> list[tuple[Module, ast.Call]]:
    """The calls that add an option to a parser, by the name of the attribute that it becomes."""
    added = [(module, call) for module, call in project.calls if calls_method(call, "add_argument")]
    return [(module, call) for module, call in added if name in _names_of_option(call)]


def _names_of_option(call: ast.Call) -> list[object]:
    said = keyword_value(call, "dest")
    if isinstance(said, ast.Constant):
        return [said.value]
    flags = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    return [flag.lstrip("-").replace("-", "_") for flag in flags]


def _of_attribute(roles: Roles, module: Module, node: ast.Attribute, variable: Variable | None, depth: int) -> Where:
    """`x.device` that nothing in the file sets: of a tensor or a model, or an option."""
    owner = module.variable(node.value)
    if not isinstance(node.value, ast.Name | ast.Attribute):
        return Where.FOLLOWS  # `next(model.parameters()).device`, `batch["x"].device`
    if isinstance(node.value, ast.Attribute) and node.value.attr in ("weight", "bias"):
        return Where.FOLLOWS
    if variable is None or owner is None:
        return Where.UNKNOWN
    if roles.role(module, node.value) & (Role.MODEL | Role.BATCH | Role.OUTPUT):
        return Where.FOLLOWS
    if isinstance(node.value, ast.Name) and node.value.id == module.scope(node).self_name:
        found = roles.project.definition(module, node)
        return Where.FOLLOWS if found is not None else Where.UNKNOWN  # a property asks its own weights
    if _is_registered(roles, owner):
        return Where.FOLLOWS
    if is_options(roles, owner, depth):
        return Where.UNKNOWN
    bindings = [b for b in owner.scope.module.bindings(owner) if b.kind != "import"]
    handed = [b for b in bindings if b.kind == "parameter"]
    known = [v for v in _handed(roles, owner) if v is not None] if handed else []
    asked = _is_asked_as_tensor(owner.scope.module, owner)
    if known and not asked and all(is_options(roles, v, depth) for v in known):
        return Where.UNKNOWN
    return Where.FOLLOWS if _is_tensor(roles, owner, depth) else Where.UNKNOWN


def _is_registered(roles: Roles, variable: Variable) -> bool:
    """What a module has and nothing sets: a buffer that it registered."""
    owner = variable.scope
    module = owner.module
    return (
        owner.is_class
        and variable.name.count(".") == 1
        and not module.bindings(variable)
        and roles.project.is_torch_module(Definition(module, owner.node))  # type: ignore[arg-type]
        and any(n.attr == "register_buffer" for n in module.walk(owner.node, ast.Attribute))
    )


def _is_tensor(roles: Roles, variable: Variable, depth: int) -> bool:
    """Whether a variable is seen to be a tensor or a module: computed with, or made by a call that gives no options."""
    module = variable.scope.module
    if _is_used_as_tensor(module, variable):
        return True
    values = [binding.value for binding in module.bindings(variable) if binding.value is not None]
    if variable.scope.is_class:  # `self.weight.device`, and not `self.config.device`
        return any(isinstance(v, ast.Call) and module.full_name(v.func).startswith("torch.") for v in values)
    return any(
        isinstance(v, ast.BinOp | ast.Subscript) or (isinstance(v, ast.Call) and not _parses(roles, module, v, depth))
        for v in values
    )


def is_options(roles: Roles, variable: Variable | None, depth: int = 0) -> bool:
    """Whether a variable holds what was parsed from the command line or a settings file, is a class, or is handed such."""
    if variable is None:
        return False
    module = variable.scope.module
    bindings = module.bindings(variable)
    if any(b.kind == "parameter" for b in bindings):
        if depth > _DEPTH or _is_asked_as_tensor(module, variable):
            return False
        given = [(caller, passed) for caller, _, passed in given_by(roles.sites, variable) if passed is not None]
        if any(_parses(roles, caller, passed, depth) for caller, passed in given):
            return True  # `main(parser.parse_args())`
        handed = [v for caller, passed in given if (v := caller.variable(passed)) is not None]
        used_as_tensor = bool(roles.of(variable) & (Role.MODEL | Role.BATCH | Role.OUTPUT))
        if not handed:
            return not used_as_tensor and not _is_used_as_tensor(module, variable)
        return any(is_options(roles, v, depth + 1) for v in handed)
    return any(
        isinstance(b.statement, ast.ClassDef) or (b.value is not None and _parses(roles, module, b.value, depth))
        for b in bindings
    )


_OPTIONS = re.compile(  # and not `sparse`, `predictor` or a loader
    r"((?<!s)parse|args|config|option|setting|hydra|namespace|munch|easydict|yaml|json|load(?!er)|(?<!pre)dict)", re.I
)


def _parses(roles: Roles, module: Module, value: ast.expr, depth: int) -> bool:
    """Whether a call gives options: a parser's, by its name, a plain class, or a function of the project that returns some."""
    if not isinstance(value, ast.Call):
        return False
    target = roles.target(module, value)
    if target is not None and isinstance(target.node, ast.ClassDef):
        return not target.node.bases
    if target is not None and depth <= _DEPTH:
        if any(
            _parses(roles, target.module, each, depth + 1) or is_options(roles, target.module.variable(each), depth + 1)
            for each in target.returned
        ):
            return True
    dotted = module.qualified(value.func) or unparse(value.func)
    return not dotted.startswith("torch.") and bool(_OPTIONS.search(dotted))


def _is_asked_as_tensor(module: Module, variable: Variable) -> bool:
    """Whether a method is called that tensors have, and options do not: `x.size(0)`."""
    return any(name.removesuffix("_") in _OF_TENSORS for name, _ in module.method_calls.get(variable, ()))


def _is_used_as_tensor(module: Module, variable: Variable) -> bool:
    """Whether a function computes with its parameter: `x.shape`, `x + 1`, `x[0]`."""
    for node in module.walk(variable.scope.node):
        if not isinstance(node, ast.Name) or module.variable(node) != variable or not isinstance(node.ctx, ast.Load):
            continue
        parent = module.parents[node]
        if isinstance(parent, ast.BinOp | ast.Subscript | ast.UnaryOp):
            return True
        if isinstance(parent, ast.Attribute) and parent.attr.removesuffix("_") in _OF_TENSORS:
            return True
        if isinstance(parent, ast.Call) and node in parent.args:
            return True
    return False


_OF_TENSORS = {
    "shape", "size", "dim", "ndim", "view", "reshape", "dtype", "to", "float", "long", "mean", "sum", "parameters", "new",
    "transpose", "permute", "unsqueeze", "squeeze", "numel", "type", "detach", "clone", "data", "is_cuda", "flatten",
    "add", "sub", "mul", "div", "pow", "exp", "log", "clamp", "mm", "matmul", "unbind", "chunk", "expand", "contiguous",
    "argmax", "softmax", "sigmoid", "type_as",
}  # fmt: skip


def of_variable(roles: Roles, variable: Variable, depth: int = 0) -> Where:
    """The device that a variable holds, by all that is bound to it."""
    if depth > _DEPTH:
        return Where.UNKNOWN
    module = variable.scope.module
    found = Where.NOTHING
    for binding in module.bindings(variable):
        if binding.kind == "parameter":
            found |= _of_parameter(roles, variable, depth)
        else:
            value = _set_to(binding)
            found |= where(roles, module, value, depth + 1) if value is not None else Where.UNKNOWN
    return found or Where.UNKNOWN


def _set_to(binding: Binding) -> ast.expr | None:
    """What an assignment sets a name to, also as one of several: `n, device = *x.shape, x.device`."""
    value, statement = binding.value, binding.statement
    if binding.kind != "assign" or not binding.path:
        return value if binding.kind == "assign" else None
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    if not isinstance(target, ast.Tuple) or not isinstance(value, ast.Tuple) or len(binding.path) > 1:
        return None
    index = binding.path[0]
    before, behind = value.elts[: index + 1], value.elts[index - len(target.elts) :]
    if not any(isinstance(part, ast.Starred) for part in (*target.elts[:index], *before)):
        return before[index] if index < len(before) else None
    single = not any(isinstance(part, ast.Starred) for part in (*target.elts[index:], *behind))
    return behind[0] if single and len(behind) == len(target.elts) - index else None


def _of_parameter(roles: Roles, variable: Variable, depth: int) -> Where:
    module, function = variable.scope.module, variable.scope.node
    if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
        return Where.UNKNOWN
    default = default_of(function, variable.name)
    calls = given_by(roles.sites, variable)
    found = Where.NOTHING
    for caller, _, passed in calls:
        if passed is not None and caller.variable(passed) == variable:
            continue  # a function that calls itself hands on what it has
        if passed is None and default is None:
            return Where.UNKNOWN
        here, value = (caller, passed) if passed is not None else (module, default)
        found |= where(roles, here, value, depth + 1)  # type: ignore[arg-type]
    if not calls and function.name == "to" and module.functions[function].owner_class is not None:
        return Where.FOLLOWS  # every `x.to(device)` is looked at where it is called, whatever `x` is
    if not calls:
        found = where(roles, module, default, depth + 1) if default is not None else Where.UNKNOWN
    return found


def _handed(roles: Roles, variable: Variable) -> list[Variable | None]:
    """What the callers of a function hand over for its parameter."""
    given = given_by(roles.sites, variable)
    return [caller.variable(passed) if passed is not None else None for caller, _, passed in given]
