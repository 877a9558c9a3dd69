"""The wheel as people get it: in an empty environment without torch the codemod installs and works."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

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


def test_codemod_works_in_an_empty_environment_without_torch(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "empty", with_pip=True)
    commands = tmp_path / "empty" / "bin"
    run(commands / "pip", "install", "--quiet", "--constraint", ROOT / "constraints.txt", wheel, cwd=tmp_path)
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
    assert refused.startswith("accel: accel launch needs ") and "accel-migrate[runtime]" in refused
