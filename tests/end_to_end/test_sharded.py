"""Migrated scripts under FSDP: they end, evaluate as one process does, and write files that need no FSDP to be read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from accel_runtime.tree import leaves
from torch.distributed.tensor import DTensor

from tests.cases import FIXTURES, Case, all_cases
from tests.end_to_end.runs import Run, run
from tests.end_to_end.test_fixtures import ended_well, in_folder, original

MOVING = re.compile(r"running_|num_batches|^\['optimizer'\]")
CASES = {case.name: case for case in all_cases()}

# Each with the weights it writes: at the end, under a guard on the rank, from a trainer, of two models, the best of all epochs.
WRITE = {
    "best_weights_kept": "finetuned.pt",
    "ddp_environment": "bigram.pt",
    "ddp_spawn_or_call": "checkpoint.pth.tar",
    "ddp_torchrun": "rings.pt",
    "ddp_trainer_class": "checkpoint.pt",
    "gan_with_samples": "out/netG_epoch_1.pth",
    "predictions_collected": "net.pth",
    "resume_and_best": "checkpoint/ckpt.pth",
    "trainer_with_checkpoints": "runs/best.pt",
}
# Each with what it takes beside the weights, of which a process has only a part.
REFUSED = {
    "stopper_saves": "['net'] that is sharded",
}
AGAIN = {"ddp_spawn_or_call", "ddp_torchrun"}  # under a guard on the rank, as ddp_environment
ONLY_MAIN_RUNS_THE_MODEL = ("ddp_main_evaluates", "ddp_rank_handed_on")


def on_two(case: Case, folder: Path, frozen: bool = False) -> list[Run]:
    return run(case.script("after"), case.arguments, folder, processes=2, frozen=frozen, strategy="fsdp")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.full) if name in AGAIN else name for name in WRITE]
)
def test_evaluates_as_one_process_and_writes_whole_tensors(name: str, tmp_path: Path) -> None:
    case, two, one = CASES[name], in_folder(tmp_path, "two"), in_folder(tmp_path, "one")
    ranks = ended_well(on_two(case, two, frozen=True))
    (before,) = ended_well(original(case, one, frozen=True))
    assert all(rank.losses for rank in ranks), "a process trained nothing"
    if case.figures:
        figures = re.findall(case.figures, before.output)
        assert figures and re.findall(case.figures, ranks[0].output) == figures
    found, expected = tensors(two / WRITE[name]), tensors(one / WRITE[name])
    assert found.keys() == expected.keys()
    for place, tensor in found.items():
        assert tensor.shape == expected[place].shape, place
        # No weight has moved. Running statistics and optimizers have: each process sees half of the batches.
        assert MOVING.search(place) or torch.equal(tensor, expected[place]), place


@pytest.mark.parametrize("name", REFUSED)
def test_refuses_a_file_that_would_hold_the_part_of_one_process(name: str, tmp_path: Path) -> None:
    first, _ = on_two(CASES[name], tmp_path)
    assert REFUSED[name] in first.error, first.error


@pytest.mark.parametrize("name", ONLY_MAIN_RUNS_THE_MODEL)
def test_says_beforehand_that_all_processes_must_run_the_model(name: str) -> None:
    said = (FIXTURES / name / "report.txt").read_text()
    assert "AM403 [note]" in said and "with sharded weights (FSDP, ZeRO-3) all of them must" in said


def tensors(path: Path) -> dict[str, torch.Tensor]:
    """Every tensor in the file by its place there; a file with parts of tensors is no file to be read."""
    found = {place: leaf for place, leaf in leaves(torch.load(path)) if isinstance(leaf, torch.Tensor)}
    assert found and not any(isinstance(leaf, DTensor) for leaf in found.values()), path
    return found
