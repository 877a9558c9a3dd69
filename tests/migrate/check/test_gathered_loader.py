"""AM955: what is gathered comes from a prepared loader, once; what a prepared loader counts is gathered."""

from __future__ import annotations

from textwrap import indent

import pytest

from tests.migrate.check.reading import said

TOP = (
    "from accel_runtime import Accelerator\naccelerator = Accelerator()\nnet, train = accelerator.prepare(net, train)\n"
)
BOTH = TOP.replace("train", "train, test")
COUNTED = (
    "for x, y in {}:\n    out = net(x)\n    out, y = accelerator.gather_for_metrics((out, y))\n"
    "    hits += (out == y).sum()\n"
)


def test_a_loader_that_every_process_has_whole() -> None:
    assert said("AM955", "x = 1\n", TOP + COUNTED.format("test"))
    assert not said("AM955", "x = 1\n", BOTH + COUNTED.format("test"))
    assert not said("AM955", "x = 1\n", BOTH + COUNTED.format("tqdm(test)"))


def test_a_function_that_gets_prepared_and_other_loaders() -> None:
    body = "".join(f"    {line}\n" for line in ("hits = 0\n" + COUNTED.format("data") + "return hits").splitlines())
    count = "def count(net, data):\n" + body
    assert said("AM955", "x = 1\n", BOTH + count + "count(net, test)\ncount(net, DataLoader(extra))\n")
    assert not said("AM955", "x = 1\n", BOTH + count + "count(net, test)\ncount(net, data=train)\n")


def test_a_function_that_prepares_what_it_is_handed() -> None:
    lines = ["accelerator = Accelerator()", "net, data = accelerator.prepare(net, data)", "hits = 0"]
    body = "".join(f"    {line}\n" for line in [*lines, *COUNTED.format("data").splitlines()])
    source = "from accel_runtime import Accelerator\ndef run(net, data):\n" + body + "run(build(), DataLoader(rows))\n"
    assert not said("AM955", "x = 1\n", source)


def test_batches_that_are_drawn_one_by_one() -> None:
    drawn = (
        "batches = iter({})\nwhile hits < 9:\n    x = next(batches)\n"
        "    hits += accelerator.gather_for_metrics(net(x)).sum()\n"
    )
    assert not said("AM955", "x = 1\n", BOTH + drawn.format("test"))
    assert said("AM955", "x = 1\n", TOP + drawn.format("test"))


def test_an_object_that_is_called_for_each_batch_counts() -> None:
    called = "metric = Accuracy()\nfor x, y in test:\n    metric({})\n"
    assert said("AM955", "x = 1\n", BOTH + called.format("net(x), y"))
    assert not said("AM955", "x = 1\n", TOP + called.format("net(x), y"))
    assert not said("AM955", "x = 1\n", BOTH + called.format("*accelerator.gather_for_metrics((net(x), y))"))
    assert not said("AM955", "x = 1\n", BOTH + called.replace("metric(", "print(").format("net(x), y"))


def test_a_list_of_models_is_no_loader() -> None:
    norms = (
        "def norms(nets):\n    total = 0\n    for each in nets:\n        total += each.scale.item()\n    return total\n"
    )
    assert not said("AM955", "x = 1\n", BOTH + norms + "norms([net])\n")


def test_a_value_that_is_gathered_twice() -> None:
    again = COUNTED.format("test") + "    y = accelerator.gather_for_metrics(y)\n"
    assert said("AM955", "x = 1\n", BOTH + again)
    fresh = COUNTED.format("test") + "    y = net(y)\n    y = accelerator.gather_for_metrics(y)\n"
    assert not said("AM955", "x = 1\n", BOTH + fresh)


def test_figures_of_a_prepared_loader_that_stay_on_their_process() -> None:
    counted = "for x, y in test:\n    hits += (net(x) == y).sum()\n"
    assert said("AM955", "x = 1\n", BOTH + counted)
    assert not said("AM955", "x = 1\n", TOP + counted)
    assert not said("AM955", "x = 1\n", BOTH + counted + "hits = accelerator.reduce(hits)\n")
    keyed = "data['train'] = accelerator.prepare(data['train'])\nnet = accelerator.prepare(net)\n" + counted.replace(
        "test", "data['test']"
    )
    assert not said("AM955", "x = 1\n", TOP.split("net,")[0] + "data = {'train': a, 'test': b}\n" + keyed)


def test_what_a_loop_draws_from_a_prepared_loader_is_not_one() -> None:
    rows = "for x, y in train:\n    for row in {}:\n        kept.append(row)\n    accelerator.backward(net(x))\n"
    assert not said("AM955", "x = 1\n", TOP + rows.format("x"))
    assert not said("AM955", "x = 1\n", TOP + rows.format("zip(x, y)").replace("row in", "a, b in"))
    several = BOTH + "for each in [train, test]:\n    for x in each:\n        hits += net(x).sum()\n"
    assert said("AM955", "x = 1\n", several)


DRAWN = "    text = []\n    for one in {}:\n        text.append(one)\n    accelerator.backward(net(x))\n"


def test_a_loop_over_a_part_of_a_batch() -> None:
    for over, step in (
        ("for x, ids in train:\n", "ids"),
        ("for step, (x, ids) in enumerate(train):\n", "ids[:3]"),
        ("for batch in tqdm(train):\n    x, ids = batch\n", "ids.tolist()"),
        ("for batch in train:\n    x, ids = batch['x'], batch['ids']\n    ids = ids.cpu()\n", "ids"),
        ("for batch in train:\n", "zip(batch['x'], batch['ids'])"),
        ("batches = iter(train)\nwhile True:\n    x, ids = next(batches)\n", "ids"),
    ):
        assert not said("AM955", "x = 1\n", TOP + over + DRAWN.format(step)), over


def test_a_part_of_a_batch_of_a_loader_that_is_kept_under_a_key() -> None:
    kept = (
        "from torch.utils.data import DataLoader\n"
        + TOP.split("net,")[0]
        + "loaders = {x: DataLoader(a) for x in ('train', 'val')}\n"
    )
    kept += "net, loaders['train'] = accelerator.prepare(net, loaders['train'])\n"
    body = "    ids = [one.cuda() for one in ids]\n    sizes = [len(one) for one in ids]\n    accelerator.backward(net(x))\n"
    for over in ("for x, ids in loaders['train']:\n", "for step, (x, ids) in enumerate(loaders['train']):\n"):
        assert not said("AM955", "x = 1\n", kept + over + body), over
    assert said("AM955", "x = 1\n", kept + "for x in loaders['train']:\n    hits += net(x).sum()\n")
    assert said("AM955", "x = 1\n", kept + "sizes = [len(x) for x in loaders['train']]\n")


def test_a_part_of_a_batch_that_a_function_is_handed() -> None:
    body = "".join(f"    {line}\n" for line in ("for x, ids in cells:\n" + DRAWN.format("ids")).splitlines())
    assert not said("AM955", "x = 1\n", TOP + "def fit(net, cells):\n" + body + "fit(net, train)\n")
    told = "def tell(part):\n    text = ''\n    for one in part['ids']:\n        text += one\n"
    drawn = "for batch in train:\n    tell(batch)\n    accelerator.backward(net(batch))\n"
    assert not said("AM955", "x = 1\n", TOP + told + drawn)
    assert said("AM955", "x = 1\n", TOP + told + drawn + "tell({'ids': train})\n")


def test_loaders_in_a_container_are_not_batches() -> None:
    counted = "for one in {}:\n    for x in one:\n        hits += net(x).sum()\n"
    assert said("AM955", "x = 1\n", BOTH + "both = list()\nboth.append(test)\n" + counted.format("both"))
    assert said("AM955", "x = 1\n", BOTH + "both = Parts()\nboth[name] = test\n" + counted.format("both"))
    handed = "def count(*both):\n" + "".join(f"    {line}\n" for line in counted.format("both").splitlines())
    assert said("AM955", "x = 1\n", BOTH + handed + "count(train, test)\n")
    returned = "def parts():\n    return train, test\n" + counted.format("parts()")
    assert said("AM955", "x = 1\n", BOTH + returned)
    again = "data = {'a': train}\nfor key in data:\n    data[key] = accelerator.prepare(data[key])\n"
    assert said("AM955", "x = 1\n", TOP + again + "for x in data['a']:\n    hits += net(x).sum()\n")


def test_a_loader_that_a_function_sets_for_all() -> None:
    top = "from accel_runtime import Accelerator\naccelerator = Accelerator()\ndata = DataLoader(a)\n"
    late = "def start():\n    global data\n    data = accelerator.prepare(data)\nstart()\n"
    assert said("AM955", "x = 1\n", top + late + "for x in data:\n    hits += net(x).sum()\n")


def test_a_name_that_is_set_to_another_loader() -> None:
    bars = "bar = tqdm(train)\nfor x in bar:\n    accelerator.backward(net(x))\n{}for x in bar:\n    hits += net(x).sum()\n"
    assert not said("AM955", "x = 1\n", TOP + bars.format("bar = tqdm(test)\n"))
    assert said("AM955", "x = 1\n", TOP + bars.format("if late:\n    bar = tqdm(test)\n"))
    assert said("AM955", "x = 1\n", TOP + bars.format(""))
    entered = (
        "with tqdm(train) as bar:\n    for x in bar:\n        accelerator.backward(net(x))\n"
        "with no_grad(), tqdm({}) as bar:\n    for x in bar:\n        hits += net(x).sum()\n"
    )
    assert not said("AM955", "x = 1\n", TOP + entered.format("test"))
    assert said("AM955", "x = 1\n", TOP + entered.format("train"))


def test_a_loop_that_counts_with_a_model_that_is_not_prepared() -> None:
    prepared = "net, data = accelerator.prepare(net, data)\n"
    count = "total = 0\nfor x in data:\n    total += other(x)\n"
    top = "from accel_runtime import Accelerator\naccelerator = Accelerator()\ndata = DataLoader(a)\n"
    assert said("AM955", "x = 1\n", top + prepared + count)
    assert not said("AM955", "x = 1\n", top + count + prepared)


SUMMED = "for x, y in accelerator.whole_batches({}):\n    total += accelerator.sum_for_metrics(loss(net(x), y))\n"


def test_whole_batches_of_what_is_no_loader() -> None:
    assert said("AM955", "x = 1\n", TOP + SUMMED.format("rows"))
    made = "from torch.utils.data import DataLoader\ntest = DataLoader(b)\n"
    assert not said("AM955", "x = 1\n", TOP + made + SUMMED.format("test"))
    assert not said("AM955", "x = 1\n", BOTH + SUMMED.format("test"))


@pytest.mark.parametrize("divided", ["print(total / len(test))", "total /= max(len(test), 1)"])
def test_a_sum_of_whole_batches_over_the_length_of_a_shard(divided: str) -> None:
    assert said("AM955", "x = 1\n", BOTH + SUMMED.format("test") + f"{divided}\n")
    assert not said("AM955", "x = 1\n", BOTH + SUMMED.format("test") + divided.replace("test", "test.base_dataloader"))
    assert not said("AM955", "x = 1\n", BOTH + SUMMED.format("test") + divided.replace("test", "train"))
    assert not said("AM955", "x = 1\n", BOTH + f"total = 0\n{divided}\n" + SUMMED.format("test"))


def test_a_figure_of_whole_batches_that_stays_on_its_process() -> None:
    for line in (
        "count += 1",
        "count = count + loss(net(x), y)",
        "losses.append(loss(net(x), y))",
        "meter.update(loss(net(x), y), len(x))",
        "times.append(loss(net(x), y))",
    ):
        assert said("AM955", "x = 1\n", BOTH + SUMMED.format("test") + f"    {line}\n"), line
    for line in (
        "count += accelerator.sum_for_metrics(1)",
        "for figure in accelerator.sum_for_metrics([loss(net(x), y)]):\n        meter.update(figure)",
        "clock.update(time.time() - end)",
        "here = 0\n    here += 1",
    ):
        clock = "import time\n" + BOTH
        assert not said("AM955", "x = 1\n", clock + SUMMED.format("test") + f"    {line}\n"), line


def test_a_figure_of_batches_that_are_filled_up() -> None:
    filled = SUMMED.replace("accelerator.whole_batches({})", "{}")
    assert said("AM955", "x = 1\n", BOTH + filled.format("test"))


def test_a_figure_over_the_rounds_of_one_process() -> None:
    counted = SUMMED.replace(
        "x, y in accelerator.whole_batches({})", "i, (x, y) in enumerate(accelerator.whole_batches({}))"
    )
    assert said("AM955", "x = 1\n", BOTH + counted.format("test") + "    print(total / (i + 1))\n")
    assert not said("AM955", "x = 1\n", BOTH + counted.format("test") + "    print(i, total / test.batches_seen)\n")


def test_a_bar_over_whole_batches() -> None:
    bar = "bar = tqdm(accelerator.whole_batches(test))\n" + SUMMED.replace("accelerator.whole_batches({})", "bar")
    assert not said("AM955", "x = 1\n", BOTH + bar)
    assert said("AM955", "x = 1\n", BOTH + bar + "    count += 1\n")
    assert said("AM955", "x = 1\n", BOTH + bar.replace("in bar", "in test"))


def test_rows_of_a_loader_that_drops_its_last_batch() -> None:
    made = "from torch.utils.data import DataLoader\n"
    made += "def make(rows, last):\n    return DataLoader(rows, 8{})\n"
    made += "train, test = DataLoader(rows, 8, drop_last=True), make(more, 1)\n"
    assert said("AM955", "x = 1\n", made.format(", drop_last=last") + BOTH + COUNTED.format("test"))
    for kept in ("", ", drop_last=False"):
        assert not said("AM955", "x = 1\n", made.format(kept) + BOTH + COUNTED.format("test"))
    partial = "from functools import partial\nmake = partial(DataLoader, batch_size=8{})\ntest = make(rows)\n"
    for begun, wrong in ((", drop_last=True", True), ("", False)):
        given = made.splitlines()[0] + "\n" + partial.format(begun) + BOTH + COUNTED.format("test")
        assert bool(said("AM955", "x = 1\n", given)) is wrong


def test_rows_that_an_array_is_joined_with_are_of_one_process() -> None:
    joined = "rows = np.array([])\nfor x, y in {}:\n    rows = np.concatenate((rows, net(x).numpy()))\n"
    assert said("AM955", "x = 1\n", TOP + joined.format("train"))
    assert not said("AM955", "x = 1\n", TOP + joined.format("test"))
    assert not said("AM955", "x = 1\n", TOP + joined.format("train").replace("(rows, ", "(x, "))


LOADED = "from torch.utils.data import DataLoader\ntest, train = DataLoader(a), DataLoader(b)\n"


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("ys = torch.cat([y for _, y in test])", True),
        ("n = sum(len(x) for x, _ in tqdm(test))", True),
        ("rows = list(test)", True),
        ("xs, ys = zip(*test)", True),
        ("for row in list(test):\n    show(row)", False),
        ("layers = [layer for layer in net]", False),
        ("sizes = [len(loader) for loader in (train, test)]", False),
        ("both = [train, test]\nsizes = [len(loader) for loader in both]", False),
        ("losses = [step(x) for x in train]", False),
        ("first = next(iter(test))", False),
    ],
)
def test_batches_that_are_collected_at_once(line: str, wrong: bool) -> None:
    step = "def step(x):\n    accelerator.backward(net(x).mean())\n"
    assert bool(said("AM955", "x = 1\n", LOADED + BOTH + step + line + "\n")) is wrong


WHOLE = LOADED + "import torch\n" + BOTH.replace("net, train", "net, opt, train")
HELPER = "def right(net, x, y):\n    return (net(x) == y).sum()\n"
BY_OPTIMIZER = (
    "def step(net, x, y, opt=None):\n    loss = crit(net(x), y)\n    if opt is not None:\n"
    "        accelerator.backward(loss)\n        opt.step()\n    return loss.item()\n"
    "for x, y in train:\n    step(net, x, y, opt)\n"
)
BY_FLAG = (
    "def step(net, x, y, learn):\n    loss = crit(net(x), y)\n    if not learn:\n        return loss.item()\n"
    "    accelerator.backward(loss)\n    opt.step()\n    return loss.item()\nfor x, y in train:\n    step(net, x, y, True)\n"
)
EPOCH = (
    "def epoch(net, loader, opt=None):\n    total = 0\n    for x, y in loader:\n        loss = crit(net(x), y)\n"
    "        if opt:\n            accelerator.backward(loss)\n            opt.step()\n        total += loss.item()\n"
    "    return total / len(loader)\nepoch(net, train, opt)\n"
)
TRAINED = (
    "for x, y in train:\n    loss = crit(net(x), y)\n    accelerator.backward(loss)\n"
    "    shown = accelerator.reduce(loss.detach(), 'mean')\n"
)
KEPT = (
    "class Keeper:\n    def take(self, x, y):\n        self.hits += (net(x) == y).sum()\n"
    "    def step(self, x, y):\n        return (net(x) == y).sum()\n    def count(self, loader):\n        self.hits = 0\n"
    "        for x, y in loader:\n            {}\n        return self.hits\n{}\nKeeper().count(test)\n"
)


@pytest.mark.parametrize(
    "lines",
    [
        HELPER + "hits = 0\nfor x, y in test:\n    hits += right(net, x, y)\n",
        BY_OPTIMIZER + "for x, y in test:\n    losses.append(step(net, x, y))\n",
        BY_OPTIMIZER + "losses = [step(net, x, y, None) for x, y in test]\n",
        BY_FLAG + "for x, y in test:\n    total += step(net, x, y, False)\n",
        BY_FLAG
        + "def check(learn):\n    total = 0\n    for x, y in test:\n        total += step(net, x, y, learn)\ncheck(False)\n",
        BY_FLAG.replace("not learn", "not net.training")
        + "with torch.no_grad():\n    for x, y in test:\n        total += step(net, x, y, 0)\n",
        EPOCH + "epoch(net, test)\n",
        "def take(x, y, into):\n    into.append(crit(net(x), y))\nfor x, y in test:\n    take(x, y, losses)\n",
        "def take(x, y):\n    global total\n    total += crit(net(x), y)\nfor x, y in test:\n    take(x, y)\n",
        KEPT.format("self.take(x, y)", ""),
        KEPT.format("self.hits += self.step(x, y)", ""),
        "def outputs(net, loader):\n    for x, y in loader:\n        yield net(x), y\n"
        "for out, y in outputs(net, test):\n    hits += (out == y).sum()\n",
        TRAINED + "for x, y in test:\n    hits += (net(x) == y).sum()\n",
        COUNTED.format("train") + "for x, y in test:\n    others += (net(x) == y).sum()\n",
        "for x, y in test:\n    metric.add_batch(predictions=net(x), references=y)\n",
        "for i, (x, y) in enumerate(test):\n    rows[i] = net(x)\n",
        HELPER
        + "batches = iter(test)\nfor _ in range(len(test)):\n    x, y = next(batches)\n    hits += right(net, x, y)\n",
        HELPER.replace("net, x, y", "pair") + "hits = sum(map(right, test))\n",
    ],
)
def test_an_evaluation_that_a_helper_runs_for_one_shard(lines: str) -> None:
    assert said("AM955", "x = 1\n", WHOLE + lines)
    assert not said("AM955", "x = 1\n", WHOLE.replace(", test = acc", ", whole = acc") + lines)


@pytest.mark.parametrize(
    "lines",
    [
        HELPER.replace(
            "return (net(x) == y)", "out, y = accelerator.gather_for_metrics((net(x), y))\n    return (out == y)"
        )
        + "for x, y in test:\n    hits += right(net, x, y)\n",
        HELPER + "for x, y in test:\n    hits += right(net, x, y)\nhits = accelerator.reduce(hits, reduction='sum')\n",
        "def together(x):\n    return accelerator.reduce(x)\nfor x, y in test:\n    hits += (net(x) == y).sum()\n"
        "rate = hits / 9\nprint(together(rate))\n",
        "def count():\n    hits = 0\n    for x, y in test:\n        hits += (net(x) == y).sum()\n    return hits\n"
        "hits = count()\nhits = accelerator.reduce(hits, reduction='sum')\n",
        "def take(x, y, into):\n    into.append(crit(net(x), y))\nfor x, y in test:\n    take(x, y, losses)\n"
        "losses = accelerator.gather(losses)\n",
        KEPT.format("self.take(x, y)", "    def together(self):\n        return accelerator.reduce(self.hits)"),
        BY_OPTIMIZER + "for x, y in train:\n    total += step(net, x, y, opt)\n",
        BY_FLAG + "for x, y in train:\n    total += step(net, x, y, phase == 'train')\n",
        EPOCH + "epoch(net, train, opt=opt)\n",
        "for x, y in test:\n    x = x.float()\n    show(net(x))\n    break\n",
    ],
)
def test_what_a_helper_counts_for_all_or_while_it_trains(lines: str) -> None:
    assert not said("AM955", "x = 1\n", WHOLE + lines)


KEEPER = (
    "class Keeper:\n    def __init__(self):\n        self.accelerator = Accelerator()\n"
    "        self.net, self.data, self.test = Net(), DataLoader(a), DataLoader(b)\n"
    "        self.net, self.data{} = self.accelerator.prepare(self.net, self.data{})\n"
    "    def late(self):\n        self.test = {}\n"
    "    def count(self):\n        hits = 0\n        for x, y in {}:\n            {}\n        return hits\n"
    "keeper = Keeper()\n"
)
ROWS = ("self.test", "hits += self.accelerator.gather_for_metrics(self.net(x) == y).sum()")
SUMS = (
    "self.accelerator.whole_batches(self.test)",
    "hits += self.accelerator.sum_for_metrics((self.net(x) == y).sum())",
)


@pytest.mark.parametrize(("loop", "line"), [ROWS, SUMS])
def test_a_field_that_another_method_may_not_have_prepared_yet(loop: str, line: str) -> None:
    top = "from torch.utils.data import DataLoader\nfrom accel_runtime import Accelerator\n"
    early = top + KEEPER.format(", self.test", ", self.test", "self.test", loop, line)
    late = top + KEEPER.format("", "", "self.accelerator.prepare(self.test)", loop, line)
    again = top + KEEPER.format(", self.test", ", self.test", "DataLoader(c)", loop, line)
    assert not said("AM955", "x = 1\n", early + "keeper.count()\n")
    assert said("AM955", "x = 1\n", late + "keeper.count()\nkeeper.late()\nkeeper.count()\n")
    assert said("AM955", "x = 1\n", late + "if other:\n    keeper.late()\nkeeper.count()\n")
    assert said("AM955", "x = 1\n", again + "keeper.late()\nkeeper.count()\n")


@pytest.mark.parametrize(
    ("filled", "given", "wrong"),
    [
        ("one.append(a[:, i])\n        two.append(b[:, i])", "x, y", False),
        ("one += [a[i]]\n        two.append(b[i])", "x, y", False),
        ("one.append(a[:, i])\n        two.append(b)", "x, test", True),
        ("one.append(test)", "x, y", True),
    ],
)
def test_parts_of_a_batch_that_a_function_puts_into_lists(filled: str, given: str, wrong: bool) -> None:
    split = f"def split(a, b):\n    one, two = [], []\n    for i in range(3):\n        {filled}\n    return one, two\n"
    likeness = "def likeness(a, b):\n    total = 0\n    ones, twos = split(a, b)\n"
    likeness += "    for one in zip(ones, twos):\n        total += f(one)\n    return total\n"
    loop = f"for x, y in train:\n    accelerator.backward(likeness({given}))\n"
    assert bool(said("AM955", "x = 1\n", LOADED + BOTH + split + likeness + loop)) is wrong


def test_outputs_of_a_model_that_a_function_goes_through() -> None:
    net = "class Net:\n    def forward(self, x):\n        x = self.layer(x)\n        return x\nnet = Net()\n"
    shown = "def show(x):\n    out = net(x)\n    return [one.max() for one in out]\nx, y = next(iter(train))\nshow(x)\n"
    assert not said("AM955", "x = 1\n", net + LOADED + BOTH + shown)


def test_a_bar_over_what_each_call_hands_over() -> None:
    bars = EPOCH.replace("total = 0\n", "total, bar = 0, tqdm(loader)\n").replace("in loader", "in bar")
    others = WHOLE.replace(", test = acc", ", whole = acc")
    assert said("AM955", "x = 1\n", WHOLE + bars + "epoch(net, test)\n")
    assert not said("AM955", "x = 1\n", others + bars + "epoch(net, test)\n")


def test_a_shard_of_what_is_trained_on_beside_a_whole_loader() -> None:
    count = "def count(loader):\n    hits = 0\n    for x, y in loader:\n        hits += (net(x) == y).sum()\n    return hits\n"
    whole = LOADED + TOP + "for x, y in train:\n    accelerator.backward(crit(net(x), y))\n" + count
    assert not said("AM955", "x = 1\n", whole + "print(count(train), count(test))\n")
    both = LOADED + BOTH + "for x, y in train:\n    accelerator.backward(crit(net(x), y))\n" + count
    assert said("AM955", "x = 1\n", both + "print(count(test), count(DataLoader(c)))\n")


def test_a_loop_that_looks_for_one_sample_of_each_kind() -> None:
    look = "seen = {}\nfor x, y in train:\n    for one, label in zip(x, y):\n        seen[label.item()] = one\n"
    assert said("AM955", "x = 1\n", LOADED + BOTH + look)
    assert not said("AM955", "x = 1\n", LOADED + BOTH + look + "    if len(seen) == 9:\n        break\n")


RUN_FOR_ALL = (
    "for x, y in accelerator.whole_batches(test):\n    out = net(x)\n    p = out.argmax(1)\n"
    "    for p, y in accelerator.sum_for_metrics([(p, y)]):\n        worst = max(worst, (p == y).sum())\n"
)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("[(p, y)]", "[(p, x)]"),
        ("for p, y in accelerator.sum_for_metrics([(p, y)])", "for p in accelerator.sum_for_metrics([p])"),
        ("(p == y)", "(p == out.argmax(1))"),
        ("(p == y)", "(p == x)"),
        ("    for p, y in accelerator.sum_for_metrics([(p, y)]):\n    ", ""),
    ],
)
def test_what_runs_for_the_batches_of_all_reads_what_was_sent(right: str, wrong: str) -> None:
    result = BOTH + RUN_FOR_ALL
    assert not said("AM955", "x = 1\n", result)
    assert right in result
    assert said("AM955", "x = 1\n", result.replace(right, wrong))


def test_what_runs_for_the_batches_of_all_of_a_bar() -> None:
    shown = "with tqdm(accelerator.whole_batches(test)) as bar:\n"
    looped = (
        RUN_FOR_ALL.replace("accelerator.whole_batches(test)", "bar")
        + "        for k in kinds:\n            count += 1\n"
    )
    evaluate = "def evaluate(net, test):\n    count = 0\n    with torch.no_grad():\n"
    source = (
        BOTH + evaluate + indent(shown + indent(looped, "    "), " " * 8) + "    return count\nevaluate(net, test)\n"
    )
    assert not said("AM955", "x = 1\n", source)
    assert said("AM955", "x = 1\n", source.replace("accelerator.whole_batches(test)", "test"))


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("    else:\n        continue\n", ""),
        ("        continue\n    break\n", "        continue\n"),
        ("        continue\n    break\n", "        break\n"),
        ("    out = net(x)\n", "    out = net(x)\n    seen += accelerator.sum_for_metrics(len(x))\n"),
    ],
)
def test_a_batch_of_all_that_ends_the_loop(right: str, wrong: str) -> None:
    result = BOTH + RUN_FOR_ALL + "        if worst > 9:\n            break\n    else:\n        continue\n    break\n"
    assert not said("AM955", "x = 1\n", result)
    assert right in result
    assert said("AM955", "x = 1\n", result.replace(right, wrong))


def test_what_was_sent_is_of_the_last_batch_below() -> None:
    below = RUN_FOR_ALL + "    total += accelerator.sum_for_metrics({})\n"
    assert said("AM955", "x = 1\n", BOTH + below.format("len(y)"))
    assert not said("AM955", "x = 1\n", BOTH + below.format("len(x)"))


def test_a_meter_that_is_called_with_this_processs_batch() -> None:
    made = "from torchmetrics import Accuracy\nmetric = Accuracy()\n"
    ready = "accelerator = Accelerator()\nnet, test = accelerator.prepare(net, DataLoader(data))\n"
    loop = "for x, y in accelerator.whole_batches(test):\n    n += accelerator.sum_for_metrics(len(y))\n    {}\n"
    text = "from torch.utils.data import DataLoader\nfrom accel_runtime import Accelerator\n" + made + ready + loop
    assert said("AM955", "x = 1\n", text.format("metric(net(x), y)"))
    assert not said("AM955", "x = 1\n", text.format("print(net(x), y)"))


@pytest.mark.parametrize(
    "line", ["total += loss(net(x), y)", "kept.append(net(x))", "print(net(x))", "total += (p == t).sum()"]
)
def test_a_figure_of_this_process_beside_one_that_is_gathered(line: str) -> None:
    loop = "for x, y in test:\n    p, t = accelerator.gather_for_metrics((net(x), y))\n    right += (p == t).sum()\n"
    text = BOTH + "net.eval()\n" + loop + f"    {line}\nprint(right, total, kept)\n"
    assert bool(said("AM955", "x = 1\n", text)) is ("print" not in line and "p == t" not in line)


KEPT = (
    "import torch\nfrom accel_runtime import Accelerator\nfrom torch.utils.data import DataLoader\n"
    "accelerator = Accelerator()\nloader = DataLoader(d)\nnet, loader = accelerator.prepare(net, loader)\n"
    "for x in loader:\n    last[0] = x\n    accelerator.backward(net(x))\n"
)


@pytest.mark.parametrize(
    ("kept", "told"),
    [
        ("names = {}\nnames['a'] = open('a').readlines()\n", False),
        ("names = {'a': DataLoader(d), 'b': 1}\nnames['a'] = accelerator.prepare(names['a'])\n", True),
        ("names = {}\nnames['a'] = accelerator.prepare(DataLoader(d))\n", True),
        ("names = {}\nfor part in d:\n    names[part] = accelerator.prepare(DataLoader(part))\n", True),
    ],
)
def test_what_a_key_that_nobody_knows_reads_is_of_its_own_mapping(kept: str, told: bool) -> None:
    collected = KEPT + kept + "def rows(given, part):\n    return [y for y in given[part]]\nrows(names, sys.argv[1])\n"
    looped = KEPT + kept + "total = 0\nfor row in names[sys.argv[1]]:\n    total += row.sum()\n"
    assert bool(said("AM955", "x = 1\n", collected)) is told
    assert bool(said("AM955", "x = 1\n", looped)) is told


def test_a_generator_counts_for_who_goes_over_what_it_yields() -> None:
    shown = "def shown(loader):\n    number = 0\n    for batch in loader:\n        yield batch\n        number += 1\n"
    step = "accelerator.backward(net(x))"
    assert not said("AM955", "x = 1\n", WHOLE + shown + f"for x, y in shown(test):\n    {step}\n")
    assert said("AM955", "x = 1\n", WHOLE + shown + "for x, y in shown(test):\n    hits += (net(x) == y).sum()\n")
    one = "for x, y in shown(test):\n    hits += (net(x) == y).sum()\n"
    assert said("AM955", "x = 1\n", WHOLE + shown + f"for x, y in shown(test):\n    {step}\n" + one)
