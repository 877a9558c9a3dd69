"""AM503 and AM506: copies of a prepared model, and pretrained models."""

from __future__ import annotations

import pytest

from tests.migrate.rules.scripts import becomes, codes, stays, training
from tests.migrate.rules.verbs import ACCELERATE, _migrated, migrated, noted, notes


def test_copies_the_model_itself():
    source = training(after="best = copy.deepcopy(model)")
    becomes(source, "best = copy.deepcopy(accelerator.unwrap_model(model))", ACCELERATE)
    stays(source, "best = copy.deepcopy(model)")


def test_keeps_a_copy_made_before_prepare():
    stays(training(ready="ema = copy.deepcopy(model)"), "ema = copy.deepcopy(model)")


def test_writes_a_pretrained_model_once_with_collected_weights():
    source = training(after='model.save_pretrained("out")')
    written = (
        '.save_pretrained("out", is_main_process=accelerator.is_main_process, '
        "state_dict=accelerator.get_state_dict(model))"
    )
    becomes(source, f"model{written}")
    becomes(source, f"accelerator.unwrap_model(model){written}", ACCELERATE)


def test_guards_a_pretrained_model_with_arguments_of_its_own():
    becomes(training(after='model.save_pretrained("out", safe=True)'), "if accelerator.is_main_process:")


@pytest.mark.parametrize("method", ["save_pretrained", "save_vocabulary"])
def test_guards_a_tokenizer(method: str):
    becomes(
        training(after=f'tokenizer.{method}("out")'),
        f'if accelerator.is_main_process:\ntokenizer.{method}("out")',
    )


def test_guards_a_model_that_is_saved_before_prepare():
    becomes(
        training(ready='model.save_pretrained("start")\nmodel.requires_grad_(True)'),
        'if accelerator.is_main_process:\nmodel.save_pretrained("start")',
    )


def test_logs_the_model_itself():
    source = training(functions="import mlflow.pytorch", after="mlflow.pytorch.log_model(model, 'digits')")
    becomes(source, "mlflow.pytorch.log_model(accelerator.unwrap_model(model), 'digits')", ACCELERATE)
    stays(source, "mlflow.pytorch.log_model(model, 'digits')")


@pytest.mark.parametrize("call", ["log_model(model, 'digits')", "log_model(name='digits', pytorch_model=model)"])
def test_says_how_a_sharded_model_is_exported(call: str):
    source = training(functions="import mlflow.pytorch", after=f"mlflow.pytorch.{call}")
    message = noted(source, "AM503")
    assert "under --strategy fsdp hand over copy.deepcopy(model), which all processes must make together" in message


def test_names_what_gets_the_wrapper_and_cannot_be_looked_into():
    unseen = training(functions="import archive", after="archive.keep(model=model)")
    message = noted(unseen, "AM503", ACCELERATE)
    assert "archive.keep()" in message and "unwrap_model" in message
    assert "AM503" not in codes(unseen)
    for line in ("print(model)", "wandb.watch(model)", "torch.nn.utils.clip_grad_norm_(model.parameters(), 1)"):
        assert "AM503" not in codes(training(after=line), ACCELERATE)
    assert "AM503" not in codes(training(functions="def keep(net):\n    return net", after="keep(model)"), ACCELERATE)


@pytest.mark.parametrize(
    "takes", ["copy.deepcopy({})", "torch.jit.trace({}, sample)", "torch.onnx.export({}, sample, 'm')"]
)
@pytest.mark.parametrize("chain", ["cpu()", "eval()", "cpu().eval()"])
def test_takes_the_model_itself_behind_calls_that_return_it(takes: str, chain: str):
    source = training(functions="import copy", after=takes.format(f"model.{chain}"))
    assert takes.format(f"accelerator.unwrap_model(model).{chain}") in migrated(source, ACCELERATE)
    assert takes.format(f"model.{chain}") in migrated(source)


@pytest.mark.parametrize(
    ("line", "told"),
    [("torch.jit.script(model)", True), ("torch.jit.trace(model.eval(), x)", True), ("copy.deepcopy(model)", False)],
)
def test_says_that_an_export_of_sharded_weights_is_a_part(line: str, told: bool) -> None:
    source = training(after=f"kept = {line}")
    sharded = "with sharded weights (FSDP, ZeRO-3) each process has a part"
    (message,) = [change.message for change in _migrated(source, ACCELERATE).applied if change.code == "AM503"]
    assert (sharded in message) == told
    assert len([note for note in notes(source) if sharded in note]) == told


def test_says_so_of_the_model_that_an_object_has_prepared():
    source = """
    import torch
    from torch import nn
    from torch.utils.data import DataLoader

    class Fit:
        def __init__(self):
            self.model = nn.Linear(4, 1)
            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

        def train(self, loader):
            print("begin")
            for x, y in loader:
                loss = nn.functional.mse_loss(self.model(x), y)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()

    fit = Fit()
    untrained = torch.jit.script(fit.model)
    fit.train(DataLoader(data, batch_size=8))
    scripted = torch.jit.script(fit.model)
    """
    assert "exports the model" in noted(source, "AM503")
    assert "as in line" not in noted(source, "AM503")
    assert "keep_fp32_wrapper=False" in noted(source, "AM503")
    traced = source.replace("torch.jit.script(fit.model)", "torch.jit.trace(fit.model, row)")
    assert "keep_fp32_wrapper" not in noted(traced, "AM503")
