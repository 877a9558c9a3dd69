"""AM971: a function whose parameters change is called by the new ones, by whatever way a call gets to it."""

from __future__ import annotations

import ast
import itertools
from collections import Counter
from collections.abc import Iterator

from accel_migrate.check.condition import Condition, Project, Violation
from accel_migrate.check.evidence import NAME, Evidence, Side, is_accelerator
from accel_migrate.flow.nodes import unparse
from accel_migrate.flow.scopes import Module

Defined = ast.FunctionDef | ast.AsyncFunctionDef


def find(project: Project) -> Iterator[Violation]:
    for file, call, function in _found(project.evidence):
        told = f"`{unparse(call)[:60]}` would not hand over what {function.name}() takes"
        yield Violation("AM971", file.path, call.lineno, told)


def _found(evidence: Evidence) -> Iterator[tuple[Module, ast.Call, Defined]]:
    """Calls that fit a function as it was, and not as it is: those known to run it, and those that may by its name."""
    side = evidence.after
    for function, old in _changed(evidence):
        sites = {site.call: site.file for site in side.above(function)}
        sites |= {call: file for file, call in side.calls if call not in sites and _may_run(side, file, call, function)}
        for call, file in sites.items():
            skipped = _skipped(side, file, call, function)
            fits = _fits(function, call, skipped) and not _hands_another(old, function, call, skipped)
            if _fits(old, call, skipped) and not fits:
                yield file, call, function


def _changed(evidence: Evidence) -> list[tuple[Defined, Defined]]:
    """The functions with other parameters than in the original, each with what it was."""
    before = {(f.path, which): node for f in evidence.before.files for which, node in _functions(f)}
    after = [(before.get((f.path, which)), node) for f in evidence.after.files for which, node in _functions(f)]
    return [(node, old) for old, node in after if old is not None and unparse(old.args) != unparse(node.args)]


def _functions(file: Module) -> Iterator[tuple[tuple[str, int], Defined]]:
    """The functions of a file by their name, and by how many of that name stand above."""
    named: Counter[str] = Counter()
    for node in file.walk(file.tree, ast.FunctionDef, ast.AsyncFunctionDef):
        if isinstance(node, Defined):
            path = file.scopes[node].path
            yield (path, named[path]), node
            named[path] += 1


def _may_run(side: Side, file: Module, call: ast.Call, function: Defined) -> bool:
    """Whether a call of nobody knows what is one by a method's name, with something for it: `keepers[0].save(loss, model)`."""
    asked = call.func
    if not isinstance(asked, ast.Attribute) or asked.attr != function.name or side.flows.callees.get(call):
        return False
    known = is_accelerator(asked.value) or file.qualified(asked) or side.flows.made(file, asked.value)
    return not known and bool(call.args or call.keywords)


def _skipped(side: Side, file: Module, call: ast.Call, function: Defined) -> int:
    """How many of a function's parameters a call does not write out: that of the object before a method."""
    of_class = isinstance(side.flows.function_file[function].parents[function], ast.ClassDef)
    static = any(unparse(decorator) == "staticmethod" for decorator in function.decorator_list)
    asked = call.func.value if isinstance(call.func, ast.Attribute) else None
    by_class = asked is not None and any(made.kind == "class" for made in side.flows.made(file, asked))
    named = any(unparse(decorator) == "classmethod" for decorator in function.decorator_list)
    return int(of_class and not static and (named or not by_class))


def _hands_another(old: Defined, function: Defined, call: ast.Call, skipped: int) -> bool:
    """`save(net, optimizer)` of a function that was `save(net, optimizer=None)`, and has the Accelerator second from now on."""
    known = {each.arg for each in (*old.args.posonlyargs, *old.args.args)}
    places = [each.arg for each in (*function.args.posonlyargs, *function.args.args)][skipped:]
    given = itertools.takewhile(lambda each: not isinstance(each, ast.Starred), call.args)
    new = [argument for name, argument in zip(places, given) if name == NAME and name not in known]
    return any(not is_accelerator(argument) for argument in new)


def _fits(function: Defined, call: ast.Call, skipped: int) -> bool:
    """Whether a function takes a call, as far as that can be told."""
    known = function.args
    if any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords):
        return True
    positional = [each.arg for each in (*known.posonlyargs, *known.args)]
    required = set(positional[skipped : len(positional) - len(known.defaults)])
    required |= {each.arg for each, default in zip(known.kwonlyargs, known.kw_defaults) if default is None}
    places = positional[skipped:]
    named = {keyword.arg for keyword in call.keywords}
    if len(call.args) > len(places) and known.vararg is None:
        return False
    if known.kwarg is None and not named <= {*places, *[each.arg for each in known.kwonlyargs]}:
        return False
    return required <= {*places[: len(call.args)], *named}


CONDITION = Condition(
    code="AM971",
    name="calls_fit",
    summary="a function would be called without what it takes now",
    why="A function that needs the Accelerator gets a parameter for it. Whoever calls the function must hand it over, also a "
    "call that gets there by an attribute of an attribute, or by an object out of a list.",
    example_before="def save(self, model, accelerator): ...\n\nself.logger.stopper.save(model)",
    example_after="def save(self, model, accelerator): ...\n\nself.logger.stopper.save(model, self.accelerator)",
    find=find,
)
