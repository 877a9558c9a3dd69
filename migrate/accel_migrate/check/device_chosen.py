"""AM964: what the script asked before it chose between the CPU and a GPU still decides."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from accel_migrate.check.condition import Condition, Project, Violation
from accel_migrate.check.deciding import Deciding
from accel_migrate.check.devices_together import Devices
from accel_migrate.check.evidence import Side
from accel_migrate.check.fed_on_device import is_move
from accel_migrate.check.machines_gpu import MachinesGpu
from accel_migrate.check.with_a_gpu import GPUS, WithAGpu, asked_of, device_named, is_choice, opposite
from accel_migrate.flow.nodes import called_name, unparse, walk
from accel_migrate.flow.once import once
from accel_migrate.flow.scopes import Module

CODE = "AM964"
_RANKS = (b"torch.distributed", b"RANK", b"local_rank", b"spawn", b"DistributedDataParallel")
_DIGITS = re.compile(r"(?<![a-z\d])\d+")
_CHOSEN = re.compile(rb"set_device|\.cuda\(\s*[A-Za-z_]")
_WORD = re.compile(r"\w+")
_UNWRAPPED = re.compile(r"\w+\.unwrap_model\(([\w.]+)\)")


def find(project: Project) -> Iterator[Violation]:
    """The choices that the Accelerator took over: it has one device, so they must agree, and it must be told."""
    found = [*_gpus_unset(project), *_chosen_outside(project), *_options_unheard(project)]
    found += _choices_unheard(project)
    yield from found or _not_the_machines(project)


def _choices_unheard(project: Project) -> Iterator[Violation]:
    """`"cuda" if args.gpu else "cpu"` that is gone."""
    after = project.evidence.after
    if not after.created or not any(b"cpu" in pair.before.source.data for pair in project.changed):
        return
    told = {name for _, call in after.created for keyword in call.keywords for name in _read(keyword.value)}
    for pair in project.changed:
        before, result = project.evidence.before.file(pair.path), after.file(pair.path)
        gone = _gone(_Choices(before), _Choices(result)) if before is not None and result is not None else []
        for choice in gone:
            if choice.is_cpu_if != gone[0].is_cpu_if:
                both = f"`{unparse(gone[0].node)}` and `{unparse(choice.node)}`"
                yield Violation(
                    CODE, pair.path, 1, f"{both} are chosen by different conditions, and would be one device"
                )
                return
        if gone and not any(reads <= told for reads in gone[0].reads):
            text = unparse(gone[0].node)
            yield Violation(
                CODE, pair.path, 1, f"`{text}` decides on the device, and the Accelerator would not know of it"
            )


def _gpus_unset(project: Project) -> Iterator[Violation]:
    """`torch.cuda.set_device(args.gpu)` or `model.cuda(args.gpu)` that is gone, in a project that knows no ranks: the number
    was the user's choice.
    """
    sides = project.evidence
    if not sides.after.created or any(word in pair.before.source.data for pair in project.files for word in _RANKS):
        return
    named = [k.value for _, call in sides.after.created for k in call.keywords if k.arg == "device"]
    told = {word for value in named for word in (*_read(value), *_numbers([value]))}
    for pair in project.changed:
        if not _CHOSEN.search(pair.before.source.data):
            continue
        before, result = sides.before.file(pair.path), sides.after.file(pair.path)
        choosing = [call for file, call in sides.before.calls if file is before and _chooses_gpu(file, call)]
        left = {unparse(call) for file, call in sides.after.calls if file is result} if choosing else set()
        for call in choosing:
            if unparse(call) in left:
                continue
            chosen = [argument for argument in call.args[:1] if not _is_told(sides.before, before, argument, told)]
            if chosen and (result is None or not _is_accelerators(result, unparse(chosen[0]))):
                message = f"`{unparse(call)}` chooses the GPU, and the Accelerator would not know of it"
                yield Violation(CODE, pair.path, 1, message)


def _chosen_outside(project: Project) -> Iterator[Violation]:
    """Moves that are gone, to a device that a configuration or an option names: the Accelerator must be told of it."""
    before, after = project.evidence.before, project.evidence.after
    if not after.created or any(word in pair.before.source.data for pair in project.files for word in _RANKS):
        return
    devices = after.once(Devices)
    given = [(file, keyword.value) for file, call in after.created for keyword in call.keywords]
    told = {text for file, value in given for text in devices.of(file, value)}
    words = {word for _, value in given for word in _read(value)}
    changed = {pair.path for pair in project.changed}
    for file, call, named, found in before.once(Devices).moves():
        unknown = sorted(text for text in found - told if text.split(":")[0] not in ("cpu", *GPUS))
        if file.path not in changed or named is None or not unknown:
            continue
        if not words & {*_read(named), *_WORD.findall(unknown[0])} and not _often_left(after, file, call):
            message = f"`{unparse(call)[:60]}` goes to {unknown[0]}, and the Accelerator would not know of it"
            yield Violation(CODE, file.path, 1, message)
            return


def _options_unheard(project: Project) -> Iterator[Violation]:
    """Moves that are gone, to a GPU or not by an option, whatever lies between the two: the Accelerator must be told of it."""
    before, after = project.evidence.before, project.evidence.after
    if not after.created or any(word in pair.before.source.data for pair in project.files for word in _RANKS):
        return
    if not before.once(Deciding).are_parsed:
        return
    given = [(file, keyword.value) for file, call in after.created for keyword in call.keywords]
    told = {name for file, value in given for name in after.once(Deciding).options(file, value)}
    changed = {pair.path for pair in project.changed}
    met: Counter[tuple[Path, str]] = Counter()
    for file, call, named, found in before.once(Devices).moves():
        met[file.path, unparse(call)] += 1
        choices = [named] if named is not None and "cpu" in found and len(found) > 1 else []
        choices += _guards(file, call)
        if file.path not in changed or not choices:
            continue
        if met[file.path, unparse(call)] <= _often_left(after, file, call):
            continue
        for choice in choices:
            for option in sorted(before.once(Deciding).options(file, choice) - told):
                message = (
                    f"the option --{option} decides on `{unparse(call)[:60]}`, and the Accelerator would not know of it"
                )
                yield Violation(CODE, file.path, 1, message)
                return


def _not_the_machines(project: Project) -> Iterator[Violation]:
    """Moves that are gone beside an Accelerator that is told nothing: they went to the GPU wherever there is one, as it does."""
    before, after = project.evidence.before, project.evidence.after
    if not after.created or any(word in pair.before.source.data for pair in project.files for word in _RANKS):
        return
    told = {f.path for f, call in after.created if any(keyword.arg in ("cpu", "device") for keyword in call.keywords)}
    untold = {file.path for file, _ in after.created} - told
    changed = {pair.path for pair in project.changed if not told or pair.path in untold}
    for file, call, named, _ in before.once(Devices).moves():
        numbered = isinstance(call.func, ast.Attribute) and call.func.attr == "cuda"
        if file.path not in changed or named is None or numbered or _often_left(after, file, call):
            continue
        text = before.once(MachinesGpu).doubted(file, named)
        moved = call.func.value if isinstance(call.func, ast.Attribute) else None
        if text == "`None`" and moved is not None and before.once(MachinesGpu).is_there(file, moved):
            continue
        if text is not None and project.evidence.ran(file, call):
            message = (
                f"`{unparse(call)[:60]}` goes to {text}, which is not known to be a GPU wherever there is one, and the "
                "Accelerator would not know of it"
            )
            yield Violation(CODE, file.path, 1, message)
            return


def _often_left(after: Side, file: Module, call: ast.Call) -> int:
    """How often the result has a call of the original, past what unwraps a model for it."""
    text, left = unparse(call), _calls_left(after)
    named = [*left.get((file.path, called_name(call)), ()), *left.get((file.path, ""), ())]
    return sum(_UNWRAPPED.sub(r"\1", unparse(each)) == text for each in named)


@once
def _calls_left(after: Side) -> dict[tuple[Path, str], list[ast.Call]]:
    """The calls of the result without the moves to the Accelerator's device: it took those over, though they read as before."""
    taken = {call for _, call, _, found in after.once(Devices).moves() if found == {"accelerator"}}
    left: dict[tuple[Path, str], list[ast.Call]] = {}
    for file, call in after.calls:
        if call not in taken:
            left.setdefault((file.path, called_name(call)), []).append(call)
    return left


def _guards(file: Module, call: ast.Call) -> Iterator[ast.expr]:
    """The tests of `if`s around a move that do nothing but move."""
    for above in file.ancestors(call):
        if isinstance(above, ast.If) and all(is_move(each) for each in above.body):
            yield above.test


def _chooses_gpu(file: Module, call: ast.Call) -> bool:
    """Whether a call takes the number of a GPU from elsewhere; a device that the file makes is another question."""
    if file.qualified(call.func) == "torch.cuda.set_device":
        return True
    if not isinstance(call.func, ast.Attribute) or call.func.attr != "cuda" or not call.args:
        return False
    number = call.args[0]
    if not isinstance(number, ast.Name):
        return isinstance(number, ast.Attribute | ast.Subscript)
    values = [
        node.value
        for node in file.walk(file.tree, ast.Assign)
        if any(isinstance(t, ast.Name) and t.id == number.id for t in node.targets)
    ]
    return bool(values) and all(isinstance(value, ast.Attribute | ast.Subscript) for value in values)


def _is_told(side: Side, file: Module | None, number: ast.expr, told: set[str]) -> bool:
    """Whether the Accelerator is told of all that a number is read from, or of what its name is set to in the file."""
    values = (side.once(Devices).assigned(file, number) if file is not None else []) or [number]
    parts = [part for value in values for part in walk(value) if not _is_torchs(file, part)]
    words = {word for part in parts for word in _word(part)} | _numbers(values)
    named = {*_read(number)} | _numbers([number])
    return named <= told or (len(values) == 1 and words <= told)


def _numbers(values: Iterable[ast.expr]) -> set[str]:
    """The numbers of GPUs, but the first, that values name: `1`, `"cuda:1"`."""
    constants = [part.value for value in values for part in walk(value) if isinstance(part, ast.Constant)]
    return {each for value in constants for each in _DIGITS.findall(str(value))} - {"0"}


def _is_torchs(file: Module | None, node: ast.AST) -> bool:
    named = file.qualified(node) if file is not None and isinstance(node, ast.Name | ast.Attribute) else None
    return (named or "").partition(".")[0] == "torch"


def _is_accelerators(file: Module, name: str) -> bool:
    """Whether a file sets a name to the Accelerator's device."""
    return any(
        isinstance(node, ast.Assign)
        and unparse(node.targets[0]) == name
        and unparse(node.value).endswith("accelerator.device")
        for node in file.walk(file.tree, ast.Assign)
    )


class _Choice(NamedTuple):
    node: ast.IfExp
    is_cpu_if: str  # the condition, on a machine that has a GPU
    reads: tuple[frozenset[str], ...]  # the names that the condition reads, or those that they are made of


def _gone(before: _Choices, after: _Choices) -> list[_Choice]:
    """The choices of the original that the result no longer makes, in the order of the file."""
    left = Counter(unparse(node) for node in after.found)
    gone = []
    for node in before.found:
        left[unparse(node)] -= 1
        if left[unparse(node)] < 0:
            gone.append(before.choice(node))
    return gone


class _Choices:
    """Where a file chooses between the CPU and a GPU: `"cuda" if ... else "cpu"`."""

    def __init__(self, file: Module) -> None:
        self._gpu = WithAGpu(file)
        self.found = [node for node in file.walk(file.tree, ast.IfExp) if is_choice(node)]

    def choice(self, node: ast.IfExp) -> _Choice:
        test = self._gpu.condition(node.test)
        condition = test if device_named(node.body) == "cpu" else opposite(test)
        if isinstance(condition, bool):
            return _Choice(node, str(condition), (frozenset(),))
        asked = asked_of(node.test)
        made = self._gpu.value(asked.name) if asked is not None else None
        sources = [condition, node.test, *([made] if made is not None else [])]
        return _Choice(node, unparse(condition), tuple(frozenset(_read(source)) for source in sources))


def _read(node: ast.AST) -> Iterator[str]:
    """The names and attributes that an expression reads, each by its last word."""
    for part in walk(node):
        yield from _word(part)


def _word(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Attribute):
        yield node.attr


CONDITION = Condition(
    code=CODE,
    name="device_chosen",
    summary="an option that chooses the device would be dead, or two choices would become one",
    why="An Accelerator has one device. Where the script chooses between the CPU and a GPU by a condition of its own, "
    "that condition is given to the Accelerator (`cpu=...`), and a second condition stays in the script.",
    example_before='table = table.to(accelerator.device)  # was: "cuda" if args.mode == "gpu" else "cpu"',
    example_after='table = table.to("cuda" if args.mode == "gpu" else "cpu")',
    find=find,
)
