"""Data, metrics and tiny models, in the current folder, under the names that the scripts ask the hub for."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from datasets import ClassLabel, Dataset, Features, Image, List, Value
from PIL import Image as Pillow

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{number}" for number in range(120))]
CLASSES = ["cat", "dog", "owl"]
SIDE = 32
# Not a multiple of a batch, yet 8 of them on one process and 4 on each of two: windows of accumulation are whole.
ROWS = 61
TEXT = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
# What each metric is called with, and the figures that a script takes from its answer.
METRICS = {
    "glue": (["predictions", "references"], "int64", ["accuracy", "f1"]),
    "accuracy": (["predictions", "references"], "int64", ["accuracy"]),
    "seqeval": (
        ["predictions", "references"],
        "strings",
        ["overall_precision", "overall_recall", "overall_f1", "overall_accuracy"],
    ),
    "rouge": (["predictions", "references"], "string", ["rouge1", "rougeL"]),
    "sacrebleu": (["predictions", "references"], "texts", ["score"]),
    "mean_iou": (["predictions", "references"], "image", ["mean_iou", "mean_accuracy", "overall_accuracy"]),
    "squad": (["predictions", "references"], "answers", ["exact_match", "f1"]),
}
# Every figure is a sum over all rows, each weighted by what it holds: a row more or less, or a changed one, shows.
METRIC = '''\
import zlib

import datasets
import evaluate
import numpy as np

KINDS = {{
    "int64": [datasets.Value("int64"), datasets.Value("int64")],
    "string": [datasets.Value("string"), datasets.Value("string")],
    "strings": [datasets.Sequence(datasets.Value("string")), datasets.Sequence(datasets.Value("string"))],
    "texts": [datasets.Value("string"), datasets.Sequence(datasets.Value("string"))],
    "image": [datasets.Sequence(datasets.Sequence(datasets.Value("int64")))] * 2,
    "answers": [
        {{"id": datasets.Value("string"), "prediction_text": datasets.Value("string")}},
        {{
            "id": datasets.Value("string"),
            "answers": {{
                "text": datasets.Sequence(datasets.Value("string")),
                "answer_start": datasets.Sequence(datasets.Value("int64")),
            }},
        }},
    ],
}}


class Sums(evaluate.Metric):
    """Sums over what was predicted and what was true."""

    def _info(self):
        features = datasets.Features(dict(zip({columns!r}, KINDS[{kind!r}])))
        return evaluate.MetricInfo(description="", citation="", inputs_description="", features=features)

    def _compute(self, predictions, references, **ignored):
        rows = [repr((found, true)).encode() for found, true in zip(predictions, references)]
        marks = np.array(sorted(zlib.crc32(row) for row in rows), dtype=np.float64)
        return {{name: float(np.sqrt(marks + place).sum() / 65536) for place, name in enumerate({figures!r})}}
'''


def make(vocabulary: Path = Path("vocab.txt")) -> None:
    torch.manual_seed(0)
    for name, (columns, kind, figures) in METRICS.items():
        Path(name).mkdir()
        Path(name, f"{name}.py").write_text(METRIC.format(columns=columns, kind=kind, figures=figures))
    # What nltk wants before it splits sentences; empty files split at full stops.
    for name in ("collocations.tab", "sent_starters.txt", "abbrev_types.txt", "ortho_context.tab"):
        place = Path("nltk_data/tokenizers/punkt_tab/english", name)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("")
    Path("nltk_data/tokenizers/punkt").mkdir()
    vocabulary.write_text("\n".join(WORDS) + "\n")
    _make_texts(random.Random(0))
    _make_pictures(np.random.default_rng(0))
    _make_sounds(np.random.default_rng(0))
    # Nothing but what a language model takes: a script lengthens these columns together.
    columns = ["input_ids", "attention_mask"]
    tokenizer = transformers.BertTokenizerFast(str(vocabulary), model_max_length=64, eos_token="[SEP]")
    causal = transformers.BertTokenizerFast(
        str(vocabulary), model_max_length=64, eos_token="[SEP]", model_input_names=columns
    )
    _make_text_models(tokenizer, causal)
    _make_other_models()


def _make_texts(draw: random.Random) -> None:
    def sentence() -> str:
        return " ".join(draw.choice(WORDS[5:]) for _ in range(draw.randint(4, 12)))

    def question(index: int) -> dict[str, Any]:
        context = f"{sentence()} {sentence()}"
        answer = draw.choice(context.split())
        start = context.index(answer)
        answers = {"text": [answer], "answer_start": [start]}
        return {"id": str(index), "question": sentence(), "context": context, "answers": answers}

    def pair(index: int) -> dict[str, Any]:
        return {"sentence1": sentence(), "sentence2": sentence(), "label": draw.randint(0, 1), "idx": index}

    def tagged(index: int) -> dict[str, Any]:
        tokens = sentence().split()
        return {"tokens": tokens, "ner_tags": [draw.choice(["O", "B-PER", "B-LOC"]) for _ in tokens]}

    def choice(index: int) -> dict[str, Any]:
        endings = {f"ending{place}": sentence() for place in range(4)}
        return {"sent1": sentence(), "sent2": sentence(), **endings, "label": draw.randint(0, 3)}

    named = Features(
        sentence1=Value("string"), sentence2=Value("string"), label=ClassLabel(names=["no", "yes"]), idx=Value("int32")
    )
    _write("nyu-mll/glue", pair, "mrpc", named, 121)
    _write("Salesforce/wikitext", lambda index: {"text": sentence()}, "wikitext-2-v1", rows=121)
    _write("questions", question)
    _write("tagged", tagged)
    _write("swag", choice)
    _write("news", lambda index: {"document": sentence(), "summary": f"{sentence()}."})
    _write("wmt", lambda index: {"translation": {"en": sentence(), "de": sentence()}})


def _make_pictures(draw: np.random.Generator) -> None:
    def picture() -> Pillow.Image:
        return Pillow.fromarray(draw.integers(0, 255, (SIDE, SIDE, 3), dtype=np.uint8))

    def box(index: int) -> dict[str, Any]:
        left, top = (int(place) for place in draw.integers(1, 10, 2))
        objects = {
            "id": [index],
            "area": [200.0],
            "bbox": [[float(left), float(top), 14.0, 14.0]],
            "category": [index % 3],
        }
        return {"image_id": index, "image": picture(), "width": SIDE, "height": SIDE, "objects": objects}

    def regions(index: int) -> dict[str, Any]:
        # The first plane names the class of a pixel, the second which one of that class it belongs to.
        planes = np.zeros((SIDE, SIDE, 3), dtype=np.uint8)
        planes[4:20, 4:20] = (index % 2 + 1, 1, 0)
        return {
            "image": picture(),
            "annotation": Pillow.fromarray(planes),
            "semantic_class_to_id": {"sky": 0, "cat": 1, "dog": 2},
        }

    def segments(index: int) -> dict[str, Any]:
        return {"image": picture(), "label": Pillow.fromarray(draw.integers(0, 3, (SIDE, SIDE), dtype=np.uint8))}

    Path("pets").mkdir()
    for index in range(76):
        picture().save(f"pets/{CLASSES[index % 3]}_{index}.jpg")
    named = Features({"image": Image(), "labels": ClassLabel(names=CLASSES)})
    _write("pictures", lambda index: {"image": picture(), "labels": index % 3}, features=named)
    boxes = {
        "id": List(Value("int64")),
        "area": List(Value("float32")),
        "bbox": List(List(Value("float32"))),
        "category": List(ClassLabel(names=CLASSES)),
    }
    sizes = {name: Value("int64") for name in ("image_id", "width", "height")}
    _write("boxes", box, features=Features({"image": Image(), "objects": boxes, **sizes}))
    _write("segments", segments, features=Features({"image": Image(), "label": Image()}))
    classes = {name: Value("int64") for name in ("sky", "cat", "dog")}
    _write(
        "regions",
        regions,
        features=Features({"image": Image(), "annotation": Image(), "semantic_class_to_id": classes}),
    )
    Path("segments/id2label.json").write_text(json.dumps(dict(enumerate(CLASSES))))


def _make_sounds(draw: np.random.Generator) -> None:
    def sound(index: int) -> dict[str, Any]:
        return {"audio": {"array": draw.normal(size=1500 + 20 * index).tolist(), "sampling_rate": 16000}}

    _write("sounds", sound)


def _write(
    name: str,
    row: Callable[[int], dict[str, Any]],
    config: str = "plain",
    features: Features | None = None,
    rows: int = ROWS,
) -> None:
    counts = {"train": rows, "validation": 27, "test": 11}
    for split, count in counts.items():
        made = Dataset.from_list([row(index) for index in range(count)], features=features)
        made.to_parquet(f"{name}/{config}/{split}.parquet")
    files = "".join(f"  - split: {split}\n    path: {config}/{split}.parquet\n" for split in counts)
    Path(name, "README.md").write_text(f"---\nconfigs:\n- config_name: {config}\n  data_files:\n{files}---\n")


def _make_text_models(tokenizer: Any, causal: Any) -> None:
    bert = transformers.BertConfig(vocab_size=len(WORDS), **TEXT)
    llama = transformers.LlamaConfig(vocab_size=len(WORDS), **TEXT)
    gpt2 = transformers.GPT2Config(vocab_size=len(WORDS), n_embd=32, n_layer=2, n_head=2, n_positions=64)
    xlnet = transformers.XLNetConfig(
        vocab_size=len(_pieces()), d_model=32, n_layer=2, n_head=2, d_inner=64, start_n_top=2, end_n_top=2
    )
    t5 = transformers.T5Config(
        vocab_size=len(WORDS),
        d_model=32,
        d_kv=16,
        d_ff=64,
        num_layers=2,
        num_heads=2,
        decoder_start_token_id=0,
        eos_token_id=3,
    )
    models = {
        "bert-base-cased": transformers.BertForPreTraining(bert),
        "HuggingFaceTB/SmolLM-360M": transformers.LlamaForCausalLM(llama),
        "gpt2": transformers.GPT2LMHeadModel(gpt2),
        "xlnet": transformers.XLNetForQuestionAnswering(xlnet),
        "t5": transformers.T5ForConditionalGeneration(t5),
    }
    for name, model in models.items():
        model.save_pretrained(name)
        {"gpt2": causal, "xlnet": _pieces()}.get(name, tokenizer).save_pretrained(name)


def _pieces() -> Any:
    """The tokenizer that XLNet's script asks for by its class, with one piece for each word."""
    special = ["<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>", "<eod>", "<eop>"]
    words = [f"\N{LOWER ONE EIGHTH BLOCK}{word}" for word in WORDS[5:]]
    pieces = [(piece, -float(place)) for place, piece in enumerate([*special, *words])]
    return transformers.XLNetTokenizerFast(vocab=pieces, model_max_length=64)


def _make_other_models() -> None:
    sizes = {"image_size": SIDE, "patch_size": 8, **TEXT}
    vit = transformers.ViTConfig(**sizes, encoder_stride=8)
    layers = {"encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2}
    stages = {"embedding_size": 8, "hidden_sizes": [8, 8, 8, 8], "depths": [1, 1, 1, 1]}
    detr = transformers.DetrConfig(
        use_timm_backbone=False,
        use_pretrained_backbone=False,
        backbone=None,
        backbone_config=transformers.ResNetConfig(**stages, out_features=["stage4"]),
        d_model=32,
        num_queries=5,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        **layers,
    )
    segformer = transformers.SegformerConfig(
        hidden_sizes=[8, 8, 16, 16],
        depths=[1, 1, 1, 1],
        num_attention_heads=[1, 1, 2, 2],
        decoder_hidden_size=16,
        num_labels=3,
    )
    swin = transformers.SwinConfig(
        image_size=SIDE,
        embed_dim=8,
        depths=[1, 1, 1, 1],
        num_heads=[1, 1, 1, 1],
        window_size=4,
        out_features=["stage1", "stage2", "stage3", "stage4"],
    )
    mask2former = transformers.Mask2FormerConfig(
        backbone_config=swin,
        feature_size=32,
        mask_feature_size=32,
        hidden_dim=32,
        encoder_feedforward_dim=32,
        encoder_layers=1,
        decoder_layers=2,
        num_attention_heads=2,
        dim_feedforward=16,
        num_queries=4,
        train_num_points=16,
    )
    wav2vec2 = transformers.Wav2Vec2Config(
        **TEXT,
        do_stable_layer_norm=True,
        feat_extract_norm="layer",
        conv_dim=[16] * 3,
        conv_kernel=[10, 3, 3],
        conv_stride=[5, 2, 2],
        num_feat_extract_layers=3,
        num_codevectors_per_group=8,
        codevector_dim=16,
        proj_codevector_dim=16,
        num_negatives=4,
        num_conv_pos_embeddings=8,
        num_conv_pos_embedding_groups=2,
    )
    square = {"height": SIDE, "width": SIDE}
    models = {
        "vit": (transformers.ViTForMaskedImageModeling(vit), transformers.ViTImageProcessor(size=square)),
        "detr": (transformers.DetrForObjectDetection(detr), transformers.DetrImageProcessor()),
        "segformer": (
            transformers.SegformerForSemanticSegmentation(segformer),
            transformers.SegformerImageProcessor(size=square),
        ),
        "mask2former": (
            transformers.Mask2FormerForUniversalSegmentation(mask2former),
            transformers.Mask2FormerImageProcessor(size=square),
        ),
        "wav2vec2": (
            transformers.Wav2Vec2ForPreTraining(wav2vec2),
            transformers.Wav2Vec2FeatureExtractor(do_normalize=True, return_attention_mask=True),
        ),
    }
    for name, (model, processor) in models.items():
        model.save_pretrained(name)
        processor.save_pretrained(name)
