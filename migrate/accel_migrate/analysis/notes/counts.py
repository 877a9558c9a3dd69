"""What a divisor counts: the samples or batches of all processes, or those that this process has seen."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING

from accel_migrate.analysis.evaluation.results import is_length
from accel_migrate.analysis.processes.local import Locality
from accel_migrate.analysis.values.constructions import built_calls, constructions, is_torchs_sampler
from accel_migrate.analysis.values.loops import CallGraph
from accel_migrate.analysis.values.numbers import Numbers, numbers_of_data
from accel_migrate.analysis.values.provenance import chain
from accel_migrate.analysis.values.roles import Role, Roles
from accel_migrate.flow.nodes import all_arguments, calls_method, parts_of_value
from accel_migrate.flow.reaching import reaching
from accel_migrate.flow.scopes import Module, Variable

if TYPE_CHECKING:
    from accel_migrate.analysis.trainings.training import Script, Training

_OF_LOADER = {"dataset", "sampler", "batch_sampler"}
_PASSES = {"float", "int", "max", "round"}


class Counted(Enum):
    ALL = "all"  # of all processes together
    SHARE = "share"  # of this process, or a number that has nothing to do with processes
    UNKNOWN = "unknown"


@dataclass(eq=False)
class Counts:
    """Judges divisors; `shared` are the loaders that are sharded."""

    roles: Roles
    graph: CallGraph
    local: Locality
    shared: frozenset[Variable]
    keys: frozenset[str]  # of loaders that are kept in a dictionary
    is_prepared: Callable[[Module, ast.AST], bool]

    def counted(self, module: Module, node: ast.expr, depth: int = 0) -> Counted:
        if depth > 8:
            return Counted.UNKNOWN
        if isinstance(node, ast.Constant):
            return Counted.UNKNOWN if node.value in self.numbers.values else Counted.SHARE
        if isinstance(node, ast.BinOp | ast.UnaryOp):
            return self._either(self.counted(module, part, depth + 1) for part in parts_of_value(node))
        if is_length(node):
            return self._length(module, node.args[0])  # type: ignore[attr-defined]
        if isinstance(node, ast.Call):
            name = node.func.id if isinstance(node.func, ast.Name) else ""
            computes = module.full_name(node.func).partition(".")[0] in ("math", "numpy")  # `np.log(2)`
            if (name in _PASSES or computes) and node.args:
                return self._either(self.counted(module, part, depth + 1) for part in node.args)
            if name == "min" and all(self.counted(module, part, depth + 1) is Counted.SHARE for part in node.args):
                return Counted.SHARE  # of several kinds it is not known which one it is
            sized = calls_method(node, "size", "numel", "sum", "item")
            return Counted.SHARE if sized or self.local.is_local(module, node) else Counted.UNKNOWN
        if isinstance(node, ast.Subscript):
            return self._entry(module, node)
        return self._variable(module, node, depth)

    @cached_property
    def numbers(self) -> Numbers:
        return numbers_of_data(self.graph, self.shared)

    def _either(self, found: object) -> Counted:
        kinds = set(found)  # type: ignore[call-overload]
        if Counted.ALL in kinds:
            return Counted.ALL
        return Counted.UNKNOWN if Counted.UNKNOWN in kinds else Counted.SHARE

    def _length(self, module: Module, held: ast.expr) -> Counted:
        if isinstance(held, ast.Attribute) and held.attr in _OF_LOADER and self.is_shared(module, held.value):
            if held.attr == "dataset" or self._draws_from_all(module, held.value):
                return Counted.ALL
            return Counted.UNKNOWN
        if self.is_shared(module, held):
            return Counted.SHARE if self.is_prepared(module, held) else Counted.ALL
        if self.local.is_local(module, held) or self.roles.role(module, held) & (Role.BATCH | Role.OUTPUT):
            return Counted.SHARE
        variable = module.variable(held)
        if variable is not None and self._is_loaded(variable):
            return Counted.ALL
        return Counted.SHARE if self.local.given_to(module, held) else Counted.UNKNOWN

    def is_shared(self, module: Module, node: ast.expr) -> bool:
        if isinstance(node, ast.Subscript):
            return ast.dump(node.slice) in {ast.dump(ast.parse(key, mode="eval").body) for key in self.keys}
        return module.variable(node) in self.shared

    def _draws_from_all(self, module: Module, loader: ast.expr) -> bool:
        """Whether a loader's sampler is torch's, or one that is taken away; another may know this process's part only."""
        return all(
            self._is_torchs(owner, keyword.value)
            for owner, call in built_calls(self.graph, module.variable(loader), Role.LOADER)
            for keyword in call.keywords
            if keyword.arg in ("sampler", "batch_sampler")
        )

    def _is_torchs(self, module: Module, sampler: ast.expr) -> bool:
        if self.roles.role(module, sampler) & Role.SAMPLER:
            return True  # a DistributedSampler, which goes
        values = module.held(sampler)
        return bool(values) and all(
            isinstance(v, ast.Constant) or (isinstance(v, ast.Call) and is_torchs_sampler(module, v)) for v in values
        )

    def _is_loaded(self, data: Variable) -> bool:
        """Whether a shared loader was built over this data, or by these samples."""
        own = set(chain(self.graph, data))
        for loader in self.shared:
            for module, call in constructions(self.roles, loader, Role.LOADER):
                for part in all_arguments(call):
                    for node in module.walk(part):
                        variable = module.variable(node)
                        if not own.isdisjoint(chain(self.graph, variable)):
                            return True
        return False

    def _entry(self, module: Module, node: ast.Subscript) -> Counted:
        """`sizes["train"]`, `x.shape[0]`."""
        sized = node.value.func if isinstance(node.value, ast.Call) else node.value  # `x.shape[0]`, `x.size()[0]`
        if isinstance(sized, ast.Attribute) and sized.attr in ("shape", "size"):
            return Counted.SHARE
        kept = [b.value for b in module.bindings_of(node.value) if isinstance(b.value, ast.Dict | ast.DictComp)]
        if any(is_length(part) for value in kept for part in parts_of_value(value)):
            return Counted.ALL
        return Counted.SHARE if self._is_counted_up(module, node) else Counted.UNKNOWN

    def _is_counted_up(self, module: Module, node: ast.Subscript) -> bool:
        """`seen["train"] += x.size(0)`, in the function that divides by it."""
        mapping = module.variable(node.value)
        added = [each.target for each in module.walk(module.scope(node).frame.node, ast.AugAssign)]
        entries = [each for each in added if isinstance(each, ast.Subscript)]
        return mapping is not None and any(
            module.variable(each.value) == mapping and ast.dump(each.slice) == ast.dump(node.slice) for each in entries
        )

    def _variable(self, module: Module, node: ast.expr, depth: int) -> Counted:
        variable = module.variable(node)
        if variable is None:
            return Counted.SHARE if isinstance(node, ast.Attribute) else Counted.UNKNOWN
        if not self.numbers.variables.isdisjoint(chain(self.graph, variable)):
            return Counted.UNKNOWN
        bindings = reaching(module, node)
        if not bindings:
            return Counted.SHARE  # `args.print_freq`: a number that the user gives
        if any(b.kind == "augment" for b in bindings):
            return Counted.SHARE  # counted up in the loop
        found = []
        for binding in bindings:
            if binding.kind == "for":
                found.append(Counted.SHARE)
            elif binding.kind == "parameter":
                found += self._handed(variable, depth)
            elif binding.whole is not None:
                found.append(self.counted(variable.scope.module, binding.whole, depth + 1))
            else:
                found.append(Counted.UNKNOWN)
        return self._either(found)

    def _handed(self, variable: Variable, depth: int) -> list[Counted]:
        return [
            self.counted(caller, given, depth + 1) if given is not None else Counted.SHARE
            for caller, _, given in self.graph.given(variable)
        ] or [Counted.UNKNOWN]


def counts_in(script: Script, training: Training) -> Counts:
    """For the loaders that a training shares out."""
    roles = script.roles
    loaders = frozenset(v for v in training.aliases if roles.of(v) & (Role.LOADER | Role.LOADERS))
    keys = frozenset(built.key for built in training.prepared if built.key is not None)
    return Counts(roles, script.graph, training.local, loaders, keys, training.timing.after_prepare)
