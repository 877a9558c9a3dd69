"""AM206: a loop that cannot do without its moves keeps them, under the same conditions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from accel_migrate import rewriting
from accel_migrate.check import Violation
from accel_migrate.flow.version import Version
from accel_migrate.pipeline import migrate
from accel_migrate.plan import FileResult, Status
from accel_migrate.source import Source

SCRIPT = """import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(8, 4), torch.randn(8, 1)), batch_size=4)
model = nn.Linear(4, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = (model(x.cuda()) - y.cuda()).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def result(monkeypatch: pytest.MonkeyPatch, code: str, missing: str) -> FileResult:
    """What becomes of the script where a condition is broken by every result without some text."""

    def found(_: object, results: Mapping[Path, Version], __: object) -> Iterator[Violation]:
        for path, version in results.items():
            if missing not in version.source.text:
                yield Violation(code, path, 1, "x would be elsewhere")

    monkeypatch.setattr(rewriting, "violations", found)
    (it,) = migrate([Source.from_bytes(Path("train.py"), SCRIPT.encode())])
    return it


def test_all_moves_stay_and_go_to_the_accelerators_device(monkeypatch: pytest.MonkeyPatch) -> None:
    it = result(monkeypatch, "AM956", "x.to(accelerator.device)")
    after = it.after.decode()
    assert it.status is Status.MIGRATED
    assert after.index("Accelerator()") < after.index("model = nn.Linear(4, 1).to(accelerator.device)")
    assert "model(x.to(accelerator.device)) - y.to(accelerator.device)" in after
    (note,) = [note for note in it.notes if note.code == "AM206"]
    assert note.message.endswith("without them x would be elsewhere")


def test_what_breaks_a_condition_with_its_moves_too_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    it = result(monkeypatch, "AM956", "never written")
    assert it.status is Status.UNCHANGED
    assert [note.code for note in it.notes] == ["AM901"]


@pytest.mark.parametrize("code", ["AM959", "AM969", "AM953"])
def test_a_batch_on_the_cpu_is_not_hidden_by_its_move(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    assert result(monkeypatch, code, "x.to(accelerator.device)").status is Status.UNCHANGED


def test_a_loop_that_builds_its_loader_anew_is_left() -> None:
    script = SCRIPT.replace(
        "for x, y in loader:\n",
        "def fit(model, loader, optimizer, data):\n  for epoch in range(2):\n   loader = DataLoader(data, batch_size=4)\n"
        "   for x, y in loader:\n",
    ).replace("\n    ", "\n      ")
    script += "fit(model, loader, optimizer, loader.dataset)\n"
    (it,) = migrate([Source.from_bytes(Path("train.py"), script.encode())])
    assert it.status is Status.UNCHANGED, it.after.decode()


def test_no_note_where_moves_go() -> None:
    (it,) = migrate([Source.from_bytes(Path("train.py"), SCRIPT.encode())])
    assert "AM206" not in [note.code for note in it.notes]
