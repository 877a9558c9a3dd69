"""The documents are true: links lead somewhere, and what the pages show is run, with what it prints."""

from __future__ import annotations

import ast
import inspect
import multiprocessing
import os
import re
import runpy
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from tests.pages import PAGES, ROOT, blocks, named, planned, prints, session, setup, steps

NOTES = sorted(ROOT.glob("fixtures/*/NOTES.md"))
# The examples of rules may be parts of statements.
RUNNABLE = [page for page in PAGES if page.name != "rules.md"]


def test_rules_page_is_what_the_rules_say() -> None:
    page = runpy.run_path(str(ROOT / "docs" / "make_rules.py"))["page"]
    assert (ROOT / "docs" / "rules.md").read_text() == page(), "docs/rules.md is out of date; run: make docs"


# Pages that are made while the site is built are there for MkDocs alone, which checks links to them.
MADE = {"api", "gallery", "contributing.md", "changelog.md", "security.md"}


@pytest.mark.parametrize("page", [*PAGES, *NOTES], ids=named)
def test_links_lead_to_files_of_the_repository(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text())
    local = [link for link in links if "://" not in link and link.removeprefix("../").split("/")[0] not in MADE]
    assert not [link for link in local if not (page.parent / link).exists()]


def test_readme_shows_the_diff_that_the_codemod_makes(tmp_path: Path) -> None:
    (shown,) = (block.text for block in blocks(ROOT / "README.md", "diff"))
    lines = shown.splitlines()[3:]
    (tmp_path / "train.py").write_text("".join(f"{line[1:]}\n" for line in lines if line[:1] != "+"))
    command = [sys.executable, "-m", "accel_migrate", "train.py", "--diff"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == shown


@pytest.mark.parametrize("page", [page for page in RUNNABLE if blocks(page, "console")], ids=named)
def test_commands_of_a_page_print_what_it_shows(page: Path, tmp_path: Path) -> None:
    """What is only parsed is planned: the launcher reads its options, and starts nothing."""
    typed = [(step, block.why_parsed) for block in blocks(page, "console") for step in steps(block.text)]
    assert typed, "a console block without a command"
    answers = session([planned(one.command) if why else one.command for one, why in typed], tmp_path, setup(page))
    for (step, why), (code, printed) in zip(typed, answers):
        if step.shown and not why:
            assert prints(step.shown, printed), f"{step.command}\nprinted:\n{printed}"
        else:
            # A question that is answered with yes: there is something to change.
            expected = (0, 1) if re.search("--(diff|check)", step.command) else (0,)
            assert code in expected, f"{step.command}\nended with {code}:\n{printed}"


@pytest.mark.parametrize("page", [page for page in RUNNABLE if blocks(page, "python")], ids=named)
def test_python_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    for block in blocks(page, "python"):
        compile(block.text, named(page), "exec")
    program = "\n".join(block.text for block in blocks(page, "python") if not block.why_parsed)
    # A server that has imported torch once, and no more: each page is a fork of it.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "accel_runtime.accelerator"])
    child = context.Process(target=run_program, args=(program, named(page), tmp_path))
    child.start()
    child.join(120)
    assert child.exitcode == 0, (tmp_path / "printed").read_text()


def run_program(program: str, name: str, folder: Path) -> None:
    """As a script of its own in the folder, which keeps what it prints."""
    os.chdir(folder)
    descriptor = os.open("printed", os.O_WRONLY | os.O_CREAT)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    script = Path(f"{Path(name).stem.replace('-', '_')}.py")
    script.write_text(program)
    runpy.run_path(str(script), run_name="__main__")


def test_messages_on_the_page_are_those_of_the_code() -> None:
    said = "\n".join(
        str(node.value)
        for source in ROOT.glob("runtime/accel_runtime/**/*.py")
        for node in ast.walk(ast.parse(source.read_text()))
        if isinstance(node, ast.Constant)
    )
    rows = re.findall(r"^\| `(.+?)` \| .+? \| .+? \|$", (ROOT / "docs" / "troubleshooting.md").read_text(), re.M)
    assert len(rows) > 12
    parts = [part for row in rows for part in row.split("...")]
    assert not [part for part in parts if part not in said]


def test_every_public_name_says_what_it_is() -> None:
    import accel_runtime

    things = {name: getattr(accel_runtime, name) for name in accel_runtime.__all__}
    silent = [name for name, thing in things.items() if not thing.__doc__]
    kind = accel_runtime.Accelerator
    members = {name: inspect.getattr_static(kind, name) for name in dir(kind) if not name.startswith("_")}
    assert len(members) > 80
    assert not silent + [name for name, member in members.items() if not getattr(member, "__doc__", None)]


def test_site_is_built_without_a_broken_link_or_an_orphan(tmp_path: Path) -> None:
    """MkDocs is strict: a link or anchor that leads nowhere and a page outside of the navigation are errors."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = {page.relative_to(tmp_path / "site").as_posix(): page.read_text() for page in tmp_path.rglob("*.html")}
    assert {"index.html", "gallery/left.html", "api/accelerator.html", "changelog.html"} <= pages.keys()
    fetched = re.compile(r"""<(?:script|link|img|iframe)[^>]+(?:src|href)=["']?(?:https?:)?//""")
    assert not [name for name, page in pages.items() if fetched.search(page)], "a page needs the network"
    assert "gather_for_metrics" in pages["api/accelerator.html"]
    assert "<blockquote>" not in pages["api/accelerator.html"], "an example is shown as a quotation"


def test_every_case_is_in_the_gallery() -> None:
    made = dict(runpy.run_path(str(ROOT / "docs" / "site_pages.py"))["made_pages"]())
    shown = [line for place, text in made.items() if place.startswith("gallery/") for line in text.splitlines()]
    cases = [folder.name for folder in (ROOT / "fixtures").iterdir() if folder.is_dir()]
    assert sorted(line[3:] for line in shown if line.startswith("## ")) == sorted(n.replace("_", " ") for n in cases)


def test_proofs_in_the_gallery_are_of_the_cases_as_they_are() -> None:
    site = runpy.run_path(str(ROOT / "docs" / "site_pages.py"))
    made = dict(site["made_pages"]())
    for family, case in site["PROVEN"].items():
        assert f"](../proofs/{case}.html)" in made[f"gallery/{family}.md"] and site["family_of"](case) == family
        scripts = b"".join((ROOT / "fixtures" / case / name).read_bytes() for name in ("before.py", "after.py"))
        page = (ROOT / "docs" / "proofs" / f"{case}.html").read_text()
        assert f"<!-- {case} {sha256(scripts).hexdigest()} -->" in page, "out of date; run: make proofs"
        assert ">proven<" in page and "<svg" in page


def test_table_of_mistakes_is_of_the_benchmark() -> None:
    names = re.findall(r"^    Mistake\(\s*\"(.+?)\"", (ROOT / "benchmarks" / "mistakes.py").read_text(), re.M)
    page = (ROOT / "docs" / "mistakes.md").read_text()
    rows = re.findall(
        r"^\| ([a-zA-Z][^|]+?) \| \d+ lines?[^|]*, \*\*(?:names it|trains as one process)\*\* \|", page, re.M
    )
    assert len(names) == 15 and rows == names


def test_no_other_tool_names_a_remedy_in_fewer_lines() -> None:
    page = (ROOT / "docs" / "mistakes.md").read_text()
    rows = [re.split(r" \| ", line)[1:] for line in page.splitlines() if re.match(r"\| [^|]+ \| \d+ line", line)]
    assert len(rows) == 15
    for ours, *others in rows:
        lines = [int(cell.split()[0]) for cell in (ours, *others) if "**" in cell]
        assert "**" in ours and lines[0] == min(lines), ours
