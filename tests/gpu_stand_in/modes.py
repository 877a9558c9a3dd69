"""Keeps the marks: a mode of torch sees every operation, and checks that its tensors are on one device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.gpu_stand_in.marks import ANYWHERE, CPU, Marks, tensors_in

_ACROSS_DEVICES = {"aten::copy_", "aten::_to_copy", "aten::set_"}
_INDEXED = {"aten::index", "aten::index_put_", "aten::index_put", "aten::_index_put_impl_", "aten::_unsafe_index"}


class Machine:
    """The marks of all tensors, which GPU is current, and each GPU's generator."""

    def __init__(self, count: int) -> None:
        self.marks = Marks()
        self.count = count
        self.current = 0
        self.default = CPU
        self.making: torch.device | None = None  # where a factory was asked to make its tensor
        self.trusted: torch.device | None = (
            None  # of an operation that torch makes of several, with lengths from the CPU
        )
        # Torch hands generators on without what Python knows of them: once there is one of a GPU, none is checked.
        self.has_generators = False
        self.states: dict[int, torch.Tensor] = {}

    def device(self, named: Any) -> torch.device | None:
        """The device that an argument names, with its number; None if it names none."""
        if isinstance(named, int) and not isinstance(named, bool):
            named = torch.device("cuda", named)
        if isinstance(named, str):
            try:
                named = torch.device(named)
            except RuntimeError:
                return None
        if not isinstance(named, torch.device):
            return None
        if named.type != "cuda":
            return named
        number = self.current if named.index is None else named.index
        if number >= self.count:
            raise RuntimeError(f"CUDA error: invalid device ordinal {number} of {self.count}")
        return torch.device("cuda", number)

    def seed(self, seed: int, number: int | None = None) -> None:
        for each in range(self.count) if number is None else [number]:
            # Another seed, so that what a GPU draws is not what the CPU draws.
            self.states[each] = torch._C.Generator().manual_seed(seed + 77_000_077).get_state()

    def drawn(self, device: torch.device, function: Callable[[], Any]) -> Any:
        """Runs a random operation with the generator of a GPU."""
        number = device.index or 0
        if number not in self.states:
            self.seed(0)
        generator = torch.default_generator
        before = generator.get_state()
        generator.set_state(self.states[number])
        try:
            return function()
        finally:
            self.states[number] = generator.get_state()
            generator.set_state(before)


class OneDevice(TorchDispatchMode):
    """Every operation: its tensors must be on one device, where its results are, too."""

    def __init__(self, machine: Machine) -> None:
        super().__init__()
        self.machine = machine

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name
        where = self._where(name, args, kwargs)
        generator = next((v for v in (*args, *kwargs.values()) if isinstance(v, torch._C.Generator)), None)
        if generator is not None and where.type == "cuda" and not self.machine.has_generators:
            raise RuntimeError(f"Expected a 'cuda' device type for generator but found 'cpu' (in {name})")
        if torch.Tag.nondeterministic_seeded in func.tags and where.type == "cuda" and generator is None:
            made = self.machine.drawn(where, lambda: func(*args, **kwargs))
        else:
            made = func(*args, **kwargs)
        self._mark(name, where, made, (args, kwargs))
        return made

    def _mark(self, name: str, where: torch.device, made: Any, given: Any) -> None:
        if where == CPU:
            return
        known = {tensor.untyped_storage()._cdata for tensor in tensors_in(given)}
        placed = made[:1] if name == "aten::_pack_padded_sequence" else made  # the sizes of batches stay on the CPU
        for tensor in tensors_in(placed):
            if tensor.untyped_storage()._cdata not in known:
                self.machine.marks.set(tensor, where)

    def _where(self, name: str, args: Any, kwargs: dict[str, Any]) -> torch.device:
        """The device of an operation; raises as torch does where there are two."""
        marks = self.machine.marks
        if self.machine.trusted is not None:
            return self.machine.trusted
        tensors = self._compared(name, args, kwargs)
        if not tensors:
            return self.machine.making if self.machine.making is not None else ANYWHERE
        if name in _ACROSS_DEVICES and ANYWHERE not in map(marks.of, tensors):
            return marks.of(tensors[0])
        found = {marks.of(tensor) for tensor in tensors if tensor.dim() or marks.of(tensor).type == "cuda"} - {ANYWHERE}
        if len(found) > 1:
            both = " and ".join(sorted(map(str, found), reverse=True))
            raise RuntimeError(
                f"Expected all tensors to be on the same device, but found at least two devices, {both}! (in {name})"
            )
        where = next(iter(found)) if found else marks.of(tensors[0])
        if found:
            for tensor in tensors:
                if marks.of(tensor) is ANYWHERE:
                    marks.set(tensor, where)
        return where

    def _compared(self, name: str, args: Any, kwargs: dict[str, Any]) -> list[torch.Tensor]:
        """The tensors that must be on one device: torch takes indices and lengths from the CPU."""
        marks = self.machine.marks
        if name in _INDEXED:
            indices = [t for t in tensors_in(args[1]) if marks.of(t) not in (CPU, ANYWHERE)]
            return [args[0], *indices, *tensors_in(args[2:])]
        if name == "aten::_pack_padded_sequence":
            if marks.of(args[1]).type == "cuda":
                raise RuntimeError(
                    f"'lengths' argument should be a 1D CPU int64 tensor, but got one on {marks.of(args[1])}"
                )
            return [args[0]]
        if "_ctc_loss" in name:
            return [tensor for tensor in tensors_in((args, kwargs)) if tensor.dtype.is_floating_point]
        return list(tensors_in((args, kwargs)))
