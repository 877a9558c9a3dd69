"""AM950: every name is bound where it is read, on every path on which it was bound before."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.check.condition import Condition, Project, Violation
from accel_migrate.check.correlated import is_bound_under_its_condition
from accel_migrate.check.deferred import deferred_reads, lost_on_import
from accel_migrate.check.evidence import is_accelerator
from accel_migrate.check.known_to_one import known_to_one
from accel_migrate.check.pair import Pair
from accel_migrate.flow.cfg import graph_of
from accel_migrate.flow.definitions import BUILTINS, Read
from accel_migrate.flow.nodes import walk
from accel_migrate.flow.scopes import Scope
from accel_migrate.flow.sequence import comes_first
from accel_migrate.flow.version import Version

CODE = "AM950"
_COMPILED = ("torch.jit.script", "torch.jit.script_method", "torch.jit.export")


def find(project: Project) -> Iterator[Violation]:
    for file in project.changed:
        yield from _undefined(file)
        yield from _unbound(file)
        yield from _called_too_early(file)
        yield from _made_again(file)
        yield from _set_too_late(file)
    yield from _gone_from_a_file(project)
    for owner, node, message in known_to_one(project.evidence.after):
        yield Violation(CODE, owner.path, node.lineno, message)
    yield from _compiled(project)
    for file, name, function in lost_on_import(project):
        message = f"{function}() reads `{name}`, which is bound only when {file.path.name} is run as a script"
        yield Violation(CODE, file.path, 1, message)


def _violation(file: Pair, read: Read, message: str) -> Violation:
    return Violation(CODE, file.path, read.node.lineno, f"{message} in `{file.after.code(read.node)}`")


def _undefined(file: Pair) -> Iterator[Violation]:
    """Names that nothing binds any more."""
    names, before = file.after.names, file.before.names
    found = [r for r in names.reads if r.name not in BUILTINS and names.resolve(r.name, r.scope) is None]
    if not found:
        return
    if names.binds_unknown:  # a star import brings what the original reads, and nothing that was not read before
        known = {read.name for read in (*before.reads, *before.mentions)}
    else:
        known = {read.name for read in before.reads if before.is_undefined(read)}
    yield from (_violation(file, r, f"nothing binds `{r.name}`, which is read") for r in found if r.name not in known)


def _unbound(file: Pair) -> Iterator[Violation]:
    """Names that a path leads to before they are bound, which no path did in the original."""
    for scope in file.after.names.scopes:
        if scope.frame is not scope or isinstance(scope.node, ast.Lambda) or not file.is_new(scope):
            continue
        found = list(file.after.assignment(scope).unbound())
        if not found:
            continue
        known = _unbound_names(file.before, scope.path)
        new = [read for read in found if read.name not in known]
        called = {each.name for each in deferred_reads(file.before) if each.scope == scope.path} if new else set()
        for read in new:
            variable = file.after.names.resolve(read.name, read.scope)
            if variable is None:
                continue
            if read.name in called and _is_bound_above(scope, read):
                continue  # a function that the original calls below reads it, on the same paths
            if not is_bound_under_its_condition(file.after, read, variable):
                yield _violation(file, read, f"`{read.name}` may not be bound yet")


def _is_bound_above(scope: Scope, read: Read) -> bool:
    """Whether all that binds a name in its scope stands above the statement that reads it, or is that statement."""
    if not isinstance(read.statement, ast.stmt):
        return False
    module = scope.module
    others = [node for node in scope.bound(read.name) if not module.holds(read.statement, node)]
    return bool(others) and all(comes_first(module, node, read.statement) for node in others)


def _unbound_names(program: Version, path: str) -> set[str]:
    """Names that a path of the original leads to before they are bound, other than under the condition that binds them."""
    scopes = [scope for scope in program.names.scopes if scope.path == path and scope.frame is scope]
    reads = [read for scope in scopes for read in program.assignment(scope).unbound()]
    known = [(read, program.names.resolve(read.name, read.scope)) for read in reads]
    return {
        r.name for r, variable in known if variable is None or not is_bound_under_its_condition(program, r, variable)
    }


def _called_too_early(file: Pair) -> Iterator[Violation]:
    """Functions that are called before what they read is bound."""
    found = list(deferred_reads(file.after))
    if not found:
        return
    known = {each.key for each in deferred_reads(file.before)}
    for each in found:
        if each.key not in known:
            message = f"{each.function}() reads `{each.name}` and may be called before it is bound,"
            yield Violation(CODE, file.path, each.line, f"{message} in `{file.after.code(each.call)}`")


def _made_again(file: Pair) -> Iterator[Violation]:
    """An Accelerator that a loop makes anew: the training would join its processes once more in every round."""
    if b"Accelerator" in file.before.source.data:
        return
    names = file.after.names
    for call in names.calls:
        if isinstance(call.node.func, ast.Name) and call.node.func.id == "Accelerator":
            if graph_of(file.after.tree, call.scope.frame.node).in_loop(call.statement):  # type: ignore[arg-type]
                yield Violation(
                    CODE, file.path, call.node.lineno, "the Accelerator would be made in a loop, once per round"
                )


def _set_too_late(file: Pair) -> Iterator[Violation]:
    """An Accelerator that a method keeps in the object, and that `__init__` reads before any method has run."""
    if b"Accelerator" in file.before.source.data:
        return
    for owner in file.after.module.walk(file.after.tree, ast.ClassDef):
        methods = {node.name: node for node in owner.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        kept = {name for method in methods.values() for name in _kept_accelerators(method)}
        waiting = [methods["__init__"]] if kept and "__init__" in methods else []
        for method in waiting:
            if _kept_accelerators(method):
                break  # what it calls below has it; what it reads above is asked of each name
            own = [node for node in walk(method) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)]
            for node in own:
                if isinstance(node.value, ast.Name) and node.value.id == "self" and node.attr in kept:
                    message = f"{owner.name} reads `self.{node.attr}` before a method has made it,"
                    yield Violation(CODE, file.path, node.lineno, f"{message} in `{file.after.code(node)}`")
                    return
            called = [methods[node.attr] for node in own if node.attr in methods]
            waiting += [each for each in called if each not in waiting]


def _kept_accelerators(method: ast.AST) -> set[str]:
    """Attributes of `self` that a method sets to a new Accelerator."""
    return {
        target.attr
        for node in walk(method)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
        if isinstance(node.value.func, ast.Name) and node.value.func.id == "Accelerator"
        for target in node.targets
        if isinstance(target, ast.Attribute)
    }


def _gone_from_a_file(project: Project) -> Iterator[Violation]:
    """Names that another file imports, and that are no longer bound where they came from."""
    lost = {file.path.stem: (file, _lost(file)) for file in project.changed}
    lost = {stem: (file, names) for stem, (file, names) in lost.items() if names}
    if not lost:
        return
    for file in project.files:
        for node in file.after.module.walk(file.after.tree, ast.ImportFrom, ast.Attribute):
            if isinstance(node, ast.ImportFrom) and (origin := lost.get((node.module or "").split(".")[-1])):
                for alias in node.names:
                    names = _by_star(project, file.after) & origin[1] if alias.name == "*" else {alias.name}
                    if names & origin[1]:
                        name = min(names & origin[1])
                        message = f"`{name}` is imported from {origin[0].path.name}, which no longer binds it"
                        yield Violation(CODE, file.path, node.lineno, message)
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                origin = lost.get(node.value.id)
                if origin and node.attr in origin[1] and _is_module(file.after, node.value.id):
                    message = f"`{node.value.id}.{node.attr}` is read, and {origin[0].path.name} no longer binds it"
                    yield Violation(CODE, file.path, node.lineno, message)


def _by_star(project: Project, program: Version) -> set[str]:
    """The names that a file reads and that only its star imports may bind, but for those that a file of the project does."""
    names = program.names
    roots = {file.path.stem: file.after.names.root.bindings for file in project.files}
    brought = {name for module in program.module.stars for name in roots.get(module.split(".")[-1], ())}
    return {read.name for read in names.reads if names.resolve(read.name, read.scope) is None} - brought


def _compiled(project: Project) -> Iterator[Violation]:
    """The Accelerator in what TorchScript compiles, where no object of Python is bound."""
    calls = [(file.after.module, call) for file in project.files for call in file.after.module.calls]
    layers = any(module.qualified(call.func) == "torch.jit.script" for module, call in calls)
    for file in project.changed:
        module = file.after.module
        for function, scope in module.functions.items():
            marked = any(module.qualified(each) in _COMPILED for each in getattr(function, "decorator_list", ()))
            forward = layers and scope.owner_class is not None and getattr(function, "name", "") == "forward"
            if (marked or forward) and file.is_new(scope):
                for node in (each for each in walk(function) if is_accelerator(each)):
                    message = "TorchScript, which compiles this, cannot read the Accelerator,"
                    yield Violation(CODE, file.path, node.lineno, f"{message} in `{file.after.code(node)}`")  # type: ignore[attr-defined]


def _lost(file: Pair) -> set[str]:
    before, after = file.before.names, file.after.names
    return set() if after.binds_unknown else set(before.root.bindings) - set(after.root.bindings)


def _is_module(program: Version, name: str) -> bool:
    return any(isinstance(node, ast.alias) for node in program.names.root.bound(name))


CONDITION = Condition(
    code=CODE,
    name="names_bound",
    summary="a rewritten script would read a name that is not bound",
    why="Every name must be bound on every path on which the original had it bound: in the scope that reads it, in "
    "functions that are called before the name exists, and in files that import it. The Accelerator is bound above "
    "every use, and never made in a loop.",
    example_before="if rank == 0:\n    accelerator.print(args)\naccelerator = Accelerator()",
    example_after="accelerator = Accelerator()\naccelerator.print(args)",
    find=find,
)
