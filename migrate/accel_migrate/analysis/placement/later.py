"""Trainings further down in one block: each prepares what was built for it since the one before.

`model = Net()`, `train(model)`, `wider = Net(64)`, `train(wider)`: the second model is prepared where the second training
begins. What is there from before, such as the loader of both, has been prepared already.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Set
from dataclasses import InitVar, dataclass

from accel_migrate.analysis.placement.blocks import affects, end_of_paragraph, first_made, member, positions
from accel_migrate.analysis.values.loops import variables_in
from accel_migrate.analysis.values.provenance import Built, Later, NotMigrated
from accel_migrate.analysis.values.roles import Role
from accel_migrate.flow.scopes import Binding, Module, Variable
from accel_migrate.flow.sequence import follows

TAKEN_UP = "this takes up the optimizer before everything is built that is prepared with it"


@dataclass(eq=False)
class LaterFinder:
    """What is prepared after the first of the uses.

    NotMigrated where something is built too late for a training that needs it. A model that is built anew for a test
    alone is not ours to prepare, nor a loader that only those in `whole` read.
    """

    module: Module
    block: list[ast.stmt]
    bindings: InitVar[list[tuple[Built, Binding]]]
    uses: list[ast.stmt]
    made_of: set[Variable]
    begun: str
    whole: InitVar[Set[ast.stmt]]

    def __post_init__(self, bindings: list[tuple[Built, Binding]], whole: Set[ast.stmt]) -> None:
        module, block = self.module, self.block
        self.used = sorted(set(positions(module, block, self.uses)))
        self.sharing = set(positions(module, block, [use for use in self.uses if use not in whole]))
        order = {id(statement): index for index, statement in enumerate(block)}
        self.built = [
            (order[id(above)], thing, binding)
            for thing, binding in bindings
            if (above := member(module, binding.statement, block)) is not None
        ]
        self.models = {thing.variable for thing, _ in bindings if thing.role == Role.MODEL}
        self.done = {thing.variable for thing, binding in bindings if member(module, binding.statement, block) is None}

    def later(self) -> list[Later]:
        found: list[Later] = []
        self.done |= {thing.variable for index, thing, _ in self.built if index < self.used[0]}
        self._check_inside()
        self._check_read(self.used[0])
        for before, use in zip(self.used, self.used[1:]):
            fresh = [one for one in self.built if before < one[0] < use and self._is_trained(one)]
            if fresh:
                after = self._place(before, use, fresh)
                for thing in dict.fromkeys(thing for _, thing, _ in fresh):
                    found.append(Later(thing, tuple(b.statement for _, other, b in fresh if other == thing), after))
                self.done |= {thing.variable for _, thing, _ in fresh}
            self._check_read(use)
        for index, thing, _ in self.built:
            if thing.variable not in self.done:
                raise self._too_late(index, thing)
        return found

    def _check_inside(self) -> None:
        """What a loop that trains builds in its own rounds cannot be prepared before it."""
        for index, thing, binding in self.built:
            if index not in self.used or (thing.role != Role.OPTIMIZER and thing.variable in self.done):
                continue
            needing = [use for use in self.uses if member(self.module, use, self.block) is self.block[index]]
            if not any(follows(self.module, use, binding.statement) for use in needing):
                raise NotMigrated(
                    f"`{thing.text}` is {self._how(thing)} inside of what begins in line {self.block[index].lineno}, with the "
                    "loop that needs it, and not all that is to be prepared is built or used in there alone",
                    (self.module, binding.statement),
                )
            raise self._too_late(index, thing)

    def _check_read(self, use: int) -> None:
        """A use reads only what is built by then."""
        read = {variable for variable, _ in variables_in(self.module, self.block[use])}
        for index, thing, _ in self.built:
            if thing.variable in read - self.done:
                raise self._too_late(index, thing)

    def _is_trained(self, one: tuple[int, Built, Binding]) -> bool:
        """Whether a training that follows needs a new object; a model without an optimizer of its own is only tested."""
        index, thing, _ = one
        again = min((i for i, other, _ in self.built if other == thing and i > index), default=len(self.block))
        if thing.role == Role.LOADER:
            return any(index < use < again for use in self.sharing)
        if thing.role != Role.MODEL:
            return True
        return any(
            self._may_update(binding, thing.variable)
            for i, other, binding in self.built
            if other.role == Role.OPTIMIZER and index < i < again and i < self.used[-1]
        )

    def _place(self, before: int, use: int, fresh: list[tuple[int, Built, Binding]]) -> ast.stmt:
        """The statement between two uses behind which what was built there is prepared."""
        module, block = self.module, self.block
        for index, thing, binding in fresh:
            if block[index] is not binding.statement:
                raise self._too_late(index, thing)
            self._check_made_of(thing, binding)
        last = max(index for index, _, _ in fresh)
        limit = min(use, first_made(module, block, self.made_of, before + 1))
        if last >= limit:
            raise NotMigrated(TAKEN_UP, (module, block[limit]))
        variables = {thing.variable for _, thing, _ in fresh}
        last = max([last, *[index for index in range(last + 1, limit) if affects(module, block[index], variables)]])
        return block[end_of_paragraph(module, block, last, limit, variables)]

    def _check_made_of(self, thing: Built, binding: Binding) -> None:
        """A copy of a prepared model, or one around it, would be prepared a second time."""
        if thing.role != Role.MODEL or binding.value is None:
            return
        for variable, _ in variables_in(self.module, binding.value):
            if variable in self.models & self.done:
                raise NotMigrated(
                    f"`{thing.text}` is trained later and made of `{variable.name}`, which has been prepared by then",
                    (self.module, binding.statement),
                )

    def _may_update(self, optimizer: Binding, model: Variable) -> bool:
        """Whether the call that builds an optimizer names a model, also through a list of parameters, or none at all."""
        named = self.models.intersection(self._named(optimizer.value, 0)) if optimizer.value is not None else set()
        return not named or model in named

    def _named(self, value: ast.expr, depth: int) -> Iterator[Variable]:
        for variable, _ in variables_in(self.module, value):
            yield variable
            if variable not in self.models and depth < 2:
                for binding in self.module.bindings(variable):
                    if binding.kind == "assign" and binding.value is not None:
                        yield from self._named(binding.value, depth + 1)

    def _how(self, thing: Built) -> str:
        return "set again" if thing.variable in self.done else "built"

    def _too_late(self, index: int, thing: Built) -> NotMigrated:
        return NotMigrated(
            f"`{thing.text}` is {self._how(thing)} after {self.begun} has begun", (self.module, self.block[index])
        )
