"""Why losses on several processes cannot be those of one, found in what the runs themselves recorded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from accel_migrate.proof.record import Loss, Trace

FORMS = {
    "summed": "the loss is summed over the batch, and processes average what each has summed (AM802)",
    "weighted": "the loss is a weighted mean, and each process divides by the weights of its own samples",
    "ignored targets": "the loss is a mean over the targets that are not ignored, and each process has as many as its "
    "samples have (AM802)",
    "within the batch": "the loss sets the samples of a batch against each other, and each process has fewer of them",
    "not a mean": "the loss is not a mean over samples, so that its parts do not average to the whole",
}


def reason(original: Trace, ranks: Sequence[Trace], step: int) -> str:
    """Why the loss with this index, counted from 0, is another one; empty when nothing explains it."""
    return next(_reasons(original, ranks, step), "")


def _reasons(original: Trace, ranks: Sequence[Trace], step: int) -> Iterator[str]:
    losses = original.losses[: step + 1]
    if not any(loss.batches for loss in original.losses):
        yield "no loader: every process trains on what it makes itself (AM805)"
    for index, loss in enumerate(losses):
        count, taken = rows_in(loss), sum(rows_in(rank.losses[index]) for rank in ranks if index < len(rank.losses))
        if count < taken:
            yield f"batch {index + 1} is a partial one of {count} samples, filled up to {taken} for {len(ranks)} processes"
    if factor := scaled_rates(original, ranks[0], len(ranks)):
        yield f"the script makes its optimizer with {factor:g} times the learning rate on {len(ranks)} processes"
    if any(loss.random for loss in losses):
        yield "random numbers are drawn between batch and loss (dropout, noise), by each process its own"
    if original.has_fact("batch norm"):
        yield "batch normalisation takes its statistics from the samples of each process (AM804)"
    if any(batch.facts["random"] for loss in losses for batch in loss.batches) or _rows_differ(losses, ranks):
        yield "samples are altered while they are loaded, at random or by what else is in their batch, as padding does"
    if other_passes(original, ranks[0], step):
        yield "the script makes other passes over its loaders on several processes, and each moves the shuffle"
    if any(loss.samples is None for loss in losses):
        yield "the data is a stream, which every process reads for itself"
    for form, sentence in FORMS.items():
        if any(form in loss.forms for loss in losses):
            yield sentence


def draws(losses: Sequence[Loss]) -> bool:
    """Whether random numbers are drawn while these losses come about."""
    return any(loss.random or any(batch.facts["random"] for batch in loss.batches) for loss in losses)


def other_passes(original: Trace, main: Trace, step: int) -> bool:
    """Whether the batch of a loss, counted from 0, is of a pass with another number."""
    passes = [
        [batch.facts["number"] for loss in trace.losses[: step + 1] for batch in loss.batches][-1:]
        for trace in (original, main)
    ]
    return passes[0] != passes[1]


def scaled_rates(original: Trace, main: Trace, processes: int) -> float:
    """By which factor a script raises its learning rate with the number of processes; 0 when it does not."""
    made = [[rate for event in trace.of("optimizer") for rate in event.facts["rates"]] for trace in (original, main)]
    factors = {round(b / a, 6) for a, b in zip(*made) if a}
    usual = [factor for factor in (processes, processes**0.5) if factors == {round(factor, 6)}]
    return usual[0] if usual and len(made[0]) == len(made[1]) else 0.0


def rows_in(loss: Loss) -> int:
    return len(loss.samples) if loss.samples is not None else len(loss.rows)


def _rows_differ(losses: Sequence[Loss], ranks: Sequence[Trace]) -> bool:
    """The same samples, by their indices, with other contents."""
    for step, loss in enumerate(losses):
        parts = [rank.losses[step] for rank in ranks if step < len(rank.losses)]
        if loss.samples is None or any(part.samples is None for part in parts):
            return False
        together = sorted(str(index) for part in parts for index in part.samples or ())
        if together == sorted(map(str, loss.samples)):
            return sorted(row for part in parts for row in part.rows) != sorted(loss.rows)
    return False
