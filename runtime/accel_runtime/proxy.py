"""An object that stands in front of another and can be told from it only where it means to differ."""

from __future__ import annotations

import copy
import operator
from typing import Any


class Proxy:
    """Attributes, assignments and `isinstance` reach the object behind; what the subclass defines stays in front."""

    def __init__(self, behind: Any) -> None:
        object.__setattr__(self, "behind", behind)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["behind"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__ or hasattr(type(self), name):
            object.__setattr__(self, name, value)
        else:
            setattr(self.behind, name, value)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self.behind)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        # Pickle and copy would believe `__class__`.
        return _rebuilt, (type(self), dict(self.__dict__))

    def __repr__(self) -> str:
        return repr(self.behind)


class Unseen(Proxy):
    """A proxy that no file keeps: a pickle has the object behind, which any script can read. A copy is a proxy again."""

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return operator.getitem, ((self.behind,), 0)

    def __copy__(self) -> Proxy:
        return _rebuilt(type(self), dict(self.__dict__))

    def __deepcopy__(self, memo: dict[int, Any]) -> Proxy:
        memo[id(self)] = made = _rebuilt(type(self), {})
        made.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return made


def _rebuilt(kind: type[Proxy], contents: dict[str, Any]) -> Proxy:
    proxy = object.__new__(kind)
    proxy.__dict__.update(contents)
    return proxy
