"""AM702: DistributedDataParallel, DataParallel and `.module`."""

from __future__ import annotations

from pathlib import Path

import pytest
from accel_migrate.settings import DEFAULTS

from tests.migrate.rules.handwritten import script
from tests.migrate.rules.scripts import training
from tests.migrate.rules.verbs import ACCELERATE, migrated, noted, notes, unchanged


def test_wrapper_goes_and_the_model_stays():
    assert "model = nn.Linear(2, 1)\n" in migrated(script())


def test_a_statement_that_only_wraps_goes():
    text = migrated(script().replace("DDP(nn.Linear(2, 1).cuda())", "nn.Linear(2, 1)\n        model = DDP(model)"))
    assert text.count("model = ") == 1


def test_settings_are_handed_on():
    text = migrated(script(wrapper=", device_ids=[0], bucket_cap_mb=4"))
    assert "kwargs_handlers=[DistributedDataParallelKwargs(bucket_cap_mb=4)]" in text
    assert "from accel_runtime import Accelerator, DistributedDataParallelKwargs" in text


def test_what_a_wrapper_is_told_of_forwards_to_come_goes_with_it():
    source = script(wrapper=", find_unused_parameters=True, broadcast_buffers=False")
    assert "[DistributedDataParallelKwargs(broadcast_buffers=False)]" in migrated(source)
    told = "find_unused_parameters=True, broadcast_buffers=False"
    assert f"DistributedDataParallelKwargs({told})" in " ".join(migrated(source, ACCELERATE).split())
    alone = migrated(script(wrapper=", find_unused_parameters=True"))
    assert "Accelerator()" in alone and "DistributedDataParallelKwargs" not in alone


def test_a_static_graph_may_have_several_gradients_of_a_weight_and_is_handed_on():
    source = script(wrapper=", find_unused_parameters=True, static_graph=True")
    assert "[DistributedDataParallelKwargs(static_graph=True)]" in migrated(source)


def test_module_goes_with_the_wrapper_of_a_model_that_nothing_trains():
    teacher = "teacher = DDP(nn.Linear(2, 2).cuda())"
    source = script(body="teacher.module.report()\n            torch.save(teacher.module.state_dict(), 'teacher.pt')")
    source = source.replace("optimizer = ", f"{teacher}\n        optimizer = ")
    source = source.replace("model(x.cuda())", "model(teacher.module.start(x.cuda()).detach())")
    text = migrated(source)
    assert ".module" not in text and "teacher.report()" in text and "teacher.start(" in text
    assert "accelerator.save(teacher.state_dict(), 'teacher.pt')" in text


def two_wrappers(told: str, of_second: str) -> str:
    second = f"judge = DDP(nn.Linear(2, 2).cuda(){of_second})"
    return (
        script(wrapper=told)
        .replace("optimizer = ", f"{second}\n        other = torch.optim.SGD(judge.parameters())\n        optimizer = ")
        .replace("model(x.cuda())", "model(judge(x.cuda()))")
        .replace("optimizer.step()", "optimizer.step()\n                other.step()")
    )


def test_what_one_wrapper_is_told_does_not_hold_for_another():
    for first, second in (
        ("", ", broadcast_buffers=False"),
        (", broadcast_buffers=False", ""),
        (", static_graph=True", ""),
    ):
        assert "is not the same wherever a model" in unchanged(two_wrappers(first, second))
    alike = migrated(two_wrappers(", broadcast_buffers=False", ", broadcast_buffers=False, bucket_cap_mb=4"))
    assert "DistributedDataParallelKwargs(broadcast_buffers=False, bucket_cap_mb=4)" in " ".join(alike.split())
    assert "broadcast_buffers=True" in migrated(two_wrappers("", ", broadcast_buffers=True"))
    for target in ((), (ACCELERATE,)):
        searched = migrated(two_wrappers("", ", find_unused_parameters=True"), *target)
        assert ("DistributedDataParallelKwargs(find_unused_parameters=True)" in searched) == bool(target)


def test_a_setting_without_counterpart_leaves_the_loop():
    assert "process_group" in unchanged(script(wrapper=", process_group=half"))


def test_settings_that_are_unpacked_leave_the_loop_with_a_reason_that_can_be_read():
    source = script(wrapper=", **settings")
    assert "the settings of DistributedDataParallel() in `settings` are not visible" in unchanged(source)


def test_module_after_prepare_is_unwrapped():
    source = script(body="model.module.report()")
    assert "    model.report()\n" in migrated(source)
    assert "accelerator.unwrap_model(model).report()" in migrated(source, ACCELERATE)


def test_module_of_a_parameter_is_unwrapped_where_the_function_only_saves():
    source = script(body="keep(model, True)") + KEEP
    for text in (migrated(source, ACCELERATE), migrated(source)):
        assert "def keep(net, several, accelerator):" in text
        assert "net = accelerator.unwrap_model(net)" in text, "`several` would have no reader else"
    text = migrated(source.replace("net = net.module", "bare = net.module").replace("(net.state", "(bare.state"))
    assert "bare = net\n" in text and "unwrap_model" not in text


def test_a_state_of_either_model_is_collected_under_its_name():
    kept = (
        'if dist.get_rank() == 0:\n                torch.save((model.module if wide else model).state_dict(), "m.pt")'
    )
    text = migrated(script(body=kept))
    assert "model_state = accelerator.get_state_dict(model)\n" in text
    assert 'accelerator.save((model_state), "m.pt")' in text or 'accelerator.save(model_state, "m.pt")' in text


KEEP = """
    def keep(net, several):
        if several:
            net = net.module
        torch.save(net.state_dict(), "net.pt")
"""


def test_gradients_are_deferred_by_the_accelerator():
    body = "with model.no_sync():\n                model(x).sum().backward()"
    for target in (DEFAULTS, ACCELERATE):
        assert "with accelerator.no_sync(model):\n" in migrated(script(body=body), target)
    assert "`model.no_sync`" in unchanged(script(body="later = model.no_sync"))


def test_says_that_nothing_reads_whether_gradients_are_due():
    source = script(body="model.require_backward_grad_sync = False")
    assert "accelerator.no_sync(model)" in noted(source, "AM702")
    assert not [note for note in notes(source, ACCELERATE) if "no_sync" in note]
    assert not [note for note in notes(script(body="other.require_backward_grad_sync = False")) if "no_sync" in note]


def test_module_before_prepare_is_the_model():
    text = migrated(
        script().replace("        optimizer = torch", "        model.module.freeze()\n        optimizer = torch")
    )
    assert "    model.freeze()\n" in text


def test_module_that_is_asked_for_first_stays():
    text = migrated(script(body='bare = model.module if hasattr(model, "module") else model'))
    assert 'model.module if hasattr(model, "module") else model' in text


def test_what_data_parallel_changes_is_said():
    source = """
        import torch
        from torch import nn

        loader = torch.utils.data.DataLoader(data(), batch_size=4)
        model = nn.DataParallel(nn.Linear(2, 1)).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x.cuda()), y.cuda())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """
    assert "DataParallel split one batch" in noted(source, "AM801")
    assert "DataParallel" not in " ".join(notes(source)).replace("DataParallel", "", 1)
    assert "model = nn.Linear(2, 1)\n" in migrated(source)


def test_nothing_is_assigned_to_itself():
    source = script(body="pass").replace(
        "model = DDP(nn.Linear(2, 1).cuda())", "model = nn.Linear(2, 1)\n        model = DDP(model.cuda())"
    )
    assert "model = model" not in migrated(source).replace("model, ", "")


def test_the_model_of_a_trainer_is_no_part_of_a_model() -> None:
    source = Path("fixtures/ddp_trainer_class/before.py").read_text()
    source = source.replace("= DDP(model,", "= DDP(self.model,")
    assert "DDP" not in migrated(source)
    assert "lose the `module.`" not in " ".join(notes(source))


def test_comments_of_what_goes_go_with_it_also_behind_a_blank_line():
    source = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.Linear(4, 1)

# Move to GPU

model = model.to(device)

# Handle multi-gpu if desired
if device.type == "cuda" and torch.cuda.device_count() > 1:
    model = nn.DataParallel(model)

# The rest

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(40, 4), torch.randn(40, 1)), batch_size=8)
for x, y in loader:
    loss = nn.functional.mse_loss(model(x.to(device)), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
    assert "model = nn.Linear(4, 1)\n\n# The rest\n\noptimizer" in migrated(source)
    head = "head = nn.Linear(1, 1).to(device)\n"
    both = source.replace("\n# Move", head + "\n# Move").replace(
        "\n\n# The", "\n    head = nn.DataParallel(head)\n\n# The"
    )
    both = both.replace("(model(x", "(head(model(x").replace("device)), y", "device))), y")
    both = both.replace("model.parameters()", "[*model.parameters(), *head.parameters()]")
    assert "multi-gpu" not in migrated(both)


@pytest.mark.parametrize(
    ("layer", "settled", "said"),
    [
        ("nn.BatchNorm1d(2)", "pass", True),
        ("nn.LayerNorm(2)", "pass", False),
        ("nn.BatchNorm1d(2)", "nn.SyncBatchNorm.convert_sync_batchnorm(model)", False),
    ],
)
def test_names_the_buffers_of_a_model_that_nothing_prepares(layer: str, settled: str, said: bool) -> None:
    teacher = f"teacher = DDP(nn.Sequential(nn.Linear(2, 1), {layer}).cuda())\n        model ="
    source = script(start=settled).replace("model =", teacher, 1).replace("y.cuda())", "teacher(x.cuda()).detach())")
    told = [note for note in notes(source) if note.startswith("nothing prepares this model, so no wrapper")]
    assert len(told) == said
    assert "teacher = nn.Sequential" in migrated(source)
    trained = script().replace("nn.Linear(2, 1)", f"nn.Sequential(nn.Linear(2, 1), {layer})")  # prepare wraps it
    assert not [note for note in notes(trained) if note.startswith("nothing prepares this model")]


def test_a_forward_that_splits_its_batch_over_gpus_is_told():
    net = "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.main = nn.Linear(3, 2)\n"
    net += "    def forward(self, x):\n        if x.is_cuda and count > 1:\n"
    net += "            return nn.parallel.data_parallel(self.main, x, range(count))\n        return self.main(x)\n"
    source = training(functions=f"count = 1\n{net}").replace("model = nn.Linear(3, 2)", "model = Net()")
    line = next(n for n, text in enumerate(source.lstrip().splitlines(), 1) if "data_parallel(" in text)
    assert f"data_parallel (line {line}) spreads a batch over GPUs" in noted(source, "AM702")
