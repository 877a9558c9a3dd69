"""AM961: every process takes the same number of steps."""

from __future__ import annotations

from tests.migrate.check.reading import said

TOP = (
    "import torch\nfrom accel_runtime import Accelerator\naccelerator = Accelerator()\nplan = LambdaLR(opt)\n"
    "net, opt, plan, data = accelerator.prepare(net, opt, plan, data)\n"
)


def test_a_backward_pass_for_each_part_of_a_batch() -> None:
    loop = (
        "for i, batch in enumerate(data):\n    parts = batch.split(2)\n"
        "    for part in {}:\n        accelerator.backward(net(part))\n"
    )
    assert said("AM961", "x = 1\n", TOP + loop.format("parts"))
    assert said("AM961", "x = 1\n", TOP + loop.format("range(batch.size(1))"))
    assert not said("AM961", "x = 1\n", TOP + loop.format("range(4)"))
    assert not said("AM961", "x = 1\n", TOP + loop.format("range(i)"))


def test_a_prepared_schedule_in_a_loop_that_ends_at_a_count() -> None:
    loop = "for i, x in enumerate(data):\n    accelerator.backward(net(x))\n    opt.step()\n    plan.step()\n"
    assert said("AM961", "x = 1\n", TOP + loop + "    if i == 100:\n        break\n")
    assert not said("AM961", "x = 1\n", TOP + loop)
    plain = TOP.replace("net, opt, plan, data", "net, opt, data").replace("(net, opt, plan, data)", "(net, opt, data)")
    assert not said("AM961", "x = 1\n", plain + loop + "    if i == 100:\n        break\n")
