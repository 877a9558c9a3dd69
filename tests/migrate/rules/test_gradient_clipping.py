"""AM302: gradients that the Accelerator clips, and those that the script works on by itself."""

from __future__ import annotations

import pytest

from tests.migrate.rules.scripts import becomes, codes, stays, training
from tests.migrate.rules.verbs import ACCELERATE, migrated, noted

CLIPS = "for p in weights:\n    p.grad.data.mul_(0.5)"
UNSCALED = "accelerator.unscale_gradients(optimizer)"


def after_backward(lines: str, functions: str = "") -> str:
    indented = lines.replace("\n", "\n        ")
    return training(functions=functions).replace("loss.backward()", f"loss.backward()\n        {indented}")


def test_the_accelerator_clips():
    becomes(
        after_backward("nn.utils.clip_grad_norm_(model.parameters(), 1.0)"),
        "accelerator.clip_grad_norm_(model.parameters(), 1.0)",
    )


@pytest.mark.parametrize(
    ("lines", "functions"),
    [
        ("for p in model.parameters():\n    p.grad.clamp_(-1, 1)", ""),
        ("norm = sum((p.grad ** 2).sum() for p in model.parameters())", ""),
        ("shrink(model)", "def shrink(net):\n    for p in net.parameters():\n        p.grad *= 0.5\n"),
        (
            "shrink(model)",
            "def inner(weights):\n    for p in weights:\n        p.grad.data.mul_(0.5)\n"
            "def shrink(net):\n    inner(list(net.parameters()))\n",
        ),
        ("shrink(model)", "def shrink(net):\n    nn.utils.clip_grad_norm_(net.parameters(), 1.0)\n"),
        ("model.weight.grad.add_(1.0)", ""),
    ],
)
def test_gradients_have_their_true_size_before_they_are_worked_on(lines, functions):
    source = after_backward(lines, functions)
    text = migrated(source)
    if "accelerator.clip_grad_norm_" not in text:
        becomes(source, f"accelerator.backward(loss)\n{UNSCALED}")
        assert text.count("unscale_gradients") == 1
        assert "sharded" in noted(source, "AM302")


def test_gradients_that_are_accumulated_are_unscaled_where_the_step_is_due():
    lines = "if i % 4 == 3:\n    for p in model.parameters():\n        p.grad.div_(4)\n    optimizer.step()"
    source = after_backward(lines).replace("        optimizer.step()\n\n", "\n")
    becomes(source, f"if i % 4 == 3:\n{UNSCALED}\nfor p in model.parameters():")


SHRINK = "def shrink(net):\n    for p in net.parameters():\n        p.grad *= 0.5\n"


def test_gradients_are_unscaled_where_they_are_worked_on():
    source = after_backward("if i > 3:\n    shrink(model)", SHRINK)
    becomes(source, f"if i > 3:\n{UNSCALED}\nshrink(model)")
    asked = after_backward("if model.weight.grad.norm() > 1:\n    shrink(model)", SHRINK)
    becomes(asked, f"{UNSCALED}\nif model.weight.grad.norm() > 1:\nshrink(model)")
    either = after_backward("if i > 3:\n    shrink(model)\nelse:\n    shrink(model)", SHRINK)
    becomes(either, f"{UNSCALED}\nif i > 3:\nshrink(model)")


def test_gradients_of_each_of_two_passes_are_unscaled():
    lines = "shrink(model)\noptimizer.step()\ncriterion(model(x), y).backward()\nshrink(model)"
    source = after_backward(lines, SHRINK)
    assert migrated(source).count(f"{UNSCALED}\n        shrink(model)") == 2
    both = source.replace("criterion(model(x), y).backward()", "pass")
    assert "not under fp16" in noted(both, "AM302")


def test_gradients_of_an_input_are_told():
    source = after_backward("x.grad.sign_()")
    assert "not under fp16" in noted(source, "AM302")
    made = training(loss="criterion(model(delta), y)", inside="step = delta.grad.sign()")
    made = made.replace("loss = crit", "delta = torch.zeros_like(x, requires_grad=True)\n        loss = crit")
    made = made.replace("        optimizer.step()\n        step", "        step").replace(
        "sign()", "sign()\n        optimizer.step()"
    )
    assert "not under fp16" in noted(made, "AM302")
    assert "sharded" not in noted(made, "AM302")
    assert "unscale_gradients" not in migrated(source)


SIGNS = """
class Signs(torch.optim.Optimizer):
    def __init__(self, weights, lr):
        super().__init__(weights, dict(lr=lr))
    def turn(self, p, lr):
        p.data.sub_(lr * p.grad.sign())
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                WORK
def shrink(net):
    for p in net.parameters():
        p.grad.mul_(0.5)
def update(net, optimizer):
    shrink(net)
    optimizer.step()
"""


@pytest.mark.parametrize("work", ["p.data.sub_(group['lr'] * p.grad.sign())", "self.turn(p, group['lr'])"])
@pytest.mark.parametrize(
    ("step", "scaled"),
    [
        ("optimizer.step()", False),
        ("optimizer.step(lambda: None)", True),
        ("update(model, optimizer)", True),
        ("optimizer.turn(model.weight, 0.1)\n        optimizer.step()", True),
    ],
)
def test_gradients_are_unscaled_before_an_optimizer_of_the_script_steps(work: str, step: str, scaled: bool):
    source = training(functions=SIGNS.replace("WORK", work)).replace("torch.optim.SGD(", "Signs(")
    source = source.replace("        optimizer.step()\n\n", f"        {step}\n\n")
    assert ("not under fp16" in noted(source, "AM302")) is scaled
    assert "sharded" in noted(source, "AM302")


@pytest.mark.parametrize(
    "lines",
    [
        "for p in model.parameters():\n    p.grad = None",
        "for p in model.parameters():\n    if p.grad is not None:\n        p.grad.zero_()",
        "seen = [p.grad is None for p in model.parameters()]",
        "print(loss.item())",
        "optimizer.step()\nlogged = [p.grad.norm() for p in model.parameters()]",
    ],
)
def test_gradients_that_are_only_emptied_or_asked_for_are_left_alone(lines):
    source = after_backward(lines)
    assert "AM302" not in codes(source)
    stays(source, "accelerator.backward(loss)")
    assert "unscale_gradients" not in migrated(source)


CLIPPED = "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"
ANYWHERE = {
    "above": training().replace("        loss.backward()", f"        {CLIPPED}\n        loss.backward()"),
    "above_if": training().replace(
        "        loss.backward()", f"        if i:\n            {CLIPPED}\n        loss.backward()"
    ),
    "after_the_step": training(inside=CLIPPED),
    "before_a_second_pass": after_backward(f"{CLIPPED}\n(model(x) ** 2).mean().backward()"),
    "before_a_step_that_may_be_left_out": after_backward(CLIPPED).replace(
        "        optimizer.step()", "        if i % 2:\n            optimizer.step()"
    ),
}


@pytest.mark.parametrize("place", ANYWHERE)
def test_the_accelerator_clips_wherever_the_script_does(place):
    assert "accelerator.clip_grad_norm_(model.parameters(), 1.0)" in migrated(ANYWHERE[place])


@pytest.mark.parametrize("place", ANYWHERE)
def test_accelerate_clips_only_between_a_pass_and_its_step(place):
    text = migrated(ANYWHERE[place], ACCELERATE)
    assert CLIPPED in text
    assert "unscale_gradients" not in text
    between = migrated(after_backward(CLIPPED), ACCELERATE)
    assert "accelerator.clip_grad_norm_(model.parameters(), 1.0)" in between


@pytest.mark.parametrize("place", ["before_a_second_pass", "before_a_step_that_may_be_left_out"])
def test_clipping_that_accelerate_cannot_unscale_is_said(place):
    assert "not under fp16" in noted(ANYWHERE[place], "AM302", ACCELERATE)


def test_takes_over_a_clipping_below_one_of_two_backward_passes():
    line = "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"
    passes = f"if twice:\n            (2 * loss).backward()\n        else:\n            loss.backward()\n        {line}"
    source = training().replace("loss.backward()", passes)
    becomes(source, "accelerator.clip_grad_norm_(model.parameters(), 1.0)")


def test_what_is_not_prepared_is_clipped_as_it_was():
    clip = "nn.utils.clip_grad_norm_(other.parameters(), 1)"
    stays(training(functions="other = nn.Linear(2, 2)\n", inside=clip), clip)
