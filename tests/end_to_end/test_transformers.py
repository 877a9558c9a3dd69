"""A small BERT of transformers, randomly initialised, in the loop that its users write."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.end_to_end.runs import run

SCRIPT = '''\
"""Fine-tune a small BERT for sequence classification."""

import torch
from torch.optim import AdamW
from torch.utils.data import DataLoader
from tqdm.auto import tqdm
from transformers import BertConfig, BertForSequenceClassification, default_data_collator, get_scheduler

torch.manual_seed(42)
vocabulary, length = 60, 12
examples = []
for _ in range(60):
    ids = torch.randint(1, vocabulary, (length,))
    examples.append({"input_ids": ids, "attention_mask": torch.ones_like(ids), "label": int(ids[0]) % 2})

train_dataloader = DataLoader(examples, shuffle=True, batch_size=8, collate_fn=default_data_collator)
eval_dataloader = DataLoader(examples[:21], batch_size=8, collate_fn=default_data_collator)

config = BertConfig(
    vocab_size=vocabulary,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=length,
)
model = BertForSequenceClassification(config)

device = torch.device("cuda") if torch.cuda.is_available() else torch.device("cpu")
model.to(device)

optimizer = AdamW(model.parameters(), lr=5e-3)
num_epochs = 2
num_training_steps = num_epochs * len(train_dataloader)
lr_scheduler = get_scheduler(
    "linear", optimizer=optimizer, num_warmup_steps=3, num_training_steps=num_training_steps
)

progress_bar = tqdm(range(num_training_steps))

for epoch in range(num_epochs):
    model.train()
    for batch in train_dataloader:
        batch = {k: v.to(device) for k, v in batch.items()}
        outputs = model(**batch)
        loss = outputs.loss
        loss.backward()

        optimizer.step()
        lr_scheduler.step()
        optimizer.zero_grad()
        progress_bar.update(1)

    model.eval()
    correct, total = 0, 0
    for batch in eval_dataloader:
        batch = {k: v.to(device) for k, v in batch.items()}
        with torch.no_grad():
            outputs = model(**batch)
        predictions = torch.argmax(outputs.logits, dim=-1)
        correct += (predictions == batch["labels"]).sum().item()
        total += len(batch["labels"])
    print(f"accuracy {correct / total:.4f} on {total}")
'''


def test_bert_trains_as_before_and_evaluates_the_same_on_two_processes(tmp_path: Path) -> None:
    before, after = tmp_path / "before.py", tmp_path / "after.py"
    before.write_text(SCRIPT)
    command = [sys.executable, "-m", "accel_migrate", str(before), "--output", str(after)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "accelerator.backward(loss)" in after.read_text()

    (original,) = run(before, (), tmp_path)
    (migrated,) = run(after, (), tmp_path)
    assert (original.error, migrated.error) == ("", "")
    assert original.losses, "the original trains nothing"
    assert migrated.losses == original.losses
    assert migrated.output == original.output

    (original,) = run(before, (), tmp_path, frozen=True)
    first, second = run(after, (), tmp_path, processes=2, frozen=True)
    assert (first.error, second.error) == ("", "")
    assert first.output == original.output
