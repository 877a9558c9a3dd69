"""`accel plot` draws what a tracker wrote, and says what is missing."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

from accel_runtime import Accelerator
from accel_runtime.cli.plot import command, curves_in, render
from accel_runtime.errors import ConfigError
from click.testing import CliRunner


def tracked(folder: Path, name: str, losses: list[float]) -> Path:
    accelerator = Accelerator(log_with="jsonl", project_dir=folder, cpu=True)
    accelerator.init_trackers(name)
    for step, loss in enumerate(losses):
        accelerator.log({"loss": loss, "note": "a text"}, step=step)
    accelerator.end_training()
    return folder / name


def test_every_number_of_a_run_is_a_curve(tmp_path: Path) -> None:
    run = tracked(tmp_path, "first", [1.0, 0.5, 0.25])
    done = CliRunner().invoke(command, [str(run)])
    assert done.output == f"{run / 'curves.html'}\n"
    page = (run / "curves.html").read_text()
    assert page.count("<figure") == 1 and "<b>loss</b>" in page and "note" not in page
    svg = ElementTree.fromstring(page[page.index("<svg") : page.index("</svg>") + 6])
    points = [tuple(map(float, p.split(","))) for p in svg.find("polyline").get("points").split()]  # type: ignore[union-attr]
    assert [x for x, _ in points] == [74.0, 391.0, 708.0]
    assert points[0][1] < points[1][1] < points[2][1], "a falling loss falls"
    assert "http" not in page, "it needs no network"


def test_runs_are_laid_over_each_other(tmp_path: Path) -> None:
    runs = [tracked(tmp_path, name, losses) for name, losses in (("one", [1.0, 0.5]), ("two", [2.0, 1.0, 0.1]))]
    CliRunner().invoke(command, [*map(str, runs), "-o", str(tmp_path / "both.html")])
    page = (tmp_path / "both.html").read_text()
    assert page.count("<figure") == 1 and page.count("<polyline") == 2
    assert 'class="r0"' in page and 'class="r1"' in page


def test_a_run_without_lines_is_named_with_the_remedy(tmp_path: Path) -> None:
    tracked(tmp_path, "first", [1.0])
    error = CliRunner().invoke(command, [str(tmp_path)]).exception
    assert isinstance(error, ConfigError) and f"did you mean {tmp_path / 'first'}?" in str(error)
    (tmp_path / "empty").mkdir()
    error = CliRunner().invoke(command, [str(tmp_path / "empty")]).exception
    assert "log_with='jsonl'" in str(error)


def test_what_is_no_number_is_not_drawn_and_a_cut_line_ends_the_record(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 0, "time": 1, "loss": NaN}\n{"step": 1, "time": 2, "loss": 3}\n{"step": 2, "ti')
    assert curves_in(path) == {"loss": [(1, 3)]}
    assert "No numbers were logged" in render({"run": {}})


def test_a_long_run_is_thinned_out_and_keeps_its_ends(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(json.dumps({"step": step, "loss": step}) + "\n" for step in range(5000)))
    page = render({"run": curves_in(path)})
    points = page.split('points="')[1].split('"')[0].split()
    assert len(points) <= 1001
    assert points[-1].startswith("708.0,")
