"""Calls of libraries that fetch files where they are not there yet: weights, tokenizers, data sets.

Silent where no call of a library that can fetch is told to, or may be; AM604 speaks of those that surely do.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from accel_migrate.analysis.notes.not_analysed import run_by
from accel_migrate.analysis.notes.settled import may_be
from accel_migrate.analysis.storage.files import downloads_in
from accel_migrate.analysis.trainings.training import Script, Training
from accel_migrate.analysis.values.unread import Unseen
from accel_migrate.flow.definitions import BUILTINS
from accel_migrate.flow.nodes import unparse
from accel_migrate.flow.scopes import Module

_FETCHES = re.compile(
    r"(transformers|diffusers|peft|tokenizers|sentence_transformers)\..*\.from_pretrained|transformers\.pipeline"
    r"|datasets\.load_(dataset|metric)|evaluate\.load|torch\.hub\.load\w*|torch\.utils\.model_zoo\.load_url|huggingface_hub\..*"
    r"|torchaudio\.(datasets|pipelines)\..*|torchtext\.(.*\.)?datasets\..*|spacy\.cli\.download|nltk\.download"
    r"|torchtext\.(.*\.)?vocab\.(GloVe|FastText|CharNGram|pretrained_aliases|Vectors)(\..*)?"
)
_TOLD = ("pretrained", "weights", "download", "pretrained_backbone", "weights_backbone")


def may_download(script: Script, training: Training) -> Iterator[Unseen]:
    files = run_by(script, training)
    calls = [(module, call) for module in files for call in module.calls]
    surely = [call for module in files for call in downloads_in(module)]
    for module, call in calls:
        if call not in surely and _may_fetch(script, module, call) and not (surely and _is_told(call)):
            yield Unseen(module, call, f"{unparse(call.func)}()")


def _is_told(call: ast.Call) -> bool:
    """`MNIST(root, download=download)`, beside one that AM604 names."""
    return any(keyword.arg == "download" for keyword in call.keywords)


def _may_fetch(script: Script, module: Module, call: ast.Call) -> bool:
    dotted = module.full_name(call.func)
    library = dotted.startswith(("torchvision.", "timm.", "torch_geometric.", "dgl.", "monai."))
    named = isinstance(call.func, ast.Attribute) or getattr(call.func, "id", "") in BUILTINS
    by_name = not dotted and not named  # `models.__dict__[arch]()`
    fetches = _FETCHES.fullmatch(dotted) is not None
    if not (library or by_name or fetches) or script.roles.target(module, call) is not None:
        return False
    told = [keyword.value for keyword in call.keywords if keyword.arg in _TOLD]
    first = call.args[0] if call.args and library and "torchvision.models" in dotted else None
    if fetches or (isinstance(first, ast.Constant) and first.value is True):  # `resnet18(True)`
        return True
    values = [value for each in told for value in may_be(script.graph, module, each)]
    return (library or by_name) and not all(
        isinstance(value, ast.Constant) and value.value in (None, False) for value in values
    )
