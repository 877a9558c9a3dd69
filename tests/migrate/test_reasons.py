"""Why a loop is left: the reason is true of the script, also where other files stand beside it."""

from __future__ import annotations

from pathlib import Path

import pytest
from accel_migrate.magics import mask
from accel_migrate.pipeline import migrate
from accel_migrate.plan import FileResult, Status
from accel_migrate.settings import DEFAULTS
from accel_migrate.source import Source

TOP = """import torch
from torch import nn
from torch.utils.data import DataLoader
"""
TRAIN = """
def train():
    loader = DataLoader(rows(), batch_size=4)
    model = {model}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        loss = (model(x.cuda()) - y.cuda()).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        {inside}


train()
"""


def results(**files: str) -> dict[str, FileResult]:
    sources = [Source.from_bytes(Path(f"{name}.py"), text.encode()) for name, text in files.items()]
    return {result.path.stem: result for result in migrate(sources, DEFAULTS)}


def test_scripts_that_share_a_helper_are_trainings_of_their_own() -> None:
    script = f"{TOP}from judge import judge\n" + TRAIN.format(model="nn.Linear(2, 1).cuda()", inside="judge(model, x)")
    judge = "def judge(net, x):\n    net.eval()\n    print(net(x.cuda()).mean().item())\n    net.train()\n"
    found = results(first=script, second=script, judge=judge)
    assert [found[name].status for name in ("first", "second")] == [Status.MIGRATED, Status.MIGRATED]


def test_a_self_test_of_a_file_that_is_imported_names_no_device_of_the_training() -> None:
    script = f"{TOP}from nets import Net\n" + TRAIN.format(model="Net().cuda()", inside="pass")
    nets = "from torch import nn\n\nclass Net(nn.Linear):\n    pass\n\nif __name__ == '__main__':\n    print(Net(2, 1).cuda(1))\n"
    assert results(train=script, nets=nets)["train"].status is Status.MIGRATED
    built = nets.replace("if __name__ == '__main__':", "def build():")
    assert results(train=script, nets=built)["train"].status is Status.MIGRATED  # nothing calls it
    called = script.replace("import Net\n", "import Net, build\nbuild()\n")
    assert "may name another device" in results(train=called, nets=built)["train"].reason


UNBOUND = """class Trainer:
    def epoch(model, optimizer):
        print(model, optimizer)
"""


def test_a_function_of_a_file_that_is_given_is_not_said_to_be_missing() -> None:
    script = TOP + "import {0}\nmodel = nn.Linear(2, 1)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n{1}\n"
    given = results(train=script.format("tools", "tools.Trainer.epoch(model, optimizer)"), tools=UNBOUND)[
        "train"
    ].reason
    assert "called through its class" in given and "among those given" not in given
    missing = results(train=script.format("tools", "tools.Trainer.epoch(model, optimizer)"))["train"].reason
    assert "its file is not among those" in missing
    engine = results(train=script.format("apex", "model, optimizer = apex.amp.initialize(model, optimizer)"))["train"]
    assert "mixed precision" in engine.reason


@pytest.mark.parametrize("kind", ["staticmethod", "classmethod"])
def test_a_method_that_is_called_through_its_class_is_handed_the_accelerator(kind: str) -> None:
    first = "" if kind == "staticmethod" else "kind, "
    trainer = f"""{TOP}class Trainer:
    @{kind}
    def run({first}model, optimizer, loader, device, epochs=2):
        for x, y in loader:
            loss = (model(x.to(device)) - y.to(device)).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    @{kind}
    def keep({first}model, path, note=""):
        torch.save(model.state_dict(), path + note)
"""
    script = f"""{TOP}from tools import Trainer
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
loader = DataLoader(rows(), batch_size=4)
model = nn.Linear(2, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
Trainer.run(model, optimizer, loader, device, 3)
Trainer.keep(model, "net", ".pt")
"""
    found = results(train=script, tools=trainer)
    assert found["train"].status is Status.MIGRATED, found["train"].reason
    assert 'Trainer.keep(model, "net", accelerator, ".pt")' in found["train"].after.decode()
    assert "Trainer.run(model, optimizer, loader, accelerator, 3)" in found["train"].after.decode()
    assert f'def keep({first}model, path, accelerator, note=""):' in found["tools"].after.decode()


def test_names_what_an_optimizer_updates_that_is_not_known_as_a_model() -> None:
    script = f"{TOP}import elsewhere\n" + TRAIN.format(model="elsewhere.build()", inside="pass")
    script = script.replace("SGD(model.parameters()", "SGD(holder.policy.actor.parameters()").replace(
        "model(x", "run(x"
    )
    reason = results(train=script)["train"].reason
    assert "the optimizer updates `holder.policy.actor`" in reason and "not known as a model" in reason


def test_a_magic_of_a_notebook_is_no_name_of_the_script() -> None:
    code = f"from masks import *\n{TOP}" + TRAIN.format(model="nn.Linear(2, 1).cuda()", inside="pass")
    hidden: list[str] = []
    reason = results(train=mask(f"%matplotlib inline\n{code}", hidden))["train"].reason
    assert hidden and "`rows` comes from" in reason


@pytest.mark.parametrize(
    "grid",
    [
        "def grid(x):\n    n, k, device = *x.shape, x.device\n    return torch.arange(n, device=device)\n",
        "def grid(x):\n    n, *_, device = *x.shape, x.device\n    return torch.arange(n, device=device)\n",
        "def grid(x, layer=None):\n    return torch.arange(2, device=layer.weight.device)\n",
        "def grid(x):\n    device, n, k = x.device, *x.shape\n    return torch.arange(n, device=device)\n",
        "def grid(x):\n    return steps(torch.as_tensor(x).long())\n\n"
        "def steps(t):\n    return torch.arange(4, device=t.device) * t[:, None]\n",
    ],
)
def test_the_device_of_a_tensor_is_no_other_device(grid: str) -> None:
    nets = f"import torch\nfrom torch import nn\n\n{grid}\n"
    nets += "class Net(nn.Linear):\n    def forward(self, x):\n        return x + grid(x)\n"
    script = f"{TOP}from nets import Net\n" + TRAIN.format(model="Net(2, 1).cuda()", inside="pass")
    found = results(train=script, nets=nets)["train"]
    assert found.status is Status.MIGRATED, found.reason


def test_names_who_else_calls_what_needs_the_accelerator() -> None:
    script = f"{TOP}from tools import keep\n" + TRAIN.format(model="nn.Linear(2, 1).cuda()", inside="keep(model)")
    tools = "import torch\n\ndef keep(model):\n    torch.save(model.state_dict(), 'm.pt')\n"
    other = "from tools import keep\n\nkeep(None)\n"
    reason = results(train=script, tools=tools, other=other)["train"].reason
    assert reason == "keep() needs the Accelerator and is called by other.py as well (line 3), which makes none"


def test_names_what_is_built_where() -> None:
    script = f"{TOP}\nmodel = nn.Linear(2, 1)\n" + TRAIN.format(model="nn.Linear(2, 1).cuda()", inside="pass").replace(
        "train():", "train():\n    global model"
    )
    reason = results(train=script)["train"].reason
    assert (
        "`model` in the globals of train.py" in reason and "`optimizer` and `loader` in train() of train.py" in reason
    )


def test_what_is_set_again_is_not_said_to_be_built() -> None:
    script = TOP + TRAIN.format(model="nn.Linear(2, 1).cuda()", inside="model, optimizer = turned(model, optimizer)")
    assert results(train=script)["train"].reason == "`optimizer` is set again after the training has begun"


def test_a_test_that_steps_nothing_has_no_caller_that_is_missing() -> None:
    script = f"{TOP}\ndef test_gradients():\n    model = nn.Linear(2, 1)\n    loss = model(rows()).sum()\n    loss.backward()\n"
    assert "no optimizer is seen to step" in results(train=script)["train"].reason
    handed = script.replace("test_gradients()", "step(model, optimizer)").replace("    model = nn.Linear(2, 1)\n", "")
    assert "the caller of step()" in results(train=handed + "    optimizer.step()\n")["train"].reason


def test_an_attack_that_steps_nothing_does_not_speak_for_the_training() -> None:
    attacks = "class Attack:\n    def run(self, net, x):\n        loss = net(x).sum()\n        loss.backward()\n"
    script = (
        f"{TOP}from attacks import Attack\n\ndef train(loader, nets, optimizer, attack):\n    for x, y in loader:\n"
        "        attack.run(nets['t'], x)\n        loss = (nets['s'](x) - y).mean()\n        optimizer.zero_grad()\n"
        "        loss.backward()\n        optimizer.step()\n\ndef main():\n    net = build()\n"
        "    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n"
        "    train(DataLoader(rows()), {'s': net, 't': build()}, optimizer, Attack())\n\nmain()\n"
    )
    assert "no optimizer steps" not in results(attacks=attacks, train=script)["train"].reason


STEPPED = f"""{TOP}class Trainer:
    def __init__(self, device):
        self.loader = DataLoader(rows(), batch_size=4)
        self.model = nn.Linear(2, 1).to(device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.device = device

    def train(self):
        for x, y in self.loader:
            loss = (self.model(x.to(self.device)) - y.to(self.device)).pow(2).mean()
            loss.backward()
            self.update()

    def update(self):
        {{update}}
        self.optimizer.zero_grad()


Trainer(torch.device("cuda" if torch.cuda.is_available() else "cpu")).train()
"""


def test_an_optimizer_that_steps_in_a_method_beside_is_seen() -> None:
    found = results(train=STEPPED.format(update="self.optimizer.step()"))["train"]
    assert found.status is Status.MIGRATED, found.reason
    assert "no optimizer is seen to step" in results(train=STEPPED.format(update="pass"))["train"].reason


SCHEDULED = """class Scheduled:
    def __init__(self, inner):
        self.inner = inner
    def step_and_update(self):
        self.inner.step()
    def zero_grad(self):
        self.inner.zero_grad()
"""


@pytest.mark.parametrize("named", [True, False])
def test_an_object_of_another_file_that_steps_is_made_of_the_prepared_optimizer(named: bool) -> None:
    script = f"""{TOP}from scheduled import Scheduled
def epoch(model, loader, stepper, device):
    for x, y in loader:
        stepper.zero_grad()
        loss = (model(x.to(device)) - y.to(device)).pow(2).mean()
        loss.backward()
        stepper.step_and_update()
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
loader = DataLoader(rows(), batch_size=4)
model = nn.Linear(2, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
stepper = Scheduled(optimizer)
epoch(model, loader, stepper, device)
"""
    if not named:
        script = script.replace("optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n", "")
        script = script.replace("(optimizer)", "(torch.optim.SGD(model.parameters(), lr=0.1))")
    found = results(train=script, scheduled=SCHEDULED)["train"]
    if named:
        before, after = found.after.decode().split("accelerator.prepare(")
        assert "Scheduled(" in after and "Scheduled(" not in before
    else:
        assert "`self.inner` in the class Scheduled" in found.reason


KEEP = "import torch\n\ndef keep(model):\n    torch.save(model.state_dict(), 'm.pt')\n"
KEEPS = f"{TOP}from tools import keep\n" + TRAIN.format(model="nn.Linear(2, 1).cuda()", inside="keep(model)")


def test_scripts_that_share_a_helper_each_hand_it_their_own_accelerator() -> None:
    found = results(first=KEEPS, second=KEEPS, third=KEEPS, tools=KEEP)
    assert {result.status for result in found.values()} == {Status.MIGRATED}, found["first"].reason
    assert "def keep(model, accelerator):" in found["tools"].after.decode()
    assert all("keep(model, accelerator)" in found[name].after.decode() for name in ("first", "second", "third"))


def test_a_helper_that_a_script_calls_which_is_left_costs_those_that_share_it() -> None:
    noise = "optimizer.step(); model.weight.data.add_(torch.randn(1, 2).cuda())"
    left = KEEPS.replace("optimizer.step()", noise)
    found = results(first=KEEPS, second=left, tools=KEEP)
    assert {result.status for result in found.values()} == {Status.UNCHANGED}
    assert found["first"].reason.startswith(
        "it shares changes with a loop that is left in second.py: `model.weight.data"
    )
    assert found["second"].reason.startswith("`model.weight.data.add_(torch.randn(1, 2).to(accelerator.devi` would put")


def test_a_helper_that_one_script_gives_a_device_and_another_none_takes_the_accelerator_from_both() -> None:
    tools = KEEP.replace("keep(model)", "keep(model, device=None)").replace(".state_dict()", ".to(device).state_dict()")
    script = KEEPS.replace("keep(model)", "keep(model, device=torch.device('cuda'))")
    found = results(first=script, second=KEEPS, tools=tools)
    assert "def keep(model, accelerator):" in found["tools"].after.decode()
    assert "keep(model, accelerator=accelerator)" in found["first"].after.decode()
    assert "keep(model, accelerator)" in found["second"].after.decode()


@pytest.mark.parametrize(
    ("early", "what"), [("judge(model, loader)", "an evaluation (line 13)"), ("train(model, loader)", "the training")]
)
def test_names_what_has_begun_before_all_is_built(early: str, what: str) -> None:
    script = f"""{TOP}import sys
def judge(model, loader):
    for x, y in loader:
        print(model(x.cuda()))
def train(model, loader, optimizer=None):
    for x, y in loader:
        model(x.cuda()).mean().backward()
        optimizer.step()
loader = DataLoader(rows(), batch_size=4)
if len(sys.argv) > 1:
    {early}
model = nn.Linear(2, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
train(model, loader, optimizer)
"""
    assert f"`model` is built after {what} has begun" in results(train=script)["train"].reason


def test_names_a_file_that_an_import_does_not_lead_to() -> None:
    script = TOP + "from tools import run\nmodel = nn.Linear(2, 1)\n"
    script += "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\nrun(model, optimizer)\n"
    files = {"scripts/main.py": script, "more/tools.py": "def run(model, optimizer):\n    print(model, optimizer)\n"}
    found = migrate([Source.from_bytes(Path(name), text.encode()) for name, text in files.items()], DEFAULTS)
    assert "does not lead to more/tools.py from here, as where sys.path is changed" in found[0].reason


def test_a_device_that_a_trainer_of_another_file_is_told_by_its_name() -> None:
    trainer = """class Trainer:
    def __init__(self, model, optimizer, loader, device):
        self.model = model.to(device)
        self.optimizer = optimizer
        self.loader = loader
        self.device = device
    def fit(self):
        for x, y in self.loader:
            self.optimizer.zero_grad()
            loss = (self.model(x.to(self.device)) - y.to(self.device)).pow(2).mean()
            loss.backward()
            self.optimizer.step()
"""
    script = f"""{TOP}import argparse
from trainer import Trainer
parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda")
args = parser.parse_args()
model = nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
Trainer(model, optimizer, DataLoader(rows(), batch_size=4), device=args.device).fit()
"""
    found = results(train=script, trainer=f"import torch\n{trainer}")["trainer"]
    assert "Accelerator(device=device)" in found.after.decode()


@pytest.mark.parametrize(("flag", "told"), [("optimizer is not None", True), ("model.training", False)])
def test_a_name_for_whether_an_optimizer_is_given_tells_training_from_evaluation(flag: str, told: bool) -> None:
    script = f"""{TOP}
def epoch(model, loader, optimizer=None):
    update = {flag}
    total = 0.0
    for x, y in loader:
        loss = (model(x.cuda()) - y.cuda()).pow(2).mean()
        if update:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        total += loss.item()
    return total
loader, test_loader = DataLoader(rows(), batch_size=4), DataLoader(rows(), batch_size=4)
model = nn.Linear(2, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
epoch(model, loader, optimizer)
print(epoch(model, test_loader))
"""
    found = results(train=script)["train"]
    assert (found.status is Status.MIGRATED) == told, found.reason
    assert ("a condition that its calls do not show" in found.reason) != told


def test_of_two_functions_of_one_name_neither_lacks_a_caller() -> None:
    step = "def step(model, x):\n    loss = model(x).sum()\n    loss.backward()\n    model.w -= model.w.grad\nstep(model, x)\n"
    assert "no optimizer is seen to step" in results(train=TOP + "model = build()\n" + step + step)["train"].reason


def test_what_is_set_beside_the_loop_in_one_branch_is_not_said_to_come_after_it() -> None:
    script = f"""{TOP}import sys
loader = DataLoader(rows(), batch_size=4)
model = nn.Linear(2, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
if len(sys.argv) > 1:
    if sys.argv[1] == "again":
        optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    for x, y in loader:
        loss = model(x.cuda()).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
else:
    for x, y in loader:
        print(model(x.cuda()))
for x, y in loader:
    print(model(x.cuda()))
"""
    reason = results(train=script)["train"].reason
    assert reason.startswith("`optimizer` is set again inside of what begins in line"), reason


def test_a_lambda_on_the_way_of_a_loss_is_visible() -> None:
    script = f"""{TOP}class Trainer:
    def __init__(self, net, ids):
        self.net = net.cuda()
        self.ids = ids
        self.optimizer = self.build("sgd", dict(lr=0.1))
    def build(self, kind, told):
        return dict(sgd=torch.optim.SGD)[kind](self.net.parameters(), **told)
    def run(self, loader):
        for x, y in loader:
            loss = nn.parallel.data_parallel(self.net, x.cuda(), device_ids=self.ids).mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
def main():
    numbers = lambda text: tuple(map(int, text.split(",")))
    Trainer(nn.Linear(2, 1), numbers("0,1")).run(DataLoader(rows(), batch_size=4))
main()
"""
    assert "would spread a prepared model over all GPUs" in results(train=script)["train"].reason


def test_a_file_of_a_package_that_is_missing_is_not_said_to_be_called_through_its_class() -> None:
    script = f"{TOP}from kit.trainer import fit\nmodel = nn.Linear(2, 1)\n"
    script += "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\nfit(model, optimizer)\n"
    files = {"train.py": script, "kit/__init__.py": "import torch\n", "kit/nets.py": "import torch\n"}
    found = migrate([Source.from_bytes(Path(name), text.encode()) for name, text in files.items()], DEFAULTS)
    assert "its file is not among those that were given and could be read" in found[0].reason


def in_folders(files: dict[str, str]) -> dict[str, FileResult]:
    sources = [Source.from_bytes(Path("/project", name), text.encode()) for name, text in files.items()]
    return {result.path.relative_to("/project").as_posix(): result for result in migrate(sources, DEFAULTS)}


SCRIPT = f"""{TOP}from shared import banner
from lib.data import batches
banner()
model = nn.Linear(2, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = batches()
for x, y in loader:
    loss = (model(x.cuda()) - y.cuda()).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_an_import_means_the_file_beside_the_script_and_not_its_namesake_elsewhere() -> None:
    loader = f"{TOP}def batches():\n    return DataLoader(list(range(8)), batch_size=4)\n"
    stream = "import torch\n\ndef batches():\n    yield torch.ones(4, 2), torch.ones(4, 1)\n"
    shared = "def banner():\n    print('begins')\n"
    found = in_folders({
        "shared.py": shared, "a/train.py": SCRIPT, "a/lib/data.py": loader, "b/train.py": SCRIPT, "b/lib/data.py": stream,
    })  # fmt: skip
    assert found["a/train.py"].status is Status.MIGRATED, found["a/train.py"].reason
    assert "not known to be a DataLoader" in found["b/train.py"].reason


def test_a_package_in_src_is_given() -> None:
    loader = f"{TOP}def batches():\n    return DataLoader(list(range(8)), batch_size=4, shuffle=True)\n"
    script = SCRIPT.replace("from shared import banner\n", "").replace("banner()\n", "")
    done = in_folders({"scripts/train.py": script, "src/lib/data.py": loader})["scripts/train.py"]
    assert done.status is Status.MIGRATED
    assert "AM812" not in {note.code for note in done.notes}


def test_a_model_that_a_function_is_given_is_not_built_where_its_mode_or_device_is_set() -> None:
    script = f"""{TOP}
def fit(net, rows):
    loader = DataLoader(rows, batch_size=4)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for epoch in range(2):
        {{again}}
        for x, y in loader:
            loss = (net(x.cuda()) - y.cuda()).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


fit(nn.Linear(2, 1), [])
"""
    for again in (
        "net = net.cuda()",
        "net = net.cuda().train()",
        "net = net.cuda() if torch.cuda.is_available() else net",
    ):
        assert results(train=script.format(again=again))["train"].status is Status.MIGRATED, again
    for again in ("net = nn.Linear(2, 1).cuda()", "net = net.train() if epoch else nn.Linear(2, 1).cuda()"):
        assert "built after the training has begun" in results(train=script.format(again=again))["train"].reason, again


TRAINER = f"""{TOP}
class {{name}}:
    def __init__(self, rows):
        self.loader = DataLoader(rows, batch_size=4)
        self.model = nn.Linear(2, 1).cuda()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def fit(self):
        for x, y in self.loader:
            {{cast}}
            loss = (self.model(x.cuda()) - y.cuda()).pow(2).mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
"""


def test_what_one_class_does_with_its_batches_is_not_said_of_another() -> None:
    main = "from first import First\nfrom second import Second\nFirst([]).fit()\nSecond([]).fit()\n"
    first = TRAINER.format(name="First", cast="pass")
    second = TRAINER.format(name="Second", cast="x = x.type(torch.FloatTensor); self.model(x)")
    found = results(main=main, first=first, second=second)
    assert found["first"].status is Status.MIGRATED, found["first"].reason
    assert found["second"].status is Status.UNCHANGED


def test_only_what_the_changes_wrote_is_called_a_bug() -> None:
    script = TOP + TRAIN.format(model="nn.Linear(2, 1).to(settings['device'])", inside="pass")
    (note,) = [note for note in results(train=script)["train"].notes if note.code == "AM901"]
    assert "AM956" in note.detail and "bug" not in note.detail


def test_a_reason_in_another_file_is_told_at_the_loop_and_names_its_place() -> None:
    nets = "from torch import nn\n\n\ndef build():\n    return nn.Linear(2, 1).cuda(1)\n"
    script = f"{TOP}from nets import build\nbuild()\n" + TRAIN.format(model="nn.Linear(2, 1).cuda()", inside="pass")
    found = results(train=script, nets=nets)
    assert "(nets.py:5)" in found["train"].reason and found["nets"].reason == "no training loop"


def test_what_an_imported_file_does_as_a_script_of_its_own_is_not_said_of_the_training() -> None:
    script = f"{TOP}from nets import Net\n" + TRAIN.format(model="Net().cuda()", inside="pass")
    nets = "from profiler import profile\nfrom torch import nn\n\n\nclass Net(nn.Linear):\n    pass\n\n\n"
    for guard, told in (("if __name__ == '__main__':\n    ", False), ("", True)):
        notes = results(train=script, nets=f"{nets}{guard}profile(Net(2, 1))\n")["train"].notes
        assert any("profile()" in note.message for note in notes if note.code == "AM812") is told


def test_a_function_that_is_imported_twice_from_one_file_is_that_function() -> None:
    body = "def fit(model, loader, optimizer):\n    for x, y in loader:\n        loss = (model(x) - y).pow(2).mean()\n"
    body += "        optimizer.zero_grad()\n        loss.backward()\n        optimizer.step()\n"
    script = TOP + "from helper import fit\nloader = DataLoader(rows(), batch_size=4)\nmodel = nn.Linear(4, 1)\n"
    script += "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n{again}\nfit(model, loader, optimizer)\n"
    twice = results(main=script.format(again="from helper import fit"), helper=body)
    assert {result.status for result in twice.values()} == {Status.MIGRATED}
    other = results(main=script.format(again="from other import fit"), helper=body, other=body)
    assert {result.status for result in other.values()} == {Status.UNCHANGED}


def test_a_model_of_one_branch_is_built_under_a_condition_however_often_the_branch_binds_it() -> None:
    built = (
        "if noisy:\n        extra = nn.Linear(2, 2)\n        if fast:\n            extra = extra.cuda()\n    model = "
    )
    script = f"{TOP}noisy, fast = input(), input()\n" + TRAIN.format(model="nn.Linear(2, 1).cuda()", inside="pass")
    script = script.replace("model = ", built).replace("model(x.cuda())", "model(extra(x.cuda()))")
    script = script.replace("model.parameters()", "[*model.parameters(), *extra.parameters()]")
    assert results(train=script)["train"].reason == "`extra` is built only under a condition"


BACK = f"""{TOP}
def once(net, cells, opt):
    for x, y in cells:
        loss = (net(x.cuda()) - y.cuda()).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    {{inside}}
    return net, opt


def fit(net, cells, opt):
    for _ in range(2):
        net, opt = once(net, cells, opt)


cells = DataLoader(rows(), batch_size=4)
net = nn.Linear(2, 1).cuda()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
fit(net, cells, opt)
"""


def test_a_function_that_gives_back_what_it_is_handed_builds_nothing() -> None:
    for inside in ("pass", "net = net.eval()"):
        assert results(train=BACK.format(inside=inside))["train"].status is Status.MIGRATED
    at_home = BACK.format(inside="pass").replace(
        "fit(net, cells, opt)\n", "for _ in range(2):\n    net, opt = once(net, cells, opt)\n"
    )
    assert results(train=at_home)["train"].status is Status.MIGRATED


def test_a_function_that_gives_back_another_object_builds_it() -> None:
    for inside in (
        "net = nn.Linear(2, 1).cuda()",
        "net = Wrapper(net)",
        "opt = torch.optim.SGD(net.parameters(), lr=0.2)",
    ):
        assert results(train=BACK.format(inside=inside))["train"].status is Status.UNCHANGED, inside
    turned = BACK.format(inside="pass").replace("return net, opt", "return opt, net")
    assert results(train=turned)["train"].status is Status.UNCHANGED


SHARED = f"""{TOP}
def once(net, cells, opt, device):
    for x, y in cells:
        loss = (net(x.to(device)) - y.to(device)).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()


def check(net, cells, device):
    return sum((net(x.to(device)) - y.to(device)).pow(2).sum().item() for x, y in cells)


def fit():
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    net = nn.Linear(2, 1).to(device)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    cells = DataLoader(rows(), batch_size=4)
    once(net, cells, opt, device)
    print(check(net, DataLoader(rows(), batch_size=4), device))


if __name__ == "__main__":
    fit()
"""
CHECK = """import torch
from fit import check, nn, rows, DataLoader

device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
print(check(nn.Linear(2, 1).to(device), DataLoader(rows(), batch_size=4), device))
"""


def test_the_device_of_a_script_that_runs_apart_is_not_that_of_the_training() -> None:
    inside = CHECK.replace("print(", "def main():\n    print(") + "\nmain()\n"
    top = CHECK.partition("device =")[0]
    guarded = top + "if __name__ == '__main__':\n    device = 'cuda:0'\n    check(None, [], device)\n"
    for name, text in (("check_all", CHECK), ("zest", CHECK), ("check_all", inside), ("check_all", guarded)):
        found = results(**{"fit": SHARED, name: text})
        assert found["fit"].status is Status.MIGRATED, found["fit"].reason
        assert found[name].status is Status.UNCHANGED


def test_the_device_of_a_script_that_runs_the_training_is_that_of_the_training() -> None:
    starts = (
        "import torch\nimport fit\n\nif __name__ == '__main__':\n    fit.fit()\n    print(torch.ones(2).to('cuda:1'))\n"
    )
    found = results(fit=SHARED, start=starts)
    assert found["fit"].status is Status.UNCHANGED
    assert "'cuda:1'" in found["fit"].reason


def test_a_function_that_is_handed_on_as_a_value_is_not_said_to_be_called_by_nobody() -> None:
    step = """
def made(model, optimizer):
    def step(x, y):
        loss = (model(x) - y).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return step


def main():
    model = nn.Linear(2, 1).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = made(model, optimizer)
    for x, y in DataLoader(rows(), batch_size=4):
        run(x.cuda(), y.cuda())


main()
"""
    found = results(train=TOP + step)["train"]
    assert "step() needs the Accelerator and is handed on as a value (train.py:11)" in found.reason


def test_a_function_that_nobody_calls_is_not_handed_on_by_a_method_of_its_name() -> None:
    loop = """
def {name}(model, optimizer, loader):
    model.train()
    for x, y in loader:
        loss = (model(x.cuda()) - y.cuda()).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
    start = """
model = nn.Linear(2, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(rows(), batch_size=4)
fit(model, optimizer, loader)
"""
    found = results(script=TOP + loop.format(name="train") + loop.format(name="fit") + start)["script"]
    reasons = [note.message for note in found.notes if note.code == "AM901"]
    assert found.status is Status.MIGRATED and len(reasons) == 1
    assert "handed on as a value" not in reasons[0]


def test_the_device_of_a_buffer_is_no_other_device() -> None:
    nets = f"""{TOP}
class Net(nn.Linear):
    def __init__(self):
        super().__init__(2, 1)
        keep = lambda name, value: self.register_buffer(name, value)
        keep("rates", torch.ones(2))

    def forward(self, x):
        device = self.rates.device
        return super().forward(x) + torch.ones(1, device=device)
"""
    script = f"{TOP}from nets import Net\n" + TRAIN.format(model="Net().cuda()", inside="pass")
    assert results(train=script, nets=nets)["train"].status is Status.MIGRATED
    other = nets.replace("keep = ", "self.rates = settings()\n        keep = ")
    assert results(train=script, nets=other)["train"].status is Status.UNCHANGED


def test_a_move_to_where_a_sum_of_tensors_is_names_no_device() -> None:
    inside = "z = x + y\n        print(torch.ones(1).to(z))"
    script = TOP + TRAIN.format(model="nn.Linear(2, 1).cuda()", inside=inside)
    assert results(train=script)["train"].status is Status.MIGRATED


FITTED = (
    TOP
    + """
def build():
    model = nn.Linear(4, 1)
    return DataLoader(rows(), batch_size=4), model, torch.optim.SGD(model.parameters(), lr=0.1)

def fit(loader, model, optimizer):
    for x, y in loader:
        loss = (model(x.cuda()) - y.cuda()).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
)


def test_a_script_without_a_word_of_torch_is_migrated_with_what_it_runs() -> None:
    main = "from fitted import build, fit\nloader, model, optimizer = build()\nfit(loader, model, optimizer)\n"
    found = results(main=main, fitted=FITTED, other="from fitted import build\nprint(len(build()))\n")
    assert b"accelerator.prepare(model, optimizer, loader)" in found["main"].after
    assert b"accelerator.backward(loss)" in found["fitted"].after
    assert found["other"].reason == "does not use torch"


def test_a_base_class_without_a_word_of_torch_keeps_no_training_from_its_file() -> None:
    base = "class Base:\n    def fit(self):\n        raise NotImplementedError\n"
    own = TOP + (
        "from base import Base\nclass Own(Base):\n    def __init__(self):\n        self.loader = DataLoader(rows())\n"
        "        self.model = nn.Linear(4, 1).cuda()\n"
        "        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)\n    def fit(self):\n"
        "        for x in self.loader:\n            loss = self.model(x.cuda()).mean()\n            self.optimizer.zero_grad()\n"
        "            loss.backward()\n            self.optimizer.step()\nOwn().fit()\n"
    )
    found = results(base=base, own=own)
    assert found["own"].status is Status.MIGRATED, found["own"].reason
    assert found["base"].reason == "does not use torch"
