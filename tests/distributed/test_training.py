"""Training on real processes: it is the training of one process with the whole batch."""

import subprocess
import sys
import time
import warnings
from datetime import timedelta
from itertools import product

import pytest
import torch
from accel_runtime import (
    Accelerator,
    DataLoaderConfiguration,
    DistributedDataParallelKwargs,
    FullyShardedDataParallelPlugin,
    InitProcessGroupKwargs,
    LocalSGD,
)
from accel_runtime.errors import UsageError
from accel_runtime.utils import TorchDynamoPlugin
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, SequentialSampler, TensorDataset

from tests.distributed.overflow import steps_with_an_overflow
from tests.distributed.worlds import in_world

STEPS = 50
OPTIMIZERS = {
    "sgd": lambda weights: torch.optim.SGD(weights, lr=0.1, momentum=0.9),
    "adamw": lambda weights: torch.optim.AdamW(weights, lr=1e-2),
}


class Stream(IterableDataset):
    def __iter__(self):
        return iter(torch.ones(3, 1))


def small_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 3))


def small_data(samples=STEPS * 8):
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(samples, 8, generator=generator)
    return TensorDataset(inputs, inputs[:, :3].argmax(1))


def losses_of(optimizer_name, accumulation, clipping, batch_size):
    accelerator = Accelerator(gradient_accumulation_steps=accumulation)
    model = small_model()
    optimizer = OPTIMIZERS[optimizer_name](model.parameters())
    loader = DataLoader(small_data(), batch_size, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    losses = []
    for inputs, targets in loader:
        with accelerator.accumulate(model):
            loss = nn.functional.cross_entropy(model(inputs), targets)
            accelerator.backward(loss)
            if clipping and accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            optimizer.zero_grad()
        losses.append(accelerator.reduce(loss.detach(), "mean").item())
    return losses


def test_two_processes_train_as_one_with_the_doubled_batch():
    cases = list(product(OPTIMIZERS, (1, 4), (False, True)))
    worlds = in_world(2, lambda: [losses_of(*case, batch_size=4) for case in cases])
    for case, ours in zip(cases, worlds[0]):
        alone = losses_of(*case, batch_size=8)
        assert len(ours) == len(alone) == STEPS
        assert ours == pytest.approx(alone, rel=1e-5), case
    assert worlds[0] == worlds[1]


def test_torchrun_forms_one_world_on_a_machine_without_accelerators(tmp_path):
    script = tmp_path / "who.py"
    script.write_text(
        "import sys\n"
        "from accel_runtime import Accelerator\n"
        "accelerator = Accelerator()\n"
        "everyone = accelerator.gather_object([(accelerator.process_index, accelerator.num_processes)])\n"
        # One write: where output is not buffered, print makes two, and those of two processes mix.
        "sys.stdout.write(f'{everyone}\\n')\n"
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script)]
    output = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    assert output.splitlines() == ["[(0, 2), (1, 2)]"] * 2


def test_an_overflow_skips_the_step_on_every_process():
    def work():
        accelerator = Accelerator(mixed_precision="fp16")
        return steps_with_an_overflow(accelerator, nn.Linear(2, 1))

    for seen in in_world(2, work):
        assert seen == [(True, 0, True), (False, 1, False)]


def test_a_prepared_model_shows_the_attributes_and_methods_of_the_users():
    class Coder(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(2, 2)
            self.width = 2

        def forward(self, inputs):
            return self.inner(inputs)

        def encode(self, inputs):
            return self.inner(inputs) + self.width

    def work():
        accelerator = Accelerator()
        model, frozen = Coder(), Coder().requires_grad_(False)
        prepared, teacher = accelerator.prepare(model, frozen)
        with pytest.raises(AttributeError, match="no_such_thing"):
            _ = prepared.no_such_thing
        return (
            prepared.width,
            prepared.inner is model.inner,
            prepared.encode(torch.zeros(1, 2)).shape,
            teacher is frozen,
            accelerator.unwrap_model(prepared) is model,
            list(accelerator.get_state_dict(prepared)),
            accelerator.prepare(prepared) is prepared and accelerator.prepare(model) is prepared,
        )

    for seen in in_world(2, work):
        assert seen == (2, True, (1, 2), True, True, ["inner.weight", "inner.bias"], True)


def test_holding_back_gradients_of_a_model_that_was_not_prepared_is_refused():
    def work():
        with pytest.raises(UsageError, match="Linear was not prepared"), Accelerator().no_sync(nn.Linear(2, 1)):
            pass

    in_world(2, work)


class Density(nn.Module):
    """Trained by a method, which runs the forward and more; the buffer moves with each call of either."""

    def __init__(self):
        super().__init__()
        self.scale, self.unseen = nn.Linear(1, 1, bias=False), nn.Parameter(torch.ones(1))
        nn.init.ones_(self.scale.weight)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, inputs):
        self.calls += 1
        return self.scale(inputs)

    def loss(self, inputs, *, factor):
        return (self(inputs) * self.unseen * factor).mean()


def test_a_registered_method_trains_as_the_forward_does():
    def gradients(model):
        return [weight.grad.item() for weight in model.parameters()]

    def work():
        accelerator = Accelerator()
        model = Density()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer = accelerator.prepare(model, optimizer)
        accelerator.register_forward_method(model, "loss")
        inputs, seen = torch.full((1, 1), 1.0 + 2 * accelerator.process_index), []
        for _ in range(3):
            if accelerator.is_main_process:  # without a backward pass nobody waits for anybody
                accelerator.unwrap_model(model).loss(inputs, factor=5)
            accelerator.backward(model.loss(inputs, factor=2))
            seen.append(gradients(model))
            optimizer.step()
            optimizer.zero_grad()
        with pytest.raises(TypeError):
            model.loss(inputs, wrong=1)
        with pytest.raises(UsageError, match="Density has no method 'lost'"):
            accelerator.register_forward_method(model, "lost")
        return seen, model(inputs).shape, [weight.item() for weight in model.parameters()]

    alone = Density()
    optimizer = torch.optim.SGD(alone.parameters(), lr=0.1)
    expected = []
    for _ in range(3):
        alone.loss(torch.tensor([[1.0], [3.0]]), factor=2).backward()
        expected.append(gradients(alone))
        optimizer.step()
        optimizer.zero_grad()
    for seen, shape, weights in in_world(2, work):
        assert [number for step in seen for number in step] == pytest.approx(
            [number for step in expected for number in step]
        )
        assert shape == (1, 1)
        assert weights == pytest.approx([weight.item() for weight in alone.parameters()])


def test_gradients_stay_apart_until_they_are_due():
    def work():
        accelerator = Accelerator(gradient_accumulation_steps=2)
        model = nn.Linear(1, 1, bias=False)
        nn.init.ones_(model.weight)
        model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=1.0))
        seen = []
        for number in (1.0, 2.0):
            with accelerator.accumulate(model):
                accelerator.backward(model(torch.full((1, 1), number + accelerator.process_index)).sum())
                seen.append(next(iter(model.parameters())).grad.item())
                optimizer.step()
                optimizer.zero_grad()
        with accelerator.no_sync(model):
            accelerator.backward(2 * model(torch.ones(1, 1)).sum() * accelerator.process_index)
        return [*seen, next(iter(model.parameters())).grad.item()]

    first, second = in_world(2, work)
    assert first == [0.5, 2.0, 0.0]
    assert second == [1.0, 2.0, 1.0]


def test_uneven_inputs_are_joined_on_the_cpu():
    def work():
        accelerator = Accelerator()
        model, loader = accelerator.prepare(nn.Linear(1, 1), DataLoader(torch.ones(5, 1), 1))
        steps = 0
        with accelerator.join_uneven_inputs([model], even_batches=False):
            for batch in loader:
                accelerator.backward(model(batch).sum())
                steps += 1
        return steps, sum(1 for _ in loader)

    assert in_world(2, work) == [(3, 3), (2, 3)]


def test_a_join_that_joins_nothing_says_so():
    def work():
        accelerator = Accelerator()
        accelerator.prepare(DataLoader(Stream(), 1))
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            with accelerator.join_uneven_inputs([object()], even_batches=False):
                pass
        return [str(one.message) for one in said if "only supported" in str(one.message)]

    for messages in in_world(2, work):
        assert [message.partition(" is only")[0] for message in messages] == ["join_uneven_inputs", "even_batches"]


def test_the_batch_sampler_of_a_prepared_loader_has_the_batches_of_this_process():
    def work():
        accelerator = Accelerator()
        own = BatchSampler(SequentialSampler(range(6)), 1, drop_last=False)
        loader = accelerator.prepare(DataLoader(torch.arange(6), batch_sampler=own))
        shown = loader.batch_sampler
        with accelerator.join_uneven_inputs([accelerator.prepare(nn.Linear(1, 1))], even_batches=False):
            within = loader.batch_sampler.even_batches
        return [
            list(shown),
            len(shown),
            shown.batch_sampler is own and shown.sampler is own.sampler and isinstance(shown, BatchSampler),
            (shown.even_batches, within, loader.batch_sampler.even_batches, shown.split_batches),
        ]

    rest = [3, True, (True, False, True, False)]
    assert in_world(2, work) == [[[[0], [2], [4]], *rest], [[[1], [3], [5]], *rest]]


def test_a_stateful_loader_goes_on_on_many_processes():
    def work():
        config = DataLoaderConfiguration(use_stateful_dataloader=True)
        accelerator = Accelerator(dataloader_config=config)
        loader = accelerator.prepare(DataLoader(torch.arange(12), 2, shuffle=True))
        seen = []
        for index, batch in enumerate(loader):
            seen.append(batch.tolist())
            if index == 0:
                state = loader.state_dict()
        loader.load_state_dict(state)
        return seen[1:] == [batch.tolist() for batch in loader]

    assert in_world(2, work) == [True, True]


def test_local_sgd_averages_weights_now_and_then():
    def work():
        accelerator = Accelerator()
        model = nn.Linear(1, 1, bias=False)
        nn.init.zeros_(model.weight)
        model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=1.0))
        seen = []
        with LocalSGD(accelerator, model, local_sgd_steps=2) as local_sgd:
            for _ in range(2):
                accelerator.backward(-model(torch.ones(1, 1)).sum() * accelerator.process_index)
                optimizer.step()
                optimizer.zero_grad()
                local_sgd.step()
                seen.append(next(iter(model.parameters())).item())
        return seen

    assert in_world(2, work) == [[0.0, 1.0], [1.0, 1.0]]


def test_accelerators_of_different_precision_live_side_by_side():
    def work():
        wide, narrow = Accelerator(gradient_accumulation_steps=3), Accelerator(mixed_precision="bf16")
        dtypes = []
        for accelerator in (wide, narrow):
            model = accelerator.prepare(nn.Linear(2, 2))
            with accelerator.autocast():
                dtypes.append((model(torch.ones(1, 2)) @ torch.ones(2, 2)).dtype)
        return dtypes, wide.gradient_accumulation_steps, narrow.gradient_accumulation_steps

    for seen in in_world(2, work):
        assert seen == ([torch.float32, torch.bfloat16], 3, 1)


def test_handlers_reach_torch():
    class Branches(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unused = nn.Linear(1, 1, bias=False), nn.Linear(1, 1)

        def forward(self, inputs):
            return self.used(inputs)

    def work():
        seen = {}
        for hook in ("no", "fp16", "power_sgd"):
            handler = DistributedDataParallelKwargs(
                find_unused_parameters=True, comm_hook=hook, comm_state_option={"start_powerSGD_iter": 2}
            )
            accelerator = Accelerator(kwargs_handlers=[handler, InitProcessGroupKwargs(timeout=timedelta(seconds=60))])
            model = accelerator.prepare(Branches())
            for _ in range(2):
                accelerator.backward(model(torch.full((1, 1), 1.0 + accelerator.process_index)).sum())
            seen[hook] = model.used.weight.grad.item()
        return seen

    assert in_world(2, work) == [{"no": 3.0, "fp16": 3.0, "power_sgd": 3.0}] * 2


def test_an_exchange_can_be_asked_for_after_the_forward():
    def work():
        accelerator = Accelerator()
        model = accelerator.prepare(nn.Linear(1, 1, bias=False))
        with accelerator.no_sync(model):
            losses = [model(torch.full((1, 1), 1.0 + accelerator.process_index)).sum() for _ in range(2)]
            accelerator.backward(losses[0])
        with accelerator.trigger_sync_in_backward(model):
            accelerator.backward(losses[1])
        return next(model.parameters()).grad.item()

    assert in_world(2, work) == [3.0, 3.0]


def test_a_compiled_model_trains_together_and_keeps_its_names():
    def work():
        plugin = TorchDynamoPlugin(backend="aot_eager")
        accelerator = Accelerator(dynamo_plugin=plugin, gradient_accumulation_steps=2)
        model = small_model()
        prepared, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
        assert prepared._orig_mod is model
        for _ in range(2):
            with accelerator.accumulate(prepared):
                accelerator.backward(prepared(torch.full((2, 8), 1.0 + accelerator.process_index)).sum())
                optimizer.step()
                optimizer.zero_grad()
        state = accelerator.get_state_dict(prepared)
        same = accelerator.gather_object([state["0.weight"].sum().item()])
        return accelerator.unwrap_model(prepared) is model, list(state) == list(model.state_dict()), same[0] == same[1]

    def by_the_script(**settings):
        accelerator = Accelerator(**settings)
        given = torch.compile(small_model(), backend="eager")
        names = list(given.state_dict())
        state = accelerator.get_state_dict(accelerator.prepare(given))
        given.load_state_dict(state)
        return names[0], list(state) == names

    def all_ways():
        return work(), by_the_script(), by_the_script(fsdp_plugin=FullyShardedDataParallelPlugin())

    kept = ("_orig_mod.0.weight", True)
    assert in_world(2, all_ways) == [((True, True, True), kept, kept)] * 2


class _Slow:
    """Takes its time to be written."""

    def __reduce__(self):
        time.sleep(1)
        return _Slow, ()


def test_a_saved_file_is_there_for_all_who_waited_and_one_process_may_save_alone(tmp_path):
    def work():
        accelerator = Accelerator()
        accelerator.save({"rank": accelerator.process_index, "slow": _Slow()}, tmp_path / "all.pt")
        early = (tmp_path / "all.pt").exists()
        accelerator.wait_for_everyone()
        rank = torch.load(tmp_path / "all.pt", weights_only=False)["rank"]
        if accelerator.is_main_process:
            accelerator.save({"rank": 0}, tmp_path / "alone.pt")
        accelerator.wait_for_everyone()
        return early, rank, (tmp_path / "alone.pt").exists()

    assert in_world(2, work) == [(True, 0, True), (False, 0, True)]


def test_only_the_main_process_writes(tmp_path):
    def work():
        accelerator = Accelerator(log_with="jsonl", project_dir=tmp_path)
        model = accelerator.prepare(nn.Linear(1, 1))
        accelerator.init_trackers("run")
        accelerator.log({"rank": accelerator.process_index}, step=0)
        accelerator.save_model(model, tmp_path / "weights")
        accelerator.save({"rank": accelerator.process_index}, tmp_path / "rank.pt")
        accelerator.wait_for_everyone()
        accelerator.get_tracker("jsonl").log({"again": 1})
        accelerator.end_training()
        return torch.load(tmp_path / "rank.pt")["rank"]

    assert in_world(2, work) == [0, 0]
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 2
    assert [path.name for path in (tmp_path / "weights").iterdir()] == ["model.safetensors"]


def test_other_data_on_one_rank_is_named_before_the_first_step():
    def prepare():
        accelerator = Accelerator(cpu=True)
        data = small_data(12 + accelerator.process_index)
        try:
            accelerator.prepare(small_model(), DataLoader(small_data()), DataLoader(data))
        except UsageError as error:
            return str(error)
        return ""

    for said in in_world(2, prepare):
        assert said.startswith("loader 2 of prepare() has 12 samples on rank 0 and 13 on rank 1")
