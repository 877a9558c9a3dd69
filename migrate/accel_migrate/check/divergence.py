"""Which values may differ from process to process, and what each process then decides for itself.

The question goes backwards, from a test to all that it is computed from, through calls, fields and containers, and through
the tests under which those values came to be. It ends at what a process has for its own: the batches of a prepared loader,
what it draws by a seed of its own, the clock, its own games. What is gathered or reduced is the same on all.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from accel_migrate.check.evidence import Side, argument_of, is_accelerator, parameter_names, step_of
from accel_migrate.check.seeds import Seeds
from accel_migrate.check.statistics_together import NORMALISED
from accel_migrate.check.stores import Path, Store, Stores, item_of, returned, yielded
from accel_migrate.flow.cfg import Decision
from accel_migrate.flow.fields import self_of
from accel_migrate.flow.nodes import children, walk
from accel_migrate.flow.program import Function
from accel_migrate.flow.scopes import Module
from accel_migrate.flow.torch_api import PASSED_ON, is_computed_for_all

VALUE: Path = ()
COUNT: Path = ("count",)  # how many elements there are
ORIGIN: Path = ("origin",)  # how it came to be; a batch's own length is the same on all
_SHARED = frozenset(
    ["gather", "gather_for_metrics", "sum_for_metrics", "reduce", "broadcast", "get_state_dict", "state_dict"]
)
_ALIKE = frozenset(
    ["device", "dtype", "ndim", "training", "is_cuda", "requires_grad", "named_parameters", "parameters"]
)
_SIZED_BY_VALUE = frozenset([
    "nonzero", "where", "unique", "masked_select", "filter", "split",
    "rand", "randn", "randint", "randperm", "normal", "zeros", "ones", "full", "empty", "arange",
])  # fmt: skip
_DEPTH = 6  # of calls that are told apart, and of parts of parts


class Question(NamedTuple):
    file: Module
    node: ast.expr
    part: Path
    calls: tuple[ast.Call, ...]  # on the way to it, the last first to go back
    known: frozenset[tuple[str, object]] = frozenset()  # `phase == "val"`: what variables of its function are, there


class Divergence:
    """Asked for a test, what of a process's own decides it."""

    def __init__(self, side: Side) -> None:
        self._side = side
        self._stores = side.once(Stores)
        self._seeds = Seeds(side)
        self._called = {site.call: site.file for site in side.flows.sites()}
        self._mixed: dict[ast.AST, bool] = {}
        self._alike: set[Question] = set()  # what was found to depend on nothing of the kind

    def decided_by(self, file: Module, node: ast.AST) -> Iterator[tuple[Decision, Module, str]]:
        """The decisions on the way to a node, in its function and in those that call it, that a process takes for itself."""
        seen: set[ast.AST] = set()
        waiting: list[tuple[Module, ast.AST]] = [(file, node)]
        while waiting:
            where, at = waiting.pop()
            decisions = list(self._decisions(where, at))
            known = frozenset(pair for each in decisions if each.branch for pair in _told(each.test))
            for decision in decisions:
                own = self._own([asked._replace(known=known) for asked in self._asked(where, decision, ())])
                if own:
                    yield decision, where, own
            scope = where.scope(at).frame.node
            if isinstance(scope, Function) and scope not in seen:
                seen.add(scope)
                waiting += [(site.file, site.call) for site in self._side.above(scope)]

    def of_value(self, file: Module, node: ast.expr) -> str:
        """What of a process's own a value comes from."""
        return self._own([Question(file, node, VALUE, ())])

    def _decisions(self, file: Module, node: ast.AST) -> Iterator[Decision]:
        graph = self._side.graph(file.scope(node))
        step = step_of(file, node, graph)
        if step is None or not graph.is_reached(step):
            return
        for decision in graph.control_dependences(step):
            if decision.test is not None and not _leaves_only_by_error(decision):
                yield decision

    def _asked(self, file: Module, decision: Decision, calls: tuple[ast.Call, ...]) -> Iterator[Question]:
        if decision.test is not None:
            part = COUNT if isinstance(decision.statement, ast.For | ast.AsyncFor) else VALUE
            yield Question(file, decision.test, part, calls)

    def _own(self, waiting: list[Question]) -> str:
        """What of a process's own any of these depends on."""
        seen: set[Question] = set()
        while waiting:
            question = waiting.pop()
            if question in seen or question in self._alike or len(question.part) > _DEPTH:
                continue
            seen.add(question)
            for answer in self._behind(question):
                if isinstance(answer, str):
                    return answer
                waiting.append(answer)
        self._alike |= seen
        return ""

    # ---- one step back

    def _behind(self, asked: Question) -> Iterator[Question | str]:
        node, part = asked.node, asked.part
        again = asked._replace
        match node:
            case ast.Name():
                yield from self._variable(asked, node)
            case ast.Attribute():
                yield from self._attribute(asked, node)
            case ast.Call():
                yield from self._call(asked, node)
            case ast.Subscript(value=ast.Attribute(value=tensor, attr="shape"), slice=ast.Constant(value=0)):
                yield again(node=tensor, part=ORIGIN)
            case ast.Subscript(slice=ast.Slice()):
                yield again(node=node.value)
                for bound in children(node.slice):
                    if isinstance(bound, ast.expr):
                        yield again(node=bound, part=VALUE)
            case ast.Subscript(slice=ast.Name(id=index)) if index in dict(asked.known):
                yield again(node=node.value, part=(("item", dict(asked.known)[index]), *part))
            case ast.Subscript():
                yield again(node=node.value, part=(item_of(node.slice), *part))
                if not isinstance(node.slice, ast.Constant):
                    yield again(node=node.slice, part=VALUE)
            case ast.IfExp():
                yield again(node=node.test, part=VALUE)
                yield again(node=node.body)
                yield again(node=node.orelse)
            case ast.Tuple(elts=items) | ast.List(elts=items) | ast.Set(elts=items):
                for position, item in enumerate(items):
                    if not part or part[0] in ("element", ("item", position)):
                        yield again(node=item, part=part[1:])
            case ast.Dict():
                for key, value in zip(node.keys, node.values):
                    name = ("item", key.value) if isinstance(key, ast.Constant) else "element"
                    if key is None:
                        yield again(node=value)
                    elif not part or part[0] == name or "element" in (name, part[0]):
                        yield again(node=value, part=part[1:])
            case ast.ListComp(elt=made) | ast.SetComp(elt=made) | ast.GeneratorExp(elt=made) | ast.DictComp(value=made):
                if part in (VALUE, COUNT, ORIGIN):
                    for loop in node.generators:
                        yield again(node=loop.iter, part=part or COUNT)
                        for test in loop.ifs:
                            yield again(node=test, part=VALUE)
                if part not in (COUNT, ORIGIN):
                    yield again(node=made, part=part[1:])
            case ast.Compare(ops=[ast.Is() | ast.IsNot()], comparators=[ast.Constant(value=None)]):
                yield again(node=node.left, part=ORIGIN)
            case ast.Starred() | ast.Await() | ast.NamedExpr() | ast.FormattedValue():
                yield again(node=node.value)
            case ast.BoolOp() | ast.Compare() | ast.BinOp() | ast.UnaryOp() | ast.JoinedStr():
                for child in children(node):
                    if isinstance(child, ast.expr):
                        yield again(node=child, part=ORIGIN if _by_element(node, part) else VALUE)

    def _variable(self, asked: Question, name: ast.Name) -> Iterator[Question | str]:
        file = asked.file
        scope = file.binder(name.id, file.scope(name))
        function = scope.node if scope is not None else None
        for store in self._stores.reaching(file, name):
            yield from self._stored(asked, store)
        if scope is not None and isinstance(function, Function) and name.id in parameter_names(function):
            last = asked.calls[-1:]
            if last and function in self._side.flows.callees.get(last[0], ()):
                sites = [(self._called[last[0]], last[0], asked.calls[:-1])]
            else:
                sites = [(site.file, site.call, ()) for site in self._side.above(function)]
            for caller, call, calls in sites:
                given = argument_of(function, call, name.id)
                if given is not None:
                    yield Question(caller, given, asked.part, calls)
        there = self._side.program.imported(file, name.id) if file.qualified(name) is not None else None
        if there is not None and there[1] is not None:
            for store in self._stores.of(("name", there[0].root, there[1])):
                yield from self._stored(asked._replace(calls=()), store)

    def _stored(self, asked: Question, store: Store) -> Iterator[Question]:
        """What a store says of the part that is asked for: the value it came from, and the tests under which it stands."""
        part, at = asked.part, store.at
        plain = [step for step in part if step not in ("count", "origin")]
        if not store.anywhere and any(_apart(one, other) for one, other in zip(plain, at)):
            return
        here = store.file is asked.file
        again = asked._replace(file=store.file) if here else Question(store.file, asked.node, part, ())
        for decision in self._decisions(store.file, store.node):
            for question in self._asked(store.file, decision, again.calls):
                yield question._replace(known=again.known)
        if store.value is None or (at and not store.anywhere and part[-1:] in (COUNT, ORIGIN) and len(plain) < len(at)):
            return  # how many there are does not depend on what they are
        if store.anywhere:
            if part[-1:] not in (COUNT, ORIGIN):
                yield again._replace(node=store.value, part=VALUE)
            elif isinstance(store.node, ast.AugAssign):
                yield again._replace(node=store.value, part=part[-1:])
        else:
            yield again._replace(node=store.value, part=(*store.of, *part[len(at) :]))

    def _attribute(self, asked: Question, node: ast.Attribute) -> Iterator[Question | str]:
        file = asked.file
        if is_accelerator(node.value) or node.attr in _ALIKE:
            return
        owner = self_of(file, node.value)
        if owner is not None:
            for store in self._fields(owner.node, node.attr):
                yield from self._stored(asked._replace(calls=()), store)
            return
        dotted = file.qualified(node)
        if dotted is not None:
            there = self._side.program.locate(file, dotted)
            if there is not None and there[1] is not None:
                for store in self._stores.of(("name", there[0].root, there[1])):
                    yield from self._stored(asked._replace(calls=()), store)
            return
        for made in self._side.flows.made(file, node.value, "instance"):
            if self._is_mixed(made.node):
                for store in self._fields(made.node, node.attr):
                    yield from self._stored(asked._replace(calls=()), store)
                return
        yield asked._replace(node=node.value, part=(("attribute", node.attr), *asked.part))

    def _fields(self, owner: ast.AST, name: str) -> Iterator[Store]:
        """What methods of a class, and of those that it inherits from or that inherit from it, store in a field."""
        flows = self._side.flows
        related = [owner]
        for file in self._side.files:
            for node in file.walk(file.tree, ast.ClassDef):
                bases = {made.node for base in node.bases for made in flows.made(file, base, "class")}
                if node in related:
                    related += [base for base in bases if base not in related]
                elif any(each in related for each in bases):
                    related.append(node)
        for each in related:
            yield from self._stores.of(("field of", each, name))

    def _is_mixed(self, owner: ast.AST) -> bool:
        """Whether methods of a class train or go through data: other objects are what they are told."""
        if owner not in self._mixed:
            self._mixed[owner] = any(is_accelerator(node) for node in walk(owner)) or any(
                isinstance(node, ast.Call) and self._seeds.of(file, node)
                for file in self._side.files
                if owner in file.scopes
                for node in walk(owner)
            )
        return self._mixed[owner]

    @cached_property
    def _normalises(self) -> bool:
        """Whether a model may have running statistics, by what the files name."""
        return any(
            NORMALISED.match(file.qualified(node) or "")
            for file in self._side.involved
            for node in file.walk(file.tree, ast.Name, ast.Attribute)
        )

    # ---- calls

    def _call(self, asked: Question, call: ast.Call) -> Iterator[Question | str]:
        file, part = asked.file, asked.part
        again = asked._replace
        function = call.func
        if file.qualified(function) == "accel_runtime.broadcast_object_list":
            return
        own = self._seeds.of(file, call)
        if own:
            if part[-1:] != ORIGIN:
                yield own
            for size in call.args if part[-1:] == ORIGIN else ():
                yield again(node=size, part=VALUE)
            return
        if isinstance(function, ast.Attribute) and is_accelerator(function.value):
            yield from self._of_accelerator(asked, call, function.attr)
            return
        if file.qualified(function) == "torch.load":
            return  # one file for all, or AM962 speaks of its name
        if part[-1:] != ORIGIN and _is_bare(function) and self._normalises:
            yield "a process's own running statistics"
        if (
            part[:1] == ("element",)
            and part[-1:] != ORIGIN
            and (file.qualified(function) or "").endswith(".DataLoader")
        ):
            order = self._seeds.order_of(call)
            if order:
                yield order
                return
        arguments = [*call.args, *[keyword.value for keyword in call.keywords]]
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        first = [*call.args, *[k.value for k in call.keywords if k.arg == "iterable"]][:1]
        if self._side.flows.made(file, function, "prepared"):
            pass  # a model's weights are the same on all: what comes out depends on what goes in
        elif is_computed_for_all(file, call):
            return
        elif callees := self._followed(file, call):
            for callee in callees:
                yield from self._result(asked, call, callee)
            return
        elif name == "enumerate" and first:
            if part[:1] == ("element",) and part[1:2] == (("item", 0),):
                return
            inner = part[:1] + part[2:] if part[:1] == ("element",) else part
            yield again(node=first[0], part=inner)
            return
        elif name == "zip":
            for index, argument in enumerate(call.args):
                if part[:1] != ("element",):
                    yield again(node=argument)
                elif not part[1:] or part[1] in ("element", ("item", index)):
                    yield again(node=argument, part=("element", *part[2:]))
            return
        elif name == "range":
            for argument in arguments if part[:1] != ("element",) else ():
                yield again(node=argument, part=VALUE)
            return
        elif name == "next" and first:
            yield again(node=first[0], part=("element", *part))
            return
        elif name in ("len", "isinstance", "hasattr") and first:
            yield again(node=first[0], part=ORIGIN)
            return
        elif name in ("size", "numel", "__len__", "dim") and isinstance(function, ast.Attribute):
            is_first = not call.args or (isinstance(call.args[0], ast.Constant) and call.args[0].value == 0)
            yield again(node=function.value, part=ORIGIN if is_first else VALUE)
            return
        elif name in PASSED_ON and first:
            yield again(node=first[0])
            return
        counted = part[-1:] == ORIGIN or (part == COUNT and name[:1].isupper())
        asks = ORIGIN if counted and name not in _SIZED_BY_VALUE else VALUE
        for argument in arguments:
            yield again(node=argument, part=asks)
            if part[:1] == ("element",):
                yield again(node=argument)  # a wrapper around a loader
        if isinstance(function, ast.Attribute) and file.qualified(function) is None:
            inside = self_of(file, function.value) is not None
            yield again(node=function if inside else function.value, part=asks)

    def _of_accelerator(self, asked: Question, call: ast.Call, method: str) -> Iterator[Question | str]:
        if method == "prepare":
            part = asked.part[1:] if len(call.args) > 1 else asked.part
            if part[:1] == ("element",) and part[-1:] != ORIGIN:
                yield "a process's own batch"
        elif method not in _SHARED:
            for argument in call.args:
                yield asked._replace(node=argument)

    def _followed(self, file: Module, call: ast.Call) -> list[Function]:
        """The functions of the project that a call runs, if what they return is more than what they are told."""
        callees = [f for f in self._side.flows.callees.get(call, ()) if getattr(f, "name", "") != "__init__"]
        kept = []
        for function in callees:
            owner = self._side.flows.function_file[function].scopes[function].parent
            inside = self_of(file, call.func.value) if isinstance(call.func, ast.Attribute) else None
            if owner is None or not owner.is_class or inside is not None or self._is_mixed(owner.node):
                kept.append(function)
        return kept

    def _result(self, asked: Question, call: ast.Call, callee: Function) -> Iterator[Question]:
        file = self._side.flows.function_file[callee]
        calls = (*asked.calls, call)[-_DEPTH:]
        for value in returned(callee):
            yield Question(file, value, asked.part, calls)
            for decision in self._decisions(file, value) if not isinstance(callee, ast.Lambda) else ():
                yield from self._asked(file, decision, calls)
        if asked.part[:1] == ("element",):
            for value in yielded(callee):
                yield Question(file, value, asked.part[1:], calls)


def _is_bare(function: ast.expr) -> bool:
    """`accelerator.unwrap_model(model).encoder`: past the wrapper that gives all processes the same running statistics."""
    while isinstance(function, ast.Attribute | ast.Subscript):
        function = function.value
    return (
        isinstance(function, ast.Call)
        and isinstance(function.func, ast.Attribute)
        and function.func.attr == "unwrap_model"
        and is_accelerator(function.func.value)
    )


def _by_element(node: ast.expr, part: Path) -> bool:
    """Whether the number of elements is asked of what is computed one by one: it has as many as what it comes from."""
    joins = isinstance(node, ast.BoolOp | ast.JoinedStr) or (
        isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add)
    )
    return part[-1:] in (COUNT, ORIGIN) and (part[-1:] == ORIGIN or not joins)


def _told(test: ast.expr | None) -> Iterator[tuple[str, object]]:
    """The variables whose value a test that holds tells."""
    match test:
        case ast.BoolOp(op=ast.And(), values=parts):
            for part in parts:
                yield from _told(part)
        case ast.Compare(left=ast.Name(id=name), ops=[ast.Eq()], comparators=[ast.Constant(value=value)]):
            yield name, value


def _apart(one: object, other: object) -> bool:
    """Whether two steps lead to different parts."""
    return one != other and "element" not in (one, other)


def _leaves_only_by_error(decision: Decision) -> bool:
    """Whether the other branch ends with an error or an exit, which ends all processes."""
    statement = decision.statement
    return isinstance(statement, ast.If) and ends_the_run(statement.orelse if decision.branch else statement.body)


def ends_the_run(body: list[ast.stmt]) -> bool:
    """Whether statements end with an error or an exit."""
    last = body[-1] if body else None
    if isinstance(last, ast.Expr) and isinstance(last.value, ast.Call):
        called = last.value.func
        name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
        return name in ("exit", "_exit", "quit")
    return isinstance(last, ast.Raise)
