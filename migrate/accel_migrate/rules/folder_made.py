"""AM505: a folder that several processes make at once is made without a race."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.edits import add_argument, change
from accel_migrate.plan import Change, Edit, Replace
from accel_migrate.rule import Context, Rule

CODE = "AM505"


def find(context: Context) -> Iterator[Change]:
    module, training = context.module, context.training
    for call in module.calls:
        dotted = module.qualified(call.func)
        makes = dotted in ("os.makedirs", "os.mkdir") or (
            dotted is None and isinstance(call.func, ast.Attribute) and call.func.attr == "mkdir"
        )
        if makes and _after_asking(context, call) and not any(k.arg in ("exist_ok", None) for k in call.keywords):
            edits = _edits(context, call, dotted)
            if edits:
                message = "another process may make it between the question and the answer"
                yield change(CODE, call, message, edits, loop=training.index, required=False)


def _edits(context: Context, call: ast.Call, dotted: str | None) -> list[Edit]:
    source = context.module.source
    edits: list[Edit] = []
    if dotted == "os.mkdir":
        end = source.end(call.func)
        edits.append(Replace(end - len("mkdir"), end, "makedirs"))
    edits.append(add_argument(source, call, "exist_ok=True"))
    return edits


def _after_asking(context: Context, call: ast.Call) -> bool:
    """Under `if not os.path.exists(folder):`, so that an existing folder is fine with the author."""
    parent = context.module.parents[context.module.statement(call)]
    if not isinstance(parent, ast.If) or not isinstance(parent.test, ast.UnaryOp) or parent.orelse:
        return False
    text = ast.unparse(parent.test)
    return isinstance(parent.test.op, ast.Not) and any(word in text for word in ("exists(", "isdir(", "is_dir("))


RULE = Rule(
    code=CODE,
    name="folder_made",
    summary="`exist_ok=True` where a folder is made if it is not there",
    why="Between `exists` and `makedirs` another process may have made the folder, and the second one fails.",
    example_before="if not os.path.exists(out):\n    os.makedirs(out)",
    example_after="if not os.path.exists(out):\n    os.makedirs(out, exist_ok=True)",
    find=find,
)
