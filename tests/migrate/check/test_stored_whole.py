"""AM963: no object that holds the Accelerator is stored or copied whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from accel_migrate.pipeline import migrate
from accel_migrate.settings import DEFAULTS
from accel_migrate.source import Source

from tests.migrate.check.reading import said

HOLDER = (
    "import copy\nimport pickle\nimport torch\nfrom accel_runtime import Accelerator\n"
    "class Tagger:\n    def __init__(self):\n        self.accelerator = Accelerator()\n{more}"
    "class Crowd(Tagger):\n    pass\n"
    "class Room:\n    def __init__(self):\n        self.best = Tagger()\n"
)


@pytest.mark.parametrize(
    "code",
    [
        "pickle.dump(Tagger(), open('tagger.pkl', 'wb'))",
        "tagger = Tagger()\ntorch.save(tagger, 'tagger.pt')",
        "tagger = Tagger()\ntorch.save({'tagger': tagger, 'epoch': 3}, 'tagger.pt')",
        "tagger = Tagger()\ntorch.save(tagger.__dict__, 'tagger.pt')",
        "def keep(thing, path):\n    with open(path, 'wb') as file:\n        pickle.dump(thing, file)\nkeep(Crowd(), 'c.pkl')",
        "best = copy.deepcopy(Tagger())",
        "from copy import deepcopy as copied\nroom = Room()\nbest = copied(room)",
    ],
)
def test_an_object_with_the_accelerator_is_not_stored(code: str) -> None:
    assert said("AM963", "x = 1\n", HOLDER.format(more="") + code + "\n")


@pytest.mark.parametrize(
    "code",
    [
        "pickle.dump({'words': 3}, open('words.pkl', 'wb'))",
        "tagger = Tagger()\ntorch.save(tagger.accelerator.get_state_dict(model), 'tagger.pt')",
        "tagger = Tagger()\npickle.dump(tagger.vocabulary, open('words.pkl', 'wb'))",
    ],
)
def test_other_things_may_be_stored(code: str) -> None:
    assert not said("AM963", "x = 1\n", HOLDER.format(more="") + code + "\n")


def test_an_object_that_says_what_is_stored() -> None:
    more = "    def __getstate__(self):\n        return {}\n"
    assert not said("AM963", "x = 1\n", HOLDER.format(more=more) + "pickle.dump(Tagger(), open('tagger.pkl', 'wb'))\n")


TAGGER = """
import torch
from torch import nn


class Tagger:
    def __init__(self, words):
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.model = nn.Embedding(words, 4).to(self.device)
        self.optimizer = torch.optim.Adam(self.model.parameters())

    def fit(self, sentences):
        for sentence in sentences:
            self.optimizer.zero_grad()
            loss = self.model(sentence.to(self.device)).sum()
            loss.backward()
            self.optimizer.step()
"""
RUN = """
from store import keep
from tagger import Tagger

tagger = Tagger(5)
tagger.fit([])
keep({kept}, "tagger.pkl")
"""
STORE = (
    "import pickle\n\n\ndef keep(thing, path):\n    with open(path, 'wb') as file:\n        pickle.dump(thing, file)\n"
)


@pytest.mark.parametrize(("kept", "reason"), [("tagger", "would store the Accelerator that Tagger holds"), ("3", "")])
def test_a_trainer_that_files_without_torch_store(kept: str, reason: str) -> None:
    files = {"tagger.py": TAGGER, "run.py": RUN.format(kept=kept), "store.py": STORE}
    results = migrate([Source.from_bytes(Path(name), text.encode()) for name, text in files.items()], DEFAULTS)
    assert reason in results[0].reason
    assert (b"accelerator.prepare" in results[0].after) == (not reason)
