"""A pretrained model that is read for its sequence alone has a pooler without a gradient."""

from __future__ import annotations

import pytest

from tests.migrate.rules.scripts import codes, training
from tests.migrate.rules.verbs import noted

NET = """
from transformers import BertModel, DistilBertModel
class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = {made}
        self.head = nn.Linear(8, 2)
    def forward(self, x):
        {read}
"""
PRETRAINED = "BertModel.from_pretrained('bert-base-uncased')"


def script(read: str, made: str = PRETRAINED) -> str:
    return training(functions=NET.format(made=made, read=read)).replace("model = nn.Linear(3, 2)", "model = Tagger()")


@pytest.mark.parametrize(
    "read",
    [
        "return self.head(self.words(x).last_hidden_state)",
        "return self.head(self.words(x)[0])",
        "found = self.words(x); return self.head(found.last_hidden_state[:, 0])",
        "sequence, _ = self.words(x, return_dict=False); return self.head(sequence)",
    ],
)
def test_notes_a_pooler_that_nothing_reads(read: str) -> None:
    assert "pooled output of `words` of Tagger" in noted(script(read), "AM808")


@pytest.mark.parametrize(
    ("read", "made"),
    [
        ("return self.head(self.words(x).pooler_output)", PRETRAINED),
        ("return self.head(self.words(x)[1])", PRETRAINED),
        ("_, pooled = self.words(x); return self.head(pooled)", PRETRAINED),
        ("found = self.words(x); return self.head(found.last_hidden_state), found", PRETRAINED),
        ("return self.head(self.words(x)[0])", "BertModel.from_pretrained('b', add_pooling_layer=False)"),
        ("return self.head(self.words(x)[0])", "DistilBertModel.from_pretrained('b')"),
        ("return self.head(self.words(x)[0])", "build('b')"),
        ("return self.head(self.words(x)[0])", PRETRAINED + "; self.words.pooler.requires_grad_(False)"),
    ],
)
def test_says_nothing_where_a_pooler_is_read_or_frozen_or_not_there(read: str, made: str) -> None:
    assert "AM808" not in codes(script(read, made))
