"""AM403: a model that only some processes run, runs over all of the data, and without the wrapper of Accelerate."""

from __future__ import annotations

import pytest

from tests.migrate.rules.scripts import becomes
from tests.migrate.rules.verbs import ACCELERATE, migrated, noted, notes, unchanged

SCRIPT = """
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel as DDP
    from torch.utils.data import DataLoader, TensorDataset

    def count(net, batches):
        right = 0
        with torch.no_grad():
            for x, y in batches:
                out = net(x)
                right += (out.argmax(1) == y).sum().item()
        return right

    def fit(number, net, optimizer, loader, held_out):
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
        {after}

    def main():
        dist.init_process_group("gloo")
        number = dist.get_rank()
        data = TensorDataset(torch.randn(64, 4), torch.randint(0, 2, (64,)))
        loader = DataLoader(data, batch_size=8)
        held_out = DataLoader(data, batch_size=8)
        net = DDP(nn.Linear(4, 2))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        fit(number, net, optimizer, loader, held_out)

    main()
    """


@pytest.mark.parametrize("test", ["number == 0", "not number", "number == 0 or dist.get_world_size() == 1"])
def test_what_one_process_evaluates_is_not_gathered(test: str):
    source = SCRIPT.format(after=f"if {test}:\n            print(count(net, held_out))")
    for text, model in ((migrated(source), "net"), (migrated(source, ACCELERATE), "accelerator.unwrap_model(net)")):
        assert "gather" not in text
        assert f"print(count({model}, held_out))" in text
        assert "held_out = accelerator.prepare" not in text


def test_what_all_evaluate_is_gathered():
    becomes(SCRIPT.format(after="print(count(net, held_out))"), "accelerator.gather_for_metrics((out, y))")


def test_what_all_evaluate_without_the_wrapper_is_gathered():
    becomes(SCRIPT.format(after="print(count(net.module, held_out))"), "accelerator.gather_for_metrics((out, y))")
    becomes(SCRIPT.format(after="print(count(net.module, held_out))"), "print(count(net, held_out, accelerator))")


def test_what_one_process_runs_by_itself_is_the_bare_model():
    source = SCRIPT.format(after="if number == 0:\n            print(net(torch.zeros(1, 4)))")
    becomes(source, "print(net(torch.zeros(1, 4)))")
    becomes(source, "print(accelerator.unwrap_model(net)(torch.zeros(1, 4)))", ACCELERATE)


def test_says_that_sharded_weights_need_all_processes():
    source = SCRIPT.format(after="if number == 0:\n            count(net, held_out)")
    assert "FSDP" in noted(source, "AM403") and "FSDP" in noted(source, "AM403", ACCELERATE)


@pytest.mark.parametrize(
    "use",
    [
        "print(net.module(torch.zeros(1, 4)))",
        "count(net.module, held_out)",
        "count(net.module if number < 4 else net, held_out)",
    ],
)
def test_says_so_of_a_model_that_the_author_took_out_of_its_wrapper(use: str):
    source = SCRIPT.format(after=f"if number == 0:\n            {use}")
    assert "FSDP" in noted(source, "AM403") and "FSDP" in noted(source, "AM403", ACCELERATE)
    assert ".module" not in migrated(source) and "unwrap_model" not in migrated(source)
    wrapped = migrated(source, ACCELERATE)
    assert "unwrap_model(net)" in wrapped and "unwrap_model(accelerator" not in wrapped


def test_leaves_a_loop_whose_shared_loader_one_process_reads():
    reason = unchanged(SCRIPT.format(after="if number == 0:\n            count(net, loader)"))
    assert "it is trained on" in reason


def test_leaves_a_loop_that_one_process_trains_in():
    source = SCRIPT.format(after="pass").replace("        fit(", "        if number == 0:\n            fit(")
    assert "decides which processes train" in unchanged(source)


def test_prints_of_one_process_stay_its_own():
    text = migrated(SCRIPT.format(after="if number == 1:\n            print('here')"))
    assert "        print('here')" in text and "accelerator.print" not in text


def test_a_function_that_does_not_run_the_model_gets_it_as_it_is():
    source = SCRIPT.format(after="if number == 0:\n            size(net)")
    text = migrated(
        source.replace(
            "    def count(", "    def size(net):\n        print(len(list(net.parameters())))\n\n    def count("
        )
    )
    assert "        size(net)" in text
    assert "unwrap_model" not in text


def test_a_helper_that_is_not_given_gets_the_bare_model():
    source = SCRIPT.format(after="if number == 0:\n            examine(net, held_out)")
    source = "    from examination import examine" + source
    becomes(source, "examine(accelerator.unwrap_model(net), held_out)", ACCELERATE)
    becomes(source, "examine(net, held_out)")
    assert "FSDP" in noted(source, "AM403")


OF_PARTS = """
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel as DDP
    from torch.utils.data import DataLoader, TensorDataset

    class Pair(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 2)
            self.size = 8

        def encode(self, x):
            return self.first(x)

        def width(self):
            return self.size

        def forward(self, x):
            return self.second(self.encode(x))

    def look(net, x):
        return net.module.{asked}

    def main():
        dist.init_process_group("gloo")
        data = TensorDataset(torch.randn(64, 4), torch.randint(0, 2, (64,)))
        loader = DataLoader(data, batch_size=8)
        net = DDP(Pair())
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
        {after}

    main()
    """


@pytest.mark.parametrize("after", ["look(net, x)", "net.module.encode(x)"])
def test_a_method_of_the_model_in_the_wrapper_runs_its_layers(after: str) -> None:
    source = OF_PARTS.format(asked="encode(x)", after=f"if dist.get_rank() == 0: print({after})")
    assert "with sharded weights (FSDP, ZeRO-3) all of them must" in noted(source, "AM403")
    assert "`encode` runs layers past the model's forward" in noted(source, "AM105", ACCELERATE)


def test_a_method_of_the_model_in_the_wrapper_that_all_processes_run() -> None:
    source = OF_PARTS.format(asked="encode(x)", after="print(look(net, x))")
    assert "`encode` runs layers past the model's forward" in noted(source, "AM105", ACCELERATE)
    assert not any("condition on the rank" in message for message in notes(source))


def test_a_method_that_runs_no_layers_is_not_named() -> None:
    source = OF_PARTS.format(asked="width()", after="if dist.get_rank() == 0: print(look(net, x), net.module.width())")
    assert not any("sharded weights" in message or "layers past" in message for message in notes(source))
