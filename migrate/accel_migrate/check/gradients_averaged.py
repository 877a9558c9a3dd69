"""AM967: whatever an optimizer changes gets its gradients through a prepared model, which averages them over processes."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.check.condition import Condition, at_places
from accel_migrate.check.drawn_anew import drawn_anew
from accel_migrate.check.evidence import Evidence, Found, Side, is_accelerator, step_of
from accel_migrate.check.left_beside import left_beside
from accel_migrate.check.loss_paths import RUNS_NOTHING, Losses
from accel_migrate.check.stores import Stores
from accel_migrate.flow.calls import Place
from accel_migrate.flow.nodes import called_name, unparse, walk
from accel_migrate.flow.scopes import Module


def _found(evidence: Evidence) -> Found:
    side = evidence.after
    calls = list(side.asked("prepare"))
    if not calls:
        return
    registered = {unparse(call.args[1]).strip("'\"") for _, call in side.asked("register_forward_method") if call.args}
    for file, call in side.asked("backward"):
        yield from _through_nothing(side, file, call, registered)
        yield from _made_anew(side, file, call)
        yield from _of_figures(side, file, call)
        if side.wraps_models:  # the runtime's own averages each loss, whichever way it came
            yield from _past_the_wrapper(side, file, call, registered)
            yield from _through_again(side, file, call)
            yield from _without_a_forward(side, file, call)
    for file in {file: None for file, _ in calls} if side.wraps_models else ():  # and all that is stepped
        yield from _updated_elsewhere(file, [call for other, call in calls if other is file])
    yield from _trained_buffers(side)
    yield from drawn_anew(side)
    yield from left_beside(side)


def _past_the_wrapper(side: Side, file: Module, backward: ast.Call, registered: set[str]) -> Found:
    """A loss that is computed by methods of bare models alone: no wrapper sees that there will be gradients."""
    if not any(True for _ in side.asked("unwrap_model")):
        return
    calls = side.once(Losses).calls(file, backward)
    bare = [call for call in calls if _is_bare(call)]
    through = [
        call
        for call, at in calls.items()
        if side.flows.made(at, call.func, "prepared")
        or (isinstance(call.func, ast.Attribute) and call.func.attr in registered)
    ]
    past = [call for call in bare if not through or _on_its_own(side, file, backward, call, through)]
    if past:
        yield file, backward, f"the loss would come from `{unparse(past[0])[:60]}`, past what averages gradients"


def _through_nothing(side: Side, file: Module, backward: ast.Call, registered: set[str]) -> Found:
    """A loss that no prepared model is seen to have a part in: whose gradients it makes, nobody averages."""
    calls = side.once(Losses).calls(file, backward)
    if _forwards(side, file, backward) or any(getattr(c.func, "attr", "") in registered for c in calls):
        return
    if side.wraps_models or not side.once(Losses).reads(file, backward) & side.once(_stepped_tensors):
        yield file, backward, f"`{unparse(backward)[:60]}` would go through nothing that is prepared"


def _of_figures(side: Side, file: Module, backward: ast.Call) -> Found:
    """A loss that is put together as a figure of an evaluation is: that has no gradients."""
    stores, seen = side.once(Stores), set(backward.args)
    pending = [*backward.args] if any(called_name(call) == "sum_for_metrics" for _, call in side.calls) else []
    while pending:
        for part in walk(pending.pop()):
            if isinstance(part, ast.Call) and getattr(part.func, "attr", "") == "sum_for_metrics":
                yield file, backward, f"the loss would come from `{unparse(part)[:60]}`, which keeps no gradients"
                return
            if isinstance(part, ast.Name):
                held = {
                    store.value
                    for store in stores.reaching(file, part)
                    if store.value is not None and store.file is file and not _prepares(store.value)
                }
                pending += held - seen
                seen |= held


def _prepares(value: ast.AST) -> bool:
    """Whether it is what `prepare` returns: no gradients come from data or weights before it."""
    function = value.func if isinstance(value, ast.Call) else None
    return isinstance(function, ast.Attribute) and function.attr == "prepare" and is_accelerator(function.value)


def _stepped_tensors(side: Side) -> set[Place]:
    """`self.log_alpha`, where `self.alpha_optimizer = Adam([self.log_alpha])` is prepared."""
    prepared = [(file, unparse(argument)) for file, call in side.asked("prepare") for argument in call.args]
    made = [
        (file, node.value)
        for file, text in prepared
        for node in file.walk(file.tree, ast.Assign)
        if isinstance(node.value, ast.Call) and unparse(node.targets[0]) == text
    ]
    lists = [
        (file, call.args[0]) for file, call in made if call.args and isinstance(call.args[0], ast.List | ast.Tuple)
    ]
    items = [(file, item) for file, stepped in lists for item in stepped.elts]
    fields = [side.flows.field(file, item) for file, item in items if isinstance(item, ast.Attribute)]
    names = [side.flows.place(file, item) for file, item in items if isinstance(item, ast.Name)]
    return side.flows.reached([*fields, *names], computed=False)


def _on_its_own(side: Side, file: Module, backward: ast.Call, bare: ast.Call, through: list[ast.Call]) -> bool:
    """Whether a step may run a method of a bare model and no prepared one: `if plain: model(x) else: unwrapped.encode(x)`."""
    scope = file.scope(backward).frame
    graph = side.graph(scope)
    first, last = step_of(file, bare, graph), step_of(file, backward, graph)
    steps = [step_of(file, call, graph) if call in file.parents else None for call in through]
    met = [step for step in steps if step is not None]
    if first is None or last is None or len(met) < len(steps) or first in met or last in met:
        return False
    loop = next((above for above in file.ancestors(backward) if isinstance(above, ast.For | ast.While)), None)
    begun = loop if loop is not None and graph.holds(loop) else None
    barred = [*met, *([loop] if begun is not None and loop is not None else [])]
    return graph.reachable_past(begun, first, met) and graph.reachable_past(first, last, barred)


def _made_anew(side: Side, file: Module, backward: ast.Call) -> Found:
    """`return torch.zeros(1, requires_grad=True)` where nothing was found: a process with that loss exchanges nothing."""
    for call, at in side.once(Losses).calls(file, backward).items():
        whole: ast.AST = call
        above = at.parents[call]
        trained = any(k.arg == "requires_grad" and unparse(k.value) == "True" for k in call.keywords)
        if isinstance(above, ast.Attribute) and above.attr == "requires_grad_":
            whole, trained = at.parents[above], True
        if not trained or not (at.qualified(call.func) or "").startswith("torch."):
            continue
        above = at.parents[whole]
        above = at.parents[above] if isinstance(above, ast.IfExp) else above
        if isinstance(above, ast.Return) or (isinstance(above, ast.Call) and above is backward):
            reason = "has nothing of a model in it: its process would exchange no gradients, and the others wait"
            yield file, backward, f"the loss may be `{unparse(whole)[:60]}`, which {reason}"
            return


def _through_again(side: Side, file: Module, first: ast.Call) -> Found:
    """`backward(a, retain_graph=True)`, then a backward pass through a forward of the same: DDP averages the first alone."""
    if not any(k.arg == "retain_graph" and unparse(k.value) not in ("False", "None") for k in first.keywords):
        return
    scope = file.scope(first).frame
    graph = side.graph(scope)
    before = step_of(file, first, graph)
    loop = next((above for above in file.ancestors(first) if isinstance(above, ast.For | ast.While)), None)
    for other, second in side.asked("backward"):
        step = step_of(file, second, graph) if other is file and file.scope(second).frame is scope else None
        again = [loop.body[0]] if loop is not None else []  # there the next round begins, with forwards of its own
        if step is None or before is None or step in (before, *again):
            continue
        if not graph.reachable_past(before, step, again):
            continue
        shared = _forwards(side, file, first) & _forwards(side, file, second)
        if shared:
            text = unparse(next(call for _, call in side.calls if call in shared))[:40]
            reason = "which one before went through: its gradients would not be averaged"
            yield file, second, f"`{unparse(second)[:50]}` may go through `{text}`, {reason}"
            return


def _without_a_forward(side: Side, file: Module, first: ast.Call) -> Found:
    """Two backward passes with no forward between them: of the forwards before, DDP averages what the first goes through."""
    scope = file.scope(first).frame
    graph = side.graph(scope)
    before = step_of(file, first, graph)
    own = _forwards(side, file, first)
    for other, second in side.asked("backward"):
        step = step_of(file, second, graph) if other is file and file.scope(second).frame is scope else None
        if step is None or before is None:
            continue
        models = {unparse(call.func) for call in own} & {unparse(call.func) for call in _forwards(side, file, second)}
        for model in sorted(models):
            here = [call for f, call in side.calls if f is file and file.scope(call).frame is scope]
            again = {unparse(call.func) for call in own} if second is first else {model}  # the next round has its own
            run = [call for call in here if unparse(call.func) in again or side.flows.callees.get(call)]
            met = [at for call in run if (at := step_of(file, call, graph)) is not None]
            if met and step not in met and graph.reachable_past(before, step, met):
                reason = f"without a forward of {model} between them: gradients would be averaged in one alone"
                yield file, second, f"`{unparse(first)[:50]}` and `{unparse(second)[:50]}` would run {reason}"
                return


def _forwards(side: Side, file: Module, backward: ast.Call) -> set[ast.Call]:
    """The calls of prepared models that a loss is computed through; where no wrapper hides them, of their parts too."""
    calls = side.once(Losses).calls(file, backward)
    return {
        call
        for call, at in calls.items()
        if side.flows.made(at, call.func, "prepared") or (not side.wraps_models and _runs_part(side, at, call))
    }


def _runs_part(side: Side, file: Module, call: ast.Call) -> bool:
    """`net.encode(x)`, `net.head[0](x)`"""
    owner = call.func
    if getattr(owner, "attr", "") in RUNS_NOTHING or not side.after_prepare(file, call):
        return False
    while isinstance(owner, ast.Attribute | ast.Subscript):
        owner = owner.value
        if any(made not in side.looped_over for made in side.flows.made(file, owner, "prepared")):
            return True
    return False


def _is_bare(call: ast.Call) -> bool:
    """`accelerator.unwrap_model(model).energy(x)`"""
    owner = call.func.value if isinstance(call.func, ast.Attribute) else call.func
    return (
        isinstance(owner, ast.Call)
        and isinstance(owner.func, ast.Attribute)
        and owner.func.attr == "unwrap_model"
        and is_accelerator(owner.func.value)
    )


def _updated_elsewhere(file: Module, calls: list[ast.Call]) -> Found:
    """`SGD(other.parameters())` is prepared, and `other` is not."""
    prepared = {unparse(argument) for call in calls for argument in call.args}
    functions = {file.scope(call).frame.node: None for call in calls}
    assigned = [node for function in functions for node in walk(function) if isinstance(node, ast.Assign)]
    for node in assigned:
        made, text = node.value, unparse(node.targets[0])
        if text not in prepared or not isinstance(made, ast.Call):
            continue
        # By whatever makes an optimizer: a function of the script's own may choose the kind.
        for owner in [owner for part in (*made.args, *[k.value for k in made.keywords]) for owner in _owners(part)]:
            if not _is_linked(unparse(owner), prepared, assigned):
                reason = "which is not prepared, so nobody averages its gradients"
                yield file, made, f"`{text}` would update {unparse(owner)}, {reason}"


def _owners(parameters: ast.expr) -> Iterator[ast.expr]:
    """The models whose parameters an optimizer is given, by their own names."""
    inner = {
        n.id
        for c in walk(parameters)
        if isinstance(c, ast.comprehension)
        for n in walk(c.target)
        if isinstance(n, ast.Name)
    }
    for node in walk(parameters):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr.endswith(("parameters", "params"))
        ):
            root = node.func.value
            while isinstance(root, ast.Attribute | ast.Subscript):
                root = root.value
            if isinstance(root, ast.Name) and root.id not in inner:
                yield node.func.value


def _is_linked(owner: str, prepared: set[str], assigned: list[ast.Assign]) -> bool:
    """Whether a name is prepared or a part of what is, is made of it, or it of the name: `model = DataParallel(net)`."""
    made = [(unparse(node.targets[0]), _made_of(node.value)) for node in assigned]
    wrapped, wrapping = {owner}, {owner}
    for _ in made:
        wrapped |= {source for name, sources in made if name in wrapped for source in sources}
        wrapping |= {name for name, sources in made if sources & wrapping}
    return any(
        text == name or name.startswith((f"{text}.", f"{text}[")) for name in wrapped | wrapping for text in prepared
    )


def _made_of(value: ast.expr) -> set[str]:
    """What a value is another name for, or was handed to a call whole; what an optimizer is over is not that."""
    if isinstance(value, ast.Call):
        owner = [value.func.value] if isinstance(value.func, ast.Attribute) else []
        return {unparse(part) for part in (*owner, *value.args)}
    return {unparse(value)} if isinstance(value, ast.Name | ast.Attribute) else set()


def _trained_buffers(side: Side) -> Found:
    """`register_buffer("weight", to_var(weight, requires_grad=True))`: trained, and no parameter, so nothing is averaged."""
    for file, call in side.calls:
        if file in side.involved and getattr(call.func, "attr", "") == "register_buffer":
            given = [part for argument in call.args[1:] for part in walk(argument) if isinstance(part, ast.keyword)]
            if any(part.arg == "requires_grad" and unparse(part.value) == "True" for part in given):
                yield (
                    file,
                    call,
                    f"`{unparse(call)[:60]}` trains a buffer, and only gradients of parameters are averaged",
                )


CONDITION = Condition(
    code="AM967",
    name="gradients_averaged",
    summary="gradients would not be averaged over the processes",
    why="Processes stay alike because `accelerator.backward` averages the gradients of all that a prepared model or optimizer "
    "holds. Other weights, and buffers, would drift apart from process to process. With `--target accelerate` gradients are "
    "averaged when the loss comes through the `forward` of the model's wrapper: not those of a bare model whose methods make "
    "the loss, nor, in the second of two backward passes through one forward, those of any. And what a process draws for "
    "itself must not get into weights or gradients once they are alike on all.",
    example_before="loss = teacher(x).mean()  # only model is prepared\naccelerator.backward(loss)",
    example_after="loss = model(x).mean()\naccelerator.backward(loss)",
    find=at_places("AM967", _found),
)
