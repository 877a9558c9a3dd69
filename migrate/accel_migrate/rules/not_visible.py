"""AM812: what on several processes depends on code or values that the analysis cannot read, in one note.

Each clause has a proof that silences it, in the module of `analysis/notes` that finds its places.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator

from accel_migrate.analysis.notes.batch_norm import batch_norm, is_settled
from accel_migrate.analysis.notes.batch_rows import trains_on_share
from accel_migrate.analysis.notes.drawn import find_drawn
from accel_migrate.analysis.notes.loss_reduced import unseen_lengths, unseen_losses
from accel_migrate.analysis.notes.may_download import may_download
from accel_migrate.analysis.notes.not_analysed import not_analysed
from accel_migrate.analysis.notes.seeding import Seeded, Seeding
from accel_migrate.analysis.notes.unseen_layers import unseen_layers
from accel_migrate.analysis.notes.unseen_order import unseen_order
from accel_migrate.analysis.values.roles import Role
from accel_migrate.analysis.values.unread import Unseen, is_unseen
from accel_migrate.edits import note
from accel_migrate.flow.nodes import all_arguments
from accel_migrate.flow.scopes import Module
from accel_migrate.plan import Change, Safety
from accel_migrate.rule import Context, Rule

CODE = "AM812"
_MOST = 5  # places that a clause names
_WITHOUT_DROPOUT = re.compile(r"(\w+\.)*(wide_)?(resnet|resnext|regnet|shufflenet)\w*\(")  # of torchvision


def find(context: Context) -> Iterator[Change]:
    training = context.training
    if training.place.module is not context.module:
        return
    told: dict[Callable[[Context], Iterable[Unseen]], set[str]] = {}
    clauses = []
    for finder, text in _CLAUSES:
        known = {name for other in _SAID_BY.get(finder, ()) for name in told[other]}
        found = {each.name: each for each in finder(context) if each.name not in known}
        told[finder] = set(found)
        if found:
            alike = _drops(context) if finder in (_layers, _dropout) else ""
            more = _moved(context, finder) or (f", and {alike}" if finder is _layers and alike else "")
            clauses.append(text.format(_named(context.module, found.values()), alike) + more)
    if clauses:
        numbered = clauses if len(clauses) == 1 else [f"({i}) {clause}" for i, clause in enumerate(clauses, 1)]
        message = f"not visible to the analysis, look at it before N processes run: {'; '.join(numbered)}"
        yield note(context, CODE, training.place.after, message)


def _named(module: Module, found: Iterable[Unseen]) -> str:
    names = [f"{each.name} ({module.place_of(each.module, each.node)})" for each in found]
    rest = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return ", ".join(names[:_MOST]) + rest


def _code(context: Context) -> Iterable[Unseen]:
    return not_analysed(context.script, context.training)


def _moved(context: Context, finder: object) -> str:
    """What a wrapper did for a model that is called where it cannot be read."""
    wrapped = any(wrapping.moves_inputs for wrapping in context.training.distribution.wrappings)
    if finder is not _code or not wrapped or not any(_leaves_with_model(context, m) for m in context.training.modules):
        return ""
    return "; its wrapper moved to the GPU what the model is called with there, and nothing does now"


def _leaves_with_model(context: Context, module: Module) -> bool:
    """Whether what is not visible gets a model: a name that nobody has read, or a method of an object that it made."""
    roles = context.script.roles
    for call in module.calls:
        method = isinstance(call.func, ast.Attribute) and module.qualified(call.func) is None
        hidden = roles.target(module, call) is None if method else is_unseen(roles.project, module, call.func)
        if hidden and any(roles.role(module, part) & Role.MODEL for part in all_arguments(call)):
            return True
    return False


def _drops(context: Context) -> str:
    """What one seed for all means for layers that cannot be read; where some that draw are seen, AM803 says it."""
    script, training = context.script, context.training
    if not trains_on_share(script, training):
        return ""
    seeding = Seeding(script, training, context.settings.target)
    seed = seeding.of("torch")
    alike = seed.seeded is Seeded.ALIKE or (seed.seeded is Seeded.UNKNOWN and seed.launched)
    if not alike or any(drawn.library == "torch" for drawn in find_drawn(script, training, context.module, seeding)):
        return ""
    told = (seeding.last("torch") or seed).told(context.module)
    return f"with dropout every process may draw the same numbers, because all are seeded alike ({told})"


def _losses(context: Context) -> Iterable[Unseen]:
    if context.training.distribution.joins:
        return []  # the original averaged the same gradients
    return unseen_losses(context.script, context.training)


def _lengths(context: Context) -> Iterable[Unseen]:
    return unseen_lengths(context.script, context.training) if not context.training.distribution.joins else []


def _layers(context: Context) -> Iterable[Unseen]:
    normalised = is_settled(context.script, context.training) or batch_norm(context.script, context.training)
    return [] if normalised else _unseen_layers(context)


def _dropout(context: Context) -> Iterable[Unseen]:
    """Layers that may drop, where their batch normalisation is settled, or AM804 has said it."""
    found = _unseen_layers(context) if _drops(context) else []
    return [each for each in found if not _WITHOUT_DROPOUT.match(each.name)]


def _unseen_layers(context: Context) -> list[Unseen]:
    script, training = context.script, context.training
    models = [built.variable for built in training.prepared if built.role == Role.MODEL]
    return [each for model in models for each in unseen_layers(script.graph, model)]


def _order(context: Context) -> Iterable[Unseen]:
    return unseen_order(context.script, context.training) if trains_on_share(context.script, context.training) else []


def _downloads(context: Context) -> Iterable[Unseen]:
    return may_download(context.script, context.training)


_CLAUSES: tuple[tuple[Callable[[Context], Iterable[Unseen]], str], ...] = (
    (
        _code,
        "what {} does, which was not analysed: every process runs it, so one alone should download, write and log in it, and "
        "what it draws, counts, keeps or normalises is of one process's batches; files of yours can be handed over too",
    ),
    (
        _losses,
        "how the loss is reduced, at {}: a mean over samples stays right; multiply a sum by accelerator.num_processes; a mean "
        "over a mask or a length, and a loss between samples, are of one process's batch",
    ),
    (
        _lengths,
        "how long the batches are that {} makes: a mean over padded places, or over more rows than samples, weighs every "
        "process's batch alike",
    ),
    (
        _layers,
        "which layers {} builds: batch normalisation is by process, unless torch.nn.SyncBatchNorm.convert_sync_batchnorm "
        "converts it before prepare",
    ),
    (_dropout, "which layers {} builds: {}"),
    (
        _order,
        "in which order samples come from {}: a stream or a sampler of its own must give the same on every process, and "
        "`prepare` shards it",
    ),
    (_downloads, "what {} downloads: a run on one process first brings it"),
)
# The clauses that ask for the same already.
_SAID_BY: dict[Callable[[Context], Iterable[Unseen]], tuple[Callable[[Context], Iterable[Unseen]], ...]] = {
    _layers: (_code,),
    _dropout: (_code, _layers),
    _downloads: (_code,),
}

RULE = Rule(
    code=CODE,
    summary="code and values that cannot be read, and what depends on them on several processes",
    why="What N processes mean for a script can be said where its code can be read. Where it cannot, this says what to look for, "
    "and where: nothing is taken for harmless because it is not visible.",
    example_before="model = build(args)",
    find=find,
    safety=Safety.NOTE,
)
