"""What libcst is not given to read comes back as it was: every edit gives the text that it gives when all is read."""

from __future__ import annotations

import ast
from itertools import product
from pathlib import Path

import pytest
from accel_migrate.apply import apply, skeleton
from accel_migrate.plan import Edit, Guard, Insert, Remove, Substitute, Uncomment, Unwrap
from accel_migrate.source import Source

LAYOUTS = {
    "comments at every depth": """
        # first
        import a

        class Net:
            def f(self):
                return 1
                # deep
            # of the class

        # of b
        b = 2  # behind b
            # too deep
        if b:
            c = 3
            # below c
        elif a: d = 4
        elif d:
            # above e
            e = (5,
                 6)
        else:
            f = 6

        # last
        """,
    "statements in one line": """
        a = 1; b = 2
        if a: c = 3; d = 4
        if a: \\
            e = 5
        for x in y: z()
        with a as b:
         c = 1; d = 2;
         e = 3
        f = 4;
        """,
    "decorators and strings": '''
        @one
        # between
        @two(3)
        def f(): return """
          text
        """

        @one
        class C:
          x = """
        text
        """
          async def g(self):
            async with a:
              pass
            try:
              b = 1
            except E: pass
            except F:
              # why
              c = 2
            else:
              d = 3
            finally:
              e = 4
            match x:
              case 1:
                g = 5
              # six
              case _: h = 6
        ''',
}


def texts() -> list[str]:
    found = []
    for layout in LAYOUTS.values():
        lines = [line[8:] for line in layout.split("\n")[1:-1]]
        plain = "\n".join(lines) + "\n"
        unit = "  " if "\n  x =" in plain else " " if "\n c =" in plain else "    "
        tabs = "\n".join(_with_tabs(line, unit) for line in lines) + "\n"
        blanks = "\n".join(line or "        " for line in lines)
        found += [plain, tabs, blanks, plain.replace("\n", "\r\n")]
    return found


def _with_tabs(line: str, unit: str) -> str:
    code = line.lstrip(" ")
    return "\t" * ((len(line) - len(code)) // len(unit)) + code


def edits_of(statement: ast.stmt, source: Source) -> list[Edit]:
    new = ("new = 1", "more = [\n    2,\n]")
    found: list[Edit] = [Remove(statement), Remove(statement, keep_comments=False), Uncomment(statement)]
    found += [Insert(statement, new, "before"), Insert(statement, new, "after", blank_before=True)]
    found += [Insert(statement, new, "before", above_comments=False), Substitute(statement, new)]
    if not source.text.startswith("elif", source.start(statement)):
        found.append(Guard(statement, "main"))
    if isinstance(statement, ast.If | ast.With | ast.For):
        found.append(Unwrap(statement))
    return found


def result(text: str, pick: tuple[int, int], kind: int) -> str:
    """The text with one kind of edit made to two of its statements, or why that cannot be."""
    source = Source.from_bytes(Path("x.py"), text.encode())
    statements = [node for node in ast.walk(source.tree) if isinstance(node, ast.stmt)]
    every = [edits_of(statements[index % len(statements)], source) for index in pick]
    try:
        return apply(source, [edits[(kind + i) % len(edits)] for i, edits in enumerate(every)])
    except Exception as error:
        return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize("text", texts())
def test_what_is_not_read_changes_nothing(text: str, monkeypatch: pytest.MonkeyPatch):
    cases = [((first, first + 5 * (kind % 2)), kind) for first, kind in product(range(24), range(9))]
    found = [result(text, pick, kind) for pick, kind in cases]
    monkeypatch.setattr(skeleton.Skeleton, "_block", lambda self, statements: None)
    for (pick, kind), short in zip(cases, found, strict=True):
        assert short == result(text, pick, kind), (pick, kind)


def test_a_name_of_the_script_is_not_taken_for_one_of_ours():
    source = Source.from_bytes(Path("x.py"), b"_kept0_ = 1\nb = 2\nc = 3\n")
    assert apply(source, [Remove(source.tree.body[1])]) == "_kept0_ = 1\nc = 3\n"


def test_only_what_is_taken_apart_is_read():
    source = Source.from_bytes(Path("x.py"), b"import a\nb = 2\ndef f():\n    c = 3\n    d = 4\ne = 5\nf = 6\n")
    (function,) = (node for node in source.tree.body if isinstance(node, ast.FunctionDef))
    made = skeleton.Skeleton(source, skeleton.Sorted(source, [Remove(function.body[0])]))
    assert made.text == "_kept0_\ndef f():\n    _kept1_\n    _kept2_\n_kept3_\n"
