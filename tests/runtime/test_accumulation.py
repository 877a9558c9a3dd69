"""Windows of micro-steps on one process."""

import pytest
import torch
from accel_runtime import Accelerator, GradientAccumulationPlugin
from accel_runtime.errors import ConfigError
from torch import nn
from torch.utils.data import DataLoader, IterableDataset


class Stream(IterableDataset):
    def __iter__(self):
        return iter(torch.ones(6, 1))


def one_weight(accelerator, rate=1.0):
    model = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)
    return accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=rate))


def weight_after_each_step(accelerator, loader):
    """Every loss has gradient 1, so a whole window moves the weight by the learning rate."""
    model, optimizer = one_weight(accelerator)
    loader = accelerator.prepare(loader)
    seen = []
    for batch in loader:
        with accelerator.accumulate(model):
            accelerator.backward(-model(batch).mean())
            optimizer.step()
            optimizer.zero_grad()
        seen.append((accelerator.sync_gradients, model.weight.item()))
    return seen


def test_the_last_shorter_window_weighs_as_much_as_the_others():
    loader = DataLoader(torch.ones(6, 1), 1)
    seen = weight_after_each_step(Accelerator(cpu=True, gradient_accumulation_steps=4), loader)
    assert seen == [(False, 0.0), (False, 0.0), (False, 0.0), (True, 1.0), (False, 1.0), (True, 2.0)]


def test_a_stream_without_length_still_steps_at_its_end():
    seen = weight_after_each_step(Accelerator(cpu=True, gradient_accumulation_steps=4), DataLoader(Stream(), 1))
    assert seen == [(False, 0.0), (False, 0.0), (False, 0.0), (True, 1.0), (False, 1.0), (True, 1.5)]


def test_windows_may_run_across_epochs():
    plugin = GradientAccumulationPlugin(num_steps=4, sync_with_dataloader=False)
    accelerator = Accelerator(cpu=True, gradient_accumulation_plugin=plugin)
    seen = weight_after_each_step(accelerator, DataLoader(torch.ones(5, 1), 1))
    assert [sync for sync, _ in seen] == [False, False, False, True, False]


def test_a_short_window_keeps_its_small_weight_on_request():
    plugin = GradientAccumulationPlugin(num_steps=4, weigh_last_window=False)
    seen = weight_after_each_step(
        Accelerator(cpu=True, gradient_accumulation_plugin=plugin), DataLoader(torch.ones(5, 1), 1)
    )
    assert seen[-1] == (True, 1.25)


def test_steps_after_a_block_wait_as_those_inside_do():
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model, optimizer = one_weight(accelerator)
    scheduler = accelerator.prepare(torch.optim.lr_scheduler.LambdaLR(optimizer.optimizer, lambda count: 1.0 + count))
    loader, evaluation = accelerator.prepare(DataLoader(torch.ones(5, 1), 1), DataLoader(torch.ones(2, 1), 1))
    seen = []
    for batch in loader:
        with accelerator.accumulate(model):
            accelerator.backward(-model(batch).mean())
        list(evaluation)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        seen.append((model.weight.item(), scheduler.last_epoch))
    assert seen == [(0, 0), (1, 1), (1, 1), (3, 2), (6, 3)]


def test_a_window_that_was_left_by_break_holds_back_no_step_after_the_loop():
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model, optimizer = one_weight(accelerator)
    for batch in accelerator.prepare(DataLoader(torch.ones(4, 1), 1)):
        with accelerator.accumulate(model):
            accelerator.backward(-2 * model(batch).mean())
            optimizer.step()
        break
    assert model.weight.item() == 0
    optimizer.step()
    assert model.weight.item() == 1


def test_a_script_that_says_itself_when_gradients_are_due_is_followed():
    accelerator = Accelerator(cpu=True)
    model, optimizer = one_weight(accelerator)
    for due in (False, True):
        accelerator.gradient_state._set_sync_gradients(due)
        accelerator.backward(-model(torch.ones(1, 1)).mean())
        optimizer.step()
        optimizer.zero_grad()
        assert model.weight.item() == (2 if due else 0)


def test_an_evaluation_inside_an_epoch_does_not_move_the_window():
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=3)
    model, optimizer = one_weight(accelerator)
    train, evaluation = accelerator.prepare(DataLoader(torch.ones(6, 1), 1), DataLoader(torch.ones(4, 1), 1))
    seen = []
    for batch in train:
        with accelerator.accumulate(model):
            accelerator.backward(-model(batch).mean())
            optimizer.step()
            optimizer.zero_grad()
        list(evaluation)
        seen.append(accelerator.sync_gradients)
    assert seen == [False, False, True, False, False, True]


def test_leaving_an_epoch_starts_a_new_window():
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model, _ = one_weight(accelerator)
    loader = accelerator.prepare(DataLoader(torch.ones(4, 1), 1))
    for _ in loader:
        with accelerator.accumulate(model):
            break
    seen = []
    for _ in loader:
        with accelerator.accumulate(model):
            seen.append(accelerator.sync_gradients)
    assert seen == [False, True, False, True]


def test_two_models_count_their_own_windows():
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    generator, _ = one_weight(accelerator)
    critic, _ = one_weight(accelerator)
    seen = []
    for _ in accelerator.prepare(DataLoader(torch.ones(4, 1), 1)):
        for model in (generator, critic):
            with accelerator.accumulate(model):
                seen.append(accelerator.sync_gradients)
    assert seen == [False, False, True, True, False, False, True, True]


def test_an_inner_block_leaves_the_outer_one_as_it_was():
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model, optimizer = one_weight(accelerator)
    other, _ = one_weight(accelerator)
    with accelerator.accumulate(model):
        accelerator.backward(-model(torch.ones(1, 1)).mean())
        with accelerator.accumulate(other):
            pass
        optimizer.step()
    assert model.weight.item() == 0


def test_two_accelerators_accumulate_apart():
    often, seldom = (Accelerator(cpu=True, gradient_accumulation_steps=steps) for steps in (1, 3))
    model, _ = one_weight(often)
    other, optimizer = one_weight(seldom)
    with seldom.accumulate(other), often.accumulate(model):
        assert often.sync_gradients
        seldom.backward(-other(torch.ones(1, 1)).mean())
        optimizer.step()
    assert other.weight.item() == 0
    assert (often.gradient_accumulation_steps, seldom.gradient_accumulation_steps) == (1, 3)


@pytest.mark.parametrize("steps", [0, -1])
def test_fewer_than_one_step_is_refused(steps):
    with pytest.raises(ConfigError, match="gradient_accumulation_steps"):
        Accelerator(cpu=True, gradient_accumulation_steps=steps)
    with pytest.raises(ConfigError, match="at least 1"):
        GradientAccumulationPlugin(num_steps=steps)
    with pytest.raises(ConfigError, match="at least 1"):
        Accelerator(cpu=True).gradient_accumulation_steps = steps


def test_steps_and_plugin_together_are_refused():
    with pytest.raises(ConfigError, match="not both"):
        Accelerator(cpu=True, gradient_accumulation_steps=2, gradient_accumulation_plugin=GradientAccumulationPlugin(2))


def test_accumulating_without_a_prepared_optimizer_is_named():
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = accelerator.prepare(nn.Linear(1, 1))
    with pytest.warns(UserWarning, match="none was prepared"), accelerator.accumulate(model):
        pass


def test_accumulation_that_the_script_does_not_use_is_said_once():
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    weight = torch.ones(1, requires_grad=True)
    with pytest.warns(UserWarning, match="no step is held back") as said:
        accelerator.backward(weight.sum())
        accelerator.backward(weight.sum())
    assert len(said) == 1 and said[0].filename == __file__
    assert weight.grad.item() == 1.0
