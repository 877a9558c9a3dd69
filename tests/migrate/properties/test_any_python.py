"""Whatever parses as Python comes through: no crash, no byte changed without a training loop, a result that compiles."""

from __future__ import annotations

import ast
import warnings
from pathlib import Path

import hypothesmith
import pytest
from accel_migrate.pipeline import migrate
from accel_migrate.plan import FileResult, Status
from accel_migrate.source import Source
from hypothesis import HealthCheck, given, settings

# What is generated is the same on every run: a failure is found again, and nobody's change fails by chance.
STEADY = settings(
    derandomize=True, deadline=None, database=None, max_examples=40, suppress_health_check=list(HealthCheck)
)
LOOP = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
loader = DataLoader(TensorDataset(torch.zeros(8, 2), torch.zeros(8, 1)), batch_size=4)
model = nn.Linear(2, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    x, y = x.to(device), y.to(device)
    loss = ((model(x) - y) ** 2).mean()
    loss.backward()
    optimizer.step()
"""


def migrated(text: str) -> FileResult:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (result,) = migrate([Source.from_bytes(Path("train.py"), text.encode())])
    return result


def can_be_written(text: str) -> bool:
    """Some generated programs hold lone surrogates, or names that only `compile` refuses; they are no files."""
    try:
        text.encode()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(text, "train.py", "exec")
    except (UnicodeEncodeError, SyntaxError, ValueError):
        return False
    return "\0" not in text


def is_said_or_done(result: FileResult) -> bool:
    """Migrated, or left with a note; a file that cannot be rewritten to the byte fails in a sentence."""
    if result.status is Status.FAILED:
        return result.after == result.before and "internal" not in result.reason
    if result.status is Status.UNCHANGED:
        return result.after == result.before and any(note.code == "AM901" for note in result.notes)
    compile(result.after, "train.py", "exec")
    again = migrated(result.after.decode())
    return again.status is not Status.FAILED and again.after == result.after


@STEADY
@given(hypothesmith.from_grammar())
def test_python_without_a_training_loop_keeps_every_byte(noise: str) -> None:
    text = f"{noise}\nimport torch  # backward\n"  # the words that make the codemod look closer
    if can_be_written(text):
        result = migrated(text)
        assert result.after == result.before == text.encode()


@STEADY
@given(hypothesmith.from_node())
def test_python_of_every_node_keeps_every_byte(noise: str) -> None:
    text = f"import torch  # backward\n{noise}\n"
    if can_be_written(text):
        result = migrated(text)
        assert result.after == result.before == text.encode()


@pytest.mark.full  # the next one puts noise of the other kind after it
@STEADY
@given(hypothesmith.from_grammar())
def test_a_training_loop_behind_noise_is_migrated_or_left_with_a_note(noise: str) -> None:
    text = noise + "\n" + LOOP
    if can_be_written(text):
        assert is_said_or_done(migrated(text))


@STEADY
@given(hypothesmith.from_node())
def test_a_training_loop_before_noise_is_migrated_or_left_with_a_note(noise: str) -> None:
    text = LOOP + "\ndef unrelated():\n    pass\n" + noise + "\n"
    if can_be_written(text):
        assert is_said_or_done(migrated(text))


def test_the_loop_alone_is_migrated() -> None:
    assert migrated(LOOP).status is Status.MIGRATED
    assert ast.parse(migrated(LOOP).after)
