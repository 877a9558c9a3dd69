"""Where the objects of a training are built, and where they can be prepared together."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from accel_migrate.analysis.loops import CallGraph
from accel_migrate.analysis.project import Definition
from accel_migrate.analysis.roles import Role, Roles, arguments_of
from accel_migrate.analysis.scopes import Binding, Function, Module, Scope, Variable


@dataclass(frozen=True)
class Built:
    """An object of a training as its home names it."""

    role: Role
    variable: Variable
    key: str | None = None  # of a loader that is kept in a dictionary, as it is written

    @property
    def text(self) -> str:
        """How it is written at home."""
        return self.variable.name if self.key is None else f"{self.variable.name}[{self.key}]"


class NoHome(Exception):
    """Why the objects cannot be prepared in one place; the line is where the trouble is."""

    def __init__(self, message: str, line: int, module: Module | None = None) -> None:
        super().__init__(message)
        self.line = line
        self.module = module  # None: the file of the loop


def chain(roles: Roles, graph: CallGraph, variable: Variable) -> list[Variable]:
    """The variable and those it was handed over from, call by call, to where it was built."""
    known = graph.chains.get(variable)
    if known is None:
        known = [variable]
        for current in known:
            if len(known) > 40:
                break
            known += [source for source in _handed_over(roles, graph, current) if source not in known]
        graph.chains[variable] = known
    return known


def _handed_over(roles: Roles, graph: CallGraph, variable: Variable) -> list[Variable]:
    module = variable.scope.module
    bindings = module.bindings(variable)
    if any(binding.kind == "parameter" for binding in bindings):
        function = variable.scope.node
        sources = []
        for caller, call in graph.sites.get(function, ()):  # type: ignore[call-overload]
            for name, argument in arguments_of(call, Definition(module, function)):  # type: ignore[arg-type]
                source = caller.variable(argument) if name == variable.name else None
                if source is not None:
                    sources.append(source)
        return sources
    root, dot, path = variable.name.partition(".")
    if dot and not bindings and not variable.scope.is_class:
        # `args.device` where `args` is a parameter: the same attribute of what the callers hand over
        owners = _handed_over(roles, graph, Variable(variable.scope, root))
        return [Variable(owner.scope, f"{owner.name}.{path}") for owner in owners]
    if variable.scope.is_class:
        # `self.model = model`, straight or through `.to(device)`: built by whoever made the parameter
        return [v for b in bindings if b.value is not None and (v := _passed_on(module, b.value)) is not None]
    return []


def _passed_on(module: Module, value: ast.expr) -> Variable | None:
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in ("to", "cuda"):
        value = value.func.value
    return module.variable(value) if isinstance(value, ast.Name) else None


def is_root(variable: Variable) -> bool:
    """Whether the variable is bound by more than a parameter: something is built into it."""
    return any(binding.kind != "parameter" for binding in variable.scope.module.bindings(variable))


def choose_home(chains: list[list[Variable]]) -> Scope | None:
    """The scope that names every object: the class of a trainer, or the scope where most were built."""
    scopes = [{variable.scope for variable in links} for links in chains]
    common = set.intersection(*scopes) if scopes else set()
    if not common:
        return None
    first = [links[0].scope for links in chains]
    if all(scope.is_class for scope in first) and len(set(first)) == 1:
        return first[0]

    def built_there(scope: Scope) -> int:
        return sum(any(v.scope is scope and is_root(v) for v in links) for links in chains)

    def depth(scope: Scope) -> int:
        return 0 if scope.parent is None else 1 + depth(scope.parent)

    return max(common, key=lambda scope: (built_there(scope), -depth(scope)))


@dataclass(frozen=True, eq=False)
class Place:
    """Where `prepare` goes: right after `after`, in `block`, before `first_use` (None: used elsewhere).

    What is built only under a condition is prepared `apart`, where it is built.
    """

    module: Module
    block: list[ast.stmt]
    after: ast.stmt
    first_use: ast.stmt | None
    apart: tuple[tuple[Built, ast.stmt], ...] = ()


_AFFECTS = {
    "load_state_dict", "apply", "to", "cuda", "requires_grad_", "half", "float", "bfloat16", "init_weights",
    "reset_parameters", "register_buffer", "gradient_checkpointing_enable", "resize_token_embeddings",
    "add_param_group", "share_memory", "compile", "add_module", "load_pretrained", "freeze",
}  # fmt: skip
_READS = {
    "len",
    "print",
    "tqdm",
    "isinstance",
    "type",
    "str",
    "id",
    "enumerate",
    "iter",
    "next",
    "watch",
    "summary",
    "sum",
}


def find_place(home: Scope, objects: list[Built], uses: list[ast.stmt], made_of: set[Variable]) -> Place:
    """The place for `prepare`: after everything that builds or changes the objects, before the first use.

    `made_of` are variables whose objects must be made of the prepared ones.
    """
    module = home.module
    bindings = [
        (thing, binding)
        for thing in objects
        for binding in module.bindings(thing.variable)
        if binding.kind in ("assign", "with") and not _only_loads(binding)
    ]
    variables = {thing.variable for thing in objects}
    statements = [binding.statement for _, binding in bindings]
    if home.is_class:
        return _place_in_class(home, module, statements, variables, made_of)
    function = home.node if home.is_function else None
    body: list[ast.stmt] = home.node.body  # type: ignore[attr-defined]
    if not statements:
        if function is None:
            raise NoHome("nothing of the training loop is built in sight", body[0].lineno if body else 1)
        statements = []
    block = (
        _common_block(module, body, [*statements, *uses[:1]] if uses else statements) if statements or uses else body
    )
    order = {id(statement): index for index, statement in enumerate(block)}
    built = [order[id(top)] for s in statements if (top := _top(module, s, block)) is not None]
    used = [order[id(top)] for s in uses if (top := _top(module, s, block)) is not None]
    first = min(used, default=None)
    last = max(built, default=-1)
    if first is not None and last >= first:
        late = [i for i in built if i >= first]
        # What is built anew after the first use (a model loaded back for testing) is not ours to prepare.
        early = [i for i in built if i < first]
        again = next(thing for thing, b in bindings if _top(module, b.statement, block) is block[late[0]])
        trained_anew = any(
            thing.role is Role.OPTIMIZER and first <= order.get(id(_top(module, b.statement, block)), -1) <= max(used)
            for thing, b in bindings
        )
        if trained_anew or not early or not _all_built(objects, bindings, module, block, order, first):
            raise NoHome(f"`{again.text}` is built after the training has begun", block[late[0]].lineno)
        last = max(early)
    limit = min(first if first is not None else len(block), _first_made(module, block, made_of))
    if last >= limit:
        raise NoHome("the optimizer is wrapped before everything else is built", block[limit].lineno)
    for index in range(last + 1, limit):
        if _affects(module, block[index], variables):
            last = index
    if last < 0:
        if function is None:
            raise NoHome("nothing of the training loop is built in sight", body[0].lineno)
        last = _after_docstring(block)
    last = _end_of_paragraph(module, block, last, limit, variables)
    apart = tuple(_conditional(module, block, bindings))
    return Place(module, block, block[last], block[first] if first is not None else None, apart)


def _conditional(
    module: Module, block: list[ast.stmt], bindings: list[tuple[Built, Binding]]
) -> Iterator[tuple[Built, ast.stmt]]:
    """Objects that one branch of an `if` builds and no other: `if args.adam: optimizer = Adam(...)`."""
    for thing in dict.fromkeys(thing for thing, _ in bindings):
        own = [binding.statement for other, binding in bindings if other == thing]
        top = _top(module, own[0], block)
        if len(own) > 1 or top is own[0] or not isinstance(top, ast.If):
            continue
        if thing.role is not Role.OPTIMIZER:
            raise NoHome(f"`{thing.text}` is built only under a condition", own[0].lineno)
        yield thing, own[0]


def _end_of_paragraph(module: Module, block: list[ast.stmt], last: int, limit: int, variables: set[Variable]) -> int:
    """Lines that belong together stay together: go on to the next blank line or use of the objects."""
    while last + 1 < limit:
        here, following = block[last], block[last + 1]
        simple = isinstance(following, ast.Assign | ast.AnnAssign | ast.Expr)
        if not simple or following.lineno != (here.end_lineno or here.lineno) + 1:
            break
        if any(
            module.variable(n) in variables for n in module.walk(following) if isinstance(n, ast.Name | ast.Attribute)
        ):
            break
        last += 1
    return last


def _after_docstring(block: list[ast.stmt]) -> int:
    first = block[0]
    is_docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and len(block) > 1
    return 0 if is_docstring else -1


def _only_loads(binding: Binding) -> bool:
    """`model = torch.load(path)`: read back, not built."""
    return isinstance(binding.value, ast.Call) and ast.unparse(binding.value.func).endswith("torch.load")


def _all_built(
    objects: list[Built],
    bindings: list[tuple[Built, Binding]],
    module: Module,
    block: list[ast.stmt],
    order: dict[int, int],
    first: int,
) -> bool:
    done = set()
    for thing, binding in bindings:
        top = _top(module, binding.statement, block)
        if top is not None and order[id(top)] < first:
            done.add(thing.variable)
    bound = {thing.variable for thing, _ in bindings}
    return all(thing.variable in done for thing in objects if thing.variable in bound)


def _first_made(module: Module, block: list[ast.stmt], made_of: set[Variable]) -> int:
    """The first statement of a block that binds one of the variables; the length of the block if none does."""
    statements = {id(binding.statement) for variable in made_of for binding in module.bindings(variable)}
    return next((index for index, statement in enumerate(block) if id(statement) in statements), len(block))


def _place_in_class(
    home: Scope, module: Module, statements: list[ast.stmt], variables: set[Variable], made_of: set[Variable]
) -> Place:
    methods = {function for s in statements if (function := module.scope(s).function) is not None}
    if len(methods) > 1:
        method = next((m for m in home.node.body if getattr(m, "name", "") == "__init__"), None)  # type: ignore[attr-defined]
        statements = [_set_up_in(module, method, statement) for statement in statements]
    elif methods:
        (method,) = methods
    else:
        raise NoHome("the trainer's objects are not set by its methods", home.node.lineno)  # type: ignore[attr-defined]
    assert method is not None
    block = _common_block(module, method.body, statements)
    order = {id(statement): index for index, statement in enumerate(block)}
    last = max(order[id(_top(module, s, block))] for s in statements)
    limit = _first_made(module, block, made_of)
    if last >= limit:
        raise NoHome("the optimizer is wrapped before everything else is built", block[limit].lineno)
    for index in range(last + 1, limit):
        statement = block[index]
        if _affects(module, statement, variables) or _reads_loader(module, statement, variables):
            last = index
    last = _end_of_paragraph(module, block, last, limit, variables)
    return Place(module, block, block[last], None)


def _set_up_in(module: Module, constructor: Function | None, statement: ast.stmt) -> ast.stmt:
    """The statement of `__init__` that runs a binding: itself, or the call of the method that holds it."""
    method = module.scope(statement).function
    if constructor is not None and method is constructor:
        return statement
    for node in module.walk(constructor) if constructor is not None else ():
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and method is not None
            and node.func.attr == method.name
            and isinstance(node.func.value, ast.Name)
        ):
            return module.statement(node)
    raise NoHome("the trainer's objects are set in methods that __init__ does not call", statement.lineno)


def _reads_loader(module: Module, statement: ast.stmt, variables: set[Variable]) -> bool:
    """`x = train_loader.dataset.tensors[0]`: reading the data set belongs before prepare."""
    return any(isinstance(node, ast.Attribute) and node.attr == "dataset" for node in module.walk(statement))


def _common_block(module: Module, body: list[ast.stmt], statements: list[ast.stmt]) -> list[ast.stmt]:
    """The innermost list of statements that holds all of them, directly or nested."""
    block = body
    while True:
        tops = {id(top): top for s in statements if (top := _top(module, s, block)) is not None}
        if len(tops) != 1:
            return block
        (top,) = tops.values()
        inner = [
            value
            for name in ("body", "orelse", "finalbody")
            if isinstance(value := getattr(top, name, None), list)
            and not isinstance(top, ast.FunctionDef | ast.ClassDef)
            and all(_top(module, s, value) is not None for s in statements)
        ]
        if not inner:
            return block
        block = inner[0]


def _top(module: Module, statement: ast.AST, block: list[ast.stmt]) -> ast.stmt | None:
    """The statement of `block` that is, or holds, the given one."""
    members = {id(item): item for item in block}
    node: ast.AST | None = statement
    while node is not None:
        if id(node) in members:
            return members[id(node)]
        node = module.parents.get(node)
    return None


def _affects(module: Module, statement: ast.stmt, variables: set[Variable]) -> bool:
    """Whether a statement changes the objects, or makes something of them that must be made of the bare ones."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return False
    for node in module.walk(statement):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Attribute):
            owner = module.variable(node.func.value)
            if owner in variables:
                if node.func.attr in _AFFECTS:
                    return True
                continue
            root = node.func.value
            while isinstance(root, ast.Attribute | ast.Call | ast.Subscript):
                root = root.func if isinstance(root, ast.Call) else root.value
            changes = node.func.attr in _AFFECTS or node.func.attr.endswith("_")  # `model.bias.data.zero_()`
            if isinstance(root, ast.Name) and module.variable(root) in variables and changes:
                return True
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in _READS:
            continue
        for argument in (*node.args, *[keyword.value for keyword in node.keywords]):
            if module.variable(argument) in variables:
                return True
    if isinstance(statement, ast.For):
        looped = statement.iter
        for node in module.walk(looped):
            if isinstance(node, ast.Attribute) and node.attr in (
                "parameters",
                "named_parameters",
                "modules",
                "children",
            ):
                if module.variable(node.value) in variables:
                    return True
    return False
