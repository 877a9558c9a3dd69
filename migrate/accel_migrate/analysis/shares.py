"""Whether a training goes through a loader of which each process has a share."""

from __future__ import annotations

from accel_migrate.analysis.homes import chain
from accel_migrate.analysis.roles import Role
from accel_migrate.analysis.training import Script, Training


def trains_on_share(script: Script, training: Training) -> bool:
    """Whether a loader that is shared out is trained on, and not only evaluated."""
    prepared = any(built.role is Role.LOADER for built in training.prepared)
    return prepared and (any(loop.trains for loop in training.loops) or _reads_by_hand(script, training))


def takes_in_more(script: Script, training: Training) -> bool:
    """Whether a step takes in more than before: not where each process took in a batch already."""
    return not training.distribution.joins and trains_on_share(script, training)


def _reads_by_hand(script: Script, training: Training) -> bool:
    """Whether a loader is shared out that no evaluation reads: one whose batches `next` asks for."""
    roles, graph = script.roles, script.graph
    read = [e.loop.module.variable(e.loop.loader) for e in training.evaluations]
    evaluated = {link for variable in read if variable is not None for link in chain(roles, graph, variable)}
    return any(b.role is Role.LOADER and b.variable not in evaluated for b in training.prepared)
