"""Scripts made of habits: one training, in nine forms, with what each habit does in the place of the plain code or beside it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from textwrap import indent

HABITS: dict[str, dict[str, str]] = tomllib.loads(Path(__file__).with_name("habits.toml").read_text())
FORMS = (
    *("flat", "main", "class", "functions"),
    *("engine_file", "trainer_file", "base_file", "trainer_kept_file", "returned_file"),
)
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


def script(habits: list[str], form: str) -> dict[str, str] | None:
    """The files of a training with some habits, train.py among them; None where two of them want the same place."""
    slots: dict[str, list[str]] = {}
    for name in habits:
        for slot, text in HABITS[name].items():
            slots.setdefault(slot, []).append(text.strip("\n"))
    if any(len(texts) > 1 for slot, texts in slots.items() if slot in _PLAIN):
        return None
    made = _Form({slot: "\n".join(texts) for slot, texts in slots.items()})
    return made.files(form) if form.endswith("_file") else {"train.py": made.text(form)}


class _Form:
    def __init__(self, slots: dict[str, str]) -> None:
        self.slots = {**_PLAIN, **slots}

    def of(self, *names: str) -> str:
        return _lines(*[self.slots.get(name, "") for name in names])

    @property
    def head(self) -> str:
        head = _lines("import numpy as np\nimport torch", self.of("imports"), "from torch import nn")
        return _lines(head, "from torch.utils.data import DataLoader, TensorDataset")

    @property
    def functions(self) -> str:
        return _lines(self.of("make"), _MAKE_DATA, self.of("defs"))

    def files(self, form: str) -> dict[str, str]:
        """A script that builds everything, and another file that trains with it."""
        named = ", ".join(re.findall(r"^(?:def|class) (\w+)", self.functions, re.M))
        head = _lines(self.head, f"from helpers import {named}")
        built = _lines(self.of("seed"), _DATA, self.of("data2"), "$model = make_model()")
        ready = _lines(built, self.of("model", "optim", "crit"))
        found = {"helpers.py": _spelled(_lines(self.head, self.functions))}
        if form == "engine_file":
            kept = sorted(set(re.findall(r"\$s_(\w+)", self._loop())))
            handed = ", ".join(["$model", "$loader", "$opt", "$crit", "$dev", "epoch", *kept])
            body = _in(_lines(self._loop(), "return loss"))
            found["engine.py"] = _spelled(_lines(head, f"def train_one_epoch({handed}):", body))
            one = f"loss = train_one_epoch({handed})"
            body = _lines(self.of("dev"), ready, "$model = $model.to($dev)", self.of("setup"), self._epochs(one))
            body = _lines(body, self.of("finish"))
            head = _lines(head, "from engine import train_one_epoch")
            found["train.py"] = _spelled(_lines(head, "def main():", _in(body), _STARTED.format("main()")))
            return found
        later = _lines(self.of("setup"), self._epochs(self._loop()), self.of("finish"))
        if form == "returned_file":
            kept = sorted(set(re.findall(r"\$s_(\w+)", later)) & set(re.findall(r"\$s_(\w+)", ready)))
            handed = ", ".join(["$model", "$loader", "$opt", "$crit", "$dev", *kept])
            body = _in(_lines(self.of("setup"), self._epochs(self._loop()), "return $model"))
            found["engine.py"] = _spelled(_lines(head, f"def fit({handed}):", body))
            body = _lines(self.of("dev"), ready, "$model.to($dev)", f"trained = fit({handed})")
            last = self.of("finish").replace("$model", "trained")
            head = _lines(head, "from engine import fit")
            found["train.py"] = _spelled(
                _lines(head, "def main():", _in(_lines(body, last)), _STARTED.format("main()"))
            )
            return found
        known = set(re.findall(r"\$s_(\w+)", ready)) & set(re.findall(r"\$s_(\w+)", later))
        handed = ", ".join([*_NAMES.values(), *sorted(known)])
        if form.startswith("trainer"):
            kept = "\n".join(f"self.{name} = {name}" for name in [*_NAMES.values(), *sorted(known)])
            made = _lines(kept, self.of("setup"))
            fit = _lines(self._epochs(self._loop()), self.of("finish") if form == "trainer_file" else "")
            methods = _lines(f"def __init__(self, {handed}):", _in(made), "def fit(self):", _in(fit))
            found["trainer.py"] = _spelled(_lines(head, "class Trainer:", _in(methods)), "self.")
        else:
            base = ["model", "optimizer", "criterion", "device"]
            kept = "\n".join(f"self.{name} = {name}" for name in base) + "\nself.model.to(self.device)"
            fit = _lines(self._epochs("loss = self.run_epoch(epoch)"), self.of("finish"))
            left = "def run_epoch(self, epoch):\n    raise NotImplementedError"
            methods = _lines(f"def __init__(self, {', '.join(base)}):", _in(kept), "def fit(self):", _in(fit), left)
            found["base.py"] = _spelled(_lines(head, "class Base:", _in(methods)), "self.")
            own = "\n".join(f"self.{name} = {name}" for name in ["train_loader", *sorted(known)])
            made = _lines(f"super().__init__({', '.join(base)})", own, self.of("setup"))
            loop = _lines(self._loop(), "return loss")
            methods = _lines(f"def __init__(self, {handed}):", _in(made), "def run_epoch(self, epoch):", _in(loop))
            trainer = _spelled(_lines("class Trainer(Base):", _in(methods)), "self.")
            found["trainer.py"] = _lines(head, "from base import Base", trainer) + "\n"
        moved = "$model = $model.to($dev)" if form.startswith("trainer") else ""
        run = f"Trainer({handed}).fit()"
        if form == "trainer_kept_file":
            run = _lines(f"trainer = Trainer({handed})", "trainer.fit()", _spelled(self.of("finish"), "trainer."))
        body = _lines(self.of("dev"), ready, moved, run)
        head = _lines(head, "from trainer import Trainer")
        found["train.py"] = _spelled(_lines(head, "def main():", _in(body), _STARTED.format("main()")))
        return found

    def text(self, form: str) -> str:
        head, functions = self.head, self.functions
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
