"""What the traces of a training step show about every number of processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import gcd

from accel_migrate.proof.step.exchange import COARSE_TOLERANCE, TOLERANCE, apart, not_exchanged
from accel_migrate.proof.step.graph import Moment, Node, Steps
from accel_migrate.proof.step.interpret import Laws
from accel_migrate.proof.step.linear import ancestors
from accel_migrate.proof.step.rows import Stop

HALF = ("torch.float16", "torch.bfloat16")
MOST_TRIALS = 4  # numbers of processes; another loader may have a batch that they cannot share
IN_THE_WAY = {
    "hook": "a hook of the script's own changes gradients",
    "function": "an autograd function of the script's own has a backward pass that nobody can look into",
    "compiled": "torch.compile makes operators of its own",
    "python draws": "Python or numpy draw random numbers in the step",
}


class StepResult(StrEnum):
    EQUAL = "equal"
    DIFFERENT = "different"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class StepAnswer:
    """Whether a training step on N processes is that of one; `why` says what is not so, or what stopped the proof."""

    result: StepResult
    why: str = ""

    @property
    def told(self) -> str:
        return f"{self.result} for every N" if self.result is StepResult.EQUAL else f"{self.result}: {self.why}"


def conclude(original: Steps | None, ranks: Sequence[Steps], pretended: Sequence[Steps]) -> StepAnswer:
    """Of the original's step, those of all processes of one run, and those of processes that were pretended."""
    try:
        return _concluded(original, ranks, pretended)
    except Stop as stop:
        return StepAnswer(StepResult.UNKNOWN, str(stop))
    except (ArithmeticError, AssertionError, LookupError, TypeError, ValueError) as problem:
        # A trace in a form that nobody thought of must not cost what the runs have shown.
        return StepAnswer(StepResult.UNKNOWN, f"the traces could not be read ({type(problem).__name__}: {problem})")


def shares(original: Sequence[Steps], ranks: Sequence[Steps]) -> tuple[int, list[int]]:
    """How many steps are to be traced beside those that ran, and on which numbers of processes that may be."""
    if len(original) != 1 or not original[0].of("backward") or not all(_rows(original[0])):
        return 0, []
    common = gcd(*_rows(original[0]))
    ran = [rank.world for rank in ranks[:1] if _is_shard(original[0], rank)]
    able = sorted((n for n in range(3 if ran else 2, common + 1) if common % n == 0 and n not in ran), key=_handy)
    return 2 - len(ran), able[:MOST_TRIALS]


def _handy(count: int) -> tuple[bool, int]:
    return count not in (2, 3, 4), count


def _concluded(original: Steps | None, ranks: Sequence[Steps], pretended: Sequence[Steps]) -> StepAnswer:
    if original is None or len(ranks) < 2 or not original.of("backward"):
        raise Stop("no step from a batch of a loader to an optimizer was traced")
    half = any(value.dtype in HALF for value in original.values)
    tolerance = COARSE_TOLERANCE if half else TOLERANCE
    for trace in (original, *ranks, *pretended):
        _complete(trace)
    settings = _other_settings(original, [*ranks, *pretended])
    if settings:
        return StepAnswer(StepResult.DIFFERENT, settings)
    lonely = not_exchanged(ranks, tolerance)
    if lonely:
        return StepAnswer(StepResult.DIFFERENT, lonely)
    shared = [trace for trace in (*ranks, *pretended) if _is_shard(original, trace)]
    if pretended and all(_rows(trace) == _rows(original) for trace in (*ranks, *pretended)):
        return StepAnswer(StepResult.DIFFERENT, "every process trains on the whole batch; no loader shards it")
    try:
        found = _by_laws(original, shared)
    except Stop as stop:
        found = StepAnswer(StepResult.UNKNOWN, str(stop))
    measured = ""
    if ranks[0] in shared and not any(node.draws for trace in (original, ranks[0]) for node in _needed(trace)):
        measured = apart(original, ranks[0], tolerance)
    if found.result is StepResult.EQUAL and measured:
        return StepAnswer(StepResult.DIFFERENT, measured)
    if found.result is StepResult.UNKNOWN and measured:
        return StepAnswer(StepResult.DIFFERENT, f"{found.why}; {measured}")
    return found


def _by_laws(original: Steps, shared: Sequence[Steps]) -> StepAnswer:
    if len({trace.world for trace in shared}) < 2:
        rows = " and ".join(map(str, sorted(set(_rows(original)))))
        raise Stop(f"a batch of {rows} samples was not shared equally by two numbers of processes")
    laws = Laws([original, *shared])
    for passes in zip(*(trace.of("backward") for trace in (original, *shared))):
        _plain(passes)
        roots = tuple(each.facts["values"][0] for each in passes)
        for scaling in laws.scalings(roots, passes[0].place):
            return StepAnswer(StepResult.DIFFERENT, scaling.told)
    _reads(original, laws)
    _after_backward([original, *shared])
    return StepAnswer(StepResult.EQUAL)


def _complete(trace: Steps) -> None:
    if trace.stopped:
        raise Stop(f"the step has {trace.stopped}")
    for moment in trace.moments:
        if moment.kind in IN_THE_WAY:
            raise Stop(f"{IN_THE_WAY[moment.kind]} ({moment.place})")
        if moment.kind == "batch" and moment.facts["numbers"]:
            raise Stop(f"the batch holds numbers that are no tensors ({moment.place})")
    if trace.stepped < trace.optimizers:
        raise Stop(
            f"{trace.optimizers - trace.stepped} of {trace.optimizers} optimizers took no step in what was traced"
        )


def _other_settings(original: Steps, others: Sequence[Steps]) -> str:
    """What an optimizer is made with on several processes alone; Stop where other passes and steps follow each other."""
    for other in others:
        if _course(original) != _course(other):
            raise Stop(f"other backward passes and steps follow each other on {other.world} processes")
        for one, two in zip(original.of("step"), other.of("step")):
            for old, new in zip(one.facts["settings"], two.facts["settings"]):
                changed = [name for name in old if old[name] != new.get(name)]
                if changed:
                    name = changed[0]
                    return f"{name} of the optimizer is {new.get(name)} on {other.world} processes and was {old[name]}"
    return ""


def _course(trace: Steps) -> list[tuple[object, ...]]:
    """The passes and steps, in their order."""
    return [
        (each.kind, each.facts.get("optimizer"), each.facts.get("kind_of"), each.facts.get("parameters"))
        for each in trace.moments
        if each.kind in ("backward", "step")
    ]


def _plain(passes: Sequence[Moment]) -> None:
    if any(each.facts["directed"] or len(each.facts["values"]) != 1 for each in passes):
        raise Stop(f"the backward pass at {passes[0].place} starts from more than one number")


def _rows(trace: Steps) -> list[int]:
    """The samples of each batch."""
    batches = [[trace.values[value].shape for value in m.facts["values"]] for m in trace.of("batch")]
    return [shapes[0][0] if shapes and shapes[0] else 0 for shapes in batches]


def _is_shard(original: Steps, trace: Steps) -> bool:
    return [rows * trace.world for rows in _rows(trace)] == _rows(original)


def _needed(trace: Steps) -> list[Node]:
    losses = [value for moment in trace.of("backward") for value in moment.facts["values"]]
    reached = ancestors(trace, losses)
    return [node for node in trace.nodes if any(made in reached for made in node.made)]


def _reads(original: Steps, laws: Laws) -> None:
    """A whole number that Python read from a batch may decide anything that comes later."""
    from_rows = laws.losses[0].from_rows
    needed = {id(node) for node in _needed(original)}
    last = max((index for index, node in enumerate(original.nodes) if id(node) in needed), default=-1)
    for moment in original.of("read"):
        whole = [v for v in moment.facts["values"] if "float" not in original.values[v].dtype and v in from_rows]
        if whole and moment.at <= last:
            raise Stop(f"Python reads a whole number from the batch at {moment.place}, before the loss is made")


def _after_backward(traces: Sequence[Steps]) -> None:
    """What is done to gradients before the step must be the same, and take nothing else from the batch."""
    first, *others = (list(_on_gradients(trace)) for trace in traces)
    for other in others:
        if first != other:
            name = next((one[0] for one, two in zip(first, other) if one != two), "something")
            raise Stop(f"gradients are treated otherwise on several processes before the step ({name})")


def _on_gradients(trace: Steps) -> list[tuple[object, ...]]:
    gradients = {index for index, value in enumerate(trace.values) if value.source[0] == "gradient"}
    from_rows = Laws([trace]).losses[0].from_rows
    found: list[tuple[object, ...]] = []
    due = _due(trace)
    for index, node in enumerate(trace.nodes):
        if not any(each in gradients for each in node.inputs):
            continue
        gradients.update(node.made)
        if index in due:
            if any(each in from_rows for each in node.inputs):
                raise Stop(f"{node.name} at {node.place} brings the batch and gradients together")
            numbers = tuple(
                str(value) for name, value in sorted(node.args.items()) if not isinstance(value, dict | list)
            )
            found.append((node.op, numbers, len(node.inputs)))
    return found


def _due(trace: Steps) -> set[int]:
    """The nodes between a backward pass and the next step."""
    found: set[int] = set()
    begun = None
    for moment in trace.moments:
        if moment.kind == "backward":
            begun = moment.at
        elif moment.kind == "step" and begun is not None:
            found.update(range(begun, moment.at))
            begun = None
    return found
