"""AM968: sharded and whole data are not trained on side by side."""

from __future__ import annotations

import pytest

from tests.migrate.check.reading import said

TOP = (
    "from accel_runtime import Accelerator\nfrom torch.utils.data import DataLoader\naccelerator = Accelerator()\n"
    "data = DataLoader(a)\nother = DataLoader(b)\nnet, opt, {0} = accelerator.prepare(net, opt, {0})\n"
)
ONE, BOTH = TOP.format("data"), TOP.format("data, other")


def test_batches_of_a_loader_that_is_not_prepared_beside_those_of_one_that_is() -> None:
    kept = (
        "kept = list(enumerate(other))\nfor i, x in enumerate(data):\n    _, (z, _) = kept[i]\n    z = z.to(device)\n"
    )
    loop = kept + "    loss = net(x) + net(z)\n    accelerator.backward(loss)\n"
    assert said("AM968", "x = 1\n", ONE + loop)
    assert not said("AM968", "x = 1\n", BOTH + loop)
    assert not said("AM968", "x = 1\n", ONE + loop.replace("net(x) + net(z)", "net(x)"))


@pytest.mark.parametrize(
    ("above", "below", "is_fed"),
    [
        ("pass", "x = next(iter(other))\n    loss = net(x)\n    print(loss)", False),
        ("pass", "i, batch = next(enumerate(other, 0))\n    x, = batch\n    loss = net(x)", False),
        ("pass", "z = next(iter(other))", True),
        ("z = next(iter(other))", "pass", True),
        ("if late:\n        x = next(iter(other))", "pass", True),
    ],
)
def test_a_batch_that_is_taken_when_the_step_is_done(above: str, below: str, is_fed: bool) -> None:
    """One round's names are set anew in the next; what none sets anew is trained on there."""
    loop = f"z = 0\nfor x in data:\n    {above}\n    loss = net(x) + z\n    accelerator.backward(loss)\n    {below}\n"
    assert bool(said("AM968", "x = 1\n", ONE + loop)) is is_fed


@pytest.mark.parametrize(
    ("taken", "is_of_another"),
    [
        ("z = labels[i]", True),
        ("z = labels[i - 1].float()", True),
        ("z = labels[i % 2]", False),
        ("z = x[i]", False),
        ("labels[i] = net(x)\n    z = labels[i]", False),
        ("rate = labels[i]\n    z = 1", False),
    ],
)
def test_a_label_at_the_number_of_the_batch(taken: str, is_of_another: bool) -> None:
    loop = f"for i, x in enumerate(data):\n    {taken}\n    accelerator.backward(cost(net(x), z))\n"
    assert bool(said("AM968", "x = 1\n", ONE + loop)) is is_of_another
    shuffled = ONE.replace("DataLoader(a)", "DataLoader(a, shuffle=True)")
    assert not said("AM968", "x = 1\n", shuffled + loop)


def test_such_a_step_in_a_function() -> None:
    loop = "def step(x, z):\n    loss = net(x) + net(z)\n    accelerator.backward(loss)\n"
    loop += "def train(data, rest):\n    for x in data:\n        z = next(rest)\n        step(x, z)\ntrain(data, iter(other))\n"
    assert said("AM968", "x = 1\n", ONE + loop)
    assert not said("AM968", "x = 1\n", BOTH + loop)


def test_an_evaluation_with_the_same_names_is_not_trained_on() -> None:
    loop = (
        "for x in data:\n    out = net(x)\n    accelerator.backward(out)\n    for z in other:\n        out = net(z)\n"
    )
    assert not said("AM968", "x = 1\n", ONE + loop)
    loop = "for epoch in range(3):\n    for x in data:\n        out = net(x)\n        accelerator.backward(out)\n"
    assert not said("AM968", "x = 1\n", ONE + loop + "    for z in other:\n        out = net(z)\n")


def test_a_loop_that_is_left_over_a_loader_that_is_prepared() -> None:
    own = "for x in data:\n    accelerator.backward(net(x))\n"
    left = "def by_hand(batches):\n    for z in batches:\n        loss(z).backward()\nby_hand({})\n"
    assert said("AM968", "x = 1\n", ONE + own + left.format("data"))
    assert not said("AM968", "x = 1\n", ONE + own + left.format("other"))


def test_an_attribute_of_another_class_is_another_loader() -> None:
    first = (
        "class First:\n    def __init__(self):\n        self.data = DataLoader(a)\n"
        "        self.net, self.data = accelerator.prepare(net, self.data)\n"
        "    def train(self):\n        for x in self.data:\n            accelerator.backward(self.net(x))\n"
    )
    left = "    def by_hand(self):\n        for z in self.data:\n            loss(z).backward()\n"
    top = ONE.split("data = DataLoader")[0]
    assert said("AM968", "x = 1\n", top + first + left)
    apart = "class Second:\n    def __init__(self):\n        self.data = DataLoader(a)\n" + left
    assert not said("AM968", "x = 1\n", top + first + apart)


def test_data_that_the_script_shards_by_rank() -> None:
    loop = "for x in data:\n    accelerator.backward(net(x))\n"
    rank = "rank = accelerator.process_index\ndata = DataLoader"

    def sharded(loader: str, top: str = "") -> bool:
        return bool(said("AM968", "x = 1\n", top + ONE.replace("data = DataLoader(a)", rank + loader) + loop))

    assert sharded("(a, sampler=Mine(a, rank))")
    assert sharded("(Subset(a, range(accelerator.process_index, 9, 3)))")
    assert not sharded("(a, sampler=Mine(a, verbose=rank == 0))")
    assert not sharded("(a, sampler=DistributedSampler(a, num_replicas=2, rank=rank))")
    known = "class Mine:\n    def __init__(self, data, rank):\n        self.num_replicas = 2\n"
    assert not sharded("(a, sampler=Mine(a, rank))", known)
    theirs = ONE.replace("accel_runtime", "accelerate").replace(
        "data = DataLoader(a)", f"{rank}(a, sampler=Mine(a, rank))"
    )
    assert said("AM968", "x = 1\n", known + theirs + loop)


@pytest.mark.parametrize(
    ("read", "sharded"),
    [
        ("return rows[accelerator.process_index :: 2]", True),
        ("return [row for i, row in enumerate(rows) if i % 2 == accelerator.process_index]", True),
        ("self.rank = accelerator.process_index\n        return rows[self.rank :: 2]", True),
        ("self.rank = accelerator.process_index\n        return rows if self.rank == 0 else rows", False),
        ("print(f'{accelerator.process_index} reads')\n        return rows", False),
    ],
)
def test_data_of_a_class_that_shards_by_rank_inside(read: str, sharded: bool) -> None:
    own = "class Rows:\n    def __init__(self, rows, accelerator):\n        self.rows = self.own(rows, accelerator)\n"
    own += f"    def own(self, rows, accelerator):\n        {read}\n"
    given = ONE.replace("DataLoader(a)", "DataLoader(Rows(a, accelerator))")
    loop = "for x in data:\n    accelerator.backward(net(x))\n"
    assert bool(said("AM968", "x = 1\n", own + given + loop)) is sharded


@pytest.mark.parametrize(
    ("loader", "sharded"),
    [
        ("(Images(os.path.join(args.root, 'train')))", False),
        ("(Images(args.root), sampler=Mine(args.rank))", True),
        ("(Images(args.place))", True),
        ("(Images(args.own))", True),
        ("(Images(args.listed))", True),
        ("(Images(args.listed[0].path))", True),
        ("(Images(args))", True),
        ("(Images(**vars(args)))", True),
        ("(Images(args.__dict__['root']))", True),
        ("(args.images())", True),
        ("(args.shard)", True),
    ],
)
def test_fields_of_an_object_depend_on_the_rank_apart_from_each_other(loader: str, sharded: bool) -> None:
    top = (
        "class Args:\n    @property\n    def shard(self):\n        return Images(self.rank)\n"
        "args.rank = args.rank * 2 + accelerator.process_index\nargs.place = f'{args.root}/{args.rank}'\n"
        "args.own, args.lr = accelerator.process_index, 0.1\nargs.listed[0] = args.rank\ndata = DataLoader"
    )
    loop = "for x in data:\n    accelerator.backward(net(x))\n"
    assert bool(said("AM968", "x = 1\n", ONE.replace("data = DataLoader(a)", top + loader) + loop)) is sharded


def test_what_stands_beside_a_loader_and_is_taken_by_the_number_of_the_batch() -> None:
    loop = "for {} in {}:\n    y = labels[4 * i : 4 * {}]\n    accelerator.backward(net(x, y))\n    {}\n"
    assert said("AM968", "x = 1\n", ONE + loop.format("i, x", "enumerate(data)", "(i + 1)", "pass"))
    assert said("AM968", "x = 1\n", ONE + "i = 0\n" + loop.format("x", "data", "(i + 1)", "i += 1"))
    assert not said("AM968", "x = 1\n", ONE + "i = 0\n" + loop.format("x", "data", "9", "pass"))
    assert not said("AM968", "x = 1\n", ONE + loop.format("i, x", "enumerate(other)", "(i + 1)", "pass"))


@pytest.mark.parametrize(
    ("world", "is_another"),
    [
        ("args.world", True),
        ("torch.cuda.device_count()", True),
        ("accelerator.num_processes", False),
        ("dist.get_world_size()", False),
        ("int(os.environ['WORLD_SIZE'])", False),
        ("dist.get_world_size() if several else 1", False),
    ],
)
def test_a_sampler_of_another_file_that_is_told_a_number_of_processes(world: str, is_another: bool) -> None:
    feed = (
        "from torch.utils.data import DataLoader, DistributedSampler\n"
        "def sampled(rows, world, place):\n    return DistributedSampler(rows, num_replicas=world, rank=place)\n"
        "def feed(world, place):\n    return DataLoader(rows, sampler=sampled(rows, world, place))\n"
    )
    script = (
        "import os, torch\nimport torch.distributed as dist\nfrom accel_runtime import Accelerator\nfrom feed import feed\n"
        f"accelerator = Accelerator()\nargs.world = args.gpus * args.nodes\nworld = {world}\n"
        "data = feed(world, accelerator.process_index)\nnet, data = accelerator.prepare(net, data)\n"
    )
    message = said(
        "AM968", {"train.py": "from feed import feed\n", "feed.py": feed}, {"train.py": script, "feed.py": feed}
    )
    assert any("not by the number of processes" in each for each in message) == is_another
