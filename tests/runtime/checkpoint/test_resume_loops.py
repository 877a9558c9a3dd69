"""Loops as people write them: a resumed run does what the one that was never stopped did, or the save says that it cannot."""

import warnings
from itertools import product

import pytest
import torch
from accel_runtime import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS, BATCHES = 3, 6


class Training:
    """A small run that notes what it trained on, and saves when it is told to."""

    def __init__(self, folder, stop=None, resume=False):
        torch.manual_seed(7)
        self.accelerator = Accelerator(cpu=True)
        model = nn.Sequential(nn.Linear(1, 4), nn.Dropout(0.3), nn.Linear(4, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        rows = TensorDataset(torch.arange(2.0 * BATCHES)[:, None])
        self.model, self.optimizer, self.loader, self.other = self.accelerator.prepare(
            model, optimizer, DataLoader(rows, 2, shuffle=True), DataLoader(rows, 4)
        )
        self.folder, self.stop, self.done = folder, stop, []
        self.resumed = self.accelerator.load_state(folder) if resume else None
        self.epochs = range(self.resumed.epoch if self.resumed else 0, EPOCHS)

    def first(self, epoch):
        return self.resumed.batch if self.resumed and epoch == self.resumed.epoch else 0

    def batches(self, epoch, loader=None):
        return enumerate(self.loader if loader is None else loader, self.first(epoch))

    def train(self, inputs):
        loss = self.model(inputs).square().mean()
        self.accelerator.backward(loss)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.done.append((inputs.flatten().tolist(), loss.item()))

    def evaluate(self, loader, *place):
        self.model.eval()
        for number, (inputs,) in enumerate(loader):
            self.model(inputs)
            if self.saves(*place, number):
                return True
        self.model.train()
        return False

    def saves(self, *place):
        if self.stop == place:
            self.accelerator.save_state(self.folder)
        return self.stop == place


def evaluated_on_the_same_data(run):
    if run.resumed is None:
        run.evaluate(run.loader)
    for epoch in run.epochs:
        for batch, (inputs,) in run.batches(epoch):
            run.train(inputs)
            if run.saves(epoch, batch):
                return
        run.evaluate(run.loader)
        if run.saves(epoch, "end"):
            return


def two_batches_a_step(run):
    for epoch in run.epochs:
        batches = iter(run.loader)
        for batch in range(run.first(epoch), BATCHES, 2):
            run.train(torch.cat([next(batches)[0], next(batches)[0]]))
            if run.saves(epoch, batch):
                return


def short_epochs(run):
    for epoch in run.epochs:
        for batch, (inputs,) in run.batches(epoch):
            if batch == 4:
                break
            run.train(inputs)
        if run.saves(epoch, "end"):
            return


@pytest.mark.parametrize(
    ("loop", "stop"),
    [
        *product([evaluated_on_the_same_data], [(0, 2), (1, 3), (0, "end"), (1, "end")]),
        *product([two_batches_a_step], [(0, 2), (1, 2), (1, 4)]),
        (short_epochs, (1, "end")),
    ],
)
def test_these_are_exact(loop, stop, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stopped, resumed = cut_and_resumed(loop, stop, tmp_path)
    assert stopped + resumed == whole(loop, tmp_path)


def saved_in_an_evaluation(run):
    for epoch in run.epochs:
        for batch, (inputs,) in run.batches(epoch):
            run.train(inputs)
            if batch % 2 == 1 and run.evaluate(run.other, epoch, batch):
                return


def read_ahead(run):
    for epoch in run.epochs:
        batches = iter(run.loader)
        following, batch = next(batches, None), run.first(epoch)
        while following is not None:
            (inputs,), following = following, next(batches, None)
            run.train(inputs)
            if run.saves(epoch, batch):
                return
            batch += 1


def saved_after_break(run):
    for epoch in run.epochs:
        for batch, (inputs,) in run.batches(epoch):
            run.train(inputs)
            if run.stop == (epoch, batch, 1):
                break
        else:
            continue
        run.saves(epoch, batch, 1)
        return


def saved_after_an_interrupt(run):
    for epoch in run.epochs:
        try:
            for batch, (inputs,) in run.batches(epoch):
                if run.stop == (epoch, batch, 1):
                    raise KeyboardInterrupt
                run.train(inputs)
        except KeyboardInterrupt:
            run.saves(*run.stop)
            return


def collected_first(run):
    for epoch in run.epochs:
        for batch, (inputs,) in run.batches(epoch, list(run.loader)):
            run.train(inputs)
            if run.saves(epoch, batch):
                return


@pytest.mark.parametrize(
    ("loop", "stop", "said"),
    [
        (saved_in_an_evaluation, (1, 3, 1), "inside a loop that trains nothing, at its batch 2"),
        (read_ahead, (0, 2), "took 2 batches before it trained on the first"),
        (read_ahead, (1, 4), "took 2 batches before it trained on the first"),
        (saved_after_break, (1, 2, 1), "was left after 3 of 6 batches, and this checkpoint counts that epoch as done"),
        (saved_after_an_interrupt, (0, 2, 1), "was left after 3 of 6 batches"),
        (saved_after_an_interrupt, (1, 5, 1), "was left after 6 of 6 batches"),
        (collected_first, (1, 2), "no step was taken while a batch of a prepared loader was in hand"),
    ],
)
def test_these_are_named_when_they_are_saved(loop, stop, said, tmp_path):
    with pytest.warns(UserWarning, match=said):
        loop(Training(tmp_path / "state", stop))


@pytest.mark.filterwarnings("ignore:save_state.. came inside a loop")
def test_an_evaluation_that_was_left_begins_again_as_a_whole(tmp_path):
    stopped, resumed = cut_and_resumed(saved_in_an_evaluation, (1, 3, 1), tmp_path)
    assert stopped + resumed == whole(saved_in_an_evaluation, tmp_path)


def whole(loop, folder):
    run = Training(folder)
    loop(run)
    return run.done


def cut_and_resumed(loop, stop, folder):
    before = Training(folder / "state", stop)
    loop(before)
    after = Training(folder / "state", resume=True)
    loop(after)
    return before.done, after.done
