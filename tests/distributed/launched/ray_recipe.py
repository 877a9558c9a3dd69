"""The recipe of docs/howto/ray.md: Ray Train starts the ranks, and each runs the script as it is."""

import runpy
import sys

from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer


def run_script(config):
    sys.argv = config["command"]
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    storage, *command = sys.argv[1:]
    TorchTrainer(
        run_script,
        train_loop_config={"command": command},
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(storage_path=storage),
    ).fit()
