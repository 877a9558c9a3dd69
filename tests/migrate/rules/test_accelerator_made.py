"""AM101: where the import of the Accelerator goes."""

from __future__ import annotations

import pytest

from tests.migrate.rules.scripts import becomes, training
from tests.migrate.rules.verbs import migrated

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
