"""What Python asks of a tensor, and of torch to make one: where it is, to move it, to make it on a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from tests.gpu_stand_in.marks import ANYWHERE, CPU, Marks
from tests.gpu_stand_in.modes import Machine

_PLAIN = torch._C.TensorBase
_FACTORIES = [
    "arange",
    "as_tensor",
    "asarray",
    "bartlett_window",
    "blackman_window",
    "empty",
    "empty_like",
    "empty_strided",
    "eye",
    "frombuffer",
    "full",
    "full_like",
    "hamming_window",
    "hann_window",
    "linspace",
    "logspace",
    "normal",
    "ones",
    "ones_like",
    "rand",
    "rand_like",
    "randint",
    "randint_like",
    "randn",
    "randn_like",
    "randperm",
    "range",
    "scalar_tensor",
    "tensor",
    "tril_indices",
    "triu_indices",
    "zeros",
    "zeros_like",
    "complex",
]
_METHODS = ["new_empty", "new_full", "new_ones", "new_tensor", "new_zeros"]


def replaced(machine: Machine) -> Iterator[tuple[Any, str, Any]]:
    """What takes the place of which attribute."""
    marks = machine.marks
    plain = {name: getattr(torch.Tensor, name) for name in ("numpy", "__array__", "__deepcopy__")}

    def where(tensor: torch.Tensor) -> torch.device:
        found = marks.of(tensor) if tensor.layout is torch.strided else CPU
        return CPU if found is ANYWHERE else found

    def on_cpu(name: str) -> Any:
        def read(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            if where(tensor).type == "cuda":
                raise TypeError(
                    f"can't convert {where(tensor)} device type tensor to numpy. Use Tensor.cpu() to copy the tensor to "
                    "host memory first."
                )
            return plain[name](tensor, *args, **kwargs)

        return read

    def moved(tensor: torch.Tensor, device: torch.device | None) -> torch.Tensor:
        if device is None or device == where(tensor):
            return tensor
        return _Moved.apply(tensor, marks, where(tensor), device)

    def to(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        device, rest, settings = _parsed(machine, where, args, kwargs)
        if device is not None and device.type not in ("cuda", "cpu"):
            return _PLAIN.to(tensor, *args, **kwargs)
        return moved(_PLAIN.to(tensor, *rest, **settings) if rest or settings else tensor, device)

    def cuda(tensor: torch.Tensor, device: Any = None, non_blocking: bool = False, **kwargs: Any) -> torch.Tensor:
        return moved(tensor, machine.device("cuda" if device is None else device))

    def deepcopy(tensor: torch.Tensor, memo: Any) -> torch.Tensor:
        made: torch.Tensor = plain["__deepcopy__"](tensor, memo)
        if made.layout is torch.strided:
            marks.set(made, where(tensor))
        return made

    def kind(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if not args and not kwargs:
            name = _PLAIN.type(tensor)
            return name.replace("torch.", "torch.cuda.") if where(tensor).type == "cuda" else name
        wanted = args[0] if args else kwargs["dtype"]
        if isinstance(wanted, torch.dtype):
            return _PLAIN.type(tensor, wanted)
        named = wanted if isinstance(wanted, str) else f"{wanted.__module__}.{wanted.__name__}"
        device = machine.device("cuda" if ".cuda." in named else "cpu")
        return moved(_PLAIN.type(tensor, named.replace(".cuda.", ".")), device)

    def type_as(tensor: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return moved(_PLAIN.type(tensor, other.dtype), where(other))

    found: dict[str, Any] = {
        "device": property(where),
        "is_cuda": property(lambda tensor: where(tensor).type == "cuda"),
        "is_cpu": property(lambda tensor: where(tensor).type == "cpu"),
        "get_device": lambda tensor: where(tensor).index if where(tensor).type == "cuda" else -1,
        "numpy": on_cpu("numpy"),
        "__array__": on_cpu("__array__"),
        "to": to,
        "cuda": cuda,
        "cpu": lambda tensor, *a, **k: moved(tensor, CPU),
        "type": kind,
        "type_as": type_as,
        "__deepcopy__": deepcopy,
        "pin_memory": lambda tensor, *a, **k: tensor,
        "record_stream": lambda tensor, stream: None,
    }
    for name, value in found.items():
        yield torch.Tensor, name, value
    for name in _FACTORIES:
        yield torch, name, _factory(machine, getattr(torch, name), moved)
    yield torch._C._nn, "_parse_to", _module_moves(machine, torch._C._nn._parse_to)
    yield torch, "ctc_loss", _trusted(machine, torch.ctc_loss)
    for name in _METHODS:
        yield torch.Tensor, name, _factory(machine, getattr(torch.Tensor, name), moved)


def _parsed(
    machine: Machine, where: Any, args: Any, kwargs: Any
) -> tuple[torch.device | None, list[Any], dict[str, Any]]:
    """The device of `.to(...)`, and what else it was told."""
    rest = [item for item in args if item is not None]
    settings = {key: value for key, value in kwargs.items() if key not in ("device", "non_blocking", "other")}
    device = machine.device(kwargs.get("device"))
    other = kwargs.get("other", rest[0] if rest and isinstance(rest[0], torch.Tensor) else None)
    if other is not None:
        return where(other), [other.dtype], settings
    if rest and not isinstance(rest[0], torch.dtype):
        device = machine.device(rest.pop(0)) or device
    return device, [item for item in rest if isinstance(item, torch.dtype)], settings


def _factory(machine: Machine, plain: Any, moved: Any) -> Any:
    """A function that makes a tensor, on the GPU that it is told or where the tensor is that it is like."""
    shares_memory = plain in (torch.as_tensor, torch.asarray)

    def made(*args: Any, **kwargs: Any) -> Any:
        device = machine.device(kwargs.get("device"))
        if device is None:
            like = next((a for a in args if isinstance(a, torch.Tensor)), None)
            device = machine.default if like is None or plain is torch.tensor else machine.marks.of(like)
        elif device.type == "cuda":
            kwargs["device"] = CPU
        before = machine.making
        machine.making = CPU if shares_memory else device
        try:
            result = plain(*args, **kwargs)
        finally:
            machine.making = before
        if device.type not in ("cuda", "cpu", ANYWHERE.type) or not isinstance(result, torch.Tensor):
            return result
        if shares_memory:
            return moved(result, device)
        if machine.marks.of(result) != device and (device.type == "cuda" or machine.marks.of(result) is ANYWHERE):
            machine.marks.set(result, device)
        return result

    made.__name__ = getattr(plain, "__name__", "made")
    return made


def _module_moves(machine: Machine, plain: Any) -> Any:
    """What `model.to(...)` reads its arguments with: a number means a GPU."""

    def parsed(*args: Any, **kwargs: Any) -> Any:
        return plain(*[machine.device(a) if type(a) is int else a for a in args], **kwargs)

    return parsed


def _trusted(machine: Machine, plain: Any) -> Any:
    """A function whose first argument says where it computes, and which takes lengths from anywhere."""

    def done(first: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        machine.trusted = first.device
        try:
            return plain(first, *args, **kwargs)
        finally:
            machine.trusted = None

    return done


class _Moved(torch.autograd.Function):
    """A copy on another device, whose gradient comes back to where the original is."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, marks: Marks, here: torch.device, there: torch.device) -> torch.Tensor:
        ctx.marks, ctx.here = marks, here
        made = tensor.clone()
        marks.set(made, there)
        return made

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        made = gradient.clone()
        ctx.marks.set(made, ctx.here)
        return made, None, None, None
