"""Data sets of torchvision that are not on this disk: images of noise, of the right sizes, types, classes and lengths."""

from __future__ import annotations

import functools
import inspect
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from accel_migrate.proof.recorder.stand_ins.made_up import dice
from accel_migrate.proof.recorder.stand_ins.told import Told

SMALL = 512, 256  # samples to train and to test on: a few batches of each are seen within the steps of a proof
IN_A_FOLDER = 2, 96, 48  # classes of a tree of images, and images of each class in a folder to train on, and in another
SIDE = 96  # of images of no set size


class Set(NamedTuple):
    """What is known of a data set: height, width, channels, classes, and how many samples it really has."""

    height: int
    width: int
    channels: int
    classes: int
    train: int
    test: int


GREY, COLOUR = 1, 3
IN_MEMORY = {  # their own code goes on to read `data` and `targets`
    "MNIST": Set(28, 28, GREY, 10, 60_000, 10_000),
    "FashionMNIST": Set(28, 28, GREY, 10, 60_000, 10_000),
    "KMNIST": Set(28, 28, GREY, 10, 60_000, 10_000),
    "EMNIST": Set(28, 28, GREY, 47, 112_800, 18_800),
    "USPS": Set(16, 16, GREY, 10, 7_291, 2_007),
    "CIFAR10": Set(32, 32, COLOUR, 10, 50_000, 10_000),
    "CIFAR100": Set(32, 32, COLOUR, 100, 50_000, 10_000),
    "SVHN": Set(32, 32, COLOUR, 10, 73_257, 26_032),
    "STL10": Set(96, 96, COLOUR, 10, 5_000, 8_000),
}
OF_FILES = {  # an image and what belongs to it are made when they are asked for
    "ImageNet": Set(256, 256, COLOUR, 1000, 1_281_167, 50_000),
    "CelebA": Set(218, 178, COLOUR, 40, 162_770, 19_962),
    "Flowers102": Set(256, 256, COLOUR, 102, 1_020, 6_149),
    "OxfordIIITPet": Set(256, 256, COLOUR, 37, 3_680, 3_669),
    "Food101": Set(256, 256, COLOUR, 101, 75_750, 25_250),
    "StanfordCars": Set(256, 256, COLOUR, 196, 8_144, 8_041),
    "DTD": Set(256, 256, COLOUR, 47, 1_880, 1_880),
    "EuroSAT": Set(64, 64, COLOUR, 10, 27_000, 27_000),
    "GTSRB": Set(64, 64, COLOUR, 43, 26_640, 12_630),
    "FGVCAircraft": Set(256, 256, COLOUR, 100, 6_667, 3_333),
    "Caltech101": Set(256, 256, COLOUR, 101, 8_677, 8_677),
    "Caltech256": Set(256, 256, COLOUR, 257, 30_607, 30_607),
    "Omniglot": Set(105, 105, GREY, 964, 19_280, 13_180),
    "VOCSegmentation": Set(256, 256, COLOUR, 21, 1_464, 1_449),
    "SBDataset": Set(256, 256, COLOUR, 21, 8_498, 2_857),
}
MASKS = {"VOCSegmentation", "SBDataset"}
MANY_LABELS = {"CelebA"}


def of_vision(datasets: Any, torch: Any, told: Told, scratch: Path, true_lengths: bool) -> None:
    """In the place of each data set one that makes its samples up when they are missing; what is on disk is read."""
    for name in (*IN_MEMORY, *OF_FILES):
        kind = getattr(datasets, name, None)
        if kind is not None and "__init__" in vars(kind):  # else that of its parent is the one to stand in for
            _stand_in(kind, functools.partial(_fill, torch, told, true_lengths))
    for name in ("DatasetFolder", "ImageFolder"):
        _stand_in_folder(getattr(datasets, name), told, scratch)


def _stand_in(kind: Any, fill: Callable[[Any, dict[str, Any]], None]) -> None:
    plain = kind.__init__
    signature = inspect.signature(plain)

    @functools.wraps(plain)
    def made(data: Any, *args: Any, **kwargs: Any) -> None:
        given = signature.bind(data, *args, **kwargs)
        if "download" in signature.parameters:
            given.arguments["download"] = False
        try:
            plain(*given.args, **given.kwargs)
        except (RuntimeError, OSError, IndexError, ModuleNotFoundError):  # how each says that its files are missing
            given.apply_defaults()
            fill(data, dict(given.arguments))

    kind.__init__ = made


def _fill(torch: Any, told: Told, true: bool, data: Any, given: dict[str, Any]) -> None:
    """Samples for a data set, by the nearest class that is known."""
    names = [kind.__name__ for kind in type(data).__mro__]
    name = next(name for name in names if name in IN_MEMORY or name in OF_FILES)
    fill, known = (_in_memory, IN_MEMORY[name]) if name in IN_MEMORY else (_of_files, OF_FILES[name])
    fill(torch, name, known, told, true, data, given)


def _is_train(given: dict[str, Any]) -> bool:
    if "train" in given:
        return bool(given["train"])
    split = str(given.get("split") or given.get("image_set") or given.get("background") or "train")
    return split.startswith(("train", "extra", "True"))


def _begin(data: Any, torch: Any, name: str, known: Set, told: Told, given: dict[str, Any], true: bool) -> int:
    """What every data set of torchvision has; the number of its samples."""
    vision: Any = next(kind for kind in type(data).__mro__ if kind.__name__ == "VisionDataset")
    parts = ("transforms", "transform", "target_transform")
    vision.__init__(data, given.get("root"), **{part: given.get(part) for part in parts})
    is_train = _is_train(given)
    true_length, short = (known.train, SMALL[0]) if is_train else (known.test, SMALL[1])
    data.train = is_train
    for part in ("split", "mode"):
        if part in given:
            setattr(data, part, given[part])
    told.say(name, "made up")
    return true_length if true else min(short, true_length)


def _in_memory(torch: Any, name: str, known: Set, told: Told, true: bool, data: Any, given: dict[str, Any]) -> None:
    import numpy

    length = _begin(data, torch, name, known, told, given, true)
    numbers = numpy.random.default_rng(dice(name, data.train).getrandbits(32))
    classes = known.classes
    if name == "EMNIST":
        data.classes = data.classes_split_dict[given["split"]]
        classes = len(data.classes)
    labels = numbers.integers(0, classes, length)
    shape = (length, known.height, known.width) + ((known.channels,) if known.channels == COLOUR else ())
    images = numbers.integers(0, 256, shape, dtype=numpy.uint8)
    if name in ("SVHN", "STL10"):
        data.data, data.labels = images.transpose(0, 3, 1, 2), labels.astype(numpy.int64)
    elif name in ("USPS", "CIFAR10", "CIFAR100"):
        data.data, data.targets = images, labels.tolist()
    else:
        data.data, data.targets = torch.from_numpy(images), torch.from_numpy(labels.astype(numpy.int64))
    if name in ("CIFAR10", "CIFAR100", "STL10"):
        data.classes = [f"class {number}" for number in range(classes)]
        data.class_to_idx = {each: number for number, each in enumerate(data.classes)}


def _of_files(torch: Any, name: str, known: Set, told: Told, true: bool, data: Any, given: dict[str, Any]) -> None:
    length = _begin(data, torch, name, known, told, given, true)
    data.classes = [f"class {number}" for number in range(known.classes)]
    data.class_to_idx = {each: number for number, each in enumerate(data.classes)}
    train = data.train

    def item(self: Any, index: int) -> Any:
        if not 0 <= index < length:
            raise IndexError(index)
        numbers = dice(name, train, index)
        image = _noise(known.height, known.width, known.channels, numbers)
        target: Any = numbers.randrange(known.classes)
        if name in MASKS:
            target = _noise(known.height, known.width, GREY, numbers).point(lambda value: value % known.classes)
        elif name in MANY_LABELS:
            target = torch.tensor([numbers.randrange(2) for _ in range(known.classes)])
        if getattr(self, "transforms", None) is not None:
            return self.transforms(image, target)
        return image, target

    # A class of its own, so that only what is made up is other than it was.
    data.__class__ = type(type(data).__name__, (type(data),), {"__getitem__": item, "__len__": lambda self: length})


def _noise(height: int, width: int, channels: int, numbers: Any) -> Any:
    from PIL import Image

    mode = "L" if channels == GREY else "RGB"
    return Image.frombytes(mode, (width, height), numbers.randbytes(height * width * channels))


def _stand_in_folder(kind: Any, told: Told, scratch: Path) -> None:
    plain = kind.__init__

    @functools.wraps(plain)
    def made(data: Any, root: Any, *args: Any, **kwargs: Any) -> None:
        place = Path(root)
        if not place.exists() or not any(each.is_dir() for each in place.iterdir()):
            place = place if (Path.cwd() / place).resolve().is_relative_to(scratch) else scratch / place.name
            told.say(str(root), f"made up, {IN_A_FOLDER[0]} classes of images")
            _grow(place)
        plain(data, str(place), *args, **kwargs)

    kind.__init__ = made


def _grow(place: Path) -> None:
    """A tree of small images, whole from the moment that it is there: the processes of a run make it side by side."""
    classes, train, test = IN_A_FOLDER
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent) as folder:
        for number in range(classes):
            inside = Path(folder, place.name, f"class_{number}")
            inside.mkdir(parents=True)
            for index in range(train if "train" in place.name.lower() else test):
                _noise(SIDE, SIDE, COLOUR, dice(place.name, number, index)).save(inside / f"{index}.png")
        try:
            Path(folder, place.name).rename(place)
        except OSError:
            if not place.exists():  # else another process was first
                raise
