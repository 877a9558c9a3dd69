"""The same mistakes on accel, Accelerate, Fabric and torchrun: how much is printed, and whether the remedy is named.

    python benchmarks/mistakes.py --accelerate PYTHON --fabric PYTHON [--keep FILE] [--only WORD] [--patience SECONDS]

PYTHON is an interpreter that has the package; without it that column is left out. Two processes on the CPU. A run that has not
ended in `--patience` seconds hangs; on a busy machine give more. `--keep` has the output of every run, and a run that is in it
is not done again.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import psutil

# What a body may use: rank, barrier(), gather(x), prepare(model, optimizer), backward(loss), save(model), load(model, folder).
STARTS = {
    "accel": """
from accel_runtime import Accelerator
a = Accelerator()
rank, barrier, gather, prepare, backward = a.process_index, a.wait_for_everyone, a.gather, a.prepare, a.backward
save = lambda model: a.save_state("state")
load = lambda model, folder: a.load_state(folder)
""",
    "Accelerate": """
from accelerate import Accelerator
a = Accelerator()
rank, barrier, gather, prepare, backward = a.process_index, a.wait_for_everyone, a.gather, a.prepare, a.backward
save = lambda model: a.save_state("state")
load = lambda model, folder: a.load_state(folder)
""",
    "Fabric": """
from lightning.fabric import Fabric
a = Fabric()
rank, barrier, gather, prepare, backward = a.global_rank, a.barrier, a.all_gather, a.setup, a.backward
save = lambda model: a.save("state/model.ckpt", {"model": model})
load = lambda model, folder: a.load(folder + "/model.ckpt", {"model": model})
""",
    "torchrun": """
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
rank, barrier = dist.get_rank(), dist.barrier
prepare = lambda model, optimizer: (DistributedDataParallel(model), optimizer)
backward = lambda loss: loss.backward()
def gather(tensor):
    everyone = [torch.empty_like(tensor) for _ in range(2)]
    dist.all_gather(everyone, tensor)
    return torch.cat(everyone)
def save(model):
    os.makedirs("state", exist_ok=True)
    torch.save(model.state_dict(), "state/model.pt")
load = lambda model, folder: model.load_state_dict(torch.load(folder + "/model.pt"))
""",
}

FLAGS = {
    "accel": "-m accel_runtime launch --cpu --num-processes 2",
    "Accelerate": "-m accelerate.commands.launch --main_process_port {free} "
    "--multi_gpu --num_processes 2 --num_machines 1 --mixed_precision no "
    "--dynamo_backend no",
    "Fabric": "-c from|lightning.fabric.cli|import|_main;_main() run --main-port {free} "
    "--accelerator cpu --strategy ddp --devices 2",
    "torchrun": "-m torch.distributed.run --master-port {free} --nproc-per-node 2",
}

TRAIN = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.used = torch.nn.Linear(4, 1)
    def forward(self, x):
        return self.used(x)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
STEPS = """
for step in range(3):
    loss = model(torch.randn(8, 4)).square().mean()
    backward(loss)
    optimizer.step()
    optimizer.zero_grad()
"""


@dataclass(frozen=True)
class Mistake:
    """`remedy` is what the output must have to name the remedy; `flags` are added to the command, by tool."""

    name: str
    remedy: str
    body: str = ""
    flags: dict[str, str] | None = None
    plain: bool = False
    script: str = "train.py"
    without: str = ""
    harmless: bool = False  # a run that ends well has trained as one process does


MISTAKES = [
    Mistake(
        "an option is misspelled",
        r"(?i)did you mean|possible options",
        flags={
            "accel": "--mixed-precison bf16",
            "Accelerate": "--mixed_precison bf16",
            "Fabric": "--precison bf16",
            "torchrun": "--max-restart-count 1",
        },
    ),
    Mistake("the script does not exist", r"(?i)no such file|does not exist|not found|there is no", script="trian.py"),
    Mistake(
        "a precision that there is not",
        r"bf16",
        flags={"accel": "--mixed-precision bf61", "Accelerate": "--mixed_precision bf61", "Fabric": "--precision bf61"},
    ),
    Mistake(
        "the port is taken",
        r"(?i)another port|free port|port.{0,40} 0|main_process_port",
        flags={
            "accel": "--main-process-port {port}",
            "Accelerate": "--main_process_port {port}",
            "Fabric": "--main-port {port}",
            "torchrun": "--master-port {port}",
        },
    ),
    Mistake(
        "GPUs are asked for that the machine has not",
        r"--cpu|cpu=True|accelerator.{0,10}cpu|(?i:(use|on) the CPU)",
        flags={"accel": "--devices 0,1", "Accelerate": "--gpu_ids 0,1", "Fabric": "--accelerator cuda"},
        body="model, optimizer = prepare(model, optimizer)" + STEPS,
        without="--cpu",
    ),
    Mistake(
        "a plain script, not migrated, on two processes",
        r"accel-migrate|prepare",
        STEPS.replace("backward(loss)", "loss.backward()"),
        plain=True,
    ),
    Mistake("the model is not prepared", r"prepare\(|setup\(", STEPS),
    Mistake(
        "a layer without a gradient",
        r"find_unused_parameters.*unused\.weight|unused\.weight.*find_unused_parameters",
        "model.unused = torch.nn.Linear(4, 1)\nmodel, optimizer = prepare(model, optimizer)" + STEPS,
        harmless=True,
    ),
    Mistake(
        "a collective under a condition on the rank",
        r"train\.py:\d+.*train\.py:\d+",
        "if rank == 0:\n    gather(torch.ones(1))\nbarrier()\nbarrier()\n",
    ),
    Mistake(
        "tensors of different shapes are gathered",
        r"pad_across_processes|\[?\(?1,?\)?\]?.*\[?\(?2,?\)?\]?.*(rank|process)",
        "print(gather(torch.ones(1 + rank)).tolist())\n",
    ),
    Mistake(
        "one rank leaves early",
        r"rank 1\b.*(left|ended)",
        "if rank == 1:\n    sys.exit(0)\nbarrier()\ngather(torch.ones(1))\n",
    ),
    Mistake(
        "one rank raises an error",
        r"rank.{0,6}1\b.*ValueError: bad batch",
        "if rank == 1:\n    raise ValueError('bad batch')\nbarrier()\n",
    ),
    Mistake(
        "one rank is killed",
        r"memory",
        "if rank == 1:\n    os.kill(os.getpid(), 9)\nbarrier()\ngather(torch.ones(1))\n",
    ),
    Mistake(
        "a checkpoint that is not there",
        r"missing_ok|nowhere",
        "model, optimizer = prepare(model, optimizer)\nload(model, 'nowhere')\n",
    ),
    Mistake(
        "a checkpoint that is damaged",
        r"state/\S*model\S*.*(short|bytes|damaged|truncated|digest|size)",
        """model, optimizer = prepare(model, optimizer)
save(model)
barrier()
if rank == 0:
    largest = max(pathlib.Path("state").rglob("*model*.*"), key=lambda file: file.stat().st_size)
    os.truncate(largest, largest.stat().st_size // 2)
barrier()
load(model, "state")
""",
    ),
]


def run(tool: str, python: str, mistake: Mistake, port: int, patience: float) -> dict[str, object]:
    """Its output, and the exit code; None for a run that hangs."""
    head = "import os, pathlib, sys\nimport torch\ntorch.manual_seed(0)\n"
    start = "" if mistake.plain else STARTS[tool]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "train.py").write_text(head + start + TRAIN + mistake.body)
        # A port of its own, so that runs side by side do not meet; where the mistake names one, the later flag holds.
        command = f"{FLAGS[tool]} {(mistake.flags or {}).get(tool, '')}".format(port=port, free=free_port())
        words = [word.replace("|", " ") for word in command.split() if word != mistake.without]
        environment = {**os.environ, "ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1", "TQDM_DISABLE": "1"}
        if tool != "accel":
            environment.pop("PYTHONPATH", None)
        if mistake.without:
            environment.pop("ACCELERATE_USE_CPU")
        output = Path(folder, ".output")
        with output.open("w") as stream:
            process = subprocess.Popen(
                [python, *words, mistake.script],
                cwd=folder,
                env=environment,
                stdout=stream,
                stderr=stream,
                start_new_session=True,
            )
            try:
                code: int | None = process.wait(patience)
            except subprocess.TimeoutExpired:
                code = None
                end(process)
        return {"code": code, "printed": output.read_text(errors="replace")}


def end(process: subprocess.Popen[bytes]) -> None:
    """With its ranks, which launchers put into sessions of their own."""
    family = psutil.Process(process.pid).children(recursive=True)
    for one in family:
        one.kill()
    process.kill()
    process.wait()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


def cell(mistake: Mistake, tool: str, result: dict[str, object] | None) -> str:
    """As the table shows it."""
    if result is None:
        return "–"
    printed = str(result["printed"])
    lines = len([line for line in printed.splitlines() if line.strip()])
    named = re.search(mistake.remedy, printed, re.DOTALL if "unused" in mistake.remedy else 0) is not None
    if mistake.harmless and result["code"] == 0:
        return f"{lines} {'line' if lines == 1 else 'lines'}, **trains as one process**"
    end = {None: ", hangs", 0: ", goes on"}.get(result["code"], "")  # type: ignore[call-overload]
    return f"{lines} {'line' if lines == 1 else 'lines'}{end}{', **names it**' if named else ''}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--accelerate", default="")
    parser.add_argument("--fabric", default="")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--patience", type=float, default=150)
    options = parser.parse_args()
    pythons = {
        "accel": sys.executable,
        "Accelerate": options.accelerate,
        "Fabric": options.fabric,
        "torchrun": sys.executable,
    }
    kept = json.loads(options.keep.read_text()) if options.keep and options.keep.exists() else {}
    holder = socket.create_server(("127.0.0.1", 0))
    tools = [tool for tool in STARTS if pythons[tool]]
    print(f"| mistake | {' | '.join(tools)} |\n|{' --- |' * (len(tools) + 1)}")
    for mistake in MISTAKES:
        if options.only not in mistake.name:
            continue
        for tool in tools:
            key = f"{mistake.name} / {tool}"
            possible = mistake.flags is None or tool in mistake.flags
            if possible and key not in kept:
                kept[key] = run(tool, pythons[tool], mistake, holder.getsockname()[1], options.patience)
                if options.keep:
                    options.keep.write_text(json.dumps(kept, indent=1))
        cells = [cell(mistake, tool, kept.get(f"{mistake.name} / {tool}")) for tool in tools]
        print(f"| {mistake.name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
