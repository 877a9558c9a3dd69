"""Mixed precision that a script does by hand, and the `mixed_precision=` that takes its place.

`torch.cuda.amp` does nothing on a CPU, while the Accelerator's fp16 computes in fp16 on any device. So that a run without
a GPU stays what it was, the argument asks for the precision only where there is one: `"fp16" if use_amp and
torch.cuda.is_available() else "no"`. Regions that ask for something else than the first one are left as torch's own.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable
from dataclasses import dataclass, replace

from accel_migrate.analysis.moves.devices import DeviceDefinition
from accel_migrate.analysis.placement.respelling import Respelling
from accel_migrate.analysis.precision.autocasting import Region, folded, narrow, opposite, regions_in
from accel_migrate.analysis.precision.scaling import Scaling, Test, find_scaling, guards, scaling_conditions
from accel_migrate.analysis.values.loops import Backward, CallGraph, LoaderLoop
from accel_migrate.analysis.values.provenance import NotMigrated
from accel_migrate.analysis.values.roles import Role, Roles
from accel_migrate.flow.nodes import conjuncts, unparse
from accel_migrate.flow.scopes import Module


@dataclass(frozen=True, eq=False)
class Precision:
    """The regions and scalers of one training; `argument` is None where the script computes in full precision."""

    regions: tuple[Region, ...]
    scaling: Scaling
    scaled_if: tuple[Test, ...] = ()  # conditions under which gradients are scaled; none: always
    argument: str | None = None
    settings: tuple[tuple[str, str], ...] = ()  # of the scaler

    def modules(self) -> list[Module]:
        return [*self.scaling.modules(), *[region.module for region in self.regions]]


def find_precision(graph: CallGraph, backwards: list[Backward], loops: list[LoaderLoop]) -> Precision:
    """What the functions that train and evaluate do about precision."""
    functions = {backward.function for backward in backwards} | {loop.function for loop in loops}
    modules = dict.fromkeys([*[b.module for b in backwards], *[loop.module for loop in loops]])
    for backward in backwards:
        if isinstance(backward.loss, ast.Call) and unparse(backward.loss.func).endswith(".scale"):
            scaler = unparse(backward.loss.func)
            raise NotMigrated(
                f"`{scaler}` scales the loss, and what it is built from is not visible to the analysis",
                backward.call.lineno,
            )
    scaled = any(backward.scaler is not None for backward in backwards)
    scaling = find_scaling(graph, backwards) if scaled else Scaling()
    scaled_if = scaling_conditions(scaling, backwards)
    found = [
        region
        for module in modules
        for region in regions_in(graph.roles.project, module)
        if (region.function in functions or region.function is None or _is_variable(region))
        and not (isinstance(region.enabled, ast.Constant) and region.enabled.value is False)
        and not isinstance(region.device, ast.Constant)  # the CPU by name: a GPU is not meant
    ]
    if not found:
        return Precision((), scaling, scaled_if)
    leader = found[0]
    if leader.dtype is not None and narrow(leader.module, leader.dtype) is None:
        return Precision((), scaling, scaled_if)  # the dtype cannot be told: torch's own regions stay
    return Precision(tuple(region for region in found if region.asked == leader.asked), scaling, scaled_if)


def _is_variable(region: Region) -> bool:
    return isinstance(region.module.parents[region.whole], ast.Assign)


def with_argument(
    precision: Precision, carrier: Respelling, device: DeviceDefinition | None, cpu: str | None
) -> Precision:
    """The precision with its argument, as the place that makes the Accelerator writes it."""
    if not (precision.regions or precision.scaling.definitions):
        return precision
    argument = _argument(precision, carrier, device, cpu)
    settings = []
    for name, value in precision.scaling.settings().items():
        carried = carrier.carried(precision.scaling.definitions[0][0], value)
        if carried is None:
            raise NotMigrated(
                "the GradScaler's settings are not available where the Accelerator is created", value.lineno
            )
        settings.append((name, unparse(carried)))
    if "fp16" in argument and not precision.scaling.definitions:
        settings.append(("enabled", "False"))  # the script scales nothing, and skips no step
    return replace(precision, argument=argument, settings=tuple(settings))


def _argument(precision: Precision, carrier: Respelling, device: DeviceDefinition | None, cpu: str | None) -> str:
    on_cuda = _on_cuda(carrier.module, device, cpu)
    scaled = _conditions(carrier, precision.scaled_if)
    if not precision.regions:
        return _chosen(ast.Constant("fp16"), [*scaled, on_cuda])
    region = precision.regions[0]
    wanted = _conditions(carrier, _asked(carrier.graph.roles, precision.scaling, region))
    name: ast.expr
    if region.dtype is not None:
        told = narrow(region.module, region.dtype)
        carried = carrier.carried(region.module, told) if told is not None else None
        if carried is None:
            raise NotMigrated(
                "the dtype of autocast is not available where the Accelerator is created", region.call.lineno
            )
        name = carried
    elif region.device is not None and on_cuda not in wanted:
        # torch's default: half of the GPU's kind there, bfloat16 on a CPU
        name = ast.IfExp(ast.parse(on_cuda, mode="eval").body, ast.Constant("fp16"), ast.Constant("bf16"))
    else:
        name = ast.Constant("fp16")
    if not _by_the_dtype(precision, name, scaled):
        _check_scaled_wherever_narrow(precision, carrier, scaled, [*wanted, on_cuda])
        wanted = [*scaled, *wanted]
    return _chosen(name, wanted if region.device is not None else [*wanted, on_cuda])


def _asked(roles: Roles, scaling: Scaling, region: Region) -> list[Test]:
    """The conditions that a region names itself; that there is a scaler is a condition of the scaler's."""
    asked = [] if region.enabled is None else [region.enabled]
    asked += [] if region.disabled is None else [opposite(region.disabled)]
    return [known for test in asked if (known := _known(roles, scaling, region.module, test)) is not None]


def _known(roles: Roles, scaling: Scaling, module: Module, test: ast.expr) -> Test | None:
    match test:  # `scaler`, `scaler is not None`
        case ast.Compare(left=asked, ops=[ast.IsNot()], comparators=[ast.Constant(value=None)]) | asked:
            return scaling.condition if roles.role(module, asked) & Role.SCALER else (module, test)


def _by_the_dtype(precision: Precision, name: ast.expr, scaled: list[str]) -> bool:
    """Whether gradients are scaled exactly where autocast's own dtype is half: `enabled=(dtype == torch.float16)`."""
    if len(scaled) != 1:
        return False
    module, asked = precision.scaled_if[0]
    match name:
        case ast.IfExp(test=test, body=ast.Constant(value=body), orelse=ast.Constant(value=other)):
            same = test if body == "fp16" else opposite(test)
            if (body == "fp16") != (other == "fp16") and scaled[0] == _bracketed(same):
                return True
        case ast.Subscript(value=ast.Dict(keys=keys, values=values), slice=key):
            half = [k for k, value in zip(keys, values) if isinstance(value, ast.Constant) and value.value == "fp16"]
            if [unparse(ast.Compare(key, [ast.Eq()], [k])) for k in half if k is not None] == scaled:
                return True
    dtype = precision.regions[0].dtype
    match asked:
        case ast.Compare(left=left, ops=[ast.Eq() | ast.Is()], comparators=[right]) if dtype is not None:
            return unparse(left) == unparse(dtype) and module.qualified(right) in ("torch.float16", "torch.half")
    return False


def _check_scaled_wherever_narrow(
    precision: Precision, carrier: Respelling, scaled: list[str], wanted: list[str]
) -> None:
    """The Accelerator scales wherever it computes in fp16: so must the script."""
    for region in precision.regions if scaled else ():
        tests = [part for test in guards(region.module, region.call) for part in (test, *conjuncts(test))]
        known = [_known(carrier.graph.roles, precision.scaling, region.module, test) for test in tests]
        compared = copy.copy(carrier)  # nothing of these is written
        around = [compared.carried(*test) for test in known if test is not None]
        names = {*wanted, *[_bracketed(folded(test)) for test in around if test is not None]}
        missing = [text for text in scaled if text not in names]
        if missing:
            raise NotMigrated(
                f"the GradScaler scales only if `{missing[0]}`, and autocast is not seen to depend on that; the "
                "Accelerator scales wherever it computes in fp16",
                (region.module, region.call),
            )


def _conditions(carrier: Respelling, tests: Iterable[Test]) -> list[str]:
    texts = []
    for module, test in tests:
        carried = carrier.carried(module, test)
        if carried is None:
            raise NotMigrated(
                f"`{unparse(test)}`, which turns mixed precision on, is not known where the Accelerator is made",
                getattr(test, "lineno", 1),
            )
        texts += [_bracketed(part) for part in conjuncts(folded(carried))]
    return texts


def _bracketed(test: ast.expr) -> str:
    text = unparse(test)
    loose = isinstance(test, ast.IfExp | ast.Lambda) or (isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or))
    return f"({text})" if loose else text


def _chosen(name: ast.expr, conditions: list[str]) -> str:
    conditions = [each for each in dict.fromkeys(conditions) if each != "True"]
    text = unparse(name if "False" not in conditions else ast.Constant("no"))
    if "False" in conditions:
        return text  # `train(amp=False)`: asked for nowhere
    if not conditions:
        return text
    return f"{f'({text})' if isinstance(name, ast.IfExp) else text} if {' and '.join(conditions)} else 'no'"


def _on_cuda(module: Module, device: DeviceDefinition | None, cpu: str | None) -> str:
    """The script's own test for a GPU where it has one, else torch's."""
    test = _device_test(module, device) if device is not None else None
    if test is not None:
        return test
    torch = next((name for name, dotted in module.imports.items() if dotted == "torch"), None)
    if torch is None:
        raise NotMigrated("`torch` itself is not imported where the Accelerator is made", 1)
    available = f"{torch}.cuda.is_available()"
    if cpu is None:
        return available
    wish = opposite(ast.parse(cpu, mode="eval").body)
    return _bracketed(wish) if available in map(unparse, conjuncts(wish)) else f"{_bracketed(wish)} and {available}"


def _device_test(module: Module, device: DeviceDefinition) -> str | None:
    """`use_cuda` of `torch.device("cuda" if use_cuda else "cpu")`."""
    value = device.value
    if isinstance(value, ast.Call) and module.qualified(value.func) == "torch.device" and len(value.args) == 1:
        value = value.args[0]
    if (
        isinstance(value, ast.IfExp)
        and isinstance(value.body, ast.Constant)
        and str(value.body.value).startswith("cuda")
    ):
        return _bracketed(value.test)
    return None
