from __future__ import annotations

from pathlib import Path

from accel_migrate.discover import discover
from accel_migrate.project import Task, scan, tasks


def pieces(root: Path, *paths: str) -> list[tuple[list[str], list[str]]]:
    """Sources and siblings of each task, by name."""

    def short(files: tuple[Path, ...]) -> list[str]:
        return [file.relative_to(root).as_posix() for file in files]

    found: list[Task] = tasks(discover([Path(path) for path in paths], (), root).files, lambda each: map(scan, each))
    return [(short(task.sources), short(task.siblings)) for task in found]


def write(root: Path, **files: str) -> None:
    for name, text in files.items():
        path = root / (name.replace("__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_files_that_import_each_other_are_one_task_and_strangers_are_their_own(tmp_path: Path) -> None:
    write(tmp_path, main="import torch\nfrom engine import train\n", engine="import torch\n", other="import torch\n")
    assert pieces(tmp_path, ".") == [(["engine.py", "main.py"], []), (["other.py"], [])]


def test_a_file_without_torch_comes_along_only_when_it_is_imported(tmp_path: Path) -> None:
    write(tmp_path, main="import torch, config\n", config="EPOCHS = 3\n", readme="print('hello')\n")
    assert pieces(tmp_path, ".") == [(["config.py", "main.py"], [])]


def test_a_script_without_torch_that_runs_what_trains_belongs_to_it(tmp_path: Path) -> None:
    write(tmp_path, run="from engine import train\nimport store\n", engine="import torch\n", store="import pickle\n")
    assert pieces(tmp_path, ".") == [(["engine.py", "run.py", "store.py"], [])]


def test_relative_imports_and_packages_are_followed(tmp_path: Path) -> None:
    write(
        tmp_path,
        tools__run="import torch\nfrom tools.engine import loop\n",
        tools__engine__loop="import torch\nfrom ..data import load\n",
        tools__data="import torch\n",
    )
    (tmp_path / "tools/engine/__init__.py").touch()
    (tmp_path / "tools/__init__.py").touch()
    (sources, siblings) = pieces(tmp_path, ".")[0]
    assert {"tools/run.py", "tools/engine/loop.py", "tools/data.py"} <= set(sources)
    assert siblings == []


def test_a_named_file_reads_what_it_imports_and_who_imports_it(tmp_path: Path) -> None:
    write(
        tmp_path,
        engine="import torch\nimport model\n",
        model="import torch\n",
        main="import torch\nimport engine\n",
        stranger="import torch\n",
    )
    assert pieces(tmp_path, "engine.py") == [(["engine.py"], ["main.py", "model.py"])]


def test_a_file_that_does_not_parse_is_a_task_of_its_own(tmp_path: Path) -> None:
    write(tmp_path, bad="import torch\nx = (\n", main="import torch\n")
    assert pieces(tmp_path, ".") == [(["bad.py"], []), (["main.py"], [])]


def test_a_file_that_does_not_parse_belongs_to_what_its_lines_import(tmp_path: Path) -> None:
    write(tmp_path, bad="%matplotlib inline\nfrom engine import train\ntrain()\n", engine="import torch\n")
    assert pieces(tmp_path, ".") == [(["bad.py", "engine.py"], [])]


def test_tests_are_read_and_not_migrated_unless_they_are_named(tmp_path: Path) -> None:
    unit = "import torch, engine\n\ndef test_it():\n    engine.train()\n"
    write(
        tmp_path,
        engine="import torch\n",
        test_engine=unit,
        tests__helper="import torch, engine\n",
        conftest="import torch\n",
    )
    assert pieces(tmp_path, ".") == [(["engine.py"], ["test_engine.py", "tests/helper.py"])]
    assert pieces(tmp_path, "engine.py", "test_engine.py")[0][0] == ["engine.py", "test_engine.py"]


def test_a_script_that_evaluates_is_not_a_test(tmp_path: Path) -> None:
    evaluates = "import torch, engine\n\ndef test(net):\n    engine.train()\n"
    write(tmp_path, test_net=evaluates, engine="import torch\n", test="import torch\n")
    write(tmp_path, data__test_data="import torch\n\nclass TestData(torch.utils.data.Dataset):\n    pass\n")
    assert pieces(tmp_path, ".") == [(["data/test_data.py"], []), (["engine.py", "test_net.py"], []), (["test.py"], [])]
