"""AM974: what is averaged to decide is one number, and its readers still get what they read."""

from __future__ import annotations

import pytest

from tests.migrate.check.reading import said

TOP = (
    "import torch\nfrom accel_runtime import Accelerator\naccelerator = Accelerator()\n"
    "net, opt, data = accelerator.prepare(net, opt, data)\n"
)
LOOP = "for i, (x, kept) in enumerate(data):\n{}    loss = f(net(x), kept)\n    accelerator.backward(loss)\n{}"
MEAN = 'accelerator.reduce({}, "mean")'


@pytest.mark.parametrize(
    ("first", "last"),
    [
        (f"    kept = {MEAN.format('kept.detach()')}\n", ""),
        (f"    few = kept > 3\n    few = {MEAN.format('few')}\n", ""),
        (f"    if {MEAN.format('torch.tensor(kept.sum())')}.item() == 0:\n        continue\n", ""),
        (f"    if {MEAN.format('kept.sum()')} > 0:\n        continue\n", ""),
        (f"    if not {MEAN.format('kept.sum()')}:\n        continue\n", ""),
        ("", f"    n = loss.item()\n    n = {MEAN.format('torch.tensor(n)')}.item()\n    print(n.float())\n"),
        (
            "",
            f"    n = loss.sum().item()\n    n = {MEAN.format('torch.tensor(n)')}.item()\n    if n == 0:\n        break\n",
        ),
        ("", f"    n = loss.sum()\n    n = {MEAN.format('n.detach()')}\n    n.backward()\n"),
        ("", f"    n = loss.sum().item()\n    n = {MEAN.format('torch.tensor(n)')}.item()\n    print(x[n])\n"),
        ("", f"    n = loss.sum().item()\n    n = {MEAN.format('torch.tensor(n)')}.item()\n    print(f'{{n:d}}')\n"),
    ],
)
def test_masks_counts_and_names_that_are_read_as_what_they_were(first: str, last: str) -> None:
    assert said("AM974", "x = 1\n", TOP + LOOP.format(first, last))


@pytest.mark.parametrize(
    "last",
    [
        f"    if {MEAN.format('loss.detach()')}.item() < 0.1:\n        break\n",
        f"    if torch.isnan({MEAN.format('loss.detach()')}).any():\n        break\n",
        f"    n = loss.item()\n    n = {MEAN.format('torch.tensor(n)')}.item()\n    print(n)\n",
        f"    n = loss.item()\n    n = {MEAN.format('torch.tensor(n)')}.item()\n    if n == 0 or n < best:\n        best = n\n",
        "    loss = accelerator.reduce(loss, reduction='mean')\n    print(loss[0])\n",
    ],
)
def test_a_loss_that_is_averaged(last: str) -> None:
    assert not said("AM974", "x = 1\n", TOP + LOOP.format("", last))


def test_a_mask_that_a_function_is_handed() -> None:
    function = f"def f(out, kept):\n    kept = {MEAN.format('kept.detach()')}\n    return out.mean()\n"
    assert said("AM974", "x = 1\n", TOP + function + LOOP.format("", ""))
