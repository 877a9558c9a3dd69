"""Collectives on real processes, over nested containers, and what is said when they cannot work."""

from collections import namedtuple

import pytest
import torch
from accel_runtime import Accelerator, PartialState
from accel_runtime.errors import UsageError
from accel_runtime.utils import (
    broadcast,
    broadcast_object_list,
    gather,
    gather_object,
    pad_across_processes,
    reduce,
)

from tests.distributed.worlds import in_world

Point = namedtuple("Point", "x y")


def test_values_of_every_collective():
    def work():
        accelerator = Accelerator()
        rank = accelerator.process_index
        tree = {
            "a": torch.tensor([rank]),
            "b": [torch.full((2, 1), rank + 0.5), Point(torch.tensor(rank == 1), torch.tensor(rank))],
        }
        gathered = accelerator.gather(tree)
        longer = torch.full((rank + 1, 2), rank)
        return {
            "gather": (gathered["a"].tolist(), gathered["b"][0].tolist(), gathered["b"][1].x.tolist()),
            "large": accelerator.gather(torch.full((5000,), rank)).sum().item(),
            "bfloat16": accelerator.gather(torch.full((1,), rank, dtype=torch.bfloat16)).tolist(),
            "empty": accelerator.gather(torch.zeros(0, 3)).shape,
            "sum": accelerator.reduce(torch.tensor([1.0 + rank])).tolist(),
            "mean": accelerator.reduce({"loss": torch.tensor(1.0 + rank)}, "mean")["loss"].item(),
            "max": accelerator.reduce(torch.tensor([rank, -rank]), "max").tolist(),
            "scaled": accelerator.reduce(torch.tensor([1.0]), "sum", scale=0.5).tolist(),
            "padded": accelerator.pad_across_processes(longer, pad_index=-1).tolist(),
            "padded first": accelerator.pad_across_processes(longer, pad_index=-1, pad_first=True)[0].tolist(),
            "broadcast": accelerator.broadcast(torch.tensor([rank]), from_process=1).tolist(),
            "objects": accelerator.gather_object([{"rank": rank}]),
            "free": (
                gather(torch.tensor([rank])).tolist(),
                gather_object([rank, rank]),
                reduce(torch.tensor([2.0 * rank])).tolist(),
                broadcast(torch.tensor([rank])).tolist(),
                broadcast_object_list([rank, "a"]),
                pad_across_processes(longer).shape,
            ),
        }

    first, second = in_world(2, work)
    assert first.pop("padded") == [[0, 0], [-1, -1]]
    assert second.pop("padded") == [[1, 1], [1, 1]]
    assert first.pop("padded first") == [-1, -1]
    assert second.pop("padded first") == [1, 1]
    assert (
        first
        == second
        == {
            "gather": ([0, 1], [[0.5], [0.5], [1.5], [1.5]], [False, True]),
            "large": 5000,
            "bfloat16": [0.0, 1.0],
            "empty": (0, 3),
            "sum": [3.0],
            "mean": 1.5,
            "max": [1, 0],
            "scaled": [1.0],
            "broadcast": [1],
            "objects": [{"rank": 0}, {"rank": 1}],
            "free": ([0, 1], [0, 0, 1, 1], [1.0], [0], [0, "a"], (2, 2)),
        }
    )


def test_unequal_tensors_are_named_with_every_ranks_view():
    def work():
        accelerator = Accelerator()
        rank = accelerator.process_index
        messages = []
        for call in (
            lambda: accelerator.gather({"logits": torch.zeros(2 + rank, 3)}),
            lambda: accelerator.gather(torch.zeros(1, dtype=torch.float64 if rank else torch.float32)),
            lambda: accelerator.reduce(torch.zeros(1 + rank)),
            lambda: accelerator.broadcast(torch.zeros(1 + rank)),
            lambda: accelerator.pad_across_processes({"x": torch.zeros((1,) * (2 + rank))}, dim=0),
        ):
            try:
                call()
            except UsageError as error:
                messages.append(str(error))
        return messages

    for messages in in_world(2, work):
        assert "rank 0: ['logits'] [2, 3] float32; rank 1: ['logits'] [3, 3] float32" in messages[0]
        assert "pad_across_processes" in messages[0]
        assert "rank 0: [1] float32; rank 1: [1] float64" in messages[1]
        assert messages[2].startswith("reduce got tensors that differ")
        assert messages[3].startswith("broadcast got tensors that differ")
        assert "rank 0: ['x'] 2 dimensions; rank 1: ['x'] 3 dimensions" in messages[4]


def test_processes_take_turns_and_signal_each_other(tmp_path):
    def work():
        state = PartialState()
        marker = tmp_path / "downloaded"
        with state.main_process_first():
            found = marker.exists()
            if state.is_main_process:
                marker.touch()
        with pytest.raises(RuntimeError), state.main_process_first():
            if state.is_main_process:
                raise RuntimeError("the others must not wait for ever")
            raise RuntimeError
        with state.split_between_processes({"a": [1, 2, 3], "b": torch.arange(3)}, apply_padding=True) as mine:
            parts = mine["a"], mine["b"].tolist()
        checks = [state.check_trigger()]
        if state.is_last_process:
            state.set_trigger()
        checks += [state.check_trigger(), state.check_trigger()]
        return (
            found,
            parts,
            checks,
            state.on_main_process(lambda: "main")(),
            state.on_process(process_index=1)(lambda: 1)(),
        )

    first, second = in_world(2, work)
    assert first == (False, ([1, 2], [0, 1]), [False, True, False], "main", None)
    assert second == (True, ([3, 3], [2, 2]), [False, True, False], None, 1)


def test_views_with_strides_are_gathered_as_copies_are():
    def work():
        accelerator = Accelerator()
        rank = accelerator.process_index
        table = torch.arange(12.0).view(4, 3) + 100 * rank
        views = {
            "column": table[:, 0],
            "every other": table[::2],
            "transposed": table.t(),
            "expanded": table[:1, :1].expand(2, 3),
            "one": table[:1, 1],
            "none": table[:0, 1],
            "probability": torch.softmax(table, 1)[:, 1],
            "conjugate": torch.complex(table, -table).conj(),
            "negative": torch.complex(table, -table).conj().imag,
        }
        copies = {
            name: torch.tensor(view.tolist(), dtype=view.dtype).reshape(view.shape) for name, view in views.items()
        }
        seen, plain = accelerator.gather(views), accelerator.gather(copies)
        column = accelerator.gather_for_metrics(table[:, 0])
        return all(torch.equal(seen[name], plain[name]) for name in views), column.tolist()

    for equal, column in in_world(2, work):
        assert equal
        assert column == [0, 3, 6, 9, 100, 103, 106, 109]


def test_different_collectives_are_refused_on_every_process_with_both_lines(tmp_path):
    def work():
        accelerator = Accelerator()
        ours, mine = torch.ones(3), accelerator.is_main_process
        pairs = [
            (lambda: accelerator.gather(ours), lambda: accelerator.reduce(ours)),
            (lambda: accelerator.gather(ours), lambda: accelerator.gather_for_metrics(ours)),
            (lambda: accelerator.reduce(ours), lambda: accelerator.broadcast(ours)),
            (lambda: accelerator.gather(torch.ones(9000)), accelerator.wait_for_everyone),
            (lambda: accelerator.gather(ours), lambda: accelerator.save_state(tmp_path / "state")),
            (lambda: accelerator.load_state(tmp_path / "state"), lambda: accelerator.save_state(tmp_path / "state")),
            (accelerator.check_trigger, lambda: accelerator.pad_across_processes(ours)),
            (lambda: accelerator.gather_object([1]), lambda: accelerator.broadcast_object_list([1])),
        ]
        messages = []
        for one, other in pairs:
            with pytest.raises(UsageError) as refused:
                one() if mine else other()
            messages.append(str(refused.value))
        return messages, accelerator.gather(ours).sum().item()

    for messages, after in in_world(2, work):
        assert "rank 0 is in gather at " in messages[0]
        assert "rank 1 is in reduce at " in messages[0]
        assert all(f"{__file__}:" in message for message in messages)
        assert "rank 1 is in wait_for_everyone at " in messages[3]
        assert "rank 1 is in save_state at " in messages[4]
        assert after == 6


def test_the_same_shapes_under_other_names_are_refused():
    def work():
        accelerator = Accelerator()
        names = ("a", "b") if accelerator.is_main_process else ("b", "a")
        with pytest.raises(UsageError, match="differ between processes") as refused:
            accelerator.gather({name: torch.zeros(2) for name in names})
        return str(refused.value)

    for message in in_world(2, work):
        assert "rank 1: ['b'] [2] float32, ['a'] [2] float32" in message
