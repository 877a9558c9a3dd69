"""Checkpoints of sharded runs: any number of processes and any strategy goes on from what another saved."""

import json
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from accel_runtime import Accelerator, FullyShardedDataParallelPlugin
from accel_runtime.errors import CheckpointError
from safetensors.torch import load_file
from torch import nn
from torch.distributed.tensor import DTensor
from torch.utils.data import DataLoader

from tests.distributed.transformer import GLOBAL_BATCH, relative_distance, sentences, small_transformer
from tests.distributed.worlds import in_world


def run(folder=None, save=None, steps=0, strategy="fsdp", wait=True, **plugin):
    """Trains some micro-steps after what was loaded, saves, and tells losses and the whole state."""
    settings = {"fsdp_plugin": FullyShardedDataParallelPlugin(**plugin)} if strategy == "fsdp" else {}
    accelerator = Accelerator(gradient_accumulation_steps=2, **settings)
    torch.manual_seed(3)
    model = small_transformer()
    model.register_buffer("seen", torch.zeros(3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    loader = DataLoader(sentences(), 4, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    if folder is not None:
        assert accelerator.load_state(folder).step >= 0  # who reads the step asks to go on in mid-epoch
    losses, state = [], None
    for (words,) in loader if steps else ():
        with accelerator.accumulate(model):
            guesses = model(words[:, :-1])
            loss = nn.functional.cross_entropy(guesses.flatten(0, 1), words[:, 1:].flatten())
            accelerator.unwrap_model(model).seen += 1
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.item())
        if len(losses) == steps:
            state = finish(accelerator, model, optimizer, save, wait)
            break
    return losses, state or finish(accelerator, model, optimizer, save, wait)


def finish(accelerator, model, optimizer, save, wait):
    state = state_of(accelerator, model, optimizer)
    if save is not None:
        accelerator.save_state(save, wait=wait)
    if not wait:
        accelerator.end_training()  # the checkpoint is there when this returns
    return state


def state_of(accelerator, model, optimizer):
    """Everything as whole tensors in lists, to be compared between processes."""
    whole = accelerator.get_state_dict(model)
    bare = accelerator.unwrap_model(model)
    for name, weight in bare.named_parameters():
        if weight.grad is not None:
            whole[f"gradient of {name}"] = _whole(weight.grad)
        for key, value in optimizer.state.get(weight, {}).items():
            whole[f"{key} of {name}"] = _whole(value)
    return {name: value.tolist() for name, value in whole.items()}


def _whole(tensor):
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def test_two_processes_go_on_to_the_bit_in_the_middle_of_a_window(tmp_path):
    def work():
        control = run(steps=5)
        first = run(steps=3, save=tmp_path / "third")
        rest = run(tmp_path / "third", steps=2)
        return control, first, rest

    for (losses, state), (before, _), (after, reached) in in_world(2, work):
        assert before + after == losses
        assert reached == state and any(name.startswith("gradient of") for name in state)
    files = sorted(path.name for path in (tmp_path / "third").iterdir())
    assert {"shards.json", "shards_0.safetensors", "shards_1.safetensors", "model.json"} <= set(files)
    assert not any(name.startswith("model.safe") or "optimizer.safe" in name for name in files)
    shards = [load_file(tmp_path / "third" / f"shards_{rank}.safetensors") for rank in range(2)]
    sizes = [sum(tensor.nbytes for tensor in shard.values()) for shard in shards]
    assert min(sizes) > 0.9 * max(sizes)


def test_any_number_of_processes_and_any_strategy_loads_what_another_saved(tmp_path):
    chain = [
        (2, {"steps": 3, "save": tmp_path / "a"}),
        (1, {"folder": tmp_path / "a", "save": tmp_path / "b", "wait": False}),
        (3, {"folder": tmp_path / "b", "save": tmp_path / "c", "wait": False}),
        (1, {"folder": tmp_path / "c", "save": tmp_path / "d", "strategy": "ddp"}),
        (2, {"folder": tmp_path / "d", "save": tmp_path / "e", "state_dict_type": "FULL_STATE_DICT"}),
        (2, {"folder": tmp_path / "e", "strategy": "ddp"}),
    ]
    states = [in_world(size, lambda arguments=arguments: run(**arguments)[1]) for size, arguments in chain]
    first = states[0][0]
    assert any(name.startswith("exp_avg_sq of blocks") for name in first) and first["seen"] == [3.0] * 3
    for (size, arguments), found in zip(chain, states):
        assert all(state == first for state in found), (size, arguments)
    merge = [sys.executable, "-m", "accel_runtime", "merge-weights", str(tmp_path / "c"), str(tmp_path / "merged")]
    told = subprocess.run(merge, capture_output=True, text=True, timeout=120, check=True).stdout
    assert told.splitlines() == [str(tmp_path / "merged" / "model.safetensors")]
    for portable in (tmp_path / "e" / "model.safetensors", tmp_path / "merged" / "model.safetensors"):
        weights = load_file(portable)
        assert weights.keys() == {*small_transformer().state_dict(), "seen"}
        assert {name: value.tolist() for name, value in weights.items()} == {name: first[name] for name in weights}


OPTIMIZERS = {
    "AdamW": lambda weights: torch.optim.AdamW(weights, lr=1e-2),
    "SGD": lambda weights: torch.optim.SGD(weights, lr=0.1, momentum=0.9),
}


def script(kind, steps, load=None, save=None, **settings):
    """As scripts do that keep model and optimizer in one file: goes on from it to the step `steps`, and writes it."""
    accelerator = Accelerator(**settings)
    model = small_transformer()
    optimizer = OPTIMIZERS[kind](model.parameters())
    loader = DataLoader(sentences(), GLOBAL_BATCH // accelerator.num_processes)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    done, losses = 0, []
    if load is not None:
        checkpoint = torch.load(load)
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        done = checkpoint["step"]
    for number, (words,) in enumerate(loader):
        if number == steps:
            break
        if number < done:
            continue
        guesses = model(words[:, :-1])
        loss = nn.functional.cross_entropy(guesses.flatten(0, 1), words[:, 1:].flatten())
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(accelerator.reduce(loss.detach(), "mean").item())
    if save is not None:
        state = {"model": accelerator.get_state_dict(model), "optimizer": optimizer.state_dict(), "step": steps}
        accelerator.save(state, save)
        accelerator.wait_for_everyone()
    return losses


def fsdp_script(*arguments, **settings):
    return script(*arguments, fsdp_plugin=FullyShardedDataParallelPlugin(), **settings)


@pytest.mark.parametrize("stop", [0, 3])
@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_a_script_goes_on_from_its_own_file_of_model_and_optimizer(tmp_path, kind, stop):
    file, plain = tmp_path / "sharded.pt", tmp_path / "plain.pt"

    def on_two():
        whole = fsdp_script(kind, 6)
        return whole, fsdp_script(kind, stop, save=file), fsdp_script(kind, 6, load=file)

    for whole, before, after in in_world(2, on_two):
        assert len(whole) == 6 and before + after == whole
    script(kind, stop, save=plain, cpu=True)
    assert_alike(torch.load(file)["optimizer"], torch.load(plain)["optimizer"])
    for go_on in (lambda: script(kind, 6, load=file, cpu=True), lambda: fsdp_script(kind, 6, load=file)):
        (rest,) = in_world(1, go_on)
        assert relative_distance(rest, whole[stop:]) < 1e-4


def assert_alike(found, expected):
    """Two states of an optimizer: the same keys in the same order, and nearly the same numbers."""
    assert found["param_groups"] == expected["param_groups"]
    assert list(found["state"]) == list(expected["state"])
    for number, state in expected["state"].items():
        assert list(found["state"][number]) == list(state)
        for name, value in state.items():
            own = found["state"][number][name]
            assert type(own) is type(value)
            if isinstance(value, torch.Tensor):
                assert own.dtype == value.dtype
                torch.testing.assert_close(own, value, rtol=1e-3, atol=1e-6)


def test_damage_and_other_models_are_refused_before_anything_changes(tmp_path):
    def damaged(name, change):
        folder = tmp_path / f"without {name}"
        if not folder.exists():
            shutil.copytree(tmp_path / "whole", folder)
            change(folder / name)
        return folder

    def flip(path):
        content = bytearray(path.read_bytes())
        content[-5] ^= 1
        path.write_bytes(content)

    def work():
        accelerator = Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin())
        model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1))
        model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters()))
        accelerator.backward(model(torch.ones(1, 3)).sum())
        optimizer.step()
        accelerator.save_state(tmp_path / "whole")
        with torch.no_grad():
            for weight in model.parameters():
                weight += 1
        before = accelerator.get_state_dict(model)
        folders = []
        if accelerator.is_main_process:
            folders = [damaged(f"shards_{rank}.safetensors", flip) for rank in range(2)]
            folders += [damaged("shards.json", Path.unlink)]
        for folder in accelerator.gather_object(folders):
            with pytest.raises(CheckpointError, match=folder.name.removeprefix("without ")):
                accelerator.load_state(folder)
        other = Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin())
        stranger = nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 1))
        other.prepare(stranger, torch.optim.AdamW(stranger.parameters()))
        with pytest.raises(CheckpointError, match=r"0.weight was \(4, 3\) and is \(5, 3\); nothing was changed"):
            other.load_state(tmp_path / "whole")
        after = accelerator.get_state_dict(model)
        return all(torch.equal(before[name], after[name]) for name in before)

    assert in_world(2, work) == [True, True]


class Payload:
    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return Path.touch, (self.mark,)


def test_a_payload_in_place_of_any_file_never_runs(tmp_path):
    mark = tmp_path / "ran"

    def work():
        accelerator = Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin())
        model = accelerator.prepare(nn.Linear(3, 4))
        accelerator.save_state(tmp_path / "whole")
        refused = []
        for path in sorted((tmp_path / "whole").iterdir()):
            folder = tmp_path / f"planted in {path.name}"
            shutil.copytree(tmp_path / "whole", folder)
            (folder / path.name).write_bytes(pickle.dumps(Payload(mark)))
            _mend_manifest(folder)
            with pytest.raises(CheckpointError):
                accelerator.load_state(folder)
            refused.append(path.name)
        return refused, model.weight.full_tensor().shape

    ((refused, _),) = in_world(1, work)
    assert {"shards.json", "shards_0.safetensors", "model.json", "rank_0.json"} <= set(refused)
    assert not mark.exists()


def _mend_manifest(folder):
    """As somebody would who can write to the folder: sizes and digests are those of the planted file."""
    from accel_runtime.checkpoint.manifest import read_manifest, write_manifest
    from accel_runtime.checkpoint.tensors import digest_of

    try:
        manifest = read_manifest(folder)
    except CheckpointError:
        return  # the manifest itself was replaced
    files = tuple(digest_of(folder / file.name) for file in manifest.files)
    write_manifest(folder, type(manifest)(**{**_fields(manifest), "files": files}))


def _fields(manifest):
    return {name: getattr(manifest, name) for name in manifest.__dataclass_fields__}


def test_an_average_of_sharded_weights_is_registered_and_comes_back_sharded(tmp_path):
    class Average:
        def __init__(self, model):
            self.shadow = [weight.detach().clone() for weight in model.parameters()]
            self.decay = 0.5

        def update(self, model):
            for average, weight in zip(self.shadow, model.parameters()):
                average.lerp_(weight.detach(), self.decay)

        def state_dict(self):
            return {"shadow": self.shadow, "decay": self.decay}

        def load_state_dict(self, state):
            self.shadow, self.decay = state["shadow"], state["decay"]

    def work():
        accelerator = Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin())
        model = accelerator.prepare(nn.Linear(3, 5))
        average = Average(model)
        accelerator.register_for_checkpointing(average)
        with torch.no_grad():
            model.weight.add_(1)
        average.update(model)
        before = [_whole(tensor) for tensor in average.shadow]
        accelerator.save_state(tmp_path / "here")
        average.shadow = [tensor * 0 for tensor in average.shadow]
        accelerator.load_state(tmp_path / "here")
        assert all(isinstance(tensor, DTensor) for tensor in average.shadow)
        same = all(torch.equal(_whole(tensor), other) for tensor, other in zip(average.shadow, before))
        average.update(model)
        return same

    assert in_world(2, work) == [True, True]


def test_hooks_take_models_out_on_the_main_process_and_put_them_back_on_all(tmp_path):
    def work():
        accelerator = Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin())
        first, second = nn.Linear(2, 3), nn.Linear(3, 2)
        accelerator.prepare(first, second)
        kept = accelerator.get_state_dict(second)

        def save(models, weights, folder):
            if accelerator.is_main_process:
                torch.save(kept, Path(folder) / "second.pt")
                weights.pop()

        def load(models, folder):
            models.pop().load_state_dict(torch.load(Path(folder) / "second.pt"))

        accelerator.register_save_state_pre_hook(save)
        accelerator.register_load_state_pre_hook(load)
        expected = [accelerator.get_state_dict(model) for model in (first, second)]
        accelerator.save_state(tmp_path / "here")
        with torch.no_grad():
            for model in (first, second):
                model.weight.zero_()
        accelerator.load_state(tmp_path / "here")
        found = [accelerator.get_state_dict(model) for model in (first, second)]
        return [torch.equal(one["weight"], other["weight"]) for one, other in zip(found, expected)]

    assert in_world(2, work) == [[True, True]] * 2


def test_shards_are_not_saved_apart_on_each_machine(tmp_path):
    from accel_runtime.utils import ProjectConfiguration

    def work():
        project = ProjectConfiguration(save_on_each_node=True)
        accelerator = Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin(), project_config=project)
        accelerator.prepare(nn.Linear(2, 2))
        with pytest.raises(CheckpointError, match="shards of one checkpoint must lie in one folder"):
            accelerator.save_state(tmp_path / "here")
        return json.dumps(sorted(path.name for path in tmp_path.iterdir()))

    assert in_world(1, work) == ["[]"]
