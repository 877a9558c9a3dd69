"""Pretrained weights that would be downloaded: the same architecture, with the weights it was built with."""

from __future__ import annotations

import functools
import importlib
import re
from pathlib import Path
from typing import Any

from accel_migrate.proof.recorder.stand_ins.told import Told


class Kept(dict):  # type: ignore[type-arg]
    """Weights of whatever model they are loaded into: its own."""


def of_torch(torch: Any, told: Told) -> None:
    """What torch.hub brings."""
    plain = torch.nn.Module.load_state_dict

    @functools.wraps(plain)
    def load_state_dict(module: Any, state: Any, *args: Any, **kwargs: Any) -> Any:
        return plain(module, module.state_dict() if isinstance(state, Kept) else state, *args, **kwargs)

    def from_url(url: str, model_dir: str | None = None, *args: Any, **kwargs: Any) -> Any:
        folder = Path(model_dir or Path(torch.hub.get_dir(), "checkpoints"))
        here = folder / (kwargs.get("file_name") or Path(url).name)
        if here.exists():
            return torch.load(here, map_location="cpu")
        told.say(re.sub(r"[-_][0-9a-f]{8}$", "", Path(url).stem), "with random weights")
        return Kept()

    torch.nn.Module.load_state_dict = load_state_dict
    torch.hub.load_state_dict_from_url = from_url
    plain_hub = torch.hub.load

    def load(repository: str, model: str, *args: Any, **kwargs: Any) -> Any:
        if str(repository).startswith("pytorch/vision"):
            return importlib.import_module("torchvision.models").get_model(model, *args, **kwargs)
        return plain_hub(repository, model, *args, **kwargs)

    torch.hub.load = load


def of_timm(timm: Any, told: Told) -> None:
    if not hasattr(timm, "create_model"):
        return  # a module of the project itself
    plain = timm.create_model

    def create_model(name: str, pretrained: Any = False, *args: Any, **kwargs: Any) -> Any:
        if pretrained:
            told.say(str(name), "with random weights")
        return plain(name, False, *args, **kwargs)

    timm.create_model = create_model
    timm.models.create_model = create_model
