"""What is known of one training, as frozen facts: what rules read, and more than one of them must agree on."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from accel_migrate.analysis.distribution.rank_flow import RankFlow
from accel_migrate.analysis.distribution.replacements import Distribution
from accel_migrate.analysis.evaluation.evaluation import Evaluation
from accel_migrate.analysis.moves.devices import DeviceDefinition, Move
from accel_migrate.analysis.placement.agreed_names import OwnName
from accel_migrate.analysis.placement.outside_device import OutsideDevice
from accel_migrate.analysis.placement.reach import Reach
from accel_migrate.analysis.placement.starts import Start
from accel_migrate.analysis.precision.precision import Precision
from accel_migrate.analysis.processes.local import Locality
from accel_migrate.analysis.processes.timing import Timing
from accel_migrate.analysis.storage.attributes import Question
from accel_migrate.analysis.storage.storage import Storage
from accel_migrate.analysis.trainings.decisions import Decision
from accel_migrate.analysis.trainings.removed_moves import HostRead
from accel_migrate.analysis.values.imported import loaded_with
from accel_migrate.analysis.values.loops import Backward, CallGraph, LoaderLoop
from accel_migrate.analysis.values.observed import Observed
from accel_migrate.analysis.values.provenance import Built, Place
from accel_migrate.analysis.values.roles import Role, Roles
from accel_migrate.flow.program import Program
from accel_migrate.flow.scopes import Function, Module, Scope, Variable


@dataclass(frozen=True)
class Refusal:
    """Why a training loop is left as it was."""

    module: Module
    line: int
    reason: str
    error: Exception | None = None  # a fault of ours that stood in the way


@dataclass(frozen=True, eq=False)
class Training:
    """One set of models that is trained together, with its loops; migrated whole or not at all."""

    index: int
    home: Scope
    place: Place
    prepared: tuple[Built, ...]
    aliases: frozenset[Variable]  # every variable, in any scope, that holds a prepared object
    backwards: tuple[Backward, ...]
    loops: tuple[LoaderLoop, ...]
    evaluations: tuple[Evaluation, ...]
    dropped: tuple[Move, ...]  # moves that the prepared objects make needless
    kept: tuple[Move, ...]
    spared: tuple[Move, ...]  # of those that are kept, the ones that the prepared objects make needless
    staying: str  # what would be wrong without them; empty where the user asked for them
    unplaced: frozenset[Variable]  # loaders whose batches the script moves by itself, in part
    fetched: tuple[HostRead, ...]  # reads of batches that come from the device now, and that the CPU must make
    device: DeviceDefinition | None  # what decides on the device, where the Accelerator can be made
    creation: Scope
    reach: Reach
    modules: tuple[Module, ...]
    start: Start  # where the Accelerator is made
    prints: tuple[tuple[Module, ast.Call], ...]  # those that should print once
    needs_device: bool  # whether the device's variable is still read after migration
    device_texts: tuple[tuple[Module, ast.expr], ...]  # where the device is asked for by name
    given: OutsideDevice | None  # a device from outside, where the script decides on none
    wraps_models: bool  # whether models are in a wrapper on several processes, as those of Accelerate are
    model_attributes: tuple[Question, ...]  # that a wrapped model does not answer
    forward_methods: tuple[tuple[Built, str], ...]  # that make the loss in the place of forward
    loss_parts: frozenset[ast.Call]  # that make it likewise, and may be parts of the model
    timing: Timing
    local: Locality  # which values are this process's own
    decisions: tuple[Decision, ...]  # that processes must take alike, on values of their own
    storage: Storage
    bare: tuple[tuple[Module, ast.expr], ...]  # prepared models that only some processes run, as they are named there
    flow: RankFlow
    precision: Precision
    distribution: Distribution
    settings: tuple[tuple[str, str], ...]  # of DistributedDataParallel
    waiting: tuple[tuple[str, str], ...]  # of init_process_group
    rebound: tuple[str, ...]  # what a spawned function was told, now asked of the Accelerator
    own_names: tuple[OwnName, ...]  # made by a process's clock or chance, where the Accelerator is made
    agrees: bool  # whether all processes take those of the main process
    gone: frozenset[ast.AST]  # expressions that other rules take away: nothing inside them is edited
    observed: tuple[Observed, ...] = ()  # what is known from a run alone
    makes_accelerator: bool = True  # another training in the same scope may have made it

    def accelerator(self, module: Module, node: ast.AST) -> str | None:
        """How to write the Accelerator at a node."""
        return self.reach.spelled(module, node)

    def ready(self, module: Module, node: ast.AST) -> str | None:
        """How to write the Accelerator at a node that runs once it is made; None before, and out of reach."""
        spelled = self.reach.spelled(module, node)
        if spelled is None or self.timing.after_prepare(module, node):
            return spelled
        if module.scope(node).function in self.reach.parameters:
            return spelled
        return spelled if self._is_below_start(module, node, set()) else None

    def _is_below_start(self, module: Module, node: ast.AST, seen: set[Function]) -> bool:
        """Whether a node, or every call of its function, comes below the line that makes the Accelerator."""
        function = module.scope(node).function
        if module is not self.start.module or function is self._makes:
            return module is self.start.module and self.start.covers(node)
        if function is None or self._makes is not None:
            return False
        seen.add(function)
        sites = self.local.graph.all_sites.get(function, [])
        return bool(sites) and all(
            owner.scope(call).function in seen or self._is_below_start(owner, call, seen) for owner, call in sites
        )

    @property
    def schedules_skipped_steps(self) -> bool:
        """Whether a GradScaler by hand may skip a step of the optimizer beside which the schedule goes on."""
        return bool(self.precision.scaling.steps) and any(built.role & Role.SCHEDULER for built in self.prepared)

    @property
    def _makes(self) -> Function | None:
        return self.start.module.scope(self.start.statement).function

    def shares(self, loop: LoaderLoop) -> bool:
        """Whether every loader that a loop reads is sharded, so that this process sees a part of its data."""
        apart = any(not e.prepares and e.loop is loop for e in self.evaluations)
        loader = loop.loader
        if isinstance(loader, ast.Subscript) and self.holds(loop.module.variable(loader.value)):
            return loop.module.source.code(loader.slice) in {built.key for built in self.prepared}
        return not apart and self.holds(loop.module.variable(loader))

    def trains_on_share(self, loop: LoaderLoop) -> bool:
        """Whether a loop trains on a sharded loader, though it may evaluate another one that every process reads whole."""
        kept = loop.loader.value if isinstance(loop.loader, ast.Subscript) else loop.loader
        return loop.trains and (self.shares(loop) or self.holds(loop.module.variable(kept)))

    def holds(self, variable: Variable | None) -> bool:
        return variable is not None and variable in self.aliases


@dataclass(frozen=True, eq=False)
class Again:
    """How a training is migrated once more whose first result broke a post-condition."""

    staying: str = ""  # all of its moves stay, because of what would be wrong without them
    apart: tuple[LoaderLoop, ...] = ()  # evaluations whose loader is not prepared,
    why: str = ""  # because of what would be wrong otherwise
    in_place: bool = False  # their batches are dealt out all the same
    agrees: bool = False  # the names that processes make by their clocks are those of the main process


@dataclass(frozen=True, eq=False)
class Script:
    project: Program
    roles: Roles
    graph: CallGraph
    trainings: tuple[Training, ...]
    refusals: tuple[Refusal, ...]
    backwards: tuple[Backward, ...]

    def loaded(self, training: Training) -> list[Module]:
        """The files that a run of a training may load."""
        return loaded_with(self.project, training.place.module, training.place.after)
