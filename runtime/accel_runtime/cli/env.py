"""`accel env`: what a bug report needs to say about this machine, with secrets left out."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version

import click

from accel_runtime.errors import ConfigError
from accel_runtime.machine import Machine, this_machine

PACKAGES = ("accel-migrate", "torch", "numpy", "safetensors", "deepspeed", "torchao", "transformer-engine", "torch-xla")
NOT_INSTALLED = "not installed"
PREFIXES = (
    "ACCEL_",
    "ACCELERATE_",
    "NCCL_",
    "GLOO_",
    "TORCH",
    "OMP_",
    "CUDA_",
    "HIP_",
    "PJRT_",
    "SLURM_",
    "OMPI_COMM_",
    "PMI_",
)
NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_SECRET = re.compile(r"TOKEN|KEY|SECRET|PASSW|CREDENTIAL|AUTH", re.IGNORECASE)
_SECRET_IN_ADDRESS = re.compile(r"(\w+://)[^/@\s]+@")


@click.command("env")
@click.option("--support", is_flag=True, help="Print what of strategy, precision and device goes together instead.")
def command(support: bool) -> None:
    """Print versions, devices and configuration, fit to paste into a bug report."""
    if support:
        for name, standing in _support().items():
            click.echo(f"{name}: {standing}")
        return
    for title, lines in report(os.environ).items():
        click.echo(f"{title}: {'; '.join(f'{name}: {value}' for name, value in lines.items()) or 'none'}")


def report(environ: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """One line for each of these."""
    versions = dict(_versions())
    installed = {name: text for name, text in versions.items() if text != NOT_INSTALLED}
    return {
        "versions": installed,
        NOT_INSTALLED: {"packages": ", ".join(name for name in versions if name not in installed) or "none"},
        "machine": _machine(this_machine(environ)),
        "torch": _torch(),
        "configuration": _configuration(environ),
        "environment": _variables(environ),
    }


def _versions() -> Iterator[tuple[str, str]]:
    yield "python", platform.python_version()
    for package in PACKAGES:
        try:
            yield package, version(package)
        except PackageNotFoundError:
            yield package, NOT_INSTALLED


def _machine(machine: Machine) -> dict[str, str]:
    devices = f"{len(machine.devices)} ({', '.join(machine.devices)})" if machine.devices else "none"
    return {"platform": platform.platform(), "cores": str(machine.cores), "kind": machine.kind, "devices": devices}


def _torch() -> dict[str, str]:
    """What torch itself sees; the reason when it cannot be asked."""
    try:
        import torch
    except ImportError as error:
        return {"import": f"failed: {error}"}
    built = torch.version.cuda or torch.version.hip or "for the CPU"
    distributed = torch.distributed
    backends = [name for name in ("gloo", "nccl", "mpi", "xccl") if distributed.is_available() and _has(name)]
    found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    seen = f"{torch.accelerator.device_count()} x {found.type}" if found else "none"
    return {
        "build": str(built),
        "accelerators": seen,
        "backends": ", ".join(backends),
        "threads": str(torch.get_num_threads()),
    }


def _support() -> dict[str, str]:
    """What of strategy, precision and device goes together in this version."""
    try:
        from accel_runtime.support import summary
    except ImportError as error:
        return {"import": f"failed: {error}"}
    return summary()


def _has(backend: str) -> bool:
    import torch.distributed

    return bool(getattr(torch.distributed, f"is_{backend}_available", lambda: False)())


def _configuration(environ: Mapping[str, str]) -> dict[str, str]:
    """What is not at its default, and who says so; a broken file is named rather than hiding the rest."""
    try:
        from accel_runtime.config_file import config_files
        from accel_runtime.options import environment_layer, settle
        from accel_runtime.values import as_text

        files = config_files(environ)
        settled = settle([environment_layer(environ), *(file.layer() for file in files)])
    except (ImportError, ConfigError) as error:
        return {"error": str(error)}
    said = {key: f"{as_text(getattr(settled.settings, key))} ({origin})" for key, origin in settled.origins.items()}
    return {"files": ", ".join(str(file.path) for file in files) or "none", **said}


def _variables(environ: Mapping[str, str]) -> dict[str, str]:
    shown = {name: value for name, value in sorted(environ.items()) if name in NAMES or name.startswith(PREFIXES)}
    return {name: redacted(name, value) for name, value in shown.items()}


def redacted(name: str, value: str) -> str:
    """The value without what must not be pasted in public."""
    if _SECRET.search(name):
        return "(hidden)"
    return _SECRET_IN_ADDRESS.sub(r"\1(hidden)@", value)
