"""Accelerate's names for the launcher and for config files, over our own."""

import subprocess
import sys

import pytest
import yaml
from accel_runtime.commands import launch
from accel_runtime.commands.config import ClusterConfig, SageMakerConfig, load_config_from_file
from accel_runtime.commands.estimate import estimate_training_usage
from accel_runtime.commands.test import test_command_parser as parser_of_test
from accel_runtime.commands.to_fsdp2 import convert_config_to_fsdp2, to_fsdp2_command, to_fsdp2_command_parser
from accel_runtime.config_file import read_config
from accel_runtime.errors import ConfigError


@pytest.fixture
def started(monkeypatch):
    """The command lines that would have been run."""
    lines = []
    monkeypatch.setattr(subprocess, "run", lambda line, check: lines.append(line))
    return lines


def test_flags_are_taken_with_underscores_and_with_hyphens(started):
    parser = launch.launch_command_parser()
    args = parser.parse_args(
        ["--num_processes", "2", "--mixed-precision", "bf16", "--use_fsdp", "--gpu_ids", "0,1", "train.py", "--lr", "1"]
    )
    assert (args.num_processes, args.use_fsdp, args.multi_gpu) == (2, True, False)
    launch.launch_command(args)
    (line,) = started
    assert line[:4] == [sys.executable, "-m", "accel_runtime", "launch"]
    assert sorted(line[4:-3]) == sorted(
        ["--num-processes", "2", "--mixed-precision", "bf16", "--use-fsdp", "--gpu-ids", "0,1"]
    )
    assert line[-3:] == ["train.py", "--lr", "1"]


def test_help_has_one_spelling_of_each_flag():
    text = launch.launch_command_parser().format_help()
    assert "--mixed_precision" in text and "--mixed-precision" not in text


def test_a_config_file_that_cannot_be_read_is_refused_before_anything_starts(started, tmp_path):
    file = tmp_path / "wrong.yaml"
    file.write_text("distributed_type: MULTI_GPU\ncolour: red\n")
    with pytest.raises(ConfigError, match="unknown key 'colour'"):
        launch.launch_command(launch.launch_command_parser().parse_args(["--config_file", str(file), "train.py"]))
    assert started == []


def test_a_launched_script_runs_and_its_failure_is_raised(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("import sys; sys.exit(3)")
    with pytest.raises(subprocess.CalledProcessError):
        launch.launch_command(launch.launch_command_parser().parse_args(["--cpu", str(script)]))


def test_what_a_config_file_says_is_filled_in_where_flags_say_nothing(tmp_path):
    file = tmp_path / "cluster.yaml"
    file.write_text(
        "distributed_type: NO\nnum_processes: 1\ndebug: true\nfsdp_config: {fsdp_sync_module_states: false}\n"
    )
    args = launch.launch_command_parser().parse_args(["--num_processes", "2", "--config_file", str(file), "train.py"])
    filled, found, precision_said = launch._validate_launch_command(args)
    assert (filled.num_processes, filled.debug, filled.fsdp_sync_module_states) == (2, True, False)
    assert isinstance(found, ClusterConfig) and not precision_said


def test_the_self_test_is_started_by_its_name(started):
    args = parser_of_test().parse_args(["--config-file", "here.yaml"])
    args.func(args)
    assert started == [[sys.executable, "-m", "accel_runtime", "test", "--config-file", "here.yaml"]]


def test_a_cluster_config_is_written_as_it_is_read_by_the_launcher(tmp_path):
    config = ClusterConfig("LOCAL_MACHINE", "FSDP", "bf16", use_cpu=False, debug=True, num_processes=4)
    config.fsdp_config = {"fsdp_offload_params": True}
    for name in ("config.yaml", "config.json"):
        file = tmp_path / name
        (config.to_json_file if name.endswith("json") else config.to_yaml_file)(file)
        assert load_config_from_file(file) == config
        values = read_config(file).values
        assert values["strategy"] == "fsdp" and values["cpu_offload"] and values["num_processes"] == 4


def test_files_of_older_versions_are_read(tmp_path):
    file = tmp_path / "old.yaml"
    file.write_text("distributed_type: NO\nfp16: true\ndynamo_backend: INDUCTOR\n")
    config = load_config_from_file(file)
    assert config.mixed_precision == "fp16" and config.dynamo_config == {"dynamo_backend": "INDUCTOR"}
    assert config.num_processes == 1
    file.write_text("distributed_type: NO\ncolour: red\n")
    with pytest.raises(ConfigError, match=r"old\.yaml: unknown keys colour"):
        load_config_from_file(file)
    file.write_text("compute_environment: LOCAL_MACHINE\n")
    with pytest.raises(ConfigError, match="distributed_type"):
        load_config_from_file(file)
    with pytest.raises(FileNotFoundError, match="accel config"):
        load_config_from_file(tmp_path / "none.yaml")


def test_our_own_file_is_shown_in_accelerates_keys(tmp_path):
    file = tmp_path / "accel.yaml"
    file.write_text("num_processes: 2\nmixed_precision: bf16\nstrategy: fsdp\n")
    config = load_config_from_file(file)
    assert (config.distributed_type, config.num_processes, config.mixed_precision) == ("FSDP", 2, "bf16")


def test_a_file_for_sagemaker_is_read(tmp_path):
    file = tmp_path / "job.yaml"
    file.write_text(
        "compute_environment: AMAZON_SAGEMAKER\ndistributed_type: NO\nec2_instance_type: ml.p3\niam_role_name: me\n"
    )
    config = load_config_from_file(file)
    assert isinstance(config, SageMakerConfig) and config.ec2_instance_type == "ml.p3"


def test_settings_of_fsdp1_are_put_into_the_keys_of_fsdp2(tmp_path, caplog):
    before = {
        "distributed_type": "FSDP",
        "fsdp_config": {
            "fsdp_sharding_strategy": "SHARD_GRAD_OP",
            "fsdp_use_orig_params": True,
            "fsdp_offload_params": False,
        },
    }
    after = convert_config_to_fsdp2(before)
    assert after["fsdp_config"] == {
        "fsdp_reshard_after_forward": False,
        "fsdp_offload_params": False,
        "fsdp_version": 2,
    }
    assert "fsdp_use_orig_params says nothing to FSDP2" in caplog.text
    assert convert_config_to_fsdp2(after) is after and convert_config_to_fsdp2({"debug": True}) == {"debug": True}

    file, result = tmp_path / "one.yaml", tmp_path / "two.yaml"
    file.write_text(yaml.safe_dump(before))
    line = ["--config_file", str(file)]
    with pytest.raises(ConfigError, match="--output_file"):
        to_fsdp2_command(to_fsdp2_command_parser().parse_args(line))
    to_fsdp2_command(to_fsdp2_command_parser().parse_args([*line, "--output_file", str(result)]))
    with pytest.raises(FileExistsError):
        to_fsdp2_command(to_fsdp2_command_parser().parse_args([*line, "--output_file", str(result)]))
    assert yaml.safe_load(result.read_text()) == after
    # Both are the same to this runtime.
    assert read_config(file).values == read_config(result).values


def test_a_training_with_adam_needs_four_times_the_weights():
    assert max(estimate_training_usage(100, "float32").values()) == 400
    assert max(estimate_training_usage(100, "float16").values()) == 200
    assert max(estimate_training_usage(100, "int8").values()) == -1
