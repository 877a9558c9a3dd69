"""Files that are read where nothing waits for them: all processes wait behind what writes them."""

from __future__ import annotations

import pytest

from tests.migrate.rules.verbs import migrated, noted

SCRIPT = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def save(state, path):
    torch.save(state, path)


def train(path):
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randint(0, 2, (64,))), batch_size=16)
    model = nn.Linear(4, 2).to(device)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        for x, y in loader:
            loss = criterion(model(x.to(device)), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if epoch > 0:
            {write}
        {then}
    return path


def test(path):
    {read}


{run}
"""
WRITE, READ = "torch.save(model.state_dict(), path)", "print(torch.load(path)['weight'])"
WAIT = "accelerator.wait_for_everyone()\n"


def script(write: str = WRITE, read: str = READ, run: str = "train('a.pt')\ntest('a.pt')", then: str = "pass") -> str:
    return SCRIPT.format(write=write, read=read, run=run, then=then)


@pytest.mark.parametrize(
    "run",
    [
        "train('a.pt')\ntest('a.pt')",
        "train('a.pt')\ntest('./a.pt')",
        "train(args.written)\ntest(args.read)",
        "for fold in range(3):\n    train(f'{fold}.pt')\n    test(f'{fold}.pt')",
        "def main():\n    train(paths['train'])\n    test(paths['test'])\nmain()",
    ],
)
@pytest.mark.parametrize("write", [WRITE, "save(model.state_dict(), path)"])
def test_all_wait_behind_the_loop_that_saves(run: str, write: str) -> None:
    text = migrated(script(write, run=run))
    assert text.count(WAIT) == 1
    assert f"        pass\n    {WAIT}    return path" in text


def test_all_wait_for_other_files_of_the_same_name() -> None:
    write, read = "open(path, 'w').write('done')", "print(open(path).read())"
    assert f"    {WAIT}    return path" in migrated(script(write, read))
    assert WAIT not in migrated(script(write, read, "train('a.txt')\ntest('b.txt')"))


def test_nobody_waits_for_what_is_read_before() -> None:
    assert WAIT not in migrated(script(run="test('a.pt')\ntrain('a.pt')"))


def test_weights_that_a_function_reads_first_when_it_is_called_again() -> None:
    first = script(run="for path in paths:\n    train(path)", read="pass").replace(
        "    criterion =", "    model.load_state_dict(torch.load(start))\n    criterion ="
    )
    assert f"    {WAIT}    return path" in migrated(first)


def test_a_class_that_saves_lets_all_wait_in_its_method() -> None:
    lines = """
class Experiment:
    def __init__(self, path):
        self.path = path

    def train(self):
        return train(self.path)

    def test(self):
        return test(self.path)


experiment = Experiment('a.pt')
experiment.train()
experiment.test()
"""
    assert f"    {WAIT}    return path" in migrated(script(run=lines))


def test_a_function_that_may_return_before_it_waits_is_left() -> None:
    reason = noted(script(then="if epoch > 5:\n            return path"), "AM901")
    assert "while one may still write the file" in reason
