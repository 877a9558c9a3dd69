"""Packages that only watch or draw and are not installed: they are imported, and do nothing."""

from __future__ import annotations

import importlib.abc
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from accel_migrate.proof.recorder.journal import callers
from accel_migrate.proof.recorder.stand_ins.told import Told

INERT = frozenset(
    {
        *("wandb", "tensorboard", "tensorboardX", "tensorboard_logger", "mlflow", "comet_ml", "neptune", "clearml"),
        *("visdom", "swanlab", "aim", "hiddenlayer", "crayon", "pycrayon", "logger_zoo", "livelossplot"),
        *("matplotlib", "seaborn", "plotly", "bokeh", "graphviz", "torchviz", "dominate", "IPython"),
        *("torchsummary", "torchinfo", "torchsummaryX", "thop", "ptflops", "pynvml", "GPUtil", "gpustat", "nvidia_smi"),
        *("colorama", "termcolor", "colorlog", "coloredlogs", "prettytable", "tabulate", "texttable", "pyfiglet"),
        *("ipdb", "pudb", "line_profiler", "memory_profiler", "py3nvml", "pretty_errors", "rich", "twilio"),
    }
)
BARS = frozenset({"tqdm", "progressbar", "progress"})
NEWEST = "9999.0"


class Nothing:
    """Takes every call, attribute and item, and gives itself; what it is told to keep, it keeps."""

    def __init__(self, name: str = "nothing") -> None:
        object.__setattr__(self, "__name__", name)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return Nothing(name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        decorated = len(args) == 1 and not kwargs and hasattr(args[0], "__code__")
        return args[0] if decorated else self

    def __getitem__(self, key: Any) -> Any:
        return self

    def __setitem__(self, key: Any, value: Any) -> None:
        pass

    def __iter__(self) -> Iterator[Any]:
        return iter((self, self))  # `figure, axes = plt.subplots()`

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def __bool__(self) -> bool:
        return True

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        return (Nothing,)


class Settings(dict):  # type: ignore[type-arg]
    """`wandb.config`: what the script put there, by key and by attribute."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def update(self, values: Any = (), **more: Any) -> None:  # type: ignore[override]  # as wandb has it
        more.pop("allow_val_change", None)
        super().update(values if isinstance(values, dict) else vars(values) if hasattr(values, "__dict__") else values)
        super().update(more)


class Bar:
    """A progress bar that shows nothing: it gives what it goes over, and takes whatever it is told."""

    def __init__(self, iterable: Any = None, *args: Any, **kwargs: Any) -> None:
        self.iterable = iterable if iterable is not None else range(kwargs.get("total") or 0)
        self.n, self.total = 0, kwargs.get("total")

    def __iter__(self) -> Iterator[Any]:
        return iter(self.iterable)

    def __len__(self) -> int:
        return len(self.iterable)

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        return Nothing(name)

    @staticmethod
    def write(text: str, *args: Any, **kwargs: Any) -> None:
        print(text)


class Empty(ModuleType):
    """A module with whatever is asked of it."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return Nothing(name)


class Missing(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Asked last, when no other finder has the package; a library that asks has an answer of its own."""

    def __init__(self, told: Told, copy: Path) -> None:
        self.told = told
        self.copy = copy

    def find_spec(self, name: str, path: Sequence[str] | None, target: Any = None) -> ModuleSpec | None:
        top = name.partition(".")[0]
        if "." in name:
            stands = isinstance(sys.modules.get(top), Empty)
        else:
            stands = top in INERT | BARS and self._is_asked_by_script()
        return ModuleSpec(name, self, is_package=True) if stands else None

    def _is_asked_by_script(self) -> bool:
        names = (frame.f_code.co_filename for frame in callers())
        asking = next((name for name in names if name != __file__ and "importlib" not in name), "")
        return Path(asking).resolve().is_relative_to(self.copy) or asking.endswith(
            "torch/utils/tensorboard/__init__.py"
        )

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return Empty(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        module.__version__ = NEWEST  # type: ignore[attr-defined]
        top = name.partition(".")[0]
        if top in BARS:
            for bar in ("tqdm", "trange", "tqdm_notebook", "Bar", "ProgressBar"):
                setattr(module, bar, Bar)
            setattr(module, "trange", lambda *args, **kwargs: Bar(range(*args)))  # noqa: B010  a module's attribute
        if name == "wandb":
            config = module.config = Settings()  # type: ignore[attr-defined]

            def init(*args: Any, config: Any = None, _kept: Settings = config, **kwargs: Any) -> Any:
                _kept.update(config or {})
                run = Nothing("run")
                object.__setattr__(run, "config", _kept)
                return run

            module.init = init  # type: ignore[attr-defined]
        if "." not in name:
            self.told.say(name, "left out")


def install_missing(told: Told, copy: Path) -> None:
    sys.meta_path.append(Missing(told, copy))
