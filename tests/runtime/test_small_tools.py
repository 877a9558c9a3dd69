"""Seeds, loggers, progress bars, batch sizes that fit."""

import logging
import random

import numpy
import pytest
import torch
from accel_runtime import Accelerator, find_executable_batch_size, set_seed
from accel_runtime.errors import UsageError
from accel_runtime.logging import get_logger
from accel_runtime.utils import concatenate, tqdm


def test_a_seed_repeats_every_generator():
    def draw():
        set_seed(7)
        return random.random(), numpy.random.rand(), torch.rand(1).item()

    assert draw() == draw()


def as_rank(monkeypatch, rank):
    for name, value in {"RANK": rank, "WORLD_SIZE": 4, "LOCAL_RANK": rank}.items():
        monkeypatch.setenv(name, str(value))


def test_a_seed_of_ones_own_for_each_process(monkeypatch):
    def draw(rank):
        as_rank(monkeypatch, rank)
        set_seed(7, device_specific=True)
        return torch.rand(1).item()

    assert draw(0) != draw(1)
    set_seed(8)
    assert torch.rand(1).item() == draw(1)


def test_the_main_process_speaks_unless_all_may(caplog, monkeypatch):
    as_rank(monkeypatch, 1)
    logger = get_logger("accel.test", log_level="info")
    logger.info("not heard")
    logger.info("heard from %s", "all", main_process_only=False)
    assert [record.message for record in caplog.records] == ["[RANK 1] heard from all"]
    assert caplog.records[0].filename == "test_small_tools.py"


def test_a_warning_given_once(caplog):
    logger = get_logger("accel.once")
    for _ in range(3):
        logger.warning_once("careful")
    assert [record.message for record in caplog.records] == ["careful"]
    assert caplog.records[0].levelno == logging.WARNING


def test_a_bar_on_the_first_process_of_a_machine(monkeypatch):
    assert not tqdm(range(2)).disable
    as_rank(monkeypatch, 1)
    assert tqdm(range(2)).disable
    assert not tqdm(range(2), main_process_only=False).disable
    with pytest.raises(UsageError, match="main_process_only by name"):
        tqdm(True, range(2))


def test_batch_sizes_shrink_until_they_fit():
    tried = []

    @find_executable_batch_size(starting_batch_size=64)
    def train(batch_size, extra):
        tried.append(batch_size)
        if batch_size > 50:
            raise torch.OutOfMemoryError("out of memory")
        return batch_size, extra

    assert train("x") == (45, "x")
    assert tried == [64, 57, 51, 45]


def test_other_errors_are_not_swallowed():
    @find_executable_batch_size(starting_batch_size=4)
    def train(batch_size):
        raise ValueError("a bug")

    with pytest.raises(ValueError, match="a bug"):
        train()


def test_a_batch_of_one_that_does_not_fit_is_the_end():
    @find_executable_batch_size(starting_batch_size=2)
    def train(batch_size):
        raise RuntimeError("CUDA out of memory")

    with pytest.raises(UsageError, match="even with a batch of one sample"):
        train()


def test_only_tensors_are_concatenated():
    one = {"x": torch.ones(2, 3), "name": "a"}
    assert concatenate([one]) is one
    with pytest.raises(TypeError, match=r"got str at \['name'\]"):
        concatenate([one, one])


def test_a_model_is_unwrapped_from_the_scripts_own_data_parallel():
    model = torch.nn.Linear(1, 1)
    assert Accelerator(cpu=True).unwrap_model(torch.compile(torch.nn.DataParallel(model))) is model
