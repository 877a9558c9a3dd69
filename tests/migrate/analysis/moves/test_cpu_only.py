"""A script without devices stays on the CPU, unless what it trains comes from where a device may be."""

from __future__ import annotations

from pathlib import Path

from accel_migrate.pipeline import migrate
from accel_migrate.source import Source

from tests.migrate.rules.verbs import migrated, unchanged

TRAINER = """
import torch

class Perturbation:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(self, x, y):
        loss = torch.nn.functional.cross_entropy(self.model(x), y)
        loss.backward()
        self.optimizer.step()
"""


def test_a_model_from_outside_is_not_sent_to_the_cpu() -> None:
    assert "`model` is handed to __init__() from outside the files given" in unchanged(TRAINER)


def test_a_model_that_is_built_here_stays_on_the_cpu() -> None:
    used = "\nPerturbation(torch.nn.Linear(4, 2)).step(torch.ones(2, 4), torch.zeros(2).long())\n"
    assert "Accelerator(cpu=True)" in migrated(TRAINER + used)


SAMPLED = """
import torch
from torch.autograd import Variable
from torch.utils.data import DataLoader

loader = DataLoader(data, batch_size=4)
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    x, y = Variable(x), Variable(y)
    loss = torch.nn.functional.cross_entropy(model(x.view(4, -1)), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def shown(index):
    {}
    return model(image)
"""


def test_a_model_that_is_run_on_an_item_of_the_data_stays_with_it() -> None:
    assert "Accelerator(cpu=True)" in migrated(SAMPLED.format("image, label = data[index]"))
    assert "Accelerator()" in migrated(SAMPLED.format("image = next(iter(loader))[0]"))


HELPED = """
import torch
from coded import coded
from torch.utils.data import DataLoader

loader = DataLoader(data, batch_size=4)
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = torch.nn.functional.mse_loss(model(x), coded(y))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_a_helper_of_another_file_that_makes_tensors_keeps_the_model_on_the_cpu() -> None:
    def result(helper: str) -> str:
        files = {"coded.py": helper, "train.py": HELPED}
        results = migrate([Source.from_bytes(Path(name), text.encode()) for name, text in files.items()])
        return results[-1].after.decode()

    made = "import torch\ndef coded(y):\n    return torch.zeros(len(y), 2).scatter_(1, y.view(-1, 1), 1)\n"
    assert "Accelerator(cpu=True)" in result(made)
    assert "Accelerator()" in result("def coded(y):\n    return y.view(-1, 1).float()\n")
    assert "Accelerator()" in result(made.replace("coded", "other") + "def coded(y):\n    return y.float()\n")


MODEL = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)

    def forward(self, x):
        x = self.layer(x)
        return x + {noise}
"""
TRAINED = """
import torch
from torch.utils.data import DataLoader
{before}
loader = DataLoader(data, batch_size=4)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    out = model(x)
    loss = torch.nn.functional.cross_entropy(out, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    {after}
"""


def test_what_a_model_sends_to_the_cpu_keeps_it_there_in_its_own_file_and_in_another() -> None:
    for noise, kept in (('torch.randn_like(x).to("cpu")', True), ("torch.randn_like(x)", False)):
        made = MODEL.format(noise=noise)
        told = "Accelerator(cpu=True)" if kept else "Accelerator()"
        assert told in migrated(TRAINED.format(before=made, after="pass"))
        script = TRAINED.format(before="from nets import Net", after="pass")
        sources = [Source.from_bytes(Path(n), t.encode()) for n, t in (("train.py", script), ("nets.py", made))]
        assert told in migrate(sources)[0].after.decode()


def test_a_lambda_that_reads_a_batch_as_an_array() -> None:
    before = MODEL.format(noise="0") + "shown = lambda x: {}\n"
    assert "Accelerator(cpu=True)" in migrated(
        TRAINED.format(before=before.format("x.data.numpy()"), after="shown(out)")
    )
    assert "Accelerator()" in migrated(TRAINED.format(before=before.format("x.mean().item()"), after="shown(out)"))


MASKED = """
import torch
from torch.utils.data import DataLoader

class Reader(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.read = torch.nn.Linear(4, 2)

    def before(self, ends):
        return (torch.arange(2).to(device=ends.device) < ends.unsqueeze(1)).float()

    def hide(self, ends=None):
        self.shown = self.before(ends).to(device=ends.device) if ends is not None else 1

    def forward(self, x, ends=None):
        self.hide({})
        return self.read(x) * self.shown

rows = DataLoader(data, batch_size=4)
model = Reader()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y, ends in rows:
    guess = model(x, ends)
    loss = torch.nn.functional.mse_loss(guess, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(guess.detach().numpy().shape)
"""


def test_what_goes_where_another_tensor_is_names_no_device() -> None:
    assert "Accelerator(cpu=True)" in migrated(MASKED.format("ends"))
    assert "Accelerator(cpu=True)" in migrated(MASKED.format("ends=ends"))


def test_what_goes_to_a_device_of_the_settings_names_one() -> None:
    parsed = "import argparse\nargs = argparse.ArgumentParser().parse_args()\nrows ="
    script = MASKED.format("ends").replace("device=ends.device", "device=args.device").replace("rows =", parsed)
    assert "cpu=True" not in migrated(script.replace(".detach().numpy()", ""))
