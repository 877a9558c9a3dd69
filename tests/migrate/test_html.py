"""The HTML report of a project of several files, opened in a browser."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from accel_migrate.outcome import Outcome, Part
from accel_migrate.plan import Status
from accel_migrate.report import Report, render
from accel_migrate.report.highlight import highlighted, to_html
from accel_migrate.report.side_by_side import Row, folded, rows

from tests.browser import browse
from tests.migrate.conftest import Run

PROBE = """<script>
addEventListener("load", () => {
  const seen = {
    overflow: document.documentElement.scrollWidth - innerWidth,
    background: getComputedStyle(document.body).backgroundColor,
    sides: document.querySelector(".diff .old").getClientRects().length,
    numbers: Math.max(...[...document.querySelectorAll("td.number")].map((each) => each.offsetWidth)),
    keyword: getComputedStyle(document.querySelector(".k")).color,
  };
  document.querySelector(".fold button").click();
  seen.unfolded = document.querySelectorAll("tbody[hidden]").length;
  document.querySelector(".why .applied").click();
  seen.reason = document.querySelector(".why details[open] p").innerText;
  document.getElementById("theme").click();
  seen.switched = getComputedStyle(document.body).backgroundColor;
  document.title = "PROBE" + JSON.stringify(seen) + "END";
});
</script>"""


@pytest.fixture
def page(run: Run) -> Path:
    padding = "".join(f"# line {number} of <padding>\n" for number in range(20))
    Path("train.py").write_text(f"import torch\n{padding}def train(x):\n    y = x.cuda()\n    return y.half()\n")
    Path("engine.py").write_text(f"import torch\n{'x' * 300} = 1\nz.cuda()\n{padding}")
    Path("broken.py").write_text("import torch\nx = (\n")
    cells = [{"cell_type": "code", "source": "import torch\nx.cuda()"}]
    Path("book.ipynb").write_text(json.dumps({"cells": cells, "metadata": {}}))
    run("--check", "--html", "report.html", ".")
    return Path("report.html").absolute()


def probe(page: Path, tmp_path: Path, *arguments: str, width: int) -> dict[str, object]:
    """What the page is like in a window of that width, and after some clicks."""
    probed = tmp_path / "probed.html"
    probed.write_text(page.read_text().replace("</body>", f"{PROBE}</body>"))
    dom = browse(probed, tmp_path / "profile", "--dump-dom", *arguments, width=width)
    found = re.search(r"PROBE(.*)END", dom)
    assert found, dom[:2000]
    seen: dict[str, object] = json.loads(found[1].replace("&lt;", "<").replace("&gt;", ">"))
    return seen


def test_the_page_needs_nothing_but_itself(page: Path) -> None:
    text = page.read_text()
    assert not re.search(r"""(?:src|href)\s*=\s*["'](?!#)|https?://|@import|url\(""", text)
    assert "train.py" in text and "broken.py" in text and "book.ipynb" in text
    assert "&lt;padding&gt;" in text and "<padding>" not in text


def test_a_browser_shows_both_sides_folds_far_lines_and_tells_reasons(page: Path, tmp_path: Path) -> None:
    wide = probe(page, tmp_path, width=1280)
    assert wide["overflow"] == 0
    assert wide["sides"] == 1
    assert wide["numbers"] == 51, "columns of numbers stay narrow, also under a fold"
    assert wide["unfolded"] == 1, "two files fold lines, and one was opened"
    assert wide["reason"] == "prepare() moves this"
    assert wide["background"] == "rgb(246, 247, 249)" != wide["switched"] == "rgb(20, 23, 28)"
    assert wide["keyword"] == "rgb(138, 43, 226)"


def test_a_phone_shows_one_column_without_scrolling_sideways(page: Path, tmp_path: Path) -> None:
    narrow = probe(page, tmp_path, width=500)
    assert narrow["overflow"] == 0
    assert narrow["sides"] == 0, "an unchanged line is shown once"


def test_a_screenshot_can_be_taken(page: Path, tmp_path: Path) -> None:
    picture = tmp_path / "report.png"
    browse(page, tmp_path / "profile", f"--screenshot={picture}", width=1280, height=1400)
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size > 20_000, "an empty page is smaller"


def test_every_line_of_both_sides_is_there() -> None:
    part = Part("", b"import torch\n", b"import torch\n\nx = 1\n\n\n")
    page = render(Report((Outcome(Path("a.py"), "a.py", Status.MIGRATED, parts=(part,)),)), "html")
    assert re.findall(r'class="number old">(\d+)', page) == ["1"]
    assert re.findall(r'class="number new">(\d+)', page) == ["1", "2", "3", "4", "5"]


def test_lines_that_resemble_each_other_face_each_other() -> None:
    before = ["a", "loss.backward()", "b"]
    after = ["a", "new line", "accelerator.backward(loss)", "b"]
    found = list(rows(before, after))
    assert [(row.left, row.right) for row in found] == [(1, 1), (None, 2), (2, 3), (3, 4)]
    assert found[2].changed and found[2].left_marks and found[2].right_marks


def test_runs_to_show_and_to_fold_alternate() -> None:
    every = [Row(number, number) for number in range(1, 21)]
    every[9] = Row(10, 10, ((0, 1),))
    assert [len(run) for run in folded(every, {20}, context=2)] == [0, 7, 5, 5, 3]


def test_a_short_run_is_not_folded() -> None:
    every = [Row(number, number) for number in range(1, 8)]
    every[3] = Row(4, 4, ((0, 1),))
    assert [len(run) for run in folded(every, set(), context=0)] == [7]


def test_colours_and_marks_nest() -> None:
    (tokens,) = highlighted("return 10")
    assert to_html(tokens, [(3, 8)]) == (
        '<i class="k">ret</i><mark><i class="k">urn</i></mark><mark> </mark>'
        '<mark><i class="n">1</i></mark><i class="n">0</i>'
    )
