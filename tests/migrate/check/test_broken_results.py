# ruff: noqa: E501  lines of scripts stand here as they are
"""Right results, each broken in one way that a mistake of ours would break it: the check must refuse it, by its code."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.migrate.check.reading import found

FIXTURES = Path(__file__).parents[3] / "fixtures"


class Break(NamedTuple):
    case: str
    code: str
    edits: tuple[tuple[str, str], ...]


PREPARED = "    model, optimizer, train_loader, test_loader = accelerator.prepare(\n        model, optimizer, train_loader, test_loader\n    )\n"
IN_CLASS = (
    "        self.model, self.optimizer, self.train_loader, self.test_loader = self.accelerator.prepare(\n"
    "            self.model, self.optimizer, self.train_loader, self.test_loader\n        )\n"
)
GLOBALS = "model, optimizer, train_loader, val_loader = accelerator.prepare(\n    model, optimizer, train_loader, val_loader\n)\n"
RESUMED = (
    "net, optimizer, trainloader, testloader = accelerator.prepare(\n    net, optimizer, trainloader, testloader\n)\n"
)
BREAKS = [
    # one Accelerator, made once
    Break(
        "train_and_evaluate",
        "AM952",
        (("        model.train()\n", "        accelerator = Accelerator()\n        model.train()\n"),),
    ),
    Break(
        "loop_over_globals",
        "AM952",
        (("for epoch in range(3):\n", "for epoch in range(3):\n    accelerator = Accelerator()\n"),),
    ),
    Break("gan_two_optimizers", "AM952", (("nz = 4\n", "accelerator = Accelerator()\nnz = 4\n"),)),
    Break(
        "ddp_torchrun",
        "AM952",
        (
            (
                "def train(model, loader, optimizer, epoch, accelerator):\n",
                "def train(model, loader, optimizer, epoch, accelerator):\n    accelerator = Accelerator()\n",
            ),
        ),
    ),
    # prepare before all use, after what builds, once
    Break("train_and_evaluate", "AM953", ((PREPARED, ""), ("\n\nif __name__", PREPARED + "\n\nif __name__"))),
    Break(
        "loop_over_globals",
        "AM953",
        ((GLOBALS, ""), ("    val_loss = evaluate", f"    {GLOBALS.replace(chr(10), ' ')}\n    val_loss = evaluate")),
    ),
    Break("trainer_class", "AM953", ((IN_CLASS, "        self.train_epoch()\n" + IN_CLASS),)),
    Break("functions_with_device", "AM953", ((PREPARED, PREPARED + PREPARED),)),
    Break(
        "resume_and_best",
        "AM953",
        ((RESUMED, ""), ("for epoch in range(start", "train(0)\n" + RESUMED + "for epoch in range(start")),
    ),
    # every process comes to each meeting
    Break(
        "ddp_torchrun",
        "AM954",
        (
            (
                "        accuracy = evaluate(model, test_loader, accelerator)\n        model_state",
                "        if accelerator.is_main_process:\n            accuracy = evaluate(model, test_loader, accelerator)\n        model_state",
            ),
        ),
    ),
    Break(
        "ddp_torchrun",
        "AM954",
        (
            (
                "        model_state = accelerator.get_state_dict(model)\n        if accelerator.is_local_main_process:\n",
                "        if accelerator.is_local_main_process:\n            model_state = accelerator.get_state_dict(model)\n",
            ),
        ),
    ),
    Break(
        "resume_and_best",
        "AM954",
        (("    if acc > best_acc:\n", "    if acc > best_acc and accelerator.process_index == 0:\n"),),
    ),
    Break(
        "trainer_class",
        "AM954",
        (
            (
                "            accuracy = self.accuracy()\n",
                "            accuracy = self.accuracy() if self.accelerator.is_main_process else 0.0\n",
            ),
        ),
    ),
    Break(
        "functions_with_device",
        "AM954",
        (
            (
                "        test(model, accelerator, test_loader)\n",
                "        lead = accelerator.process_index\n        if lead:\n            continue\n        test(model, accelerator, test_loader)\n",
            ),
        ),
    ),
    # gathered: from prepared loaders, once, and all of it
    Break(
        "train_and_evaluate",
        "AM955",
        ((PREPARED, "    model, optimizer, train_loader = accelerator.prepare(model, optimizer, train_loader)\n"),),
    ),
    Break(
        "loop_over_globals",
        "AM955",
        ((GLOBALS, "model, optimizer, train_loader = accelerator.prepare(model, optimizer, train_loader)\n"),),
    ),
    Break(
        "resume_and_best",
        "AM955",
        (
            (
                "            _, predicted = outputs.max(1)\n            total += targets.size(0)\n            correct += predicted.eq(targets).sum().item()\n    print('Test",
                "            targets = accelerator.gather_for_metrics(targets)\n            _, predicted = outputs.max(1)\n            total += targets.size(0)\n            correct += predicted.eq(targets).sum().item()\n    print('Test",
            ),
        ),
    ),
    Break(
        "trainer_class", "AM955", (("            scores, y = self.accelerator.gather_for_metrics((scores, y))\n", ""),)
    ),
    Break(
        "functions_with_device",
        "AM955",
        (("            output, target = accelerator.gather_for_metrics((output, target))\n", ""),),
    ),
    # devices
    Break(
        "gan_two_optimizers",
        "AM956",
        (
            (
                "device = accelerator.device\n",
                'device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")\n',
            ),
        ),
    ),
    Break(
        "trainer_class",
        "AM956",
        (
            ("        self.device = self.accelerator.device\n", "        self.device = torch.device('cuda:1')\n"),
            ("            scores = self.model(x)\n", "            scores = self.model(x.to(self.device))\n"),
        ),
    ),
    Break(
        "ddp_torchrun",
        "AM956",
        (
            (
                "torch.zeros(2, device=accelerator.device)",
                'torch.zeros(2, device=f"cuda:{torch.cuda.current_device()}")',
            ),
        ),
    ),
    Break(
        "loop_over_globals",
        "AM956",
        (("            guess = model(t)\n", "            t = t.to('cpu')\n            guess = model(t)\n"),),
    ),
]


@pytest.mark.parametrize("broken", BREAKS, ids=lambda b: f"{b.case}-{b.code}")
def test_a_broken_result_is_refused(broken: Break) -> None:
    folder = FIXTURES / broken.case
    before, after = (folder / "before.py").read_text(), (folder / "after.py").read_text()
    assert not {v.code for v in found(before, after)} & {broken.code}, "the right result must pass"
    for old, new in broken.edits:
        assert old in after, f"{broken.case} no longer has {old!r}"
        after = after.replace(old, new, 1)
    ast.parse(after)
    assert broken.code in {violation.code for violation in found(before, after)}
