"""Random numbers that a training draws in each step: in its loop, in the layers of its models, and for each sample."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from accel_migrate.analysis.evaluation.evaluation import Whole
from accel_migrate.analysis.notes.batch_rows import read_by_hand
from accel_migrate.analysis.notes.of_models import OfModels
from accel_migrate.analysis.notes.seeding import Seeding, libraries_of, library_of
from accel_migrate.analysis.notes.unseen_layers import looked_up
from accel_migrate.analysis.trainings.training import Script, Training
from accel_migrate.analysis.values.constructions import constructions
from accel_migrate.analysis.values.loops import LoaderLoop
from accel_migrate.analysis.values.made_of import made_of
from accel_migrate.analysis.values.numbers import data_of
from accel_migrate.analysis.values.provenance import chain
from accel_migrate.analysis.values.roles import Role, Roles
from accel_migrate.analysis.values.sources import contents
from accel_migrate.analysis.values.unread import is_unseen
from accel_migrate.flow.nodes import arguments_at, calls_method, is_falsy, unparse
from accel_migrate.flow.once import once
from accel_migrate.flow.program import Definition
from accel_migrate.flow.scopes import Function, Module, Variable

_DROPS = re.compile(r"torch\.nn\.(functional\.)?(\w*[dD]ropout\w*|rrelu|RReLU|gumbel_softmax)")
# Models for texts that drop values unless their configuration says that they do not; those left out drop none by default.
_TEXT_MODEL = re.compile(
    r"transformers\.(\w+\.)*(Auto(?=Model($|\.|For(Seq|Tok|Mask|Quest|Mult|Next)))|\w*B[Ee][Rr][Tt]a?|Electra|GPT2|OpenAIGPT"
    r"|XLNet|T5|MT5|Bart|Longformer)"
    r"(LMHead|DoubleHeads)?(Model\w*|For[A-Z]\w+)(\.from_\w+)?"
)
_AUGMENTS = re.compile(
    r"torchvision\.transforms\.(Random\w*|ColorJitter|RandAugment|TrivialAugmentWide|AutoAugment|AugMix)"
)
_FIXED = "Compose|Sequential|Normalize|Resize|CenterCrop|PadIfNeeded|LongestMaxSize|SmallestMaxSize|To\\w+|\\w+Params"
_ALBUMENTED = re.compile(rf"albumentations\.(\w+\.)*(?!({_FIXED})$)[A-Z]\w*")
_IN_PLACE = {"uniform_", "normal_", "random_", "bernoulli_", "exponential_", "log_normal_", "cauchy_", "geometric_"}
_EACH_SAMPLE = ("__getitem__", "__call__")
_DEFINED = (ast.ClassDef, ast.FunctionDef)


@dataclass(frozen=True, eq=False)
class Drawn:
    """A call that draws from the global generator of a library; `reseeds` if a seed of it changes what is drawn for sure."""

    what: str  # for people
    library: str
    module: Module
    call: ast.Call
    reseeds: bool = True


def find_drawn(script: Script, training: Training, module: Module, seeding: Seeding) -> Iterator[Drawn]:
    """What is drawn for the steps of a training, as far as one of its files is to tell it."""
    yield from _in_loops(script, training, module, seeding)
    if training.place.module is module:
        yield from _in_models(script, training)
        yield from _for_samples(script, training)


def _in_loops(script: Script, training: Training, module: Module, seeding: Seeding) -> Iterator[Drawn]:
    """What training steps draw outside of the models: in this file, or for its loops in files that are not changed."""
    calls = [(module, call) for call in _drawing(module) if _is_in_training(training, module, call)]
    loops = [loop for loop in training.loops if loop.trains and loop.module is module]
    reached = {f for loop in loops for f in script.graph.reached_from(loop.statement, module)}
    others = [each for each in seeding.files if each not in training.modules and training.place.module is module]
    for owner in (module, *others):
        outside = [f for f in reached & owner.functions.keys() if not _is_of_module(script.roles, owner, f)]
        calls += [(owner, call) for call in _drawing(owner) if owner.scope(call).function in outside]
    for owner, call in calls:
        if not _is_evaluated(training, owner, call):
            yield Drawn("in its steps", _drawing(owner)[call], owner, call)
    for call in [call for call in module.calls if any(module.holds(loop.statement, call) for loop in loops)]:
        yield from _applied(script, module, call)


def _applied(script: Script, module: Module, call: ast.Call) -> Iterator[Drawn]:
    """What a step applies to a whole batch: `views(x)`, of what was composed above, or in a function that gave it back."""
    held = [*contents(script.graph, module, call.func)] if module.qualified(call.func) is None else []
    bound = [(owner, b) for owner, part in held for b in owner.bindings(owner.variable(part))]
    held += [(owner, b.value) for owner, b in bound if b.path and b.value is not None]  # `views, names = compose()`
    for owner, value in held:
        made = script.roles.function(owner, value)
        for at, drawing, library, sure in _augmenting(script, *((made.module, made.node) if made else (owner, value))):
            yield Drawn("for augmentation", library, at, drawing, sure)
            return


@once
def _drawing(module: Module) -> dict[ast.Call, str]:
    """The calls of a file that draw, each with the library whose generator it draws from."""
    return {call: library for call in module.calls if (library := _library(module, call)) is not None}


def _library(module: Module, call: ast.Call) -> str | None:
    """The library whose generator a call draws from; a tensor that is filled at random draws from torch's."""
    filled = (
        isinstance(call.func, ast.Attribute) and call.func.attr in _IN_PLACE and module.qualified(call.func) is None
    )
    return "torch" if filled or _samples(module, call) else library_of(module, call)


def _samples(module: Module, call: ast.Call) -> bool:
    """`Uniform(-1, 1).sample((4,))`, by a name or as it is made."""
    if not calls_method(call, "sample", "rsample"):
        return False
    return any(
        isinstance(value, ast.Call) and module.full_name(value.func).startswith("torch.distributions.")
        for value in module.held(call.func.value)
    )


def _is_of_module(roles: Roles, module: Module, function: Function) -> bool:
    """Whether a function is a method of a torch module, or may be: of a class that is derived from an unknown one."""
    owner = module.functions[function].owner_class
    return owner is not None and bool(roles.project.base_names(Definition(module, owner.node)))  # type: ignore[arg-type]


def _is_evaluated(training: Training, module: Module, call: ast.Call) -> bool:
    """Whether a call stands in a loop, or its function, that evaluates only."""
    evaluating = {loop.function for loop in training.loops if not loop.trains} - {
        loop.function for loop in training.loops if loop.trains
    }
    function = module.scope(call).function
    return function is not None and function in evaluating


def _is_in_training(training: Training, module: Module, call: ast.Call) -> bool:
    around = set(module.ancestors(call))
    if any(loop.trains and loop.statement in around for loop in training.loops):
        return True
    repeated = any(isinstance(parent, ast.For | ast.While) for parent in around)
    return repeated and any(b.function is module.scope(call).function for b in training.backwards)


def _in_models(script: Script, training: Training) -> Iterator[Drawn]:
    """Layers that drop at random, and noise that a forward draws, of the models that are prepared."""
    graph = script.graph
    own = OfModels(script, training)
    for built in training.prepared:
        if built.role != Role.MODEL:
            continue
        links = chain(graph, built.variable)
        values = [(v.scope.module, b.value) for v in links for b in v.scope.module.bindings(v) if b.value is not None]
        parts: list[tuple[Module, ast.AST]] = [(part.module, part.node) for part in made_of(graph, built.variable)]
        if not own.are_known:  # `kinds[name]()`: any of them may be the model
            parts += [(owner, node) for node, owner in own.building.items() if isinstance(node, _DEFINED)]
            for owner in looked_up(graph, built.variable):
                parts += [(owner, node) for node in (*owner.classes, *owner.functions)]
        for owner, node in [*values, *parts]:
            for call in owner.walk(node, ast.Call):
                if _drops(owner, call):
                    yield Drawn("for dropout", "torch", owner, call)
                    break
        for owner, node in parts:
            if isinstance(node, ast.ClassDef):
                yield from _in_forward(script, owner, node)


def _in_forward(script: Script, module: Module, owner: ast.ClassDef) -> Iterator[Drawn]:
    """What `forward`, and what it calls, draws: `eps = torch.randn_like(std)`."""
    for at, call in _run_by(script, module, owner, ("forward",)):
        if (library := _library(at, call)) is not None:
            yield Drawn("for noise in its model", library, at, call)
            return


def _run_by(
    script: Script, module: Module, owner: ast.ClassDef, first: tuple[str, ...]
) -> Iterator[tuple[Module, ast.Call]]:
    """The calls that some methods of a class run, in themselves, in other methods of it that they name, and elsewhere."""
    methods = {each.name: each for each in owner.body if isinstance(each, ast.FunctionDef)}
    names = [name for name in first if name in methods]
    for name in names:
        for node in module.walk(methods[name], ast.Attribute, ast.Call):
            if isinstance(node, ast.Attribute) and node.attr in methods and node.attr not in names:
                names.append(node.attr)
            elif isinstance(node, ast.Call):
                yield module, node
    outside = {f for name in names for f in script.graph.reached_from(methods[name], module)}
    for other in script.project.modules if outside else ():
        yield from ((other, call) for call in other.calls if other.scope(call).function in outside)


def _drops(module: Module, call: ast.Call) -> bool:
    """Whether a layer drops a share of its values, which is not plainly none."""
    dotted = module.full_name(call.func)
    if _DROPS.fullmatch(dotted):
        return "functional" in dotted or not any(map(is_falsy, arguments_at(call, 0, "p")))
    return _TEXT_MODEL.fullmatch(dotted) is not None or (
        dotted.startswith("torch.nn.Transformer")
        and not any(k.arg == "dropout" and is_falsy(k.value) for k in call.keywords)
    )


def _for_samples(script: Script, training: Training) -> Iterator[Drawn]:
    """What the data of the loaders that are trained on draws for each sample; with workers, all follow torch's seed."""
    graph = script.graph.within(script.loaded(training))  # another script may hand a shared function other data
    for module, made in _loaders_trained_on(script, training):
        given = {k.arg for k in made.keywords if not is_falsy(k.value)}
        workers = "num_workers" in given
        own = workers and not given.isdisjoint(("worker_init_fn", "generator"))  # what the workers are seeded by
        data = list(data_of(graph, module, made))
        seeded = dict(each for owner, node in data for each in _seeded_by(script, owner, node))
        for owner, node in data:
            for at, call, library, sure in _augmenting(script, owner, node):
                first = "torch" if workers else seeded.get(library, library)
                yield Drawn("for augmentation", first, at, call, sure and not own)


def loaders_sharded(script: Script, training: Training) -> Iterator[tuple[Module, ast.Call]]:
    """The calls that make the loaders of which each process sees a part, to train or to evaluate."""
    yield from _loaders_trained_on(script, training)
    for each in training.evaluations:
        if not isinstance(each, Whole):
            yield from ((m, made) for _, m, made in _loaders(script, each.loop.module, each.loop.loader))


def is_stream(roles: Roles, module: Module, data: ast.expr) -> bool:
    """Whether a data set is an IterableDataset of the project."""
    owner = roles.value(module, data)
    if owner.owner is None or owner.module is None:
        return False
    bases = roles.project.base_names(Definition(owner.module, owner.owner))
    return any(base.endswith("IterableDataset") for base in bases)


def streams_trained_on(script: Script, training: Training) -> list[tuple[Module, ast.Call]]:
    """The loaders that are trained on whose data is a stream, which all processes must read alike."""
    made = dict.fromkeys(_loaders_trained_on(script, training))
    data = [(module, call, part) for module, call in made for part in arguments_at(call, 0, "dataset")]
    return [(module, call) for module, call, part in data if is_stream(script.roles, module, part)]


def _loaders_trained_on(script: Script, training: Training) -> Iterator[tuple[Module, ast.Call]]:
    """The calls that make the loaders that are trained on; a loop that scripts share has those of all."""
    loaded = script.loaded(training)
    whole = {e.loop.module.variable(e.loop.loader) for e in training.evaluations if not e.prepares}
    read_whole = {link for v in whole for link in chain(script.graph, v) if not training.holds(link)}
    trained = [(loop.module, loop.loader) for loop in training.loops if training.trains_on_share(loop)]
    found = dict.fromkeys(each for owner, read in trained for each in _loaders(script, owner, read))
    found |= dict.fromkeys(each for loader in read_by_hand(script, training) for each in _made(script, loader))
    for held, module, made in found:
        if (held.scope.module if held is not None else module) in loaded and held not in read_whole:
            yield module, made


def _loaders(script: Script, module: Module, read: ast.expr) -> Iterator[tuple[Variable | None, Module, ast.Call]]:
    """The calls that make what a loop reads, and what holds it; where it chooses by a key, all that it may choose."""
    roles, graph = script.roles, script.graph
    kept = [*contents(graph, module, read.value)] if isinstance(read, ast.Subscript) else [(module, read)]
    for owner, part in kept:
        variable = owner.variable(part) if isinstance(part, ast.Name | ast.Attribute) else None
        yield from _made(script, variable)
        target = roles.target(owner, part) if isinstance(part, ast.Call) else None
        if target is not None:
            given = [each for value in target.returned for each in contents(graph, target.module, value)]
            kept += [each for each in given if each not in kept]
        elif isinstance(part, ast.Call) and roles.role(owner, part) & Role.LOADER:
            yield None, owner, part


def _made(script: Script, loader: Variable | None) -> Iterator[tuple[Variable, Module, ast.Call]]:
    for link in chain(script.graph, loader):
        yield from ((link, *made) for made in constructions(script.roles, link, Role.LOADER))


def _seeded_by(script: Script, module: Module, node: ast.AST) -> Iterator[tuple[str, str]]:
    """Libraries that the data seeds for each sample, by a number that it draws of another: that one decides."""
    for at, call in _run_by(script, module, node, _EACH_SAMPLE) if isinstance(node, ast.ClassDef) else ():
        for given in call.args[:1] if libraries_of(at, call) else ():
            values = [given, *[b.value for b in (at.bindings_of(given) if isinstance(given, ast.Name) else [])]]
            drawn = [library_of(at, part) for v in values if v is not None for part in at.walk(v, ast.Call)]
            yield from ((seeded, by) for seeded in libraries_of(at, call) for by in drawn if by not in (None, seeded))


def evaluation_draws(script: Script, training: Training, loop: LoaderLoop) -> bool:
    """Whether an evaluation may draw numbers: in what it runs, in its models or for its samples; what cannot be read may."""
    roles, graph, module = script.roles, script.graph, loop.module
    reached = graph.reached_from(loop.statement, module)
    run = [(module, call) for call in module.walk(loop.statement, ast.Call)]
    run += [(owner, call) for owner, call in script.project.calls if owner.scope(call).function in reached]
    for owner, call in run:
        if _library(owner, call) is not None or is_unseen(script.project, owner, call.func):
            return True
    inner = {drawn.what for drawn in _in_models(script, training)}
    is_set = any(unparse(call.func).endswith((".eval", ".train")) for each in training.modules for call in each.calls)
    if "for noise in its model" in inner or ("for dropout" in inner and not is_set):
        return True
    links = chain(graph, module.variable(loop.loader))
    evaluated = [link for link in links if not loop.trains or not training.holds(link)]
    made = [each for link in evaluated for each in constructions(roles, link, Role.LOADER)]
    return not made or any(_draws_samples(script, *each) for each in made)


def _draws_samples(script: Script, module: Module, loader: ast.Call) -> bool:
    """Whether a loader chooses its samples at random, or changes them so."""
    chosen = [k.value for k in loader.keywords if k.arg in ("shuffle", "sampler", "batch_sampler", None)]
    if len(loader.args) > 2 or any(not is_falsy(value) for value in chosen):
        return True
    data = data_of(script.graph, module, loader)
    return any(True for owner, node in data for _ in _augmenting(script, owner, node))


def _augmenting(script: Script, module: Module, node: ast.AST) -> Iterator[tuple[Module, ast.Call, str, bool]]:
    """Calls that draw for each sample, or build what does; the library, and whether it is the one for sure."""
    for call in module.walk(node, ast.Call):
        dotted = module.full_name(call.func)
        if _AUGMENTS.fullmatch(dotted):
            yield module, call, "torch", True
        elif _ALBUMENTED.fullmatch(dotted):  # by Python's numbers, by numpy's or by its own: versions differ
            yield module, call, "random", False
    if isinstance(node, ast.ClassDef):
        for at, call in _run_by(script, module, node, _EACH_SAMPLE):
            if (library := library_of(at, call)) is not None:
                yield at, call, library, True
