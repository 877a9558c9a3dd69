"""AM958: what went to the CPU still does."""

from __future__ import annotations

import pytest

from tests.migrate.check.reading import said


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x = y.cpu()\n", "x = y\n"),
        ("x = y.to('cpu')\n", "x = y.to(accelerator.device)\n"),
        ("x = y.to(torch.device('cpu'))\n", "x = y.to(accelerator.device)\n"),
        ("host = torch.device('cpu')\nx = y.to(host)\n", "host = accelerator.device\nx = y.to(host)\n"),
        ("x = y.to(device='cpu', non_blocking=True)\n", "x = y\n"),
        ("x = torch.load(f, map_location='cpu')\n", "x = torch.load(f, map_location=accelerator.device)\n"),
        ("x = torch.load(f, map_location=lambda storage, place: storage)\n", "x = torch.load(f)\n"),
        (
            "def f(y):\n    return y.cpu(), y\ndef g(y):\n    return y\n",
            "def f(y):\n    return y, y\ndef g(y):\n    return y.cpu()\n",
        ),
    ],
)
def test_a_move_to_the_cpu_that_is_lost(before: str, after: str) -> None:
    (message,) = said("AM958", before, after)
    assert "CPU" in message


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x = model.decode(y).cpu()\n", "x = accelerator.unwrap_model(model).decode(y).cpu()\n"),
        ("x = y.to(device)\n", "x = y\n"),
        ("device = 'cuda' if gpu else 'cpu'\nx = y.to(device)\n", "x = y\n"),
        ("x = torch.load(f, map_location=device)\n", "x = torch.load(f, map_location='cpu')\n"),
        ("def f(y):\n    return y.cpu()\nx = 1\n", "x = 1\n"),
    ],
)
def test_other_moves(before: str, after: str) -> None:
    assert not said("AM958", before, after)


def test_an_accelerator_that_keeps_to_the_cpu_is_the_cpu() -> None:
    after = "from accel_runtime import Accelerator\naccelerator = Accelerator({})\nx = y.to(accelerator.device)\n"
    assert not said("AM958", "x = y.to('cpu')\n", after.format("cpu=True"))
    assert said("AM958", "x = y.to('cpu')\n", after.format("cpu=args.cpu"))
