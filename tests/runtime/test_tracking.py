"""Trackers: on the main process, each with what it was told."""

import json
import sys
import types

import pytest
import torch
from accel_runtime import Accelerator, Silent
from accel_runtime.errors import ConfigError, UsageError
from accel_runtime.tracking import GeneralTracker, Trackers


class Remembering(GeneralTracker):
    name = "remembering"

    def __init__(self, run_name="unnamed", **settings):
        self.told = [("start", run_name, settings)]

    def store_init_configuration(self, values):
        self.told.append(("config", dict(values)))

    def log(self, values, step=None, **kwargs):
        self.told.append(("log", dict(values), step, kwargs))

    def finish(self):
        self.told.append(("finish",))


def test_ones_own_tracker_by_class_or_by_object():
    ready = Remembering("ready")
    accelerator = Accelerator(cpu=True, log_with=[ready, Remembering])
    accelerator.init_trackers("run", config={"lr": 0.1}, init_kwargs={"remembering": {"tag": "a"}})
    accelerator.log({"loss": 1.0}, step=3, log_kwargs={"remembering": {"commit": True}})
    built = accelerator.trackers[1]
    accelerator.end_training()
    rest = [("config", {"lr": 0.1}), ("log", {"loss": 1.0}, 3, {"commit": True}), ("finish",)]
    assert ready.told == [("start", "ready", {}), *rest]
    assert built.told == [("start", "run", {"tag": "a"}), *rest]


def test_json_lines_can_be_read_while_the_run_goes_on(tmp_path):
    accelerator = Accelerator(cpu=True, log_with="jsonl", project_dir=tmp_path)
    accelerator.init_trackers("run", config={"lr": 0.1, "path": tmp_path})
    accelerator.log({"loss": torch.tensor(0.5), "name": "a"}, step=1)
    (line,) = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    entry = json.loads(line)
    assert (entry["step"], entry["loss"], entry["name"]) == (1, 0.5, "a")
    assert json.loads((tmp_path / "run" / "config.json").read_text())["lr"] == 0.1
    accelerator.end_training()


def test_tensorboard_gets_scalars_and_hyperparameters(tmp_path):
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accelerator = Accelerator(cpu=True, log_with="tensorboard", project_dir=tmp_path)
    accelerator.init_trackers("run", config={"model": {"width": 8}, "names": ["a"]})
    for step in range(3):
        accelerator.log({"loss": torch.tensor(1.0 / (step + 1)), "text": "hello"}, step=step)
    accelerator.end_training()
    events = EventAccumulator(str(tmp_path / "run"))
    events.Reload()
    assert [event.value for event in events.Scalars("loss")] == pytest.approx([1, 1 / 2, 1 / 3])


def test_wandb_and_mlflow_are_called_as_they_expect(monkeypatch):
    calls = []

    def recorder(name):
        return lambda *args, **kwargs: calls.append((name, args, kwargs))

    run = types.SimpleNamespace(
        config=types.SimpleNamespace(update=recorder("config")), log=recorder("log"), finish=recorder("finish")
    )
    wandb = types.SimpleNamespace(init=lambda **kwargs: calls.append(("init", (), kwargs)) or run)
    names = ("set_experiment", "start_run", "log_params", "log_metrics", "end_run")
    mlflow = types.SimpleNamespace(**{name: recorder(name) for name in names})
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    accelerator = Accelerator(cpu=True, log_with=["wandb", "mlflow"])
    accelerator.init_trackers("run", config={"a": {"b": 1}}, init_kwargs={"wandb": {"entity": "us"}})
    accelerator.log({"loss": torch.tensor(2.0), "note": "x"}, step=1)
    accelerator.end_training()
    assert ("init", (), {"project": "run", "entity": "us"}) in calls
    assert ("log_params", ({"a/b": 1},), {}) in calls
    assert ("log_metrics", ({"loss": 2.0},), {"step": 1}) in calls
    assert [name for name, _, _ in calls][-2:] == ["finish", "end_run"]


def test_other_processes_track_nothing_and_may_say_anything():
    trackers = Trackers(Remembering, active=False)
    trackers.start("run", None, {}, {})
    assert trackers.started == []
    trackers.get("remembering", unwrap=True).watch("model").anything(1)


def test_a_tracker_that_writes_files_needs_a_place():
    with pytest.raises(ConfigError, match="pass project_dir="):
        Accelerator(cpu=True, log_with="jsonl").init_trackers("run")


def test_an_unknown_tracker_is_named_with_those_that_run():
    trackers = Trackers(Remembering, active=True)
    trackers.start("run", None, {}, {})
    with pytest.raises(UsageError, match="there is no tracker 'wandb'; init_trackers started remembering"):
        trackers.get("wandb", unwrap=False)


def test_a_run_that_records_nothing_has_a_stand_in_for_every_tracker():
    Accelerator(cpu=True).get_tracker("wandb").log({"loss": 1.0})


@pytest.mark.parametrize("load_first", [False, True])
def test_a_resumed_run_goes_on_in_the_record_of_the_first(load_first, tmp_path):
    record = tmp_path / "run" / "metrics.jsonl"
    first = Accelerator(cpu=True, log_with="jsonl", project_dir=tmp_path)
    first.init_trackers("run")
    first.log({"loss": 3.0}, step=0)
    first.save_state()
    first.log({"loss": 2.0}, step=1)
    first.end_training()
    second = Accelerator(cpu=True, log_with="jsonl", project_dir=tmp_path)
    for step in [second.load_state, lambda: second.init_trackers("run")][:: 1 if load_first else -1]:
        step()
    second.log({"loss": 1.5}, step=1)
    second.end_training()
    assert [json.loads(line)["loss"] for line in record.read_text().splitlines()] == [3.0, 1.5]
    beside = record.with_suffix(".superseded.jsonl").read_text()
    assert json.loads(beside)["loss"] == 2.0


def test_tensorboard_hides_what_a_resumed_run_tells_again(tmp_path):
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    first = Accelerator(cpu=True, log_with="tensorboard", project_dir=tmp_path)
    first.init_trackers("run")
    first.log({"loss": 3.0}, step=0)
    first.save_state()
    first.log({"loss": 2.0}, step=1)
    first.log({"loss": 1.0}, step=2)
    first.end_training()
    second = Accelerator(cpu=True, log_with="tensorboard", project_dir=tmp_path)
    second.init_trackers("run")
    second.load_state("latest")
    second.log({"loss": 1.5}, step=1)
    second.end_training()
    events = EventAccumulator(str(tmp_path / "run"))
    events.Reload()
    assert [event.value for event in events.Scalars("loss")] == [3.0, 1.5]


def test_wandb_and_mlflow_open_the_run_of_the_checkpoint(monkeypatch, tmp_path):
    opened = []

    def run_of(**settings):
        opened.append(settings)
        identity = settings.get("id") or settings.get("run_id") or f"fresh-{len(opened)}"
        return types.SimpleNamespace(
            id=identity, info=types.SimpleNamespace(run_id=identity), log=lambda *_, **__: None, finish=lambda: None
        )

    mlflow = types.SimpleNamespace(
        set_experiment=lambda name: None, start_run=run_of, log_metrics=lambda *_, **__: None, end_run=lambda: None
    )
    monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(init=run_of))
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    for _ in range(2):
        accelerator = Accelerator(cpu=True, log_with=["wandb", "mlflow"], project_dir=tmp_path)
        accelerator.init_trackers("run")
        accelerator.load_state("latest", missing_ok=True)
        accelerator.save_state()
    assert opened[4:] == [{"project": "run", "id": "fresh-1", "resume": "must"}, {"run_id": "fresh-2"}]


def test_a_figure_that_is_none_is_left_out_of_tensorboard_and_stays_in_json(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accelerator = Accelerator(cpu=True, log_with=["tensorboard", "jsonl"], project_dir=tmp_path)
    accelerator.init_trackers("run")
    accelerator.log({"loss": 1.5, "lr": None}, step=1)
    accelerator.end_training()
    events = EventAccumulator(str(tmp_path / "run"))
    events.Reload()
    assert events.Tags()["scalars"] == ["loss"]


def test_a_tracker_that_opens_its_file_in_start_has_it_open_for_all_that_follows(tmp_path):
    class Late(Remembering):
        def start(self):
            self.told.append(("opened",))

    accelerator = Accelerator(cpu=True, log_with=Late())
    accelerator.init_trackers("run", config={"lr": 1}, init_kwargs=None)
    accelerator.log({"loss": 1}, log_kwargs=None)
    assert [told[0] for told in accelerator.trackers[0].told] == ["start", "opened", "config", "log"]


def test_a_silent_writer_takes_every_call() -> None:
    writer = Silent()
    writer.add_scalar("loss", 1.0, 3)
    writer.add_image("x", None, dataformats="CHW")
    writer.close()
    assert not writer and writer is not None
