"""Which options of a script decide on a device: by a condition, through variables, attributes, arguments and results."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property

from accel_migrate.check.devices_together import Devices
from accel_migrate.check.evidence import Side
from accel_migrate.flow.calls import Place
from accel_migrate.flow.nodes import walk
from accel_migrate.flow.scopes import Module


class Deciding:
    """The options of a parser, and all that is decided by each."""

    def __init__(self, side: Side) -> None:
        self._side = side
        self._decided: dict[str, set[Place]] = {}

    def options(self, file: Module, node: ast.expr) -> set[str]:
        """The options that an expression depends on."""
        if not self.are_parsed:
            return set()
        place = self._side.flows.place(file, node)
        return {name for name in self._read if place in self._by(name)}

    @cached_property
    def are_parsed(self) -> bool:
        """Whether the script has options at all."""
        return any(getattr(call.func, "attr", "") == "parse_args" for _, call in self._side.calls)

    def _by(self, name: str) -> set[Place]:
        """Every place that an option decides, also by an `if` that sets a device, or by a device made of it."""
        if name not in self._decided:
            flows = self._side.flows
            found = flows.reached(self._read[name])
            while more := {made for made, asked in self._devices if asked in found} - found:
                found = flows.reached(found | more)
            self._decided[name] = found
        return self._decided[name]

    @cached_property
    def _read(self) -> dict[str, list[Place]]:
        """Where each option is read; what the script sets itself is no option any more."""
        found: dict[str, list[Place]] = {}
        for file in self._side.files:
            for node in file.walk(file.tree, ast.Attribute):
                if self._side.flows.made(file, node.value, "options"):
                    found.setdefault(node.attr, []).append(self._side.flows.place(file, node))
        return {name: places for name, places in found.items() if name not in self._set}

    @cached_property
    def _set(self) -> set[str]:
        attributes = (node for file in self._side.files for node in file.walk(file.tree, ast.Attribute))
        return {node.attr for node in attributes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}

    @cached_property
    def _devices(self) -> list[tuple[Place, Place]]:
        """Places of devices, each with a place that decides on it."""
        return [pair for file in self._side.files for pair in (*self._made(file), *self._chosen(file))]

    def _made(self, file: Module) -> Iterator[tuple[Place, Place]]:
        flows = self._side.flows
        for call in file.walk(file.tree, ast.Call):
            if file.qualified(call.func) == "torch.device":
                yield from ((flows.place(file, call), flows.place(file, argument)) for argument in call.args)

    def _chosen(self, file: Module) -> Iterator[tuple[Place, Place]]:
        """`if args.cpu: device = "cpu"`, and what a function returns so."""
        flows, devices = self._side.flows, self._side.once(Devices)
        for branch in file.walk(file.tree, ast.If):
            for node in walk(branch):
                if (
                    not isinstance(branch, ast.If)
                    or not isinstance(node, ast.Assign | ast.Return)
                    or node.value is None
                ):
                    continue
                if not devices.of(file, node.value):
                    continue
                test = flows.place(file, branch.test)
                for target in node.targets if isinstance(node, ast.Assign) else ():
                    if isinstance(target, ast.Name):
                        yield flows.variable(file.scope(target), target.id), test
                    elif isinstance(target, ast.Attribute):
                        yield flows.field(file, target), test
                if isinstance(node, ast.Return):
                    yield ("result", file.scope(node).frame.node), test
