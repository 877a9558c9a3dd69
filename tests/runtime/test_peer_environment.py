"""Variables that Accelerate's launcher sets: honoured below our own, or refused."""

from __future__ import annotations

import pytest
from accel_runtime import Accelerator
from accel_runtime.errors import ConfigError
from accel_runtime.options import options_from
from accel_runtime.peer_environment import peer_layer, unread_of_peer

# All that `accelerate launch` sets for a plain run.
PLAIN = {
    "ACCELERATE_MIXED_PRECISION": "no",
    "ACCELERATE_USE_CPU": "False",
    "ACCELERATE_DYNAMO_BACKEND": "NO",
    "ACCELERATE_DYNAMO_MODE": "default",
    "ACCELERATE_DYNAMO_USE_FULLGRAPH": "False",
    "ACCELERATE_GRADIENT_ACCUMULATION_STEPS": "1",
    "ACCELERATE_CPU_AFFINITY": "1",
}


def options(environ: dict[str, str], **arguments: object):
    return options_from(environ, arguments, [peer_layer(environ)])


def test_an_accelerator_computes_in_the_precision_of_accelerates_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")
    assert Accelerator(cpu=True).mixed_precision == "bf16"


def test_arguments_and_our_own_variables_come_first() -> None:
    environ = {**PLAIN, "ACCELERATE_MIXED_PRECISION": "bf16", "ACCELERATE_USE_CPU": "yes"}
    assert (options(environ).mixed_precision, options(environ).cpu) == ("bf16", True)
    assert options({**environ, "ACCEL_MIXED_PRECISION": "fp16"}).mixed_precision == "fp16"
    assert options(environ, mixed_precision="no").mixed_precision == "no"
    plain = options(PLAIN)
    assert (plain.mixed_precision, plain.cpu, plain.strategy, plain.dynamo_backend) == ("no", False, "ddp", "no")


def test_strategies_with_their_own_variables() -> None:
    fsdp = options(
        {
            "ACCELERATE_USE_FSDP": "true",
            "FSDP_TRANSFORMER_CLS_TO_WRAP": "Block,Head",
            "FSDP_MIN_NUM_PARAMS": "0",
            "FSDP_OFFLOAD_PARAMS": "false",
            "FSDP_RESHARD_AFTER_FORWARD": "SHARD_GRAD_OP",
        }
    )
    assert (fsdp.strategy, fsdp.wrap_layers, fsdp.reshard_after_forward) == ("fsdp", ("Block", "Head"), False)
    assert (fsdp.wrap_min_parameters, fsdp.cpu_offload) == (None, False)
    zero = options(
        {
            "ACCELERATE_USE_DEEPSPEED": "true",
            "ACCELERATE_DEEPSPEED_ZERO_STAGE": "2",
            "ACCELERATE_GRADIENT_CLIPPING": "none",
            "ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE": "cpu",
            "FSDP_OFFLOAD_PARAMS": "true",
        }
    )
    assert (zero.strategy, zero.zero_stage, zero.gradient_clipping, zero.cpu_offload) == ("deepspeed", 2, None, True)


def test_what_is_not_here_is_refused_and_what_is_not_read_is_named() -> None:
    with pytest.raises(ConfigError, match="ACCELERATE_USE_MEGATRON_LM=true in the environment: Megatron-LM"):
        peer_layer({"ACCELERATE_USE_MEGATRON_LM": "true"})
    with pytest.raises(ConfigError, match="ACCELERATE_MIXED_PRECISION in the environment is 'fp61'"):
        options({"ACCELERATE_MIXED_PRECISION": "fp61"})
    assert unread_of_peer(PLAIN) == []
    (line,) = unread_of_peer({**PLAIN, "ACCELERATE_DYNAMO_MODE": "max-autotune"})
    assert line == "ACCELERATE_DYNAMO_MODE=max-autotune in the environment is not read here"
