"""What a data set makes of the samples that it has given, and gives more by: words that are numbered as they come, counts.

Silent where nothing that `__getitem__` gives is computed by what outlives the sample and is changed by what it holds
already. What is kept for a sample, and only found again by its index, is the same wherever it is made.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from accel_migrate.analysis.notes.drawn import loaders_sharded
from accel_migrate.analysis.notes.kept import Kept, changed_in, whole
from accel_migrate.analysis.trainings.training import Script, Training
from accel_migrate.analysis.values.numbers import data_of
from accel_migrate.analysis.values.sources import Code, behind, code_named
from accel_migrate.flow.closure import closure
from accel_migrate.flow.nodes import arguments_at, walk
from accel_migrate.flow.program import Definition, FunctionDefinition
from accel_migrate.flow.scopes import Function, Module, Variable

# Where something comes to stand depends on what is there.
_IN_ORDER = {"append", "appendleft", "extend", "insert", "add", "put"}


def find_grown(script: Script, training: Training) -> list[Kept]:
    """Each attribute once, at the first place where it grows."""
    found: dict[Variable, Kept] = {}
    for gives in _giving(script, training):
        for variable, kept in _Sample(script, gives).grown():
            found.setdefault(variable, kept)
    return list(found.values())


def _giving(script: Script, training: Training) -> Iterator[FunctionDefinition]:
    """What makes the samples and the batches of sharded loaders: `__getitem__` of data sets, and what collates."""
    for module, loader in loaders_sharded(script, training):
        named = arguments_at(loader, 6, "collate_fn")
        collating = [code for part in named for code in code_named(script.graph, module, part)]
        methods = [(code, "__getitem__") for code in data_of(script.graph, module, loader)]
        for (owner, node), name in methods + [(code, "__call__") for code in collating]:
            of_class = isinstance(node, ast.ClassDef) and script.project.method(Definition(owner, node), name)
            if isinstance(of_class, FunctionDefinition):
                yield of_class
        yield from (FunctionDefinition(owner, node) for owner, node in collating if isinstance(node, ast.FunctionDef))


class _Sample:
    """What runs for a sample, in `__getitem__` and all that it calls."""

    def __init__(self, script: Script, gives: FunctionDefinition) -> None:
        self.graph = script.graph
        self.gives = gives
        reached = {gives.node, *script.graph.reached_from(gives.node, gives.module)}
        owned = [(owner, function) for owner in script.project.modules for function in owner.functions]
        self.run = [(m, f) for m, f in owned if f in reached and getattr(f, "name", "") != "__init__"]
        calls = [(owner, call) for owner, function in self.run for call in owner.walk(function, ast.Call)]
        self.made = {made.node for each in calls if (made := script.roles.made(*each)) is not None}

    def grown(self) -> Iterator[tuple[Variable, Kept]]:
        writes = list(self._writes())
        values = [(self.gives.module, value) for value in self.gives.returned] if writes else []
        parts = (part for module, value in values for part in behind(self.graph, module, value))
        given = {whole(v) for owner, part in parts if (v := owner.variable(part)) is not None}
        for module, node, variable in writes:
            owner = variable.scope.node
            if variable in given:
                kept_by = owner if isinstance(owner, ast.ClassDef) else None
                yield variable, Kept(module, module.statement(node), variable.name, kept_by, False)

    def _writes(self) -> Iterator[tuple[Module, ast.AST, Variable]]:
        for module, function in self.run:
            for node in module.walk(function, ast.Assign, ast.AugAssign, ast.Call):
                root, given = changed_in(module, node)
                variable = module.variable(root) if root is not None else None
                own = {reached for _, reached in self.run} | self.made
                if variable is None or variable.scope.node in own:
                    continue
                variable = whole(variable)
                if _goes_on(module, node, variable, given, function) and not self._is_begun(variable):
                    yield module, node, variable

    def _is_begun(self, variable: Variable) -> bool:
        """Whether each sample sets it up anew, whatever it holds: on no condition, by something else than itself."""
        first: list[Code] = [(self.gives.module, self.gives.node)]
        always = [statement for code in closure(first, self._called) for statement in _body(code)]
        return any(
            b.kind == "assign" and b.statement in always and not _reads(variable.scope.module, [b.value], variable)
            for b in variable.scope.module.bindings(variable)
        )

    def _called(self, code: Code) -> Iterator[Code]:
        """The functions that a function calls on no condition."""
        simple = [each for each in _body(code) if isinstance(each, ast.Assign | ast.AugAssign | ast.Expr | ast.Return)]
        for call in (call for statement in simple for call in code[0].walk(statement, ast.Call)):
            target = self.graph.roles.function(code[0], call)
            if target is not None:
                yield target.module, target.node


def _body(code: Code) -> list[ast.stmt]:
    return getattr(code[1], "body", [])


def _goes_on(module: Module, node: ast.AST, variable: Variable, given: list[ast.expr], function: Function) -> bool:
    """Whether what is put in, or where, depends on what samples before have put in."""
    reads = _reads(module, given, variable)
    if isinstance(node, ast.Call):
        assert isinstance(node.func, ast.Attribute)
        counts = node.func.attr == "update" and _is_counter(variable)
        return bool(reads) or counts or node.func.attr in _IN_ORDER or node.func.attr.endswith("_")
    target = node.target if isinstance(node, ast.AugAssign) else node.targets[0]  # type: ignore[attr-defined]
    keys = _keys(target)
    own = {p.arg for p in walk(function) if isinstance(p, ast.arg)}
    is_own = any(isinstance(key, ast.Name) and key.id in own for key in keys)  # the entry of the sample itself
    if isinstance(node, ast.AugAssign):
        return not is_own or bool(reads)
    if keys:
        return any(not (is_own and _is_entry(module, read)) for read in reads)
    local = [n for each in given for n in walk(each) if isinstance(n, ast.BinOp | ast.Name)]
    return any(isinstance(n, ast.BinOp) or (n.id in own and n.id != module.scope(n).self_name) for n in local)


def _is_counter(variable: Variable) -> bool:
    made = [b.value for b in variable.scope.module.bindings(variable) if isinstance(b.value, ast.Call)]
    return any(variable.scope.module.full_name(value.func) == "collections.Counter" for value in made)


def _reads(module: Module, values: Iterable[ast.expr | None], variable: Variable) -> list[ast.AST]:
    """Where values read what is kept itself, also its length."""
    parts = [part for value in values if value is not None for part in module.walk(value, ast.Attribute, ast.Name)]
    return [part for part in parts if module.variable(part) == variable]


def _is_entry(module: Module, read: ast.AST) -> bool:
    return isinstance(above := module.parents[read], ast.Subscript) and above.value is read


def _keys(target: ast.expr) -> list[ast.expr]:
    """`i` and `0` of `self.rows[i][0]`."""
    keys = []
    while isinstance(target, ast.Subscript | ast.Attribute):
        keys += [target.slice] if isinstance(target, ast.Subscript) else []
        target = target.value
    return keys
