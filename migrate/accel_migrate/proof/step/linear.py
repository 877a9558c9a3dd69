"""A loss as a sum of terms: a number, times the sum over all entries of a value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from accel_migrate.proof.step.graph import Node, Steps, values_in
from accel_migrate.proof.step.operators import CRITERIA, RESHAPES
from accel_migrate.proof.step.rows import Stop

MEAN, SUM = 1, 2  # of torch's reductions
SAME_ENTRIES = RESHAPES | {"permute", "transpose", "t", "_to_copy"}
PLAIN_IGNORED = -100  # which no target has, unless somebody puts it there


@dataclass(frozen=True, slots=True)
class Term:
    number: float
    value: int
    factors: tuple[tuple[str, int], ...] = ()  # "mul" or "div", and one number that no row had a part in
    criterion: bool = False  # the value is the node's before it is reduced


class Loss:
    """The terms of one loss in one trace."""

    def __init__(self, steps: Steps) -> None:
        self.steps = steps
        self.from_rows = _reached(steps, "batch")
        self.from_parameters = _reached(steps, "parameter")

    def terms(self, loss: int) -> list[Term]:
        """From left to right; those that no parameter has a part in have no gradient."""
        waiting, found = [Term(1.0, loss)], []
        while waiting:
            term = waiting.pop()
            term = replace(term, value=self.steps.behind(term.value))
            parts = self._parts(term)
            if parts is None:
                found.append(term)
            else:
                waiting.extend(reversed(parts))
        return [term for term in found if term.value in self.from_parameters]

    def _parts(self, term: Term) -> list[Term] | None:
        """What the sum over its entries is a sum of; None when it is one of its own."""
        node = self.steps.node(term.value)
        if node is None or term.criterion:
            return None
        name, args = node.name, node.args
        if name in ("sum", "mean"):
            return [self._reduced(term, node)]
        if name in CRITERIA and args["reduction"] in (MEAN, SUM):
            return [self._criterion(term, node)]
        if name in SAME_ENTRIES:
            return [replace(term, value=args["self"]["value"])]
        if name == "neg":
            return [replace(term, value=args["self"]["value"], number=-term.number)]
        if name in ("stack", "cat"):
            return [replace(term, value=each) for each in values_in(args["tensors"])]
        if name in ("add", "sub", "rsub"):
            return self._added(term, node)
        if name in ("mul", "div") and args.get("rounding_mode") is None:
            return self._scaled(term, node)
        return None

    def _reduced(self, term: Term, node: Node) -> Term:
        value = node.args["self"]["value"]
        shape = self.steps.values[value].shape
        given = node.args.get("dim")
        dims = given if isinstance(given, list) else [given] if isinstance(given, int) else []
        count = prod(shape[dim] for dim in dims or range(len(shape)))
        return replace(term, value=value, number=term.number / count if node.name == "mean" else term.number)

    def _criterion(self, term: Term, node: Node) -> Term:
        shapes = [self.steps.values[node.args[name]["value"]].shape for name in ("self", "target")]
        count = prod(shapes[1]) if node.name.startswith("nll_loss") else max(map(prod, shapes))
        if node.name.startswith("nll_loss") and node.args["reduction"] == MEAN:
            if node.args.get("weight") is not None:
                raise Stop(f"{node.name} at {node.place} is a weighted mean: each process divides by its own weights")
            if node.ignores or node.args["ignore_index"] != PLAIN_IGNORED:
                raise Stop(f"{node.name} at {node.place} is a mean over the targets that are not ignored")
        mean = node.args["reduction"] == MEAN
        return replace(term, number=term.number / count if mean else term.number, criterion=True)

    def _added(self, term: Term, node: Node) -> list[Term] | None:
        signs = {"add": (1.0, 1.0), "sub": (1.0, -1.0), "rsub": (-1.0, 1.0)}[node.name]
        alpha = node.args.get("alpha", 1)
        whole, parts = prod(self.steps.values[term.value].shape), []
        for name, sign in zip(("self", "other"), signs):
            if not isinstance(node.args[name], dict):
                continue
            value = node.args[name]["value"]
            size = prod(self.steps.values[value].shape)
            if size not in (1, whole):
                return None
            times = alpha if (name == "other") != (node.name == "rsub") else 1
            parts.append(replace(term, value=value, number=term.number * sign * times * whole / size))
        return parts

    def _scaled(self, term: Term, node: Node) -> list[Term] | None:
        one, other = node.args["self"], node.args["other"]
        if not isinstance(other, dict):
            number = term.number * other if node.name == "mul" else term.number / other if other else float("nan")
            return [replace(term, value=one["value"], number=number)]
        value, factor = one["value"], other["value"]
        if node.name == "mul" and self._is_number(value) and not self._is_number(factor):
            value, factor = factor, value
        whole = self.steps.values[term.value].shape
        if not self._is_number(factor) or self.steps.values[value].shape != whole:
            return None
        return [replace(term, value=value, factors=(*term.factors, (node.name, factor)))]

    def _is_number(self, value: int) -> bool:
        return prod(self.steps.values[value].shape) == 1 and value not in self.from_rows


def _reached(steps: Steps, kind: str) -> frozenset[int]:
    """The values that come from leaves of this kind."""
    found = {index for index, value in enumerate(steps.values) if value.source[0] == kind}
    for node in steps.nodes:
        if any(each in found for each in node.inputs):
            found.update(node.made)
    return frozenset(found)


def ancestors(steps: Steps, values: Sequence[int]) -> frozenset[int]:
    """All values that these were made of, and themselves."""
    waiting, found = list(values), set(values)
    while waiting:
        node = steps.node(waiting.pop())
        new = [each for each in node.inputs if each not in found] if node else []
        found.update(new)
        waiting.extend(new)
    return frozenset(found)
