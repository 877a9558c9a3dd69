"""A method's own name for what its object keeps is that object: `loader = self.loader`."""

from __future__ import annotations

from tests.migrate.rules.verbs import migrated, unchanged

SCRIPT = """
import torch
from torch import nn
from torch.utils.data import DataLoader


class Coach:
    def __init__(self, net, cells, far, opt):
        self.net = net
        self.cells = cells
        self.far = far
        self.opt = opt

    def fit(self, training=True):
        {short}
        for x, y in cells:
            loss = nn.functional.mse_loss(net(x.cuda()), y.cuda())
            opt.zero_grad()
            loss.backward()
            opt.step()


net = nn.Linear(4, 1).cuda()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
coach = Coach(net, DataLoader(rows(), batch_size=4), DataLoader(rows(), batch_size=4), opt)
coach.fit()
"""
NAMES = "cells = self.cells; net = self.net; opt = self.opt"
PREPARED = "self.net, self.opt, self.cells = self.accelerator.prepare("


def test_what_a_method_calls_by_a_name_of_its_own_is_prepared_where_the_object_has_it() -> None:
    assert PREPARED in migrated(SCRIPT.format(short=NAMES))
    assert PREPARED in migrated(SCRIPT.format(short=NAMES).replace("in cells:", "in tqdm(cells):"))


def test_a_loop_that_trains_or_evaluates_one_of_several_is_left() -> None:
    step = "            opt.zero_grad()\n            loss.backward()\n            opt.step()\n"
    asked = "            if training:\n" + "".join(f"    {line}\n" for line in step.splitlines())
    script = SCRIPT.replace(step, asked).replace("coach.fit()", "coach.fit()\ncoach.fit(False)")
    chosen = f"{NAMES}\n        if not training:\n            cells = self.far"
    assert "is one of several loaders" in unchanged(script.format(short=chosen))
    either = NAMES.replace("self.cells", "self.cells if training else self.far")
    assert "is one of several loaders" in unchanged(script.format(short=either))


def test_a_loader_that_an_object_keeps_is_the_one_that_its_maker_evaluates() -> None:
    script = SCRIPT.format(short=NAMES).replace(
        "coach = Coach(net, DataLoader(rows(), batch_size=4), DataLoader(rows(), batch_size=4), opt)\ncoach.fit()\n",
        """
cells, far = DataLoader(rows(), batch_size=4), DataLoader(rows(), batch_size=4)
coach = Coach(net, cells, far, opt)
coach.fit()
coach.check()
right = 0
for x, y in far:
    right += (net(x.cuda()) == y.cuda()).sum().item()
print(right)
""",
    )
    script = script.replace(
        "\n\nnet = nn.Linear",
        """
    def check(self):
        far = self.far
        right = 0
        for x, y in far:
            right += (self.net(x.cuda()) == y.cuda()).sum().item()
        print(right)


net = nn.Linear""",
    )
    result = migrated(script)
    assert "net, opt, cells, far = accelerator.prepare(net, opt, cells, far)" in result
    assert result.count("in accelerator.whole_batches(far):") == 2
    other = script.replace("coach.check()", "coach.check()\nCoach(net, cells, other(), opt).check()")
    assert "cells, far = accelerator.prepare(" not in migrated(other)
    assert migrated(other).count("in accelerator.whole_batches(far):\n") == 2
