"""AM803: random numbers drawn in the loop are the same on every process, because all are seeded alike."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accel_migrate.edits import change
from accel_migrate.plan import Change, Safety
from accel_migrate.rule import Context, Rule

CODE = "AM803"
_DRAWS = {
    "torch.randn", "torch.rand", "torch.randint", "torch.normal", "torch.randn_like", "torch.rand_like", "torch.bernoulli",
    "torch.randperm", "torch.multinomial", "numpy.random.normal", "numpy.random.rand", "numpy.random.randn",
    "numpy.random.uniform", "numpy.random.beta", "numpy.random.randint", "random.random", "random.uniform",
}  # fmt: skip
_SEEDS = {"torch.manual_seed", "numpy.random.seed", "random.seed", "torch.cuda.manual_seed_all"}


def find(context: Context) -> Iterator[Change]:
    training, module = context.training, context.module
    seed = next((c for m in training.modules for c in m.calls if m.qualified(c.func) in _SEEDS), None)
    if seed is None or not seed.args:
        return
    for call in module.calls:
        dotted = module.qualified(call.func)
        if dotted in _DRAWS and _in_training(context, call):
            library = dotted.partition(".")[0]
            reseed = {"torch": "torch.manual_seed", "numpy": "np.random.seed", "random": "random.seed"}[library]
            message = (
                f"every process draws the same numbers here, because all are seeded alike (line {seed.lineno}); after prepare, "
                f"if accelerator.num_processes > 1: {reseed}({ast.unparse(seed.args[0])} + accelerator.process_index)"
            )
            yield change(CODE, call, message, loop=training.index, safety=Safety.NOTE)
            return


def _in_training(context: Context, call: ast.Call) -> bool:
    """Whether it is drawn for a training step, outside of the model itself."""
    module, training = context.module, context.training
    around = set(module.ancestors(call))
    if any(loop.trains and loop.statement in around for loop in training.loops):
        return True
    repeated = any(isinstance(parent, ast.For | ast.While) for parent in around)
    return repeated and any(b.function is module.scope(call).function for b in training.backwards)


RULE = Rule(
    code=CODE,
    name="same_noise",
    summary="noise that is equal on every process",
    why="One seed for all keeps weights and shuffling in step, and makes the noise of every process the same: the global batch "
    "then holds the same noise N times. Seeding each process apart must wait until prepare has agreed on all that is shared.",
    example_before="noise = torch.randn(batch_size, nz, device=device)",
    example_after="noise = torch.randn(batch_size, nz, device=device)",
    find=find,
    safety=Safety.NOTE,
)
