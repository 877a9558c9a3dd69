"""AM972: figures that are put together from all processes come from one network, its running statistics included."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from accel_migrate.check.condition import Condition, Project, Violation
from accel_migrate.check.evidence import Side
from accel_migrate.check.stores import Stores
from accel_migrate.flow.calls import Place
from accel_migrate.flow.fields import self_of
from accel_migrate.flow.nodes import unparse, walk
from accel_migrate.flow.scopes import Module

CODE = "AM972"
NORMALISED = re.compile(
    r"torchvision\.models\.(\w+\.)*((wide_)?(resnet|resnext|densenet|mobilenet|googlenet|inception|mnasnet|shufflenet|efficient"
    r"net|regnet)|vgg\w+_bn)|timm\.create_model|torch\.nn\.(\w+\.)*BatchNorm"
)
_DEPTH = 8


def find(project: Project) -> Iterator[Violation]:
    side = project.evidence.after
    gathering = {call for _, call in side.asked("gather_for_metrics", "sum_for_metrics")}
    gathered = [(file, loop) for file, loop in _loops(side) if not gathering.isdisjoint(file.walk(loop, ast.Call))]
    for file, call in _put_in_training_mode(side) if gathered else ():
        reached = side.flows.reached([side.flows.place(file, call.func.value)], computed=False)  # type: ignore[attr-defined]
        name = unparse(call.func.value)  # type: ignore[attr-defined]
        for other, loop in gathered:
            run = [n for n in walk(loop) if isinstance(n, ast.Call) and _is_run(side, other, n, reached, file, name)]
            if run:
                message = (
                    f"`{name}` is not prepared and normalises by running statistics, which each process would take from its "
                    f"own batches, and `{unparse(run[0])[:60]}` gives figures that are added up over the processes"
                )
                yield Violation(CODE, file.path, call.lineno, message)
                break


def _loops(side: Side) -> Iterator[tuple[Module, ast.AST]]:
    for file in side.files:
        yield from ((file, node) for node in file.walk(file.tree, ast.For, ast.AsyncFor, ast.While))


def _put_in_training_mode(side: Side) -> Iterator[tuple[Module, ast.Call]]:
    """`encoder.train()` of a network with batch normalisation that nobody prepared."""
    for file, call in side.calls:
        if not (isinstance(call.func, ast.Attribute) and call.func.attr == "train") or call.args or call.keywords:
            continue
        if not side.flows.made(file, call.func.value, "prepared") and _normalises(side, file, call.func.value):
            yield file, call


def _is_run(side: Side, file: Module, call: ast.Call, reached: set[Place], home: Module, name: str) -> bool:
    called = side.flows.place(file, call.func)
    return called in reached or (file is home and unparse(call.func) == name)


def _normalises(side: Side, file: Module, value: ast.expr) -> bool:
    """Whether a network has layers with running statistics, by the expressions that built it and the classes these name."""
    seen, current = {value}, [(file, value)]
    for _ in range(_DEPTH):
        stores = []
        for home, built in current:
            for node in walk(built):
                if isinstance(node, ast.Name | ast.Attribute):
                    if NORMALISED.match(home.qualified(node) or "") or _is_of_normalising_class(side, home, node):
                        return True
                    stores += side.once(Stores).of(_place(side, home, node))
        current = []
        for store in stores:
            if store.value is not None and store.value not in seen:
                seen.add(store.value)
                current.append((store.file, store.value))
    return False


def _is_of_normalising_class(side: Side, file: Module, node: ast.expr) -> bool:
    for made in side.flows.made(file, node):
        if made.kind in ("class", "instance") and isinstance(made.node, ast.ClassDef):
            owner = next(f for f in side.files if made.node in f.parents)
            if any(NORMALISED.match(owner.qualified(n) or "") for n in walk(made.node)):
                return True
    return False


def _place(side: Side, file: Module, node: ast.Name | ast.Attribute) -> Place:
    owner = self_of(file, node.value) if isinstance(node, ast.Attribute) else None
    if isinstance(node, ast.Attribute):
        return ("field of", owner.node, node.attr) if owner is not None else ("none",)
    return side.flows.variable(file.scope(node), node.id)


CONDITION = Condition(
    code=CODE,
    name="statistics_together",
    summary="an evaluation would be put together from networks with different running statistics",
    why="A network that nothing trains is not prepared. In training mode its batch normalisation goes on taking statistics, on "
    "each process from that process's batches, and no wrapper gives all of them those of one. Figures of an evaluation that "
    "runs it would be added up from different networks: call its eval(), or prepare it with the rest.",
    example_before="encoder.train()  # frozen, with BatchNorm\nfor x, y in accelerator.whole_batches(loader):\n"
    "    total += accelerator.sum_for_metrics(loss(decoder(encoder(x)), y).item())",
    example_after="encoder.eval()\nfor x, y in accelerator.whole_batches(loader):\n"
    "    total += accelerator.sum_for_metrics(loss(decoder(encoder(x)), y).item())",
    find=find,
)
