"""AM8xx: what changes with the number of processes, and is said."""

from __future__ import annotations

from tests.migrate.rules.scripts import codes, training
from tests.migrate.rules.verbs import noted


def test_tells_the_global_batch_once():
    assert "N batches" in noted(training(), "AM801")


def test_tells_a_loss_that_is_summed():
    assert "summed" in noted(training(loss='F.cross_entropy(model(x), y, reduction="sum")'), "AM802")


def test_looks_for_the_sum_inside_a_function():
    source = training(
        functions="def loss_of(out, y):\n    return ((out - y) ** 2).sum()\n", loss="loss_of(model(x), y)"
    )
    assert "summed" in noted(source, "AM802")


def test_tells_a_mean_over_a_mask():
    assert "as many items" in noted(training(loss="(F.relu(model(x)) * y).sum() / y.sum()"), "AM802")


def test_says_nothing_of_a_plain_mean():
    assert "AM802" not in codes(training())


def test_says_nothing_of_a_sum_that_is_divided_by_the_batch():
    assert "AM802" not in codes(training(loss="(model(x) ** 2).sum() / x.size(0)"))


def test_tells_noise_that_is_equal_everywhere():
    source = training(ready="torch.manual_seed(3)", inside="noise = torch.randn(4, 2)")
    assert "torch.manual_seed(3 + accelerator.process_index)" in noted(source, "AM803")


def test_says_nothing_of_numbers_drawn_before_the_loop():
    assert "AM803" not in codes(training(ready="torch.manual_seed(3)\nfixed = torch.randn(4, 2)"))


def test_tells_statistics_of_batches():
    assert "SyncBatchNorm" in noted(training(functions="norm = nn.BatchNorm1d(3)\n"), "AM804")


def test_says_nothing_of_statistics_that_are_shared():
    source = training(functions="norm = nn.SyncBatchNorm.convert_sync_batchnorm(nn.BatchNorm1d(3))\n")
    assert "AM804" not in codes(source)


def test_tells_a_training_without_a_loader():
    source = """
    import torch
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        loss = model(torch.ones(4, 2)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    """
    assert "no DataLoader" in noted(source, "AM805")


def test_says_nothing_of_a_way_out_by_count():
    assert "AM806" not in codes(training(inside="if i > 10:\n    break"))


def test_tells_calls_that_need_cuda():
    assert "CUDA" in noted(training(inside="torch.cuda.synchronize()"), "AM204")


def test_tells_a_download():
    assert "downloads" in noted(training(functions='raw = Digits("d", download=True)\n'), "AM604")


def test_tells_a_sampler_of_the_authors_own():
    source = training().replace("shuffle=True)", "sampler=Balanced(data))")
    assert "sampler" in noted(source, "AM807")


def test_does_not_share_out_the_loader_of_a_graph_library():
    source = training().replace("DataLoader(data, batch_size=4, shuffle=True)", "GraphLoader(data)")
    source = source.replace("import wandb", "from torch_geometric.loader import DataLoader as GraphLoader")
    assert "not shared out" in noted(source, "AM807")


STREAM = """
class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        yield from {samples}
"""


def test_tells_that_a_stream_is_read_by_all():
    source = training(functions=STREAM.format(samples="numbers()")).replace(
        "loader = DataLoader(data, batch_size=4, shuffle=True)", "loader = DataLoader(Stream(), batch_size=4)"
    )
    assert "a stream" in noted(source, "AM807")
