"""A migrated script: trains a little and prints its losses. Nothing in it knows who launched it."""

import sys
from pathlib import Path

import torch
from accel_runtime import Accelerator
from torch.utils.data import DataLoader, TensorDataset


def main():
    accelerator = Accelerator(split_batches=True)
    torch.manual_seed(0)
    inputs = torch.randn(48, 6)
    targets = inputs.sum(dim=1, keepdim=True).tanh()
    model = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.5)
    loader = DataLoader(TensorDataset(inputs, targets), batch_size=8)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    losses = []
    for _ in range(3):
        for batch, target in loader:
            loss = torch.nn.functional.mse_loss(model(batch), target)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(accelerator.gather(loss.detach().reshape(1)).mean().item())
    if accelerator.is_main_process:
        text = f"{accelerator.num_processes} processes: " + " ".join(f"{loss:.9f}" for loss in losses)
        print(text)
        if len(sys.argv) > 1:
            Path(sys.argv[1]).write_text(text)
    accelerator.end_training()


if __name__ == "__main__":
    main()
