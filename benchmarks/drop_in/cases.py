"""Every script that is compared: where it is, what it is run with, and what of it the installed libraries no longer take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Arguments = tuple[str, ...]
SAVED = ("--output_dir", "saved")


@dataclass(frozen=True)
class Case:
    """A script, and its runs in the order in which they are made: a later one may resume what an earlier one saved."""

    script: str
    runs: Mapping[str, Arguments]
    # Pieces of text, replaced on both sides, that fail on today's libraries or would ask for a large model.
    edits: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.script.rpartition("/")[2].removesuffix(".py")


def resuming(common: Arguments, step: int) -> dict[str, Arguments]:
    """Whole runs that save at a step and at an epoch, and runs that go on from there."""
    return {
        "whole": (*common, *SAVED, "--checkpointing_steps", str(step)),
        "from a step": (*common, *SAVED, "--resume_from_checkpoint", f"saved/step_{step}"),
        "whole, by epoch": (*common, *SAVED, "--checkpointing_steps", "epoch"),
        "from an epoch": (*common, *SAVED, "--resume_from_checkpoint", "saved/epoch_0"),
    }


def _example(name: str, *arguments: str, edits: Mapping[str, str] | None = None) -> Case:
    return Case(f"examples/{name}.py", {"whole": ("--cpu", *arguments)}, edits or {})


PETS = ("--cpu", "--data_dir", "pets")
SMALL_NETWORK = {
    'create_model("resnet50d", pretrained=True': 'create_model("test_resnet"',
    '"batch_size": 64, "image_size": 224': '"batch_size": 8, "image_size": 32',
}
# The memory of a GPU, on a machine without one.
NO_GPU = {"class TorchTracemalloc:": "class TorchTracemalloc:\n    begin = end = peak = 0"}
# transformers no longer has this.
NO_TELEMETRY = {
    "check_min_version, send_example_telemetry": "check_min_version",
    'send_example_telemetry("run_clm_no_trainer", args)': "pass",
}
LANGUAGE = (
    "--dataset_name", "Salesforce/wikitext", "--dataset_config_name", "wikitext-2-v1", "--model_name_or_path", "gpt2",
    "--per_device_train_batch_size", "2", "--per_device_eval_batch_size", "2", "--num_train_epochs", "2", "--seed", "3",
    "--block_size", "32",
)  # fmt: skip

EXAMPLES = (
    _example("nlp_example"),
    _example("cv_example", "--data_dir", "pets", edits=SMALL_NETWORK),
    Case("examples/complete_nlp_example.py", resuming(("--cpu",), 3)),
    Case("examples/complete_cv_example.py", resuming(PETS, 2), SMALL_NETWORK),
    _example("by_feature/automatic_gradient_accumulation"),
    Case("examples/by_feature/checkpointing.py", resuming(("--cpu",), 3)),
    _example("by_feature/cross_validation", "--num_folds", "2"),
    _example("by_feature/ddp_comm_hook"),
    Case("examples/by_feature/deepspeed_with_config_support.py", resuming(LANGUAGE, 3)),
    _example("by_feature/early_stopping"),
    Case(
        "examples/by_feature/fsdp_with_peak_mem_tracking.py",
        resuming(("--model_name_or_path", "bert-base-cased"), 3),
        NO_GPU,
    ),
    _example("by_feature/gradient_accumulation", "--gradient_accumulation_steps", "2"),
    _example(
        "by_feature/gradient_accumulation_for_autoregressive_models",
        "--gradient_accumulation_steps",
        "2",
        edits={"max_training_samples=500": "max_training_samples=100"},
    ),
    _example("by_feature/local_sgd", "--local_sgd_steps", "2"),
    Case("examples/by_feature/megatron_lm_gpt_pretraining.py", {"whole": (*LANGUAGE, *SAVED)}, NO_TELEMETRY),
    _example("by_feature/memory"),
    _example("by_feature/multi_process_metrics"),
    _example("by_feature/profiler"),
    _example("by_feature/schedule_free"),
    _example("by_feature/tracking", "--with_tracking"),
)

SHORT = (
    "--per_device_train_batch_size", "8", "--per_device_eval_batch_size", "8", "--num_train_epochs", "2", "--seed", "3",
)  # fmt: skip
MASKED = (
    "--dataset_name", "Salesforce/wikitext", "--dataset_config_name", "wikitext-2-v1", "--model_name_or_path",
    "bert-base-cased", "--max_seq_length", "32",
)  # fmt: skip
QUESTIONS = ("--max_seq_length", "48", "--doc_stride", "16")
PLAIN = ("--dataset_config_name", "plain", *SHORT)
BEAM = ("--dataset_name", "questions", "--model_name_or_path", "xlnet", *PLAIN, *QUESTIONS, *SAVED)
# It saves into the working folder, and an epoch only at the end.
BEAM_RUNS = {
    "whole": (*BEAM, "--checkpointing_steps", "3"),
    "from a step": (*BEAM, "--resume_from_checkpoint", "step_3"),
    "whole, by epoch": (*BEAM, "--checkpointing_steps", "epoch", "--num_train_epochs", "1"),
    "from an epoch": (*BEAM, "--resume_from_checkpoint", "epoch_0"),
}
# What fails on two processes on Accelerate too: parameters that take no part in the loss, as these and those of a dropped
# layer; the config of a wrapped model; gathering lists whose tensors are samples.
BEAM_ON_TWO = {
    "args.model_name_or_path), config=config\n    )": (
        "args.model_name_or_path), config=config\n    )\n    model.transformer.mask_emb.requires_grad_(False)"
    ),
    "n_top=model.config": "n_top=accelerator.unwrap_model(model).config",
}
MASKS_ON_TWO = {
    "    image_processor = AutoImageProcessor": (
        "    model.model.pixel_level_module.encoder.swin.layernorm.requires_grad_(False)\n"
        "    image_processor = AutoImageProcessor"
    ),
    "accelerator.gather_for_metrics(inputs)": (
        "{name: accelerator.gather_for_metrics(list(inputs[name]), use_gather_object=True) "
        'for name in ("mask_labels", "class_labels")}'
    ),
}
SOUND_ON_TWO = {
    "Wav2Vec2Config.from_pretrained(args.model_name_or_path)": (
        "Wav2Vec2Config.from_pretrained(args.model_name_or_path, layerdrop=0.0)"
    )
}
# The name that Accelerate had for it.
NO_TPU = {"DistributedType.TPU": "DistributedType.XLA"}
# Gone from huggingface_hub, and never right.
EMBEDDING = {
    "import Repository, create_repo": "import create_repo",
    "original_embeddings = model.get_input_embeddings()": "original_embeddings = model.get_input_embeddings().weight",
}
# It draws from generators of its own, which start anywhere.
SEEDED = {
    "import albumentations as A": (
        "import functools\n\nimport albumentations as A\n\nA.Compose = functools.partial(A.Compose, seed=3)"
    )
}


def _asking(module: str) -> dict[str, str]:
    """A loss that asks Accelerate for the other processes asks the runtime that the script imports."""
    return {
        "import transformers\n": (
            f"import transformers\nimport transformers.{module} as asking\nfrom accelerate import PartialState\n"
            "from accelerate.utils import reduce\n\nasking.PartialState, asking.reduce = PartialState, reduce\n"
        )
    }


# Beside the data, not on the hub.
LABELS = {'hf_hub_download(repo_id, filename, repo_type="dataset")': 'f"segments/{filename}"'}
# Decoded already: reading sound files takes another library.
SOUND = {
    "datasets.features.Audio(sampling_rate=feature_extractor.sampling_rate)": (
        'raw_datasets["train"].features[args.audio_column_name]'
    )
}


def _script(place: str, dataset: str, model: str, *arguments: str, edits: Mapping[str, str] | None = None) -> Case:
    common = ("--dataset_name", dataset, "--model_name_or_path", model, *arguments)
    return Case(f"examples/pytorch/{place}_no_trainer.py", resuming(common, 3), edits or {})


SCRIPTS = (
    Case(
        "examples/pytorch/text-classification/run_glue_no_trainer.py",
        resuming(("--model_name_or_path", "bert-base-cased", "--task_name", "mrpc", *SHORT), 3),
    ),
    Case("examples/pytorch/language-modeling/run_clm_no_trainer.py", resuming(LANGUAGE, 3), NO_TPU),
    Case(
        "examples/pytorch/language-modeling/run_fim_no_trainer.py",
        # What it draws for the next split depends on whether the last one was in the cache.
        resuming((*LANGUAGE, "--overwrite_cache"), 3),
        {**NO_TPU, **EMBEDDING},
    ),
    Case(
        "examples/pytorch/language-modeling/run_mlm_no_trainer.py",
        # Its third step is the last of an epoch on two processes: this runtime then draws that epoch's order once more
        # before the next, which is what it would have been, and Accelerate does not.
        resuming((*MASKED, *SHORT), 2),
        NO_TPU,
    ),
    _script("multiple-choice/run_swag", "swag", "bert-base-cased", *PLAIN),
    _script("token-classification/run_ner", "tagged", "bert-base-cased", *PLAIN),
    _script("question-answering/run_qa", "questions", "bert-base-cased", *PLAIN, *QUESTIONS),
    Case("examples/pytorch/question-answering/run_qa_beam_search_no_trainer.py", BEAM_RUNS, BEAM_ON_TWO),
    _script("summarization/run_summarization", "news", "t5", *PLAIN, "--val_max_target_length", "8", "--num_beams", "2"),
    _script(
        "translation/run_translation", "wmt", "t5", *PLAIN, "--source_lang", "en", "--target_lang", "de",
        "--val_max_target_length", "8", "--num_beams", "2",
    ),
    _script("image-classification/run_image_classification", "pictures", "vit", *SHORT, "--label_column_name", "labels"),
    _script(
        "image-pretraining/run_mim", "pictures", "vit", *SHORT, "--image_size", "32", "--patch_size", "8",
        "--mask_patch_size", "16", "--encoder_stride", "8", edits=NO_TPU,
    ),
    _script(
        "object-detection/run_object_detection", "boxes", "detr", *SHORT, "--image_square_size", "32",
        "--ignore_mismatched_sizes", edits={**SEEDED, **_asking("loss.loss_for_object_detection")},
    ),
    _script("semantic-segmentation/run_semantic_segmentation", "segments", "segformer", *SHORT, edits={**SEEDED, **LABELS}),
    _script(
        "instance-segmentation/run_instance_segmentation", "regions", "mask2former", *SHORT, "--image_height", "32",
        "--image_width", "32", "--dataloader_num_workers", "1",
        edits={**SEEDED, **MASKS_ON_TWO, **_asking("models.mask2former.modeling_mask2former")},
    ),
    Case(
        "examples/pytorch/speech-pretraining/run_wav2vec2_pretraining_no_trainer.py",
        # Gathers counts, which Accelerate cuts where the last round has fewer samples than there are processes: not here.
        {
            "whole": (
                "--dataset_name", "sounds", "--dataset_config_names", "plain", "--dataset_split_names", "train",
                "--model_name_or_path", "wav2vec2", *SHORT, *SAVED, "--max_duration_in_seconds", "0.2",
                "--min_duration_in_seconds", "0.05", "--validation_split_percentage", "30", "--logging_steps", "2",
                "--mask_time_length", "4",
            ),
        },
        {**SOUND, **SOUND_ON_TWO},
    ),
)  # fmt: skip
