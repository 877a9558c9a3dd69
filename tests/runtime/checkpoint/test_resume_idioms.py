"""Where a resumed run goes on: scripts of Accelerate skip by themselves, ours do not, and neither skips twice."""

import atexit
import signal
from pathlib import Path

import pytest
import torch
from accel_runtime import Accelerator, DataLoaderConfiguration
from accel_runtime.errors import CheckpointError
from torch import nn
from torch.utils.data import DataLoader

BATCHES = 10


def prepared(model=None, collate=None, **settings):
    torch.manual_seed(3)
    accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(**settings))
    model = model or nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(torch.arange(2.0 * BATCHES)[:, None], 2, shuffle=True, collate_fn=collate)
    return accelerator, *accelerator.prepare(model, optimizer, loader)


def step(accelerator, model, optimizer, batch):
    accelerator.backward(model(batch).square().mean())
    optimizer.step()
    optimizer.zero_grad()
    return batch.flatten().tolist()


def saved_after(steps: int, folder: Path, epochs: int = 2):
    """The batches of a run that was never stopped; it saves once on its way."""
    accelerator, model, optimizer, loader = prepared()
    rows = []
    for _ in range(epochs):
        for batch in loader:
            rows.append(step(accelerator, model, optimizer, batch))
            if len(rows) == steps:
                accelerator.save_state(folder)
    return rows


@pytest.mark.parametrize("steps", [6, 10, 16])
def test_scripts_of_accelerate_take_the_steps_that_are_left(steps, tmp_path):
    rows = saved_after(steps, tmp_path / "state")
    first_epoch, resume_step = divmod(steps, BATCHES)

    def skipping():
        accelerator, model, optimizer, loader = prepared()
        accelerator.load_state(tmp_path / "state")
        for epoch in range(first_epoch, 2):
            skips = epoch == first_epoch and resume_step
            active = accelerator.skip_first_batches(loader, resume_step) if skips else loader
            yield from (step(accelerator, model, optimizer, batch) for batch in active)

    def by_hand():
        accelerator, model, optimizer, loader = prepared()
        accelerator.load_state(tmp_path / "state")
        for epoch in range(first_epoch, 2):
            for number, batch in enumerate(loader):
                if epoch == first_epoch and number < resume_step:
                    continue
                yield step(accelerator, model, optimizer, batch)

    def stateful():
        accelerator, model, optimizer, loader = prepared(use_stateful_dataloader=True)
        accelerator.load_state(tmp_path / "state")
        for _ in range(first_epoch, 2):
            yield from (step(accelerator, model, optimizer, batch) for batch in loader)

    def ours():
        accelerator, model, optimizer, loader = prepared()
        resumed = accelerator.load_state(tmp_path / "state")
        for _ in range(resumed.epoch, 2):
            yield from (step(accelerator, model, optimizer, batch) for batch in loader)

    def by_steps():
        accelerator, model, optimizer, loader = prepared()
        done = accelerator.load_state(tmp_path / "state").step
        while done < 2 * BATCHES:
            for batch in loader:
                yield step(accelerator, model, optimizer, batch)
                done += 1

    for idiom in (skipping, by_hand, stateful, ours, by_steps):
        assert list(idiom()) == rows[steps:], idiom.__name__


def test_an_epoch_that_begins_again_is_named(tmp_path):
    rows = saved_after(6, tmp_path / "state")
    accelerator, model, optimizer, loader = prepared()
    accelerator.load_state(tmp_path / "state")
    with pytest.warns(UserWarning, match="saved after 6 of its batches, so 6 of them are trained on twice"):
        again = [step(accelerator, model, optimizer, batch) for batch in loader]
    assert again == rows[:BATCHES]


def test_batches_skipped_by_hand_where_the_loader_goes_on_are_named(tmp_path):
    saved_after(6, tmp_path / "state")
    accelerator, model, optimizer, loader = prepared()
    resumed = accelerator.load_state(tmp_path / "state")
    with pytest.warns(UserWarning, match="went on after batch 6 of the epoch, and the script passes over the next"):
        for _ in range(resumed.epoch, 2):
            for number, batch in enumerate(loader):
                if number >= resumed.batch:
                    step(accelerator, model, optimizer, batch)


def test_skipping_more_than_was_trained_is_named(tmp_path):
    rows = saved_after(6, tmp_path / "state")
    accelerator, _, _, loader = prepared()
    accelerator.load_state(tmp_path / "state")
    with pytest.warns(UserWarning, match="leaves out 8 batches, and the checkpoint was saved after 6"):
        rest = [batch.flatten().tolist() for batch in accelerator.skip_first_batches(loader, 8)]
    assert rest == rows[8:BATCHES]


def test_the_value_that_load_state_returned_may_be_skipped(tmp_path):
    rows = saved_after(6, tmp_path / "state")
    accelerator, model, optimizer, loader = prepared()
    resumed = accelerator.load_state(tmp_path / "state")
    active = accelerator.skip_first_batches(loader, resumed.batch)
    assert (resumed.epoch, resumed.step, resumed.batch) == (0, 6, 6)
    assert [step(accelerator, model, optimizer, batch) for batch in active] == rows[6:BATCHES]


def test_a_stop_at_the_top_of_the_loop_loses_no_batch(tmp_path):
    rows = saved_after(99, tmp_path / "none")
    accelerator, model, optimizer, loader = prepared()
    before = signal.getsignal(signal.SIGTERM)
    seen = []
    try:
        for number, batch in enumerate(loader):
            if number == 4:
                signal.raise_signal(signal.SIGTERM)
            if accelerator.should_stop():
                accelerator.save_state(tmp_path / "state")
                break
            seen.append(step(accelerator, model, optimizer, batch))
    finally:
        signal.signal(signal.SIGTERM, before)
        atexit.unregister(accelerator._stopping._leave)
    accelerator, model, optimizer, loader = prepared()
    resumed = accelerator.load_state(tmp_path / "state")
    assert (resumed.step, resumed.batch) == (4, 4)
    for _ in range(resumed.epoch, 2):
        seen += [step(accelerator, model, optimizer, batch) for batch in loader]
    assert seen == rows


class Wrapped(dict):
    """A batch that a checkpoint cannot keep."""


def test_a_batch_that_cannot_be_kept_is_loaded_again(tmp_path):
    def run(stop, resume):
        accelerator, model, optimizer, loader = prepared(collate=lambda rows: Wrapped(x=torch.stack(rows)))
        if resume:
            assert accelerator.load_state(tmp_path / "state").step == 3
        for number, batch in enumerate(loader):
            if stop and number == 3:
                accelerator.save_state(tmp_path / "state")
                return
            yield step(accelerator, model, optimizer, batch["x"])

    assert list(run(True, False)) + list(run(False, True)) == list(run(False, False))


@pytest.mark.parametrize("first", [0, 2])
def test_a_batch_that_is_half_trained_cannot_be_saved(first, tmp_path):
    accelerator, model, optimizer, loader = prepared()
    for number, batch in enumerate(loader):
        loss = model(batch).square().mean()
        accelerator.backward(loss)
        if number == first:
            with pytest.raises(CheckpointError, match=f"batch {first + 1} was being trained on: its gradients wait"):
                accelerator.save_state(tmp_path / "state")
        optimizer.step()
        optimizer.zero_grad()
    assert not (tmp_path / "state").exists()


def test_nor_between_the_steps_of_two_optimizers(tmp_path):
    accelerator, model, optimizer, loader = prepared()
    other = accelerator.prepare(torch.optim.SGD(model.parameters(), lr=0.1))
    for number, batch in enumerate(loader):
        step(accelerator, model, optimizer, batch)
        if number == 3:
            with pytest.raises(CheckpointError, match="some of its steps are missing"):
                accelerator.save_state(tmp_path / "state")
        step(accelerator, model, other, batch)
    accelerator.save_state(tmp_path / "state")


def test_accumulation_by_hand_saves_between_its_steps(tmp_path):
    accelerator, model, optimizer, loader = prepared()
    for number, batch in enumerate(loader, 1):
        accelerator.backward(model(batch).square().mean())
        if number % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()
        if number == 6:
            accelerator.save_state(tmp_path / "state")


@pytest.mark.parametrize("layer", [nn.Dropout(0.5), nn.BatchNorm1d(1)], ids=["dropout", "batch norm"])
def test_nor_after_its_forward_pass(layer, tmp_path):
    accelerator, model, _, loader = prepared(nn.Sequential(nn.Linear(1, 1), layer))
    for batch in loader:
        accelerator.save_state(tmp_path / "before")
        model(batch)
        with pytest.raises(CheckpointError, match="after batch 1 was taken up"):
            accelerator.save_state(tmp_path / "after")
        return


def test_epochs_of_one_batch_are_counted_and_looks_at_the_data_are_not(tmp_path):
    accelerator, model, optimizer, loader = prepared()
    next(iter(loader))
    for _ in range(3):
        for batch in loader:
            step(accelerator, model, optimizer, batch)
            break
    accelerator.save_state(tmp_path / "state")
    resumed = prepared()[0].load_state(tmp_path / "state")
    assert (resumed.epoch, resumed.step, resumed.batch) == (3, 3, 0)


def test_another_number_of_loaders_is_named(tmp_path):
    saved_after(6, tmp_path / "state")
    accelerator, _, _, _ = prepared()
    accelerator.prepare(DataLoader(range(4)))
    with pytest.warns(UserWarning, match=r"positions of 1 loader\(s\) and this run has 2"):
        accelerator.load_state(tmp_path / "state")
