"""What a script adds to the state of a run: objects of its own, and hooks around saving and loading."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from accel_runtime.errors import ConfigError

Hook = Callable[..., None]


@dataclass(eq=False)
class Removable:
    """Takes a hook out again."""

    hooks: Hooks
    hook: Hook

    def remove(self) -> None:
        self.hooks.all = [other for other in self.hooks.all if other is not self.hook]


@dataclass(eq=False)
class Hooks:
    """Functions to call at one moment, in the order in which they were added."""

    all: list[Hook] = field(default_factory=list)

    def add(self, hook: Hook) -> Removable:
        self.all.append(hook)
        return Removable(self, hook)

    def run(self, *arguments: Any) -> None:
        for hook in self.all:
            hook(*arguments)


@dataclass(eq=False)
class Registry:
    """Of one Accelerator."""

    objects: list[Any] = field(default_factory=list)
    before_save: Hooks = field(default_factory=Hooks)
    before_load: Hooks = field(default_factory=Hooks)

    def add(self, objects: tuple[Any, ...]) -> None:
        without = [
            f"Item at index {index}, a {type(thing).__name__}"
            for index, thing in enumerate(objects)
            if not (hasattr(thing, "state_dict") and hasattr(thing, "load_state_dict"))
        ]
        if without:
            raise ConfigError(
                f"register_for_checkpointing got what is without state_dict and load_state_dict ({'; '.join(without)}); "
                "give it both"
            )
        self.objects.extend(objects)
