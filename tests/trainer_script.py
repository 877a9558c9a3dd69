"""A script that trains, evaluates, saves and resumes with transformers.Trainer; `steps` is its accumulation."""

from __future__ import annotations

SCRIPT = """\
import json

import accelerate
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

STEPS = {steps}
generator = torch.Generator().manual_seed(0)
rows = []
for _ in range(54):  # 16 to evaluate: whole batches on two processes
    words = torch.randint(1, 60, (12,), generator=generator)
    rows.append({{"input_ids": words, "attention_mask": torch.ones_like(words), "labels": int(words[0]) % 2}})
trained_on, held_out = rows[:38], rows[38:]


def trainer(folder):
    torch.manual_seed(3)
    config = BertConfig(
        vocab_size=60,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=12,
    )
    arguments = TrainingArguments(
        output_dir=folder,
        per_device_train_batch_size=4,
        per_device_eval_batch_size=4,
        gradient_accumulation_steps=STEPS,
        num_train_epochs=2,
        logging_steps=1,
        eval_strategy="epoch",
        save_strategy="steps",
        save_steps=3,
        report_to=[],
        seed=5,
        learning_rate=1e-3,
        use_cpu=True,
        average_tokens_across_devices=False,  # else transformers multiplies losses by the number of processes
        disable_tqdm=True,
    )
    return Trainer(
        BertForSequenceClassification(config),
        arguments,
        train_dataset=trained_on,
        eval_dataset=held_out,
        compute_metrics=lambda found: {{"right": int((found.predictions.argmax(-1) == found.label_ids).sum())}},
    )


whole = trainer("whole")
whole.train()
resumed = trainer("resumed")
resumed.train(resume_from_checkpoint="whole/checkpoint-3")
whole.save_model("final")
if whole.is_world_process_zero():
    saved = BertForSequenceClassification.from_pretrained("final").eval()
    batch = {{key: torch.stack([torch.as_tensor(row[key]) for row in held_out]) for key in held_out[0]}}
    with torch.no_grad():
        plain = saved(**batch)
    pairs = zip(whole.model.state_dict().values(), resumed.model.state_dict().values())
    kept = ("loss", "eval_loss", "grad_norm", "learning_rate", "step", "eval_right")
    logs = [[{{key: log[key] for key in kept if key in log}} for log in it.state.log_history] for it in (whole, resumed)]
    found = {{
        "package": accelerate.__name__,
        "steps": whole.state.global_step,
        "equal weights": all(torch.equal(one, other) for one, other in pairs),
        "logs": logs,
        "weights": [float(value.double().abs().sum()) for value in whole.model.state_dict().values()],
        "evaluated": [whole.state.log_history[-2]["eval_loss"], whole.state.log_history[-2]["eval_right"]],
        "plain": [float(plain.loss), int((plain.logits.argmax(-1) == batch["labels"]).sum())],
    }}
    with open("found.json", "w") as file:
        json.dump(found, file)
"""
