"""A script that cannot run here runs on stand-ins: what they are like, and that each is told.

torchvision itself is not among what the tests install: `torchvision/` below has its classes in their own shape, which look for
files and fail as the real ones do.
"""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest
from accel_migrate.proof.runs import Ended, start

from tests.migrate.proof.test_recorder import job

VISION = """
    from pathlib import Path
    import numpy, torch
    from PIL import Image

    class VisionDataset(torch.utils.data.Dataset):
        def __init__(self, root=None, transforms=None, transform=None, target_transform=None):
            self.root, self.transforms = root, transforms
            self.transform, self.target_transform = transform, target_transform

    class MNIST(VisionDataset):
        classes = [str(number) for number in range(10)]

        def __init__(self, root, train=True, transform=None, target_transform=None, download=False):
            super().__init__(root, transform=transform, target_transform=target_transform)
            if download:
                raise AssertionError("nothing is downloaded")
            if not Path(root, "MNIST").exists():
                raise RuntimeError("Dataset not found. You can use download=True to download it")
            self.data = torch.zeros(3, 28, 28, dtype=torch.uint8)
            self.targets = torch.zeros(3, dtype=torch.int64)

        def __len__(self):
            return len(self.data)

        def __getitem__(self, index):
            return self.transform(Image.fromarray(self.data[index].numpy())), int(self.targets[index])

    class CIFAR10(MNIST):
        def __getitem__(self, index):
            return self.transform(Image.fromarray(self.data[index])), self.targets[index]

    class VOCSegmentation(VisionDataset):
        def __init__(self, root, year="2012", image_set="train", download=False, transforms=None):
            super().__init__(root, transforms=transforms)
            raise RuntimeError("Dataset not found or corrupted.")

    class DatasetFolder(VisionDataset):
        def __init__(self, root, loader=None, transform=None):
            super().__init__(root, transform=transform)
            self.classes = sorted(path.name for path in Path(root).iterdir() if path.is_dir())
            if not self.classes:
                raise FileNotFoundError(f"Couldn't find any class folder in {root}.")
            self.samples = [
                (str(path), number) for number, name in enumerate(self.classes) for path in Path(root, name).iterdir()
            ]

        def __len__(self):
            return len(self.samples)

    class ImageFolder(DatasetFolder):
        def __init__(self, root, transform=None):
            super().__init__(root, transform=transform)
"""


def run(tmp_path: Path, script: str, how: str = "small") -> tuple[Ended, list[list[str]]]:
    pytest.importorskip("PIL")
    made = job(tmp_path, textwrap.dedent(script), stand_ins=how)
    vision = made.copy / "torchvision"
    vision.mkdir()
    (vision / "__init__.py").write_text("from torchvision import datasets\n")
    (vision / "datasets.py").write_text(textwrap.dedent(VISION))
    ended = start(made)
    told = made.folder / "stand-ins"
    return ended, [json.loads(line) for line in told.read_text().splitlines()] if told.exists() else []


def test_a_data_set_that_is_missing_is_made_up_in_its_own_shape(tmp_path: Path) -> None:
    ended, told = run(
        tmp_path,
        """
        import numpy, torch
        from torchvision import datasets
        kept = torch.get_rng_state()
        train, test = (datasets.MNIST("data", train, transform=numpy.asarray, download=True) for train in (True, False))
        image, label = train[5]
        print(len(train), len(test), image.shape, image.dtype, type(label).__name__, sorted(set(train.targets.tolist())))
        colour = datasets.CIFAR10("data", transform=numpy.asarray)
        print(len(colour), colour[0][0].shape, len(colour.classes), max(colour.targets))
        print(torch.equal(kept, torch.get_rng_state()), isinstance(colour, datasets.CIFAR10))
        print((train.data != datasets.MNIST("data", transform=None).data).sum().item())
        """,
    )
    assert ended.output.splitlines() == [
        "512 256 (28, 28) uint8 int [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]",
        "512 (32, 32, 3) 10 9",
        "True True",
        "0",
    ], ended.errors
    assert told == [["MNIST", "made up"], ["CIFAR10", "made up"]]


def test_what_is_on_disk_is_read(tmp_path: Path) -> None:
    script = """
        from pathlib import Path
        Path("data/MNIST").mkdir(parents=True)
        from torchvision import datasets
        print(len(datasets.MNIST("data")))
        """
    ended, told = run(tmp_path, script)
    assert (ended.output, told) == ("3\n", []), ended.errors


def test_true_lengths_where_a_script_counts_on_them(tmp_path: Path) -> None:
    script = "from torchvision.datasets import MNIST\nprint(len(MNIST('data')), len(MNIST('data', train=False)))"
    assert run(tmp_path, script, "true lengths")[0].output == "60000 10000\n"


def test_masks_have_the_size_of_their_image_and_classes_that_exist(tmp_path: Path) -> None:
    ended, told = run(
        tmp_path,
        """
        import numpy
        from torchvision.datasets import VOCSegmentation
        data = VOCSegmentation("data", transforms=lambda image, mask: (numpy.asarray(image), numpy.asarray(mask)))
        image, mask = data[3]
        print(image.shape, mask.shape, mask.max(), len(list(iter(data))) == len(data))
        """,
    )
    assert ended.output == "(256, 256, 3) (256, 256) 20 True\n", ended.errors
    assert told == [["VOCSegmentation", "made up"]]


def test_a_tree_of_images_grows_in_the_copy_and_only_there(tmp_path: Path) -> None:
    ended, told = run(
        tmp_path,
        """
        from torchvision.datasets import ImageFolder
        train, val = ImageFolder("data/train"), ImageFolder("/no/such/place/val")
        print(len(train), len(val), train.classes, train.samples[0][0].startswith("data/train/class_0/"))
        """,
    )
    assert ended.output == "192 96 ['class_0', 'class_1'] True\n", ended.errors
    assert told == [[place, "made up, 2 classes of images"] for place in ("data/train", "/no/such/place/val")]
    assert not Path("/no/such/place").exists()


def test_packages_that_only_watch_are_left_out_and_others_are_missed(tmp_path: Path) -> None:
    ended, told = run(
        tmp_path,
        """
        import wandb, comet_ml
        from visdom import Visdom
        run = wandb.init(project="x", config={"lr": 0.5})
        print(wandb.config.lr, run.config["lr"])
        run.log({"loss": 1.0}); Visdom(port=8097).line(X=[1], Y=[2]); comet_ml.Experiment().log_metric("a", 1)
        try:
            import no_such_package_of_anybody
        except ImportError as error:
            print(type(error).__name__)
        """,
    )
    assert ended.output == "0.5 0.5\nModuleNotFoundError\n", ended.errors
    assert told == [[name, "left out"] for name in ("wandb", "comet_ml", "visdom")]


def test_weights_that_would_be_downloaded_stay_those_of_the_model(tmp_path: Path) -> None:
    ended, told = run(
        tmp_path,
        """
        import torch
        from torch.hub import load_state_dict_from_url
        model = torch.nn.Linear(2, 1)
        before = model.weight.clone()
        answer = model.load_state_dict(load_state_dict_from_url("https://example.org/models/resnet18-f37072fd.pth"))
        print(torch.equal(model.weight, before), answer.missing_keys)
        """,
    )
    assert ended.output == "True []\n", ended.errors
    assert told == [["resnet18", "with random weights"]]


def test_the_network_is_refused_with_the_line_that_asks(tmp_path: Path) -> None:
    ended, _ = run(tmp_path, "\nimport urllib.request\nurllib.request.urlopen('http://example.org/data.zip')\n")
    assert ended.code == 1
    assert "train.py:3 asks for example.org:80, which has no stand-in" in ended.errors


def test_a_loader_for_a_large_machine_starts_few_workers(tmp_path: Path) -> None:
    ended, told = run(
        tmp_path,
        """
        import torch
        print(torch.utils.data.DataLoader([1, 2], num_workers=32).num_workers)
        print(torch.utils.data.DataLoader([1, 2], num_workers=1).num_workers)
        """,
    )
    assert (ended.output, told) == ("2\n1\n", [["loaders", "with 2 workers for 32"]]), ended.errors
