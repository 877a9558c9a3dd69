"""Models, tokenizers and data sets of the Hugging Face hub: the architecture with random weights, words that are made up."""

from __future__ import annotations

import string
from collections.abc import Callable
from typing import Any, NamedTuple

from accel_migrate.proof.recorder.stand_ins.made_up import dice, sentence
from accel_migrate.proof.recorder.stand_ins.told import Told

LAYERS = 2  # of a model whose weights are not here; widths stay as they are, because scripts count on them
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
SMALL = {"train": 256, "validation": 64, "test": 64, "unsupervised": 64}


class Rows(NamedTuple):
    """The columns of a data set: text by name, and how many classes its label has."""

    texts: tuple[str, ...]
    classes: int = 0
    splits: tuple[str, ...] = ("train", "test")


SETS = {
    "imdb": Rows(("text",), 2, ("train", "test", "unsupervised")),
    "rotten_tomatoes": Rows(("text",), 2, ("train", "validation", "test")),
    "ag_news": Rows(("text",), 4),
    "yelp_polarity": Rows(("text",), 2),
    "yelp_review_full": Rows(("text",), 5),
    "emotion": Rows(("text",), 6, ("train", "validation", "test")),
    "wikitext": Rows(("text",), 0, ("train", "validation", "test")),
    "glue/sst2": Rows(("sentence",), 2, ("train", "validation", "test")),
    "glue/cola": Rows(("sentence",), 2, ("train", "validation", "test")),
    "glue/mrpc": Rows(("sentence1", "sentence2"), 2, ("train", "validation", "test")),
    "glue/rte": Rows(("sentence1", "sentence2"), 2, ("train", "validation", "test")),
    "glue/qqp": Rows(("question1", "question2"), 2, ("train", "validation", "test")),
    "glue/mnli": Rows(("premise", "hypothesis"), 3, ("train", "validation_matched", "validation_mismatched")),
}


def of_datasets(datasets: Any, told: Told) -> None:
    if not hasattr(datasets, "load_dataset"):
        return  # a module of the project itself
    plain = datasets.load_dataset

    def load_dataset(path: str, name: str | None = None, *args: Any, split: Any = None, **kwargs: Any) -> Any:
        key = next((each for each in (f"{path}/{name}", path) if each.rpartition("nyu-mll/")[2] in SETS), None)
        known = SETS.get((key or "").rpartition("nyu-mll/")[2])
        if known is None:
            return plain(path, name, *args, split=split, **kwargs)
        told.say(key or path, "made up")
        made = {each: _rows(datasets, key or path, known, each) for each in known.splits}
        return datasets.DatasetDict(made) if split is None else made[str(split).partition("[")[0]]

    datasets.load_dataset = load_dataset


def _rows(datasets: Any, name: str, known: Rows, split: str) -> Any:
    numbers, length = dice(name, split), SMALL.get(split, 64)
    columns: dict[str, list[Any]] = {column: [sentence(numbers) for _ in range(length)] for column in known.texts}
    if known.classes:
        columns["label"] = [numbers.randrange(known.classes) for _ in range(length)]
    made = datasets.Dataset.from_dict({**columns, **({"idx": list(range(length))} if "/" in name else {})})
    if known.classes:
        labels = datasets.ClassLabel(names=[f"class {number}" for number in range(known.classes)])
        made = made.cast_column("label", labels)
    return made


def of_transformers(transformers: Any, told: Told) -> None:
    if not hasattr(transformers, "CONFIG_MAPPING"):
        return  # a module of the project itself
    configs = transformers.CONFIG_MAPPING

    def family(name: str) -> str | None:
        found = [each for each in configs if each in name.lower().replace("_", "-")]
        return max(found, key=len, default=None)

    def config(name: str, **kwargs: Any) -> Any:
        kind = family(name)
        if kind is None:
            return None
        made = configs[kind]()
        for layers in ("num_hidden_layers", "num_layers", "encoder_layers", "decoder_layers"):
            if isinstance(getattr(made, layers, None), int):
                setattr(made, layers, min(getattr(made, layers), LAYERS))
        for key in [key for key in kwargs if hasattr(made, key)]:
            setattr(made, key, kwargs[key])
        return made

    def or_made(plain: Any, made: Callable[..., Any]) -> Any:
        def from_pretrained(cls: Any, name: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return plain.__func__(cls, name, *args, **kwargs)
            except (OSError, ValueError):
                stood = made(cls, str(name), **kwargs)
                if stood is None:
                    raise
                return stood

        return classmethod(from_pretrained)

    def model(cls: Any, name: str, **kwargs: Any) -> Any:
        made = kwargs.get("config") or config(name, **kwargs)
        if made is None:
            return None
        told.say(name, f"with random weights and {LAYERS} layers")
        return cls.from_config(made) if hasattr(cls, "from_config") else cls(made)

    def tokenizer(cls: Any, name: str, **kwargs: Any) -> Any:
        told.say(f"{name}'s tokenizer", "by letters")
        return _letters(transformers)

    names = [name for name in dir(transformers) if name.startswith("AutoModel")]
    for kind in {getattr(transformers, name) for name in names}:
        if hasattr(kind, "from_pretrained"):
            kind.from_pretrained = or_made(kind.from_pretrained, model)
    base = transformers.PreTrainedModel
    base.from_pretrained = or_made(base.from_pretrained, model)
    transformers.AutoConfig.from_pretrained = or_made(
        transformers.AutoConfig.from_pretrained, lambda cls, name, **kwargs: config(name, **kwargs)
    )
    for each in (transformers.AutoTokenizer, transformers.PreTrainedTokenizerBase):
        each.from_pretrained = or_made(each.from_pretrained, tokenizer)


def _letters(transformers: Any) -> Any:
    import tokenizers

    letters = string.ascii_letters + string.digits + string.punctuation
    words = [*SPECIAL, *letters, *[f"##{letter}" for letter in letters]]
    made = tokenizers.Tokenizer(
        tokenizers.models.WordPiece({word: number for number, word in enumerate(words)}, unk_token="[UNK]")
    )
    made.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        mask_token="[MASK]", eos_token="[SEP]", bos_token="[CLS]", model_max_length=512,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )  # fmt: skip
