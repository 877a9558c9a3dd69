"""Whether the codemod's time grows with the size of what it reads and no faster: CPU time a line, by size.

Long scripts are one training with more and more code before it, in functions or at the top of the file; projects are one
training file among more and more that it imports from. A figure that grows down a column names a part that is quadratic.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from accel_migrate import pipeline
from accel_migrate.plan import Status
from accel_migrate.source import Source

LINES = (500, 1000, 2000, 5000)
FILES = (30, 100, 300)

TRAINING = """
loader = torch.utils.data.DataLoader(dataset, batch_size=8, shuffle=True)
model = torch.nn.Linear(4, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    total = 0.0
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(epoch, total / len(loader))
"""
HEAD = 'import torch\n\ndevice = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n'
DATA = "dataset = torch.utils.data.TensorDataset(torch.ones(8, 4), torch.ones(8, 1))\n"


def function(number: int) -> str:
    return (
        f"\n\ndef shape_{number}(x, size={number}):\n    if size > 3:\n        x = x.reshape(-1)\n    return x * size\n"
    )


def statement(number: int) -> str:
    return f"size_{number} = torch.ones({number}).sum().item()\nif size_{number} > 3:\n    print(size_{number})\n"


def script(lines: int, piece: Callable[[int], str]) -> str:
    text = HEAD
    number = 0
    while text.count("\n") < lines:
        text += "".join(piece(number + each) for each in range(50))
        number += 50
    return text + "\n\n" + DATA + TRAINING


def project(files: int) -> dict[str, str]:
    helpers = {f"helper_{n}.py": HEAD + "".join(function(each) for each in range(8)) for n in range(files - 1)}
    imports = "".join(f"from helper_{n} import shape_1 as shape_{n}_1\n" for n in range(files - 1))
    return {**helpers, "train.py": imports + HEAD + DATA + TRAINING}


def cost(texts: dict[str, str]) -> float:
    """Microseconds a line."""
    sources = [Source.from_bytes(Path(name), text.encode()) for name, text in texts.items()]
    start = time.process_time()
    results = pipeline.migrate(sources)
    spent = time.process_time() - start
    assert results[-1].status is Status.MIGRATED, results[-1].reason
    return spent * 1e6 / sum(text.count("\n") for text in texts.values())


def main() -> None:
    cost({"train.py": script(50, function)})  # what is imported on the way is not what is measured
    print("lines of one file   in functions   at the top   us a line")
    for lines in LINES:
        inside, outside = (cost({"train.py": script(lines, piece)}) for piece in (function, statement))
        print(f"{lines:17,} {inside:14.0f} {outside:12.0f}")
    print("files of a project  us a line")
    for files in FILES:
        print(f"{files:17,} {cost(project(files)):10.0f}")


if __name__ == "__main__":
    main()
