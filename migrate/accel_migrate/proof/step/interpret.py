"""The laws of all values that a loss was made of, and whether N processes come to the gradient of the whole batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isclose

from accel_migrate.proof.step.graph import Node, Steps
from accel_migrate.proof.step.laws import Call, Rule, before_reduction, laws
from accel_migrate.proof.step.linear import Loss, Term
from accel_migrate.proof.step.match import Ids, Matched
from accel_migrate.proof.step.rows import Law, Rows, Stop, scaled

CLOSE = 1e-6  # relative; coefficients are numbers of Python, divided a few times


@dataclass(frozen=True, slots=True)
class Scaling:
    """A term of a loss that N processes weigh otherwise; `by` is the factor on each number of processes."""

    place: str
    worlds: tuple[int, ...]
    by: tuple[float, ...]

    @property
    def told(self) -> str:
        for name, power in (("1/N", -1), ("N", 1), ("1/N**2", -2), ("N**2", 2)):
            if all(isclose(by, world**power, rel_tol=CLOSE) for by, world in zip(self.by, self.worlds)):
                return f"the gradient is scaled by {name} ({self.place})"
        each = (f"{by:.3g} on {world} processes" for by, world in zip(self.by, self.worlds))
        shown = ", ".join(dict.fromkeys(each))
        return f"the gradient is scaled by {shown} ({self.place})"


class Laws:
    """The same losses in several traces, the first of which is the original's on one process."""

    def __init__(self, traces: Sequence[Steps]) -> None:
        self.traces = traces
        self.worlds = [trace.world for trace in traces]
        self.matched = Matched(traces)
        self.known: dict[int, Law] = {}
        self.reduced: set[int] = set()  # criteria whose terms have a law, and their mean or sum has none
        self.losses = [Loss(trace) for trace in traces]

    def scalings(self, roots: Ids, place: str) -> list[Scaling]:
        """What is not as on one process; Stop where that cannot be told."""
        every = [loss.terms(root) for loss, root in zip(self.losses, roots)]
        if len({len(terms) for terms in every}) > 1:
            raise Stop(f"the loss at {place} has other terms on other numbers of processes")
        found = (self._scaling(terms, place) for terms in zip(*every))
        return [scaling for scaling in found if scaling is not None]

    def _scaling(self, terms: Sequence[Term], place: str) -> Scaling | None:
        kinds = {(term.criterion, tuple(name for name, _ in term.factors)) for term in terms}
        if len(kinds) > 1:
            raise Stop(f"the loss at {place} has other terms on other numbers of processes")
        law = self._law_of_term(terms)
        self._factors(terms)
        if not terms[0].number:
            raise Stop(f"the loss at {place} has a term that is multiplied by 0")
        shares = self.worlds if law is not None else [1] * len(terms)
        by = [term.number / share / terms[0].number for term, share in zip(terms, shares)]
        if all(isclose(each, 1.0, rel_tol=CLOSE) for each in by):
            return None
        node = self.traces[0].node(terms[0].value)
        where = f"{node.name} at {node.place}" if node else place
        return Scaling(where, tuple(self.worlds[1:]), tuple(by[1:]))

    def _factors(self, terms: Sequence[Term]) -> None:
        for factors in zip(*(term.factors for term in terms)):
            self._learn(tuple(value for _, value in factors))

    def _law_of_term(self, terms: Sequence[Term]) -> Law:
        ids = tuple(term.value for term in terms)
        if not terms[0].criterion:
            return self._learn(ids)
        self.reduced.add(ids[0])
        self.matched.reach(ids)
        self._learn_all()
        node = self.traces[0].node(ids[0])
        assert node is not None
        return self._with_place(node, lambda call: [before_reduction(call)])[0]

    def _learn(self, ids: Ids) -> Law:
        self.matched.reach(ids)
        self._learn_all()
        return self._known(self.traces[0].behind(ids[0]))

    def _known(self, value: int) -> Law:
        if value not in self.known:
            raise Stop(
                f"{self.matched.named(value)} takes all rows of a batch together, and what follows is not linear"
            )
        return self.known[value]

    def _learn_all(self) -> None:
        """In the order in which the values came about."""
        for value in sorted(self.matched.ids.keys() - self.known.keys() - self.reduced):
            node = self.traces[0].node(value)
            if node is None:
                self.known[value] = self._leaf(value)
            elif value not in self.known:
                self.known |= dict(zip(node.made, self._with_place(node, laws)))

    def _with_place(self, node: Node, rule: Rule) -> list[Law]:
        try:
            return rule(self._call(node))
        except Stop as stop:
            named = f"{node.name} at {node.place}"
            raise Stop(str(stop) if " at " in str(stop) else f"{named} {stop}") from None

    def _call(self, node: Node) -> Call:
        first = self.traces[0]
        taken = {each: self._known(first.behind(each)) for each in node.inputs}
        return Call(node, taken, lambda value: first.values[value].shape, self._scaled)

    def _scaled(self, value: int) -> list[int]:
        node = self.traces[0].node(value)
        reached = next((each for each in node.made if each in self.matched.ids), value) if node else value
        ids = list(self.matched.ids[reached])
        if node is not None:
            nodes = [trace.node(each) for trace, each in zip(self.traces, ids)]
            ids = [each.made[node.made.index(value)] for each in nodes if each is not None]
        shapes = [trace.values[each].shape for trace, each in zip(self.traces, ids)]
        return scaled(shapes, self.worlds)

    def _leaf(self, value: int) -> Law:
        kind = self.traces[0].values[value].source[0]
        try:
            dims = self._scaled(value)
        except Stop as stop:
            raise Stop(f"a {'batch' if kind == 'batch' else 'value'} {stop}") from None
        if kind == "batch":
            if len(dims) != 1:
                raise Stop("a tensor of the batch is not sharded")
            return Rows(dims[0])
        if dims or kind not in ("parameter", "outside"):
            raise Stop(f"a value is not known where it comes from{self.matched._user(value)}")
        return None
