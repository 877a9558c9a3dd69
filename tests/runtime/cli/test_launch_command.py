"""`accel launch` as it is typed: bad input answered in one line, the script's own flags left alone."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest
from accel_runtime.cli import accel
from accel_runtime.cli.flags import HELP
from accel_runtime.errors import AccelError
from accel_runtime.options import Settings
from click.testing import CliRunner


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty project, out of reach of the developer's own config."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    (tmp_path / "train.py").write_text("import sys; print(sys.argv[1:])")
    return tmp_path


def answer(*arguments: str) -> str:
    """What the command says, whether it is a result, a usage error or a refusal."""
    result = CliRunner().invoke(accel, list(arguments))
    if isinstance(result.exception, AccelError):
        return f"accel: {result.exception}"
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.output


def test_every_key_has_a_flag_with_help() -> None:
    assert set(HELP) == set(Settings.__struct_fields__)
    text = answer("launch", "--help")
    assert all(f"--{key.replace('_', '-')}" in text for key in HELP)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["lanch"], "no such command 'lanch'; did you mean launch?"),
        (["launch"], "which script?"),
        (["launch", "gone.py"], "accel: gone.py: there is no such script; a module is started with -m"),
        (["launch", "--num-proceses", "2", "train.py"], "no such option --num-proceses; did you mean --num-processes?"),
        (["launch", "--use_megatron_lm", "train.py"], "--use-megatron-lm: Megatron-LM, with its tensor and pipeline"),
        (["launch", "--parallelism_config_tp_size", "2"], "for a model that is too large for one device use strategy"),
        (["launch", "--num-processes", "two", "train.py"], "accel: --num-processes is 'two', expected a whole number"),
        (
            ["launch", "--mixed-precision", "bf61", "train.py"],
            "expected one of no, fp16, bf16, fp8, fp8-emulated; did you mean bf16?",
        ),
        (["launch", "--num-machines", "3", "--num-processes", "2", "train.py"], "2 processes cannot run on 3 machines"),
        (
            ["launch", "--zero-stage", "3", "train.py"],
            "is for strategy deepspeed, and this run has ddp; add --strategy",
        ),
        (["launch", "--strategy", "deepspeed", "--wrap-layers", "A", "train.py"], "is for strategy fsdp, and this run"),
        (
            ["launch", "--strategy", "ddp", "--cpu-offload", "train.py"],
            "--cpu-offload is for strategy fsdp or deepspeed",
        ),
        (["launch", "--strategy", "deepspeed", "--deepspeed-config", "no.json", "train.py"], "there is no such file"),
        (["launch", "--config-file", "no.yaml", "train.py"], "no.yaml: there is no such config file"),
        (["launch", "--submit", "slrum", "train.py"], "expected one of slurm, kubernetes; did you mean slurm?"),
        (["config", "--set", "num_procs=2"], "accel.yaml: unknown key 'num_procs'; did you mean num_processes?"),
        (["config", "--set", "num_processes"], "--set takes KEY=VALUE such as num_processes=2, not 'num_processes'"),
    ],
)
def test_bad_input_is_answered_with_what_was_meant(arguments: list[str], message: str) -> None:
    assert message in answer(*arguments)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "accel.yaml: is empty; delete it"),
        ("num_processes: two\n", "accel.yaml: num_processes is 'two', expected a whole number"),
        ("mixed_precison: bf16\n", "accel.yaml: unknown key 'mixed_precison'; did you mean mixed_precision?"),
        ("mixed_precision: fp61\n", "did you mean fp16?"),
    ],
)
def test_a_bad_config_file_stops_the_launch_in_one_line(project: Path, text: str, message: str) -> None:
    (project / "accel.yaml").write_text(text)
    said = answer("launch", "train.py")
    assert message in said and "\n" not in said


def test_a_port_in_use_is_said_at_once() -> None:
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        said = answer("launch", "--cpu", "--num-processes", "2", "--main-process-port", port, "train.py")
    assert said.startswith(f"accel: port {port} is in use here")


def test_flags_after_the_script_belong_to_it_and_underscores_are_accepted() -> None:
    line = answer("launch", "--dry-run", "--mixed_precision=bf16", "train.py", "--num-processes", "7", "-m", "--cpu")
    assert line.startswith("ACCEL_MIXED_PRECISION=bf16 ACCEL_LAUNCH_FLAGS=mixed_precision ")
    assert line.rstrip().endswith("train.py --num-processes 7 -m --cpu")
    assert "torch.distributed.run" not in line


def test_flags_of_the_peer() -> None:
    line = answer("launch", "--dry-run", "--multi_gpu", "--use_fsdp", "--num_cpu_threads_per_process", "3", "train.py")
    assert "accel: --multi-gpu has no meaning here and is ignored" in line
    assert "ACCEL_STRATEGY=fsdp" in line and "OMP_NUM_THREADS=3" in line


def test_the_number_after_tee_is_no_script_and_devices_of_a_run_on_the_cpu_are_refused() -> None:
    line = answer("launch", "--dry-run", "--cpu", "--num_processes", "2", "--tee", "3", "train.py", "--tee", "3")
    assert "--tee=3" in line and line.rstrip().endswith("train.py --tee 3")
    assert "--tee" not in answer("launch", "--dry-run", "--cpu", "--num-processes", "2", "--tee", "0", "train.py")
    refused = "accel: devices is 0, but --cpu asks for the CPU; leave one of them out"
    assert answer("launch", "--cpu", "--gpu_ids", "0", "train.py") == refused


def test_every_flag_of_accelerates_launcher_is_used_ignored_with_a_line_or_refused_with_a_reason() -> None:
    line = answer("launch", "--dry-run", "--use_fsdp", "--fsdp_sharding_strategy", "SHARD_GRAD_OP", "train.py")
    assert "ACCEL_RESHARD_AFTER_FORWARD=false" in line
    line = answer("launch", "--dry-run", "--use_fsdp", "--fsdp_version", "2", "--fsdp_state_dict_type=X", "train.py")
    assert "accel: --fsdp-version has no meaning here and is ignored" in line and "ACCEL_STRATEGY=fsdp" in line
    assert "--fsdp-sharding-strategy is 'NO_SHARD', expected one of FULL_SHARD, SHARD_GRAD_OP, 1, 2" in answer(
        "launch", "--dry-run", "--use_fsdp", "--fsdp_sharding_strategy", "NO_SHARD", "train.py"
    )
    for flag, reason in {
        "--dynamo_mode": "TorchDynamoPlugin",
        "--fp8_backend": "TERecipeKwargs",
        "--deepspeed_hostfile": "on every machine",
        "--offload_param_nvme_path": "DeepSpeed file",
        "--megatron_lm_tp_degree": "Megatron-LM",
    }.items():
        assert reason in answer("launch", flag, "x", "train.py"), flag


def test_the_explanation_names_the_file_and_the_flag(project: Path) -> None:
    (project / "accel.yaml").write_text("num_processes: 2\nmixed_precision: bf16\ncpu: true\n")
    said = answer("launch", "--explain", "--mixed-precision", "no")
    rows = {line.split()[0]: line.split()[1:] for line in said.splitlines() if line and ":" not in line}
    assert rows["num_processes"] == ["2", "accel.yaml"]
    assert rows["mixed_precision"] == ["no", "flag"]
    assert rows["max_restarts"] == ["0", "default"]
    assert "command: " in said and "--nproc-per-node=2" in said and "local rank 1: cpu" in said


def test_a_job_for_a_scheduler_carries_the_settings_and_not_the_machine() -> None:
    size = ["--num-machines", "2", "--num-processes", "8", "--mixed-precision", "bf16"]
    job = answer("launch", "--submit", "slurm", *size, "train.py", "--lr", "1e-3")
    command = "accel launch --processes-per-machine=4 --mixed-precision=bf16 train.py --lr 1e-3"
    assert "#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n" in job and "#SBATCH --gpus-per-node=4\n" in job
    assert job.rstrip().endswith(f"srun --kill-on-bad-exit=1 {command}")

    import yaml

    manifest = yaml.safe_load(answer("launch", "--submit", "kubernetes", *size, "train.py", "--lr", "1e-3"))
    roles = manifest["spec"]["pytorchReplicaSpecs"]
    assert manifest["kind"] == "PyTorchJob" and roles["Worker"]["replicas"] == 1
    container = roles["Master"]["template"]["spec"]["containers"][0]
    assert " ".join(container["command"]) == command and container["resources"]["limits"] == {"nvidia.com/gpu": 4}


def test_a_job_for_slurm_names_its_partition_account_time_and_setup() -> None:
    asked = ["--partition", "gpu", "--account", "lab", "--time", "02:00:00", "--setup", "module load cuda"]
    lines = answer("launch", "--submit", "slurm", "--num-processes", "2", *asked, "train.py").splitlines()
    head = [line.removeprefix("#SBATCH ") for line in lines if line.startswith("#SBATCH")]
    assert {"--partition=gpu", "--account=lab", "--time=02:00:00"} <= set(head)
    assert lines.index("module load cuda") == len(lines) - 2, "right before srun"
    assert "--submit slurm" in answer("launch", "--partition", "gpu", "train.py")
    assert "for --submit slurm" in answer(
        "launch", "--submit", "kubernetes", "--num-processes", "2", *asked, "train.py"
    )


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--strategy", "deepspeed"], "needs the package deepspeed; pip install deepspeed"),
        (["--mixed-precision", "fp8"], "needs the package torchao; pip install torchao"),
    ],
)
def test_a_missing_engine_is_missed_once_before_anything_starts(
    flags: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("accel_runtime.launch.plan.find_spec", lambda name: None)
    assert message in answer("launch", "--cpu", "--num-processes", "2", *flags, "train.py")


def test_keep_batch_is_split_batches() -> None:
    said = answer("launch", "--cpu", "--num-processes", "2", "--keep-batch", "--explain", "train.py")
    assert "global batch: 1 batch(es) of the loader, each split over 2 processes" in said


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_printed_for_a_shell(shell: str) -> None:
    assert "_ACCEL_COMPLETE" in answer("--completion", shell)


def test_submitting_needs_a_size_and_sbatch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert "say how many processes each of the 2 machines runs" in answer(
        "launch", "--submit", "slurm", "--num-machines", "2", "train.py"
    )
    assert "sbatch is not on this machine" in answer(
        "launch", "--submit", "slurm", "--yes", "--num-processes", "2", "train.py"
    )


def test_a_job_is_handed_to_sbatch(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sbatch = project / "sbatch"
    sbatch.write_text("#!/bin/sh\ncat > job.sh\necho Submitted batch job 7\n")
    sbatch.chmod(0o755)
    monkeypatch.setenv("PATH", f"{project}:/usr/bin:/bin")
    said = answer("launch", "--submit", "slurm", "--yes", "--cpu", "--num-processes", "2", "train.py")
    assert said == "Submitted batch job 7\n"
    assert "--cpu train.py" in (project / "job.sh").read_text()


def test_help_and_show_import_no_torch() -> None:
    program = """
import sys
from accel_runtime.cli import accel
for command in (["--help"], ["launch", "--help"], ["config", "--show"], ["launch", "--explain"], ["test", "--help"]):
    try:
        accel.main(command, standalone_mode=False)
    except SystemExit:
        pass
assert "torch" not in sys.modules and "libcst" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_refusals_exit_with_2_and_nothing_on_stdout() -> None:
    command = [sys.executable, "-m", "accel_runtime", "launch", "gone.py"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "accel: gone.py: there is no such script; a module is started with -m\n"
