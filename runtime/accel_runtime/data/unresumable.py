"""Loops that a resumed run cannot take up where a checkpoint left them: they are named when it is saved."""

from __future__ import annotations

from accel_runtime.data.progress import LoaderProgress


def unresumable_reason(progress: LoaderProgress) -> str | None:
    """What the script does with this loader that a run which resumes from here cannot do again."""
    current, iterations = progress.current, progress.iterations
    if current is None or current.iteration not in iterations.stack:
        return _after_a_loop(progress)
    iteration = current.iteration
    if progress.is_evaluation(iteration):
        return (
            f"save_state() came inside a loop that trains nothing, at its batch {iteration.index}, within one that trains: "
            "a run that resumes from here does not take up the inner loop again; save outside of it"
        )
    if iteration.ahead > 0 and iteration.trained > 1 and not current.trained:
        return (
            f"the script took {iteration.ahead + 1} batches before it trained on the first, and then one for each step: if "
            f"it reads ahead, a run that resumes from here never sees the {iteration.ahead} that it holds; give the loader "
            "workers instead, which read ahead by themselves"
        )
    return None


def _after_a_loop(progress: LoaderProgress) -> str | None:
    if progress.cut is not None:
        of_all = f" of {progress.last.total}" if progress.last.total else ""
        return (
            f"the loop over a loader was left after {progress.cut}{of_all} batches, and this checkpoint counts that epoch as "
            "done; to go on in its middle, call save_state() inside the loop, before it is left"
        )
    if progress.passes and progress.iterations.work and not progress.iterations.fed:
        return (
            "no step was taken while a batch of a prepared loader was in hand: if the script collects batches and trains "
            "on them later, as after list(loader), a run that resumes from here does not go on among them"
        )
    return None
