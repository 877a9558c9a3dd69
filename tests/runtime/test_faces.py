"""The places that scripts import from."""

import importlib
import os
import subprocess
import sys

import accel_runtime
import pytest
import torch
from accel_runtime import Accelerator, utils
from accel_runtime.errors import UsageError
from accel_runtime.optimizer import AcceleratedOptimizer


@pytest.mark.parametrize("face", [accel_runtime, utils], ids=lambda face: face.__name__)
def test_every_name_is_there(face):
    assert [name for name in face.__all__ if not hasattr(face, name)] == []


def test_a_name_of_the_peer_that_is_not_here_says_what_to_use():
    with pytest.raises(ImportError, match="strategy fsdp or deepspeed"):
        from accel_runtime import MegatronLMPlugin  # noqa: F401
    with pytest.raises(AttributeError, match="no attribute 'Accelerater'"):
        _ = accel_runtime.Accelerater


def test_the_package_alone_brings_no_torch():
    code = "import accel_runtime, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_the_version_is_that_of_the_api_and_compares():
    from torch.torch_version import TorchVersion

    version = TorchVersion(accel_runtime.__version__)
    assert version >= "1.15.0" and version < "1.16"
    assert "+accel." in accel_runtime.__version__


MODULES = (
    "big_modeling:init_empty_weights,dispatch_model,load_checkpoint_and_dispatch",
    "data_loader:DataLoaderShard,DataLoaderDispatcher,BatchSamplerShard,IterableDatasetShard,skip_first_batches",
    "hooks:AlignDevicesHook,ModelHook,add_hook_to_module",
    "launchers:notebook_launcher,debug_launcher",
    "optimizer:AcceleratedOptimizer",
    "scheduler:AcceleratedScheduler",
    "memory_utils:find_executable_batch_size",
    "state:PartialState,AcceleratorState,GradientState,is_initialized",
    "utils.constants:MODEL_NAME,FSDP_AUTO_WRAP_POLICY",
    "utils.deepspeed:DummyOptim,DummyScheduler",
    "utils.tqdm:tqdm",
    "utils.dataclasses:DistributedType,ProjectConfiguration,LoggerType",
    "utils.environment:patch_environment,parse_flag_from_env,str_to_bool",
    "utils.imports:is_npu_available,is_schedulefree_available,is_4bit_bnb_available,is_bf16_available",
    "utils.memory:find_executable_batch_size,release_memory,should_reduce_batch_size",
    "utils.modeling:get_balanced_memory,set_module_tensor_to_device",
    "utils.offload:OffloadedWeightsLoader,offload_state_dict",
    "utils.operations:gather,send_to_device",
    "utils.other:is_compiled_module,extract_model_from_parallel,save",
    "utils.random:set_seed",
    "utils.versions:compare_versions,is_torch_version",
)


@pytest.mark.parametrize("place", MODULES)
def test_names_are_where_scripts_import_them(place):
    module, _, names = place.partition(":")
    face = importlib.import_module(f"accel_runtime.{module}")
    assert [name for name in names.split(",") if not hasattr(face, name)] == []


@pytest.mark.parametrize(
    ("module", "name", "instead"),
    [
        ("state", "ThreadLocalSharedDict", "ask PartialState"),
        ("utils", "MegatronLMPlugin", "Megatron-LM"),
        ("data_loader", "MpDeviceLoaderWrapper", "prepare"),
    ],
)
def test_what_is_not_here_says_so_at_the_place_where_scripts_import_it(module, name, instead):
    face = importlib.import_module(f"accel_runtime.{module}")
    with pytest.raises(ImportError, match=f"accel_runtime.{module} has no {name}: .*{instead}"):
        getattr(face, name)
    assert not hasattr(face, "no_such_name")


def test_questions_about_what_is_installed_take_the_arguments_of_accelerate():
    assert utils.is_npu_available(check_device=True) is False
    assert utils.is_torch_xla_available(check_is_tpu=True) in (False, True)
    assert utils.is_megatron_lm_available() is False
    assert utils.is_bf16_available() is True
    assert utils.is_torch_version(">=", "2.6") and not utils.compare_versions("torch", "<", "2.0")


def test_the_state_is_logged_as_scripts_do():
    accelerator = Accelerator(cpu=True, mixed_precision="bf16")
    lines = str(accelerator.state).splitlines()
    assert lines == [
        "Distributed environment: NO",
        "Num processes: 1",
        "Process index: 0",
        "Local process index: 0",
        "Device: cpu",
        "",
        "Mixed precision type: bf16",
    ]
    assert repr(accel_runtime.PartialState(cpu=True)).splitlines() == lines[:5]


def test_native_amp_is_set_to_what_it_is_or_refused():
    accelerator = Accelerator(cpu=True)
    accelerator.native_amp = False
    with pytest.raises(UsageError, match="contradicts mixed_precision='bf16'"):
        Accelerator(cpu=True, mixed_precision="bf16").native_amp = False


def test_small_tools_of_accelerate(tmp_path, monkeypatch):
    monkeypatch.setenv("KEPT", "before")
    with utils.patch_environment(kept="inside", other=1):
        assert (os.environ["KEPT"], os.environ["OTHER"]) == ("inside", "1")
    assert os.environ["KEPT"] == "before" and "OTHER" not in os.environ
    with utils.clear_environment():
        assert "KEPT" not in os.environ
        os.environ["OTHER"] = "inside"
    assert os.environ["KEPT"] == "before" and "OTHER" not in os.environ
    assert utils.write_basic_config("bf16", tmp_path / "config.yaml") == tmp_path / "config.yaml"
    assert "mixed_precision: bf16" in (tmp_path / "config.yaml").read_text()
    assert utils.write_basic_config("no", tmp_path / "config.yaml") is False
    utils.save({"a": torch.ones(1)}, tmp_path / "a.pt")
    assert utils.load(tmp_path / "a.pt")["a"].item() == 1
    assert utils.merge_dicts({"a": {"b": 1}}, {"a": {"c": 2}}) == {"a": {"b": 1, "c": 2}}
    assert utils.is_peft_model(torch.nn.Linear(1, 1)) is False
    prepared = Accelerator(cpu=True).prepare(torch.optim.SGD(torch.nn.Linear(1, 1).parameters(), lr=0.1))
    assert isinstance(prepared, AcceleratedOptimizer)


def test_what_libraries_import_ahead_is_refused_when_it_is_called():
    from accel_runtime import ParallelismConfig
    from accel_runtime.parallelism_config import ParallelismConfig as same
    from accel_runtime.utils import save_fsdp_model

    assert ParallelismConfig is same and not isinstance(1, ParallelismConfig)
    with pytest.raises(NotImplementedError, match="parallelism are not here"):
        ParallelismConfig(tp_size=2)
    with pytest.raises(NotImplementedError, match="save_state"):
        save_fsdp_model(None)
