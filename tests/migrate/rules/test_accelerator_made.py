"""AM101: where the import of the Accelerator goes."""

from __future__ import annotations

import pytest

from tests.migrate.rules.scripts import training
from tests.migrate.rules.verbs import migrated, noted, notes

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


def test_names_a_choice_that_knew_no_cuda():
    script = training().replace("cuda.is_available", "backends.mps.is_available").replace('"cuda"', '"mps"')
    assert "mps.is_available()" in noted(script, "AM101")
    either = training(after="print(torch.backends.mps.is_available())")
    assert not any("Apple" in message for message in notes(either))


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
