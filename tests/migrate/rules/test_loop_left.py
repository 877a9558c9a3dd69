"""AM901: other engines, and ways to train that are not data parallel."""

from __future__ import annotations

import pytest

from tests.migrate.rules.scripts import training
from tests.migrate.rules.verbs import migrated, unchanged

SCRIPT = """
    import apex
    import spread
    import tensor_parallel
    import torch
    import torch.multiprocessing as mp
    from torch import nn
    from torch.distributed.fsdp import fully_shard

    loader = torch.utils.data.DataLoader(data(), batch_size=4)
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    {line}
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    """


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('model, optimizer = apex.amp.initialize(model, optimizer, opt_level="O1")', "apex"),
        ("model = apex.parallel.convert_syncbn_model(model)", "torch.nn.SyncBatchNorm"),
        ("fully_shard(model)", "FSDP"),
        ("mp.Process(target=work, args=(model,)).start()", "one by one"),
        ('a, b = model.first.to("cuda:0"), model.second.to("cuda:1")', "different GPUs (cuda:0, cuda:1)"),
        ("model = tensor_parallel.tensor_parallel(model, distributed=True)", "splits the layers of the model"),
        (
            "model = spread.OverGpus(model, device_ids=[0, 1])",
            "spread.OverGpus() spreads the model over GPUs by itself",
        ),
        (
            "model = spread.DataParallelModel(model, [0, 1])",
            "spread.DataParallelModel() spreads the model over GPUs by itself",
        ),
    ],
)
def test_what_no_rewrite_carries_over_is_named(line, reason):
    assert reason in unchanged(SCRIPT.format(line=line))


def test_a_function_of_the_script_that_is_handed_device_ids_is_looked_into():
    line = "def spread(net, device_ids):\n        print(device_ids)\n        return nn.DataParallel(net)\n    "
    source = SCRIPT.format(line=line + "model = spread(model, device_ids=[0])")
    assert "accelerator.prepare(model, optimizer, loader)" in migrated(source)


def test_a_backward_pass_out_of_sight_is_named():
    source = SCRIPT.format(line="loss_scaler = NativeScaler()").replace(
        "        loss.backward()\n        optimizer.step()\n", "        loss_scaler(loss, optimizer, clip_grad=1.0)\n"
    )
    assert "loss_scaler() runs the backward pass" in unchanged(source)


@pytest.mark.parametrize("given", ["loss", "torch.ones(1)", "gradient=torch.ones(1)"])
def test_a_backward_pass_with_a_gradient_of_its_own_is_named(given):
    source = SCRIPT.format(line="").replace("loss.backward()", f"loss.backward({given})")
    assert "handed a gradient" in unchanged(source)


ENGINE = SCRIPT.format(line="").split("    for x, y")[0] + "    {call}\n"


@pytest.mark.parametrize("call", ["engine.fit(model, optimizer, loader)", "run(net=model, by=optimizer)"])
def test_a_training_function_whose_file_is_not_given_is_named(call):
    source = ENGINE.format(call=call).replace("    import apex\n", "    import engine\n    from engine import run\n")
    assert "its file is not among those" in unchanged(source)


@pytest.mark.parametrize("call", ["print(model, optimizer)", "model.fit(optimizer)", "engine.look(model)"])
def test_what_is_handed_no_optimizer_is_no_training(call):
    source = ENGINE.format(call=call).replace("    import apex\n", "    import engine\n")
    assert unchanged(source) == "no training loop"


def test_a_logger_that_counts_steps_does_not_step_the_optimizer():
    source = SCRIPT.format(line="writer = Writer()").replace(
        "        optimizer.step()\n", "        writer.set_step(1)\n"
    )
    source = source.replace("optimizer.zero_grad()", "pass").replace("optimizer = torch.optim.SGD", "made = make")
    assert "writer" not in unchanged(source)


def test_a_class_around_an_optimizer_is_named_as_what_steps():
    functions = """
        class Steps:
            def __init__(self, inner):
                self.inner = inner

            def zero_grad(self):
                self.inner.zero_grad()

            def step_and_anneal(self):
                self.inner.step()
        """
    made = "torch.optim.SGD(model.parameters(), lr=0.1)"
    source = training(functions=functions).replace(f"optimizer = {made}", f"optimizer = Steps({made})")
    stepped = source.replace("optimizer.step()", "optimizer.step_and_anneal()")
    assert "steps the optimizer from within" in unchanged(stepped)


def test_a_function_that_is_handed_its_model_waits_for_who_calls_it():
    alone = "import torch\nfrom torch import nn\ndef train({given}):\n{made}    for x, y in loader:\n"
    alone += "        criterion(model(x), y).backward()\ntrain({given})\n"
    assert "the caller of train()" in unchanged(
        alone.format(given="model, loader, criterion", made="").replace("train(model, loader, criterion)\n", "")
    )
    built = alone.format(given="loader, criterion", made="    model = nn.Linear(3, 1)\n")
    assert "no optimizer is seen to step" in unchanged(built)
