"""Scripts that name `cuda` on a machine without a GPU: whatever they ask of it happens on the CPU."""

from __future__ import annotations

from typing import Any


def pretend(torch: Any) -> None:
    """From now on every CUDA device that is named is the CPU."""
    mode = _mode(torch)
    mode.__enter__()
    nothing = {"manual_seed", "manual_seed_all", "synchronize", "set_device", "empty_cache", "reset_peak_memory_stats"}
    for name in nothing:
        setattr(torch.cuda, name, lambda *args, **kwargs: None)


def _mode(torch: Any) -> Any:
    class CudaIsCpu(torch.overrides.TorchFunctionMode):  # type: ignore[misc]  # torch is handed in
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = dict(kwargs or {})
            if function is torch.Tensor.cuda:
                return args[0]
            if "device" in kwargs:
                kwargs["device"] = on_cpu(kwargs["device"])
            if function is torch._C._nn._parse_to:  # of a module
                args = tuple(on_cpu(argument) for argument in args)
            if function is torch.Tensor.to:
                args = (args[0], *[on_cpu(argument) for argument in args[1:]])
            return function(*args, **kwargs)

    def on_cpu(value: Any) -> Any:
        if isinstance(value, torch.device):
            return torch.device("cpu") if value.type == "cuda" else value
        if isinstance(value, str) and value.startswith("cuda"):
            return "cpu"
        return "cpu" if isinstance(value, int) and not isinstance(value, bool) else value

    return CudaIsCpu()
