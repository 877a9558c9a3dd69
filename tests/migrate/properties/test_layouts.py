"""The same training in every layout that Python allows: each is migrated, and no other byte changes."""

from __future__ import annotations

import codecs
from pathlib import Path

import pytest
from accel_migrate.pipeline import migrate
from accel_migrate.plan import FileResult, Status
from accel_migrate.source import Source

from tests.migrate.properties.test_any_python import LOOP


def migrated(data: bytes) -> FileResult:
    (result,) = migrate([Source.from_bytes(Path("train.py"), data)])
    return result


def with_line(line: str) -> str:
    """The loop with another line in its body."""
    return LOOP.replace("    loss.backward()\n", f"    {line}\n    loss.backward()\n")


PLAIN = migrated(LOOP.encode()).after


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("crlf", lambda data: data.replace(b"\n", b"\r\n")),
        ("byte order mark", lambda data: codecs.BOM_UTF8 + data),
        ("latin-1", lambda data: b"# -*- coding: latin-1 -*-\n# \xe9t\xe9\n" + data.lstrip(b"\n")),
        ("tabs", lambda data: data.replace(b"\n    ", b"\n\t")),
        ("two spaces", lambda data: data.replace(b"\n    ", b"\n  ")),
        ("no final newline", lambda data: data.rstrip(b"\n")),
        ("trailing blanks", lambda data: data + b"\n\n   \n"),
        ("a comment at the end", lambda data: data + b"# the end"),
        ("tabs and crlf", lambda data: data.replace(b"\n    ", b"\n\t").replace(b"\n", b"\r\n")),
        ("shebang", lambda data: b"#!/usr/bin/env python3\n" + data.lstrip(b"\n")),
    ],
)
def test_only_what_is_rewritten_differs(name: str, form) -> None:
    result = migrated(form(LOOP.encode()))
    assert result.status is Status.MIGRATED, result.reason
    assert result.after == form(PLAIN)


@pytest.mark.parametrize(
    "line",
    [
        "if x: y = 1; z = 2",
        "if x: pass",
        "while False: break",
        "if (n := len(x)) > 4: print(n)",
        "keep = [part for part in x if (last := part) is not None]",
        "with torch.no_grad(): seen = model(x)",
        "total = 0; total += 1;",
        "a = b = c = 0  # type: int",
        "match x:\n        case [first, *rest] if rest: pass\n        case {'k': v, **more}: pass\n        case _: z = 1",
        "try: z = 1\n    except (ValueError, TypeError) as error: raise\n    else: pass\n    finally: z = 2",
        "text = f'{x!r:>{10}} {{}} {loss.item()=}'",
        "text = '''\nx.to(device)\n'''",
        "f = lambda *a, k=1, **kw: (yield)",
        "async def g(): await h()",
        "@decorate(1)\n    @other\n    def inner(a, /, b: int = 1, *, c) -> None: ...",
        "class Inner(metaclass=type): x: int = 1",
        "z = (\n        1 +  # one\n        2\n    )",
        "z = 1 + \\\n        2",
        "global counter; counter = 1" if False else "del y; y = x",
        "été = 'naïve ✓'",
    ],
)
def test_other_statements_of_the_loop_keep_every_byte(line: str) -> None:
    text = with_line(line)
    result = migrated(text.encode())
    assert result.status is Status.MIGRATED, result.reason or [note.message for note in result.notes]
    expected = PLAIN.decode().replace(
        "    accelerator.backward(loss)\n", f"    {line}\n    accelerator.backward(loss)\n"
    )
    assert result.after.decode().replace("accelerator.print(", "print(") == expected


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (LOOP.encode().replace(b"\nmodel", b"\n\x0c\nmodel"), "form feed"),
        (LOOP.encode().replace(b"\nmodel", b"\rmodel"), "CR"),
        (LOOP.encode() + b"x = " + b"(" * 190 + b"1" + b")" * 190 + b"\n", ""),
        (LOOP.encode() + b"x = " + b"-" * 3000 + b"1\n", "deep"),
    ],
)
def test_what_cannot_be_kept_is_refused_in_a_sentence(data: bytes, why: str) -> None:
    result = migrated(data)
    if result.status is Status.MIGRATED:
        compile(result.after, "train.py", "exec")
        return
    assert result.status is Status.FAILED and why in result.reason
    assert result.after == result.before == data
    assert "\n" not in result.reason
