"""AM101: where the import of the Accelerator goes."""

from __future__ import annotations

import pytest

from tests.migrate.rules.scripts import becomes, training
from tests.migrate.rules.verbs import migrated, notes, unchanged

NEW = "from accel_runtime import Accelerator\n"
REST = training().partition("import wandb\n")[2].replace("SummaryWriter", "str")


@pytest.mark.parametrize(
    ("above", "below"),
    [
        # Sorted as isort and ruff do it: it goes where they would put it.
        (
            "import os\n\nimport torch\nimport torch.nn as nn\n",
            "from torch.utils.data import DataLoader, TensorDataset\n\n",
        ),
        (
            "import torch\nfrom absl import app\n",
            "from torch import nn\nfrom torch.utils.data import DataLoader, TensorDataset\n\nfrom mine import a\n",
        ),
        # Not sorted: after the last package.
        (
            "import torch\nimport numpy as np\nfrom torch import nn\nfrom torch.utils.data import DataLoader, TensorDataset\n",
            "\nimport mine\n",
        ),
        (
            "from torch.utils.data import DataLoader, TensorDataset\nimport torch\nfrom torch import nn\n",
            "import mine\n",
        ),
        (
            "from torch.utils.data import DataLoader, TensorDataset\nfrom torch import nn\n\nimport torch\n",
            "\nimport mine\n",
        ),
    ],
)
def test_the_import_joins_those_of_other_packages(above: str, below: str):
    assert migrated(above + below + REST).startswith(above + NEW + below)


@pytest.mark.parametrize("remark", ["", "# faster with cuda\noutput = torch.cuda.is_available()\n"])
def test_a_choice_that_knew_no_cuda_stays_on_the_cpu_where_there_is_cuda(remark: str):
    script = training().replace("cuda.is_available", "backends.mps.is_available").replace('"cuda"', '"mps"')
    becomes(script + remark, "accelerator = Accelerator(cpu=not torch.backends.mps.is_available())")
    becomes(training(after="print(torch.backends.mps.is_available())"), "accelerator = Accelerator()")


@pytest.mark.parametrize("top", ["", '"""A training."""\n', "from __future__ import annotations\n"])
def test_the_import_is_above_an_accelerator_that_is_made_above_all_imports(top: str):
    body = training()
    device = 'device = "cuda"\n'
    chosen = 'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n'
    result = migrated(top + "rate = 0.1\n" + device + body.replace(chosen, ""))
    assert (
        result.index("import Accelerator") < result.index("accelerator = Accelerator()") < result.index("import copy")
    )
    assert result.startswith(top)


BELOW = """
    import argparse
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    use_cuda = torch.cuda.is_available()
    loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randint(0, 2, (64,))), batch_size=8)
    net = nn.Linear(4, 2)
    if use_cuda:
        net.cuda()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)

    def gap(guess, y):
        return nn.functional.cross_entropy(guess, y)

    {device}

    def fit():
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            loss = gap(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()

    fit()
"""


@pytest.mark.parametrize(
    "device",
    [
        'device = torch.device("cuda")',
        'device = torch.device("cuda" if use_cuda else "cpu")',
        'if use_cuda:\n        device = "cuda"\n    else:\n        device = "cpu"',
    ],
)
def test_a_device_that_is_named_below_prepare_does_not_put_off_the_accelerator(device: str):
    made = "lr=0.1)\naccelerator = Accelerator()\nnet, opt, loader = accelerator.prepare(net, opt, loader)\n"
    result = migrated(BELOW.format(device=device))
    assert made in result
    assert "device =" not in result
    read = migrated(BELOW.format(device=f"{device}\n    noise = torch.randn(4, device=device)"))
    assert made in read
    assert "device = accelerator.device\nnoise = " in read


def test_a_device_by_options_that_are_known_only_below_prepare_is_left():
    options = "args = argparse.ArgumentParser().parse_args()\n    device = 'cpu' if args.cpu else 'cuda'"
    assert "before the options that it is made from are known" in unchanged(BELOW.format(device=options))


def test_a_class_that_moves_its_model_before_it_prepares_makes_it_in_its_constructor():
    text = migrated(
        """
        import torch
        from torch import nn

        class Solver:
            def __init__(self):
                self.loader = torch.utils.data.DataLoader(data(), batch_size=4)
                self.model = nn.Linear(2, 1)
                if torch.cuda.is_available():
                    self.model = self.model.cuda()

            def test(self):
                for x, y in torch.utils.data.DataLoader(rest()):
                    if torch.cuda.is_available():
                        x = x.cuda()
                    print(self.model(x))

            def train(self):
                optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
                for x, y in self.loader:
                    if torch.cuda.is_available():
                        x, y = x.cuda(), y.cuda()
                    loss = nn.functional.mse_loss(self.model(x), y)
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()

        solver = Solver()
        solver.test()
        solver.train()
        """
    )
    made = "        self.accelerator = Accelerator(cpu=not torch.cuda.is_available())\n        if torch.cuda.is_available():\n"
    assert made + "            self.model = self.model.to(self.accelerator.device)\n" in text
    assert text.count("Accelerator(") == 1


@pytest.mark.parametrize(
    ("device", "told"),
    [
        ('"cuda" if torch.cuda.is_available() else "cpu"', False),
        ('"cuda:1" if torch.cuda.is_available() else "cpu"', True),
    ],
)
def test_says_that_a_number_does_not_count_where_the_device_may_have_one(device: str, told: bool):
    text = training(functions=f"class Settings:\n    device = {device}\n")
    text = text.replace('device = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n', "")
    text = text.replace("(device)", "(Settings.device)")
    assert "Accelerator(device=Settings.device)" in migrated(text)
    assert any("a number in it does not count" in each for each in notes(text)) == told
