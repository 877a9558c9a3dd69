"""AM953: `prepare` comes after what builds its arguments, before everything that trains with them, and once."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cached_property

from accel_migrate.check.condition import Condition, at_places
from accel_migrate.check.evidence import Evidence, Found, Side, argument_of, is_accelerator, parameter_names, step_of
from accel_migrate.flow.calls import Place
from accel_migrate.flow.cfg import Graph
from accel_migrate.flow.nodes import unparse, walk
from accel_migrate.flow.once import once
from accel_migrate.flow.program import Function
from accel_migrate.flow.scopes import Module, Scope

_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_BINDING: tuple[type[ast.stmt], ...] = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.For, ast.With)


def _found(evidence: Evidence) -> Found:
    """Uses of prepared objects that a run can come to before `prepare`, and objects that are prepared twice."""
    for file, call in evidence.after.asked("prepare"):
        order = _Order(evidence, file, call)
        yield from order.early_uses()
        yield from order.early_lengths()
        yield from order.unbuilt_attributes()
        yield from order.repeated()


class _Order:
    """What comes before one call of `prepare`."""

    def __init__(self, evidence: Evidence, file: Module, call: ast.Call) -> None:
        self.evidence = evidence
        self.side: Side = evidence.after
        self.file = file
        self.call = call
        self.scope: Scope = file.scope(call).frame
        self.graph: Graph = self.side.graph(self.scope)
        self.step = step_of(file, call, self.graph)
        self.texts = {unparse(argument): argument for argument in call.args if not isinstance(argument, ast.Starred)}

    def early_uses(self) -> Found:
        if self.step is None:
            return
        for node in self.file.walk(self.file.tree, ast.Call, ast.For):
            if self.file.scope(node).frame is not self.scope:
                continue
            what = self._trains(node)
            step = step_of(self.file, node, self.graph) if what else None
            if step is not None and self._may_be_bare(step):
                yield self.file, node, f"{what} before `{unparse(self.call)[:80]}`"

    def early_lengths(self) -> Found:
        """`rounds = len(loader)` before prepare, and a loop of so many rounds that draws from the prepared loader."""
        for file, node in self.side.calls if self.step is not None else ():
            if file is not self.file or getattr(node.func, "id", "") != "len" or not node.args:
                continue
            step = step_of(file, node, self.graph) if unparse(node.args[0]) in self.texts else None
            if step is None or file.scope(node).frame is not self.scope or not self._may_be_bare(step):
                continue
            reached = self.side.flows.reached([self.side.flows.place(file, node)])
            for at, drawn in _drawn_in_rounds(self.side, reached):
                message = f"`{unparse(drawn)}` would run out on N processes: how often it is drawn was counted before prepare()"
                yield at, drawn, message

    def unbuilt_attributes(self) -> Found:
        """`self.extra`, which this function sets under a condition and `prepare` takes without it."""
        body = getattr(self.scope.node, "body", None)
        if self.step is None or not isinstance(body, list):
            return
        holds = set()
        inner: ast.AST = self.step
        while inner is not self.scope.node and inner in self.file.parents:
            outer = self.file.parents[inner]
            if isinstance(outer, ast.If) and inner in outer.body:
                holds.add(unparse(outer.test))
            inner = outer
        for text, argument in self.texts.items():
            if isinstance(argument, ast.Attribute) and any(_binds(node, text) for node in self._building):
                if not _surely_binds(body, text, self.step, frozenset(holds)):
                    yield self.file, self.call, f"`{text}` may not be set yet in `{unparse(self.call)[:80]}`"

    def _may_be_bare(self, step: ast.stmt) -> bool:
        """Whether a run can come to a step with an object of this call that is there and not prepared."""
        assert self.step is not None
        if not self.texts:
            return self.graph.reachable(step, self.step) and not self.graph.dominates(self.step, step)
        return any(self.graph.arriving(step, self._begins(text), self._preparing(text)) for text in self.texts)

    @once
    def _begins(self, text: str) -> list[ast.stmt | None]:
        """Where an object of this call is built; None is before this scope begins."""
        prepared = self._preparing(text)
        found: list[ast.stmt | None] = [
            node
            for node in self._building
            if node not in prepared and _binds(node, text) and not self._is_itself(node, text, prepared)
        ]
        function = self.scope.node
        parameter = isinstance(function, Function) and text in parameter_names(function)
        declared = any(
            text in node.names and self.file.scope(node).frame is self.scope
            for node in self.file.walk(self.file.tree, ast.Global, ast.Nonlocal)
        )
        return found if found and text.isidentifier() and not (parameter or declared) else [*found, None]

    def _is_itself(self, node: ast.stmt, text: str, prepared: list[ast.stmt]) -> bool:
        """`model = model.train()` of what is prepared: the same under its name."""
        named = any(isinstance(part, ast.expr) and unparse(part) == text for part in walk(getattr(node, "value", node)))
        return named and any(self.graph.dominates(step, node) for step in prepared)

    @once
    def _preparing(self, text: str) -> list[ast.stmt]:
        """The steps of this scope that prepare an object."""
        found: list[ast.stmt] = []
        for file, call in self.side.asked("prepare"):
            if file is self.file and file.scope(call).frame is self.scope:
                step = step_of(file, call, self.graph)
                if step is not None and text in map(unparse, call.args):
                    found.append(step)
        return found

    @cached_property
    def _building(self) -> list[ast.stmt]:
        """The other statements of this scope that give an object of this call a value."""
        return [
            node
            for node in self.file.walk(self.file.tree, *_BINDING)
            if node is not self.step and self.graph.holds(node) and not _bound(node).isdisjoint(self.texts)
        ]

    def _trains(self, node: ast.Call | ast.For) -> str:
        """What a call or a loop does with a prepared object that needs it prepared; empty if nothing."""
        if isinstance(node, ast.For):
            named = self._names(node.iter)
            return f"a training loop over {named} runs" if named and self._steps(node) else ""
        function = node.func
        if isinstance(function, ast.Attribute) and function.attr == "step" and unparse(function.value) in self.texts:
            return f"{unparse(function)}() runs"
        if isinstance(function, ast.Attribute) and function.attr == "backward" and is_accelerator(function.value):
            return "a backward pass runs"
        for callee in self.side.flows.callees.get(node, ()):
            if self._reaches_step(callee, set()):
                return f"{unparse(function)}() trains"
        return ""

    def _names(self, node: ast.expr) -> str:
        return next((unparse(n) for n in walk(node) if isinstance(n, ast.expr) and unparse(n) in self.texts), "")

    def _steps(self, node: ast.AST) -> bool:
        """Whether a backward pass or an optimizer's step is inside, or in what is called inside."""
        for inner in walk(node):
            if isinstance(inner, ast.Call):
                if isinstance(inner.func, ast.Attribute) and inner.func.attr == "backward":
                    return True
                if any(self._reaches_step(callee, set()) for callee in self.side.flows.callees.get(inner, ())):
                    return True
        return False

    def _reaches_step(self, function: Function, seen: set[Function]) -> bool:
        """Whether a function trains with what this `prepare` prepares."""
        if function in seen:
            return False
        seen.add(function)
        file = self.side.flows.function_file[function]
        if file.holds(function, self.call):
            return False  # it prepares by itself
        for inner in file.walk(function, ast.Call):
            target = inner.func
            if isinstance(target, ast.Attribute) and target.attr == "backward" and is_accelerator(target.value):
                return True
            if isinstance(target, ast.Attribute) and target.attr == "step" and self._is_ours(file, target.value):
                return True
            if any(self._reaches_step(callee, seen) for callee in self.side.flows.callees.get(inner, ())):
                return True
        return False

    def _is_ours(self, file: Module, node: ast.expr) -> bool:
        return any(made.node is self.call for made in self.side.flows.made(file, node, "prepared"))

    def repeated(self) -> Found:
        """The same object in a second call, or in one that runs again while its argument does not change."""
        if self.step is None:
            return
        for argument in self.call.args:
            for made in self.side.flows.made(self.file, argument, "prepared"):
                if made.node is self.call:
                    continue
                other = made.node
                same = next((f for f, c in self.side.asked("prepare") if c is other), None)
                if same is self.file and same.scope(other).frame is self.scope:
                    first = step_of(same, other, self.graph)
                    if first is None or not self.graph.reachable(first, self.step) or self._rebuilt(argument, first):
                        continue
                    yield self.file, self.call, f"{unparse(argument)} would be prepared a second time"
        loop = self._loop_around(self.file, self.step, self.graph)
        if loop is not None:
            for text in self.texts:
                if not self._bound_in(loop, text):
                    yield self.file, self.call, f"{text} would be prepared again in each round of a loop"
        brought = [] if self._takes_loaders() else self._brought(self.scope.node, self.texts.keys(), set())
        for text in sorted(brought):
            yield self.file, self.call, f"{text} would be prepared again in each round of a loop that calls for it"

    def _takes_loaders(self) -> bool:
        """Whether the call prepares loaders alone, for which it gives back what it gave before."""
        made = [{each.kind for each in self.side.flows.made(self.file, argument)} for argument in self.call.args]
        return all("loader" in kinds <= {"loader", "prepared"} for kinds in made)

    def _brought(self, function: ast.AST, texts: Iterable[str], seen: set[ast.AST]) -> set[str]:
        """Of what a function takes as parameters, that which a loop around its calls hands in again and again."""
        if not isinstance(function, Function) or function in seen:
            return set()
        seen.add(function)
        parameters = parameter_names(function)
        found: set[str] = set()
        for text in (text for text in texts if text in parameters):
            for site in self.side.above(function):
                argument = argument_of(function, site.call, text)
                if argument is None:
                    continue
                graph = self.side.graph(site.file.scope(site.call).frame)
                step = step_of(site.file, site.call, graph)
                loop = self._loop_around(site.file, step, graph) if step is not None else None
                again = loop is not None and not self._bound_in(loop, unparse(argument))
                outer = site.file.scope(site.call).frame.node
                if again or (loop is None and self._brought(outer, [unparse(argument)], seen)):
                    found.add(text)
        return found

    def _rebuilt(self, argument: ast.expr, first: ast.stmt) -> bool:
        """Whether a name gets a new value between two calls that prepare it."""
        assert self.step is not None
        text = unparse(argument)
        for node in self.file.walk(self.file.tree, *_BINDING):
            if node not in (first, self.step) and _binds(node, text):
                if (
                    self.graph.holds(node)
                    and self.graph.reachable(first, node)
                    and self.graph.dominates(node, self.step)
                ):
                    return True
        return False

    def _loop_around(self, file: Module, step: ast.stmt, graph: Graph) -> ast.stmt | None:
        for above in file.ancestors(step):
            if isinstance(above, Function):
                return None
            if isinstance(above, _LOOPS) and graph.in_loop(step):
                return above
        return None

    def _bound_in(self, loop: ast.stmt, text: str) -> bool:
        return any(isinstance(node, ast.stmt) and node is not self.step and _binds(node, text) for node in walk(loop))


def _drawn_in_rounds(side: Side, counts: set[Place]) -> Iterator[tuple[Module, ast.Call]]:
    """`next(batches)` of a prepared loader, in a loop of so many rounds; not where its end is caught, or never comes."""
    for file in side.files:
        for loop in file.walk(file.tree, ast.For):
            if side.flows.place(file, loop.iter) not in counts:
                continue
            for node in walk(loop):
                if not isinstance(node, ast.Call) or getattr(node.func, "id", "") != "next" or len(node.args) != 1:
                    continue
                drawn = side.flows.sources(side.flows.place(file, node.args[0]))
                endless = any(isinstance(p, tuple) and "cycle" in unparse(p[1]) for p in drawn if p[0] == "expression")  # type: ignore[index]
                caught = any(isinstance(above, ast.Try) for above in file.ancestors(node) if above in walk(loop))
                if side.flows.made(file, node.args[0], "prepared") and not endless and not caught:
                    yield file, node


def _surely_binds(block: list[ast.stmt], text: str, end: ast.stmt, holds: frozenset[str]) -> bool:
    """Whether a block sets what `text` names on every path, or leaves; under `holds`, the conditions that are met."""
    for statement in block:
        if statement is end:
            return False
        if isinstance(statement, ast.Return | ast.Raise | ast.Continue | ast.Break) or _binds(statement, text):
            return True
        if isinstance(statement, ast.If):
            arms = [statement.body] if unparse(statement.test) in holds else [statement.body, statement.orelse]
            if all(_surely_binds(arm, text, end, holds) for arm in arms):
                return True
        elif isinstance(statement, ast.With | ast.AsyncWith | ast.For | ast.While | ast.Try):
            if _surely_binds(statement.body, text, end, holds):
                return True
    return False


def _binds(statement: ast.stmt, text: str) -> bool:
    """Whether a statement gives a name a value."""
    return type(statement) in _BINDING and text in _bound(statement)


@once
def _bound(statement: ast.stmt) -> frozenset[str]:
    """What a statement gives a value, as it is written."""
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, ast.AnnAssign | ast.AugAssign | ast.For):
        targets = [statement.target]
    elif isinstance(statement, ast.With):
        targets = [item.optional_vars for item in statement.items if item.optional_vars is not None]
    else:
        return frozenset()
    parts = [
        part for target in targets for part in (target.elts if isinstance(target, ast.Tuple | ast.List) else [target])
    ]
    return frozenset(map(unparse, parts))


CONDITION = Condition(
    code="AM953",
    name="prepare_order",
    summary="`prepare` would come too late, or twice",
    why="What `prepare` gives back is what must train: on every path it stands after what builds its "
    "arguments and before the loops, steps and backward passes that use them, and it prepares an object "
    "once.",
    example_before=(
        "for batch in loader:\n"
        "    accelerator.backward(model(batch))\n"
        "model, loader = accelerator.prepare(model, loader)"
    ),
    example_after=(
        "model, loader = accelerator.prepare(model, loader)\n"
        "for batch in loader:\n"
        "    accelerator.backward(model(batch))"
    ),
    find=at_places("AM953", _found),
)
