from __future__ import annotations

from pathlib import Path

import pytest
from accel_migrate.configuration import configuration
from accel_migrate.errors import MigrateError
from accel_migrate.options import Options

from tests.migrate.conftest import Run


def test_reads_the_nearest_table_above(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.accel-migrate]\nkeep-device = true\nexclude = ["old/"]\n')
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner/pyproject.toml").write_text("[project]\nname = 'x'\n")
    assert configuration(tmp_path / "inner") == {"keep_device": True, "exclude": ("old/",)}


def test_the_command_line_wins() -> None:
    asked = Options(target="accelerate", keep_device=False)
    merged = asked.over({"target": "accel_runtime", "keep_device": True, "jobs": 2})
    assert (merged.target, merged.keep_device, merged.jobs) == ("accelerate", False, 2)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("keep-devices = true", "there is no setting keep-devices; did you mean keep-device?"),
        ("target = 'accelerat'", "target is 'accelerat'; it is one of accel_runtime, accelerate"),
        ("keep-device = 'yes'", "keep-device is 'yes'; it is true or false"),
        ("jobs = 0", "jobs is 0; it is a number above 0"),
        ("select = 'AM101'", "select is 'AM101'; it is a list of strings"),
    ],
)
def test_what_does_not_exist_is_an_error_with_the_nearest(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "pyproject.toml").write_text(f"[tool.accel-migrate]\n{line}\n")
    with pytest.raises(MigrateError) as error:
        configuration(tmp_path)
    assert message in str(error.value)


def test_settings_of_the_project_govern_the_run(run: Run) -> None:
    Path("pyproject.toml").write_text('[tool.accel-migrate]\noutput-format = "concise"\nexclude = ["old/"]\n')
    Path("old").mkdir()
    Path("old/a.py").write_text("import torch\nx.cuda()\n")
    Path("b.py").write_text("import torch\nx.cuda()\n")
    assert run(".").out == "Migrated 1 of 1 file with 1 change.\nb.py:2:2: AM101 [applied] prepare() moves this\n"


def test_a_broken_table_is_one_line(run: Run) -> None:
    Path("pyproject.toml").write_text("[tool.accel-migrate\n")
    Path("b.py").touch()
    done = run("b.py")
    assert done.code == 2
    assert done.err.count("\n") == 1 and "cannot be read as TOML" in done.err
