"""AM502: weights are read to the CPU, when every process has come so far, and go into the model itself."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.analysis.notes.elsewhere import may_run
from accel_migrate.analysis.storage.loading import Load
from accel_migrate.analysis.storage.prefixes import (
    counts_on_prefix,
    loads_elsewhere,
    loads_of_old_files,
    states_with_prefix,
)
from accel_migrate.analysis.storage.states import StateTaken
from accel_migrate.analysis.values.roles import Role
from accel_migrate.edits import add_argument, change, note, quoted, replace_node
from accel_migrate.flow.nodes import calls_method, walk
from accel_migrate.flow.reaching import reaching
from accel_migrate.flow.scopes import Module
from accel_migrate.flow.sequence import comes_first
from accel_migrate.plan import Change, Edit, Insert
from accel_migrate.rule import Context, Rule

CODE = "AM502"


def find(context: Context) -> Iterator[Change]:
    training, module = context.training, context.module
    for loaded in training.storage.loaded:
        if loaded.module is module:
            spelled = training.accelerator(module, loaded.call)
            owner = f"{spelled}.unwrap_model({module.source.code(loaded.owner)})"
            edit = replace_node(module.source, loaded.owner, owner)
            yield change(context, CODE, loaded.call, "the model itself takes the weights", [edit])
    waited = training.distribution.barriers
    for load in training.storage.loads:
        if load.module is module and may_run(context.script, training, module, load.call):
            yield from _read(context, load, waited)
    yield from _old_schedules(context)
    script = context.script
    changed = states_with_prefix(script.graph, training.distribution, training.storage)
    if changed:
        yield from _old_keys(context, changed[0])


def _old_schedules(context: Context) -> Iterator[Change]:
    """A prepared schedule counts for all processes, and the file of a script that was distributed by hand for one."""
    training, module = context.training, context.module
    if not training.distribution.shared:
        return
    for call in module.calls:
        if calls_method(call, "load_state_dict") and isinstance(call.func, ast.Attribute):
            variable = module.variable(call.func.value)
            if training.holds(variable) and context.script.roles.of(variable) & Role.SCHEDULER:
                message = (
                    "a schedule that was saved by N processes counts the batches of one of them, and counts those of all from "
                    "now on; for such a file multiply what it counts (last_epoch, total_steps) by N first"
                )
                yield note(context, CODE, call, message)
                return


def _old_keys(context: Context, changed: StateTaken) -> Iterator[Change]:
    """The keys of saved weights lose `module.`, and what counts on it is named."""
    training, module = context.training, context.module
    for call in list(loads_of_old_files(training.distribution, training.storage, module))[:1]:
        message = (
            "files that were saved of the wrapped model have `module.` in front of their keys, and no longer fit; for such "
            'a file take it away first: {key.removeprefix("module."): value for key, value in state.items()}'
        )
        yield note(context, CODE, call, message)
    for node in counts_on_prefix(module):
        message = "the keys of weights that are saved from now on do not begin with `module.`, and this counts on it"
        yield note(context, CODE, node, message)
    if changed.module is module:
        elsewhere = [other for other in context.script.project.modules if other not in training.modules]
        found = [(other, node) for other in elsewhere for node in [*counts_on_prefix(other)][:1]]
        found += loads_elsewhere(context.script.graph, training.storage)
        for other, node in found:
            message = (
                f"the keys of these weights no longer begin with `module.`, and line {node.lineno} of "
                f"{context.script.project.file_name(other)} counts on it"
            )
            yield note(context, CODE, changed.call, message)
        if _saves(context) and not found and not _is_said(context):
            message = "the keys of these weights no longer begin with `module.`; what else loads such files must not count on it"
            yield note(context, CODE, changed.call, message)


def _saves(context: Context) -> bool:
    """Whether anything is saved, be it by `torch.save(*args)` of a helper, of which nobody knows what it is."""
    files = context.script.project.modules
    return bool(context.training.storage.saves) or any(
        file.qualified(call.func) == "torch.save" for file in files for call in file.calls
    )


def _is_said(context: Context) -> bool:
    """Whether a load or a key of the training's own files has a note that the keys are others."""
    training = context.training
    return any(
        [*loads_of_old_files(training.distribution, training.storage, module), *counts_on_prefix(module)]
        for module in training.modules
    )


def _read(context: Context, load: Load, waited: set[ast.stmt]) -> Iterator[Change]:
    training, module = context.training, context.module
    spelled = training.accelerator(module, load.call)
    edits: list[Edit] = []
    said = []
    if load.lands_on_cpu and (training.start.cpu != "True" or load.location is not None):
        edits.append(_located(module, load))
        said.append("every process reads to the CPU, whatever GPU saved")
    elif spelled is not None and load.late and load.location is None and _is_whole_model(context, load):
        edits.append(add_argument(module.source, load.call, f"map_location={spelled}.device"))
        said.append("every process reads the model to its own device, whatever GPU saved")
    statement = _questioned(module, _listed(module, _opened(module, load.call), load.call))
    waits = training.storage.waits(load) and not training.flow.on_some(module, load.call)
    waits = waits and not _have_waited(context, statement, waited)
    if spelled is not None and waits and not _is_asked_for(context, module, statement):
        waited.add(statement)
        edits.append(Insert(statement, (f"{spelled}.wait_for_everyone()",), "before", above_comments=False))
        said.append("waits until the file is written")
    if edits:
        yield change(context, CODE, load.call, "; ".join(said), edits)
    if load.location is None and load.may_feed_state and not load.lands_on_cpu:
        message = (
            "every process reads these weights to the GPU that saved them, often the first for all; map_location='cpu' reads "
            "them to the CPU, from where load_state_dict copies them"
        )
        yield note(context, CODE, load.call, message)
    elif load.location is None and not load.late and training.start.cpu != "True" and _brings_objects(context, load):
        message = (
            "every process reads these objects to the GPU that saved them, often the first for all; map_location='cpu' reads "
            "them to the CPU, from where prepare moves them"
        )
        yield note(context, CODE, load.call, message)


def _brings_objects(context: Context, load: Load) -> bool:
    """Whether the model or the optimizer itself is read: `model = torch.load(path)`, `state["model"]` of what is read."""
    module, training = load.module, context.training
    statement = module.statement(load.call)
    named = [module.variable(target) for target in statement.targets] if isinstance(statement, ast.Assign) else []
    reads = [node for variable in named if variable is not None for node in module.reads(variable)]
    taken: list[ast.AST] = [load.call, *(node for node in reads if isinstance(module.parents[node], ast.Subscript))]
    for node in taken:
        around = module.parents[node]
        around = module.parents[around] if isinstance(around, ast.Subscript) else around
        if isinstance(around, ast.Assign) and any(training.holds(module.variable(target)) for target in around.targets):
            return True
    return False


def _is_whole_model(context: Context, load: Load) -> bool:
    """`model = torch.load(path)`."""
    statement = load.module.parents[load.call]
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return False
    variable = load.module.variable(statement.targets[0])
    return variable is not None and bool(context.script.roles.of(variable) & Role.MODEL)


def _located(module: Module, load: Load) -> Edit:
    source = module.source
    cpu = quoted(source, "cpu")
    if load.location is not None:
        return replace_node(source, load.location, cpu)
    return add_argument(source, load.call, f"map_location={cpu}")


def _opened(module: Module, load: ast.Call) -> ast.stmt:
    """The outermost statement around a load that opens the file, or asks for it: neither before it is there."""
    found = module.statement(load)
    read = {node.id for node in module.walk(load, ast.Name) if isinstance(node, ast.Name)}
    for parent in module.ancestors(found):
        if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef | ast.For | ast.While):
            break
        names = (
            [getattr(item.optional_vars, "id", None) for item in parent.items] if isinstance(parent, ast.With) else []
        )
        opens = isinstance(parent, ast.With) and (parent.body[0] is found or not read.isdisjoint(names))
        if opens or (isinstance(parent, ast.If) and _asks_for_file(parent.test)):
            assert isinstance(parent, ast.stmt)
            found = parent
    return found


def _have_waited(context: Context, statement: ast.stmt, waited: set[ast.stmt]) -> bool:
    """Whether all have waited here, or above in the same block, and nothing that may write comes between."""
    module, storage, graph = context.module, context.training.storage, context.script.graph
    writing = [(save.module, save.statement) for save in storage.saves]
    writing += [(file.module, file.statement) for file in storage.written]
    within = {owner.scope(one).function for owner, one in writing} - {None}
    block = module.block(statement)
    for earlier in [statement, *block[: block.index(statement)][::-1]]:
        if earlier in waited:
            return True
        held = any(owner is module and module.holds(earlier, one) for owner, one in writing)
        if held or not within.isdisjoint(graph.reached_from(earlier, module)):
            return False
    return False


def _questioned(module: Module, statement: ast.stmt) -> ast.stmt:
    """The question above a load that leaves without the file, as `if not path.exists(): raise`: asked too early, all leave."""
    at: ast.AST = statement
    found = statement
    while isinstance(at, ast.stmt):
        block = module.block(at)
        earlier = block[: block.index(at)] if at in block else []
        found = next((each for each in earlier if _leaves_without_file(each)), found)
        above = module.parents[at]
        at = above if isinstance(above, ast.Try | ast.With) else module.tree
    return found


def _leaves_without_file(statement: ast.stmt) -> bool:
    leaves = isinstance(statement, ast.If) and isinstance(statement.body[-1], ast.Raise | ast.Return)
    return leaves and isinstance(statement, ast.If) and _asks_for_file(statement.test)


def _is_asked_for(context: Context, module: Module, node: ast.AST) -> bool:
    """Whether a load runs where a file was found, as `if os.path.exists(path): self.resume(path)`: no place to wait.

    One process may ask before another writes. Where nothing is written before, there is nothing to wait for.
    """
    waiting = [(module, node)]
    for owner, at in waiting:
        for above in owner.ancestors(at):
            if isinstance(above, ast.If) and _asks_for_file(above.test, owner):
                return True
        function = owner.scope(at).function
        sites = context.script.graph.sites.get(function, ()) if function is not None else ()
        waiting += [site for site in sites if site not in waiting]
    return False


def _listed(module: Module, statement: ast.stmt, reader: ast.AST) -> ast.stmt:
    """The statement of the same block that looks for the file by listing a folder: not before it is there either."""
    for name in module.walk(reader, ast.Name):
        for binding in reaching(module, name) if isinstance(name, ast.Name) else []:
            made = binding.statement
            earlier = module.parents[made] is module.parents[statement] and comes_first(module, made, statement)
            if earlier and binding.kind == "assign":
                first = _listed(module, made, made)
                if first is not made or _lists(made):
                    return first
    return statement


def _lists(statement: ast.stmt) -> bool:
    names = (n.attr if isinstance(n, ast.Attribute) else getattr(n, "id", "") for n in walk(statement))
    return any(name in ("glob", "iglob", "listdir", "scandir", "iterdir", "rglob") for name in names)


def _asks_for_file(test: ast.expr, module: Module | None = None) -> bool:
    """Whether a test asks if there is a file; with `module`, also by a name: `found = path.exists()`."""
    parts = list(walk(test))
    for name in [part for part in parts if isinstance(part, ast.Name)] if module is not None else ():
        variable = module.variable(name) if module is not None else None
        bound = reaching(module, name) if module is not None and variable is not None else ()
        parts += [part for binding in bound if binding.value is not None for part in walk(binding.value)]
    return any(
        isinstance(node, ast.Attribute) and node.attr in ("exists", "isfile", "is_file", "isdir", "is_dir")
        for node in parts
    )


RULE = Rule(
    code=CODE,
    summary="read weights to the CPU, once they are written",
    why="A file names the GPU that saved it, so N processes would all load onto that GPU. And a file that this run writes is "
    "written by one process while others are on their way to read it. With `--target accelerate` the wrapper of a prepared model "
    "wants keys that the file does not have, so the bare model takes the weights.",
    example_before='model.load_state_dict(torch.load("best.pt", map_location=device))',
    example_after='accelerator.wait_for_everyone()\nmodel.load_state_dict(torch.load("best.pt", map_location="cpu"))',
    find=find,
)
