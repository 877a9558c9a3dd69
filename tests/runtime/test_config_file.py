"""Config files: found in order, checked, written small; the peer's are understood."""

from __future__ import annotations

from pathlib import Path

import pytest
from accel_runtime.config_file import config_files, read_config, write_config
from accel_runtime.errors import ConfigError


def test_project_before_user_and_a_named_file_in_place_of_the_project(tmp_path: Path) -> None:
    environ = {"XDG_CONFIG_HOME": str(tmp_path / "home")}
    assert config_files(environ, tmp_path) == []
    write_config(tmp_path / "home" / "accel" / "config.yaml", {"cpu": True})
    write_config(tmp_path / "accel.yaml", {"num_processes": 2})
    write_config(tmp_path / "other.yaml", {"num_processes": 3})
    assert [file.values for file in config_files(environ, tmp_path)] == [{"num_processes": 2}, {"cpu": True}]
    named = {**environ, "ACCEL_CONFIG": str(tmp_path / "other.yaml")}
    assert [file.values for file in config_files(named, tmp_path)] == [{"num_processes": 3}, {"cpu": True}]
    with pytest.raises(ConfigError, match=r"gone\.yaml: there is no such config file"):
        config_files({"ACCEL_CONFIG": "gone.yaml"}, tmp_path)


def test_what_is_written_is_read_back_as_a_person_would_write_it(tmp_path: Path) -> None:
    path = tmp_path / "accel.yaml"
    write_config(path, {"num_processes": "4", "num_machines": "2", "wrap_layers": "A,B", "mixed_precision": "no"})
    lines = path.read_text().splitlines()[1:]
    assert lines == ["num_processes: 4", "num_machines: 2", "wrap_layers:", "- A", "- B", "mixed_precision: 'no'"]
    assert read_config(path).values["wrap_layers"] == ["A", "B"]


def test_a_bad_value_is_never_written(tmp_path: Path) -> None:
    write_config(tmp_path / "accel.yaml", {"num_processes": 2})
    with pytest.raises(ConfigError, match="expected a whole number"):
        write_config(tmp_path / "accel.yaml", {"num_processes": "two"})
    assert read_config(tmp_path / "accel.yaml").values == {"num_processes": 2}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty; delete it"),
        ("# only a comment\n", "is empty; delete it"),
        ("- 1\n- 2\n", "holds a list, expected keys with values"),
        ("num_processes: 2\nmixed: [1\n", ":3: is not YAML"),
        ("num_processes: two\n", "num_processes is 'two', expected a whole number"),
        ("num_proceses: 2\n", "unknown key 'num_proceses'; did you mean num_processes?"),
        ("a: !!python/object/apply:os.getcwd []\n", "is not YAML"),
        ("distributed_type: MULTI_GPUU\n", "distributed_type is 'MULTI_GPUU', expected one of"),
        ("distributed_type: 'NO'\nnum_procs: 2\n", "unknown key 'num_procs'; did you mean num_processes?"),
        (
            "distributed_type: MULTI_GPU\nfp8_config: {backend: TE}\n",
            "fp8_config: pass kwargs_handlers=[TERecipeKwargs",
        ),
        (
            "compute_environment: AMAZON_SAGEMAKER\nec2_instance_type: x\n",
            "ec2_instance_type: a job of SageMaker is started with its own tools",
        ),
        (
            "distributed_type: MULTI_GPU\nmegatron_lm_config: {a: 1}\n",
            "megatron_lm_config: Megatron-LM, with its tensor",
        ),
    ],
)
def test_a_bad_file_is_one_line_that_names_it(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "accel.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as refused:
        read_config(path)
    said = str(refused.value)
    assert said.startswith(str(path)) and message in said and "\n" not in said


def test_a_file_of_the_peer_is_understood_and_what_it_does_not_mean_here_is_noted(tmp_path: Path) -> None:
    path = tmp_path / "default_config.yaml"
    path.write_text(
        "compute_environment: LOCAL_MACHINE\n"
        "distributed_type: FSDP\n"
        "downcast_bf16: 'no'\n"
        "machine_rank: 0\n"
        "main_training_function: main\n"
        "mixed_precision: bf16\n"
        "num_machines: 2\n"
        "num_processes: 8\n"
        "gpu_ids: all\n"
        "use_cpu: false\n"
        "main_process_ip: 10.0.0.1\n"
        "main_process_port: 29501\n"
        "dynamo_config:\n  dynamo_backend: INDUCTOR\n"
        "fsdp_config:\n"
        "  fsdp_sharding_strategy: SHARD_GRAD_OP\n"
        "  fsdp_transformer_layer_cls_to_wrap: Block,Head\n"
        "  fsdp_state_dict_type: SHARDED_STATE_DICT\n"
        "megatron_lm_config: {}\n"
    )
    found = read_config(path)
    assert found.values == {
        "strategy": "fsdp",
        "machine_rank": 0,
        "mixed_precision": "bf16",
        "num_machines": 2,
        "num_processes": 8,
        "cpu": False,
        "main_process_ip": "10.0.0.1",
        "main_process_port": 29501,
        "dynamo_backend": "inductor",
        "reshard_after_forward": False,
        "wrap_layers": "Block,Head",
    }
    (note,) = found.notes
    unused = "compute_environment, downcast_bf16, main_training_function, fsdp_config.fsdp_state_dict_type"
    assert note.endswith(f"without meaning here: {unused}")


def test_deepspeed_settings_of_the_peer(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(
        "distributed_type: DEEPSPEED\n"
        "num_processes: -1\n"
        "deepspeed_config:\n"
        "  zero_stage: 3\n"
        "  offload_optimizer_device: cpu\n"
        "  offload_param_device: none\n"
        "  gradient_clipping: auto\n"
        "  gradient_accumulation_steps: 4\n"
    )
    values = {"strategy": "deepspeed", "zero_stage": 3, "cpu_offload": True, "gradient_accumulation_steps": 4}
    assert read_config(path).values == values


def test_a_payload_in_a_config_file_never_runs(tmp_path: Path) -> None:
    trace = tmp_path / "ran"
    for call in (f"python/object/apply:os.mkdir ['{trace}']", f"python/object/new:os.mkdir ['{trace}']"):
        (tmp_path / "accel.yaml").write_text(f"num_processes: !!{call}\n")
        with pytest.raises(ConfigError, match=r"accel\.yaml"):
            read_config(tmp_path / "accel.yaml")
    assert not trace.exists()
