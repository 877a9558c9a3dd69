"""AM962: a file that one process writes is read by all only once it is there."""

from __future__ import annotations

from tests.migrate.check.reading import said

TOP = "import torch\nfrom accel_runtime import Accelerator\naccelerator = Accelerator()\naccelerator.save(weights, 'best.pt')\n"


def test_a_file_that_is_read_back_at_once() -> None:
    assert said("AM962", "x = 1\n", TOP + "weights = torch.load('best.pt')\n")
    assert said("AM962", "x = 1\n", TOP + "def back():\n    return torch.load('best.pt', map_location='cpu')\nback()\n")
    assert not said("AM962", "x = 1\n", TOP + "accelerator.wait_for_everyone()\nweights = torch.load('best.pt')\n")
    assert not said("AM962", "x = 1\n", TOP + "weights = torch.load('other.pt')\n")
    first = "import torch\nfrom accel_runtime import Accelerator\naccelerator = Accelerator()\nweights = torch.load('best.pt')\n"
    assert not said("AM962", "x = 1\n", first + "for epoch in range(3):\n    accelerator.save(weights, 'best.pt')\n")
