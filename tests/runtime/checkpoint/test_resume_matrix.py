"""Every kind of loader, stopped in every way: a resumed run is the one that was never stopped, or says why not."""

import os
from collections import Counter
from itertools import count, product
from pathlib import Path

import pytest
from torch.utils.data import DataLoader

from tests.loaders import INEXACT, LOADERS, WITH_WORKERS, Table
from tests.resume_matrix import EPOCHS, IDIOMS, PLACES, Cycled, difference, made, outcome, train, zipped

EVERYWHERE = "CHAOS" in os.environ  # `make chaos`
SHORT_OF_WORKERS = {"workers", "persistent workers, generator", "not in order"}
MOMENTS = [(0, 2), (1, 3)]  # in the first epoch, and in one whose order depends on those before


def tried(name: str, batches: int) -> list[tuple[tuple[int, int], str, str]]:
    """All combinations, or two of them that change from loader to loader."""
    if EVERYWHERE:
        ends = product([(1, -1), (0, batches - 1)], ["bottom"], IDIOMS)
        return [*product(MOMENTS, PLACES, IDIOMS), *ends]
    number = list(LOADERS).index(name)
    turns = count(number)
    return [(moment, PLACES[next(turns) % 2], IDIOMS[(number // 2 + next(turns)) % 4]) for moment in MOMENTS]


@pytest.mark.parametrize(
    "name", [name for name in LOADERS if EVERYWHERE or name not in WITH_WORKERS - SHORT_OF_WORKERS]
)
def test_a_resumed_run_is_exact_or_refused(name: str, tmp_path: Path) -> None:
    control = train(made(name), tmp_path)
    outcomes = {
        how: outcome(made(name), tmp_path / str(number), control, *how)
        for number, how in enumerate(tried(name, len(control.rows) // EPOCHS))
    }
    figures = Counter(result.split(":")[0] for result in outcomes.values())
    print(f"{name}: {dict(figures)}")
    if name in INEXACT:
        assert not {how: result for how, result in outcomes.items() if result.startswith("SILENT")}
    else:
        assert outcomes == dict.fromkeys(outcomes, "exact")


# What is kept elsewhere than in an attribute of the sampler's own.
ELSEWHERE = [name for name in LOADERS if name.startswith(("generator", "array", "counts", "sampler with"))]


@pytest.mark.parametrize("name", ELSEWHERE)
def test_epochs_that_follow_a_checkpoint_between_two_are_exact(name: str, tmp_path: Path) -> None:
    control = train(made(name), tmp_path)
    assert outcome(made(name), tmp_path / "cut", control, (1, -1), "bottom", "epoch") == "exact"


def pair() -> list[DataLoader]:
    return [DataLoader(Table(), 2, shuffle=True), DataLoader(Table(), 2, shuffle=True)]


def uneven_pair() -> list[DataLoader]:
    return [DataLoader(Table(), 2, shuffle=True), DataLoader(Table(), 5, shuffle=True)]


TOGETHER = {
    "zip": (pair, lambda: {"joined": zipped}, IDIOMS),
    # What is skipped in the first loader only is not for Accelerate's recipes.
    "a second loader, lazily": (uneven_pair, lambda: {"joined": Cycled()}, ("epoch", "stateful")),
    "seedable": (made("shuffle"), lambda: {"seedable": True}, IDIOMS),
    "in a window": (made("shuffle"), lambda: {"accumulation": 5}, IDIOMS),
    "in a window of a stream": (made("stream, shuffled"), lambda: {"accumulation": 5}, IDIOMS),
}


@pytest.mark.parametrize("kind", TOGETHER)
def test_loaders_together_and_windows_are_exact(kind: str, tmp_path: Path) -> None:
    make, settings, idioms = TOGETHER[kind]
    control = train(make, tmp_path, **settings())
    ways = list(product([(0, 2), (1, 3), (0, 11)], PLACES, idioms))
    for moment, place, idiom in ways if EVERYWHERE else ways[:: len(ways) // 5]:
        stopped = train(make, tmp_path, moment, place, **settings())
        resumed = train(make, tmp_path, resume=idiom, **settings())
        same = stopped.rows + resumed.rows == control.rows and stopped.losses + resumed.losses == control.losses
        assert same and resumed.end == control.end, (moment, place, idiom, difference(control, stopped, resumed))
        assert not stopped.told + resumed.told
