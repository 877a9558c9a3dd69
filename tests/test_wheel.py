"""The wheel as people get it: in an empty environment without torch the codemod installs and works."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
import yaml

from tests.cases import FIXTURES

ROOT = Path(__file__).parent.parent


def run(*command: str | Path, cwd: Path, code: int = 0) -> str:
    """Its output; what it says on standard error comes last."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    # Not isolated: what builds it is installed with the test dependencies, and nothing is fetched.
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, cwd=ROOT)
    (built,) = folder.glob("*.whl")
    return built


def test_wheel_holds_both_packages_their_types_and_the_license(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {"accel_migrate/py.typed", "accel_runtime/py.typed"} <= set(names)
    assert [name for name in names if name.endswith("licenses/LICENSE")]
    assert {name.split("/")[0] for name in names} == {
        "accel_migrate",
        "accel_runtime",
        wheel.name.removesuffix("-py3-none-any.whl") + ".dist-info",
    }
    # What is not Python is easily forgotten.
    for root, package in (("migrate", "accel_migrate"), ("runtime", "accel_runtime")):
        files = {path.relative_to(ROOT / root).as_posix() for path in (ROOT / root / package).rglob("*.*")}
        assert {file for file in files if "__pycache__" not in file} <= set(names)


@pytest.fixture(scope="module")
def commands(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The commands of an environment in which the wheel is installed, and nothing else."""
    folder = tmp_path_factory.mktemp("empty")
    venv.create(folder, with_pip=True)
    run(folder / "bin" / "pip", "install", "--quiet", "--constraint", ROOT / "constraints.txt", wheel, cwd=folder)
    return folder / "bin"


def test_codemod_works_in_an_empty_environment_without_torch(commands: Path, tmp_path: Path) -> None:
    run(commands / "python", "-c", "import torch", cwd=tmp_path, code=1)

    script = tmp_path / "train.py"
    script.write_bytes((FIXTURES / "train_and_evaluate" / "before.py").read_bytes())
    assert "+    accelerator = Accelerator()\n" in run(
        commands / "accel-migrate", "train.py", "--diff", cwd=tmp_path, code=1
    )
    run(commands / "accel-migrate", "train.py", cwd=tmp_path)
    assert script.read_bytes() == (FIXTURES / "train_and_evaluate" / "after.py").read_bytes()

    assert "launch" in run(commands / "accel", "--help", cwd=tmp_path)
    refused = run(commands / "accel", "launch", "train.py", cwd=tmp_path, code=2)
    assert refused.startswith("accel: accel launch needs ") and "pip install '.[runtime]'" in refused


def test_hooks_of_pre_commit_check_and_rewrite(commands: Path, tmp_path: Path) -> None:
    """As pre-commit calls them: the words of `entry`, then the files."""
    entries = {
        hook["id"]: hook["entry"].split() for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    }
    script = tmp_path / "train.py"
    script.write_bytes((FIXTURES / "train_and_evaluate" / "before.py").read_bytes())
    name, *options = entries["accel-migrate-check"]
    assert "AM102" in run(commands / name, *options, "train.py", cwd=tmp_path, code=1)
    name, *options = entries["accel-migrate"]
    run(commands / name, *options, "train.py", cwd=tmp_path)
    assert script.read_bytes() == (FIXTURES / "train_and_evaluate" / "after.py").read_bytes()
    name, *options = entries["accel-migrate-check"]
    run(commands / name, *options, "train.py", cwd=tmp_path)


def test_action_annotates_what_is_not_migrated(commands: Path, tmp_path: Path) -> None:
    """Its last step, as the runner does it; the first installs this repository, as the fixture did."""
    steps = yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["steps"]
    assert "$GITHUB_ACTION_PATH" in steps[0]["run"]
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_bytes((FIXTURES / "train_and_evaluate" / "before.py").read_bytes())
    given = ["env", f"PATH={commands}:{os.environ['PATH']}", "PATHS=src", "OPTIONS=--ignore AM601"]
    printed = run(*given, "bash", "-e", "-c", steps[-1]["run"], cwd=tmp_path, code=1)
    assert "::notice file=src/train.py,line=" in printed or "::warning file=src/train.py,line=" in printed
