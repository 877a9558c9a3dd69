"""A sharded tensor in the hands of a script stands for the whole one.

Torch does right what it does with shards alone. Beside plain tensors, in random numbers and in writes to a part it refuses, or
changes nothing and says nothing: there the whole tensor is gathered, and each process keeps its shard of what became of it. All
processes must do it alike, as they run the model.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor, Replicate
from torch.utils._pytree import tree_leaves, tree_map

from accel_runtime.errors import UsageError
from accel_runtime.shards import local, shard_like
from accel_runtime.strategies.fsdp_successors import Replaced, present

Function = Callable[..., Any]

NUMBERS = {
    "item", "tolist", "numpy", "__array__", "__float__", "__int__", "__bool__", "__index__", "__complex__", "__format__",
}  # fmt: skip
# Of these only the type and the device of the weight are wanted, as for the first state of a recurrent layer.
MAKERS = {"new", "new_empty", "new_full", "new_ones", "new_tensor", "new_zeros"}
# They look for the very tensors they are given.
AUTOGRAD = {"backward", "grad", "register_hook", "register_post_accumulate_grad_hook"}
IN_PLACE = re.compile(r"[a-z0-9]_$|__i(add|sub|mul|truediv|floordiv|mod|pow|and|or|xor)__$|__setitem__$")
# Drawn for each shard they would be the same rows on every process, where processes are seeded alike.
DRAWN = {
    "bernoulli", "bernoulli_", "cauchy_", "dropout", "exponential_", "geometric_", "log_normal_", "multinomial",
    "normal", "normal_", "rand_like", "randint_like", "randn_like", "random_", "uniform_",
}  # fmt: skip
# Along the sharded dimension torch gives copies for them.
VIEWS = {
    "__getitem__", "as_strided", "chunk", "diagonal", "expand", "expand_as", "flatten", "movedim", "narrow", "permute",
    "reshape", "reshape_as", "select", "split", "squeeze", "swapaxes", "t", "tensor_split", "transpose", "unbind",
    "unflatten", "unfold", "unsqueeze", "view", "view_as",
}  # fmt: skip
# What torch says of a shard beside a whole tensor or in the place of one, and of weights that are no longer gathered.
OF_SHARDS = re.compile(
    r"DTensor|tensor subclasses|sharded dimension|sharding strategy|placement changes|Invariant encountered: value was None"
    r"|setStorage: sizes"
)


class Hands:
    """What a script does with sharded tensors, in the place of what torch would do."""

    def __init__(self) -> None:
        self.announce: Callable[[str], None] = lambda name: None

    def install(self, announce: Callable[[str], None]) -> None:
        """For all sharded tensors of this process; `announce` returns when all processes mean the same."""
        self.announce = announce
        DTensor.__torch_function__ = self  # type: ignore[method-assign]

    def __call__(self, function: Function, types: Iterable[type], args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = function.__name__
        with torch._C.DisableTorchFunctionSubclass():
            if name == "__get__":
                return function(*args)
            if Replaced in types:
                args, kwargs = tree_map(present, args), tree_map(present, kwargs)
            if name == "__set__":
                return _assign(function, *args)
            if name in NUMBERS:
                return self._number(function, args, kwargs)
            if name in MAKERS:
                plain = torch.empty(0, dtype=args[0].dtype, device=args[0].device_mesh.device_type)
                return function(plain, *args[1:], **kwargs)
            if name == "__iter__":
                return iter(_computed(Tensor.unbind, args, kwargs))
            if name == "__reduce_ex__":
                _refuse_pickling(args[0])
            if name == "register_hook" and (hooks := vars(args[0]).get("gradient_hooks")) is not None:
                return hooks.add(*args[1:], **kwargs)
            if name in AUTOGRAD:
                return function(*args, **kwargs)
            if IN_PLACE.search(name):
                return _change(function, args, kwargs)
            return _computed(function, args, kwargs)

    def _number(self, function: Function, args: Any, kwargs: Any) -> Any:
        if _sharded(args[0]):
            self.announce("the numbers of a sharded tensor")
        return function(whole(args[0]), *args[1:], **kwargs)


HANDS = Hands()


def whole(tensor: Tensor) -> Tensor:
    """The tensor on every process; its gradient is the average over those of all, as that of a forward pass is."""
    if not isinstance(tensor, DTensor):
        return tensor
    mesh = tensor.device_mesh
    here: Any = tensor.to(mesh.device_type)  # shards that wait in the CPU's memory travel by the device
    gathered = here.redistribute(placements=[Replicate()] * mesh.ndim).to_local()
    if gathered.requires_grad:
        gathered = _Averaged.apply(gathered)  # type: ignore[no-untyped-call]
    return gathered.to(tensor.device)  # type: ignore[no-any-return]


class _Averaged(torch.autograd.Function):
    """The tensor itself, of which each process then has a gradient of its own."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        average = gradient.contiguous().clone()
        dist.all_reduce(average)
        if average.device.type != "cpu":
            # The exchange of a forward pass adds to the same gradients on a stream of its own.
            torch.accelerator.synchronize(average.device)
        return average / dist.get_world_size()


def _sharded(value: object) -> bool:
    """Whether no process has all of it."""
    return isinstance(value, DTensor) and not all(placement.is_replicate() for placement in value.placements)


def _wholes(values: Any) -> Any:
    return tree_map(lambda value: whole(value) if isinstance(value, Tensor) else value, values)


def _tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)


def _mixes(args: Any, kwargs: Any) -> bool:
    """Whether there are sharded and plain tensors; a plain one without dimensions is but a number beside a weight."""
    sharded, plain, number, figure = False, False, False, False
    for tensor in _tensors((*args, *kwargs.values())):
        if isinstance(tensor, DTensor):
            sharded, figure = True, figure or not tensor.dim()
        elif tensor.dim() or tensor.requires_grad:
            plain = True
        else:
            number = True
    return sharded and (plain or (number and figure))


def _is_drawn(function: Function) -> bool:
    return function.__name__ in DRAWN or getattr(function, "__module__", None) == "torch.nn.init"


def _by_shards(function: Function, args: Any, kwargs: Any) -> Any:
    """What torch makes of the shards, or `_by_shards` itself where it does not know how."""
    if _is_drawn(function) or function.__name__ == "__setitem__" or _mixes(args, kwargs):
        return _by_shards
    try:
        return function(*args, **kwargs)
    except (NotImplementedError, RuntimeError) as error:
        if OF_SHARDS.search(str(error)):
            return _by_shards
        raise


def _computed(function: Function, args: Any, kwargs: Any) -> Any:
    """What a function gives that changes none of its arguments."""
    base = args[0] if args else None

    def again(tensor: Tensor) -> Any:
        return function(tensor, *_wholes(args[1:]), **_wholes(kwargs))

    result = _by_shards(function, args, kwargs)
    if result is not _by_shards:
        if function.__name__ in VIEWS and isinstance(base, DTensor):
            memory = _memory(local(base.detach()))
            for number, one in enumerate(tree_leaves(result)):
                if isinstance(one, DTensor) and _memory(local(one.detach())) != memory:
                    vars(one)["copy_of"] = base, again, number
        return result
    if not isinstance(base, DTensor):
        return function(*_wholes(args), **_wholes(kwargs))
    gathered = whole(base)
    return _written_through(again(gathered), base, gathered, again)


def _written_through(result: Any, base: DTensor, gathered: Tensor, again: Function) -> Any:
    """The result, of which views of what was gathered remember what they are views of."""
    numbers = iter(range(len(tree_leaves(result))))

    def kept(one: Any) -> Any:
        number = next(numbers)
        if not isinstance(one, Tensor) or one.requires_grad or _memory(one) != _memory(gathered):
            return one
        view = DTensor.from_local(one, base.device_mesh, [Replicate()] * base.device_mesh.ndim, run_check=False)
        vars(view)["copy_of"] = base, again, number
        return view

    return tree_map(kept, result)


def _change(function: Function, args: Any, kwargs: Any) -> Any:
    """What a function gives that changes its first argument, which is a tensor or a list of them."""
    given: list[Any] = [*args, *kwargs.values()]
    first, rest, names = given[0], given[1:], list(kwargs)
    if all(not isinstance(one, DTensor) for one in _tensors([first])):
        return function(first, *_wholes(args[1:]), **_wholes(kwargs))
    result = _by_shards(function, args, kwargs)
    if result is _by_shards:
        # `torch.nn.init` hands its arguments over by name, and turns gradients off only then.
        if args and torch.is_grad_enabled() and any(one.requires_grad for one in _tensors([first])):
            return function(*args, **kwargs)  # which fails: torch knows best why
        changed = _wholes(first)
        values = [changed, *_wholes(rest)]
        function(*values[: len(args)], **dict(zip(names, values[len(args) :])))
        for part, tensor in zip(tree_leaves(first), tree_leaves(changed)):
            if _is_drawn(function):
                _take_from_first(tensor, part)
            _put(part, tensor)
        result = first
    if isinstance(first, DTensor):
        _write_back(first)
    return result


def _take_from_first(tensor: Tensor, part: DTensor) -> None:
    """Random numbers are those of process 0, as the weights are when they are sharded."""
    if part.device_mesh.size() > 1:
        value = tensor.detach().to(part.device_mesh.device_type)
        dist.broadcast(value, src=0)
        tensor.detach().copy_(value)


def _put(part: DTensor, tensor: Tensor) -> None:
    """Writes a whole tensor into what the processes hold of it; nothing is sent."""
    local(part.detach()).copy_(local(shard_like(tensor.detach(), part)))


def _write_back(view: DTensor) -> None:
    """What was written to a view that is a copy, to the tensor itself."""
    if "copy_of" in vars(view):
        base, again, number = vars(view)["copy_of"]
        tensor = whole(base.detach())
        tree_leaves(again(tensor))[number].copy_(whole(view.detach()))
        _put(base, tensor)
        _write_back(base)


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata  # type: ignore[no-any-return]


def _assign(function: Any, target: Tensor, value: Any) -> None:
    """`weight.data = ...`, which torch forgets where the weight is sharded, and `weight.grad = ...`."""
    what = function.__self__.__name__
    if what not in ("data", "grad") or not isinstance(value, Tensor):
        function(target, value)
    elif not isinstance(target, DTensor):
        function(target, whole(value))
    elif value.shape != target.shape or value.dtype != target.dtype:
        raise UsageError(
            f"a sharded weight of shape {tuple(target.shape)} and {target.dtype} got .{what} of shape {tuple(value.shape)} and "
            f"{value.dtype}; change the shape or the type of a model before prepare()"
        )
    elif what == "grad":
        function(target, value if isinstance(value, DTensor) else shard_like(value.detach(), target))
    else:
        _put(target, whole(value.detach()))


def _refuse_pickling(tensor: DTensor) -> None:
    if _sharded(tensor) and tensor.device_mesh.size() > 1:
        raise UsageError(
            "a sharded tensor would be written as the part of one process; take weights from accelerator.get_state_dict(model), "
            "and other tensors with .full_tensor(): on all processes"
        )
