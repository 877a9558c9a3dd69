from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from pydantic import BaseModel
from sarif_pydantic import Sarif

from tests.migrate.conftest import Run

SCHEMA = Path(__file__).parents[2] / "docs/report-schema.json"
MIXED = {
    "a.py": "import torch\nx.cuda()\ny.xpu()\nz.half()\n",
    "bad.py": "import torch\nx = (\n",
    "skipped.py": "# accel: skip-file\nimport torch\n",
    "plain.py": "print(1)\n",
    "book.ipynb": json.dumps({"cells": [{"cell_type": "code", "source": "import torch\nx.cuda()"}], "metadata": {}}),
}


@pytest.fixture
def project(run: Run) -> Run:
    for name, text in MIXED.items():
        Path(name).write_text(text)
    return run


@pytest.mark.parametrize("mode", [[], ["--check"], ["--diff"], ["--check", "--statistics"]])
def test_json_keeps_to_its_schema(project: Run, mode: list[str]) -> None:
    report = json.loads(project(*mode, "--output-format", "json", ".", "missing.py").out)
    jsonschema.validate(report, json.loads(SCHEMA.read_text()))
    assert {file["path"]: file["status"] for file in report["files"]} == {
        "a.py": "migrated",
        "bad.py": "failed",
        "book.ipynb": "migrated",
        "missing.py": "failed",
        "plain.py": "unchanged",
        "skipped.py": "skipped",
    }
    assert report["summary"]["files"] == {"migrated": 2, "unchanged": 1, "skipped": 1, "failed": 2}
    assert report["summary"]["changes"]["applied"] == 2


def test_the_schema_refuses_what_it_does_not_know(project: Run) -> None:
    report = json.loads(project("--check", "--output-format", "json", ".").out)
    report["files"][0]["changes"][0]["severity"] = "high"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(report, json.loads(SCHEMA.read_text()))


def test_json_carries_the_diff_when_one_is_asked_for(project: Run) -> None:
    report = json.loads(project("--diff", "--output-format", "json", "a.py").out)
    assert report["files"][0]["diff"].startswith("--- a/a.py\n+++ b/a.py\n@@")


def unknown_keys(value: object) -> set[str]:
    """Keys that the model of SARIF does not know, at any depth."""
    if isinstance(value, list):
        return {key for each in value for key in unknown_keys(each)}
    if not isinstance(value, BaseModel):
        return set()
    fields = [getattr(value, name) for name in type(value).model_fields]
    return set(value.model_extra or {}) | {key for field in fields for key in unknown_keys(field)}


def test_sarif_is_sarif(project: Run) -> None:
    log = Sarif.model_validate_json(project("--diff", "--output-format", "sarif", ".").out)
    # The standard has these two; the model lacks them.
    assert unknown_keys(log) <= {"columnKind", "toolExecutionNotifications"}
    (run,) = log.runs
    assert run.results is not None
    assert [(result.rule_id, result.level and result.level.value) for result in run.results] == [
        ("AM101", "warning"),
        ("AM201", "warning"),
        ("AM301", "note"),
        ("AM911", "note"),
        ("AM101", "warning"),
    ]


def test_sarif_carries_the_fix_and_names_what_failed(project: Run) -> None:
    (run,) = json.loads(project("--diff", "--output-format", "sarif", ".").out)["runs"]
    (fix,) = [fix for result in run["results"] for fix in result.get("fixes", [])]
    assert fix["artifactChanges"][0]["replacements"] == [
        {
            "deletedRegion": {"startLine": 2, "startColumn": 1, "endLine": 3, "endColumn": 1},
            "insertedContent": {"text": "x\n"},
        }
    ]
    (invocation,) = run["invocations"]
    assert not invocation["executionSuccessful"]
    assert "bad.py does not parse" in invocation["toolExecutionNotifications"][0]["message"]["text"]


def test_github_annotates_files_and_lines(project: Run) -> None:
    lines = project("--check", "--output-format", "github", ".").out.splitlines()
    assert "::warning file=a.py,line=2,col=2,title=AM101::prepare() moves this" in lines
    assert "::notice file=a.py,line=4,col=2,title=AM301::half precision is left alone" in lines
    assert "::error file=bad.py,line=2,title=accel-migrate::does not parse: '(' was never closed" in lines
    assert "::warning file=book.ipynb,title=AM101::cell 1, line 2: prepare() moves this" in lines


def test_github_escapes_what_would_end_a_command(run: Run) -> None:
    Path("a,b:100%.py").write_text("import torch\nx.cuda()\n")
    out = run("--check", "--output-format", "github", "a,b:100%.py").out
    assert out.startswith("::warning file=a%2Cb%3A100%25.py,line=2")


def test_markdown_has_a_table_and_the_diff(project: Run) -> None:
    out = project("--diff", "--output-format", "markdown", ".").out
    assert "| `a.py` | migrated | 1 | 1 | 1 |" in out
    assert "| AM101 | prepare() moves this | 2 |" in out
    each = project("--diff", "-v", "--output-format", "markdown", ".").out
    assert "- `2:2` **AM101** would apply: prepare() moves this" in each
    assert "```diff\n--- a/a.py\n+++ b/a.py\n" in out


def test_statistics_count_files_changes_lines_and_rules(project: Run) -> None:
    out = project("--check", "--statistics", ".").out
    assert "  files    2 migrated, 1 unchanged, 1 skipped, 1 failed\n" in out
    assert "  changes  2 applied of 3 found (66.7 %)\n" in out
    assert "  AM101    2 applied\n" in out


def test_quiet_tells_only_what_failed(project: Run) -> None:
    done = project("-q", "--check", ".")
    assert (done.out, done.err.count("\n")) == ("", 1)


def test_colour_is_for_terminals_and_for_those_who_ask(project: Run) -> None:
    assert "\x1b[" not in project("--diff", "a.py").out
    assert "\x1b[32m+x\x1b[0m" in project("--diff", "--color", "always", "a.py").out


def test_github_gets_no_more_annotations_than_it_shows(run: Run) -> None:
    Path("many.py").write_text("import torch\n" + "x.cuda()\n" * 25 + "y.half()\n" * 3)
    lines = run("--check", "--output-format", "github", "many.py").out.splitlines()
    assert sum(line.startswith("::warning ") for line in lines) == 10
    assert "::warning title=accel-migrate::16 more" in "\n".join(lines)
    assert sum("prepare() moves this" in line for line in lines) == 25, "the log has them all"
    assert sum(line.startswith("::notice ") for line in lines) == 3


def test_the_page_tells_done_from_proposed_and_left_from_nothing_to_do(command: Run) -> None:
    loop = "import torch\nfor x in data():\n    loss = net(x)\n    loss.backward()\n    optimizer.step()\n"
    Path("left.py").write_text(loop)
    Path("plain.py").write_text("import torch\nprint(torch.zeros(1))\n")
    Path("moved.py").write_text(
        "import torch\nfrom torch import nn\nfrom data import loader\n\nmodel = nn.Linear(4, 1).cuda()\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for x in torch.utils.data.DataLoader(loader):\n    loss = model(x.cuda()).mean()\n"
        "    loss.backward()\n    optimizer.step()\n"
    )
    command("--check", "--html", "page.html", ".")
    page = Path("page.html").read_text()
    assert '<span class="badge left unchanged">left</span><span>left.py' in page
    assert '<span class="badge nothing-to-do unchanged">nothing to do</span><span>plain.py' in page
    assert '<span class="badge would-be-migrated migrated">would be migrated</span><span>moved.py' in page
    assert "Would be applied" in page
