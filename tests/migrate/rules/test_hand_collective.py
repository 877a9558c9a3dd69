"""AM705: barriers and reductions."""

from __future__ import annotations

import pytest

from tests.migrate.rules.handwritten import script
from tests.migrate.rules.verbs import migrated, unchanged

EVALUATION = """
    def evaluate(model, loader):
        hits = torch.zeros(2)
        for x, y in loader:
            output = model(x)
            hits[0] += (output.argmax(1) == y).sum()
            hits[1] += y.size(0)
        {reduced}
        return hits


"""


def with_evaluation(reduced: str) -> str:
    source = script(body="evaluate(model, test_loader)")
    source = source.replace("    def main():", EVALUATION.format(reduced=reduced).lstrip("\n") + "    def main():")
    return source.replace(
        "        optimizer = torch", "        test_loader = DataLoader(more(), batch_size=4)\n        optimizer = torch"
    )


def test_a_barrier_waits_for_everyone():
    assert "accelerator.wait_for_everyone()" in migrated(script(body="dist.barrier()"))


@pytest.mark.parametrize(
    ("call", "becomes"),
    [
        ("dist.all_reduce(total)", 'total = accelerator.reduce(total, reduction="sum")'),
        ("dist.all_reduce(total, op=dist.ReduceOp.MAX)", 'total = accelerator.reduce(total, reduction="max")'),
        ("dist.all_reduce(total, dist.ReduceOp.AVG)", 'total = accelerator.reduce(total, reduction="mean")'),
        ("dist.reduce(total, 0)", 'total = accelerator.reduce(total, reduction="sum")'),
        ("dist.reduce(total, 0, dist.ReduceOp.MAX)", 'total = accelerator.reduce(total, reduction="max")'),
        ("dist.reduce(tensor=total, dst=0)", 'total = accelerator.reduce(total, reduction="sum")'),
    ],
)
def test_a_reduction_is_bound_again(call, becomes):
    assert becomes in migrated(script(body=f"total = loss.detach()\n            {call}"))


def test_counts_of_an_evaluation_are_gathered_and_not_reduced():
    text = migrated(with_evaluation("dist.all_reduce(hits)"))
    assert "gather_for_metrics((output, y))" in text
    assert "reduce(" not in text


def test_a_tensor_of_the_caller_is_reduced_in_place():
    source = script(body="add_up(total)").replace(
        "    def main():", "    def add_up(value):\n        dist.all_reduce(value)\n\n\n    def main():"
    )
    assert 'value.copy_(accelerator.reduce(value, reduction="sum"))' in migrated(source)


@pytest.mark.parametrize(
    "call",
    [
        "work = dist.all_reduce(total, async_op=True)",
        "dist.all_reduce(total, async_op=True)",
        "dist.all_reduce(total, group=half)",
        "dist.all_reduce(total, op=dist.ReduceOp.PRODUCT)",
        "dist.all_reduce(parts[0])",
        "dist.reduce(total, 0, dist.ReduceOp.SUM, half)",
        "dist.broadcast(total, 0)",
    ],
)
def test_a_reduction_without_counterpart_leaves_the_loop(call):
    assert unchanged(script(body=call))


def test_a_helper_that_adds_up_for_an_evaluation_leaves_the_loop():
    source = with_evaluation("hits = add_up(hits)").replace(
        "    def main():",
        "    def add_up(value):\n        if not dist.is_initialized():\n            return value\n"
        "        dist.all_reduce(value)\n        return value\n\n\n    def main():",
    )
    assert "add_up()" in unchanged(source)


def test_what_only_the_main_process_evaluates_is_not_gathered():
    source = with_evaluation("pass").replace(
        "evaluate(model, test_loader)", "if dist.get_rank() == 0:\n                evaluate(model, test_loader)"
    )
    text = migrated(source)
    assert "gather" not in text
    assert "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)" in text


@pytest.mark.parametrize(
    "lines",
    [
        "if dist.get_rank() == 0:\n    torch.save(model.module.state_dict(), 'w.pt')\n{}"
        "model.module.load_state_dict(torch.load('w.pt'))",
        "with open('w.txt', 'w') as f:\n    f.write('1')\n{}text = open('w.txt').read()",
    ],
)
def test_a_wait_that_is_there_is_not_written_twice(lines: str):
    def waits(barrier: str) -> int:
        return migrated(script(body=lines.format(barrier).replace("\n", "\n            "))).count(
            ".wait_for_everyone()"
        )

    assert waits("dist.barrier()\n") == waits("") == 1
