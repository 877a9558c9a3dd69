"""AM603: TensorBoard and Weights & Biases hear one process."""

from __future__ import annotations

from pathlib import Path

import pytest
from accel_migrate.pipeline import migrate
from accel_migrate.settings import Settings
from accel_migrate.source import Source

from tests.migrate.rules.scripts import becomes, codes, training
from tests.migrate.rules.verbs import migrated, noted, notes


def test_disables_the_runs_of_other_processes():
    becomes(
        training(ready='model.requires_grad_(True)\nwandb.init(project="p")'),
        'wandb.init(project="p", mode=None if accelerator.is_main_process else "disabled")',
    )


@pytest.mark.parametrize(
    ("mode", "result"), [('"offline"', '"offline"'), ('"online" if wanted else None', '("online" if wanted else None)')]
)
def test_the_mode_of_a_run_is_that_of_the_main_process(mode: str, result: str) -> None:
    becomes(
        training(ready=f'model.requires_grad_(True)\nwandb.init(project="p", mode={mode})'),
        f'wandb.init(project="p", mode={result} if accelerator.is_main_process else "disabled")',
    )


def test_notes_a_run_whose_settings_are_not_seen() -> None:
    message = noted(training(ready="model.requires_grad_(True)\nwandb.init(**settings)"), "AM603")
    assert "mode=" in message and "once the Accelerator" not in message


SILENT = "writer = SummaryWriter() if accelerator.is_main_process else Silent()"
ASKED = "writer = SummaryWriter()\nfolder = writer.log_dir"


def test_one_process_has_the_writer_and_the_others_one_that_does_nothing():
    source = training(
        ready="model.requires_grad_(True)\nwriter = SummaryWriter()",
        inside='writer.add_scalar("a", 1, i)\nwriter.add_scalar("b", 2, i)',
        after="writer.flush()",
    )
    text = migrated(source)
    assert SILENT in text and "import Accelerator, Silent\n" in text
    assert '        writer.add_scalar("a", 1, i)\n        writer.add_scalar("b", 2, i)\n' in text
    assert not any("event" in note for note in notes(source))


@pytest.mark.parametrize(
    ("functions", "use"),
    [
        ("def show(events, value):\n    events.add_scalar('a', value)", "show(writer, total)"),
        (
            "def show(value, events=None):\n    if events is not None:\n        events.add_text('a', value)",
            "show(1, events=writer)",
        ),
        (
            "class Log:\n    def __init__(self, events):\n        self.events = events\n"
            "    def show(self):\n        self.events.add_scalar('a', 1)",
            "Log(writer).show()",
        ),
        ("", "writer.add_scalar('a', model(x).sum())"),
        ("def judged(net, x):\n    return net(x).mean().item()", "writer.add_scalar('a', judged(model, x))"),
        ("", "writer.add_histogram('a', model.weight.detach())"),
    ],
)
def test_a_writer_may_be_handed_on_to_be_told_things(functions: str, use: str):
    source = training(functions=functions, ready="model.requires_grad_(True)\nwriter = SummaryWriter()", after=use)
    assert (SILENT in migrated(source)) is ("model.weight" not in use)


def test_a_guard_keeps_nobody_from_running_the_model() -> None:
    functions = "def judged(net, x):\n    return net(x).mean().item()"
    ready = "model.requires_grad_(True)\nwriter = SummaryWriter()\nfolder = writer.log_dir"
    source = training(functions=functions, ready=ready, after="writer.add_scalar('a', judged(model, x))")
    assert any(
        "run the model, or take its weights or gradients, above that, on all processes" in message
        for message in notes(source)
    )
    assert "is_main_process" not in migrated(source)


@pytest.mark.parametrize(
    "use",
    [
        "folder = writer.log_dir",
        "writer.get_logdir()",
        "if writer:\n    show()",
        "keep.append(writer)",
        "unseen(writer)",
        "writer.add_graph(model, x)",
        "other = writer",
    ],
)
def test_a_writer_that_is_asked_for_more_is_there_on_all(use: str):
    source = training(
        ready="model.requires_grad_(True)\nwriter = SummaryWriter()", inside="writer.add_scalar('b', 1)", after=use
    )
    assert "Silent" not in migrated(source)
    assert "opens an event file" in noted(source, "AM603")


def test_a_writer_above_the_accelerator_and_one_for_accelerate_stay():
    source = training(inside="writer.add_scalar('b', 1)")
    above = source.replace("device = torch", "writer = SummaryWriter()\ndevice = torch", 1)
    assert "Silent" not in migrated(above)
    below = source.replace("for epoch", "writer = SummaryWriter()\nfor epoch", 1)
    assert "Silent" in migrated(below) and "Silent" not in migrated(below, Settings(target="accelerate"))


def test_guards_events_under_one_test():
    becomes(
        training(ready=ASKED, inside='writer.add_scalar("a", 1, i)\nwriter.add_scalar("b", 2, i)'),
        'if accelerator.is_main_process:\nwriter.add_scalar("a", 1, i)\nwriter.add_scalar("b", 2, i)',
    )


def test_a_writer_of_any_package_is_one():
    source = training(ready=ASKED, inside='writer.add_scalar("a", 1, i)')
    for line in ("from tensorboard import SummaryWriter", "from monitor.events import SummaryWriter"):
        other = source.replace("from torch.utils.tensorboard import SummaryWriter", line)
        becomes(other, 'if accelerator.is_main_process:\nwriter.add_scalar("a", 1, i)')
        assert "opens an event file" in noted(other, "AM603")


def test_notes_events_for_which_the_model_runs():
    said = notes(training(ready="writer = SummaryWriter()\nwriter.add_graph(model, x)"))
    assert any("every process writes events (line" in note for note in said)


def test_keeps_a_writer_of_another_kind():
    assert "AM603" not in codes(training(ready="writer = Table()", inside='writer.add_scalar("a", 1, i)'))


def test_says_that_every_process_opens_an_event_file():
    assert "opens an event file" in noted(training(ready=ASKED), "AM603")


def test_guards_events_of_a_writer_that_a_function_is_handed():
    source = training(
        functions="def show(events, value):\n    events.add_scalar('a', value)\n",
        ready=ASKED,
        after="show(writer, total)",
    )
    becomes(source, "if accelerator.is_main_process:\nevents.add_scalar('a', value)")


def test_keeps_events_that_one_process_writes():
    source = training(
        ready="me = int(os.environ.get('RANK', 0))\nwriter = SummaryWriter() if me == 0 else None",
        after="if writer is not None:\n    writer.add_scalar('a', 1)",
    )
    assert "AM603" not in codes(source)


def test_notes_another_tracker():
    assert "mlflow" in noted(training(functions="import mlflow\n", after="mlflow.log_metric('a', 1)"), "AM603")
    inside = noted(training(functions="import mlflow\n", after="with mlflow.start_run() as run:\n    pass"), "AM603")
    assert "`with mlflow.start_run() if accelerator.is_main_process else contextlib.nullcontext():` starts it" in inside


def test_a_class_that_is_derived_from_a_writer_is_one():
    functions = "class Curves(SummaryWriter):\n    pass\n"
    source = training(
        functions=functions, ready="curves = Curves('runs')", after="curves.add_scalar('loss', total, epoch)"
    )
    becomes(source, "curves = Curves('runs') if accelerator.is_main_process else Silent()")


def test_notes_what_hydra_writes_from_every_process():
    script = """
import hydra
import torch
from torch.utils.data import DataLoader


@hydra.main(config_path="config", config_name="train")
def main(args):
    loader = DataLoader(data, batch_size=4)
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    for x in loader:
        loss = model(x).sum()
        loss.backward()
        optimizer.step()


main()
"""
    assert "hydra.output_subdir=null" in noted(script, "AM603")


LOOP = """
import torch
from torch import nn
from torch.utils.data import DataLoader
from torch.utils.tensorboard import SummaryWriter
def run(net, device):
    loader = DataLoader(data(), batch_size=4)
    writer = SummaryWriter()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for x, y in loader:
        loss = nn.functional.mse_loss(net(x.to(device)), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        writer.add_scalar("loss", loss.item())
        for name, weight in net.named_parameters():
            writer.add_histogram(name, weight.data.cpu().numpy()){asked}
"""
STARTED = """
import torch
import loop
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
net = torch.nn.Linear(3, 1).to(device)
loop.run(net, device)
"""


def test_a_writer_of_a_file_that_is_handed_the_accelerator() -> None:
    files = {"train.py": STARTED, "loop.py": LOOP.format(asked="")}
    result = migrate([Source.from_bytes(Path(name), text.encode()) for name, text in files.items()])[1]
    text = result.after.decode()
    assert "from accel_runtime import Silent\nfrom torch import nn" in text
    assert "    writer = SummaryWriter() if accelerator.is_main_process else Silent()\n" in text
    assert "is_main_process:" not in text
    assert "AM603" not in {note.code for note in result.notes}


def test_weights_are_taken_by_all_processes() -> None:
    """Under fsdp they are gathered there, and a guard would leave one process waiting for the others."""
    alone = (
        LOOP.format(asked="\n    print(writer.log_dir)") + "device = 'cuda'\nrun(nn.Linear(3, 1).to(device), device)\n"
    )
    result = migrated(alone)
    assert "if accelerator.is_main_process:\n            writer.add_scalar" in result
    assert "            writer.add_histogram(name, weight.data.cpu().numpy())\n" in result
    gradient = alone.replace("weight.data.cpu().numpy()", "weight.grad.norm()")
    assert "            writer.add_histogram(name, weight.grad.norm())\n" in migrated(gradient)
    layer = gradient.replace("        for name", "        last = list(net.children())[-1]\n        for name")
    layer = layer.replace("net.named", "last.named")
    assert "            writer.add_histogram(name, weight.grad.norm())\n" in migrated(layer)
    assert "take its weights or gradients, above that, on all processes" in " ".join(notes(alone))
