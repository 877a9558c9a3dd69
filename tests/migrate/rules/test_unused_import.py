"""AM104: imports that the migration made unused."""

from __future__ import annotations

from textwrap import dedent

import pytest
from accel_migrate.plan import Status

from tests.migrate.rules.handwritten import script
from tests.migrate.rules.verbs import migrated
from tests.migrate.test_reasons import results


def test_what_only_the_distribution_used_goes():
    text = migrated(script())
    for name in ("torch.distributed", "DistributedDataParallel", "DistributedSampler"):
        assert name not in text


def test_a_file_of_the_project_is_no_part_of_a_library():
    found = results(train=dedent(script()), data="print('rows')\n", distributed="print('ranks')\n")
    assert b"DistributedSampler" not in found["train"].after


def test_a_name_that_is_still_used_stays():
    assert "import torch.distributed as dist\n" in migrated(
        script(body="if dist.is_initialized(): dist.broadcast(loss, 0)")
    )


def test_what_was_unused_before_stays():
    assert "import os\n" in migrated(script())


def test_other_names_of_the_same_import_stay():
    source = (
        script()
        .replace("    from torch.utils.data import DataLoader\n", "")
        .replace(
            "from torch.utils.data.distributed import DistributedSampler",
            "from torch.utils.data import DataLoader, DistributedSampler, Dataset",
        )
    )
    assert "from torch.utils.data import DataLoader, Dataset\n" in migrated(source)


def test_what_a_module_hands_on_stays():
    source = script().replace("    def main():", '    __all__ = ["DDP"]\n\n\n    def main():')
    assert "DistributedDataParallel as DDP" in migrated(source)


def test_what_the_accelerator_is_told_with_stays():
    source = script(wrapper=", bucket_cap_mb=settings.SIZE").replace(
        "    import os\n", "    import os\n    import settings\n"
    )
    text = migrated(source)
    assert "import settings\n" in text
    assert "bucket_cap_mb=settings.SIZE" in text


TRAIN = """import torch
from torch import nn
from torch.utils.data import DataLoader
from rows import rows
{imported}

model = nn.Linear(2, 1).to({device})
loader = DataLoader(rows(), batch_size=4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = (model(x.to({device})) - y.to({device})).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
DEVICE = 'DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n'


@pytest.mark.parametrize(
    ("imported", "device"), [("import setup as s", "s.DEVICE"), ("from setup import DEVICE", "DEVICE")]
)
@pytest.mark.parametrize(
    ("setup", "stays"),
    [
        ("import torch\n" + DEVICE, False),
        ("import torch\ntorch.manual_seed(3)\n" + DEVICE, True),
        ("import torch\ntorch.backends.cudnn.benchmark = True\n" + DEVICE, True),
        ("import torch\nfrom nets import known\n@known('net')\nclass Net: pass\n" + DEVICE, True),
        ("import torch\nimport seeded\n" + DEVICE, True),
        ("import torch\nimport plain\n" + DEVICE, False),
    ],
    ids=["only defines", "seeds", "sets", "registers", "imports what seeds", "imports what defines"],
)
def test_a_file_that_does_something_when_it_is_imported_stays(imported, device, setup, stays):
    files = {
        "setup": setup,
        "seeded": "import random\nrandom.seed(1)\n",
        "plain": "RATE = 0.1\n",
        "nets": "def known(name): pass\n",
    }
    found = results(train=TRAIN.format(imported=imported, device=device), **files)
    assert found["train"].status is Status.MIGRATED, found["train"].reason
    assert (imported in found["train"].after.decode()) is stays


def test_what_another_file_no_longer_uses_stays_here() -> None:
    learner = (
        "import torch\nfrom torch import nn\nclass Learner:\n    def __init__(self, model, optimizer, device):\n"
        "        self.model, self.optimizer, self.device = model, optimizer, device\n"
        "    def train(self, batches):\n        for x, y in batches:\n"
        "            loss = nn.functional.mse_loss(self.model(x.to(self.device)), y.to(self.device))\n"
        "            self.optimizer.zero_grad()\n            loss.backward()\n            self.optimizer.step()\n"
    )
    main = (
        "import torch\nfrom torch import nn\nfrom torch.utils.data import DataLoader\nfrom learner import Learner\n"
        "device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')\nmodel = nn.Linear(4, 1).to(device)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\nloader = DataLoader(rows, batch_size=4)\n"
        "Learner(model, optimizer, device).train(loader)\n"
    )
    done = results(main=main, learner=learner)["learner"]
    assert done.status is Status.MIGRATED
    assert done.after.startswith(b"import torch\n")
