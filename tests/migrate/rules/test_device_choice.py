"""Devices: the user's choice holds, the CPU stays the CPU, and what follows a tensor is left alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from accel_migrate.settings import DEFAULTS

from tests.migrate.rules.verbs import migrated, noted

SCRIPT = """
    import argparse, torch
    from torch import nn

    parser = argparse.ArgumentParser()
    parser.add_argument("--where", default="cuda:0")
    parser.add_argument("--gpu", type=int, default=0)
    args = parser.parse_args()
    {choice}
    loader = torch.utils.data.DataLoader(data(), batch_size=4)
    model = nn.Linear(4, 1).to({name})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        loss = (model(x.to({name})) - y.to({name})).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    {after}
    """


def script(choice: str, name: str = "place", after: str = "") -> str:
    return SCRIPT.format(choice=choice.replace("\n", "\n    "), name=name, after=after.replace("\n", "\n    "))


def test_the_option_is_handed_to_the_accelerator():
    result = migrated(script("place = torch.device(args.where)"))
    assert "accelerator = Accelerator(device=args.where)\n" in result
    assert "torch.device" not in result


def test_a_choice_of_several_lines_stays_and_is_handed_over():
    choice = 'if args.gpu < 0:\n    place = "cpu"\nelse:\n    place = f"cuda:{args.gpu}"'
    result = migrated(script(choice, after="print(torch.zeros(1, device=place))"))
    assert (
        '    place = f"cuda:{args.gpu}"\naccelerator = Accelerator(device=place)\nplace = accelerator.device\n'
        in result
    )


def test_a_note_says_what_the_choice_means_on_several_processes():
    assert "on N processes each has a GPU of its own" in noted(script("place = torch.device(args.where)"), "AM101")


def test_accelerate_is_told_of_the_cpu_alone_and_a_note_says_so():
    settings = replace(DEFAULTS, target="accelerate")
    source = script("place = torch.device(args.where)")
    assert 'Accelerator(cpu=torch.device(args.where).type == "cpu")' in migrated(source, settings)
    assert "CUDA_VISIBLE_DEVICES" in noted(source, "AM101", settings)


@pytest.mark.parametrize(
    "kept",
    [
        'host = torch.device("cpu")\nweights = loss.to(host)',
        'weights = loss.to(torch.device("cpu"))',
        'weights = loss.to("cpu")',
        'weights = loss.to(device="cpu")',
        "def add(t):\n    device = t.device\n    return t + torch.ones(1).to(device)\nweights = add(loss)",
        "weights = torch.ones(1).to(next(model.parameters()).device)",
    ],
)
def test_what_goes_to_the_cpu_or_follows_a_tensor_is_left(kept):
    result = migrated(script('place = "cuda" if torch.cuda.is_available() else "cpu"', after=kept))
    assert kept in result
