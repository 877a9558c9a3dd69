"""The table of who gets which samples, against an oracle that builds it the long way round."""

from itertools import chain, product

import pytest
import torch
from accel_runtime.data.sharding import Sharding, shard, shard_order, steps_of
from accel_runtime.errors import ConfigError

SAMPLES = [*range(20), 23, 24, 25, 31, 48]
BATCH_SIZES = [1, 2, 3, 4, 6, 8, 12]
PROCESSES = [1, 2, 3, 4, 5, 8]
FLAGS = [False, True]


def plain_batches(samples, batch_size, drop_last):
    batches = [list(range(start, min(start + batch_size, samples))) for start in range(0, samples, batch_size)]
    return [batch for batch in batches if len(batch) == batch_size or not drop_last]


def oracle(samples, batch_size, processes, drop_last, split, even):
    """For each process its batches, and for each round the samples that are real."""
    part = batch_size // processes if split else batch_size
    batches = plain_batches(samples, batch_size, drop_last)
    step = 1 if split else processes
    rounds = [list(chain.from_iterable(batches[start : start + step])) for start in range(0, len(batches), step)]
    rounds = [a_round for a_round in rounds if not drop_last or len(a_round) == part * processes]
    real = [list(a_round) for a_round in rounds]
    if even:
        for a_round in rounds:
            number = 0
            while len(a_round) < part * processes:
                a_round.append(real[0][number % len(real[0])])
                number += 1
    each = [[a_round[rank * part :][:part] for a_round in rounds] for rank in range(processes)]
    return [[batch for batch in mine if batch] for mine in each], real


def combinations():
    for samples, batch_size, processes, drop_last, split, even in product(
        SAMPLES, BATCH_SIZES, PROCESSES, FLAGS, FLAGS, FLAGS
    ):
        if not split or batch_size % processes == 0:
            yield samples, batch_size, processes, drop_last, split, even


def shardings(batch_size, processes, drop_last, split, even):
    return [Sharding(rank, processes, batch_size, drop_last, split, even) for rank in range(processes)]


def test_the_combinations_are_many():
    assert len(list(combinations())) >= 5000


def test_batches_and_lengths_are_those_of_the_oracle():
    for samples, batch_size, processes, drop_last, split, even in combinations():
        expected, _ = oracle(samples, batch_size, processes, drop_last, split, even)
        batches = plain_batches(samples, batch_size, drop_last)
        for rank, sharding in enumerate(shardings(batch_size, processes, drop_last, split, even)):
            case = (samples, batch_size, rank, processes, drop_last, split, even)
            assert [mine for mine, _ in shard(batches, sharding)] == expected[rank], case
            for order in (range(samples), torch.arange(samples)):
                assert [mine for mine, _ in shard_order(order, sharding)] == expected[rank], case
            tail = len(batches[-1]) if batches else 0
            assert steps_of(len(batches), tail, sharding) == len(expected[rank]), case


def test_real_rows_of_all_processes_are_every_sample_once():
    for samples, batch_size, processes, drop_last, split, even in combinations():
        _, real = oracle(samples, batch_size, processes, drop_last, split, even)
        batches = plain_batches(samples, batch_size, drop_last)
        for way in (
            lambda one, batches=batches: shard(batches, one),
            lambda one, n=samples: shard_order(range(n), one),
        ):
            each = [list(way(one)) for one in shardings(batch_size, processes, drop_last, split, even)]
            gathered = [
                [mine[number] for mine in each if number < len(mine)]
                for number in range(max(map(len, each), default=0))
            ]
            kept = [_kept(a_round) for a_round in gathered]
            assert kept == real, (samples, batch_size, processes, drop_last, split, even)


def _kept(a_round):
    assert all(len(indices) == share.rows for indices, share in a_round)
    return [
        index
        for rank, (indices, share) in enumerate(a_round)
        for index in indices[: len(indices) if share.real is None else share.real[rank]]
    ]


@pytest.mark.parametrize(
    ("samples", "batch_size", "drop_last", "split", "even", "expected"),
    [
        (10, 3, False, False, True, [[[0, 1, 2], [6, 7, 8]], [[3, 4, 5], [9, 0, 1]]]),
        (10, 3, True, False, True, [[[0, 1, 2]], [[3, 4, 5]]]),
        (2, 4, False, False, True, [[[0, 1, 0, 1]], [[0, 1, 0, 1]]]),
        (10, 4, False, True, True, [[[0, 1], [4, 5], [8, 9]], [[2, 3], [6, 7], [0, 1]]]),
        (10, 3, False, False, False, [[[0, 1, 2], [6, 7, 8]], [[3, 4, 5], [9]]]),
    ],
)
def test_two_processes_get_the_documented_batches(samples, batch_size, drop_last, split, even, expected):
    batches = plain_batches(samples, batch_size, drop_last)
    dealt = [[mine for mine, _ in shard(batches, one)] for one in shardings(batch_size, 2, drop_last, split, even)]
    assert dealt == expected


def test_batches_of_changing_size_are_dealt_out_whole():
    batches = [[0, 1, 2], [3], [4, 5], [6, 7, 8, 9], [10]]
    dealt = [list(shard(batches, Sharding(rank, 2, None))) for rank in range(2)]
    assert [mine for mine, _ in dealt[0]] == [[0, 1, 2], [4, 5], [10]]
    assert [mine for mine, _ in dealt[1]] == [[3], [6, 7, 8, 9], [0, 1, 2]]
    assert dealt[0][-1][1].real == (1, 0)


def test_a_short_batch_in_the_middle_does_not_repeat_samples():
    batches = [[0, 1], [2], [3, 4], [5, 6]]
    dealt = [[mine for mine, _ in shard(batches, Sharding(rank, 2, 2))] for rank in range(2)]
    assert dealt == [[[0, 1], [3, 4]], [[2], [5, 6]]]


def test_a_batch_that_cannot_be_split_equally_is_refused():
    with pytest.raises(ConfigError, match="5 is not a multiple of 2"):
        Sharding(0, 2, 5, split=True)


def test_splitting_needs_a_batch_size():
    with pytest.raises(ConfigError, match="split_batches needs a batch size"):
        Sharding(0, 2, None, split=True)


def test_intact_batches_are_the_plain_ones_each_on_one_process():
    for samples, batch_size, processes, drop_last in product(SAMPLES, BATCH_SIZES, PROCESSES, FLAGS):
        plain = plain_batches(samples, batch_size, drop_last)
        each = [Sharding(rank, processes, batch_size, drop_last, intact=True) for rank in range(processes)]
        for dealt in (
            [list(shard(plain, one)) for one in each],
            [list(shard_order(range(samples), one)) for one in each],
            [list(shard_order(torch.arange(samples), one)) for one in each],
        ):
            case = (samples, batch_size, processes, drop_last)
            steps = -(-len(plain) // processes)
            assert [len(mine) for mine in dealt] == [steps] * processes, case
            assert [steps_of(len(plain), len(plain[-1]) if plain else 0, one) for one in each] == [steps] * processes
            kept = [
                batch
                for a_round in zip(*dealt)
                for rank, (batch, share) in enumerate(a_round)
                if share.real is None or share.real[rank]
            ]
            assert kept == plain, case
            assert all(len(batch) == share.rows > 0 for mine in dealt for batch, share in mine), case
