"""AM957: every statement and argument that disappeared is covered by an applied change, and nothing else changed."""

from __future__ import annotations

import ast
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice, takewhile
from pathlib import Path

from accel_migrate.check.condition import Condition, Project, Violation
from accel_migrate.check.evidence import Side, argument_of
from accel_migrate.check.heads import Head, compact, head_text, heads
from accel_migrate.check.pair import Pair
from accel_migrate.effects import more_than_an_answer
from accel_migrate.flow.nodes import called_name, unparse, walk
from accel_migrate.flow.program import Function
from accel_migrate.items import settled
from accel_migrate.plan import Edit, Guard, Insert, Remove, Repeat, Replace, Substitute, Unwrap
from accel_migrate.source import Source

CODE = "AM957"


def find(project: Project) -> Iterator[Violation]:
    for file in project.changed:
        yield from _unaccounted(file)
    yield from _effects_lost(project)


def _effects_lost(project: Project) -> Iterator[Violation]:
    """Functions of the project that a file calls less often than before, and that did more than to answer."""
    before, after = project.evidence.before, project.evidence.after
    changed = {file.path for file in project.changed}
    calls = [(file, call) for file, call in before.calls if file.path in changed and before.flows.callees.get(call)]
    lost = Counter((file.path, called_name(call)) for file, call in calls)
    lost -= Counter((file.path, called_name(call)) for file, call in after.calls if after.flows.callees.get(call))
    lost -= _of_one_way(before, after, lost) if lost else Counter()
    defined = {function.name for file in after.files for function in file.walk(file.tree, ast.FunctionDef)}
    for file, call in calls if lost else ():
        for function in before.flows.callees.get(call, ()) if lost[file.path, called_name(call)] else ():
            if getattr(function, "name", None) not in defined:
                continue  # it went with its calls: what it did is asked of each of its own
            more = more_than_an_answer(function, lambda each: [*before.flows.callees.get(each, ())])
            if more is not None and not _is_done_itself(before, after, function, call, more):
                message = f"`{unparse(call)}` would no longer be called, and `{unparse(more)}` with it"
                yield Violation(CODE, file.path, 1, message)
                return


def _is_done_itself(before: Side, after: Side, function: Function, call: ast.Call, more: ast.AST) -> bool:
    """`optimizer.step()` for `scaler.step(optimizer)`, where that did nothing else with what it was handed."""
    match function.body, more:
        case [ast.Expr(value=only)], ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method)) if only is more:
            given = argument_of(function, call, name)
        case _:
            return False
    said = f"{unparse(given)}.{method}" if given is not None else ""
    often = [sum(unparse(each.func) == said for _, each in side.calls) for side in (before, after)]
    return bool(said) and often[0] < often[1]


def _of_one_way(before: Side, after: Side, lost: Counter[tuple[Path, str]]) -> Counter[tuple[Path, str]]:
    """What both ways of a choice called that is one way now: a run called one of the two, and calls the one that is left."""
    found: Counter[tuple[Path, str]] = Counter()
    left = Counter((*key, test) for key, test, _ in _choices(after, lost))
    for key, test, often in _choices(before, lost):
        if often:
            left[*key, test] -= 1
            found[key] += often if left[*key, test] < 0 else 0
    return found


def _choices(side: Side, names: Collection[tuple[Path, str]]) -> Iterator[tuple[tuple[Path, str], str, int]]:
    """The choices that call some functions: the function, what is asked, and how often both ways call it."""
    for file in side.files:
        for node in file.walk(file.tree, ast.If, ast.IfExp):
            ways = [way if isinstance(way, list) else [way] for way in (node.body, node.orelse)]
            calls = [[n for part in way for n in walk(part) if isinstance(n, ast.Call)] for way in ways]
            body, orelse = (Counter((file.path, called_name(call)) for call in way) for way in calls)
            for key in (body | orelse).keys() & names:
                yield key, ast.dump(node.test), (body & orelse)[key]


def _unaccounted(file: Pair) -> Iterator[Violation]:
    """Statements that no change names must come again in their order; every other one must be what a change says."""
    plan = _Plan(file)
    kept = [head for head in plan.originals if plan.keeps(head.node)]
    results = heads(file.after.source)
    position = 0
    others: list[Head] = []
    for head in kept:
        start = position
        while position < len(results) and results[position].text != head.text:
            position += 1
        if position == len(results):
            lost = file.before.code(head.node)
            yield Violation(CODE, file.path, 1, f"`{lost}` would disappear, and no change accounts for it")
            return
        others += results[start:position]
        position += 1
    others += results[position:]
    written = plan.written()
    for head in others:
        if not written[head.text]:
            message = f"`{file.after.code(head.node)}` would be there, and no change accounts for it"
            yield Violation(CODE, file.path, getattr(head.node, "lineno", 1), message)
            return
        written[head.text] -= 1


@dataclass
class _Plan:
    """What the applied changes say about each statement of the original."""

    file: Pair
    gone: set[ast.AST] = field(default_factory=set)  # with all that is in them
    heads: set[ast.AST] = field(default_factory=set)  # those whose head goes and whose block stays
    replaced: dict[ast.AST, list[Replace]] = field(default_factory=dict)
    originals: list[Head] = field(default_factory=list)

    @cached_property
    def edits(self) -> list[Edit]:
        return settled(self.file.before.source, (edit for change in self.file.changes for edit in change.edits))

    def __post_init__(self) -> None:
        self.originals = heads(self.file.before.source)
        replacements: list[Replace] = []
        for edit in self.edits:
            if isinstance(edit, Remove | Substitute):
                self._goes(edit.statement)
            elif isinstance(edit, Unwrap):
                self.heads.add(edit.statement)
            elif isinstance(edit, Replace):
                replacements.append(edit)
        for edit in dict.fromkeys(replacements):
            owner = self._owner(edit)
            if owner is not None:
                self.replaced.setdefault(owner, []).append(edit)
        for head in list(self.heads):
            if isinstance(head, ast.If) and self._texts(head.body) == self._texts(head.orelse):
                for statement in head.orelse:
                    self._goes(statement)  # the other way is as it would have become

    def _texts(self, block: list[ast.stmt]) -> list[str]:
        """The heads that a block has once its changes are made."""
        inside = {node for statement in block for node in walk(statement)} - self.gone - self.heads
        staying = [head for head in self.originals if head.node in inside]
        return [
            self._rewritten(head.node, self.replaced[head.node]) if head.node in self.replaced else head.text
            for head in staying
        ]

    def keeps(self, node: ast.AST) -> bool:
        return not (node in self.gone or node in self.heads or node in self.replaced or self.may_go(node))

    def may_go(self, node: ast.AST) -> bool:
        """Whether a compound statement holds nothing more, so that it goes, or is turned round, with its last statement."""
        if not isinstance(node, ast.If | ast.For | ast.With):
            return False
        return all(child in self.gone or child in self.heads or self.may_go(child) for child in node.body)

    def written(self) -> Counter[str]:
        """The heads of all statements that changes write."""
        found: Counter[str] = Counter()
        for statement, edits in self.replaced.items():
            if statement not in self.gone:
                found[self._rewritten(statement, edits)] += 1
        texts: list[str] = []
        for edit in dict.fromkeys(self.edits):
            if isinstance(edit, Insert | Substitute):
                texts += edit.statements
            elif isinstance(edit, Guard):
                texts.append(f"if {edit.test}:\n    pass")
            elif isinstance(edit, Repeat):
                texts.append(edit.text)
        found.update(_heads_of("\n".join(texts)))
        found["pass"] += len(self.gone)  # what keeps a block a block
        for head in self.originals if self.gone else ():
            if head.node not in self.gone and self.may_go(head.node):
                found[head.text] += 1
                if isinstance(head.node, ast.If) and head.node.orelse:
                    found.update(_turned(self.file.before.source, head.node))
        return found

    def _goes(self, statement: ast.stmt) -> None:
        self.gone.add(statement)
        self.gone.update(node for node in walk(statement) if isinstance(node, ast.stmt))

    def _owner(self, edit: Replace) -> ast.AST | None:
        """The statement whose own text, not that of its blocks, an edit is in."""
        source = self.file.before.source
        found: ast.AST | None = None
        block: list[ast.stmt] = source.tree.body
        line = source.line_of(edit.start)
        while block:
            first = bisect_left(block, line, key=lambda statement: statement.end_lineno or 0)
            below = takewhile(lambda statement: _start(source, statement) <= edit.start, islice(block, first, None))
            inner = next((statement for statement in below if edit.end <= source.end(statement)), None)
            if inner is None:
                return found
            found = inner
            block = [
                child
                for name in ("body", "handlers", "orelse", "finalbody", "cases")
                for part in getattr(inner, name, ())
                for child in (part.body if isinstance(part, ast.ExceptHandler | ast.match_case) else [part])
                if isinstance(child, ast.stmt)
            ]
        return found

    def _rewritten(self, statement: ast.AST, edits: list[Replace]) -> str:
        """The head of a statement once its replacements are made."""
        source = self.file.before.source
        assert isinstance(statement, ast.stmt)
        start, end = _start(source, statement), source.end(statement)
        pieces, position = [], start
        for edit in sorted(edits, key=lambda each: (each.start, each.end)):
            pieces += [source.text[position : edit.start], edit.text]
            position = max(position, edit.end)
        text = "".join([*pieces, source.text[position:end]])
        text = text.removeprefix("el") if isinstance(statement, ast.If) else text
        if not isinstance(statement, ast.Match) and not hasattr(statement, "body"):
            return compact(text)
        margin = " " * statement.col_offset
        whole = f"{margin}{text}" if not margin else f"if 1:\n{margin}{text}"
        try:
            tree = ast.parse(whole)
        except SyntaxError:
            return compact(text)
        made = tree.body[0] if not margin else tree.body[0].body[0]  # type: ignore[attr-defined]
        return head_text(Source.from_bytes(self.file.path, whole.encode()), made)


def _start(source: Source, statement: ast.stmt) -> int:
    """Where a statement begins, decorators included."""
    decorators = getattr(statement, "decorator_list", ())
    return source.text.rindex("@", 0, source.start(decorators[0])) if decorators else source.start(statement)


def _turned(source: Source, node: ast.If) -> Iterator[str]:
    """`if test: (nothing left) else: rest` asks the opposite."""
    test = source.code(node.test)
    for opposite in (f"not {test}", f"not ({test})", test.removeprefix("not ")):
        yield compact(f"if {opposite}")


def _heads_of(text: str) -> list[str]:
    source = Source.from_bytes(Path("new.py"), text.encode())
    return [head.text for head in heads(source)]


CONDITION = Condition(
    code=CODE,
    name="accounted_for",
    summary="a rewritten script would differ from the original where no change says so",
    why="A statement or an argument goes only with a change that names it, and comes only with a change that writes it. "
    "Everything else is in the result as it was, in the same order. A call of a function of the project goes only where the "
    "function does nothing but find out what it returns: one that also seeds or prints is still called.",
    example_before="loss.backward()\noptimizer.step()  # gone from the result",
    example_after="accelerator.backward(loss)\noptimizer.step()",
    find=find,
)
