"""A verdict on the report page, opened in a browser."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from accel_migrate.outcome import Outcome as FileOutcome
from accel_migrate.plan import Status
from accel_migrate.proof import data, meaning, page, text
from accel_migrate.proof.blame import Suspect
from accel_migrate.proof.check import Check, Difference, Quantity, Result
from accel_migrate.proof.record import Event
from accel_migrate.proof.runs import StandIn
from accel_migrate.proof.step.conclude import StepAnswer, StepResult
from accel_migrate.proof.verdict import Curve, Outcome, Verdict, answer
from accel_migrate.report import Report, Shown, render

from tests.browser import browse

PROVEN = Verdict(
    "train.py",
    Outcome.PROVEN,
    2,
    (
        Check(Quantity.LOSSES, 1, Result.EQUAL, 3, 3),
        Check(Quantity.LOSSES, 2, Result.WITHIN, 3, 3, 3e-7, 1e-4),
        Check(Quantity.PRINTED, 2, Result.NOT_COMPARED, note="no evaluation prints a figure in these steps"),
    ),
    curves=(
        Curve("original", 1, (1.0, 0.6, 0.4)),
        Curve("migrated", 1, (1.0, 0.6, 0.4)),
        Curve("rank 0", 2, (1.1, 0.7, 0.3)),
        Curve("rank 1", 2, (0.9, 0.5, 0.5000006)),
    ),
)
BROKEN = Check(
    Quantity.LOSSES,
    1,
    Result.DIFFERS,
    1,
    3,
    difference=Difference(2, "0.6", "0.7", Event("loss", "train.py", 12), Event("loss", "train.py", 14)),
)
DIFFERS = Verdict(
    "train.py",
    Outcome.DIFFERS,
    2,
    (BROKEN,),
    (Suspect("train.py", 12, "AM301", "the <Accelerator> runs the backward pass", 9.0),),
    (Curve("original", 1, (1.0, 0.6, 0.4)), Curve("migrated", 1, (1.0, 0.7, float("nan")))),
    broken=BROKEN,
)
PROBE = """<script>
addEventListener("load", () => {
  const boxes = [...document.querySelectorAll(".curves svg")].map((each) => each.getBoundingClientRect());
  document.title = "PROBE" + JSON.stringify({
    overflow: document.documentElement.scrollWidth - innerWidth,
    drawings: boxes.length,
    wide: boxes.every((box) => box.width > 250 && box.height > 30),
    lines: document.querySelectorAll(".curves polyline").length,
    marks: document.querySelectorAll(".curves .first").length,
    inside: [...document.querySelectorAll("circle")].every((each) => each.cx.baseVal.value <= 720),
  }) + "END";
});
</script>"""


def written(verdict: Verdict, folder: Path) -> Path:
    shown = Shown(answer(verdict), page.render(verdict), data.render(verdict))
    report = Report((FileOutcome(Path("train.py"), "train.py", Status.MIGRATED),), proof=shown)
    path = folder / "report.html"
    path.write_text(render(report, "html").replace("</body>", f"{PROBE}</body>"))
    return path


@pytest.mark.parametrize(("verdict", "drawings", "lines", "marks"), [(PROVEN, 4, 6, 0), (DIFFERS, 2, 2, 2)])
@pytest.mark.parametrize("width", [1280, 500])
def test_a_browser_draws_the_curves_over_each_other(
    verdict: Verdict, drawings: int, lines: int, marks: int, width: int, tmp_path: Path
) -> None:
    dom = browse(written(verdict, tmp_path), tmp_path / "profile", "--dump-dom", width=width)
    found = re.search(r"PROBE(.*?)END", dom)
    assert found, dom[:1000]
    expected = {"overflow": 0, "drawings": drawings, "wide": True, "lines": lines, "marks": marks, "inside": True}
    assert json.loads(found[1]) == expected


def test_the_page_needs_nothing_but_itself_and_escapes_what_it_is_told(tmp_path: Path) -> None:
    html = written(DIFFERS, tmp_path).read_text()
    assert not re.search(r"""(?:src|href)\s*=\s*["'](?!#)|https?://|@import|url\(""", html)
    assert "the &lt;Accelerator&gt; runs" in html and "nan" not in html.split("<main>")[1].split("polyline")[1]


STEPS = [
    StepAnswer(StepResult.EQUAL),
    StepAnswer(StepResult.DIFFERENT, "the gradient is scaled by 1/N (sum at train.py:9)"),
    StepAnswer(StepResult.UNKNOWN, "native_batch_norm at train.py:7 mixes rows"),
]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.result)
def test_what_a_step_shows_is_told_to_people_browsers_and_programs(step: StepAnswer) -> None:
    verdict = replace(PROVEN, step=step)
    row = text.render(verdict).splitlines()[-1]
    assert row.split()[:5] == ["N", "processes", "training", "step", step.result] and row.endswith(step.why)
    assert (step.told in answer(verdict)) is (step.result is not StepResult.UNKNOWN)
    assert f'<span class="chip {step.result}">' in page.render(verdict)
    assert data.render(verdict)["step"] == {"result": step.result, "why": step.why}


@pytest.mark.parametrize("verdict", [PROVEN, DIFFERS, *(replace(PROVEN, step=step) for step in STEPS)])
def test_programs_are_told_what_the_schema_says(verdict: Verdict) -> None:
    schema = json.loads((Path(__file__).parents[3] / "docs" / "report-schema.json").read_text())
    report = Report((), proof=Shown(answer(verdict), "", data.render(verdict)))
    jsonschema.validate(json.loads(render(report, "json")), schema)


def test_the_page_tells_what_its_proof_shows_in_the_words_of_the_docs() -> None:
    docs = (Path(__file__).parents[3] / "docs" / "verify.md").read_text()
    assert all(f"| {each.kind} | {each.shows} | {each.leaves_open} | {each.remedy} |" in docs for each in meaning.ALL)
    whole = replace(PROVEN, step=STEPS[0], stand_ins=(StandIn("MNIST", "made up"),))
    assert list(meaning.meanings(whole)) == [meaning.ONE, meaning.MANY, meaning.STEP, meaning.STAND_INS]
    assert list(meaning.meanings(PROVEN)) == [meaning.ONE, meaning.MANY]
    assert not list(meaning.meanings(DIFFERS))
    assert all(each.remedy in page.render(whole) for each in meaning.meanings(whole))
    assert "What this shows" not in page.render(DIFFERS)


def test_the_answer_comes_first_in_one_line() -> None:
    assert text.render(PROVEN).startswith("train.py: migrated, 3 of 3 losses equal; on 2 processes within 3e-07\n\n")
    assert text.render(DIFFERS).splitlines() == [
        "train.py: differs, loss 2 is 0.7 and was 0.6",
        "",
        "  1 process  losses  differs  1 of 3",
        "",
        "First difference: loss 2",
        "  original  0.6   train.py:12",
        "  migrated  0.7   train.py:14",
        "",
        "Changes that could explain it, the most likely first:",
        "  train.py:12: AM301 the <Accelerator> runs the backward pass",
    ]


def test_what_could_not_run_says_why_and_exits_with_two() -> None:
    verdict = Verdict("train.py", Outcome.NOT_RUN, 2, problem="the original ends with ValueError: no")
    assert text.render(verdict) == "train.py: not proven, the original ends with ValueError: no\n"
    assert [outcome.code for outcome in (PROVEN.outcome, DIFFERS.outcome, verdict.outcome)] == [0, 1, 2]


def test_losses_that_are_not_compared_say_from_where_and_why() -> None:
    dropped = Check(Quantity.LOSSES, 2, Result.NOT_COMPARED, 2, 3, 1e-8, note="batch 3 is a partial one")
    verdict = replace(PROVEN, checks=(PROVEN.checks[0], dropped))
    assert answer(verdict).endswith(
        "on 2 processes the first 2 within 1e-08, the rest not compared: batch 3 is a partial one"
    )
