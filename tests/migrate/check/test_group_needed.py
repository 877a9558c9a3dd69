"""AM966: on one process there is no process group."""

from __future__ import annotations

import pytest

from tests.migrate.check.reading import said

IMPORTS = "import torch\nimport torch.distributed as dist\nfrom torch.utils.data import DistributedSampler\n"
BEFORE = IMPORTS + "dist.init_process_group('nccl')\n"
AFTER = IMPORTS + "from accel_runtime import Accelerator\naccelerator = Accelerator()\n"


@pytest.mark.parametrize(
    "kept",
    [
        "sampler = DistributedSampler(held)\n",
        "from torch.distributed.elastic.utils.data import ElasticDistributedSampler\n"
        "sampler = ElasticDistributedSampler(held)\n",
        "dist.all_reduce(total)\n",
        "def mean(x):\n    dist.all_reduce(x)\n    return x / dist.get_world_size()\nmean(1)\n",
        "@torch.no_grad()\ndef mean(x):\n    dist.all_reduce(x)\nmean(1)\n",
        "class Own:\n    def __init__(self):\n        pass\n"
        "if dist.is_initialized():\n    sampler = Own()\nelse:\n    sampler = None\n",
    ],
)
def test_what_needs_a_group_that_one_process_does_not_have(kept: str) -> None:
    assert said("AM966", BEFORE + kept, AFTER + kept)


@pytest.mark.parametrize(
    "kept",
    [
        "sampler = DistributedSampler(held, num_replicas=1, rank=0)\n",
        "if accelerator.num_processes > 1:\n    dist.all_reduce(total)\n",
        "def mean(x):\n    if not dist.is_initialized():\n        return x\n    dist.all_reduce(x)\nmean(1)\n",
        "def mean(x):\n    dist.all_reduce(x)\n    return x\nif distributed:\n    mean(1)\n",
        "def never_called(x):\n    dist.barrier()\n",
        "sampler = DistributedSampler(held) if world_size > 1 else None\n",
        "if dist.is_initialized():\n    rank = dist.get_rank()\nelse:\n    rank = 0\n",
    ],
)
def test_what_asks_for_several_processes_first(kept: str) -> None:
    assert not said("AM966", BEFORE + kept, AFTER + kept)


def test_what_a_script_needs_that_never_started_a_group_by_itself() -> None:
    assert not said("AM966", IMPORTS + "dist.barrier()\n", AFTER + "dist.barrier()\n")


def test_a_group_that_another_script_of_the_project_still_starts() -> None:
    other = BEFORE + "from train import f\n"
    kept = "f = 1\ndist.barrier()\n"
    assert said("AM966", {"train.py": BEFORE + kept, "other.py": other}, {"train.py": AFTER + kept, "other.py": other})


def test_what_needs_a_group_in_a_module_of_a_package_that_is_imported_by_its_whole_name() -> None:
    helper = "import torch.distributed as dist\ndef mean(x):\n    dist.all_reduce(x)\n"
    call = "import parts.sums\nparts.sums.mean(1)\n"
    before = {"train.py": BEFORE + call, "parts/sums.py": helper}
    assert said("AM966", before, {**before, "train.py": AFTER + call})


def test_another_script_that_starts_the_group_itself_is_not_asked_for() -> None:
    helper = "import torch.distributed as dist\ndef mean(x):\n    dist.all_reduce(x)\n"
    call = "import parts.sums\nparts.sums.mean(1)\n"
    before = {"train.py": BEFORE + "import parts.sums\n", "other.py": BEFORE + call, "parts/sums.py": helper}
    assert not said("AM966", before, {**before, "train.py": AFTER + "import parts.sums\n"})
    assert said("AM966", before, {**before, "other.py": AFTER + call})


@pytest.mark.parametrize(
    "demand",
    [
        "assert accelerator.num_processes > 1",
        "if accelerator.num_processes == 1:\n    raise RuntimeError",
        "if accelerator.num_processes > 1:\n    begin()\nelse:\n    exit(1)",
        "many = accelerator.num_processes > 1\nassert many",
    ],
)
def test_a_launcher_was_asked_for_and_not_several_processes(demand: str) -> None:
    (message,) = said("AM966", BEFORE + "assert rank != -1\n", AFTER + demand + "\n")
    assert "would end the script on one process" in message
    assert not said("AM966", BEFORE + "assert world_size > 1\n", AFTER + demand + "\n")
