"""Scripts made of habits: one training, in four forms, with what each habit does in the place of the plain code or beside it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from textwrap import indent

HABITS: dict[str, dict[str, str]] = tomllib.loads(Path(__file__).with_name("habits.toml").read_text())
FORMS = ("flat", "main", "class", "functions")
_NAMES = {"model": "model", "opt": "optimizer", "loader": "train_loader", "crit": "criterion", "dev": "device"}
# What a script has where no habit takes its place; all other slots are empty.
_PLAIN = {
    "dev": '$dev = torch.device("cuda" if torch.cuda.is_available() else "cpu")',
    "seed": "import random\nrandom.seed(0)\ntorch.manual_seed(0)\nnp.random.seed(0)",
    "make": "def make_model():\n    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))",
    "data2": "",
    "crit": "$crit = nn.CrossEntropyLoss()",
    "optim": "$opt = torch.optim.SGD($model.parameters(), lr=0.1)",
    "loop": "for i, (x, y) in enumerate($loader):",
    "move": "x, y = x.to($dev), y.to($dev)",
    "forward": "out = $model(x)",
    "losscall": "$crit(out, y)",
    "backward": "loss.backward()",
    "stepif": "",
    "step": "",
}
_DATA = """
$s_train_set = make_data(48)
$s_val_set = make_data(20)
$s_val_x = $s_val_set.tensors[0]
$loader = DataLoader($s_train_set, batch_size=8, shuffle=True)
$s_val_loader = DataLoader($s_val_set, batch_size=8)
"""
_MAKE_DATA = """
def make_data(n):
    data = torch.randn(n, 8)
    return TensorDataset(data, (data.sum(1) > 0).long())
"""


def script(habits: list[str], form: str) -> str | None:
    """The text of a script with some habits; None where two of them want the same place."""
    slots: dict[str, list[str]] = {}
    for name in habits:
        for slot, text in HABITS[name].items():
            slots.setdefault(slot, []).append(text.strip("\n"))
    if any(len(texts) > 1 for slot, texts in slots.items() if slot in _PLAIN):
        return None
    return _Form({slot: "\n".join(texts) for slot, texts in slots.items()}).text(form)


class _Form:
    def __init__(self, slots: dict[str, str]) -> None:
        self.slots = {**_PLAIN, **slots}

    def of(self, *names: str) -> str:
        return _lines(*[self.slots.get(name, "") for name in names])

    def text(self, form: str) -> str:
        head = _lines("import numpy as np\nimport torch", self.of("imports"), "from torch import nn")
        head = _lines(head, "from torch.utils.data import DataLoader, TensorDataset")
        functions = _lines(self.of("make"), _MAKE_DATA, self.of("defs"))
        model = "$model = make_model().to($dev)"
        ready = _lines(self.of("seed"), _DATA, self.of("data2"), model, self.of("model", "optim", "crit", "setup"))
        epochs = self._epochs(self._loop())
        if form == "flat":
            return _spelled(_lines(head, self.of("dev"), functions, ready, epochs, self.of("finish")))
        if form == "main":
            body = _lines(self.of("dev"), ready, epochs, self.of("finish"))
            return _spelled(_lines(head, functions, "def main():", _in(body), _STARTED.format("main()")))
        if form == "class":
            made, fit = _lines(self.of("dev"), ready), _lines(epochs, self.of("finish"))
            methods = _lines("def __init__(self):", _in(made), "def fit(self):", _in(fit))
            trainer = _spelled(_lines("class Trainer:", _in(methods)), "self.")
            return _spelled(_lines(head, functions)) + trainer + _STARTED.format("Trainer().fit()") + "\n"
        kept = sorted(set(re.findall(r"\$s_(\w+)", self._loop())))
        shared = f"global {', '.join(kept)}" if kept else ""
        train = _lines(
            "def train($model, $loader, $opt, $crit, $dev, epoch):", _in(_lines(shared, self._loop(), "return loss"))
        )
        epochs = self._epochs("loss = train($model, $loader, $opt, $crit, $dev, epoch)")
        return _spelled(_lines(head, self.of("dev"), functions, train, ready, epochs, self.of("finish")))

    def _epochs(self, one: str) -> str:
        return _lines("for epoch in range(3):", _in(_lines(self.of("epoch"), one, self.of("end"))))

    def _loop(self) -> str:
        step = self.of("step")
        if not step and self.of("stepif"):
            update = _lines(self.of("afterb"), "$opt.step()\n$opt.zero_grad()")
            step = _lines(self.of("backward"), f"if {self.of('stepif')}:", _in(update))
        elif not step:
            step = _lines("$opt.zero_grad()", self.of("backward", "afterb"), "$opt.step()")
        loss = f"loss = {self.of('losscall')}"
        return _lines(
            self.of("loop"),
            _in(_lines(self.of("before", "move", "batch", "forward"), loss, self.of("loss"), step, self.of("after"))),
        )


_STARTED = 'if __name__ == "__main__":\n    {}'


def _lines(*parts: str) -> str:
    return "\n".join(part.strip("\n") for part in parts if part)


def _in(text: str) -> str:
    return indent(text, "    ")


def _spelled(text: str, owner: str = "") -> str:
    """The text with the script's own names."""
    text = re.sub(r"\$s_(\w+)", rf"{owner}\1", text)
    for name, spelled in _NAMES.items():
        text = text.replace(f"${name}", owner + spelled)
    return text + "\n"
