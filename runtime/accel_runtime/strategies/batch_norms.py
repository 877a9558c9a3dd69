"""Batch norms whose statistics are those of all processes together."""

from __future__ import annotations

from torch.nn import Module, SyncBatchNorm

from accel_runtime.errors import ConfigError


def with_synced_batch_norms(model: Module) -> Module:
    """The model with its batch norms exchanged; their weights stay the same objects."""
    if any(weight.device.type == "cpu" for weight in model.parameters()):
        raise ConfigError(
            "DistributedDataParallelKwargs(sync_batchnorm=True) needs an accelerator: torch has no SyncBatchNorm for the "
            "CPU; leave it out, then each process uses the statistics of its own batch"
        )
    synced: Module = SyncBatchNorm.convert_sync_batchnorm(model)  # type: ignore[no-untyped-call]
    return synced
