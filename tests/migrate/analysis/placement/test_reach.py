"""How the Accelerator gets to the functions that need it, and when it cannot."""

from __future__ import annotations

import pytest

from tests.migrate.analysis.reading import BUILT, STEP, refusal, training

IMPORTS, OBJECTS = BUILT.split("\n\n")
LOOP = "    for x, y in loader:\n        x, y = x.to(device), y.to(device)" + STEP
MAIN = "def main():\n" + "".join(f"    {line}\n" for line in OBJECTS.splitlines())


def handed(*texts: str) -> dict[str, str | None]:
    """Functions that are handed the Accelerator, each with the parameter whose place it takes."""
    found = training(*texts).reach.parameters
    return {function.name: parameter.replaced for function, parameter in found.items()}


def script(parameters: str, call: str, extra: str = "") -> str:
    return f"{IMPORTS}\n\ndef train({parameters}):\n{LOOP}\n{MAIN}    {call}\n{extra}\nmain()\n"


def test_takes_the_place_of_the_device() -> None:
    text = script("model, device, loader, optimizer", "train(model, device, loader, optimizer)")
    assert handed(text) == {"train": "device"}


def test_is_added_where_there_was_no_device() -> None:
    text = script("model, loader, optimizer", "train(model, loader, optimizer)").replace(
        "x.to(device), y.to(device)", "x, y"
    )
    assert handed(text) == {"train": None}


def test_is_handed_through_every_caller_on_the_way() -> None:
    text = script("model, device, loader, optimizer", "fit(model, device, loader, optimizer)")
    text = text.replace("def main", "def fit(m, d, l, o):\n    train(m, d, l, o)\n\ndef main")
    assert handed(text) == {"train": "device", "fit": "d"}


def test_globals_see_it_without_being_handed_it() -> None:
    assert handed(f"{BUILT}\ndef train():\n{LOOP}\ntrain()\n") == {}


SHOWN = "def show(model, device):\n    print(model.name, torch.ones(2).to(device){more})\n"


def test_a_device_that_is_read_on_stays_beside_a_global_accelerator() -> None:
    text = f"{BUILT}\n{SHOWN.format(more='')}\ndef train():\n{LOOP}\n    show(model, device)\ntrain()\nshow(model, device)\n"
    assert handed(text) == {}


def test_a_device_that_nobody_reads_any_more_gives_way_to_a_global_accelerator() -> None:
    text = f"{BUILT}\ndef train(model, device):\n{LOOP}\ndef run(model, device):\n    train(model, device)\nrun(model, device)\n"
    assert handed(text) == {"train": "device", "run": "device"}


def test_an_evaluation_that_only_prints_is_not_handed_it() -> None:
    whole = (
        "def test(model, device, loader):\n    for x, y in loader:\n        print(model(x.to(device)))\n        break\n"
    )
    text = script("model, device, loader, optimizer", "train(model, device, loader, optimizer)")
    text = text.replace("def main", f"{whole}\ndef main").replace(
        "main()\n", "    test(model, device, loader)\nmain()\n"
    )
    assert handed(text) == {"train": "device"}


def test_methods_find_it_on_themselves() -> None:
    text = IMPORTS + "\nclass Trainer:\n    def __init__(self):\n"
    text += (
        "".join(f"        self.{line}\n" for line in OBJECTS.splitlines())
        .replace("(device", "(self.device")
        .replace("model.p", "self.model.p")
    )
    text += "    def fit(self):\n        for x, y in self.loader:\n            loss = self.model(x).sum()\n"
    text += "            loss.backward()\n            self.optimizer.step()\n"
    found = training(text)
    assert found.reach.parameters == {}
    assert found.accelerator(found.backwards[0].module, found.backwards[0].call) == "self.accelerator"


def test_reaches_into_another_file() -> None:
    main = f"{IMPORTS}\nfrom engine import train\n\n{MAIN}    train(model, device, loader, optimizer)\n\nmain()\n"
    engine = f"# engine.py\nfrom torch import nn\n\ndef train(model, device, loader, optimizer):\n{LOOP}"
    assert handed(main, engine) == {"train": "device"}


@pytest.mark.parametrize(
    ("call", "extra", "why"),
    [
        ("run(train, model, device, loader, optimizer)", "def run(f, *a):\n    f(*a)\n", ""),
        ("train(*[model, device, loader, optimizer])", "", ""),
        ("train(model, device, loader, optimizer)", "hooks = [train]\n", "handed on as a value"),
        ("pass", "", ""),
    ],
)
def test_is_left_where_the_calls_are_not_all_in_sight(call: str, extra: str, why: str) -> None:
    assert why in refusal(script("model, device, loader, optimizer", call, extra))


def test_is_left_where_the_name_is_taken() -> None:
    text = script("model, device, loader, optimizer", "train(model, device, loader, optimizer)")
    assert "accelerator" in refusal("accelerator = 'gas'\n" + text)


def test_functions_that_read_what_the_main_guard_builds_read_it_too() -> None:
    built = "".join(f"    {line}\n" for line in OBJECTS.splitlines())
    guard = f"if __name__ == '__main__':\n{built}"
    assert handed(f"{IMPORTS}\n\ndef train():\n{LOOP}\n{guard}    train()\n") == {}
    passed = "train(model, device, loader, optimizer)"
    text = f"{IMPORTS}\n\ndef train(model, device, loader, optimizer):\n{LOOP}\n{guard}    {passed}\n"
    assert handed(text) == {"train": "device"}


def test_a_helper_that_nobody_calls_needs_no_accelerator() -> None:
    idle = "\ndef plot(x):\n    return x.cuda()\n"
    assert handed(script("model, loader, optimizer, device", "train(model, loader, optimizer, device)", idle)) == {
        "train": "device"
    }


def test_a_helper_of_a_name_that_objects_have_too_needs_no_accelerator() -> None:
    idle = "\ndef train_again(x):\n    return x.cuda()\n\ndef show(book):\n    return book.train_again(1)\n"
    assert handed(script("model, loader, optimizer, device", "train(model, loader, optimizer, device)", idle)) == {
        "train": "device"
    }


@pytest.mark.parametrize("use", ["run_later(plot)", "callbacks = {'plot': plot}", "later.plot(1)"])
def test_a_helper_that_somebody_may_call_needs_it(use: str) -> None:
    idle = f"\ndef plot(x):\n    return x.cuda()\n{use}\n"
    assert "plot()" in refusal(
        script("model, loader, optimizer, device", "train(model, loader, optimizer, device)", idle)
    )


TRAINER = """
import torch
from torch import nn
from torch.utils.data import DataLoader

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

class Trainer:
    def __init__(self):
        self.model = nn.Linear(4, 2).to(device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.loader = DataLoader(data)

    def fit(self):
        for x, y in self.loader:
            loss = (self.model(x.to(device)) - y.to(device)).sum()
            loss.backward()
            self.optimizer.step()

    def predict(self, x):
        return self.model({sample})

trainer = Trainer()
trainer.fit()
"""


@pytest.mark.parametrize("sample", ["torch.tensor(x).to(device)", "torch.tensor(x, device=device)", "x, device"])
def test_a_global_device_that_other_methods_read_stays_global(sample: str) -> None:
    found = training(TRAINER.replace("{sample}", sample))
    assert found.creation.parent is None and found.reach.by_class is None
    assert found.needs_device


def test_a_global_device_that_only_the_trainer_moved_by_goes() -> None:
    found = training(TRAINER.replace("{sample}", "x"))
    assert found.reach.by_class is not None and not found.needs_device


def test_says_where_another_script_calls_what_needs_it() -> None:
    text = script("model, device, loader, optimizer", "train(model, device, loader, optimizer)").replace(
        "\nmain()\n", "\nif __name__ == '__main__':\n    main()\n"
    )
    other = "# seeds.py\nfrom train import train\ndef start():\n    train(1, 2, 3, 4)\nstart()\n"
    assert refusal(text, other).startswith(
        "train() needs the Accelerator and is called in start() of seeds.py (line 4), where there is none: it is made in "
        "main() of train.py"
    )
    assert "is called outside of all functions of seeds.py (line 3)" in refusal(
        text, "# seeds.py\nfrom train import train\ntrain(1, 2, 3, 4)\n"
    )
