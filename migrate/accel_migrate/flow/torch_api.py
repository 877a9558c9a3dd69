"""What calls of libraries make, and what they hand on: a library more is a line here.

Kinds are plain words; what they mean to a training is for who asks to say.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from accel_migrate.flow.scopes import Module

# What a call makes, by the whole dotted name of what is called: the first line that fits.
_MAKES = tuple(
    (re.compile(pattern), kind)
    for pattern, kind in (
        (r"(.*\.)?\w*DataLoader", "loader"),
        (r"torchtext\.(.*\.)?\w*Iterator(\.splits)?", "batches"),  # no DataLoader: nothing can shard them
        (r"torch\.optim\.lr_scheduler\..*|(.*\.)?get_\w*schedul\w*", "scheduler"),
        (r"torch\.optim\.(?!lr_scheduler|swa_utils)(.*\.)?[A-Z]\w*", "optimizer"),
        (r"torch\.(device|accelerator\.current_accelerator|cuda\.current_device)", "device"),
        (r"torch\.(cuda\.)?amp\.GradScaler", "scaler"),
        (r"torch\.((cuda\.)?amp\.)?autocast", "autocast"),
        (r"(.*\.)?DistributedSampler", "sampler"),
        (r"torch\.nn\.(.*\.)?(Uninitialized)?(Parameter|Buffer)", "tensor"),
        (r"torch\.nn\.(.*\.)?[A-Z]\w*Loss", "criterion"),
        (r"torch\.nn\.(.*\.)?[A-Z]\w*", "model"),
        (r"(torchvision\.models\.|timm\.create_model|segmentation_models_pytorch\.).*", "model"),
        (r"transformers\.(?=.*(Model|For[A-Z]))(.*\.)?(from_pretrained|from_config)", "model"),
        (r"transformers\.(.*\.)?\w*(Model|For[A-Z]\w+)", "model"),
    )
)
# Optimizers of libraries that are not known, by what they are called; they are handed parameters.
OPTIMIZER_NAME = re.compile(r"(Adam|SGD|Adagrad|RMSprop|Lion|Lamb|Adafactor|Ranger|RAdam|AdamW)\w*$")

# Methods of a module that return the module.
ITSELF = frozenset({
    "to", "cpu", "cuda", "train", "eval", "half", "float", "double", "bfloat16", "requires_grad_", "share_memory",
})  # fmt: skip
MOVES = ("to", "cuda")  # those of them that only move it
# Calls that make a model of the model that they are handed: with its parameters, or, the last, with a copy of them.
_PARALLEL = frozenset({"DistributedDataParallel", "DataParallel"})
_WRAPPERS = frozenset({
    "torch.compile", "torch.jit.script", "torch.nn.SyncBatchNorm.convert_sync_batchnorm", "apex.parallel.convert_syncbn_model",
    "copy.deepcopy",
})  # fmt: skip

# Calls that yield what their first argument yields, and do nothing else with it: progress bars, under whatever name.
_BARS = frozenset({
    "tqdm", "tqdm_notebook", "notebook_tqdm", "tqdm_gui", "progress_bar", "track", "progressbar", "ProgressBar",
    "alive_it", "islice", "log_every",
})  # fmt: skip
# Calls whose result has the very objects that they are handed, or yields them.
PASSED_ON = frozenset({
    "tqdm", "whole_batches", "trange", "enumerate", "iter", "zip", "cycle", "islice", "chain", "list", "tuple", "reversed",
    "sorted", "set", "dict", "copy", "deepcopy", "next", "partial", "staticmethod",
})  # fmt: skip
# Methods that put what they are handed into their object.
GROWS = frozenset({"append", "extend", "insert", "add", "update", "setdefault", "appendleft", "put"})

# Methods of a tensor, and functions of torch, that give it in another shape, wherever it is.
RESHAPES = frozenset({
    "view", "reshape", "permute", "transpose", "expand", "repeat", "unsqueeze", "squeeze", "flatten", "movedim", "swapaxes",
})  # fmt: skip


@lru_cache(maxsize=4096)
def made_by(dotted: str) -> str:
    """What a call of an imported name makes; empty if it is not known."""
    return next((kind for pattern, kind in _MAKES if pattern.fullmatch(dotted)), "")


def is_wrapper(dotted: str) -> bool:
    """Whether a call makes a model of the model that it is handed, with the same parameters or a copy of them."""
    return dotted in _WRAPPERS or dotted.rpartition(".")[2] in _PARALLEL


def is_parallel(dotted: str) -> bool:
    """Whether a call wraps a model in one of torch's wrappers for several GPUs or processes."""
    owner, _, name = dotted.rpartition(".")
    return owner.startswith("torch.nn") and name in _PARALLEL


def is_bar(dotted: str) -> bool:
    """Whether a call hands on what its first argument yields, as a progress bar does."""
    return dotted.rpartition(".")[2] in _BARS


def is_reshaping(dotted: str) -> bool:
    """Whether a call gives the tensor that it is handed first in another shape: `torch.squeeze(y)`."""
    owner, _, name = dotted.rpartition(".")
    return owner == "torch" and name in RESHAPES


def is_computed_for_all(module: Module, call: ast.Call) -> bool:
    """Whether a call is `metric.compute()` of torchmetrics, which first adds up what all processes have counted."""
    if not (isinstance(call.func, ast.Attribute) and call.func.attr == "compute"):
        return False
    made = [itself(value) for value in module.held(call.func.value) if value is not None]
    return bool(made) and all(
        isinstance(value, ast.Call)
        and module.full_name(value.func).startswith("torchmetrics.")
        and not any(keyword.arg == "sync_on_compute" for keyword in value.keywords)
        for value in made
    )


def itself(node: ast.expr, methods: Collection[str] = ITSELF) -> ast.expr:
    """The object that an expression is, behind calls that give it back: `model.cpu().eval()` is `model`."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in methods:
        node = node.func.value
    return node
