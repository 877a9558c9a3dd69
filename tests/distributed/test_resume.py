"""Resuming on real processes: to the bit on as many as saved, and every sample once on any other number."""

import os
from collections import Counter
from itertools import product
from pathlib import Path

import pytest
from accel_runtime.checkpoint.manifest import read_manifest
from accel_runtime.errors import CheckpointError
from torch.utils.data import DataLoader, DistributedSampler

from tests import resume_matrix
from tests.distributed.worlds import in_world
from tests.loaders import BATCH, DEALT_BY_WORKERS, INEXACT, LOADERS, SAMPLES, WITH_WORKERS, Order, Stream, Table
from tests.resume_matrix import EPOCHS, IDIOMS, PLACES, made, outcome
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
    for name in names:
        mine = [result for results in told for (whose, _), result in results.items() if whose == name]
        print(f"two processes, {name}: {dict(Counter(result.split(':')[0] for result in mine))}")
    for results in told:
        for (name, way), result in results.items():
            silent = result.startswith("SILENT") if name in INEXACT else result != "exact"
            assert not silent, (name, way, result)


@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2)])
def test_every_loader_goes_on_with_another_number_of_processes(before: int, after: int, tmp_path: Path) -> None:
    """With the samples that are left of the epoch, or it is refused."""
    half = [name for name in list(LOADERS)[before % 2 :: 2] if name not in WITH_WORKERS]
    names = list(LOADERS) if EVERYWHERE else [*half, *sorted((INEXACT | DEALT_BY_WORKERS) - {*half})]
    stop = (1, 2 // before - 1)  # after two of the script's own batches
    for name in names:
        (tmp_path / name).mkdir()

    def second_epochs():
        whole = [resume_matrix.train(made(name), tmp_path / name).rows for name in names]
        return [rows[len(rows) // EPOCHS : 2 * len(rows) // EPOCHS] for rows in whole]

    def stopped():
        rows = [resume_matrix.train(made(name), tmp_path / name, stop).rows for name in names]
        return [rows[-stop[1] - 1 :] for rows in rows]

    def resumed():
        return [rest_of(name) for name in names]

    def rest_of(name):
        try:
            return resume_matrix.train(made(name), tmp_path / name, (1, -1), resume="step").rows
        except CheckpointError as error:
            return str(error)

    control, begun, rest = in_world(before, second_epochs), in_world(before, stopped), in_world(after, resumed)
    outcomes = {}
    for number, name in enumerate(names):
        if isinstance(rest[0][number], str):
            outcomes[name] = "refused"
            continue
        seen = Counter(row for part in (*begun, *rest) for rows in part[number] for row in rows)
        wanted = Counter(row for part in control for rows in part[number] for row in rows)
        if name == "shuffle, short last batch":  # of which one number of processes repeats more than another
            seen, wanted = Counter(set(seen)), Counter(set(wanted))
        outcomes[name] = "exact" if seen == wanted else f"SILENT: {seen - wanted} twice, {wanted - seen} never"
    print(f"{before} -> {after} processes:", outcomes)
    refused = {name for name, outcome in outcomes.items() if outcome == "refused"}
    assert set(outcomes.values()) <= {"exact", "refused"}, outcomes
    assert DEALT_BY_WORKERS <= refused <= INEXACT | DEALT_BY_WORKERS


def test_a_stream_of_several_workers_names_what_to_do(tmp_path: Path) -> None:
    make = made("stream, workers")
    in_world(2, lambda: resume_matrix.train(make, tmp_path, (0, 0)))
    with pytest.raises(CheckpointError, match="ShuffledStream is read by 2 workers, each of which has its own part"):
        resume_matrix.train(make, tmp_path, resume="epoch")


def distributed() -> list[DataLoader]:
    """With a sampler that gives each process its own part."""
    world = {"num_replicas": int(os.environ["WORLD_SIZE"]), "rank": int(os.environ["RANK"])}
    return [DataLoader(Table(), BATCH, sampler=DistributedSampler(Table(), **world))]


@pytest.mark.parametrize(("before", "after", "rounds"), [(1, 2, 4), (2, 1, 1), (3, 2, 2)])
def test_a_distributed_sampler_goes_on_after_whole_rounds(before: int, after: int, rounds: int, tmp_path: Path) -> None:
    begun = in_world(before, lambda: resume_matrix.train(distributed, tmp_path, (0, rounds - 1)).rows)
    rest = in_world(after, lambda: resume_matrix.train(distributed, tmp_path, (0, -1), resume="step").rows)
    counts = Counter(row for part in (*begun, *rest) for rows in part for row in rows)
    assert counts == dict.fromkeys(range(SAMPLES), 1)


def test_a_distributed_sampler_is_refused_within_a_round(tmp_path: Path) -> None:
    in_world(1, lambda: resume_matrix.train(distributed, tmp_path, (0, 2)))
    with pytest.raises(AssertionError, match=r"3 batches .* no whole number of rounds of 2 processes"):
        in_world(2, lambda: resume_matrix.train(distributed, tmp_path, resume="step"))


def test_hooks_keep_where_each_process_is_in_a_stream_of_its_own(tmp_path: Path) -> None:
    """A stream that every process reads by itself is not prepared."""

    def work():
        accelerator = resume_matrix.Accelerator(cpu=True)
        mine = f"stream_{accelerator.process_index}.txt"
        read = 10 * (accelerator.process_index + 1)
        accelerator.register_save_state_pre_hook(lambda models, weights, out: (Path(out) / mine).write_text(str(read)))
        found = []
        accelerator.register_load_state_pre_hook(
            lambda models, saved: found.append(int((Path(saved) / mine).read_text()))
        )
        accelerator.save_state(tmp_path / "state")
        accelerator.load_state(tmp_path / "state")
        return found

    assert in_world(2, work) == [[10], [20]]
    listed = read_manifest(tmp_path / "state").names()
    assert {"stream_0.txt", "stream_1.txt"} <= {*listed}


SHIFT = [0]


class Shifted(Stream):
    """In an order that depends on what no checkpoint knows."""

    def rows(self) -> list[int]:
        return [(row + SHIFT[0]) % SAMPLES for row in range(SAMPLES)]


class ShiftedOrder(Order):
    def rows(self) -> list[int]:
        return Shifted().rows()


@pytest.mark.parametrize("idiom", ["epoch", "by hand"])
@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2)])
def test_other_data_is_refused_by_another_number_of_processes(
    before: int, after: int, idiom: str, tmp_path: Path
) -> None:
    kinds = {
        "Shifted": lambda: [DataLoader(Shifted(), BATCH)],
        "ShiftedOrder": lambda: [DataLoader(Table(), BATCH, sampler=ShiftedOrder())],
    }
    for name, make in kinds.items():
        (tmp_path / name).mkdir()
        in_world(before, lambda: resume_matrix.train(make, tmp_path / name, (1, 2)))  # noqa: B023

        def resumed(shift: int, make=make, folder=tmp_path / name):
            SHIFT[0] = shift
            return resume_matrix.train(make, folder, (1, -1), resume="step" if idiom == "epoch" else idiom).rows

        with pytest.raises(AssertionError, match=f"{name}.* does not give the same batches again"):
            in_world(after, lambda: resumed(1))
        in_world(after, lambda: resumed(0))


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
