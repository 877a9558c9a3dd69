# ruff: noqa: E501  lines of scripts stand here as they are
"""AM962: right results, each broken in one way and under other names; and right results that must stay accepted."""

from __future__ import annotations

import re

import pytest

from tests.migrate.check.reading import said

RIGHT = """
import argparse, glob, os, shutil, subprocess, tarfile, tempfile, time, uuid, zipfile
from datetime import datetime
from pathlib import Path
import numpy as np
import torch
import wandb
from torch.utils.tensorboard import SummaryWriter
from settings import choose
from accel_runtime import Accelerator

options = argparse.ArgumentParser().parse_args()
accelerator = Accelerator()
folder = Path(options.folder)
target = os.path.join(folder, "best.pt")


class Keeper:
    def __init__(self, where):
        self.where = where

    def keep(self, weights):
        accelerator.save(weights, self.where)

    def restore(self):
        accelerator.wait_for_everyone()
        return torch.load(self.where)


def work(loader):
    os.makedirs(folder, exist_ok=True)
    keeper = Keeper(target)
    for epoch in range(3):
        for batch in loader:
            accelerator.backward(net(batch))
        keeper.keep(weights)
        if accelerator.is_main_process:
            np.save(folder / "curve.npy", curve)
        print("kept", target, os.path.basename(target))
    restored = keeper.restore()
    print(restored)


loader = accelerator.prepare(data)
work(loader)
"""
NAMES = {
    "options": "opt",
    "folder": "ckpt_root",
    "target": "best_file",
    "Keeper": "Guardian",
    "keeper": "g",
    "keep": "remember",
    "restore": "recall",
    "where": "p",
    "work": "fit",
    "weights": "state",
}
LAST = "    print(restored)\n"
BREAKS = {
    "no wait": ("        accelerator.wait_for_everyone()\n", ""),
    "a wait on some": ("        accelerator.wait_for_everyone()\n", "        if self.ready:\n            accelerator.wait_for_everyone()\n"),
    "another reader": ("        print(", '        read = np.load(folder / "curve.npy")\n        print(read, '),
    "a temporary folder": ("folder = Path(options.folder)", "folder = tempfile.mkdtemp()"),
    "a temporary folder with a block": (
        "    keeper = Keeper(target)\n",
        "    keeper = Keeper(os.path.join(tempfile.TemporaryDirectory().name, 'best.pt'))\n",
    ),
    "the clock": ("Path(options.folder)", 'Path("runs") / datetime.now().strftime("%H%M%S")'),
    "the clock, by a function": ("folder = Path(options.folder)", "def stamp():\n    return str(int(time.time()))\nfolder = Path(stamp())"),
    "chance": ('"best.pt")', 'f"{uuid.uuid4()}.pt")'),
    "the process": ('"best.pt")', 'f"{os.getpid()}.pt")'),
    "what a folder holds": ('"best.pt")', 'f"{len(os.listdir(folder))}.pt")'),
    "a writer's own folder": ("Path(options.folder)", "SummaryWriter().log_dir"),
    "a run's own folder": ("Path(options.folder)", "wandb.run.dir"),
    "a function that is not here": ("Path(options.folder)", "choose(options)"),
    "another working folder": ("accelerator = Accelerator()\n", "accelerator = Accelerator()\nos.chdir(time.strftime('%H%M'))\n"),
    "a process's own loss": (
        "        keeper.keep(weights)\n",
        "        keeper.where = f'{net(batch).item():.3f}.pt'\n        keeper.keep(weights)\n",
    ),
    "a copy": ("        print(", "        shutil.copy(target, 'last.pt')\n        print("),
    "a command": ("        print(", "        os.system(f'gzip -k {target}')\n        print("),
    "a command in parts": ("        print(", "        subprocess.run(['gzip', '-k', target])\n        print("),
    "an upload": ("        print(", "        upload = wandb.Artifact('net')\n        upload.add_file(target)\n        print("),
    "an upload by a common name": ("        print(", "        upload = wandb.Artifact('net')\n        upload.add(target)\n        print("),
    "an archive": ("        print(", "        archive = tarfile.open('a.tar', 'w')\n        archive.add(target)\n        print("),
    "its size": ("        print(", "        size = Path(target).stat().st_size\n        print("),
    "a question that decides": ("        print(", "        if not os.path.isfile(target):\n            break\n        print("),
    "a question that waits": ("        print(", "        while not Path(target).exists():\n            time.sleep(1)\n        print("),
    "a list of the folder": ("        print(", "        found = sorted(folder.glob('*.pt'))\n        print(found, "),
    "a function that is mapped": ("        print(", "        found = list(map(os.path.getsize, [target]))\n        print(found, "),
    "taken away too early": (LAST, "    if accelerator.is_main_process:\n        os.remove(target)\n" + LAST),
    "read by a dataset": (
        "        print(",
        "        class Rows:\n            def __getitem__(self, index):\n                return np.load(folder / 'curve.npy')[index]\n"
        "        rows = Rows()\n        print(rows, ",
    ),
}  # fmt: skip


def renamed(text: str) -> str:
    return re.sub(r"\b(" + "|".join(NAMES) + r")\b", lambda found: NAMES[found[0]], text)


def broken(name: str) -> str:
    old, new = BREAKS[name]
    assert old in RIGHT
    return RIGHT.replace(old, new, 1)


@pytest.mark.parametrize("text", [RIGHT, renamed(RIGHT)], ids=["as it is", "other names"])
def test_a_right_result(text: str) -> None:
    assert not said("AM962", "x = 1\n", text)


@pytest.mark.parametrize("name", BREAKS)
def test_a_broken_result(name: str) -> None:
    assert said("AM962", "x = 1\n", broken(name))
    assert said("AM962", "x = 1\n", renamed(broken(name)))


HARMLESS = {
    "shown": "        print(f'{target} of {folder}')\n",
    "logged": "        logger.info('kept %s', target)\n",
    "joined": "        other = os.path.join(folder, 'other.txt')\n",
    "kept in a list": "        names.append(target)\n",
    "asked, and shown": "        print(os.path.exists(target))\n",
    "asked, for one process": "        if os.path.exists(target) and accelerator.is_main_process:\n            os.remove(target)\n",
    "asked, to make a folder": "        if not os.path.exists(folder):\n            os.makedirs(folder, exist_ok=True)\n",
    "looked at by one": "        if accelerator.is_main_process:\n            print(os.path.getsize(target))\n",
    "copied by one": "        if accelerator.is_main_process:\n            shutil.copy(target, 'last.pt')\n",
    "after a wait": "        accelerator.wait_for_everyone()\n        print(os.path.getsize(target))\n        accelerator.wait_for_everyone()\n",
    "another file": "        print(os.path.getsize(os.path.join(options.data, 'labels.txt')))\n",
    "a tag": "        events.add_scalar('train/best', 1, epoch)\n",
}  # fmt: skip


@pytest.mark.parametrize("use", HARMLESS)
def test_what_does_nothing_with_the_file(use: str) -> None:
    assert not said("AM962", "x = 1\n", RIGHT.replace("        print(", HARMLESS[use] + "        print(", 1))


@pytest.mark.parametrize(
    "made",
    [
        'Path(yaml.safe_load(open("run.yaml"))["folder"])',
        'Path(os.environ.get("OUT", "out"))',
        'Path(__file__).parent / "out"',
        'Path("out") / type(net).__name__ / f"lr{options.rate}"',
        'Path(sys.argv[1].replace(" ", "_"))',
    ],
)
def test_a_path_that_all_make_alike(made: str) -> None:
    text = RIGHT.replace("import wandb\n", "import wandb\nimport sys\nimport yaml\n")
    assert not said("AM962", "x = 1\n", text.replace("Path(options.folder)", made))


def test_a_folder_by_the_clock_that_one_process_alone_looks_into() -> None:
    text = RIGHT.replace("Path(options.folder)", 'Path(time.strftime("%H%M%S"))')
    text = text.replace("    restored = keeper.restore()\n", "    restored = None\n")
    assert not said("AM962", "x = 1\n", text)


def test_a_folder_that_one_process_writes_by_an_argument() -> None:
    export = "    net.save_pretrained(options.out, is_main_process=accelerator.is_main_process)\n{}    Again.from_pretrained(options.out)\n"
    assert said("AM962", "x = 1\n", RIGHT.replace(LAST, export.format("")))
    assert not said("AM962", "x = 1\n", RIGHT.replace(LAST, export.format("    accelerator.wait_for_everyone()\n")))


@pytest.mark.parametrize(
    ("write", "use"),
    [
        ("names = pick()\naccelerator.save(w, names[0])\n", "os.path.getsize(names[0])\n"),
        ('accelerator.save(w, plan["best"])\n', 'other["best"] = plan["best"]\nos.path.getsize(other["best"])\n'),
        ("one, two = pick()\nkept.file = [one]\naccelerator.save(w, one)\n", "os.path.getsize(kept.file[0])\n"),
    ],
)
def test_a_path_that_is_not_spelled_out_but_handed_on(write: str, use: str) -> None:
    top = "import os\nfrom accel_runtime import Accelerator\naccelerator = Accelerator()\ndef pick():\n    return listed\n"
    assert said("AM962", "x = 1\n", top + write + use)
    assert not said("AM962", "x = 1\n", top + write + "accelerator.wait_for_everyone()\n" + use)


def test_another_key_of_the_same_mapping_is_another_value() -> None:
    top = "import os\nfrom accel_runtime import Accelerator\naccelerator = Accelerator()\nplan = {'best': a, 'width': b}\n"
    assert not said("AM962", "x = 1\n", top + "accelerator.save(w, plan['best'])\nlayer(plan['width'])\n")
    assert said("AM962", "x = 1\n", top + "accelerator.save(w, plan['best'])\nlayer(plan['best'])\n")
