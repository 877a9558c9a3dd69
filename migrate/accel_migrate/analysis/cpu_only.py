"""Scripts that know of no device: what they make lies on the CPU, so the model must stay there too.

Batches of a prepared loader come to the model's device by themselves. Tensors that the script makes, arrays that it
reads, and models that it builds later do not; with any of these the Accelerator keeps to the CPU, as the script did.
"""

from __future__ import annotations

import ast

from accel_migrate.analysis.homes import Built
from accel_migrate.analysis.roles import Role
from accel_migrate.analysis.scopes import Module
from accel_migrate.analysis.timing import Timing

_MAKERS = {
    "torch." + name
    for name in (
        "Tensor", "FloatTensor", "LongTensor", "arange", "as_tensor", "bernoulli", "empty", "eye", "from_numpy", "full",
        "linspace", "multinomial", "normal", "ones", "rand", "randint", "randn", "randperm", "tensor", "zeros",
        "autograd.Variable",
    )
}  # fmt: skip


def cpu_only(modules: tuple[Module, ...], timing: Timing, prepared: tuple[Built, ...]) -> int | None:
    """The line of the first thing that ties a script without moves to the CPU; None if nothing does, or a device is told."""
    if any(keyword.arg == "device" for module in modules for call in module.calls for keyword in call.keywords):
        return None
    if not any(built.role is Role.LOADER for built in prepared):
        return timing.place.after.lineno  # it makes its own batches
    lines = [line for module in modules for line in _tied(module, timing)]
    for built in prepared:
        if built.role is Role.MODEL:
            module = built.variable.scope.module
            bindings = [b for b in module.bindings(built.variable) if b.kind == "assign"]
            lines += [b.statement.lineno for b in bindings if timing.after_prepare(module, b.statement)]
    return min(lines, default=None)


def _tied(module: Module, timing: Timing) -> list[int]:
    """Lines that make tensors, or hand them to numpy, while or after the model is trained."""
    return [
        call.lineno
        for call in module.calls
        if (module.qualified(call.func) in _MAKERS or _reads_array(call)) and _runs_late(module, call, timing)
    ]


def _reads_array(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr == "numpy" and not call.args


def _runs_late(module: Module, node: ast.AST, timing: Timing) -> bool:
    if timing.after_prepare(module, node):
        return True
    function = module.scope(node).function
    # What a model does when it runs is not called by its name.
    return function is not None and function.name != "__init__" and module.scope(node).owner_class is not None
