"""Post-conditions: what must hold for a rewritten project, found by code that shares no conclusion with what wrote it.

A condition reads the result, and the original beside it where meaning must be kept. It may ask `flow` what runs before
what; it never asks the analysis or the rules what they believed. What violates one is not written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from accel_migrate.check.accelerator_created import CONDITION as ACCELERATOR_CREATED
from accel_migrate.check.accounted import CONDITION as ACCOUNTED_FOR
from accel_migrate.check.averages import CONDITION as AVERAGES
from accel_migrate.check.calls_fit import CONDITION as CALLS_FIT
from accel_migrate.check.collective_under_rank import CONDITION as COLLECTIVE_UNDER_RANK
from accel_migrate.check.condition import Condition, Project, Violation
from accel_migrate.check.device_chosen import CONDITION as DEVICE_CHOSEN
from accel_migrate.check.devices_together import CONDITION as DEVICES_TOGETHER
from accel_migrate.check.fed_on_device import CONDITION as FED_ON_DEVICE
from accel_migrate.check.gathered_loader import CONDITION as GATHERED_LOADER
from accel_migrate.check.gradients_averaged import CONDITION as GRADIENTS_AVERAGED
from accel_migrate.check.group_needed import CONDITION as GROUP_NEEDED
from accel_migrate.check.kept_on_cpu import CONDITION as KEPT_ON_CPU
from accel_migrate.check.loaders_prepared import CONDITION as LOADERS_PREPARED
from accel_migrate.check.met_alike import CONDITION as MET_ALIKE
from accel_migrate.check.names_bound import CONDITION as NAMES_BOUND
from accel_migrate.check.orphans import CONDITION as NOTHING_ORPHANED
from accel_migrate.check.pair import Pair
from accel_migrate.check.prepare_order import CONDITION as PREPARE_ORDER
from accel_migrate.check.read_after_written import CONDITION as READ_AFTER_WRITTEN
from accel_migrate.check.same_objects import CONDITION as SAME_OBJECTS
from accel_migrate.check.shards_together import CONDITION as SHARDS_TOGETHER
from accel_migrate.check.statistics_together import CONDITION as STATISTICS_TOGETHER
from accel_migrate.check.steps_alike import CONDITION as STEPS_ALIKE
from accel_migrate.check.stored_whole import CONDITION as STORED_WHOLE
from accel_migrate.check.wrapper_asked import CONDITION as WRAPPER_ASKED
from accel_migrate.check.wrapper_read import CONDITION as WRAPPER_READ
from accel_migrate.flow.imports import Imports
from accel_migrate.flow.version import Version
from accel_migrate.plan import Change

__all__ = [
    "CONDITIONS",
    "DEVICES_NAMED",
    "GATHERED_LOADER",
    "NOTHING_ORPHANED",
    "READ_AFTER_WRITTEN",
    "STEPS_ALIKE",
    "Condition",
    "Project",
    "Violation",
    "project",
    "violations",
]

CONDITIONS: tuple[Condition, ...] = (
    NAMES_BOUND,
    ACCELERATOR_CREATED,
    PREPARE_ORDER,
    COLLECTIVE_UNDER_RANK,
    GATHERED_LOADER,
    DEVICES_TOGETHER,
    ACCOUNTED_FOR,
    KEPT_ON_CPU,
    FED_ON_DEVICE,
    SAME_OBJECTS,
    STEPS_ALIKE,
    READ_AFTER_WRITTEN,
    STORED_WHOLE,
    DEVICE_CHOSEN,
    WRAPPER_READ,
    GROUP_NEEDED,
    GRADIENTS_AVERAGED,
    SHARDS_TOGETHER,
    MET_ALIKE,
    WRAPPER_ASKED,
    CALLS_FIT,
    STATISTICS_TOGETHER,
    LOADERS_PREPARED,
    AVERAGES,
    NOTHING_ORPHANED,  # last: where another is broken too, that one is the reason
)

# About the devices that the script names. AM959 and AM969 are not among them: a batch that would be on the CPU without
# its move may come from a loader that is not prepared, and the move would only hide that.
DEVICES_NAMED = frozenset({DEVICES_TOGETHER.code, KEPT_ON_CPU.code, DEVICE_CHOSEN.code})


def violations(
    originals: Sequence[Version], results: Mapping[Path, Version], applied: Mapping[Path, Sequence[Change]]
) -> Iterator[Violation]:
    """Where the rewritten project breaks a condition; `results` holds the files that changed, with what was applied."""
    it = project(originals, results, applied)
    for condition in CONDITIONS:
        yield from condition.find(it)


def project(
    originals: Sequence[Version], results: Mapping[Path, Version], applied: Mapping[Path, Sequence[Change]]
) -> Project:
    """The files that changed side by side, with those that use them and those that they use: nothing else runs with them."""
    sources = [before.source for before in originals]
    changed = [source for source in sources if source.path in results]
    together = Imports(sources).together(changed) if len(sources) > 1 else set(results)
    pairs = [(before.source.path, before) for before in originals if before.source.path in together]
    files = [Pair(path, before, results.get(path, before), tuple(applied.get(path, ()))) for path, before in pairs]
    return Project(tuple(files))
