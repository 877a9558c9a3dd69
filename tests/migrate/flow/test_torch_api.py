"""What calls of libraries make and hand on, by their names."""

from __future__ import annotations

import ast

import pytest
from accel_migrate.flow.torch_api import is_bar, is_parallel, is_wrapper, itself, made_by


@pytest.mark.parametrize(
    ("dotted", "kind"),
    [
        ("torch.utils.data.DataLoader", "loader"),
        ("torchdata.stateful_dataloader.StatefulDataLoader", "loader"),
        ("torch.optim.SGD", "optimizer"),
        ("torch.optim.adam.Adam", "optimizer"),
        ("torch.optim.swa_utils.AveragedModel", ""),
        ("torch.optim.lr_scheduler.StepLR", "scheduler"),
        ("transformers.get_linear_schedule_with_warmup", "scheduler"),
        ("torch.device", "device"),
        ("torch.cuda.amp.GradScaler", "scaler"),
        ("torch.amp.GradScaler", "scaler"),
        ("torch.autocast", "autocast"),
        ("torch.utils.data.distributed.DistributedSampler", "sampler"),
        ("torch.nn.Parameter", "tensor"),
        ("torch.nn.CrossEntropyLoss", "criterion"),
        ("torch.nn.Linear", "model"),
        ("torch.nn.functional.relu", ""),
        ("torchvision.models.resnet18", "model"),
        ("transformers.AutoModelForCausalLM.from_pretrained", "model"),
        ("transformers.BertModel", "model"),
        ("transformers.AutoTokenizer.from_pretrained", ""),
        ("transformers.AdamW", ""),
        ("models.build", ""),
    ],
)
def test_a_call_makes_what_its_name_tells(dotted: str, kind: str) -> None:
    assert made_by(dotted) == kind


def test_a_wrapper_makes_a_model_of_a_model() -> None:
    assert is_wrapper("torch.compile") and is_wrapper("apex.parallel.DistributedDataParallel")
    assert is_parallel("torch.nn.parallel.DistributedDataParallel")
    assert not is_parallel("apex.parallel.DistributedDataParallel")
    assert not is_wrapper("torch.nn.Sequential")


def test_a_bar_is_known_under_whatever_module() -> None:
    assert is_bar("tqdm.auto.tqdm") and is_bar("rich.progress.track")
    assert not is_bar("enumerate")


def test_calls_that_give_the_model_back_are_seen_through() -> None:
    call = ast.parse("model.to(device).eval()", mode="eval").body
    assert ast.unparse(itself(call)) == "model"
    call = ast.parse("model.parts().eval()", mode="eval").body
    assert ast.unparse(itself(call)) == "model.parts()"
