"""AM8xx: what changes with the number of processes, and is said."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent, indent

import pytest
from accel_migrate.pipeline import migrate
from accel_migrate.settings import DEFAULTS, Settings
from accel_migrate.source import Source

from tests.migrate.rules.scripts import becomes, codes, training
from tests.migrate.rules.verbs import _migrated, migrated, noted, notes, unchanged

OF_ACCELERATE = Settings(target="accelerate")  # where nobody seeds the processes but the script
LAUNCHED = "accel launch seeds all processes alike"


def test_tells_the_global_batch_once():
    assert "N batches" in noted(training(), "AM801")


@pytest.mark.parametrize("settings", [DEFAULTS, OF_ACCELERATE])
def test_who_keeps_the_batch_is_told_how_many_rows_a_process_has(settings: Settings):
    assert "(batch_size / N rows for each process" in noted(training(), "AM801", settings)


def test_tells_that_epochs_have_fewer_steps():
    assert "N times fewer steps" in noted(training(), "AM801")


EVALUATED_ONLY = """
    import torch
    from torch.utils.data import DataLoader

    held_out = DataLoader(build(), batch_size=4)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        loss = model(torch.ones(4, 2)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    right = 0
    model.eval()
    with torch.no_grad():
        for x, y in held_out:
            right += (model(x).argmax(1) == y).sum().item()
    print(right / len(held_out.dataset))
"""


def test_a_loader_that_is_only_evaluated_shares_out_no_training():
    assert "no DataLoader is sharded" in noted(EVALUATED_ONLY, "AM805")
    assert "AM801" not in codes(dedent(EVALUATED_ONLY))


def test_tells_a_loss_that_is_summed():
    assert "summed" in noted(training(loss='F.cross_entropy(model(x), y, reduction="sum")'), "AM802")


@pytest.mark.parametrize(
    ("built", "told"),
    [
        ("cost = nn.CrossEntropyLoss(weight=rare)\ncost = nn.CrossEntropyLoss()", None),
        ("cost = nn.CrossEntropyLoss()\ncost = nn.CrossEntropyLoss(weight=rare)", "is a mean weighted"),
        ("cost = nn.CrossEntropyLoss()\nif chosen:\n    cost = nn.CrossEntropyLoss(rare)", "may be a mean weighted"),
        ("cost = nn.CrossEntropyLoss(weight=rare if chosen else None)", "may be a mean weighted"),
        ("rare = None\ncost = nn.CrossEntropyLoss(rare)", None),
        ("if chosen:\n    rare = None\ncost = nn.CrossEntropyLoss(weight=rare)", "may be a mean weighted"),
        ("cost = nn.CrossEntropyLoss(weight=weights_of(data))", "may be a mean weighted"),
        ("cost = nn.NLLLoss(reduction='sum')\ncost = nn.NLLLoss()", None),
    ],
)
def test_says_of_a_criterion_what_holds_where_it_is_called(built: str, told: str | None):
    functions = "def weights_of(data):\n    return None\n"
    ready = f"rare, chosen = torch.ones(2), len(sys.argv) > 1\nrare = torch.ones(2)\n{built}"
    source = training(functions=functions, ready=ready, loss="cost(model(x), y)")
    if told is None:
        assert "AM802" not in codes(source)
    else:
        assert told in noted(source, "AM802")


def test_offers_to_split_batches_only_where_they_have_a_size():
    source = training()
    sampled = source.replace(
        "DataLoader(data, batch_size=4, shuffle=True)", "DataLoader(data, batch_sampler=Buckets(data))"
    )
    assert "--keep-batch" in noted(source, "AM801")
    assert "--keep-batch" not in noted(f"from elsewhere import Buckets\n{sampled}", "AM801")


@pytest.mark.parametrize("options", ["", ", batch_size=None", ", batch_size=1", ", 1", ", batch_size=one"])
def test_offers_to_split_no_batch_of_one_row(options: str):
    source = training(functions="one = 1\n").replace(
        "DataLoader(data, batch_size=4, shuffle=True)", f"DataLoader(data{options})"
    )
    assert "--keep-batch" not in noted(source, "AM801")
    sampled = source.replace(f"(data{options})", "(data, sampler=BatchSampler(range(9), 3, True), batch_size=None)")
    assert "--keep-batch" not in noted(f"from torch.utils.data import BatchSampler\n{sampled}", "AM801")
    handed = source.replace(f"(data{options})", "(data, **options)")
    assert "--keep-batch" in noted(handed, "AM801")


@pytest.mark.parametrize(
    ("loss", "shared", "alone"),
    [
        ("((h := model(x)) @ h.t()).softmax(1).diag().mean()", "where batches are split over processes", "there are"),
        (
            "(model(x) - 1).pow(2).sum()",
            "multiply the sum alone by accelerator.num_processes",
            "once each has samples of its own",
        ),
    ],
)
def test_a_loss_where_no_loader_is_sharded_is_not_told_of_shards(loss: str, shared: str, alone: str):
    assert noted(training(loss=loss), "AM802").endswith(shared)
    by_hand = training(loss=loss).replace(
        "enumerate(loader)", "enumerate([(torch.randn(4, 3), torch.zeros(4).long())])"
    )
    assert noted(by_hand, "AM802").endswith(alone)
    assert "AM805" in codes(by_hand)


def test_looks_for_the_sum_inside_a_function():
    source = training(
        functions="def loss_of(out, y):\n    return ((out - y) ** 2).sum()\n", loss="loss_of(model(x), y)"
    )
    assert "summed" in noted(source, "AM802")


def test_tells_a_mean_over_a_mask():
    assert "differs from batch to batch" in noted(training(loss="(F.relu(model(x)) * y).sum() / y.sum()"), "AM802")


@pytest.mark.parametrize("place", ["y", "y, 0", "y.tolist()[0]"])
def test_what_is_stored_at_the_places_of_samples_is_of_a_shard(place: str):
    source = training(functions="table = torch.zeros(9, 2)\n", inside=f"table[{place}] = model(x).detach()")
    assert "what is stored at the places of samples (line " in noted(source, "AM801")


@pytest.mark.parametrize(
    "stored",
    ["table[i] = 1.0", "table[epoch] = y", "x[y] = 0.0", "mine = torch.zeros(4)\nmine[y] = 1.0", "table[y] += 1"],
)
def test_what_is_stored_elsewhere_is_no_place_of_a_sample(stored: str):
    source = training(functions="table = torch.zeros(9, 2)\n", inside=stored)
    assert "places of samples" not in noted(source, "AM801")


def test_a_mean_over_a_mask_of_all_data_differs_only_once_it_is_shared_out():
    source = training(loss="(F.relu(model(x)) * y).sum() / y.sum()").replace(
        "enumerate(loader)", "enumerate([(torch.randn(4, 3), torch.zeros(4).long())])"
    )
    assert "that may differ between processes, once each has samples of its own (line" in noted(source, "AM802")


@pytest.mark.parametrize("chosen", ["rows.masked_select(y > 0)", "rows[y > 0]", "rows[mask]"])
def test_tells_a_mean_over_what_a_mask_leaves(chosen: str):
    inside = f"rows = F.cross_entropy(model(x), y, reduction='none')\nmask = y > 0\nkept = {chosen}"
    assert "differs from batch to batch" in noted(training(inside=inside, loss="kept.mean()"), "AM802")


def test_looks_for_the_sum_inside_a_loss_of_the_project():
    functions = (
        "class Cost(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.rows = nn.MSELoss(reduction={})\n    def forward(self, out, y):\n"
        "        cost = 5 * self.rows(out[:, 0], y)\n        return cost\n"
    )
    source = training(functions=functions, ready="cost = Cost()", loss="cost(model(x), y)")
    assert "summed" in noted(source.replace("{}", "'sum'"), "AM802")
    assert "AM802" not in codes(source.replace("{}", "'mean'"))


@pytest.mark.parametrize("move", [".to(device)", ".cuda()", ".to(device).half()"])
def test_looks_behind_the_move_of_a_criterion(move: str):
    functions = (
        "class Masked(nn.Module):\n    def forward(self, out, y):\n        return torch.sum(out * y) / torch.sum(y)\n"
    )
    for made in ("nn.CrossEntropyLoss(ignore_index=0)", "Masked()"):
        source = training(functions=functions, ready=f"cost = {made}{move}", loss="cost(model(x), y)")
        assert "differs from batch to batch" in noted(source, "AM802")


def test_says_nothing_of_a_plain_mean():
    assert "AM802" not in codes(training())


def test_says_nothing_of_a_sum_that_is_divided_by_the_batch():
    assert "AM802" not in codes(training(loss="(model(x) ** 2).sum() / x.size(0)"))


def test_tells_noise_that_is_equal_everywhere():
    source = training(ready="torch.manual_seed(3)", inside="noise = torch.randn(4, 2)")
    assert "torch.manual_seed(3 + accelerator.process_index)" in noted(source, "AM803")


@pytest.mark.parametrize("seed", ["torch.manual_seed(seed=3)", "torch.manual_seed(3)", "torch.random.manual_seed(3)"])
def test_a_seed_may_be_given_by_its_name(seed: str):
    told = noted(training(ready=seed, inside="x = x + torch.randn(4, 3)"), "AM803")
    assert "torch.manual_seed(3 + accelerator.process_index)" in told


@pytest.mark.parametrize(
    ("built", "drops"),
    [
        ("BertModel.from_pretrained('x')", True),
        ("AutoModelForSequenceClassification.from_config(BertConfig())", True),
        ("GPT2LMHeadModel(GPT2Config())", True),
        ("BertConfig()", False),
        ("BertTokenizer.from_pretrained('x')", False),
        ("LlamaModel(settings)", False),  # drops nothing unless it is told to
        ("AutoModelForImageClassification.from_pretrained('x')", False),
    ],
)
def test_a_model_for_texts_of_a_library_drops(built: str, drops: bool):
    name = built.partition("(")[0].partition(".")[0]
    body = (
        f"from transformers import {name}\nclass Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        f"        self.body = {built}\n    def forward(self, x):\n        return self.body(x)\n"
    )
    source = training(functions=body).replace("model = nn.Linear(3, 2)", "model = Net()")
    assert ("for dropout (line" in "".join(notes(source))) is drops


@pytest.mark.parametrize(
    ("change", "draws"),
    [
        (("", ""), False),
        (("print(total)", "print(total, torch.rand(1))"), True),
        (("print(total)", "print(total, judge(total))"), True),
        (("test_loader = DataLoader(data,", "test_loader = DataLoader(data, shuffle=True,"), True),
        (("model = nn.Linear(3, 2)", "model = nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.5))"), True),
        (("    total = 0.0", "    model.eval()\n    total = 0.0"), False),
    ],
)
def test_says_why_processes_are_not_to_be_seeded_apart(change: tuple[str, str], draws: bool):
    whole = "for x, y in test_loader:\n    total = model(x.to(device)).sum()\n    print(total)"
    source = training(
        functions="from judging import judge\n",
        ready="torch.manual_seed(3)",
        inside="x = x + torch.randn(4, 3)",
        after=whole,
    )
    told = noted(source.replace(*change), "AM803")
    assert ("process_index" in told) is not draws
    advised = "seeding them apart is not advised, because every process goes through an evaluation by itself (line "
    assert (advised in told) is draws


PHASES = """
import torch
from torch import nn
from torch.utils.data import DataLoader
from torchvision import transforms
from torchvision.datasets import CIFAR10
from tqdm import tqdm

seen = transforms.Compose([transforms.RandomHorizontalFlip(), transforms.ToTensor()])
plain = transforms.ToTensor()


def rounds(net, loader, opt):
    net.train(opt is not None)
    {bar} tqdm(loader)
    with torch.set_grad_enabled(opt is not None):
        for x, y in bar:
            x, y = x.cuda(), y.cuda()
            loss = nn.functional.cross_entropy(net(x), y)
            if opt is not None:
                opt.zero_grad()
                loss.backward()
                opt.step()
            total += loss.item()
    return total


train_loader = DataLoader(CIFAR10("data", transform={trained}), batch_size=8, shuffle=True, num_workers=2)
test_loader = DataLoader(CIFAR10("data", transform={tested}), batch_size=8)
net = nn.Sequential(nn.Flatten(), nn.Linear(3072, 10)).cuda()
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for epoch in range(3):
    rounds(net, train_loader, opt)
    rounds(net, test_loader, None)
"""


@pytest.mark.parametrize(
    ("functions", "made", "said"),
    [
        ("", "views = T.Compose([T.RandomCrop(32)])", True),
        ("", "views = T.Compose([T.Resize(32)])", False),
        (
            "def build():\n    all = []\n    all.append(T.RandomCrop(32))\n    return T.Compose(all), 'crop'\n",
            "views, names = build()",
            True,
        ),
        ("def build():\n    return T.Compose([T.Resize(32)]), 'plain'\n", "views, names = build()", False),
    ],
)
def test_tells_of_what_a_step_applies_to_a_whole_batch(functions: str, made: str, said: bool):
    source = training(
        functions=f"from torchvision import transforms as T\n{functions}", ready=made, inside="x = views(x)"
    )
    assert ("AM803" in codes(source)) is said
    assert not said or "for augmentation (line" in noted(source, "AM803")


@pytest.mark.parametrize("bar", ["total, bar = 0.0,", "total = 0.0; bar ="])
def test_a_loop_that_also_evaluates_trains_on_augmented_samples(bar: str):
    source = PHASES.format(bar=bar, trained="seen", tested="plain")
    assert "for augmentation (line 8)" in noted(source, "AM803")
    assert "AM803" not in codes(PHASES.format(bar=bar, trained="plain", tested="seen"))


def test_says_nothing_of_numbers_drawn_before_the_loop():
    assert "AM803" not in codes(training(ready="torch.manual_seed(3)\nfixed = torch.randn(4, 2)"))


def test_tells_statistics_of_batches():
    normed = "model = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2))"
    assert "SyncBatchNorm" in noted(training().replace("model = nn.Linear(3, 2)", normed), "AM804")


NORMED = """class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(3)
        self.out = nn.Linear(3, 2)
    def forward(self, x):
        return self.out({x})
def build():
    layers = [nn.Linear(3, 3)]
    layers.append(nn.BatchNorm1d(3))
    return nn.Sequential(*layers, nn.Linear(3, 2))
kinds = {{"net": Net, "built": build}}
other = {other}
"""


@pytest.mark.parametrize(
    ("x", "other", "model", "told"),
    [
        ("self.norm(x)", "None", "Net()", True),
        ("x", "None", "Net()", False),
        ("self.norm(x)", "Net()", "nn.Linear(3, 2)", False),
        ("self.norm(x)", "Net()", "other", True),
        ("x", "None", "build()", True),
        ("self.norm(x)", "None", "kinds[sys.argv[1]]()", True),
        ("self.norm(x)", "None", "nn.Sequential(Net())", True),
    ],
)
def test_tells_statistics_of_the_trained_model_alone(x: str, other: str, model: str, told: bool) -> None:
    source = training(functions=NORMED.format(x=x, other=other))
    assert ("AM804" in codes(source.replace("model = nn.Linear(3, 2)", f"model = {model}"))) == told


def test_says_nothing_of_statistics_that_are_shared():
    source = training(functions="norm = nn.SyncBatchNorm.convert_sync_batchnorm(nn.BatchNorm1d(3))\n")
    assert "AM804" not in codes(source)


NOT_DRAWN = "nothing is seen to be drawn for them, so N processes learn no more than one"


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
    assert NOT_DRAWN in noted(source, "AM805")
    with_dropout = source.replace("model(torch", "torch.nn.functional.dropout(model(torch").replace(
        ").mean()", ")).mean()"
    )
    assert NOT_DRAWN in noted(with_dropout, "AM805")


def test_tells_numbers_that_a_generator_draws_its_batches_by():
    source = """
    import numpy as np
    import torch
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    pictures = np.ones((40, 2), dtype="float32")

    def draw():
        while True:
            rows = np.random.choice(40, size=4)
            yield torch.tensor(pictures[rows])

    batches = draw()
    for step in range(3):
        loss = model(next(batches)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    """
    message = noted(source, "AM805")
    assert NOT_DRAWN not in message and "seed" in message


def test_says_nothing_of_a_way_out_by_count():
    assert "AM806" not in codes(training(inside="if i > 10:\n    break"))


def test_tells_calls_that_need_cuda():
    assert "CUDA" in noted(training(inside="torch.cuda.synchronize()"), "AM204")


def test_tells_a_download():
    assert "downloads" in noted(training(functions='raw = Digits("d", download=True)\n'), "AM604")


def test_tells_a_sampler_of_the_authors_own():
    source = training().replace("shuffle=True)", "sampler=Balanced(data))")
    assert "sampler" in noted(source, "AM807")
    named = "from torch.utils.data import RandomSampler, sampler\nsampler = RandomSampler(data)\n"
    ready = training(ready="").replace("loader = DataLoader(", f"{named}loader = DataLoader(", 1)
    assert "AM807" not in codes(ready.replace("shuffle=True)", "sampler=sampler)"))
    turns = "class Balanced:\n    def __init__(self, data):\n        self.num_replicas = accelerator.num_processes\n"
    own = training(functions=turns).replace("shuffle=True)", "sampler=Balanced(data))")
    assert "AM807" not in codes(own)  # the runtime does not shard its batches again
    assert "AM807" in codes(own.replace("num_replicas", "count"))


def test_does_not_share_out_the_loader_of_a_graph_library():
    source = training().replace("DataLoader(data, batch_size=4, shuffle=True)", "GraphLoader(data)")
    foreign = source.replace("import wandb", "from dgl.dataloading import DataLoader as GraphLoader")
    assert "not sharded" in noted(foreign, "AM807")
    graphs = source.replace("import wandb", "from torch_geometric.loader import DataLoader as GraphLoader")
    assert "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)" in migrated(graphs)


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


def test_does_not_advise_to_seed_apart_where_the_data_is_a_stream():
    source = training(functions=STREAM.format(samples="numbers()"), inside="x = x + torch.randn(4, 3)")
    assert "torch.manual_seed(" in noted(source, "AM803")
    source = source.replace("loader = DataLoader(data, batch_size=4, shuffle=True)", "loader = DataLoader(Stream(), 4)")
    assert "not advised, because all must read the same samples of a stream" in noted(source, "AM803")


def test_says_nothing_of_noise_by_a_seed_of_its_own():
    source = """
    import torch
    import torch.distributed as dist
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    offset = 7 * rank
    torch.manual_seed(3 + offset)
    data = [(torch.randn(4), torch.randn(1)) for _ in range(8)]
    loader = torch.utils.data.DataLoader(data, batch_size=2)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        loss = (model(x + torch.randn(2, 4)) - y).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    """
    assert "AM803" not in codes(dedent(source))


def test_tells_noise_of_a_library_that_only_the_launch_seeds():
    source = training(ready="torch.manual_seed(3)", inside="noise = np.random.randn(4)")
    assert "AM803" not in codes(source, OF_ACCELERATE)
    told = noted(source, "AM803")
    assert f"draws the same numbers, in its steps (line 29), because all are seeded alike ({LAUNCHED})" in told
    assert "np.random.seed(torch.initial_seed() % 2**32 + accelerator.process_index)" in told


def test_a_seed_in_a_function_that_nobody_calls_is_no_seed():
    functions = "def fix():\n    torch.manual_seed(3)\n"
    unseeded = training(functions=functions, inside="noise = torch.randn(4, 2)")
    assert "AM803" not in codes(unseeded, OF_ACCELERATE)
    assert f"seeded alike ({LAUNCHED})" in noted(unseeded, "AM803")
    called = training(functions=functions, ready="fix()", inside="noise = torch.randn(4, 2)")
    assert "seeded alike (line" in noted(called, "AM803")


def test_noise_by_a_seed_that_is_not_visible_may_be_the_same():
    source = training(functions="from tools import set_seed\nset_seed(1)\n", inside="noise = np.random.randn(4)")
    assert "every process may draw the same numbers" in noted(source, "AM803")
    assert "AM803" not in codes(source, OF_ACCELERATE)


BY_HAND = """
import numpy as np
import torch
{seed}
x = torch.from_numpy(np.random.randn(20, 4)).float()
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(0, 20, 4):
    loss = model(x[i:i + 4]).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("drawn", "differs"),
    [
        ("np.random.default_rng().normal(size=(20, 4))", True),
        ("np.random.default_rng(3).normal(size=(20, 4))", False),
        ("qmc.Sobol(d=4).random(20)", True),
        ("qmc.LatinHypercube(d=4, seed=3).random(20)", False),
    ],
)
def test_says_that_a_generator_begins_otherwise_on_each_process(drawn: str, differs: bool):
    source = BY_HAND.format(seed="from scipy.stats import qmc").replace("np.random.randn(20, 4)", drawn)
    assert ("begins otherwise on each process (line 4)" in noted(source, "AM805")) is differs


def test_tells_data_of_its_own_where_the_library_is_not_seeded():
    source = BY_HAND.format(seed="torch.manual_seed(1)")
    assert "numpy is not seeded alike" in noted(source, "AM805", OF_ACCELERATE)
    assert f"makes the same batches, since {LAUNCHED}, so" in noted(source, "AM805")
    assert "by a seed that differs by process (line 3)" in noted(BY_HAND.format(seed="np.random.seed()"), "AM805")
    assert "seeded alike, so" in noted(BY_HAND.format(seed="np.random.seed(1)"), "AM805")
    assert "not visible to the analysis" in noted(
        BY_HAND.format(seed="from tools import set_seed\nset_seed(1)"), "AM805"
    )


SHOWN = """
import random
import torch
x = torch.ones(20, 4)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def fit(start=0):
    for i in range(0, 20, 4):
        loss = model(x[i:i + 4] + start).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
def main():
    fit()
    first = random.randint(0, 19)
    {used}
main()
"""


@pytest.mark.parametrize("used", ["fit(first)", "random.shuffle(x)", "later = first\n    fit(later)"])
def test_a_number_that_is_drawn_only_to_show_something_makes_no_batches(used: str):
    assert NOT_DRAWN in noted(SHOWN.format(used="print(model(x[first:first + 1]))"), "AM805")
    assert "makes the same batches" in noted(SHOWN.format(used=used), "AM805")
    assert NOT_DRAWN not in noted(SHOWN.format(used=used), "AM805")


def test_says_what_a_loss_is_only_where_it_is_known():
    assert "AM802" not in codes(training(loss="criterion(model(x), y).sum()"))
    rows = training(ready="rows = nn.CrossEntropyLoss(reduction='none')", loss="rows(model(x), y).sum()")
    assert "summed" in noted(rows, "AM802")
    unseen = training(functions="from losses import rate\n", loss="rate(model(x), y).sum()")
    assert "rate() (line" in noted(unseen, "AM812")
    assert "how the loss is reduced" in noted(training(loss="(model(x) ** 2).sum() / scale"), "AM812")
    weighted = training(ready="criterion = nn.CrossEntropyLoss(weight=torch.ones(2))")
    assert "weighted by class" in noted(weighted, "AM802")


@pytest.mark.parametrize(
    ("layer", "given", "told"),
    [("nn.BatchNorm1d", "", True), ("nn.Identity", "nn.BatchNorm1d", True), ("nn.Identity", "nn.GroupNorm", False)],
)
def test_tells_statistics_of_a_layer_that_is_handed_on(layer: str, given: str, told: bool):
    functions = f"class Net(nn.Module):\n    def __init__(self, norm={layer}):\n        super().__init__()\n"
    functions += "        self.norm = norm(3)\n    def forward(self, x):\n        return self.norm(x)\n"
    source = training(functions=functions).replace("model = nn.Linear(3, 2)", f"model = Net({given})")
    assert ("AM804" in codes(source)) == told


def test_tells_statistics_of_a_library_model():
    source = training(functions="from torchvision.models import resnet18\n").replace("nn.Linear(3, 2)", "resnet18()")
    assert "SyncBatchNorm" in noted(source, "AM804")


def test_tells_statistics_of_a_model_in_another_file():
    net = "from torch import nn\n\n\nclass Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    net += "        self.norm = nn.BatchNorm1d(3)\n\n    def forward(self, x):\n        return self.norm(x)\n"
    script = training(functions="from net import Net\n").replace("model = nn.Linear(3, 2)", "model = Net()")
    files = {"net.py": net, "train.py": script.lstrip("\n")}
    results = migrate([Source.from_bytes(Path(name), text.encode()) for name, text in files.items()])
    notes = [note for result in results for note in result.notes if note.code == "AM804"]
    assert [("net.py:7" in note.message) for note in notes] == [True]


@pytest.mark.parametrize("looked_up", ["net.__dict__[name]", "getattr(net, name)", "vars(net)[name]"])
def test_tells_statistics_of_a_model_that_is_looked_up_by_its_name(looked_up: str):
    net = "from torch import nn\n\n\ndef small():\n    return nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))\n"
    script = training(functions="import net\nname = 'small'\n").replace("= nn.Linear(3, 2)", f"= {looked_up}()")
    files = {"net.py": net, "train.py": script.lstrip("\n")}
    results = migrate([Source.from_bytes(Path(name), text.encode()) for name, text in files.items()])
    notes = [note for result in results for note in result.notes if note.code == "AM804"]
    assert [("net.py:5" in note.message) for note in notes] == [True]


def test_tells_statistics_of_a_model_that_is_looked_up_and_built_of_another_file():
    layers = "from torch import nn\n\n\ndef layers():\n    return nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))\n"
    net = "from layers import layers\n\n\ndef small():\n    return layers()\n"
    script = training(functions="import net\nname = 'small'\n").replace("= nn.Linear(3, 2)", "= net.__dict__[name]()")
    assert ["layers.py:5" in each for each in messages("AM804", train=script, net=net, layers=layers)] == [True]


SHUFFLED = """
class Files(torch.utils.data.Dataset):
    def __init__(self):
        self.items = np.random.permutation(40)
    def __getitem__(self, index):
        return self.items[index]
files = Files()
"""


@pytest.mark.parametrize(
    "functions",
    [
        SHUFFLED,
        "import random\nnames = list('abc')\nrandom.shuffle(names)\n",
        "from torch.utils.data import random_split\na, b = random_split(range(4), [2, 2])\n",
        "from sklearn.model_selection import train_test_split\na, b = train_test_split(range(4), random_state=None)\n",
        "held_out = np.random.uniform(0, 1, 40) < 0.2\n",
        "import random\nkept = [n for n in range(40) if random.random() > 0.2]\n",
        "chosen = np.random.choice(40, 10, replace=False)\n",
        "parts = load().train_test_split(test_size=10)\n",
        "rows = load().sample(frac=1).reset_index(drop=True)\n",
        "from sklearn.utils import shuffle\nrows = shuffle(range(40))\n",
    ],
)
def test_tells_an_order_that_every_process_draws(functions: str):
    assert "overlap and miss samples" in noted(training(functions=functions), "AM809", OF_ACCELERATE)
    assert "AM809" not in codes(training(functions=functions)), "all are seeded alike"
    apart = "import random, time\nrandom.seed()\nnp.random.seed(None)\ntorch.manual_seed(int(time.time()))\n"
    assert "is not seeded alike on all" in noted(training(functions=apart + functions), "AM809")


@pytest.mark.parametrize(
    ("made", "told"),
    [
        ("np.random.default_rng()", True),
        ("np.random.default_rng(None)", True),
        ("np.random.RandomState()", True),
        ("random.Random()", True),
        ("random.SystemRandom()", True),
        ("np.random.default_rng(3)", False),
        ("np.random.default_rng(seed=3)", False),
        ("random.Random(3)", False),
    ],
)
def test_tells_a_generator_that_no_seed_reaches(made: str, told: bool):
    source = training(functions=f"import random\nrng = {made}\nrows = list(range(40))\nrng.shuffle(rows)\n")
    for settings in (DEFAULTS, OF_ACCELERATE):
        assert ("AM809" in codes(source, settings)) == told
    if told:
        assert f"`{made}` begins with a number of the machine" in noted(source, "AM809")


def test_says_nothing_of_a_generator_in_the_steps():
    assert "AM809" not in codes(training(inside="rng = np.random.default_rng()"))


@pytest.mark.parametrize(("seeds", "told"), [("", True), ("random.seed(1)\n", False)])
def test_tells_what_a_file_draws_while_it_is_imported(seeds: str, told: bool):
    rows = f"import random\n{seeds}ROWS = list(range(40))\nrandom.shuffle(ROWS)\n"
    script = "import rows\n" + training(functions="import random\nrandom.seed(1)\n")
    found = messages("AM809", train=script, rows=rows)
    assert ["while rows.py is imported (line 3, before accel_runtime is)" in each for each in found] == [True] * told
    found = messages("AM809", train=script, rows=rows, start="import train")
    assert ["(line 3, if that is before accel_runtime is)" in each for each in found] == [True] * told


def test_what_a_file_draws_that_is_imported_below_accel_runtime_is_drawn_alike():
    rows = "import random\nROWS = list(range(40))\nrandom.shuffle(ROWS)\n"
    for below in ("import rows\n", "import loading\n", "def data():\n    import rows\n    return rows.ROWS\n"):
        script = training(functions=below)
        assert not messages("AM809", train=script, rows=rows, loading="import rows")
        assert messages("AM809", OF_ACCELERATE, train=script, rows=rows, loading="import rows")


@pytest.mark.parametrize(
    "functions",
    [
        "np.random.seed(3)" + SHUFFLED,
        "from torch.utils.data import random_split\na, b = random_split(range(4), [2, 2], torch.Generator())\n",
        "from sklearn.model_selection import train_test_split\na, b = train_test_split(range(4), random_state=1)\n",
        "def never_called():\n    return np.random.permutation(4)\n",
        "start = np.random.uniform(0, 1, 40)\n",
        "parts = load().train_test_split(test_size=10, seed=1)\n",
        "rows = load().sample(frac=1, random_state=3)\n",
        SHUFFLED.replace("np.random.permutation(40)", "range(40)").replace(
            "self.items[i", "np.random.permutation(4)[i"
        ),
    ],
)
def test_says_nothing_of_an_order_that_is_the_same_or_none(functions: str):
    assert "AM809" not in codes(training(functions=functions))


@pytest.mark.parametrize("value", ['"0"', "sys.argv[1]"])
def test_tells_gpus_that_the_script_names(value: str):
    source = training(functions=f'os.environ["CUDA_VISIBLE_DEVICES"] = {value}\n')
    assert "shared by all" in noted(source, "AM204")


def messages(code: str, settings: Settings = DEFAULTS, **files: str) -> list[str]:
    """What is said under a code of several files."""
    sources = [Source.from_bytes(Path(f"{name}.py"), text.encode()) for name, text in files.items()]
    return [note.message for result in migrate(sources, settings) for note in result.notes if note.code == code]


def test_tells_gpus_that_a_helper_names():
    tools = "import os\ndef choose(gpu):\n    os.environ['CUDA_VISIBLE_DEVICES'] = gpu\n"
    train = training(functions="import tools\ntools.choose('1')\n")
    assert ["tools.py:3" in each for each in messages("AM204", train=train, tools=tools)] == [True]
    assert not messages("AM204", train=training(), tools=tools)


def test_a_seed_in_a_file_that_the_training_does_not_run_with_is_no_seed():
    draws = training(inside="x = x + torch.randn(4, 3)")
    seeds = "import torch\ntorch.manual_seed(1)\n"
    assert not messages("AM803", OF_ACCELERATE, train=draws, other=seeds + "import shared", shared="import torch")
    beside = draws.replace("import wandb", "import wandb\nimport other")
    assert messages("AM803", OF_ACCELERATE, train=beside, other=seeds)
    assert messages("AM803", OF_ACCELERATE, train=draws, start=seeds + "import train")


CALLED = {
    "run": "from net import Net\nfrom digits import Source\nfrom fit import Fit\nFit(Net(), Source())(3)\n",
    "net": "from torch import nn\nclass Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    "        self.layers = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))\n"
    "    def forward(self, x):\n        return self.layers(x)\n",
    "digits": "from torch.utils.data import DataLoader\nfrom torchvision.datasets import MNIST\nclass Source:\n"
    "    def __init__(self):\n        self.data = MNIST('data', download=True)\n"
    "    def loader(self):\n        return DataLoader(self.data, batch_size=4)\n",
    "fit": "import torch\nclass Fit:\n    def __init__(self, model, source):\n        self.model = model.cuda()\n"
    "        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)\n        self.loader = source.loader()\n"
    "    def __call__(self, epochs):\n        for _ in range(epochs):\n            for x, y in self.loader:\n"
    "                loss = torch.nn.functional.mse_loss(self.model(x.cuda()), y.cuda())\n"
    "                self.optimizer.zero_grad()\n                loss.backward()\n                self.optimizer.step()\n",
}


def test_tells_what_the_script_that_calls_a_trainer_builds_for_it():
    assert ["(net.py:5)" in each for each in messages("AM804", **CALLED)] == [True]
    assert ["(digits.py:5)" in each for each in messages("AM604", **CALLED)] == [True]
    other = CALLED | {
        "run": CALLED["run"].replace("Net()", "torch.nn.Linear(3, 3)").replace("from net", "import torch #")
    }
    assert not messages("AM804", **other)


def test_tells_the_same_noise_that_a_helper_draws():
    noise = "import torch\ndef noise(x):\n    return x + torch.randn_like(x)\ndef other(x):\n    return torch.rand(3)\n"
    script = training(functions="import noise\ntorch.manual_seed(3)\n", inside="y = noise.noise(x)")
    assert ["(noise.py:3)" in each for each in messages("AM803", train=script, noise=noise)] == [True]
    assert not messages("AM803", train=script.replace("noise.noise(x)", "len(x)"), noise=noise)


def test_tells_the_same_noise_that_a_function_of_the_file_draws():
    mixed = "def mixed(x):\n    return x[torch.randperm(len(x))]\ntorch.manual_seed(3)\n"
    assert "in its steps (line 13)" in noted(training(functions=mixed, inside="y = mixed(x)"), "AM803")
    assert "AM803" not in codes(training(functions=mixed, ready="y = mixed(data.tensors[0])"))


def test_tells_the_file_in_which_a_loss_is_summed():
    costs = "import torch\n\n\ndef cost(x, y):\n    return ((x - y) ** 2).sum()\n"
    script = training(functions="from costs import cost\n", loss="cost(model(x), y)")
    assert ["(costs.py, line 5)" in each for each in messages("AM802", train=script, costs=costs)] == [True]


def test_tells_a_sum_that_comes_as_one_of_several():
    functions = "def both(x, y):\n    out = model(x)\n    return out, F.mse_loss(out, y, reduction={})\n"
    script = training(functions=functions, loss="0").replace("loss = 0", "out, loss = both(x, y)")
    assert "summed" in noted(script.format("'sum'"), "AM802")
    assert "AM802" not in codes(script.format("'mean'"))


def test_says_nothing_of_what_only_another_script_writes():
    helper = "import os, torch\ndef write():\n    os.mkdir('out')\n    open('x', 'w').write('x')\n"
    helper += "def keep(model):\n    torch.save(model.state_dict(), 'x.pt')\n"
    train = training(functions="import helper\n", after="helper.keep(model)")
    called = train.replace("import helper", "import helper\nhelper.write()")
    for code in ("AM504", "AM505"):
        assert not messages(code, train=train, helper=helper, other="import helper\nhelper.write()\n")
        assert messages(code, train=called, helper=helper)


@pytest.mark.parametrize(
    ("more", "called", "told"),
    [
        ("", "", False),
        ("if __name__ == '__main__':\n    download()\n", "", False),
        ("", "helper.download()", True),
        ("", "list(map(helper.download, 'ab'))", True),
        ("def first():\n    download()\n", "helper.first()", True),
        ("class Rows:\n    def __getitem__(self, i):\n        download()\n", "rows = helper.Rows()", True),
        ("download()\n", "", True),
    ],
)
def test_follows_who_calls_what_writes(more: str, called: str, told: bool) -> None:
    helper = (
        "import torch\ndef write(path='x'):\n    open(path, 'w').write('x')\ndef download(path='x'):\n    write(path)\n"
    )
    helper += f"def keep(model):\n    torch.save(model.state_dict(), 'x.pt')\n{more}"
    train = training(functions=f"import helper\n{called}\n", after="helper.keep(model)")
    other = "import helper\ndef main():\n    helper.download()\nmain()\n"
    assert bool(messages("AM504", train=train, helper=helper, other=other)) == told


def test_tells_numbers_that_a_helper_draws_unseeded():
    memory = "import random\ndef pick(items):\n    return random.sample(items, 2)\n"
    script = BY_HAND.format(seed="np.random.seed(1)\nfrom memory import pick\npick([1, 2, 3])")
    assert "random is not seeded alike" in messages("AM805", OF_ACCELERATE, train=dedent(script), memory=memory)[0]
    assert LAUNCHED in messages("AM805", train=dedent(script), memory=memory)[0]


NORMALISED = "from torch import nn\nclass Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
NORMALISED += "        self.norm = nn.BatchNorm1d(3)\n    def forward(self, x):\n        return self.norm(x)\n"


@pytest.mark.parametrize(
    ("functions", "model"),
    [
        ("from net import Net\ndef build(name):\n    return {'net': Net}[name]()\n", "build('net')"),
        (
            "from net import Net\nclass Around(nn.Module):\n    def __init__(self, inner):\n        super().__init__()\n"
            "        self.inner = inner\n    def forward(self, x):\n        return self.inner(x)\ninner = Net()\n",
            "Around(inner)",
        ),
    ],
)
def test_tells_statistics_of_a_class_from_a_table_or_of_a_model_within(functions: str, model: str):
    script = training(functions=functions).replace("model = nn.Linear(3, 2)", f"model = {model}")
    assert ["net.py:5" in each for each in messages("AM804", train=script, net=NORMALISED)] == [True]


KINDS = NORMALISED.replace("        return self.norm(x)", "        return self.norm(x) + torch.randn_like(x)")
KINDS = "import torch\n" + KINDS + "class Plain(nn.Linear):\n    pass\n"


@pytest.mark.parametrize(
    "chosen",
    [
        "kinds[name]",
        "kinds.get(name)",
        "by_keyword[name]",
        "filled[name]",
        "[net.Plain, net.Net][int(name)]",
        "net.__dict__[name]",
        "vars(net)[name]",
        "getattr(net, name)",
        "globals()[name]",
        "(net.Net if name else net.Plain)",
    ],
)
@pytest.mark.parametrize("built", ["model = {}()", "kind = {}\nmodel = kind()"])
def test_tells_noise_and_statistics_of_every_class_that_may_be_the_model(chosen: str, built: str):
    ready = (
        "import net\nfrom net import *\nname = sys.argv[1]\ntorch.manual_seed(1)\n"
        "kinds = {'plain': net.Plain, 'net': net.Net}\nby_keyword = dict(plain=net.Plain, net=net.Net)\n"
        "filled = {}\nfilled['plain'] = net.Plain\nfilled['net'] = net.Net\n"
    )
    script = training().replace("model = nn.Linear(3, 2)", ready + built.format(chosen))
    assert ["(net.py:8)" in each for each in messages("AM803", train=script, net=KINDS)] == [True]
    assert ["net.py:6" in each for each in messages("AM804", train=script, net=KINDS)] == [True]


@pytest.mark.parametrize("chosen", ["getattr(models, name)", "models.__dict__[name]"])
@pytest.mark.parametrize("built", ["model = {}()", "kind = {}\nmodel = kind()"])
def test_a_model_that_is_looked_up_in_a_library_cannot_be_read(chosen: str, built: str):
    ready = "from torchvision import models\nname = sys.argv[1]\n"
    script = training().replace("model = nn.Linear(3, 2)", ready + built.format(chosen))
    assert messages("AM812", train=script)


def test_a_class_beside_those_of_the_table_is_not_the_model():
    ready = "import net\ntorch.manual_seed(1)\nkinds = {'plain': net.Plain}\nmodel = kinds[sys.argv[1]]()"
    script = training().replace("model = nn.Linear(3, 2)", ready)
    assert not messages("AM803", train=script, net=KINDS)
    assert not messages("AM804", train=script, net=KINDS)


def test_a_model_that_another_script_hands_in_is_no_part_of_this_one():
    around = (
        "from torch import nn\nclass Around(nn.Module):\n    def __init__(self, inner):\n        super().__init__()\n"
    )
    around += "        self.inner = inner\n    def forward(self, x):\n        return self.inner(x)\n"
    other = "from around import Around\nfrom net import Net\nnet = Net()\nmodel = Around(net)\n"
    script = training(functions="from around import Around\ninner = nn.Linear(3, 2)\n")
    script = script.replace("model = nn.Linear(3, 2)", "model = Around(inner)")
    assert not messages("AM804", train=script, around=around, other=other, net=NORMALISED)


ITERATED = """
def balanced(scores):
    rows = np.ones(len(scores))
    error = 1.0
    while error > 1e-3:
        new = 1.0 / (scores @ scores.T @ rows)
        error = np.abs(new - rows).sum()
        rows = new
{more}
    return rows
"""


def test_processes_that_do_not_meet_in_a_loop_do_not_wait_in_it():
    inside = "weights = balanced(model(x).detach().cpu().numpy())"
    assert "AM806" not in codes(training(functions=ITERATED.format(more=""), inside=inside))
    meets = training(functions=ITERATED.format(more="        optimizer.step()"), inside=inside)
    assert "`error > 0.001`, on a process's own batch" in unchanged(meets)


@pytest.mark.parametrize("leaving", ["continue", "break"])
def test_a_way_out_of_an_inner_loop_is_told_where_processes_meet_in_it(leaving):
    inside = "for one in y.view(-1):\n    if one == 0:\n        {}\n    {}"
    assert "AM806" not in codes(training(inside=inside.format(leaving, "seen.append(one)")))
    assert "AM806" in codes(training(inside=inside.format(leaving, "model(x)")))


def test_tells_the_order_that_another_file_draws():
    data = "import random\nimport torch\ndef names():\n    found = list('abc')\n    random.shuffle(found)\n    return found\n"
    script = training(functions="from files import names\n", ready="order = names()")
    sources = [Source.from_bytes(Path(n), t.encode()) for n, t in (("train.py", script), ("files.py", data))]
    found = [
        note.message for result in migrate(sources, OF_ACCELERATE) for note in result.notes if note.code == "AM809"
    ]
    assert len(found) == 1
    assert "files.py:5" in found[0]


JOINED = """
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group("gloo")
loader = DataLoader(data, batch_size=4{sampler})
model = DDP(nn.Linear(4, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for inputs, labels in loader:
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(inputs), labels)
    loss.backward()
    optimizer.step()
"""


def test_tells_that_processes_share_what_each_read_whole():
    assert "no sampler sharded this loader" in noted(JOINED.format(sampler=""), "AM801")
    assert "AM801" not in codes(JOINED.format(sampler=", sampler=DistributedSampler(data)"))


@pytest.mark.parametrize(
    ("filled", "told"),
    [("", True), ("options['sampler'] = sampler", False), ("options.update(more)", False)],
)
def test_options_that_are_written_out_have_no_sampler(filled: str, told: bool):
    options = f"options = {{'num_workers': 1}} if torch.cuda.is_available() else {{}}\n{filled}\nloader = "
    source = JOINED.format(sampler=", **options").replace("loader = ", options, 1)
    assert ("no sampler sharded this loader" in " ".join(notes(source))) == told


@pytest.mark.parametrize(
    "inside", ["pass", "getattr(sys.stdout, 'write')(str(loss.item()))", "globals()['told'](loss.item())"]
)
def test_tells_figures_of_a_shard_wherever_they_go(inside: str):
    assert "figures of training that are printed, logged or written are of one process's shard" in noted(
        training(functions="told = print\n", inside=inside), "AM801"
    )


SEED = "torch.manual_seed(3)\n"
DROPS = (
    "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.body = nn.Linear(3, 2)\n"
)
DROPS += "        self.drop = nn.Dropout({})\n    def forward(self, x):\n        return self.drop(self.body(x))\n"


def built(functions: str, model: str = "Net()") -> str:
    return training(functions=functions).replace("model = nn.Linear(3, 2)", f"model = {model}")


def test_tells_that_dropout_is_equal_on_every_process():
    assert "for dropout (line" in noted(built(SEED + DROPS.format("0.5")), "AM803")
    assert "for dropout (line" in noted(built(SEED, "nn.Sequential(nn.Linear(3, 2), nn.Dropout())"), "AM803")
    assert "AM803" not in codes(built(SEED + DROPS.format("0.0")))
    assert "AM803" not in codes(built(DROPS.format("0.5")), OF_ACCELERATE)
    assert LAUNCHED in noted(built(DROPS.format("0.5")), "AM803")


FLIPS = """
class Flipped(torch.utils.data.Dataset):
    def __getitem__(self, index):
        return {}
    def __len__(self):
        return 40
"""


def augmented(draw: str, seed: str, loader: str = "") -> str:
    source = training(functions=f"import random\n{seed}\n" + FLIPS.format(draw))
    source = source.replace("data = TensorDataset(torch.randn(40, 3), torch.randint(0, 2, (40,)))", "data = Flipped()")
    return source.replace("shuffle=True", f"shuffle=True{loader}")


def test_tells_that_samples_are_augmented_alike():
    assert "for augmentation (line" in noted(augmented("np.random.rand(3), 0", "np.random.seed(1)"), "AM803")
    assert "random.seed(1 + " in noted(augmented("random.random(), 0", "random.seed(1)"), "AM803")
    assert "AM803" not in codes(augmented("np.random.rand(3), 0", "torch.manual_seed(1)"), OF_ACCELERATE)
    assert LAUNCHED in noted(augmented("np.random.rand(3), 0", "torch.manual_seed(1)"), "AM803")
    worked = augmented("np.random.rand(3), 0", "torch.manual_seed(1)", ", num_workers=2")
    assert "torch.manual_seed(1 + " in noted(worked, "AM803")
    assert "AM803" not in codes(augmented("index, 0", "np.random.seed(1)\ntorch.manual_seed(1)"))


CHOSEN = """
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
class Rows(Dataset):
    def __getitem__(self, index):
        return torch.ones(3) * {draw}, 0
    def __len__(self):
        return 40
{loaders}
model = nn.Linear(3, 2).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for phase in ["train", "val"]:
    for x, y in loaders[phase]:
        loss = nn.functional.cross_entropy(model(x.cuda()), y.cuda())
        if phase == "train":
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
"""


@pytest.mark.parametrize(
    "loaders",
    [
        "train = DataLoader(Rows())\nloaders = {'train': train, 'val': train}",
        "loaders = {'train': DataLoader(Rows()), 'val': DataLoader(data)}",
        "loaders = {key: DataLoader(Rows()) for key in ('train', 'val')}",
        "def load():\n    kept = {'train': DataLoader(Rows()), 'val': DataLoader(data)}\n    return kept\nloaders = load()",
    ],
)
def test_tells_samples_of_loaders_that_are_chosen_by_a_key(loaders: str):
    told = noted(CHOSEN.format(draw="np.random.rand()", loaders=loaders), "AM803")
    assert "for augmentation (line 7)" in told
    assert "AM803" not in codes(CHOSEN.format(draw="index", loaders=loaders))


def test_tells_samples_that_are_augmented_by_what_getting_one_calls():
    method = "self.turned(index), 0\n    def turned(self, x):\n        return x * {}"
    assert "for augmentation (line" in noted(augmented(method.format("random.random()"), "random.seed(1)"), "AM803")
    assert "AM803" not in codes(augmented(method.format("2"), "random.seed(1)"))
    turned = "random.seed(1)\ndef turned(x):\n    return x * random.random()\n"
    assert "for augmentation (line 15)" in noted(augmented("turned(index), 0", turned), "AM803")
    assert "AM803" not in codes(augmented("index, 0", turned))


def test_advises_to_seed_what_the_seed_of_each_sample_is_drawn_of():
    """torch is seeded anew for each sample, by a number of numpy's: a seed of torch's own would change nothing."""
    drawn = "self.turned(), 0\n    def turned(self):\n        torch.manual_seed({})\n        return torch.rand(3)"
    told = noted(augmented(drawn.format("np.random.randint(9)"), "np.random.seed(1)"), "AM803")
    assert "np.random.seed(1 + accelerator.process_index)" in told
    assert "torch.manual_seed(" not in told
    assert "torch.manual_seed(" in noted(augmented(drawn.format("torch.randint(9, (1,))"), ""), "AM803")


def test_tells_a_pipeline_of_albumentations_and_advises_no_seed():
    pipeline = "import albumentations as A\nflip = A.Compose([A.HorizontalFlip(p=0.5)])\n"
    told = noted(augmented("flip(image=index), 0", pipeline), "AM803")
    assert "may draw the same numbers, for augmentation (line" in told
    assert "process_index" not in told
    assert "AM803" not in codes(augmented("flip(image=index), 0", pipeline.replace("HorizontalFlip", "Normalize")))


@pytest.mark.parametrize(
    ("given", "advised"),
    [
        ("", True),
        (", worker_init_fn=None", True),
        (", worker_init_fn=lambda i: np.random.seed(i)", False),
        (", generator=torch.Generator().manual_seed(0)", False),
    ],
)
def test_advises_no_seed_that_workers_would_not_follow(given: str, advised: bool):
    told = noted(augmented("np.random.rand(3), 0", "torch.manual_seed(1)", f", num_workers=2{given}"), "AM803")
    assert "for augmentation (line" in told
    assert ("process_index" in told) == advised


def test_tells_transforms_of_torchvision_that_draw():
    source = training(functions=SEED + "from torchvision import datasets, transforms\n").replace(
        "data = TensorDataset(torch.randn(40, 3), torch.randint(0, 2, (40,)))",
        "data = datasets.MNIST('d', transform=transforms.Compose([transforms.RandomCrop(28)]))",
    )
    assert "for augmentation (line" in noted(source, "AM803")


OPTIONAL = "import argparse\nargs = argparse.ArgumentParser().parse_args()\n"


@pytest.mark.parametrize(
    "seed",
    [
        "if args.seed:\n    torch.manual_seed(args.seed)\n",
        "def fix(seed):\n    torch.manual_seed(seed)\nif args.seed is not None:\n    fix(args.seed)\n",
        "import random\nif args.seed is None:\n    args.seed = random.randint(1, 99)\ntorch.manual_seed(args.seed)\n",
    ],
)
def test_tells_of_a_seed_that_may_not_be_one(seed: str):
    noise = noted(training(functions=OPTIONAL + seed, inside="noise = torch.randn(4)"), "AM803", OF_ACCELERATE)
    assert "where that runs with a fixed number" in noise
    order = training(functions=OPTIONAL + seed + "order = torch.randperm(40)\n")
    assert "not seeded alike on all unless line" in noted(order, "AM809", OF_ACCELERATE)
    assert "AM809" not in codes(order), "without it, the launch seeds"


def test_a_seed_that_may_come_from_the_clock_is_doubtful_on_every_launch():
    seed = "import time\nif args.seed is None:\n    args.seed = int(time.time())\ntorch.manual_seed(args.seed)\n"
    noise = noted(training(functions=OPTIONAL + seed, inside="noise = torch.randn(4)"), "AM803")
    assert "where that runs with a fixed number" in noise
    order = noted(training(functions=OPTIONAL + seed + "order = torch.randperm(40)\n"), "AM809")
    assert "not seeded alike on all unless line" in order


def test_tells_that_a_seed_on_request_or_the_launch_seeds():
    seed = "if args.seed:\n    torch.manual_seed(args.seed)\n"
    noise = noted(training(functions=OPTIONAL + seed, inside="noise = torch.randn(4)"), "AM803")
    assert "or accel launch); after prepare" in noise
    assert "torch.manual_seed(torch.initial_seed() % 2**32 + accelerator.process_index)" in noise


@pytest.mark.parametrize(
    "seed",
    [
        "def fix(seed):\n    if seed is not None:\n        torch.manual_seed(seed)\nfix(3)\n",
        "if torch.cuda.is_available():\n    torch.manual_seed(3)\n",
    ],
)
def test_a_condition_that_holds_makes_no_seed_doubtful(seed: str):
    noise = noted(training(functions=seed, inside="noise = torch.randn(4)"), "AM803")
    assert "fixed number" not in noise


def test_a_seed_is_sure_where_its_condition_decides_on_the_draw_too():
    seed = "if args.shuffled:\n    torch.manual_seed(3)\n    order = torch.randperm(40)\n"
    assert "AM809" not in codes(training(functions=OPTIONAL + seed))
    split = "def split():\n    torch.manual_seed(3)\n    return torch.randperm(40)\nif args.shuffled:\n    order = split()\n"
    assert "AM809" not in codes(training(functions=OPTIONAL + split))


def test_a_seed_that_is_drawn_or_read_from_the_clock_differs():
    seed = "import time\ntorch.manual_seed(int(time.time()))\n"
    assert "AM803" not in codes(training(functions=seed, inside="noise = torch.randn(4)"))
    assert "AM809" in codes(training(functions=seed + "order = torch.randperm(40)\n"))


PLAYED = """
import gym
import numpy as np
import torch
torch.manual_seed(1)
np.random.seed(1)
env = gym.make("CartPole-v1")
{seed}
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(9):
    state = env.reset()
    action = {action}
    loss = model(torch.tensor(state)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_says_that_games_are_the_same_only_where_the_environment_is_seeded():
    drawn = "np.random.randint(2)"
    apart = noted(PLAYED.format(seed="", action=drawn), "AM805")
    assert "games of its own" in apart
    assert "where one makes more, it waits for the others for ever" in apart
    alike = noted(PLAYED.format(seed="env.seed(1)", action=drawn), "AM805")
    assert "plays the same games" in alike
    assert "only if every process then makes as many backward passes" in alike
    sampled = "env.action_space.sample()"
    assert "games of its own" in noted(PLAYED.format(seed="env.seed(1)", action=sampled), "AM805")
    seeded = "env.seed(1)\nenv.action_space.seed(1)"
    assert "plays the same games" in noted(PLAYED.format(seed=seeded, action=sampled), "AM805")
    assert "plays by itself" in noted(
        PLAYED.format(seed="env.seed(1)", action=drawn).replace("np.random.seed(1)", "if step:\n    np.random.seed(1)"),
        "AM805",
        OF_ACCELERATE,
    )


FOLDS = """
import torch
from torch import nn
from torch.utils.data import DataLoader

class Store:
    def loaders(self, folded):
        if folded:
            found = []
            found.append(DataLoader(data(), batch_size=4, shuffle=True))
            return found, found
        return DataLoader(data(), batch_size=4)

def epoch(batches, model, optimizer):
    for x, y in batches:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()

loaders, others = Store().loaders(True)
for fold in range(len(loaders)):
    loader = loaders[fold]
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    epoch(loader, model, optimizer)
"""


def test_says_of_a_loader_that_was_lost_on_the_way_that_it_may_be_one():
    assert "goes through all of `batches`, which is not visible to the analysis; if it is a DataLoader" in noted(
        FOLDS, "AM805"
    )


LEARNER = """
import random
import torch

class Learner:
    def __init__(self):
        self.critic = torch.nn.Linear(4, 1)
        self.solver = torch.optim.SGD(self.critic.parameters(), lr=0.1)
        self.replay = [(torch.rand(4), torch.rand(1))]

    def improve(self):
        states, rewards = zip(*random.choices(self.replay, k=4))
        loss = (self.critic(torch.stack(states)) - torch.stack(rewards)).pow(2).mean()
        self.solver.zero_grad()
        loss.backward()
        self.solver.step()
"""
WORLD = "{imports}\ndef build():\n    return {make}('CartPole-v1')\n"
ROUNDS = """
from learner import Learner
from world import build

world, learner = build(), Learner()
for round in range(9):
    learner.replay.append(world.step(0))
    learner.improve()
"""


@pytest.mark.parametrize(
    ("imports", "make"), [("import gymnasium", "gymnasium.make"), ("from gym import make", "make")]
)
def test_finds_the_environment_in_the_files_that_the_training_runs_with(imports: str, make: str):
    world = WORLD.format(imports=imports, make=make)
    (told,) = messages("AM805", learner=LEARNER, rounds=ROUNDS, world=world)
    assert "games of its own" in told


def test_a_file_that_only_plays_what_was_trained_makes_no_game_of_the_training():
    supervised = "from learner import Learner\nlearner = Learner()\nfor round in range(9):\n    learner.improve()\n"
    shown = "import gym\nfrom learner import Learner\ngym.make('CartPole-v1').step(Learner().critic)\n"
    (told,) = messages("AM805", learner=LEARNER, rounds=supervised, shown=shown)
    assert "makes the same batches" in told


def test_says_nothing_of_statistics_that_are_held_still():
    held = NORMALISED + "    def hold(self):\n        for layer in self.modules():\n"
    held += "            if isinstance(layer, nn.BatchNorm1d):\n                layer.eval()\n"
    script = training(functions="from net import Net\n", ready="model.hold()").replace("= nn.Linear(3, 2)", "= Net()")
    assert not messages("AM804", train=script, net=held)
    assert messages("AM804", train=script.replace("model.hold()", ""), net=held)


@pytest.mark.parametrize("looked_up", ["globals()['Net']", "eval('Net')"])
def test_tells_statistics_of_a_model_that_is_found_among_the_names_of_a_file(looked_up: str):
    for brings in ("from net import *\n", "from net import Net\n"):
        script = training(functions=brings).replace("model = nn.Linear(3, 2)", f"model = {looked_up}()")
        told = messages("AM804", train=script, net=NORMALISED)
        assert ["net.py:5, if the model that is chosen has it" in each for each in told] == [True]


PARTS = """
from torchvision.models import resnet18
class Net(nn.Module):
    def __init__(self, extra=False):
        super().__init__()
        self.extra = extra
        self.body, self.head = nn.Linear(3, 3), nn.Linear(3, 2)
        {init}
    def forward(self, x):
        {forward}
"""


def parts(init: str, forward: str, model: str = "Net()", call: str = "criterion(model(x), y)") -> str:
    source = training(functions=PARTS.format(init=init, forward=forward), loss=call)
    return source.replace("model = nn.Linear(3, 2)", f"model = {model}")


def test_advises_a_number_that_can_be_read_where_it_is_typed():
    fix = "def fix(number):\n    torch.manual_seed(number)\nfix(int(sys.argv[1]))\n"
    told = noted(training(functions=fix, inside="noise = torch.randn(4)"), "AM803")
    assert "torch.manual_seed(torch.initial_seed() % 2**32 + accelerator.process_index)" in told
    named = "SEED = 3\ntorch.manual_seed(SEED)\n"
    assert "torch.manual_seed(SEED + " in noted(training(functions=named, inside="noise = torch.randn(4)"), "AM803")


def test_a_seed_that_only_another_script_sets_is_no_seed():
    draws = training(functions="import tools\n", inside="x = x + torch.randn(4, 3)")
    tools = "import torch\ndef fix():\n    torch.manual_seed(1)\n"
    assert not messages("AM803", OF_ACCELERATE, train=draws, tools=tools, other="import tools\ntools.fix()\n")
    fixed = draws.replace("import tools", "import tools\ntools.fix()")
    assert messages("AM803", OF_ACCELERATE, train=fixed, tools=tools)


def test_says_nothing_of_an_order_within_a_batch():
    test = (
        "def test(loader):\n    for x, y in loader:\n        order = torch.randperm(len(x))\n        print(x[order])\n"
    )
    assert "AM809" not in codes(training(functions=test).replace("model = nn", "test(test_loader)\nmodel = nn"))


def test_tells_noise_that_an_object_of_the_script_draws():
    noise = "class Noise:\n    def of(self, x):\n        return torch.randn_like(x)\nnoise = Noise()\ntorch.manual_seed(3)\n"
    assert "in its steps (line 14)" in noted(training(functions=noise, inside="y = noise.of(x)"), "AM803")


def test_a_loader_that_another_loop_reads_whole_is_dealt_out_as_it_is():
    counted = "for a, b in test_loader:\n    right += (model(a.to(device)).argmax(1) == b.to(device)).sum().item()"
    kept = "for a, b in test_loader:\n    kept = 0.5 * kept + model(a.to(device))"
    source = training(after=f"right = 0\n{counted}\nkept = 0\n{kept}\nprint(right, kept)")
    becomes(
        source,
        "for a, b in accelerator.whole_batches(test_loader):\nright += accelerator.sum_for_metrics((model(a.to(device))",
    )
    assert "`kept` goes on from batch to batch" in noted(source, "AM402")


def test_tells_noise_that_fills_a_tensor_in_a_step():
    source = training(ready="torch.manual_seed(3)", inside="delta = torch.zeros_like(x).uniform_(-1, 1)")
    assert "in its steps" in noted(source, "AM803")
    assert "AM803" not in codes(training(ready="torch.manual_seed(3)\nfixed = torch.zeros(2).uniform_(-1, 1)"))


def test_tells_noise_that_the_model_draws():
    net = (
        "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.layer = nn.Linear(3, 2)\n"
        "        {}\n    def noisy(self, x):\n        return x + {}\n    def forward(self, x):\n        return {}\n"
    )

    def script(first: str, noise: str, forward: str) -> str:
        seeded = training(functions=net.format(first, noise, forward), ready="torch.manual_seed(3)")
        return seeded.replace("nn.Linear(3, 2).to", "Net().to")

    assert "noise in its model" in noted(script("pass", "torch.randn_like(x)", "self.layer(self.noisy(x))"), "AM803")
    assert "AM803" not in codes(script("self.layer.weight.data = torch.randn(2, 3)", "1", "self.layer(x)"))
    assert "AM803" not in codes(script("pass", "torch.randn_like(x)", "self.layer(x)"))


@pytest.mark.parametrize(
    ("caught", "does", "is_told"),
    [
        ("RuntimeError", "continue", True),
        ("torch.cuda.OutOfMemoryError", "break", True),
        ("Exception", "print('skipped')", True),
        ("RuntimeError", "raise", False),
        ("RuntimeError", "sys.exit(1)", False),
        ("KeyboardInterrupt", "break", False),
    ],
)
def test_tells_an_error_that_takes_a_process_out_of_a_step(caught: str, does: str, is_told: bool):
    step = "def step(x, y):\n    loss = criterion(model(x), y)\n    optimizer.zero_grad()\n    loss.backward()\n"
    step += "    optimizer.step()\n"
    loop = f"        try:\n            step(x, y)\n        except {caught}:\n            {does}\n"
    whole = training(functions=step)
    first, last = (
        whole.index("        loss = "),
        whole.index("        optimizer.step()\n") + len("        optimizer.step()\n"),
    )
    assert ("AM806" in codes(whole[:first] + loop + whole[last:])) is is_told


HANDED = """
    import torch
    from torch import nn
    from torch.utils.data import DataLoader

    def fit(model, data, logger=None):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loader = DataLoader(data, batch_size=4)
        for epoch in range(2):
            total = 0
            for x, y in loader:
                loss = nn.functional.mse_loss(model(x), y)
                loss.backward()
                optimizer.step()
                total += loss.item()
            if logger:
                logger.add_scalar("loss", total, epoch)
        if logger:
            logger.close()

    fit(nn.Linear(4, 2), data, make_logger())
    """


def test_an_object_that_was_handed_a_figure_is_not_averaged():
    """`if logger:` asks whether there is one, not how large it is."""
    (result,) = migrate([Source.from_bytes(Path("train.py"), dedent(HANDED).encode())])
    assert "accelerator.backward" in result.after.decode()
    assert "float(logger)" not in result.after.decode()


AGAIN = "def fix(seed):\n    torch.manual_seed(seed)\n"


@pytest.mark.parametrize(
    ("ready", "inside", "after", "told"),
    [
        ("torch.manual_seed(7)", "", "", "torch.manual_seed(7 + "),
        ("fix(7)", "", "", "torch.manual_seed(torch.initial_seed() % 2**32 + "),
        ("", "torch.manual_seed(i)", "", "torch.manual_seed(i + "),
        ("", "", "fix(epoch)", "torch.manual_seed(torch.initial_seed() % 2**32 + "),
    ],
)
def test_noise_follows_the_last_seed_before_a_step(ready: str, inside: str, after: str, told: str) -> None:
    drawn = f"noise = torch.randn(4)\n{inside}"
    source = training(functions=AGAIN + "torch.manual_seed(3)\n", ready=f"\n{ready}", inside=drawn, after=after)
    lines = source.lstrip("\n").split("\n")
    line = 1 + next(n for n, text in enumerate(lines) if text.strip() == (ready or inside or after))
    message = noted(source, "AM803")
    assert f"seeded alike (line {line})" in message
    assert f"after line {line}, if accelerator.num_processes > 1: {told}" in message


def test_a_seed_below_the_training_is_not_what_its_noise_follows() -> None:
    source = training(functions="torch.manual_seed(3)\n", inside="noise = torch.randn(4)")
    assert "after prepare, if" in noted(source + "torch.manual_seed(5)\n", "AM803")


SEEDED_LAYER = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.body, self.drop = nn.Linear(3, 2), nn.Dropout(0.5)
    def forward(self, x):
        return self.drop(self.body(x))
def check():
    print(Net().eval()(torch.zeros(1, 3)))
"""


@pytest.mark.parametrize(
    "start", ["if __name__ == '__main__':\n    fit()\n    check()", "def run():\n    fit()\n    check()\nrun()"]
)
def test_a_seed_that_only_an_evaluation_below_the_training_comes_to_is_not_what_its_noise_follows(start: str) -> None:
    source = training(functions=SEEDED_LAYER).replace("model = nn.Linear(3, 2)", "model = Net()")
    head, _, loop = source.partition("for epoch in range(2):")
    source = f"{head}def fit():\n{indent('for epoch in range(2):' + loop, '    ')}\n{start}\n"
    line = source.lstrip("\n").split("\n").index("        torch.manual_seed(3)") + 1
    message = noted(source, "AM803")
    assert (
        f"seeded alike (line {line}); after prepare, if accelerator.num_processes > 1: torch.manual_seed(3 + "
        in message
    )
    rounds = "for fold in range(2):\n    fit()\n    check()\n"
    assert "after line" in noted(source.replace(start, rounds), "AM803")


def test_names_the_seed_where_prepare_is_in_another_file_than_the_loop() -> None:
    loop = """import torch
def train(model, loader, optimizer, device):
    for (x,) in loader:
        x = x.to(device)
        loss = model(x + torch.randn(4, 3, device=device)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
    script = """import torch
from torch.utils.data import DataLoader, TensorDataset
from loop import train
def main(number):
    torch.manual_seed(number)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    loader = DataLoader(TensorDataset(torch.randn(40, 3)), batch_size=4)
    model = torch.nn.Linear(3, 2).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, loader, optimizer, device)
main(3)
"""
    (message,) = messages("AM803", main=script, loop=loop)
    assert "seeded alike (main.py:5)" in message
    assert "after prepare, if accelerator.num_processes > 1: torch.manual_seed(number + " in message


def test_a_loader_under_a_new_name_in_the_head_of_its_loop_is_sharded() -> None:
    source = training().replace("enumerate(loader)", "enumerate(bar := tqdm(loader))")
    assert "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)" in migrated(source)
    assert {"AM801"} == codes(source) & {"AM801", "AM805"}


def test_tells_a_loader_that_has_no_name_to_be_prepared_by() -> None:
    source = training().replace("enumerate(loader)", "enumerate(loader if epoch else test_loader)")
    assert "`loader if epoch else test_loader` is not a loader that could be prepared" in noted(source, "AM805")


DRAWN = """
import random
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(3))
    def forward(self, x):
        return self.scale * x * random.random()
def rows(path, rate={default}):
    data = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
    if rate is None:
        return torch.tensor(data)
    else:
        return torch.tensor(random.sample(data, 1))
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = Net().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
state = torch.zeros(8, 3, device=device)
x = rows({given}).to(device)
for step in range(4):
    out = model(x)
    loss = (out + state.mean(0)).mean()
    state = torch.cat([state, out.detach()])[-8:]
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("default", "given", "own"),
    [
        ("None", "'x'", False),
        ("None", "'x', None", False),
        ("None", "'x', rate=0.5", True),
        ("None", "*names", True),
        ("0.5", "'x'", True),
    ],
)
def test_numbers_of_the_model_and_of_a_branch_that_no_call_takes_make_no_batches(default: str, given: str, own: bool):
    source = dedent(DRAWN.format(default=default, given=given))
    message = noted(source, "AM805", OF_ACCELERATE)
    assert ("draws numbers of its own, because random is not seeded" in message) == own
    assert (NOT_DRAWN in message) != own
    assert ("AM811" in codes(source, OF_ACCELERATE)) == own
    assert "AM811" not in codes(source), "all go through the same"


BEST = """class Best:
    def __init__(self, mode="min"):
        self.mode = mode
        self.value = 1e9
    def better(self, value):
        if self.mode == "min":
            if value < self.value:
                self.value = value
                return True
        else:
            if value > self.value:
                self.value = value
                return True
        return False
best = Best()
"""


def test_a_figure_is_averaged_where_it_is_handed_over_and_not_again() -> None:
    source = training(
        functions=BEST, inside="total += loss.item()", after="if best.better(total):\n    torch.save(1, 'x')"
    )
    told = [change for change in _migrated(source, DEFAULTS).applied if change.code == "AM806"]
    assert [change.message for change in told] == ["all processes decide alike: `total` is averaged over them"]
    assert "AM806" not in {note.code for note in _migrated(source, DEFAULTS).notes}
    kept = training(
        functions=BEST, inside="total += loss.item()", after="new = best.better(total)\nif new:\n    torch.save(1, 'x')"
    )
    assert migrated(kept).count("value = accelerator.reduce(") == 2


EPOCHS = """
    import numpy as np
    import torch
    from torch import nn
    from torch.utils.data import DataLoader

    def epoch(model, loader, optimizer):
        losses = []
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return np.mean(losses)

    loader = DataLoader(data, batch_size=4)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
    best = np.inf
    for _ in range(3):
        figure = epoch(model, loader, optimizer)
        scheduler.step(figure)
        if figure < best:
            print({shown})
            torch.save(model.state_dict(), "best.pt")
            best = figure
"""


@pytest.mark.parametrize(
    ("shown", "once"),
    [
        ("'best: {:.4f}'.format(figure)", True),
        ("'{:5.1f} %, {:.2e}'.format(figure, best)", True),
        ("f'best: {figure:.4f}'", True),
        ("'best: {}'.format(figure)", False),  # as numpy writes it
        ("'{:.4f} {}'.format(1.0, figure)", False),
        ("text.format(figure)", False),
    ],
)
def test_a_figure_that_is_shown_with_digits_is_averaged_once(shown, once):
    after = migrated(EPOCHS.replace("{shown}", shown))
    averaged = "figure = accelerator.reduce(torch.tensor(float(figure), dtype=torch.float64), "
    assert (averaged in after and after.count("reduce(") == 1) is once


MASKED = """import numpy as np
import torch
from torch import nn
def mask(x):
    {draws}
    return x
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(3, 2)
    def forward(self, x):
        return self.out({x})
"""


@pytest.mark.parametrize(
    ("draws", "x", "told"),
    [
        (
            "order = torch.randperm(3)",
            "mask(x)",
            "every process may draw the same numbers, for noise in its model (net.py:5)",
        ),
        ("order = np.random.permutation(3)", "mask(x)", "every process draws the same numbers, for noise in its model"),
        (
            "return x",
            "x * np.random.rand()",
            "every process draws the same numbers, for noise in its model (net.py:12)",
        ),
        ("order = np.random.permutation(3)", "x", ""),
    ],
)
def test_tells_noise_that_a_forward_draws_by_a_helper_or_by_numpy(draws: str, x: str, told: str) -> None:
    seeds = "from net import Net\ntorch.manual_seed(3)\nnp.random.seed(3)\n"
    script = training(functions=seeds).replace("model = nn.Linear(3, 2)", "model = Net()")
    found = messages("AM803", train=script, net=MASKED.format(draws=draws, x=x))
    assert [told in each for each in found] == [True] * bool(told)


@pytest.mark.parametrize(
    ("ready", "drawn", "told"),
    [
        ("", "Uniform(-1, 1).sample((4,))", True),
        ("prior = Uniform(-1, 1)", "prior.rsample((4,))", True),
        ("prior = []", "prior.sample((4,))", False),
    ],
)
def test_tells_numbers_of_a_distribution(ready: str, drawn: str, told: bool) -> None:
    functions = "from torch.distributions.uniform import Uniform\ntorch.manual_seed(3)\n"
    assert ("AM803" in codes(training(functions=functions, ready=ready, inside=f"noise = {drawn}"))) == told


def test_tells_statistics_of_a_model_that_is_chosen_among_built_ones() -> None:
    kinds = "from net import Net\nkinds = {'net': Net(), 'line': nn.Linear(3, 2)}\n"
    script = training(functions=kinds).replace("model = nn.Linear(3, 2)", "model = kinds[sys.argv[1]]")
    (message,) = messages("AM804", train=script, net=NORMALISED)
    assert "(net.py:5, if the model that is chosen has it)" in message


def test_another_training_s_data_is_not_this_one_s_where_they_share_a_loop():
    rounds = (
        "def train(net, optimizer, batches, device):\n    net.train()\n    for x, y in batches:\n"
        "        x, y = x.to(device), y.to(device)\n        optimizer.zero_grad()\n"
        "        (net(x) - y).square().mean().backward()\n        optimizer.step()\n"
    )
    plain = (
        "import torch\nfrom torch.utils.data import DataLoader, Dataset, TensorDataset\nfrom rounds import train\n"
        "class Drawn(Dataset):\n    def __len__(self):\n        return 8\n"
        "    def __getitem__(self, i):\n        return torch.randn(4), torch.ones(1)\n"
        "device = torch.device('cuda')\nnet = torch.nn.Linear(4, 1).to(device)\n"
        "optimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n"
        "batches = DataLoader(TensorDataset(torch.ones(8, 4), torch.ones(8, 1)), 4)\n"
        "train(net, optimizer, batches, device)\n"
    )
    drawn = plain.replace("TensorDataset(torch.ones(8, 4), torch.ones(8, 1))", "Drawn()")
    files = {"rounds.py": rounds, "plain.py": plain, "drawn.py": drawn}
    results = migrate([Source.from_bytes(Path(name), text.encode()) for name, text in files.items()], DEFAULTS)
    assert {r.path.name for r in results if r.after != r.before} == files.keys()
    assert [result.path.name for result in results for note in result.notes if note.code == "AM803"] == ["drawn.py"]


def test_tells_a_length_that_is_taken_before_prepare_and_no_mean_so_far():
    def early(**parts: str) -> str:
        return noted(training(**parts).replace("model = nn.", "count = len(loader)\nmodel = nn."), "AM801")

    told = early(inside="total += loss.item()\nmean = total / (i + 1)\nprint(i, count, mean)")
    assert "a length that is taken before prepare (line" in told
    assert "number of a batch" not in told
    assert "taken before prepare" not in early()
    assert "taken before prepare" not in early(inside="total += loss.item()", after="print(total / float(count))")
    assert "taken before prepare" in early(inside="total += loss.item()", after="print(total * 2, epoch / count)")
    assert "number of a batch" in noted(training(inside="rate = 0.1 / (i + 1)\nprint(rate)"), "AM801")


TRIED_AGAIN = """
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    def fit(model, device, epochs=2):
        loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randint(0, 2, (64,))), batch_size=8, shuffle=True)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for epoch in range(epochs):
            for x, y in loader:
                x, y = x.to(device), y.to(device)
                loss = nn.functional.cross_entropy(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()

    def main():
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        model = nn.Linear(4, 2).to(device)
        try:
            fit(model, device)
        except {caught}:
            print("again, for a shorter time")
            {again}

    if __name__ == "__main__":
        main()
"""


@pytest.mark.parametrize(
    ("caught", "again", "is_told"),
    [
        ("torch.cuda.OutOfMemoryError", "fit(model, device, epochs=1)", True),
        ("Exception as error", "fit(model, device)\n            raise", True),
        ("torch.cuda.OutOfMemoryError", "torch.cuda.empty_cache()", False),
        ("RuntimeError", "raise", False),
        ("KeyboardInterrupt", "fit(model, device, epochs=1)", False),
    ],
)
def test_tells_that_one_process_may_train_again_after_an_error(caught: str, again: str, is_told: bool):
    source = dedent(TRIED_AGAIN.format(caught=caught, again=again))
    assert any("the others wait for its gradients" in message for message in notes(source)) is is_told


@pytest.mark.parametrize(
    ("loss", "is_told"),
    [
        ("F.mse_loss(model(x)[y], x[y])", True),
        ("F.mse_loss(model(x)[y > 0], x[y > 0])", True),
        ("F.kl_div(F.log_softmax(model(x)[y], dim=1), F.softmax(x[y], dim=1), reduction='batchmean')", True),
        ("F.mse_loss(model(x), table[y])", False),
        ("F.mse_loss(model(x)[order], x[order])", False),
        ("F.mse_loss(model(x)[:, 0], x[:, 0])", False),
    ],
)
def test_tells_a_mean_over_the_rows_that_a_batch_picks(loss: str, is_told: bool):
    source = training(ready="table, order = torch.randn(2, 2), torch.randperm(4)", loss=loss)
    assert ("AM802" in codes(source)) == is_told


def test_the_loader_of_a_generator_is_named_and_one_of_a_library_once() -> None:
    rows = "def rows(data):\n    loader = DataLoader(data, shuffle=True)\n    for x, y in loader:\n        yield x, y"
    source = training(functions=rows).replace("enumerate(loader)", "enumerate({})")
    assert "all of the DataLoader that rows() builds (line 13)" in noted(source.format("rows(data)"), "AM805")
    assert "all of the DataLoader that rows()" in noted(
        source.format("part").replace("    total = 0.0", "    total, part = 0.0, None\n    part = rows(data)"), "AM805"
    )
    foreign = "from torch_geometric.loader import NeighborLoader\n"
    by_hand = foreign + training(loss="model(part.x).sum()").replace(
        "for i, (x, y) in enumerate(loader)", "for part in loader"
    )
    by_hand = by_hand.replace("loader = DataLoader(data, batch_size=4, shuffle=True)", "loader = NeighborLoader(data)")
    told = [note for note in notes(by_hand.replace("x, y = x.to(device), y.to(device)", "pass")) if "shard" in note]
    assert len(told) == 1 and "its library makes batches" in told[0]


@pytest.mark.parametrize(
    ("above", "rows", "told"),
    [
        ("from torchtext.legacy import data as text", "text.BucketIterator(data, 4)", "since accel launch seeds all"),
        ("import gym, random", "[random.random() for _ in range(9)]", "makes the same batches, since accel launch"),
        ("import gym, random", "gym.make('Chain').rows()", "plays games of its own"),
    ],
)
def test_rows_of_a_library_and_games_that_are_only_imported(above: str, rows: str, told: str) -> None:
    source = training(functions=above, loss="model(part).sum()")
    source = source.replace("TensorDataset(torch.randn(40, 3), torch.randint(0, 2, (40,)))", "rows()")
    source = source.replace("for i, (x, y) in enumerate(loader)", f"for part in {rows}")
    source = source.replace("x, y = x.to(device), y.to(device)", "part = torch.as_tensor(part).to(device)")
    assert told in noted(source, "AM805")


def test_a_seed_of_a_check_that_no_run_calls_seeds_nothing():
    checks = "def check():\n    torch.manual_seed(1)\n\n\ndef checks():\n    check()\n"
    dropped = "model = nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.1))"
    uncalled = training(functions=checks).replace("model = nn.Linear(3, 2)", dropped)
    assert f"seeded alike ({LAUNCHED})" in noted(uncalled, "AM803")
    assert "seeded alike (line" in noted(uncalled.replace("criterion =", "checks()\ncriterion =", 1), "AM803")


def test_points_of_a_latin_hypercube_are_drawn():
    source = training(functions="from pyDOE import lhs\n", inside="").replace(
        "for i, (x, y) in enumerate(loader):",
        "for i in range(3):\n        x, y = torch.tensor(lhs(3, 4)).float(), torch.zeros(4).long()",
    )
    assert "since accel launch seeds all processes alike" in noted(source, "AM805")
    assert "lhs" not in "".join(notes(source))


def test_what_an_evaluation_within_a_training_draws_is_no_noise_of_its_steps():
    functions = """
        def {name}():
            total = 0
            for x, y in test_loader:
                total += model(x.to(device) + torch.randn_like(x).to(device)).sum().item()
            return total
        """
    evaluated = training(functions=functions.format(name="test"), inside="if i == 3:\n    print(test())")
    assert "AM803" not in codes(evaluated)
    assert "in its steps" in noted(training(inside="x = x + torch.randn_like(x)"), "AM803")


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ("(x - x.mean(0)) / x.std(0)", True),
        ("x - x.mean(dim=(0, 1), keepdim=True)", True),
        ("x - torch.mean(x, 0)", True),
        ("x - mean", True),
        ("x - x.mean(1, keepdim=True)", False),
        ("x - x.mean(-1)", False),
        ("x - self.layer.weight.mean(0)", False),
        ("x - torch.mean(x, 1)", False),
    ],
)
def test_tells_a_mean_over_the_batch_that_a_layer_takes_by_hand(rows: str, told: bool) -> None:
    functions = f"""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(3, 2)

            def forward(self, x):
                mean = x.mean(0)
                return self.layer({rows})
        """
    source = training(functions=functions)
    model = source.replace("model = nn.Linear(3, 2)", "model = Net()")
    assert any("over the rows of its own batch" in note for note in notes(model)) == told
    assert "AM804" not in codes(source)  # nobody trains it


def test_tells_numbers_that_a_loop_takes_rows_by():
    source = """
    import numpy as np
    import torch
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    pictures = np.ones((40, 2), dtype="float32")

    def draw():
        rows = []
        chosen = np.random.choice(40, size=4)
        for i in chosen:
            rows.append(pictures[i])
        return rows

    for step in range(3):
        loss = model(torch.tensor(np.array(draw()))).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    """
    message = noted(source, "AM805")
    assert NOT_DRAWN not in message and "since accel launch seeds all processes alike" in message
