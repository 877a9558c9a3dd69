"""The place for `prepare`: after all that builds or changes the objects of a training, before the first use."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Set

from accel_migrate.analysis.placement.blocks import affects, end_of_paragraph, first_made, member, positions
from accel_migrate.analysis.placement.later import TAKEN_UP, LaterFinder
from accel_migrate.analysis.values.containers import is_looped
from accel_migrate.analysis.values.provenance import Built, Home, Later, NotMigrated, Place, is_given_back
from accel_migrate.analysis.values.roles import Role, Roles
from accel_migrate.flow.nodes import calls_method, unparse
from accel_migrate.flow.points import ends
from accel_migrate.flow.scopes import Binding, Function, Module, Scope, Variable
from accel_migrate.flow.sequence import follows
from accel_migrate.flow.torch_api import itself

NOT_BUILT = "nothing of the training loop is built where the analysis can see it"


def find_place(
    roles: Roles,
    at: Home,
    objects: list[Built],
    uses: list[ast.stmt],
    made_of: set[Variable],
    trains: Callable[[ast.stmt], bool] = lambda statement: True,
    running: Set[Function] = frozenset(),
    whole: Set[ast.stmt] = frozenset(),
) -> Place:
    """The place for `prepare`: after everything that builds or changes the objects, before the first use.

    `made_of` are variables whose objects must be made of the prepared ones; `trains` tells training from evaluation;
    `running` are the functions that run once it has begun; `whole` are the uses that read their loaders whole.
    """
    home, module = at.frame, at.scope.module
    bindings = [
        (thing, binding)
        for thing in objects
        for binding in module.bindings(thing.variable)
        if binding.kind in ("assign", "with") and (not _only_loads(binding) or _is_other_way(module, thing, binding))
        if not is_given_back(roles, thing.variable, binding)
    ]
    bindings = [each for each in bindings if not _only_names_again(home, *each, uses)]
    variables = {thing.variable for thing in objects}
    if home.is_class:
        return _place_in_class(home, module, [binding.statement for _, binding in bindings], variables, made_of)
    if at.method is not None:
        _check_built_before(at, bindings, running)
        steps = [(thing, b, _step_of(module, home.function, b.statement)) for thing, b in bindings]
        bindings = [(thing, binding._replace(statement=step)) for thing, binding, step in steps if step is not None]
    statements = [binding.statement for _, binding in bindings]
    body: list[ast.stmt] = home.node.body  # type: ignore[attr-defined]
    if not statements and at.method is None:
        raise NotMigrated(NOT_BUILT, (module, body[0] if body else module.tree))
    block = _common_block(module, body, [*statements, *uses[:1]])
    while (inner := _begun_inside(module, block, bindings, uses, trains)) is not None:
        block = inner
    built = positions(module, block, statements)
    first = min(positions(module, block, uses), default=None)
    last = max(built, default=-1)
    later: list[Later] = []
    if first is not None and last >= first:
        begun = "the training" if trains(block[first]) else f"an evaluation (line {block[first].lineno})"
        later = LaterFinder(module, block, bindings, uses, made_of, begun, whole).later()
        last = max((index for index in built if index < first), default=-1)
    limit = min(first if first is not None else len(block), first_made(module, block, made_of))
    if last >= limit:
        raise NotMigrated(TAKEN_UP, (module, block[limit]))
    for index in range(last + 1, limit):
        if affects(module, block[index], variables):
            last = index
    if at.method is not None and last < 0:
        last = limit - 1  # what the class has is all there when the method begins
    if last < 0:
        if at.method is not None:
            raise NotMigrated(
                f"{getattr(home.node, 'name', 'the method')}() begins with the training loop, and `prepare` stands below a "
                "statement; take what is trained by a name of its own above the loop",
                (module, block[0]),
            )
        # A function that is handed everything may run once for each epoch: prepare belongs where it is built.
        raise NotMigrated(NOT_BUILT, (module, block[0]))
    _check_looped(module, objects, block[last])
    last = end_of_paragraph(module, block, last, limit, variables)
    apart = tuple(_conditional(module, block, bindings))
    shared = tuple(_shared_by_rounds(home, block[last], objects))
    begin = block[first] if first is not None else None
    ready = {thing for thing, binding in bindings if not follows(module, block[last], binding.statement)}
    waiting = frozenset(one.built for one in later if one.built not in ready)
    return Place(module, block, block[last], begin, apart, shared, tuple(later), waiting)


def _check_built_before(at: Home, bindings: list[tuple[Built, Binding]], running: Set[Function]) -> None:
    """What a method prepares for its class must not be built by what the training calls."""
    module = at.scope.module
    for thing, binding in bindings:
        function = module.scope(binding.statement).function
        if function in running and function is not at.frame.node:
            raise NotMigrated(
                f"`{thing.text}` is built after the training has begun, in {function.name}()",  # type: ignore[union-attr]
                (module, binding.statement),
            )


def _begun_inside(
    module: Module,
    block: list[ast.stmt],
    bindings: list[tuple[Built, Binding]],
    uses: list[ast.stmt],
    trains: Callable[[ast.stmt], bool],
) -> list[ast.stmt] | None:
    """The body of `if args.train:`, or of a loop over seeds, that builds the last objects and trains with them.

    All that trains or evaluates must be inside, but for evaluations of another branch, which has nothing prepared. A loop
    may not take up a model that another round has trained.
    """
    first = min(positions(module, block, uses), default=None)
    if first is None:
        return None
    around = block[first]
    inside = [(thing, b) for thing, b in bindings if member(module, b.statement, block) is around]
    if not inside or not isinstance(around, ast.If | ast.With | ast.Try | ast.For | ast.While):
        return None
    if isinstance(around, ast.If | ast.Try) and any(top > first for top in positions(module, block, uses)):
        return None
    fresh = {thing.variable for thing, _ in inside}
    if isinstance(around, ast.For | ast.While) and any(
        thing.role != Role.LOADER and thing.variable not in fresh for thing, _ in bindings
    ):
        return None
    needing = [
        s for s in uses if member(module, s, block) is around and not (isinstance(around, ast.If) and not trains(s))
    ]
    within = [*[b.statement for _, b in inside], *needing]
    for name in ("body", "orelse"):
        inner: list[ast.stmt] = getattr(around, name, [])
        if inner and all(member(module, statement, inner) is not None for statement in within):
            return inner
    return None


def _conditional(
    module: Module, block: list[ast.stmt], bindings: list[tuple[Built, Binding]]
) -> Iterator[tuple[Built, ast.stmt]]:
    """Objects that one branch of an `if` builds and no other: `if args.adam: optimizer = Adam(...)`."""
    for thing in dict.fromkeys(thing for thing, _ in bindings):
        own = [binding.statement for other, binding in bindings if other == thing]
        branch = _only_branch(module, block, own)
        if branch is None:
            continue
        if thing.role != Role.OPTIMIZER:
            raise NotMigrated(f"`{thing.text}` is built only under a condition", own[0].lineno)
        yield thing, member(module, own[-1], _common_block(module, branch, own)) or own[-1]


def _only_branch(module: Module, block: list[ast.stmt], own: list[ast.stmt]) -> list[ast.stmt] | None:
    """The branch of an `if` that has some statements, where what follows it may run without them."""
    top = member(module, own[0], block)
    if top is own[0] or not isinstance(top, ast.If):
        return None
    branch, other = top.body, top.orelse
    if member(module, own[0], branch) is None:
        branch, other = other, branch
    if ends(other):
        return _only_branch(module, branch, own)
    return branch if all(member(module, statement, branch) is not None for statement in own) else None


def _shared_by_rounds(home: Scope, after: ast.stmt, objects: list[Built]) -> Iterator[tuple[Built, ast.stmt]]:
    """Loaders built before a loop that builds the rest in each round, with that loop: `for fold in range(5): model = ...`."""
    module = home.module
    within = [parent for parent in module.ancestors(after) if module.scope(parent) is home]
    loops = [parent for parent in within if isinstance(parent, ast.For | ast.AsyncFor | ast.While)]
    for thing in objects:
        if thing.role != Role.LOADER or thing.variable.scope is not home or thing.key is not None or thing.every:
            continue
        statements = [binding.statement for binding in module.bindings(thing.variable)]
        around = [loop for loop in loops if not any(module.holds(loop, statement) for statement in statements)]
        if not around or any(follows(module, around[-1], statement) for statement in statements):
            continue
        # A round may ask the bare loader before it prepares the rest, for instance for its length, which a schedule needs.
        asked = [name for name in module.walk(around[-1], ast.Name) if module.variable(name) == thing.variable]
        if all(follows(module, after, name) and not module.holds(after, name) for name in asked):
            yield thing, around[-1]


def _check_looped(module: Module, objects: list[Built], after: ast.stmt) -> None:
    """What a loop binds exists in its body only."""
    for thing in objects:
        for binding in module.bindings(thing.variable):
            if is_looped(binding) and binding.statement not in module.ancestors(after):
                raise NotMigrated(
                    f"`{thing.variable.name}` is bound by the loop in line {binding.statement.lineno}, so it cannot be "
                    "prepared before",
                    (module, binding.statement),
                )


def _only_names_again(home: Scope, thing: Built, binding: Binding, uses: list[ast.stmt]) -> bool:
    """`model = model.train()` in the loop: what was built before, under its own name."""
    module, value = home.module, binding.value
    parts = [value.body, value.orelse] if isinstance(value, ast.IfExp) else [value]
    if not all(part is not None and module.variable(itself(part)) == thing.variable for part in parts):
        return False
    if home.is_class:
        others = [b for b in module.bindings(thing.variable) if b is not binding]
        return not _runs_in_constructor(home, binding.statement) and any(
            _runs_in_constructor(home, b.statement) for b in others
        )
    return bool(uses) and (binding.statement is uses[0] or follows(module, uses[0], binding.statement))


def _runs_in_constructor(home: Scope, statement: ast.stmt) -> bool:
    return _step_of(home.module, home.constructor, statement) is not None


def _only_loads(binding: Binding) -> bool:
    """`model = torch.load(path)`: read back, not built."""
    function = binding.value.func if isinstance(binding.value, ast.Call) else None
    return isinstance(function, ast.Attribute) and function.attr == "load" and unparse(function).endswith("torch.load")


def _is_other_way(module: Module, thing: Built, load: Binding) -> bool:
    """Whether an `if` reads in one branch what it builds in the other: `model = torch.load(path) if resume else Net()`."""
    built = [each.statement for each in module.bindings(thing.variable) if not _only_loads(each)]
    for above in module.ancestors(load.statement):
        if isinstance(above, ast.If) and above.orelse:
            ways = [member(module, load.statement, above.body), member(module, load.statement, above.orelse)]
            other = above.orelse if ways[0] is not None else above.body
            if any(member(module, each, other) is not None for each in built):
                return True
    return False


def _place_in_class(
    home: Scope, module: Module, statements: list[ast.stmt], variables: set[Variable], made_of: set[Variable]
) -> Place:
    unset = sorted(variable.name for variable in variables if not module.bindings(variable))
    if unset and not home.node.bases:  # type: ignore[attr-defined]
        raise NotMigrated(
            f"`{unset[0]}` is set from outside of {home.name}; set it in the constructor, so that it is prepared with the rest",
            home.node.lineno,  # type: ignore[attr-defined]
        )
    if unset:
        statements = [*statements, _base_set_up(module, home)]
    methods = {function for s in statements if (function := module.scope(s).function) is not None}
    if len(methods) > 1:
        method = home.constructor
        statements = [_set_up_in(module, method, statement) for statement in statements]
    elif methods:
        (method,) = methods
    else:
        raise NotMigrated("the trainer's objects are not set by its methods", home.node.lineno)  # type: ignore[attr-defined]
    assert method is not None
    block = _common_block(module, method.body, statements)
    order = {id(statement): index for index, statement in enumerate(block)}
    last = max(order[id(member(module, s, block))] for s in statements)
    limit = first_made(module, block, made_of)
    if last >= limit:
        raise NotMigrated(TAKEN_UP, (module, block[limit]))
    for index in range(last + 1, limit):
        statement = block[index]
        # `x = train_loader.dataset.tensors[0]`: reading the data set belongs before prepare.
        reads = any(node.attr == "dataset" for node in module.walk(statement, ast.Attribute))
        if reads or affects(module, statement, variables):
            last = index
    last = end_of_paragraph(module, block, last, limit, variables)
    return Place(module, block, block[last], None)


def _base_set_up(module: Module, home: Scope) -> ast.stmt:
    """The statement by which a class lets its base class set what it inherits."""
    for call in module.calls:
        if (
            module.scope(call).owner_class is home
            and calls_method(call, "__init__")
            and isinstance(call.func.value, ast.Call)
        ):
            return module.statement(call)
    raise NotMigrated("the trainer's objects are set by its base class, and nothing calls that", home.node.lineno)  # type: ignore[attr-defined]


def _set_up_in(module: Module, constructor: Function | None, statement: ast.stmt) -> ast.stmt:
    step = _step_of(module, constructor, statement)
    if step is None:
        raise NotMigrated("the trainer's objects are set in methods that __init__ does not call", statement.lineno)
    return step


def _step_of(module: Module, constructor: Function | None, statement: ast.stmt) -> ast.stmt | None:
    """The statement of a method that runs a binding: itself, or the call of the method that holds it."""
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
    return None


def _common_block(module: Module, body: list[ast.stmt], statements: list[ast.stmt]) -> list[ast.stmt]:
    """The innermost list of statements that holds all of them, directly or nested."""
    block = body
    while True:
        tops = {id(top): top for s in statements if (top := member(module, s, block)) is not None}
        if len(tops) != 1:
            return block
        (top,) = tops.values()
        inner = [
            value
            for name in ("body", "orelse", "finalbody")
            if isinstance(value := getattr(top, name, None), list)
            and not isinstance(top, ast.FunctionDef | ast.ClassDef)
            and all(member(module, s, value) is not None for s in statements)
        ]
        if not inner:
            return block
        block = inner[0]
