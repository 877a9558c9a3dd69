"""Resuming on real processes: to the bit on as many as saved, and every sample once on any other number."""

import os
from collections import Counter
from itertools import product
from pathlib import Path

import pytest
from accel_runtime.checkpoint.manifest import read_manifest

from tests import resume_matrix
from tests.distributed.worlds import in_world
from tests.loaders import INEXACT, LOADERS, ONCE_EACH, WITH_WORKERS
from tests.resume_matrix import IDIOMS, PLACES, made, outcome
from tests.resuming import Case, assert_same_rest, train

EVERYWHERE = "CHAOS" in os.environ  # `make chaos`
CASES = {
    2: [
        Case(accumulation=3, processes=2),
        Case(accumulation=3, stream=True, processes=2),
        Case(workers=2, processes=2),
    ],
    3: [Case(accumulation=3, processes=3), Case(stream=True, processes=3)],
}


@pytest.mark.parametrize("size", CASES)
def test_as_many_processes_go_on_to_the_bit(size: int, tmp_path: Path) -> None:
    def stories():
        told = []
        for number, case in enumerate(CASES[size]):
            project = tmp_path / str(number)
            control = train(case, project)
            train(case, project, stop_at=(1, 3))
            told.append((control, train(case, project, resume=True)))
        return told

    for told in in_world(size, stories):
        for control, resumed in told:
            assert_same_rest(control, resumed)


def test_every_sample_is_seen_once_when_the_number_of_processes_changes(tmp_path: Path) -> None:
    for stream in (False, True):
        project = tmp_path / str(stream)
        # 48 rows: 2 processes take 2 x 3 x 2, then 1 takes 6, then 3 share the 30 that are left.
        case = Case(processes=4, stream=stream)
        seen = in_world(2, lambda: train(case, project, stop_at=(0, 2)))  # noqa: B023
        seen += in_world(1, lambda: train(case, project, stop_at=(0, 8), resume=True))  # noqa: B023
        seen += in_world(3, lambda: train(case, project, stop_at=(0, 99), resume=True))  # noqa: B023
        counts = Counter(row for story in seen for rows in story.rows for row in rows)
        assert counts == dict.fromkeys(range(48), 1)


def test_every_loader_is_exact_or_refused_on_two_processes(tmp_path: Path) -> None:
    names = [name for name in LOADERS if EVERYWHERE or name not in WITH_WORKERS]
    moments = [(0, 1), (1, 1)] if EVERYWHERE else [(1, 1)]

    def outcomes(some):
        told = {}
        for number, name in some:
            control = resume_matrix.train(made(name), tmp_path)
            ways = list(product(moments, PLACES, IDIOMS))
            for way in ways if EVERYWHERE else [ways[number % len(ways)]]:
                folder = tmp_path / f"{number} {way}"
                told[name, way] = outcome(made(name), folder, control, *way)
        return told

    # Every Accelerator that saves has a process group with threads of its own: not thousands of them in one process.
    some = [[one] for one in enumerate(names)] if EVERYWHERE else [list(enumerate(names))]
    told = [results for each in some for results in in_world(2, lambda each=each: outcomes(each))]
    print("two processes:", dict(Counter(result.split(":")[0] for results in told for result in results.values())))
    for results in told:
        for (name, way), result in results.items():
            silent = result.startswith("SILENT") if name in INEXACT else result != "exact"
            assert not silent, (name, way, result)


@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2)])
def test_every_loader_goes_on_with_another_number_of_processes(before: int, after: int, tmp_path: Path) -> None:
    names = [name for name in ONCE_EACH if EVERYWHERE or name not in WITH_WORKERS]
    rounds = {1: 4, 2: 2}[before]  # a third of the epoch of 12 batches

    def stopped():
        for name in names:
            (tmp_path / name).mkdir(exist_ok=True)
        return [
            resume_matrix.train(made(name), tmp_path / name, (1, rounds - 1)).rows[12 // before :] for name in names
        ]

    def resumed():
        return [resume_matrix.train(made(name), tmp_path / name, (1, -1), resume="step").rows for name in names]

    parts = [*in_world(before, stopped), *in_world(after, resumed)]
    for number, name in enumerate(names):
        counts = Counter(row for part in parts for rows in part[number] for row in rows)
        assert counts == dict.fromkeys(range(24), 1), name


def test_steps_are_counted_as_they_were_taken(tmp_path: Path) -> None:
    """Whatever the number of processes: 2 take 3 steps, 1 takes 3, 3 take 3."""

    def run(stop, resume):
        def steps():
            accelerator = resume_matrix.Accelerator(cpu=True)
            model = resume_matrix.nn.Linear(4, 1)
            optimizer = resume_matrix.torch.optim.SGD(model.parameters(), lr=0.1)
            data = [resume_matrix.torch.ones(4) for _ in range(48)]
            model, optimizer, loader = accelerator.prepare(model, optimizer, resume_matrix.DataLoader(data, 2))
            before = accelerator.load_state(tmp_path / "state").step if resume else 0
            for number, batch in enumerate(loader, 1):
                accelerator.backward(model(batch).mean())
                optimizer.step()
                optimizer.zero_grad()
                if number == stop:
                    accelerator.save_state(tmp_path / "state")
                    break
            return before

        return steps

    assert in_world(2, run(3, False)) == [0, 0]
    assert in_world(1, run(3, True)) == [3]
    assert in_world(3, run(3, True)) == [6, 6, 6]
    assert read_manifest(tmp_path / "state").step == 9
