"""Packages that are known: what is imported from elsewhere may be a file of the project that was not given."""

from __future__ import annotations

import sys

_LIBRARIES = {
    "torch", "torchvision", "torchaudio", "torchtext", "torchmetrics", "numpy", "scipy", "pandas", "sklearn", "matplotlib",
    "seaborn", "PIL", "cv2", "tqdm", "wandb", "tensorboardX", "tensorboard", "transformers", "datasets", "tokenizers", "timm",
    "einops", "albumentations", "yaml", "omegaconf", "hydra", "h5py", "nltk", "spacy", "rich", "termcolor", "requests",
    "torch_geometric", "dgl", "gym", "gymnasium", "peft", "evaluate", "accel_runtime", "accelerate", "mlflow", "neptune",
    "comet_ml", "clearml", "visdom", "aim", "swanlab", "tensorboard_logger", "loguru", "absl", "joblib", "imageio", "skimage",
    "torchinfo", "torchsummary", "torchcrf", "TorchCRF", "mpl_toolkits", "xlrd", "jieba", "unidecode", "emoji", "seqeval",
    "sacrebleu", "rouge_score", "editdistance", "Levenshtein", "jiwer",
    "prettytable", "tabulate", "colorama", "psutil", "networkx", "soundfile", "librosa",
    "safetensors", "huggingface_hub", "diffusers", "sentencepiece", "kornia", "monai", "optuna", "ray", "lmdb", "cupy",
    "numba", "sympy", "plotly", "IPython", "google", "setuptools", "six", "future", "attr", "pydantic", "click", "fire", "dotenv",
    "pytz", "dateutil", "pkg_resources", "easydict", "munch", "nibabel", "SimpleITK", "pydicom", "tifffile", "medpy",
    "pycocotools", "pyDOE", "pyDOE2",
}  # fmt: skip


def is_library(dotted: str) -> bool:
    """Whether an imported name comes from Python itself or a package that is known."""
    root = dotted.partition(".")[0]
    return root in _LIBRARIES or root in sys.stdlib_module_names
