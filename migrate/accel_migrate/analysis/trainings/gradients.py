"""Gradients that the script reads or changes by itself, between a backward pass and the step.

Under fp16 they are larger than they are until they are unscaled: clipping, noise and penalties by hand need them at their
true size. Where gradients are sharded, each process holds a part of them only.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from accel_migrate.analysis.values.loops import Backward, CallGraph
from accel_migrate.analysis.values.roles import Role
from accel_migrate.flow.nodes import calls_method, unparse
from accel_migrate.flow.scopes import Function, Module


@dataclass(frozen=True, eq=False)
class GradientsRead:
    """`statement` works on gradients before `optimizer` steps; None: none is known to be due."""

    module: Module
    statement: ast.stmt
    optimizer: ast.expr | None
    read: tuple[Module, ast.AST]
    of_parameters: bool  # and not of an input, say
    in_step: bool  # of an optimizer, before which they are unscaled


class Gradients:
    """Looks for work on gradients by hand; `clips` says of a call that it clips and stays as it is."""

    def __init__(self, graph: CallGraph, clips: Callable[[Module, ast.Call], bool]) -> None:
        self.roles = graph.roles
        self.graph = graph
        self.clips = clips

    def read_after(self, backward: Backward) -> GradientsRead | None:
        """The first statement after a backward pass that works on gradients, itself or in what it calls."""
        module = backward.module
        for statement in _after(module, module.statement(backward.call)):
            read = self._reads(module, statement)
            if read is None and self._steps(module, statement) is not None:
                return None  # what reads them below sees them as the step left them
            if read is not None:
                inward = list(self._inward(module, statement))
                own = self._is_of_parameters(*read)
                reading = read[0].scope(read[1]).function
                in_step = reading is not None and self._runs_in_step(reading)
                known = [self._due(module, each) for each in reversed(inward)] if own and not in_step else []
                due = next((stepped for stepped in known if stepped), [])
                return GradientsRead(module, inward[-1], due[0] if len(due) == 1 else None, read, own, in_step)
        return None

    def _reads(self, module: Module, statement: ast.AST) -> tuple[Module, ast.AST] | None:
        for node in module.walk(statement):
            if self._works_on_gradients(module, node):
                return module, node
        reached = self.graph.reached_from(statement, module)
        for function in sorted(reached, key=self._runs_in_step):
            owner = self.roles.project.module_of(function)
            for node in owner.walk(function):
                if self._works_on_gradients(owner, node):
                    return owner, node
        return None

    def _runs_in_step(self, function: Function, inside: frozenset[Function] = frozenset()) -> bool:
        """Whether a function runs nowhere but in `optimizer.step()`; a closure would run a backward pass in there."""
        sites = self.graph.all_sites.get(function, [])
        others = [(m, c) for m, c in sites if c.args or c.keywords or self._stepped(m, c) is None]
        callers = [module.scope(call).function for module, call in others]
        return bool(sites) and all(
            caller is not None and caller not in inside and self._runs_in_step(caller, inside | {function})
            for caller in callers
        )

    def _works_on_gradients(self, module: Module, node: ast.AST) -> bool:
        """`p.grad` that is read, unless only to ask whether there is one; or clipping that is left as it is."""
        if isinstance(node, ast.Call):
            return self.clips(module, node)
        if not isinstance(node, ast.Attribute) or node.attr != "grad":
            return False
        parent = module.parents[node]
        if not isinstance(node.ctx, ast.Load) and not isinstance(parent, ast.AugAssign):
            return False
        asked = isinstance(parent, ast.Compare) and any(isinstance(op, ast.Is | ast.IsNot) for op in parent.ops)
        emptied = isinstance(parent, ast.Attribute) and parent.attr in ("zero_", "zero")
        return not asked and not emptied and module.qualified(node) is None

    def _is_of_parameters(self, module: Module, read: ast.AST) -> bool:
        """Whether gradients are those of weights, taken one by one or by name; an input's are not the optimizer's."""
        if not isinstance(read, ast.Attribute):
            return True
        if isinstance(read.value, ast.Name):
            variable = module.variable(read.value)
            kinds = {b.kind for b in module.bindings(variable)} if variable is not None else set()
            return kinds <= {"for", "comprehension"} and not self.roles.of(variable) & Role.BATCH
        owner: ast.expr = read.value
        while isinstance(owner, ast.Attribute):
            owner = owner.value
            if self.roles.role(module, owner) & Role.MODEL:
                return True
        return False

    def _inward(self, module: Module, statement: ast.stmt) -> Iterator[ast.stmt]:
        """Of `if step % 4 == 0: clip(...)`, the condition and the statement inside, which alone reads gradients."""
        yield statement
        outside = [statement.test, *statement.orelse] if isinstance(statement, ast.If) else []
        if isinstance(statement, ast.If | ast.With) and not any(self._reads(module, each) for each in outside):
            inner = next((each for each in statement.body if self._reads(module, each) is not None), None)
            if inner is not None:
                yield from self._inward(module, inner)

    def _due(self, module: Module, statement: ast.stmt) -> list[ast.expr]:
        """The optimizers that step further down in the same block, before another backward pass."""
        block = module.block(statement)
        found = []
        for each in block[block.index(statement) + 1 :]:
            if any(unparse(call.func).endswith(".backward") for call in module.walk(each, ast.Call)):
                break
            found += [optimizer] if (optimizer := self._steps(module, each)) is not None else []
        return found

    def _steps(self, module: Module, statement: ast.stmt) -> ast.expr | None:
        stepped = (self._stepped(module, node) for node in module.walk(statement, ast.Call))
        return next((optimizer for optimizer in stepped if optimizer is not None), None)

    def _stepped(self, module: Module, call: ast.Call) -> ast.expr | None:
        """The optimizer of `optimizer.step()` and of `scaler.step(optimizer)`."""
        if not calls_method(call, "step"):
            return None
        owners = (call.func.value, *call.args)
        return next((owner for owner in owners if self.roles.role(module, owner) & Role.OPTIMIZER), None)


def _after(module: Module, statement: ast.stmt) -> Iterator[ast.stmt]:
    """What may run after a statement in the same round of its loop."""
    current = statement
    while True:
        block = module.block(current)
        index = next(i for i, item in enumerate(block) if item is current)
        yield from block[index + 1 :]
        parent = module.parents[current]
        if not isinstance(parent, ast.If | ast.With | ast.Try):
            return
        current = parent
