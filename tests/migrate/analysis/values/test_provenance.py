"""Where `prepare` goes: after all that builds or changes the objects, before the first use; or nowhere."""

from __future__ import annotations

import pytest

from tests.migrate.analysis.reading import BUILT, STEP, TRAINED, prepared, refusal, training
from tests.migrate.analysis.reading import script as read_both


def after(*texts: str) -> str:
    """The statement that `prepare` comes after."""
    place = training(*texts).place
    return place.module.source.code(place.after).splitlines()[0]


@pytest.mark.parametrize(
    "late",
    [
        "model.load_state_dict(torch.load('m.pt'))",
        "optimizer.load_state_dict(state['optimizer'])",
        "if resume:\n    model.load_state_dict(torch.load('m.pt'))",
        "for p in model.parameters():\n    p.requires_grad = False",
        "model.apply(init)",
        "model = torch.compile(model)",
        "average = copy.deepcopy(model)",
        "model = nn.SyncBatchNorm.convert_sync_batchnorm(model)",
        "model[0].requires_grad_(False)",
        "optimizer.add_param_group({'params': more})",
        "scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)",
    ],
)
def test_comes_after_what_must_see_the_bare_objects(late: str) -> None:
    assert after(BUILT + "\nepochs = 3\n\n" + late + "\n" + TRAINED) == late.splitlines()[0]


@pytest.mark.parametrize(
    "harmless", ["print(model)", "steps = len(loader)", "total = sum(p.numel() for p in model.parameters())"]
)
def test_does_not_wait_for_what_only_looks(harmless: str) -> None:
    assert after(BUILT + "\n" + harmless + "\n" + TRAINED).startswith("optimizer =")


def test_lines_that_belong_together_stay_together() -> None:
    assert after(BUILT + "best = 0\n" + TRAINED) == "best = 0"


def test_objects_of_each_round_are_prepared_in_it() -> None:
    inner = "".join(f"    {line}\n" for line in (BUILT.split("\n\n")[1] + TRAINED).splitlines())
    text = BUILT.split("\n\n")[0] + "\nfor fold in folds:\n" + inner
    assert training(text).place.after.col_offset == 4


def test_a_main_that_builds_for_a_function_prepares() -> None:
    text = BUILT.split("\n\n")[0] + "\ndef train(model, loader, optimizer, device):\n" + TRAINED.replace("\n", "\n    ")
    built = "".join(f"    {line}\n" for line in BUILT.split("\n\n")[1].splitlines())
    text += "\ndef main():\n" + built + "    train(model, loader, optimizer, device)\nmain()\n"
    found = training(text)
    assert found.home.node.name == "main"  # type: ignore[attr-defined]
    assert [built.text for built in found.prepared] == ["model", "optimizer", "loader"]


TRAINER = """
import torch
from torch import nn
from torch.utils.data import DataLoader

class Trainer:
    def __init__(self, model):
        self.model = model
        self.build()

    def build(self):
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.loader = DataLoader(data)

    def fit(self):
        for x, y in self.loader:
            loss = self.model(x).sum()
            loss.backward()
            self.optimizer.step()

Trainer(nn.Linear(1, 1)).fit()
"""


def test_a_trainer_prepares_after_the_methods_that_set_it_up() -> None:
    assert after(TRAINER) == "self.build()"
    assert prepared(TRAINER) == ["self.model", "self.optimizer", "self.loader"]


def test_a_trainer_that_is_set_up_by_nobody_knows_whom_is_left() -> None:
    text = TRAINER.replace("        self.build()\n", "        pass\n").replace("Trainer(nn", "t = Trainer(nn")
    assert "does not call" in refusal(text)


FITTED = """
import torch
from torch import nn
from torch.utils.data import DataLoader

class Solver:
    def __init__(self, model):
        self.model = model

    def fit(self, data):
        loader = DataLoader(data)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        for epoch in range(3):
            self.epoch(loader)

    def epoch(self, batches):
        for x, y in batches:
            loss = self.model(x).sum()
            loss.backward()
            self.optimizer.step()

solver = Solver(nn.Linear(1, 1))
solver.fit(data)
"""


def test_a_method_that_builds_the_rest_prepares_what_its_class_has() -> None:
    assert prepared(FITTED) == ["self.model", "self.optimizer", "loader"]
    assert after(FITTED).startswith("self.optimizer =")


def test_a_method_that_names_an_attribute_again_prepares_it_by_that_name() -> None:
    local = FITTED.replace("        loader =", "        model = self.model\n        loader =")
    local = local.replace("self.epoch(loader)", "self.epoch(loader, model)").replace(
        "(self, batches", "(self, batches, model"
    )
    assert prepared(local.replace("self.model(x)", "model(x)")) == ["model", "self.optimizer", "loader"]


SET_UP = TRAINER.replace("        self.build()\n", "        pass\n").replace(
    "    def fit(self):", "    def fit(self):\n        step = 0"
)
SET_UP = SET_UP.replace("Trainer(nn.Linear(1, 1)).fit()", "t = Trainer(nn.Linear(1, 1))\nt.build()\nt.fit()")


def test_a_trainer_that_is_set_up_from_outside_prepares_where_it_trains() -> None:
    assert prepared(SET_UP) == ["self.model", "self.optimizer", "self.loader"]
    assert after(SET_UP) == "step = 0"


def test_a_method_that_a_loop_calls_again_and_again_does_not_prepare() -> None:
    assert "does not call" in refusal(SET_UP.replace("t.fit()", "for epoch in range(3):\n    t.fit()"))


def test_a_method_does_not_prepare_what_its_training_builds_again() -> None:
    text = SET_UP.replace("        for x, y in", "        self.build()\n        for x, y in")
    assert after(text) == "self.build()"
    assert "does not call" in refusal(
        text.replace("        self.build()\n", "").replace("loss =", "self.build(); loss =")
    )


def test_a_loader_that_a_method_names_again_is_followed_to_who_built_it() -> None:
    text = TRAINER.replace("(self, model)", "(self, model, loader, optimizer)").replace("        self.build()\n", "")
    text = text.replace(
        "self.model = model", "self.model = model\n        self.loader = loader\n        self.optimizer = optimizer"
    )
    text = text.replace("    def build(self):\n", "").replace(
        "        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)\n        self.loader = DataLoader(data)\n",
        "",
    )
    text = text.replace("        for x, y in self.loader", "        batches = self.loader\n        for x, y in batches")
    built = BUILT.split("\n\n")[1]
    found = training(
        text.replace("Trainer(nn.Linear(1, 1)).fit()", built + "\nt = Trainer(model, loader, optimizer)\nt.fit()")
    )
    assert [built.text for built in found.prepared] == ["model", "optimizer", "loader"]
    assert found.place.first_use is not None and found.place.after.lineno < found.place.first_use.lineno - 1


def test_a_per_batch_scheduler_is_prepared_and_others_are_not() -> None:
    scheduler = "scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)\n"
    each_batch = TRAINED.replace("optimizer.step()", "optimizer.step()\n        scheduler.step()")
    each_epoch = TRAINED + "    scheduler.step()\n"
    with_metric = TRAINED.replace("optimizer.step()", "optimizer.step()\n        scheduler.step(loss)")
    assert "scheduler" in prepared(BUILT + scheduler + each_batch)
    assert "scheduler" not in prepared(BUILT + scheduler + each_epoch)
    assert "scheduler" not in prepared(BUILT + scheduler + with_metric)


def test_a_frozen_helper_is_not_prepared() -> None:
    text = BUILT + "teacher = nn.Linear(4, 2).to(device)\n" + TRAINED.replace("model(x)", "model(x) - teacher(x)")
    assert prepared(text) == ["model", "optimizer", "loader"]


def test_a_model_that_one_branch_replaces_is_prepared_after_it() -> None:
    text = BUILT.replace("optimizer =", "if wide:\n    model = nn.Linear(8, 2)\noptimizer =") + TRAINED
    assert prepared(text) == ["model", "optimizer", "loader"]


def test_a_model_that_is_loaded_back_after_training_is_not_ours() -> None:
    assert prepared(BUILT + TRAINED + "model = torch.load('best.pt')\n") == ["model", "optimizer", "loader"]


def test_an_optimizer_that_is_built_again_after_training_is_left_if_nothing_trains_with_it() -> None:
    again = "optimizer = torch.optim.Adam(model.parameters())\n"
    assert prepared(BUILT + TRAINED + again) == ["model", "optimizer", "loader"]


def test_a_model_that_exists_only_under_a_condition_is_left() -> None:
    text = BUILT.replace("model = nn.Linear(4, 2).to(device)", "if ready:\n    model = nn.Linear(4, 2)")
    assert "condition" in refusal(text + TRAINED)


def test_an_engine_without_its_caller_is_left() -> None:
    text = BUILT.split("\n\n")[0] + "\ndef train(model, loader, optimizer, device):\n" + TRAINED.replace("\n", "\n    ")
    assert refusal(text)


def test_an_optimizer_over_a_plain_tensor_is_left() -> None:
    text = BUILT.replace("model.parameters()", "[image]") + "for i in range(9):" + STEP
    assert refusal(text)


ENGINE = """
import torch
from torch import nn
from data import *

def train(loader, model, optimizer):
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()

def main():
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        train(HANDED, model, optimizer)

main()
"""


@pytest.mark.parametrize("handed", ["every_batch, model, optimizer", "every_batch, make(), optimizer"])
@pytest.mark.parametrize("docstring", ["", '    """Trains."""\n'])
def test_a_function_that_is_called_in_each_epoch_prepares_no_more_than_its_loader(handed: str, docstring: str) -> None:
    text = ENGINE.replace("HANDED, model, optimizer", handed).replace("optimizer):\n", "optimizer):\n" + docstring, 1)
    assert refusal(text).startswith(("`every_batch` comes from", "what the optimizer updates"))


def test_two_loaders_under_one_name_are_told_apart() -> None:
    pair = "def pair():\n    return DataLoader(data), DataLoader(data)\n\n"
    text = BUILT.replace("loader = DataLoader(data, batch_size=4)", pair + "both = pair()\nloader, test = both")
    assert prepared(text + TRAINED) == ["model", "optimizer", "loader"]


def test_a_function_of_one_script_that_a_test_calls_too_is_left_in_both() -> None:
    script = ENGINE.replace("from data import *\n", "").replace("HANDED", "torch.utils.data.DataLoader(d)")
    script = script.replace("    for epoch", "    batches = torch.utils.data.DataLoader(d)\n    for epoch").replace(
        "train(torch.utils.data.DataLoader(d)", "train(batches"
    )
    assert prepared(script) == ["model", "optimizer", "batches"]
    test = """
        # test.py
        import torch
        from train import train

        def run():
            data = torch.utils.data.DataLoader(d)
            def fit(net):
                optimizer = torch.optim.Adam(net.parameters())
                train(data, net, optimizer)
            return fit
        """
    found = read_both(script, test)
    assert not found.trainings
    assert {refusal.module.source.path.name for refusal in found.refusals} == {"train.py", "test.py"}


def test_a_function_that_only_looks_at_its_loader_again_prepares_nothing() -> None:
    text = ENGINE.replace("from data import *\n", "").replace("HANDED", "loader")
    text = text.replace("    for epoch", "    loader = torch.utils.data.DataLoader(d)\n    for epoch")
    found = training(text.replace("    for x, y in loader:", "    loader = tqdm(loader)\n    for x, y in loader:"))
    assert found.home.node.name == "main"  # type: ignore[attr-defined]


def test_a_closure_that_trains_is_used_where_it_is_handed_on() -> None:
    closure = (
        "\ndef closure():\n    optimizer.zero_grad()\n    loss = model(x).sum()\n    loss.backward()\n    return loss\n"
    )
    steps = "for epoch in range(2):\n    optimizer.step(closure)\n\nlate(model)\n"
    assert after(BUILT.replace("SGD(", "LBFGS(") + "x = torch.ones(1, 4)\n" + closure + steps) == "x = torch.ones(1, 4)"


def test_the_whole_is_prepared_where_an_optimizer_has_one_part_that_was_replaced() -> None:
    text = BUILT.replace("optimizer =", "model.head = nn.Linear(2, 2)\noptimizer =")
    part = text.replace("model.parameters()", "model.head.parameters()")
    assert prepared(part + TRAINED) == ["model", "optimizer", "loader"]
    groups = text.replace(
        "model.parameters()", "[{'params': model.head.parameters()}, {'params': model.body.parameters()}]"
    )
    assert prepared(groups + TRAINED) == ["model", "optimizer", "loader"]


def test_parts_that_the_script_runs_by_themselves_are_prepared_by_themselves() -> None:
    text = BUILT.replace("optimizer =", "model.head = nn.Linear(2, 2)\noptimizer =")
    text = text.replace("model.parameters()", "model.head.parameters()")
    assert prepared(text + TRAINED.replace("model(x)", "model.head(x)")) == ["model.head", "optimizer", "loader"]


@pytest.mark.parametrize("run", ["model.head(model.body(x))", "model(x) + model.head(x)"])
def test_a_part_is_not_prepared_beside_its_whole(run: str) -> None:
    frozen = "for p in model.parameters():\n    p.requires_grad = False\nmodel.head = nn.Linear(2, 2)\noptimizer ="
    text = BUILT.replace("optimizer =", frozen).replace("model.parameters(),", "model.head.parameters(),")
    assert prepared(text + TRAINED.replace("model(x)", run)) == ["model", "optimizer", "loader"]
    groups = BUILT.replace("optimizer =", "model.head = nn.Linear(2, 2)\noptimizer =").replace(
        "model.parameters(),", "[*model.parameters(), *model.head.parameters()],"
    )
    assert prepared(groups + TRAINED.replace("model(x)", run)) == ["model", "optimizer", "loader"]


def test_the_part_of_a_model_that_the_loss_does_not_run_through_is_left() -> None:
    text = BUILT.replace("optimizer =", "other = nn.Linear(2, 2)\nother.head = nn.Linear(2, 2)\noptimizer =")
    text = text.replace("model.parameters()", "other.head.parameters()")
    assert "the optimizer updates `other.head`" in refusal(text + TRAINED)
