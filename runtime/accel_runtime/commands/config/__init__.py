"""Where scripts for Accelerate import what reads and writes its config files."""

from accel_runtime.commands.config.config_args import (
    BaseConfig,
    ClusterConfig,
    SageMakerConfig,
    cache_dir,
    default_config_file,
    default_json_config_file,
    default_yaml_config_file,
    load_config_from_file,
)
from accel_runtime.unsupported import absent

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
