"""Loaders on real processes: the batches of the oracle, and every sample once in the metrics."""

import random
from dataclasses import dataclass
from itertools import chain, product

import pytest
import torch
from accel_runtime import Accelerator
from accel_runtime.errors import ConfigError, UsageError
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, Sampler, SubsetRandomSampler, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from tests.distributed.worlds import in_world
from tests.runtime.data.test_sharding import oracle

SAMPLED = [
    (samples, batch_size, drop_last, split, even)
    for samples, batch_size, drop_last, split, even in product(
        [0, 1, 2, 5, 10, 12, 13, 24], [1, 2, 3, 12], [False, True], [False, True], [False, True]
    )
]


class Stream(IterableDataset):
    def __init__(self, samples):
        self.samples = samples

    def __iter__(self):
        return iter(torch.tensor(self.samples) if self.samples else [])


class SizedStream(Stream):
    def __len__(self):
        return len(self.samples)


class ByWorker(Stream):
    """Each worker reads its own samples, which a worker_init_fn tells it."""

    def __init__(self, samples):
        self.samples = samples
        self.first, self.step = 0, 1

    def __iter__(self):
        return iter(torch.arange(self.first, self.samples, self.step))


def mark_worker(number):
    worker = torch.utils.data.get_worker_info()
    worker.dataset.first, worker.dataset.step = number, worker.num_workers


class TokenBatches(Sampler):
    """A batch sampler that decides the size of each batch by itself."""

    def __iter__(self):
        yield from [[0, 1, 2], [3], [4, 5], [6, 7, 8, 9], [10]]


class LazyShuffle(Sampler):
    """Draws with Python's generator, some of it in the middle of the epoch."""

    def __init__(self, samples):
        self.samples = samples

    def __iter__(self):
        left = list(range(self.samples))
        while left:
            yield left.pop(random.randrange(len(left)))

    def __len__(self):
        return self.samples


def metrics_of(accelerator, loader):
    return [index for batch in loader for index in accelerator.gather_for_metrics(batch).tolist()]


@pytest.mark.parametrize("processes", [2, 3, 4])
def test_batches_are_those_of_the_oracle(processes):
    cases = [case for case in SAMPLED if not case[3] or case[1] % processes == 0]

    def work():
        plans = {}
        for samples, batch_size, drop_last, split, even in cases:
            accelerator = Accelerator(split_batches=split, dataloader_config=config(even_batches=even))
            loader = DataLoader(range(samples), batch_size, drop_last=drop_last)
            prepared = accelerator.prepare(loader)
            plans[samples, batch_size, drop_last, split, even] = ([batch.tolist() for batch in prepared], len(prepared))
        return plans

    seen = in_world(processes, work)
    for case in cases:
        samples, batch_size, drop_last, split, even = case
        expected, _ = oracle(samples, batch_size, processes, drop_last, split, even)
        for rank in range(processes):
            assert seen[rank][case] == (expected[rank], len(expected[rank])), (case, rank)


def config(**choices):
    from accel_runtime import DataLoaderConfiguration

    return DataLoaderConfiguration(**choices)


@pytest.mark.parametrize("processes", [2, 3])
def test_metrics_hold_every_sample_once(processes):
    def work():
        accelerator = Accelerator()
        seen = {}
        for samples in (1, 5, 10, 12, 13):
            for workers in (0, 2) if samples == 13 else (0,):
                for kind, data in (
                    ("map", range(samples)),
                    ("stream", Stream(range(samples))),
                    ("sized", SizedStream(range(samples))),
                ):
                    if workers and kind != "map":
                        continue
                    loader = accelerator.prepare(DataLoader(data, 3, num_workers=workers))
                    seen[kind, samples, workers] = metrics_of(accelerator, loader)
        dynamic = accelerator.prepare(DataLoader(range(11), batch_sampler=TokenBatches()))
        items = accelerator.prepare(DataLoader(torch.arange(10).view(5, 2), batch_size=None))
        return seen, metrics_of(accelerator, dynamic), metrics_of(accelerator, items)

    for seen, dynamic, items in in_world(processes, work):
        for (kind, samples, workers), metrics in seen.items():
            assert metrics == list(range(samples)), (kind, samples, workers)
        assert dynamic == list(range(11))
        assert items == list(range(10))


def test_dispatched_batches_are_the_documented_ones_and_carry_text():
    def work():
        accelerator = Accelerator(dataloader_config=config(dispatch_batches=True))
        loader = accelerator.prepare(DataLoader(Stream(range(10)), 3))
        batches = [batch.tolist() for batch in loader]
        metrics = metrics_of(accelerator, loader)
        texts = [{"number": number, "text": str(number)} for number in range(5)]
        named = accelerator.prepare(DataLoader(texts, 2))
        return batches, metrics, [(batch["number"].tolist(), list(batch["text"])) for batch in named]

    first, second = in_world(2, work)
    assert first[0] == [[0, 1, 2], [6, 7]]
    assert second[0] == [[3, 4, 5], [8, 9]]
    assert first[1] == second[1] == list(range(10))
    assert first[2] == [([0, 1], ["0", "1"]), ([4], ["4"])]
    assert second[2] == [([2, 3], ["2", "3"]), ([0], ["0"])]


def test_a_failure_to_read_reaches_every_process():
    def work():
        accelerator = Accelerator(dataloader_config=config(dispatch_batches=True))
        loader = accelerator.prepare(DataLoader([1, 2, "three", 4], 1, collate_fn=lambda batch: torch.tensor(batch)))
        try:
            list(loader)
        except Exception as error:
            return str(error)

    first, second = in_world(2, work)
    assert "process 0 failed to read" not in first
    assert "process 0 failed to read a batch for all" in second


def test_streams_that_differ_are_named():
    def work():
        accelerator = Accelerator()
        loader = accelerator.prepare(DataLoader(Stream(range(accelerator.process_index, 10)), 2))
        try:
            list(loader)
        except UsageError as error:
            return str(error)

    for message in in_world(2, work):
        assert "the stream of Stream differs between process 0 and process 1" in message
        assert "dispatch_batches=True" in message


def test_one_shuffle_for_all_processes_whatever_their_seeds():
    def work():
        accelerator = Accelerator()
        torch.manual_seed(accelerator.process_index)
        random.seed(accelerator.process_index)
        own = torch.Generator().manual_seed(accelerator.process_index)
        seen = {}
        for name, sampler in {
            "random": RandomSampler(range(13)),
            "own generator": RandomSampler(range(13), generator=own),
            "with replacement": RandomSampler(range(13), replacement=True, num_samples=13),
            "lazy": LazyShuffle(13),
        }.items():
            loader = accelerator.prepare(DataLoader(range(13), 2, sampler=sampler))
            seen[name] = [metrics_of(accelerator, loader) for _ in range(2)]
        return seen, torch.rand(1).item()

    first, second = in_world(2, work)
    assert first[0] == second[0]
    for name in ("random", "own generator", "lazy"):
        assert all(sorted(epoch) == list(range(13)) for epoch in first[0][name]), name
        assert first[0][name][0] != first[0][name][1], name
    assert first[1] != second[1]


def test_processes_that_are_seeded_alike_go_on_drawing_alike():
    def work():
        accelerator = Accelerator()
        drawn = []
        for sampler in (RandomSampler(range(13)), LazyShuffle(13)):
            torch.manual_seed(0)
            random.seed(accelerator.process_index)  # this one is a process's own, and stays so
            loader = accelerator.prepare(DataLoader(range(13), 2, sampler=sampler))
            for _ in range(2):
                list(loader)
            drawn.append((torch.rand(1).item(), random.random()))
        return drawn

    for (torchs, own), (other_torchs, other) in zip(*in_world(2, work)):
        assert torchs == other_torchs
        assert own != other


def test_split_batches_are_the_plain_batches_in_order():
    def loaders():
        torch.manual_seed(7)
        yield DataLoader(range(23), 6, shuffle=True)
        yield DataLoader(range(23), 6, shuffle=True, generator=torch.Generator().manual_seed(5))
        yield DataLoader(range(23), 6, sampler=torch.utils.data.SubsetRandomSampler(range(23)))

    def work():
        accelerator = Accelerator(split_batches=True)
        seen = []
        for loader in map(accelerator.prepare, loaders()):
            seen.append([accelerator.gather_for_metrics(batch).tolist() for _ in range(3) for batch in loader])
        return seen, torch.get_rng_state().tolist()

    plain = [[batch.tolist() for _ in range(3) for batch in loader] for loader in loaders()]
    state = torch.get_rng_state().tolist()
    worlds = in_world(3, work)
    assert all(seen == plain for seen, _ in worlds)
    assert worlds[0][1] == state


def test_a_distributed_sampler_is_not_shared_out_again():
    def work():
        accelerator = Accelerator()
        data = TensorDataset(torch.arange(9))
        loader = DataLoader(data, 2, sampler=DistributedSampler(data, shuffle=False))
        batches = [accelerator.gather_for_metrics(batch).tolist() for (batch,) in accelerator.prepare(loader)]
        single = DataLoader(
            torch.arange(9).view(9, 1), batch_size=None, sampler=DistributedSampler(data, shuffle=False)
        )
        return [*chain.from_iterable(batches)], metrics_of(accelerator, accelerator.prepare(single))

    for seen, single in in_world(2, work):
        assert sorted(seen) == sorted(single) == list(range(9))


def test_rows_that_are_not_samples_are_refused_from_the_first_batch():
    def work():
        accelerator = Accelerator()
        messages = []
        for batch in accelerator.prepare(DataLoader(range(10), 3)):
            try:
                accelerator.gather_for_metrics({"tokens": batch.repeat(4)})
            except UsageError as error:
                messages.append(str(error))
            assert accelerator.gather_for_metrics(batch.sum()).shape == (2,)
        for batch in accelerator.prepare(DataLoader(range(10), 3, drop_last=True)):
            assert len(accelerator.gather_for_metrics(batch.repeat(4))) == 24
        return messages

    for messages in in_world(2, work):
        assert len(messages) == 2
        assert "got 12 rows at ['tokens'] for a batch of 3 samples" in messages[0]


def test_leaving_a_loop_leaves_no_trace():
    def work():
        accelerator = Accelerator()
        loader = accelerator.prepare(DataLoader(range(10), 3))
        for number, _ in enumerate(loader):
            if number == 1:
                break  # in the round that is filled up
        outside = accelerator.gather_for_metrics(torch.arange(3))
        return outside.tolist(), metrics_of(accelerator, loader)

    for outside, metrics in in_world(2, work):
        assert outside == [0, 1, 2, 0, 1, 2]
        assert metrics == list(range(10))


def test_skipped_batches_are_the_first_ones():
    def work():
        accelerator = Accelerator()
        loader = accelerator.prepare(DataLoader(range(10), 2))
        stream = accelerator.prepare(DataLoader(Stream(range(10)), 2))
        skipped = [[batch.tolist() for batch in accelerator.skip_first_batches(one, 1)] for one in (loader, stream)]
        return skipped, len(accelerator.skip_first_batches(loader, 1))

    first, second = in_world(2, work)
    assert first == ([[[4, 5], [8, 9]]] * 2, 2)
    assert second == ([[[6, 7], [0, 1]]] * 2, 2)


def test_loaders_iterated_side_by_side_are_told_apart_or_refused():
    def work():
        accelerator = Accelerator()
        short, other, longer = accelerator.prepare(
            DataLoader(range(5), 2), DataLoader(range(10), 3), DataLoader(range(9), 2)
        )
        apart = [accelerator.gather_for_metrics(batch).tolist() for batch, _ in zip(short, other)]
        messages = []
        for batch, _ in zip(short, longer):
            try:
                accelerator.gather_for_metrics(batch)
            except UsageError as error:
                messages.append(str(error))
        return apart, messages

    for apart, messages in in_world(2, work):
        assert apart == [[0, 1, 2, 3], [4]]
        assert len(messages) == 1
        assert "cannot tell which of the loaders" in messages[0]


def test_objects_are_gathered_once_for_each_sample():
    def work():
        accelerator = Accelerator()
        texts = accelerator.prepare(DataLoader([str(number) for number in range(5)], 2))
        return [text for batch in texts for text in accelerator.gather_for_metrics(batch)]

    for texts in in_world(2, work):
        assert texts == ["0", "1", "2", "3", "4"]


def test_rows_that_one_process_has_left_out_are_refused_on_all():
    def work():
        accelerator = Accelerator()
        messages = []
        # The second loader's last round is filled, the first one's is not.
        for samples, width in ((8, 1), (8, 3000), (7, 1)):
            data = torch.arange(float(samples)).view(-1, 1).expand(-1, width)
            for batch in accelerator.prepare(DataLoader(TensorDataset(data), 4)):
                with pytest.raises(UsageError) as refused:
                    accelerator.gather_for_metrics(batch[0][batch[0][:, 0] >= 4])
                messages.append(str(refused.value))
        return messages

    first, second = in_world(2, work)
    assert first == second
    assert "rank 0: [0, 1] float32; rank 1: [samples, 1] float32" in first[0]
    assert "rank 0: [0, 3000] float32; rank 1: [samples, 3000] float32" in first[1]
    assert "got 0 rows for a batch of 4 samples" in first[2]


def test_items_with_no_rows_at_all_are_gathered_beside_longer_ones():
    items = [torch.zeros(0, 2), torch.ones(3, 2), torch.full((1, 2), 2.0), torch.zeros(0, 2)]

    def work():
        accelerator = Accelerator()
        loader = accelerator.prepare(DataLoader(items, batch_size=None))
        return [accelerator.gather_for_metrics({"a": item, "b": item[:, 0].long()})["b"].tolist() for item in loader]

    for seen in in_world(2, work):
        assert seen == [[1, 1, 1], [2]]


def test_what_is_no_tensor_never_switches_the_cutting_off():
    @dataclass
    class Output:
        logits: torch.Tensor
        loss: torch.Tensor | None = None
        count: int | None = None

    def work():
        accelerator = Accelerator()
        kept, messages = [], []
        for (batch,) in accelerator.prepare(DataLoader(TensorDataset(torch.arange(9)), 4)):
            gathered = accelerator.gather_for_metrics({"x": batch, "loss": None, "whole": Output(batch)})
            assert gathered["loss"] is None
            assert gathered["whole"].loss is None
            assert gathered["whole"].logits.tolist() == gathered["x"].tolist()
            kept += gathered["x"].tolist()
            refused = (
                Output(batch, count=3),
                (batch, 1),
                {"x": batch, "text": "a"},
                {"correct": 3, "of": 4},
                5,
                [batch, "a"],
            )
            for tree in refused:
                with pytest.raises(UsageError) as error:
                    accelerator.gather_for_metrics(tree)
                messages.append(str(error.value))
        return kept, messages

    for kept, messages in in_world(2, work):
        assert kept == list(range(9))
        assert messages[0].startswith("gather_for_metrics got int at .count")
        assert messages[1].startswith("gather_for_metrics got int at [1]")
        assert messages[3].startswith("gather_for_metrics got a dict, which has no row for each sample")


def test_a_round_that_a_process_does_not_have_is_refused_at_once():
    def work():
        accelerator = Accelerator(dataloader_config=config(even_batches=False))
        messages = []
        for batch in accelerator.prepare(DataLoader(range(6), 2)):
            try:
                accelerator.gather_for_metrics(batch)
            except UsageError as error:
                messages.append(str(error))
        return messages

    first, second = in_world(2, work)
    assert len(first) == 1
    assert "process 1 has none" in first[0]
    assert second == []


def test_workers_of_a_stream_keep_its_samples_apart():
    def work():
        accelerator = Accelerator()
        loader = accelerator.prepare(DataLoader(ByWorker(13), 2, num_workers=2, worker_init_fn=mark_worker))
        return [metrics_of(accelerator, loader) for _ in range(2)], len(list(loader))

    for epochs, _ in in_world(2, work):
        assert [sorted(epoch) for epoch in epochs] == [list(range(13))] * 2


def test_workers_that_stay_and_an_epoch_that_was_left():
    def work():
        accelerator = Accelerator()
        torch.manual_seed(3)
        loader = accelerator.prepare(DataLoader(range(20), 2, shuffle=True, num_workers=2, persistent_workers=True))
        for _ in loader:
            break
        return metrics_of(accelerator, loader)

    for seen in in_world(2, work):
        assert sorted(seen) == list(range(20))


@pytest.mark.parametrize("processes", [2, 3])
def test_a_share_makes_a_sum_over_a_pass_a_mean_on_the_scale_of_the_plain_loader(processes):
    def loaders():
        for count in (13, 24, 31, 40):
            for said in ({}, {"drop_last": True}):
                yield DataLoader(range(count), 6, **said)
                yield DataLoader(SizedStream(range(count)), 6, **said)
            yield DataLoader(range(count), 6, sampler=SubsetRandomSampler(range(count // 2)))

    def work():
        found = []
        for asked in ({}, {"split_batches": True}, {"even_batches": False}, {"dispatch_batches": True}):
            accelerator = Accelerator(cpu=True, dataloader_config=config(**asked))
            for plain in loaders():
                if "even_batches" in asked and isinstance(plain.dataset, Stream):
                    continue
                loader, data = accelerator.prepare(plain), len(plain.dataset)
                whole = [len(batch) for batch in plain]
                mine = [len(batch) for batch in loader]
                # Every sample is 1, and so is every mean: what is left is the scale.
                by_sample = (sum(mine) / (data * loader.sample_share) if mine else None, sum(whole) / data)
                by_batch = (len(mine) / (data * loader.batch_share) if mine else None, len(whole) / data)
                found += [(asked, *by_sample), (asked, *by_batch)]
        return found

    for answers in in_world(processes, work):
        assert len(answers) == 144
        for asked, scale, expected in answers:
            assert scale is None or scale == pytest.approx(expected), asked


def test_on_one_process_a_share_is_one_to_the_bit():
    loader = Accelerator(cpu=True).prepare(DataLoader(range(10), 4, drop_last=True))
    assert 0.1 / (10 * loader.sample_share) == 0.1 / (10 * loader.batch_share) == 0.1 / 10


def test_the_share_of_a_sampler_that_deals_out_samples_is_that_of_its_samples():
    def work():
        accelerator = Accelerator(cpu=True)
        loader = accelerator.prepare(DataLoader(range(11), 2, sampler=DistributedSampler(range(11), 2, 0)))
        return loader.sample_share, loader.batch_share

    assert in_world(2, work) == [(6 / 11, 1 / 2)] * 2


@pytest.mark.parametrize("processes", [2, 3])
def test_figures_of_whole_batches_are_those_of_the_plain_loader(processes):
    samples = [1, 5, 6, 10, 12, 13]
    settings = [{}, {"drop_last": True}]

    def loaders(dispatch=False):
        for count in samples:
            for said in settings:
                yield DataLoader(range(count), 6, **said)
                yield DataLoader(Stream(range(count)), 6, **said)
        yield DataLoader(range(11), batch_sampler=TokenBatches())
        if not dispatch:
            yield DataLoader(torch.arange(10).view(5, 2), batch_size=None)

    def figures(accelerator, loader):
        total, seen, worst = 0, [], torch.zeros(2)
        for batch in accelerator.whole_batches(loader):
            batch = batch.float()
            total += accelerator.sum_for_metrics(batch.mean().item())
            seen += accelerator.sum_for_metrics([(batch.tolist(), len(batch))])
            worst += accelerator.sum_for_metrics(torch.stack([batch.max(), batch.new_ones(())]))
            assert loader.batches_seen == len(seen)
        assert loader.batches_seen == len(seen)
        return total, seen, worst.tolist()

    def work():
        found = []
        for split, dispatch in ((False, False), (True, False), (False, True)):
            accelerator = Accelerator(
                cpu=True, split_batches=split, dataloader_config=config(dispatch_batches=dispatch)
            )
            for number, loader in enumerate(loaders(dispatch)):
                if split and getattr(loader, "batch_size", 6) != 6:
                    continue
                prepared = accelerator.prepare(loader)
                found.append((number, figures(accelerator, prepared)))
        return found

    alone = Accelerator(cpu=True)
    expected = [figures(alone, alone.prepare(loader)) for loader in loaders()]
    for found in in_world(processes, work):
        assert len(found) > 70
        for number, (total, seen, worst) in found:
            assert (seen, worst) == expected[number][1:], number
            assert total == pytest.approx(expected[number][0], rel=1e-12)


def test_a_figure_of_a_filled_batch_is_refused():
    def work():
        accelerator = Accelerator(cpu=True)
        for batch in accelerator.prepare(DataLoader(range(5), 2)):
            with pytest.raises(UsageError, match="whole_batches"):
                accelerator.sum_for_metrics(batch.float().mean().item())
        return True

    assert in_world(2, work) == [True, True]


def test_a_figure_of_a_batch_that_was_trained_on_is_added_up_as_it_is():
    def work():
        accelerator = Accelerator(cpu=True)
        model = torch.nn.Linear(1, 1)
        model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
        seen = []
        for batch in accelerator.prepare(DataLoader(torch.arange(5.0)[:, None], 2)):
            accelerator.backward(model(batch).sum())
            optimizer.step()
            seen += accelerator.sum_for_metrics(batch.flatten().tolist())
        return seen

    assert in_world(2, work) == [[0, 1, 2, 3, 4, 0, 1, 2]] * 2  # what fills the last round counts


def test_whole_batches_of_a_distributed_sampler_are_refused():
    def work():
        accelerator = Accelerator(cpu=True)
        loader = accelerator.prepare(DataLoader(range(6), 2, sampler=DistributedSampler(range(6))))
        with pytest.raises(UsageError, match="DistributedSampler deals out samples"):
            accelerator.whole_batches(loader)
        return True

    assert in_world(2, work) == [True, True]


def test_batches_that_cannot_be_split_are_evaluated_whole_and_not_trained_on():
    def work():
        accelerator = Accelerator(cpu=True, split_batches=True)
        loader, sized = accelerator.prepare(
            DataLoader(range(13), 5), DataLoader(range(11), batch_sampler=TokenBatches())
        )
        seen = []
        for each in (loader, sized):
            with pytest.raises(ConfigError, match="split_batches needs"):
                next(iter(each))
            with torch.no_grad():
                rows = [accelerator.gather_for_metrics(batch).tolist() for batch in each]
                seen.append(sorted(row for each in rows for row in each))
        total = 0
        for batch in accelerator.whole_batches(loader):
            total += accelerator.sum_for_metrics(batch.float().mean().item())
        return seen, total

    for seen, total in in_world(2, work):
        assert seen == [list(range(13)), list(range(11))]
        assert total == pytest.approx(2 + 7 + 11)
