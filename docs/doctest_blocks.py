"""Examples in docstrings, from `>>>` to the next blank line, are shown as blocks of code."""

from __future__ import annotations

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"(?:^>>> .*\n?)(?:^(?:>>>|\.\.\.)(?: .*)?\n?)*", re.MULTILINE)


class DoctestBlocks(griffe.Extension):
    """Fences them, because Markdown takes `>>>` for a quotation."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring and ">>> " in obj.docstring.value:
            text = EXAMPLE.sub(lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", obj.docstring.value)
            obj.docstring.value = text
