"""transformers loads and spreads its models with this runtime in the place of Accelerate."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.peer_alias import write_alias

ROOT = Path(__file__).parents[2]
SCRIPT = """\
import accelerate
import torch
from transformers import LlamaConfig, LlamaForCausalLM

assert accelerate.__name__ == "accel_runtime"
torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=4, num_attention_heads=2, tie_word_embeddings=True
)
whole = LlamaForCausalLM(config).eval()
whole.save_pretrained("saved", max_shard_size="30KB")
words = torch.arange(10)[None]
with torch.no_grad():
    expected = whole(words).logits

MAPS = [
    {"": "cpu"},
    {"": "cpu", "model.layers.1": "disk", "model.layers.2.mlp": "disk"},
    {"model": "disk", "lm_head": "disk"},
    "auto",
]
for count, device_map in enumerate(MAPS):
    budgets = {"cpu": "60KB"} if device_map == "auto" else None
    model = LlamaForCausalLM.from_pretrained(
        "saved", device_map=device_map, max_memory=budgets, low_cpu_mem_usage=True, offload_folder=f"away{count}"
    ).eval()
    with torch.no_grad():
        found = model(words).logits
    model.save_pretrained(f"again{count}")
    again = LlamaForCausalLM.from_pretrained(f"again{count}").state_dict()
    kept = all(torch.equal(again[name], value) for name, value in whole.state_dict().items())
    places = set(getattr(model, "hf_device_map", {}).values())
    print(count, torch.equal(found, expected), kept, sorted(map(str, places)))
"""


def test_models_that_are_loaded_with_a_device_map_answer_as_whole_ones(tmp_path: Path) -> None:
    (tmp_path / "load.py").write_text(SCRIPT)
    path = os.pathsep.join(map(str, (write_alias(tmp_path / "alias"), ROOT / "runtime", ROOT)))
    done = subprocess.run(
        [sys.executable, "load.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path, "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[1:3] for line in lines] == [["True", "True"]] * 4, done.stdout
    assert all("'disk'" in line for line in lines[1:]), done.stdout
