"""AM959: what a prepared model is called with is on its device, whichever accelerator that is."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from accel_migrate.check.condition import Condition, at_places
from accel_migrate.check.devices_together import Devices
from accel_migrate.check.evidence import Evidence, Found, Side, is_accelerator, step_of
from accel_migrate.check.machines_gpu import MachinesGpu
from accel_migrate.check.scattered import fed_from_the_cpu
from accel_migrate.check.stores import Stores
from accel_migrate.check.whereabouts import CPU, DEVICE, Certain, Whereabouts
from accel_migrate.flow.calls import Place
from accel_migrate.flow.cfg import Decision
from accel_migrate.flow.nodes import called_name, unparse, walk
from accel_migrate.flow.points import never_returns
from accel_migrate.flow.scopes import Module, Scope

_LOADER = "torch.utils.data.DataLoader"
_CUDA = ("torch.cuda.is_available", "torch.cuda.device_count")
_PASSED_ON = (
    "Variable",
    "float",
    "long",
    "double",
    "view",
    "reshape",
    "unsqueeze",
    "squeeze",
    "permute",
    "transpose",
    "contiguous",
)


def _found(evidence: Evidence) -> Found:
    """Batches that nothing moves, and moves that only some runs make while the model is always moved."""
    side = evidence.after
    if not side.created:
        return
    yield from _not_loaders(side)
    yield from _moved_all_the_same(evidence)
    apart = [site for site in side.created if not side.scripts_of([site]) - side.scripts_with_gpu]
    if not side.kept_on_cpu or not apart:
        yield from _fed_by(evidence, side.created)
        return
    for file, node, message in _fed_by(evidence, apart):
        if side.may_have_gpu(file, node):
            yield file, node, message


def _fed_by(evidence: Evidence, created: list[tuple[Module, ast.Call]]) -> Found:
    """What these Accelerators would not bring to their device."""
    side = evidence.after
    told = [keyword for _, call in created for keyword in call.keywords if keyword.arg in ("cpu", "device")]
    about_cuda = side.once(_about_cuda)
    asked = [(file, keyword) for file, call in created for keyword in call.keywords if keyword in told]
    by_machine = any(side.flows.place(file, keyword.value) in about_cuda for file, keyword in asked)
    by_script = bool(told) and not by_machine
    if not any(site in side.kept_on_cpu for site in created):
        yield from fed_from_the_cpu(evidence)
        yield from _cast_to_the_cpu(side)
        yield from _made_on_the_cpu(evidence, by_script)
    if by_script:
        if all(keyword.arg == "cpu" for keyword in told):
            yield from _moved_for_cuda_only(side, asked_alone=True)
            yield from _typed_by_cuda(side)
        else:
            yield from _chosen_by_the_script(evidence, {text for keyword in told for text in _named(keyword.value)})
        return
    if _fed_itself(evidence):
        yield from _unmoved(side)
        yield from _read_by_numpy(side)
    if not by_machine:
        yield from _moved_for_cuda_only(side)
        yield from _typed_by_cuda(side)
        yield from _left_to_cuda(side)
    yield from _chosen_by_the_script(evidence)


def _not_loaders(side: Side) -> Found:
    """What is looped over as a prepared loader, and is not known to be a DataLoader: it would be left as it is."""
    for file, call in side.asked("prepare"):
        if any(isinstance(argument, ast.Starred) for argument in call.args):
            continue  # which result is whose cannot be told
        for index, argument in enumerate(call.args):
            if side.flows.made(file, argument, "loader") or _is_annotated(side, file, argument):
                continue
            if any(made.node is call and made.index == index for made in side.looped_over):
                yield file, call, f"`{ast.unparse(argument)}` would be prepared, and is not known to be a DataLoader"


def _is_annotated(side: Side, file: Module, node: ast.expr) -> bool:
    """`def __init__(self, loader: DataLoader)`, whoever calls it."""
    for place in side.flows.sources(side.flows.place(file, node)):
        match place:
            case ("name", Scope(node=ast.FunctionDef(args=taken)) as scope, name):
                notes = [a.annotation for a in (*taken.args, *taken.kwonlyargs) if a.arg == name and a.annotation]
                if any(scope.module.qualified(note) == _LOADER for note in notes):
                    return True
    return False


def _moved_all_the_same(evidence: Evidence) -> Found:
    """An Accelerator that keeps to the CPU, though the script moved things to a GPU somewhere."""
    side = evidence.after
    paths = {file.path for file in side.imported_by(side.scripts_of(side.kept_on_cpu))}
    for file, call, _, found in evidence.before.once(Devices).moves() if paths else ():
        if file.path in paths and found - {"cpu"} and evidence.ran(file, call):
            yield (
                *side.kept_on_cpu[0],
                f"the Accelerator would keep to the CPU, and `{ast.unparse(call)[:60]}` may go to a GPU",
            )
            return


def _named(node: ast.expr) -> Iterator[str]:
    """The variables that an expression reads, as they are written: `args.device`, without `args`."""
    parts = [part for part in walk(node) if isinstance(part, ast.Name | ast.Attribute)]
    inner = {part.value for part in parts if isinstance(part, ast.Attribute)}
    return (unparse(part) for part in parts if part not in inner)


def _chosen_by_the_script(evidence: Evidence, told: Iterable[str] = ()) -> Found:
    """`if args.gpu: model.cuda()`: the original trains on the CPU without it, and the Accelerator is not told."""
    side = evidence.before
    if side.of_library("init_process_group"):
        return  # each process had a GPU of its own
    paths = {file.path for file in evidence.after.involved}
    for file in side.files:
        for node in file.walk(file.tree, ast.If) if file.path in paths else ():
            if any(_is_of_the_value(part) for part in walk(node.test)) or _asks_for_what_moves(node):
                continue
            if not evidence.ran(file, node) or _is_of_data(file, node):
                continue
            # What is moved beside others, as far as it is there at all, goes where those go.
            outer = [above for above in file.ancestors(node) if isinstance(above, ast.If)]
            around = [above.test for above in outer if any(is_move(each) for each in above.body)]
            if any(_follows_a_value(side, file, test) for test in around):
                continue
            if (
                isinstance(node, ast.If)
                and all(is_move(each) for each in node.body)
                and not any(_asks_for_cuda(side, file, test) for test in (node.test, *around))
                and not set(told).intersection(_named(node.test))
                and not side.once(MachinesGpu).holds(file, node.test)
            ):
                made = evidence.after.created[0]
                yield (
                    *made,
                    f"the script goes to a GPU only under `{ast.unparse(node.test)}`, which the Accelerator does not know of",
                )
                return


def _is_of_the_value(node: ast.AST) -> bool:
    """Whether a test asks what is moved, as `x.is_cuda` or `isinstance(x, Tensor)` do, and not for an option."""
    return isinstance(node, ast.Call) or (isinstance(node, ast.Attribute) and node.attr in ("is_cuda", "device"))


def _asks_for_what_moves(choice: ast.If) -> bool:
    """`if extra is not None: extra = extra.to(device)`."""
    moved = {
        unparse(node.func.value)
        for each in choice.body
        for node in walk(each)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    }
    asked = set(_named(choice.test))
    return bool(asked) and asked <= moved


def _is_of_data(file: Module, choice: ast.If) -> bool:
    """`if self.device is not None: x = x.to(self.device)` of a data set: its samples go where it is told, if it is."""
    owner = file.scope(choice).owner_class
    indexed = owner is not None and "__getitem__" in owner.bindings
    moves = [part for each in choice.body for part in walk(each) if isinstance(part, ast.Call) and part.args]
    told = set(_named(choice.test))
    return indexed and len(told) == 1 and bool(moves) and all(told == {unparse(move.args[0])} for move in moves)


def _follows_a_value(side: Side, file: Module, test: ast.expr) -> bool:
    """`on_gpu = next(self.parameters()).is_cuda`, then `if on_gpu:`: it goes where the model is, wherever that is."""
    values = [test, *side.once(Devices).assigned(file, test)]
    return any(isinstance(part, ast.Attribute) and part.attr == "is_cuda" for value in values for part in walk(value))


def is_move(statement: ast.stmt) -> bool:
    """`model.cuda()`, `x = x.cuda()`, `x, y = x.to(device), y.to(device)`."""
    if isinstance(statement, ast.Expr):
        return _moves(statement.value)
    if not isinstance(statement, ast.Assign):
        return False
    value, target = statement.value, statement.targets[0]
    values = value.elts if isinstance(value, ast.Tuple) else [value]
    targets = target.elts if isinstance(target, ast.Tuple) else [target]
    return len(values) == len(targets) and all(_moves(v, ast.unparse(t)) for v, t in zip(values, targets))


def _moves(node: ast.expr, onto: str = "") -> bool:
    """Whether a call moves a variable; with `onto`, whether that gets the result."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return False
    if onto and ast.unparse(node.func.value) != onto:
        return False
    if node.func.attr == "to":
        return bool(node.args) and any(word in ast.unparse(node.args[0]) for word in ("device", "cuda", "gpu"))
    return node.func.attr == "cuda" and ast.unparse(node.func.value) != "torch"


def _asks_for_cuda(side: Side, file: Module, test: ast.expr) -> bool:
    """Whether a test is about the machine alone: CUDA is there or not."""
    return side.flows.place(file, test) in side.once(_about_cuda)


def _about_cuda(side: Side) -> set[Place]:
    """Every place that the machine's answer about CUDA gets to, also by the Accelerator's device: `device.type == "cuda"`."""
    flows = side.flows
    chosen = [
        flows.place(file, node)
        for file in side.files
        for node in file.walk(file.tree, ast.Attribute)
        if node.attr == "device" and is_accelerator(node.value)
    ]
    reached = flows.reached(chosen)
    asked = [
        flows.place(file, node)
        for file in side.files
        for node in file.walk(file.tree, ast.Compare)
        if isinstance(node.ops[0], ast.Eq | ast.In) and any(_names_cuda(part) for part in walk(node))
    ]
    named = [place for place in asked if place in reached]
    return flows.reached([*named, *[flows.place(file, call) for file, call in side.of_library(*_CUDA)]])


def _names_cuda(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and str(node.value).startswith("cuda")


def _fed_itself(evidence: Evidence) -> bool:
    """Whether the original ran with batches that nothing moved: DataParallel did, or all of it was on the CPU."""
    before = evidence.before
    if before.of_library(".DataParallel"):
        return True
    moves = before.once(Devices).moves()
    follow = {call for _, call, device, found in moves if getattr(device, "attr", "") == "device" and not found}
    moving = [(f, c) for f, c in before.calls if getattr(c.func, "attr", "") in ("to", "cuda") and c not in follow]
    return not any(evidence.ran(file, call) for file, call in moving)


def _moved_before(evidence: Evidence) -> set[str]:
    """What the original moves: what a model of such a name is fed was there, or nothing ran."""
    names: set[str] = set()
    for file, call in evidence.before.calls:
        if isinstance(call.func, ast.Attribute) and call.func.attr in ("to", "cuda") and evidence.ran(file, call):
            statement = file.statement(call)
            targets = statement.targets if isinstance(statement, ast.Assign) else []
            names.update(unparse(each) for each in (call.func.value, *targets))
    return names


def _unmoved(side: Side) -> Found:
    for file, call in side.calls:
        if not side.flows.made(file, call.func, "prepared"):
            continue
        for argument in call.args:
            name = next((n for n in walk(argument) if isinstance(n, ast.Name) and _is_plain(side, file, n)), None)
            if name is not None and not _may_move(argument):
                yield (
                    file,
                    call,
                    f"{name.id} would be on the CPU in `{unparse(call)[:60]}`: nothing moves it, nor is its loader prepared",
                )


def _read_by_numpy(side: Side) -> Found:
    """`model(x).detach().numpy()` of a script that was on the CPU: no tensor of a GPU can be read so."""
    where = side.once(Certain)
    for file, call in side.calls:
        read = call.func.value if isinstance(call.func, ast.Attribute) and call.func.attr == "numpy" else None
        if read is not None and not call.args and where.of(file, read) == {DEVICE}:
            yield file, call, f"`{unparse(call)[:60]}` would read what is on the Accelerator's device, as the CPU's"


def _made_on_the_cpu(evidence: Evidence, by_script: bool) -> Found:
    """`model(x)` and `criterion(model(x), y)` of what the program makes on the CPU, and nothing moves.

    Batches of plain loaders are there too where nothing moved them before, nor does the script choose a device by itself.
    """
    side, moved = evidence.after, _moved_before(evidence)
    all_stay = not by_script and not any(unparse(g) in moved for _, c in side.asked("prepare") for g in c.args)
    where = side.once(Whereabouts if not by_script and _fed_itself(evidence) else Certain)
    for file, call in side.calls:
        model = _names_of_model(side, file, call)
        if model & moved or not (model or (all_stay and _is_loss(side, file, call))):
            continue
        found = [where.of(file, given) for given in call.args]
        left = [given for given, at in zip(call.args, found) if at == {CPU}]
        if left and (model or {DEVICE} in found):
            text = unparse(left[0])[:40]
            yield (
                file,
                call,
                f"{text} would be on the CPU in `{unparse(call)[:60]}`: it is made there, and nothing moves it",
            )


def _names_of_model(side: Side, file: Module, call: ast.Call) -> set[str]:
    """What the prepared model that a call runs is called on its way to `prepare`."""
    names: set[str] = set()
    taken = {(made.node, made.index) for made in side.flows.made(file, call.func, "prepared")}
    for at, prepare in side.asked("prepare") if taken else ():
        for index, given in enumerate(prepare.args):
            if (prepare, index) in taken or isinstance(given, ast.Starred):
                names.add(unparse(given))
                for place in side.flows.sources(side.flows.place(at, given)):
                    match place:
                        case ("name", Scope(), str(name)):
                            names.add(name)
    return names


def _is_loss(side: Side, file: Module, call: ast.Call) -> bool:
    """Whether a call runs a loss of torch: `F.mse_loss(...)`, `criterion(...)` of a `criterion = nn.MSELoss()`."""
    values = [call.func] if file.qualified(call.func) else [
        s.value.func for s in side.once(Stores).of(side.flows.place(file, call.func)) if isinstance(s.value, ast.Call)
    ]  # fmt: skip
    names = [file.qualified(value) or "" for value in values]
    return bool(names) and all(n.startswith("torch.nn.") and n.lower().endswith(("loss", "entropy")) for n in names)


def _cast_to_the_cpu(side: Side) -> Found:
    """`model(x)` after `x = x.type(torch.LongTensor)`: the cast took a batch of the device back."""
    casts = [(file, call) for file, call in side.calls if getattr(call.func, "attr", "") == "type"]
    where = side.once(Whereabouts) if casts else None
    if where is None or not any(where.casts_to_cpu(file, call) for file, call in casts):
        return
    for file, call in side.calls:
        for given in call.args if side.flows.made(file, call.func, "prepared") else ():
            if where.of(file, given) == {CPU}:
                yield (
                    file,
                    call,
                    f"{unparse(given)[:40]} would be on the CPU in `{unparse(call)[:60]}`: it is cast to a CPU type",
                )


def _is_plain(side: Side, file: Module, name: ast.Name) -> bool:
    """Whether every value of a name is a batch of a loader that is not prepared, or a part of one, and never moved."""
    scope = file.binder(name.id, file.scope(name))
    values = _values(file, scope, name.id) if scope is not None else []
    drawn = [value for value, is_batch in values if is_batch]
    if not drawn or any(_may_move(value) or name.id not in _names(value) for value, is_batch in values if not is_batch):
        return False
    return all(
        side.flows.made(file, loader, "loader") and not side.flows.made(file, loader, "prepared") for loader in drawn
    )


def _values(file: Module, scope: Scope, name: str) -> list[tuple[ast.expr, bool]]:
    """What a name gets in its scope: what it is assigned, or (with True) what it is drawn from by a loop."""
    found: list[tuple[ast.expr, bool]] = []
    for node in file.walk(file.tree, ast.For, ast.comprehension, ast.Assign):
        if isinstance(node, ast.For | ast.comprehension) and name in _names(node.target):
            if file.binder(name, file.scope(node.target)) is scope:
                found.append((node.iter, True))
        elif isinstance(node, ast.Assign) and file.binder(name, file.scope(node)) is scope:
            for target in node.targets:
                if (
                    isinstance(target, ast.Tuple)
                    and isinstance(node.value, ast.Tuple)
                    and len(target.elts) == len(node.value.elts)
                ):
                    found += [(v, False) for t, v in zip(target.elts, node.value.elts) if name in _names(t)]
                elif name in _names(target):
                    found.append((node.value, False))
    return found


def _names(node: ast.AST) -> set[str]:
    return {part.id for part in walk(node) if isinstance(part, ast.Name)}


def _may_move(node: ast.expr) -> bool:
    """Whether a call in an expression could move what it gets."""
    for part in walk(node):
        if isinstance(part, ast.Call):
            name = called_name(part)
            if name not in _PASSED_ON:
                return True
    return False


def _moved_for_cuda_only(side: Side, asked_alone: bool = False) -> Found:
    """`if torch.cuda.is_available(): x = x.to(accelerator.device)`: on another accelerator x stays behind."""
    about_cuda = side.once(_about_cuda)
    for file, call in side.calls:
        if not (
            isinstance(call.func, ast.Attribute) and call.func.attr == "to" and call.args and side.runs(file, call)
        ):
            continue
        device = call.args[0]
        if isinstance(device, ast.Attribute) and device.attr == "device" and is_accelerator(device.value):
            if _is_bare_loss(file, call.func.value):
                continue
            test = _condition(side, file, call, about_cuda)
            if test is None or not _stays_behind(side, file, call.func.value):
                test = test or (None if asked_alone else _guard(file, call))
                test = test if side.after_prepare(file, call) else None
            if test is not None:
                yield (
                    file,
                    call,
                    f"`{unparse(call)[:60]}` would run only under `{unparse(test)}`, and the model be on any accelerator",
                )


def _stays_behind(side: Side, file: Module, moved: ast.expr) -> bool:
    """Whether nothing prepares what is moved, and it is not a plain loss, which has nothing to move."""
    name = unparse(moved)
    if any(unparse(argument) == name for _, call in side.asked("prepare") for argument in call.args):
        return False
    values = [n.value for n in file.walk(file.tree, ast.Assign) if unparse(n.targets[0]) == name]
    made = [v for v in values if isinstance(v, ast.Call) and not unparse(v.func).startswith(f"{name}.")]
    return not made or not all(_is_bare_loss(file, call) for call in made)


def _is_bare_loss(file: Module, value: ast.expr) -> bool:
    """`nn.MSELoss()`: it has nothing to move."""
    made = isinstance(value, ast.Call) and not value.args and not value.keywords
    return made and (file.qualified(value.func) or "").startswith("torch.nn.")  # type: ignore[attr-defined]


def _typed_by_cuda(side: Side) -> Found:
    """`Tensor = torch.cuda.FloatTensor if cuda else torch.FloatTensor`: on another accelerator they are on the CPU."""
    about_cuda = side.once(_about_cuda)
    for file in side.involved:
        types = [node for node in file.walk(file.tree, ast.Attribute) if node.attr.endswith("Tensor")]
        if any((file.qualified(node) or "").startswith("torch.cuda.") for node in types):
            for node in types:
                if _condition(side, file, node, about_cuda) is not None:
                    text = unparse(file.statement(node))[:60]
                    yield file, node, f"tensors of `{text}` would be on the CPU, and the model on any accelerator"
                    break


def _left_to_cuda(side: Side) -> Found:
    """`x.cuda() if torch.cuda.is_available() else x`, also in another file: on another accelerator x stays behind."""
    about_cuda = side.once(_about_cuda)
    for file, call in side.calls:
        if about_cuda and _moves(call) and side.runs(file, call) and getattr(call.func, "attr", "") == "cuda":
            test = _condition(side, file, call, about_cuda)
            late = test is not None and side.after_prepare(file, call)
            if test is not None and (late or _is_kept(side, file, call)):
                yield (
                    file,
                    call,
                    f"`{ast.unparse(call)[:50]}` in {file.path.name} would run only under `{ast.unparse(test)}`, and the model "
                    "be on any accelerator",
                )


def _is_kept(side: Side, file: Module, call: ast.Call) -> bool:
    """Whether an object keeps what is moved, as a loss keeps its weights: no loader and no prepare() moves it later."""
    owner = file.scope(call).owner_class
    bases = [unparse(base) for base in getattr(owner.node, "bases", ())] if owner is not None else []
    if not any(base.endswith("Module") for base in bases):
        return False  # what a Dataset keeps comes out of a loader
    statement = file.statement(call)
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return any(isinstance(target, ast.Attribute) for target in targets) and _stays_behind(side, file, call.func.value)  # type: ignore[attr-defined]


def _guard(file: Module, call: ast.Call) -> ast.expr | None:
    """The test of an `if` whose body does nothing but move what the test does not ask for."""
    above = next((node for node in file.ancestors(call) if isinstance(node, ast.If)), None)
    alone = above is not None and all(is_move(each) for each in above.body) and not _asks_for_what_moves(above)
    return above.test if above is not None and alone else None


def _condition(side: Side, file: Module, node: ast.expr, about: set[Place]) -> ast.expr | None:
    at: ast.AST = node
    while not isinstance(at, ast.stmt):
        above = file.parents[at]
        if isinstance(above, ast.IfExp) and at is not above.test and side.flows.place(file, above.test) in about:
            return above.test
        at = above
    graph = side.graph(file.scope(node))
    step = step_of(file, at, graph)
    for decision in graph.control_dependences(step) if step is not None and graph.is_reached(step) else ():
        if (
            decision.test is not None
            and side.flows.place(file, decision.test) in about
            and not _stops_otherwise(decision)
        ):
            return decision.test
    return None


def _stops_otherwise(decision: Decision) -> bool:
    """`if not torch.cuda.is_available(): raise ...`: a run that goes on has CUDA."""
    other = getattr(decision.statement, "orelse" if decision.branch else "body", [])
    return any(isinstance(s, ast.Raise) or (isinstance(s, ast.Expr) and never_returns(s.value)) for s in other)


CONDITION = Condition(
    code="AM959",
    name="fed_on_device",
    summary="a prepared model would be called with data that is not on its device",
    why="DataParallel moves what it gets, a prepared model does not: all that the model gets, itself or with it "
    "a function of a library (`add_graph`, `export`), must be known to be on the device: a batch of a prepared loader, made "
    "there, or moved. "
    "And the Accelerator may choose another accelerator than CUDA, so that a move under a question for CUDA is not enough.",
    example_before="for inputs, targets in plain_loader:\n    outputs = model(inputs)",
    example_after="for inputs, targets in plain_loader:\n    outputs = model(inputs.to(accelerator.device))",
    find=at_places("AM959", _found),
)
