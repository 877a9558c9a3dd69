"""Libraries have one thing under several names: here each gets the name that the documentation gives it."""

from __future__ import annotations

import re
from functools import lru_cache

_OF_CLASS = r"(?=[A-Z]\w*(\.|$))"
# How a name may begin, and what stands there in its documented form; the first line that fits.
_PUBLIC = tuple(
    (re.compile(begin), public)
    for begin, public in (
        (r"torchvision\.transforms\.(transforms|v2|autoaugment)(\.|$)", "torchvision.transforms."),
        (rf"torchvision\.datasets\.[a-z]\w*\.{_OF_CLASS}", "torchvision.datasets."),
        (r"torch\.utils\.data\.(dataloader|dataset|sampler|distributed|_utils\.collate)(\.|$)", "torch.utils.data."),
        (r"torch\.utils\.tensorboard\.writer(\.|$)", "torch.utils.tensorboard."),
        (rf"torch\.optim\.(?!lr_scheduler|swa_utils)[a-z_]\w*\.{_OF_CLASS}", "torch.optim."),
        (rf"torch\.nn\.(modules|parameter)\.([a-z]\w*\.)?{_OF_CLASS}", "torch.nn."),
        (r"torch\.nn\.parallel\.distributed(\.|$)", "torch.nn.parallel."),
        (r"torch\.nn\.parallel\.(data_parallel\.)?(?=DataParallel$)", "torch.nn."),
        (r"torch\.nn\.utils\.clip_grad\.", "torch.nn.utils."),
        (r"torch\.cuda\.amp\.(grad_scaler|autocast_mode)(\.|$)", "torch.cuda.amp."),
        (r"torch\.amp\.(grad_scaler|autocast_mode)(\.|$)", "torch.amp."),
        (r"torch\.autograd\.variable\.(?=Variable)", "torch.autograd."),
        (r"torch\.autograd\.(grad_mode\.)?(?=(no|enable|set)_grad|inference_mode)", "torch."),
        (r"torch\.distributed\.distributed_c10d(\.|$)", "torch.distributed."),
        (r"torch\.multiprocessing\.spawn\.", "torch.multiprocessing."),
        (r"torch\.cuda\.random\.(?=manual_seed)", "torch.cuda."),
        (
            r"torch\.(random\.(?=(manual_|initial_)?seed)|serialization\.(?=(save|load)$)|functional\.|_tensor\.(?=Tensor))",
            "torch.",
        ),
    )
)


@lru_cache(maxsize=4096)
def public(dotted: str) -> str:
    """`torch.utils.data.dataloader.DataLoader` is `torch.utils.data.DataLoader`."""
    for begin, documented in _PUBLIC if dotted.startswith("torch") else ():
        if found := begin.match(dotted):
            return (documented + dotted[found.end() :]).rstrip(".")
    return dotted
