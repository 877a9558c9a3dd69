"""Original and result side by side, with what several conditions ask of them, each worked out once."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from accel_migrate.check.starting import scripts_that_run
from accel_migrate.flow.calls import Flows, Made, Site
from accel_migrate.flow.cfg import Graph, graph_of
from accel_migrate.flow.idle import Unit, Words, unit_of
from accel_migrate.flow.main_guard import under_main
from accel_migrate.flow.nodes import children, unparse, walk
from accel_migrate.flow.once import once
from accel_migrate.flow.program import Function, Program
from accel_migrate.flow.scopes import STATEMENTS, Module, Scope

NAME = "accelerator"
Step = ast.stmt
Found = Iterator[tuple[Module, ast.AST, str]]  # where a result breaks a condition, with what is said of it
T = TypeVar("T")


class Side:
    """One version of the project."""

    def __init__(self, modules: Iterable[Module]) -> None:
        self.program = Program(modules)
        self._bound: dict[Scope, dict[str, list[ast.stmt]]] = {}
        self._graphs: dict[Scope, Graph] = {}
        self._library: dict[tuple[str, ...], list[tuple[Module, ast.Call]]] = {}

    @property
    def files(self) -> list[Module]:
        return self.program.modules

    @once
    def once(self, make: Callable[[Side], T]) -> T:
        """What several conditions make of this version."""
        return make(self)

    def file(self, path: Path) -> Module | None:
        return next((file for file in self.files if file.path == path), None)

    def graph(self, scope: Scope) -> Graph:
        """Control flow of the function or module around a scope; classes in it run where they stand."""
        frame = scope.frame
        if frame not in self._graphs:
            self._graphs[frame] = graph_of(scope.module.tree, frame.node)  # type: ignore[arg-type]
        return self._graphs[frame]

    @cached_property
    def flows(self) -> Flows:
        followed = [(f, c, "prepared") for f, c in self.asked("prepare")]
        followed += [(f, c, "accelerator") for f, c in self.created]
        followed += [(f, c, "loader") for f, c in (*self.of_library("DataLoader"), *self.completed)]
        followed += [(f, c, "parallel") for f, c in self.of_library(".DataParallel")]
        followed += [(f, c, "distributed") for f, c in self.of_library(".DistributedDataParallel")]
        followed += [(f, c, "options") for f, c in self.calls if getattr(c.func, "attr", "") == "parse_args"]
        return Flows(self.program, followed)

    def of_library(self, *endings: str) -> list[tuple[Module, ast.Call]]:
        """The calls of imported things whose full names end so."""
        if endings not in self._library:
            self._library[endings] = [(file, call) for file, call, name in self._imported if name.endswith(endings)]
        return self._library[endings]

    @cached_property
    def completed(self) -> dict[tuple[Module, ast.Call], ast.Call]:
        """The calls of what `partial(DataLoader, ...)` is bound to, each with that."""
        partials = {
            variable: call
            for file, call in self.of_library("functools.partial")
            if call.args and (file.qualified(call.args[0]) or "").endswith("DataLoader")
            for target in getattr(file.parents[call], "targets", ())
            if (variable := file.variable(target)) is not None and len(file.bindings(variable)) == 1
        }
        return {(f, c): partials[v] for f, c in self.calls if (v := f.variable(c.func)) in partials}

    @cached_property
    def _imported(self) -> list[tuple[Module, ast.Call, str]]:
        named = ((file, call, file.qualified(call.func)) for file, call in self.calls)
        return [(file, call, dotted) for file, call, dotted in named if dotted is not None]

    @cached_property
    def calls(self) -> list[tuple[Module, ast.Call]]:
        return [(file, node) for file in self.files for node in file.walk(file.tree, ast.Call)]

    @cached_property
    def created(self) -> list[tuple[Module, ast.Call]]:
        """Where an Accelerator is made."""
        made = self.of_library(".Accelerator")
        return [(f, c) for f, c in made if (f.qualified(c.func) or "").startswith(("accel_runtime.", "accelerate."))]

    @cached_property
    def kept_on_cpu(self) -> list[tuple[Module, ast.Call]]:
        """`Accelerator(cpu=True)`."""
        return [(file, call) for file, call in self.created if _keeps_to_cpu(call)]

    @cached_property
    def scripts_with_gpu(self) -> set[Module]:
        """The scripts whose Accelerators may all choose a GPU."""
        return self.scripts - self.scripts_of(self.kept_on_cpu)

    def may_have_gpu(self, file: Module, node: ast.AST) -> bool:
        """Whether a node may run in a process whose Accelerator may choose a GPU."""
        if not self.kept_on_cpu or file in self.scripts_with_gpu:
            return True
        return file in self.imported_by(self.scripts_with_gpu) and not under_main(file, node)

    @cached_property
    def wraps_models(self) -> bool:
        """Whether models are in a wrapper on several processes, as those of Accelerate are."""
        return any((file.qualified(call.func) or "").startswith("accelerate.") for file, call in self.created)

    @cached_property
    def scripts(self) -> set[Module]:
        """The files that make an Accelerator when they are started, themselves or by what they import."""
        return self.scripts_of(self.created)

    def scripts_of(self, created: Iterable[tuple[Module, ast.Call]]) -> set[Module]:
        return {each for file, call in created for each in scripts_that_run(self, file, call)}

    @cached_property
    def involved(self) -> set[Module]:
        """Those scripts, with all that they import: the others run apart."""
        return self.imported_by(self.scripts)

    def runs(self, file: Module, node: ast.AST) -> bool:
        """Whether a node may run in a process that makes an Accelerator."""
        if file not in self.involved:
            return False
        unit = unit_of(node, file.ancestors(node))
        if unit is not None and unit not in self._asking and unit in self._idle:
            return False
        return file in self.scripts or not under_main(file, node)

    @cached_property
    def _idle(self) -> frozenset[Unit]:
        scripts = {each.tree for each in self.scripts}
        loaded = [file.tree for file in self.involved]
        return Words(loaded, [tree for tree in loaded if tree not in scripts]).idle(self._asking)

    @cached_property
    def _asking(self) -> set[Unit]:
        """The functions and classes that ask an Accelerator for something: they run."""
        asked = [*self.created, *[site for sites in self._asked.values() for site in sites]]
        return {unit for file, call in asked if (unit := unit_of(call, file.ancestors(call))) is not None}

    def imported_by(self, files: Iterable[Module]) -> set[Module]:
        """Some files, and all that they import."""
        found = set(files)
        waiting = list(found)
        while waiting:
            new = {*self.program.imports(waiting.pop())} - found
            found |= new
            waiting += new
        return found

    def asked(self, *methods: str) -> Iterator[tuple[Module, ast.Call]]:
        """Calls of the Accelerator's methods."""
        for method in methods:
            yield from self._asked.get(method, ())

    @cached_property
    def _asked(self) -> dict[str, list[tuple[Module, ast.Call]]]:
        found: dict[str, list[tuple[Module, ast.Call]]] = {}
        for file, call in self.calls:
            if isinstance(call.func, ast.Attribute) and is_accelerator(call.func.value):
                found.setdefault(call.func.attr, []).append((file, call))
        return found

    @cached_property
    def looped_over(self) -> set[Made]:
        """The prepared objects that loops go over, without those that are called: a model in a list, `for net in [net]`."""
        loops = [(f, n.iter) for f in self.files for n in f.walk(f.tree, ast.For, ast.AsyncFor)]
        return {
            made
            for file, node in loops
            for made in self.flows.made(file, node, "prepared")
            if self.may_follow(file, node, made.node)
        } - self.called

    @cached_property
    def called(self) -> set[Made]:
        """The prepared objects that are called, where nothing else can be meant: `model(x)`."""
        return {made for each in self.runs_prepared.values() if len(each) == 1 for made in each}

    @cached_property
    def runs_prepared(self) -> dict[ast.Call, set[Made]]:
        """The calls of what may be prepared: `model(x)`."""
        made = {call: self.flows.made(file, call.func, "prepared") for file, call in self.calls}
        return {call: found for call, found in made.items() if found}

    def is_prepared(self, file: Module, node: ast.expr, seen: frozenset[Function] = frozenset()) -> bool:
        """Whether an expression is a prepared loader in every call that brings it; progress bars are looked through."""
        flows = self.flows
        if not any(self.may_follow(file, node, made.node) for made in flows.made(file, node, "prepared")):
            return False
        if self.is_other(file, node, "prepared"):
            return False
        while isinstance(node, ast.Call) and node.args:
            inner = next((a for a in node.args if not self.is_other(file, a, "prepared")), None)
            if inner is None:
                return True
            node = inner
        function = file.scope(node).frame.node
        if not isinstance(node, ast.Name) or not isinstance(function, Function) or function in seen:
            return True
        if node.id not in parameter_names(function) or prepares(function, node.id):
            return True
        given = [(site.file, argument_of(function, site.call, node.id)) for site in self.above(function)]
        return all(a is None or self.is_prepared(f, a, seen | {function}) for f, a in given)

    def is_other(self, file: Module, node: ast.expr, kind: str, seen: set[ast.AST] | None = None) -> bool:
        """Whether all that an expression may hold here is of a batch, or was set to something that is not of a kind."""
        made = self.flows.made(file, node, kind)
        seen = seen if seen is not None else set()
        if node in seen or not made:
            return True
        seen.add(node)
        if not isinstance(node, ast.Name):
            if any(each.node is node for each in made):
                return False
            if node in self.flows.callees:
                return self._returns_other(node, kind, seen)
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "next":
                return not any(self.flows.is_container(file, argument) for argument in node.args)
            parts = [
                part.value if part is getattr(node, "func", None) and isinstance(part, ast.Attribute) else part
                for part in children(node)
            ]
            found = [p for p in parts if isinstance(p, ast.expr) and self.flows.made(file, p, kind)]
            return bool(found) and all(self.is_other(file, part, kind, seen) for part in found)
        scope = file.scope(node)
        drawn = [
            g.iter for at in file.ancestors(node) for g in getattr(at, "generators", ()) if _names(g.target, node.id)
        ]
        if drawn:
            return self._gives_other(file, drawn[0], kind, seen)
        if scope.frame is not scope or file.binder(node.id, scope) is not scope:
            return False
        puts = [_put(file, each) for each in self.flows.put_into(file, node)]
        if not all(put and all(self.is_other(file, value, kind, seen) for value in put) for put in puts):
            return False
        graph = self.graph(scope)
        at = step_of(file, node, graph)
        binders = self._binders(file, scope).get(node.id, [])
        if at is None or not all(graph.holds(each) for each in binders):
            return False  # another scope may set it
        coming = graph.arriving(at, [None, *binders], binders)
        if None in coming and not self._is_handed_other(scope, node.id, kind, seen):
            return False
        return all(self._holds_other(file, each, node.id, kind, seen) for each in binders if each in coming)

    def _returns_other(self, call: ast.Call, kind: str, seen: set[ast.AST]) -> bool:
        """Whether all that a call may give back is made of parts of batches."""
        found = [
            (self.flows.function_file[f], value) for f in self.flows.callees[call] for value in self.flows.returned(f)
        ]
        return bool(found) and all(self.is_other(file, value, kind, seen) for file, value in found)

    def _is_handed_other(self, scope: Scope, name: str, kind: str, seen: set[ast.AST]) -> bool:
        """Whether each call of a function hands it parts of batches under this name."""
        function = scope.node
        if not isinstance(function, Function) or name not in parameter_names(function):
            return False
        given = [(site.file, argument_of(function, site.call, name)) for site in self.above(function)]
        return bool(given) and all(a is not None and self.is_other(f, a, kind, seen) for f, a in given)

    def _holds_other(self, file: Module, binder: ast.stmt, name: str, kind: str, seen: set[ast.AST]) -> bool:
        match binder:
            case ast.Assign():
                return self.is_other(file, _set_to(binder, name), kind, seen)
            case ast.AugAssign():
                return all(self.is_other(file, part, kind, seen) for part in (binder.target, binder.value))
            case ast.With():
                entered = [i.context_expr for i in binder.items if i.optional_vars and _names(i.optional_vars, name)]
                return all(self.is_other(file, each, kind, seen) for each in entered)
            case ast.For():
                return self._gives_other(file, binder.iter, kind, seen)
        return False

    def _gives_other(self, file: Module, read: ast.expr, kind: str, seen: set[ast.AST]) -> bool:
        """Whether what a loop draws is no object of a kind: of a loader, its batches."""
        entry = read
        while isinstance(entry, ast.Call) and entry.args:
            entry = entry.args[0]
        if isinstance(entry, ast.Subscript) and unparse(entry) in self._prepared_entries:
            return True
        return not self.flows.is_container(file, read) or self.is_other(file, read, kind, seen)

    @cached_property
    def _prepared_entries(self) -> set[str]:
        statements = [file.parents[call] for file, call in self.asked("prepare")]
        targets = [target for each in statements if isinstance(each, ast.Assign) for target in each.targets]
        return {unparse(part) for target in targets for part in walk(target) if isinstance(part, ast.Subscript)}

    def _binders(self, file: Module, scope: Scope) -> dict[str, list[ast.stmt]]:
        """The statements that bind each name of a scope."""
        if scope not in self._bound:
            found = self._bound.setdefault(scope, {})
            for node in file.walk(scope.node, ast.Name):
                if not isinstance(node.ctx, ast.Load) and file.binder(node.id, file.scope(node)) is scope:
                    around = next(above for above in file.ancestors(node) if isinstance(above, ast.stmt))
                    found.setdefault(node.id, []).append(around)
        return self._bound[scope]

    def may_follow(self, file: Module, node: ast.AST, call: ast.AST) -> bool:
        """Whether a node may run after a call; in one function that is a matter of order."""
        if call not in file.parents or file.scope(call).frame is not file.scope(node).frame:
            return True
        graph = self.graph(file.scope(call))
        first, second = step_of(file, call, graph), step_of(file, node, graph)
        return first is None or second is None or graph.reachable(first, second)

    def after_prepare(self, file: Module, node: ast.AST) -> bool:
        """Whether a node can run once something is prepared, by its own function or by one that was called before."""
        waiting: list[tuple[Module, ast.AST]] = [(file, node)]
        seen: set[ast.AST] = set()
        while waiting:
            at, run = waiting.pop()
            scope = at.scope(run).frame
            if self._follows_prepare(at, run, scope):
                return True
            function = scope.node
            if function is at.tree and at in self._bringing:
                return True
            prepares = any(call in self._preparing.get(scope, ()) for _, call in self.asked("prepare"))
            if not isinstance(function, Function) or function in seen or prepares:
                continue  # what another call of it has prepared are other objects
            seen.add(function)
            sites = self.above(function)
            if not sites:
                return True
            waiting += [(site.file, site.call) for site in sites]
        return False

    def _follows_prepare(self, file: Module, node: ast.AST, scope: Scope) -> bool:
        graph = self.graph(scope)
        step = step_of(file, node, graph)
        for call in self._preparing.get(scope, ()):
            first = step_of(file, call, graph)
            if first is None or step is None:
                continue
            if graph.reachable(first, step) or (first is step and call is not node and call in walk(node)):
                return True
        return False

    @cached_property
    def _bringing(self) -> set[Module]:
        """The files that import one which prepares when it is imported."""
        preparing = {file for file in self.files if file.root in self._preparing}
        return {file for file in self.files if preparing & (self.imported_by([file]) - {file})} if preparing else set()

    @cached_property
    def _preparing(self) -> dict[Scope, list[ast.Call]]:
        """The calls in each function that prepare, or run a function that does."""
        found: dict[Scope, list[ast.Call]] = {}
        seen: set[ast.Call] = set()
        waiting = list(self.asked("prepare"))
        while waiting:
            file, call = waiting.pop()
            if call not in seen:
                seen.add(call)
                scope = file.scope(call).frame
                found.setdefault(scope, []).append(call)
                if isinstance(scope.node, Function):
                    waiting += [(site.file, site.call) for site in self.above(scope.node)]
        return found

    def preparing(self, scope: Scope) -> list[ast.Call]:
        """The calls in a function that prepare, or run a function that does."""
        return self._preparing.get(scope, [])

    def above(self, function: Function) -> list[Site]:
        """Where a function is called."""
        return self.flows.callers.get(function, [])


class Evidence:
    """The project before and after rewriting."""

    def __init__(self, before: Iterable[Module], after: Iterable[Module]) -> None:
        self._before = before
        self.after = Side(after)

    @cached_property
    def before(self) -> Side:
        return Side(self._before)

    def ran(self, file: Module, node: ast.AST) -> bool:
        """Whether a node of the original may run where what was rewritten does."""
        unit = unit_of(node, file.ancestors(node))
        return unit is None or (file.path, unit.name) in self._asking or unit not in self._idle

    @cached_property
    def _asking(self) -> set[tuple[Path, str]]:
        """The files and names of the functions and classes that ask an Accelerator in the result."""
        paths = {node: file.path for file in self.after.files for node in file.scopes}
        return {(paths[unit], unit.name) for unit in self.after._asking}

    @cached_property
    def _idle(self) -> frozenset[Unit]:
        started = {each.path for each in self.after.scripts}
        trees = {file.tree: file.path for file in self.before.files}
        words = Words(trees, [tree for tree, path in trees.items() if path not in started])
        paths = {node: file.path for file in self.before.files for node in file.scopes}
        return words.idle(unit for unit in words.units if (paths[unit], unit.name) in self._asking)


def is_accelerator(node: ast.AST) -> bool:
    """`accelerator`, `self.accelerator`: the name that rewritten scripts give it."""
    return (node.id if type(node) is ast.Name else node.attr if type(node) is ast.Attribute else "") == NAME


def step_of(file: Module, node: ast.AST, graph: Graph) -> ast.stmt | None:
    """The statement of a graph that a node runs in."""
    steps, at = graph.points.of, node
    while at not in steps or type(at) not in STATEMENTS:
        if at not in file.parents:
            return None
        at = file.parents[at]
    return at  # type: ignore[return-value]


def _names(target: ast.expr, name: str) -> bool:
    return any(isinstance(part, ast.Name) and part.id == name for part in walk(target))


def prepares(function: Function, name: str) -> bool:
    """Whether a function prepares its own parameter: what callers hand in is not what it goes through."""
    return name in _prepared_in(function)


@once
def _prepared_in(function: Function) -> frozenset[str]:
    """The names that a function sets to what it prepares."""
    return frozenset(
        part.id
        for node in walk(function)
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Attribute)
        and node.value.func.attr == "prepare"
        for target in node.targets
        for part in walk(target)
        if isinstance(part, ast.Name)
    )


def _put(file: Module, node: ast.AST) -> list[ast.expr]:
    """What `kept.append(x)` or `kept[i] = x` puts into its object; empty where that is not seen here."""
    if isinstance(node, ast.Call):
        return [*node.args, *[keyword.value for keyword in node.keywords]] if node in file.parents else []
    around = file.statement(node) if node in file.parents else None
    return [around.value] if isinstance(around, ast.Assign) else []


def _set_to(assigned: ast.Assign, name: str) -> ast.expr:
    """What an assignment sets a name to, by itself or as one of several: `total, bar = 0, tqdm(loader)`."""
    value = assigned.value
    for target in assigned.targets:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            named = [v for t, v in zip(target.elts, value.elts) if isinstance(t, ast.Name) and t.id == name]
            return named[0] if named else value
    return value


def _keeps_to_cpu(made: ast.Call) -> bool:
    told = {keyword.arg: keyword.value for keyword in made.keywords}
    return isinstance(told.get("cpu"), ast.Constant) and told["cpu"].value is True  # type: ignore[attr-defined]


def parameter_names(function: Function) -> list[str]:
    known = function.args
    return [a.arg for a in (*known.posonlyargs, *known.args, *known.kwonlyargs)]


def argument_of(function: Function, call: ast.Call, name: str) -> ast.expr | None:
    """What a call gives for a parameter; None where that cannot be told."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    names = parameter_names(function)
    if name not in names or any(isinstance(argument, ast.Starred) for argument in call.args):
        return None
    of_class = any(unparse(each) == "classmethod" for each in getattr(function, "decorator_list", ()))
    index = names.index(name) - (1 if names[:1] == ["self"] or of_class else 0)
    return call.args[index] if 0 <= index < len(call.args) else None
