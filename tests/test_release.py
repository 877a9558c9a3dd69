"""What a release is made of: one version, a changelog, workflows and an image that name what is there."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
import tomllib
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.specifiers import SpecifierSet

from tests.cases import FIXTURES
from tests.pages import PAGES

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CODEMOD_ALONE = ("libcst", "pathspec", "pygments", "rich")


def workflow(name: str) -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load((ROOT / ".github" / "workflows" / name).read_text())
    return read


def test_version_stands_in_one_place_and_pages_follow() -> None:
    version = PROJECT["version"]
    sources = [*ROOT.glob("migrate/**/*.py"), *ROOT.glob("runtime/**/*.py")]
    assert not [path for path in sources if f'"{version}"' in path.read_text()]
    assert {tag for page in PAGES for tag in re.findall(r"rev: (\S+)", page.read_text())} == {f"v{version}"}


def test_what_is_pinned_installs_on_the_python_of_debian_12() -> None:
    """Its 3.11.2 is what a newcomer has; a package that asks for a later patch would stop `make demo`."""
    pinned = re.findall(r"^([\w.-]+)==", (ROOT / "constraints.txt").read_text(), re.M)
    asked = {}
    for name in pinned:
        with suppress(PackageNotFoundError):
            asked[name] = distribution(name).metadata["Requires-Python"] or ""
    assert len(asked) > 80
    assert not {name: python for name, python in asked.items() if not SpecifierSet(python).contains("3.11.2")}


def test_a_tag_is_released_when_version_and_changelog_say_so(tmp_path: Path) -> None:
    missing = runpy.run_path(str(ROOT / ".ci" / "release_check.py"))["missing"]
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "1.2.3"\n')
    (tmp_path / "CHANGELOG.md").write_text("## [Unreleased]\n")
    assert missing("v1.2.3", tmp_path) == ["CHANGELOG.md has no heading `## [1.2.3] - YEAR-MONTH-DAY`"]
    (tmp_path / "CHANGELOG.md").write_text("## [Unreleased]\n\n## [1.2.3] - 2026-11-17\n")
    assert missing("v1.2.3", tmp_path) == []
    assert missing("v1.2.4", tmp_path) == ["the tag is v1.2.4 and pyproject.toml has version 1.2.3"]


def test_workflows_run_what_there_is() -> None:
    classifiers = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert workflow("tests.yml")["jobs"]["test"]["strategy"]["matrix"]["python"] == classifiers
    jobs = [job for name in ("tests.yml", "publish.yml") for job in workflow(name)["jobs"].values()]
    ran = "\n".join(step.get("run", "") for job in jobs for step in job["steps"])
    (targets,) = re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.M)
    assert set(re.findall(r"make ([\w-]+)", ran)) <= set(targets.split())
    assert not [path for path in re.findall(r"(?:\.ci|fixtures)/[\w./]+", ran) if not (ROOT / path).exists()]


def test_urls_are_those_of_the_repository_that_builds() -> None:
    urls = runpy.run_path(str(ROOT / "hatch_build.py"))["project_urls"]
    assert urls({}) == {}
    told = urls({"GITHUB_SERVER_URL": "https://example.org", "GITHUB_REPOSITORY": "someone/accel-migrate"})
    assert told["Source"] == "https://example.org/someone/accel-migrate"
    paths = [url.partition("/blob/main/")[2] for url in told.values() if "/blob/" in url]
    assert paths and all((ROOT / path).exists() for path in paths)


def test_image_copies_what_the_build_needs() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    copied = [word for line in lines if line.startswith("COPY") for word in line.split()[1:-1]]
    assert {"pyproject.toml", "hatch_build.py", "README.md", "LICENSE"} <= set(copied)
    assert not [path for path in copied if not (ROOT / path).exists()]
    (torch,) = re.findall(r"^torch==.*$", (ROOT / "constraints.txt").read_text(), re.M)
    assert f"ARG TORCH={torch}" in lines


def test_nothing_tells_to_install_what_is_not_published() -> None:
    sources = [*ROOT.glob("migrate/**/*.py"), *ROOT.glob("runtime/**/*.py"), *PAGES]
    wrong = re.compile(r"(?:pip|pipx|uv|uvx) (?:install |run |tool install )?[\"']?accel[-_](?:migrate|runtime)")
    assert not [path for path in sources if wrong.search(path.read_text())]


@pytest.mark.parametrize("arguments", [("train.py",), ("-m", "accel_runtime", "launch", "train.py")], ids=" ".join)
def test_runtime_needs_nothing_that_only_the_codemod_needs(arguments: tuple[str, ...], tmp_path: Path) -> None:
    """An image for training may leave it out: it is as if it were not installed."""
    (tmp_path / "train.py").write_bytes((FIXTURES / "train_and_evaluate" / "after.py").read_bytes())
    blocked = "".join(f"sys.modules[{name!r}] = None\n" for name in CODEMOD_ALONE)
    (tmp_path / "blocked.py").write_text(f"import runpy, sys\n{blocked}sys.argv = sys.argv[1:]\n" + BEGIN)
    done = subprocess.run([sys.executable, "blocked.py", *arguments], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and "accuracy" in done.stdout, done.stderr


BEGIN = """
if sys.argv[0] == "-m":
    module, sys.argv = sys.argv[1], sys.argv[1:]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
else:
    runpy.run_path(sys.argv[0], run_name="__main__")
"""
