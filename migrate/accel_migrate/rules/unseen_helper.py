"""AM607: what every process does in files that were not analysed."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator

from accel_migrate.edits import change
from accel_migrate.plan import Change, Safety
from accel_migrate.rule import Context, Rule

CODE = "AM607"
_LIBRARIES = {
    "torch", "torchvision", "torchaudio", "torchtext", "torchmetrics", "numpy", "scipy", "pandas", "sklearn", "matplotlib",
    "seaborn", "PIL", "cv2", "tqdm", "wandb", "tensorboardX", "tensorboard", "transformers", "datasets", "tokenizers", "timm",
    "einops", "albumentations", "yaml", "omegaconf", "hydra", "h5py", "nltk", "spacy", "rich", "termcolor", "requests",
    "torch_geometric", "dgl", "gym", "gymnasium", "peft", "evaluate", "accel_runtime", "accelerate", "mlflow", "neptune",
    "comet_ml", "clearml", "visdom", "aim", "swanlab", "tensorboard_logger", "loguru", "absl", "joblib", "imageio", "skimage",
    "torchinfo", "torchsummary", "prettytable", "tabulate", "colorama", "psutil", "networkx", "soundfile", "librosa",
    "safetensors", "huggingface_hub", "diffusers", "sentencepiece", "kornia", "monai", "optuna", "ray", "lmdb", "cupy",
    "numba", "sympy", "plotly", "google", "setuptools", "six", "future", "attr", "pydantic", "click", "fire", "dotenv",
}  # fmt: skip


def find(context: Context) -> Iterator[Change]:
    """One note for each file: functions that get what is prepared, and objects that are used for their effect alone."""
    module, training = context.module, context.training
    found: dict[str, ast.Call] = {}
    for call in module.calls:
        if not training.timing.after_prepare(module, call) or training.flow.only_main(module, call):
            continue
        given = [*call.args, *[keyword.value for keyword in call.keywords]]
        gets = any(training.holds(module.variable(a)) for a in given if isinstance(a, ast.Name | ast.Attribute))
        acts = isinstance(module.parents[call], ast.Expr)
        name = _unseen(context, call.func) if gets else _made_unseen(context, call) if acts else None
        if name is not None:
            found.setdefault(name, call)
    if found:
        names = ", ".join(f"{name} (line {call.lineno})" for name, call in found.items())
        message = (
            f"every process runs code outside of the files that were analysed: {names}; hand its file to accel-migrate as "
            "well, or see to it that it writes and logs once, and counts each sample once"
        )
        yield change(CODE, next(iter(found.values())), message, loop=training.index, safety=Safety.NOTE)


def _unseen(context: Context, function: ast.expr) -> str | None:
    """The name of an imported function that is neither the project's nor a known library's."""
    module = context.module
    dotted = module.qualified(function)
    if dotted is None or context.script.roles.project.definition(module, function) is not None:
        return None
    root = dotted.lstrip(".").partition(".")[0]
    known = root in _LIBRARIES or root in sys.stdlib_module_names
    return f"{ast.unparse(function)}()" if dotted.startswith(".") or not known else None


def _made_unseen(context: Context, call: ast.Call) -> str | None:
    """`logger.scalar("loss", ...)` where `logger = Logger()` comes from elsewhere."""
    if not isinstance(call.func, ast.Attribute):
        return None
    module = context.module
    variable = module.variable(call.func.value)
    if variable is None or context.script.roles.of(variable):
        return None  # a model, an optimizer, a scheduler
    for binding in module.bindings(variable):
        in_loop = any(isinstance(parent, ast.For | ast.While) for parent in module.ancestors(binding.statement))
        if isinstance(binding.value, ast.Call) and not in_loop and _unseen(context, binding.value.func) is not None:
            return f"{ast.unparse(call.func)}()"
    return None


RULE = Rule(
    code=CODE,
    name="unseen_helper",
    summary="code outside of the files that were analysed",
    why="Every process runs the whole script. A logger, a checkpoint class or an evaluation in a file that accel-migrate did not "
    "see writes its files N times, and an evaluation there goes through all of the data on every process.",
    example_before="from mylog import Logger\n\nlogger = Logger()\nlogger.scalar(loss)",
    example_after="from mylog import Logger\n\nlogger = Logger()\nlogger.scalar(loss)",
    find=find,
    safety=Safety.NOTE,
)
