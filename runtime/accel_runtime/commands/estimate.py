"""How much memory a model of transformers needs, by Accelerate's names: from its configuration, without its weights."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from accel_runtime.errors import ConfigError
from accel_runtime.unsupported import absent

# Bytes of a float32 weight for each byte of these.
SMALLER = {"float32": 1, "float16": 2, "int8": 4, "int4": 8}


def verify_on_hub(repo: str, token: str | None = None) -> Any:
    """What the hub says about a model; "gated" or "repo" where it does not hand it out, or has none of this name."""
    from huggingface_hub import model_info
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    try:
        return model_info(repo, token=token)
    except RepositoryNotFoundError as error:
        return "gated" if isinstance(error, GatedRepoError) else "repo"


def create_empty_model(
    model_name: str, library_name: str | None = None, trust_remote_code: bool = False, access_token: str | None = None
) -> Any:
    """The model of a name on the hub, or of a folder, on the meta device."""
    import torch
    from transformers import AutoConfig, AutoModel

    from accel_runtime.big_modeling import init_empty_weights

    if not Path(model_name).is_dir():
        known = verify_on_hub(model_name, access_token)
        if isinstance(known, str):
            why = "asks for a login: run hf auth login" if known == "gated" else "is not on the hub under this name"
            raise OSError(f"{model_name} {why}")
        library_name = library_name or getattr(known, "library_name", None)
        if library_name is None:
            raise ConfigError(
                f"the hub does not say of which library {model_name} is; pass --library_name transformers"
            )
    if library_name not in (None, "transformers"):
        raise ConfigError(
            f"{model_name} is of {library_name}; build it under init_empty_weights, and ask calculate_maximum_sizes"
        )
    config = AutoConfig.from_pretrained(model_name, trust_remote_code=trust_remote_code, token=access_token)
    with init_empty_weights():
        return AutoModel.from_config(config, dtype=torch.float32, trust_remote_code=trust_remote_code)


def gather_data(args: argparse.Namespace) -> list[list[Any]]:
    """For each type: its name, the bytes of the largest layer, of all weights, and of a training with Adam by part."""
    from accel_runtime.large.sizes import calculate_maximum_sizes

    model = create_empty_model(args.model_name, args.library_name, args.trust_remote_code)
    total, (largest, _) = calculate_maximum_sizes(model)
    return [
        [dtype, largest / SMALLER[dtype], total / SMALLER[dtype], estimate_training_usage(total, dtype)]
        for dtype in args.dtypes
    ]


def estimate_training_usage(bytes: int, mixed_precision: str) -> dict[str, int]:
    """Bytes by part for a batch of one, from those of the weights in float32; -1 where nobody trains in this type."""
    if mixed_precision not in ("float32", "float16", "bfloat16"):
        return dict.fromkeys(("model", "optimizer", "gradients", "step"), -1)
    gradients = bytes if mixed_precision == "float32" else bytes + bytes // 2
    step = 4 * bytes if mixed_precision == "float32" else 2 * bytes
    return {"model": bytes, "optimizer": 2 * bytes, "gradients": gradients, "step": step}


def estimate_command_parser(subparsers: Any = None) -> argparse.ArgumentParser:
    about = "How much memory a model needs."
    parser: argparse.ArgumentParser = (
        argparse.ArgumentParser(description=about)
        if subparsers is None
        else subparsers.add_parser("estimate-memory", description=about)
    )
    parser.add_argument("model_name", help="Its name on the hub, or a folder.")
    parser.add_argument("--library_name", "--library-name", choices=["timm", "transformers"])
    parser.add_argument("--dtypes", nargs="+", default=list(SMALLER), choices=list(SMALLER))
    parser.add_argument("--trust_remote_code", "--trust-remote-code", action="store_true")
    parser.set_defaults(func=estimate_command)
    return parser


def estimate_command(args: argparse.Namespace) -> None:
    from accel_runtime.utils import convert_bytes

    print(f"{'dtype':10} {'largest layer':>14} {'total':>12} {'training with Adam':>20}")
    for dtype, largest, total, training in gather_data(args):
        most = max(training.values())
        needed = "not trained" if most < 0 else convert_bytes(most)
        print(f"{dtype:10} {convert_bytes(largest):>14} {convert_bytes(total):>12} {needed:>20}")


__all__ = [
    "create_empty_model",
    "estimate_command",
    "estimate_command_parser",
    "estimate_training_usage",
    "gather_data",
    "verify_on_hub",
]

__getattr__ = absent(__name__)
