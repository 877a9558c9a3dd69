"""Which cell of a notebook has used the GPU, for the message that asks to move it."""

from __future__ import annotations

import re
import sys

_USES = re.compile(r"\.cuda\(|torch\.cuda\.|[\"']cuda[\"':]|Accelerator\(|\.to\(device")


def cell_that_used_the_device() -> str:
    """As a part of a sentence: the first cell that looks like it, empty outside a notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return describe_first_use(list(shell.user_ns.get("In", []))) if shell else ""


def describe_first_use(cells: list[str]) -> str:
    """`cells` as IPython numbers them: the one at index 0 is empty."""
    for number, cell in enumerate(cells):
        for line in cell.splitlines():
            if _USES.search(line) and not line.lstrip().startswith(("#", "def ", "class ")):
                return f" (cell [{number}] looks like the cause: `{line.strip()}`)"
    return ""
