"""Options of a script that nothing reads once it is rewritten: they stay, since commands may pass them, and the user is told."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from accel_migrate.flow.nodes import walk
from accel_migrate.flow.version import Version
from accel_migrate.plan import Note

CODE = "AM104"


def unread_options(originals: Mapping[Path, Version], results: Mapping[Path, Version]) -> Iterator[tuple[Path, Note]]:
    """A note for each file that adds options which the original read and no file reads any more, at the first of them."""
    options = {path: list(_added(originals[path])) for path in results}
    if not any(options.values()):
        return
    lost = _read(originals.values()) - _read((dict(originals) | dict(results)).values())
    for path, calls in options.items():
        unread = [call for call in calls if _destination(call) in lost]
        if unread:
            names = ", ".join(f"`{_spelled(call)}`" for call in unread)
            them = "it" if len(unread) == 1 else "them"
            message = f"nothing reads {names} any more; take {them} out once no command passes {them}"
            yield path, Note(CODE, unread[0].lineno, unread[0].col_offset + 1, message)


def _added(version: Version) -> Iterator[ast.Call]:
    """`parser.add_argument("--name", ...)`."""
    for node in version.module.walk(version.tree, ast.Call):
        if getattr(node.func, "attr", "") == "add_argument" and _spelled(node):
            yield node


def _spelled(call: ast.Call) -> str:
    """The option as a command spells it, by its long form if it has one."""
    texts = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    spelled = [text for text in texts if text.startswith("-")]
    return next((text for text in spelled if text.startswith("--")), "".join(spelled[:1]))


def _destination(call: ast.Call) -> str:
    for keyword in call.keywords:
        if keyword.arg == "dest" and isinstance(keyword.value, ast.Constant):
            return str(keyword.value.value)
    return _spelled(call).lstrip("-").replace("-", "_")


def _read(versions: Iterable[Version]) -> set[str]:
    """The names of all attributes that are read, and every text that may name one."""
    found: set[str] = set()
    for version in versions:
        adding = {part for call in _added(version) for part in walk(call)}
        module = version.module
        found |= {n.attr for n in module.walk(version.tree, ast.Attribute) if isinstance(n.ctx, ast.Load)}
        texts = [n for n in module.walk(version.tree, ast.Constant) if isinstance(n.value, str) and n not in adding]
        found |= {str(each.value) for each in texts}
    return found
