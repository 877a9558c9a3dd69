"""Config files of Accelerate as objects, for scripts that make, read or write them; `config_file` reads what they say."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Self

from accel_runtime.config_file import user_file
from accel_runtime.errors import ConfigError
from accel_runtime.peer_config import SAME, is_peer_config
from accel_runtime.processes import DistributedType
from accel_runtime.unsupported import absent
from accel_runtime.utils.dataclasses import ComputeEnvironment, SageMakerDistributedType

default_config_file = str(user_file(os.environ))
default_yaml_config_file = default_json_config_file = default_config_file
cache_dir = str(Path(default_config_file).parent)


@dataclass
class BaseConfig:
    """What every file says."""

    compute_environment: ComputeEnvironment
    distributed_type: DistributedType | SageMakerDistributedType
    mixed_precision: str | None
    use_cpu: bool
    debug: bool

    def __post_init__(self) -> None:
        self.compute_environment = ComputeEnvironment(self.compute_environment)
        on_amazon = self.compute_environment is ComputeEnvironment.AMAZON_SAGEMAKER
        self.distributed_type = (SageMakerDistributedType if on_amazon else DistributedType)(self.distributed_type)

    def to_dict(self) -> dict[str, Any]:
        """Keys with plain values; what says nothing is left out."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        said = {key: value for key, value in values.items() if value is not None and value != {}}
        return {key: str(value) if isinstance(value, str) else value for key, value in said.items()}

    @staticmethod
    def process_config(config_dict: dict[str, Any]) -> dict[str, Any]:
        """The keys of today for those of any version, with what a file may leave out."""
        if "distributed_type" not in config_dict:
            raise ConfigError("a config file of Accelerate says its distributed_type, such as MULTI_GPU or NO")
        content = {"compute_environment": "LOCAL_MACHINE", "use_cpu": False, "debug": False, **config_dict}
        # YAML reads an unquoted NO as false.
        content["distributed_type"] = content["distributed_type"] or "NO"
        half = content.pop("fp16", None)
        content.setdefault("mixed_precision", "fp16" if half else None)
        if (backend := content.pop("dynamo_backend", None)) is not None:
            content["dynamo_config"] = {} if backend == "NO" else {"dynamo_backend": backend}
        if content["distributed_type"] == "NO" and content["compute_environment"] == "LOCAL_MACHINE":
            content.setdefault("num_processes", 1)
        return content

    @classmethod
    def from_yaml_file(cls, yaml_file: str | os.PathLike[str] | None = None) -> Self:
        return cls._from(_content(yaml_file), yaml_file)

    @classmethod
    def from_json_file(cls, json_file: str | os.PathLike[str] | None = None) -> Self:
        return cls.from_yaml_file(json_file)  # JSON is YAML

    @classmethod
    def _from(cls, content: dict[str, Any], path: Any) -> Self:
        content = cls.process_config(content)
        if unknown := sorted(content.keys() - {one.name for one in fields(cls)}):
            raise ConfigError(f"{path}: unknown keys {', '.join(unknown)}; take them out, or correct them")
        return cls(**content)

    def to_yaml_file(self, yaml_file: str | os.PathLike[str]) -> None:
        import yaml

        Path(yaml_file).write_text(yaml.safe_dump(self.to_dict()), encoding="utf-8")

    def to_json_file(self, json_file: str | os.PathLike[str]) -> None:
        text = json.dumps(self.to_dict(), indent=2, sort_keys=True)
        Path(json_file).write_text(f"{text}\n", encoding="utf-8")


@dataclass
class ClusterConfig(BaseConfig):
    """A file for one machine or several."""

    num_processes: int = -1  # not said
    machine_rank: int = 0
    num_machines: int = 1
    gpu_ids: str | None = None
    main_process_ip: str | None = None
    main_process_port: int | None = None
    rdzv_backend: str | None = "static"
    same_network: bool | None = False
    main_training_function: str = "main"
    enable_cpu_affinity: bool = False
    fp8_config: dict[str, Any] = field(default_factory=dict)
    deepspeed_config: dict[str, Any] = field(default_factory=dict)
    fsdp_config: dict[str, Any] = field(default_factory=dict)
    parallelism_config: dict[str, Any] = field(default_factory=dict)
    megatron_lm_config: dict[str, Any] = field(default_factory=dict)
    mpirun_config: dict[str, Any] = field(default_factory=dict)
    dynamo_config: dict[str, Any] = field(default_factory=dict)
    downcast_bf16: bool | str = False
    tpu_name: str | None = None
    tpu_zone: str | None = None
    tpu_use_cluster: bool = False
    tpu_use_sudo: bool = False
    tpu_vm: list[str] | None = None
    tpu_env: list[str] | None = None
    command_file: str | None = None
    commands: list[str] | None = None


@dataclass
class SageMakerConfig(BaseConfig):
    """A file for a job of SageMaker, which is read and written here, and started with SageMaker's own tools."""

    ec2_instance_type: str
    iam_role_name: str
    image_uri: str | None = None
    profile: str | None = None
    region: str = "us-east-1"
    num_machines: int = 1
    gpu_ids: str = "all"
    base_job_name: str = "accelerate-sagemaker-1"
    pytorch_version: str | None = None
    transformers_version: str | None = None
    py_version: str | None = None
    sagemaker_inputs_file: str | None = None
    sagemaker_metrics_file: str | None = None
    additional_args: dict[str, Any] = field(default_factory=dict)
    dynamo_config: dict[str, Any] = field(default_factory=dict)
    enable_cpu_affinity: bool = False


def load_config_from_file(config_file: str | os.PathLike[str] | None) -> ClusterConfig | SageMakerConfig:
    """The file as an object of its kind; without a name, the user's own."""
    content = _content(config_file)
    on_amazon = content.get("compute_environment") == ComputeEnvironment.AMAZON_SAGEMAKER
    kind: type[ClusterConfig | SageMakerConfig] = SageMakerConfig if on_amazon else ClusterConfig
    return kind._from(content, config_file)


def _content(path: str | os.PathLike[str] | None) -> dict[str, Any]:
    import yaml

    file = Path(default_config_file if path is None else path)
    if not file.is_file():
        raise FileNotFoundError(f"{file}: there is no such config file; `accel config` writes one")
    content = yaml.safe_load(file.read_text(encoding="utf-8"))
    said = {key: value for key, value in content.items() if value is not None}
    return said if is_peer_config(said) else _in_their_keys(said)


def _in_their_keys(ours: dict[str, Any]) -> dict[str, Any]:
    """A file of this runtime, as far as Accelerate has keys for what it says."""
    strategy = {"fsdp": "FSDP", "deepspeed": "DEEPSPEED"}.get(ours.get("strategy", ""))
    many = "MULTI_CPU" if ours.get("cpu") else "MULTI_GPU"
    same = {theirs: ours[key] for theirs, key in SAME.items() if key in ours and "." not in theirs}
    return {"distributed_type": strategy or (many if ours.get("num_processes", 1) != 1 else "NO"), **same}


__all__ = [
    "BaseConfig",
    "ClusterConfig",
    "SageMakerConfig",
    "cache_dir",
    "default_config_file",
    "default_json_config_file",
    "default_yaml_config_file",
    "load_config_from_file",
]

__getattr__ = absent(__name__)
