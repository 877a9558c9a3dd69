"""What a process decides for itself on the way to a step: AM961 by what flows into a test."""

from __future__ import annotations

import pytest

from tests.migrate.check.reading import said

TOP = (
    "import os\nimport time\nimport numpy as np\nimport torch\nimport random\n"
    "from accel_runtime import Accelerator\naccelerator = Accelerator()\n"
    "net, opt, data = accelerator.prepare(net, opt, data)\n"
)
METER = (
    "class Meter:\n    def __init__(self):\n        self.sum = 0\n        self.count = 0\n"
    "    def update(self, value, n=1):\n        self.sum += value * n\n        self.count += n\n"
    "    def mean(self):\n        return self.sum / self.count\n"
)
STOPPER = (
    "class Stopper:\n    def __init__(self):\n        self.best = None\n        self.stop = False\n"
    "    def __call__(self, loss, model):\n        if self.best is None or loss < self.best:\n            self.best = loss\n"
    "        else:\n            self.stop = True\n"
)


OF_ACCELERATE = TOP.replace("accel_runtime", "accelerate")


def asked(script: str, top: str = TOP) -> list[str]:
    return said("AM961", "x = 1\n", top + script)


@pytest.mark.parametrize(
    "test",
    [
        "loss.isnan()",
        "loss.item() > 3",
        "not torch.isfinite(loss)",
        "time.time() - begun > 60",
        "random.Random().random() < 0.5",
        "random.SystemRandom().random() < 0.5",
        "np.random.default_rng().random() < 0.5",
        "os.urandom(1) < b'a'",
        "x.size(1) > 9",
    ],
)
def test_a_step_that_a_process_skips_for_reasons_of_its_own(test: str) -> None:
    loop = "for i, x in enumerate(data):\n    loss = net(x)\n    if {}:\n        {}\n    accelerator.backward(loss)\n"
    assert asked(loop.format(test, "continue"))
    assert not asked(loop.format(test, "raise ValueError")), "an error ends all processes"
    assert not asked(loop.format(test, "sys.exit(1)"))
    assert not asked(loop.format(test, "print(i)"))


@pytest.mark.parametrize("test", ["i % 2", "x.size(0) < 8", "len(x) < 8", "x.shape[0] < 8", "i > limit", "x is None"])
def test_a_step_that_all_skip_together(test: str) -> None:
    loop = f"for i, x in enumerate(data):\n    if {test}:\n        continue\n    accelerator.backward(net(x))\n"
    assert not asked(loop)


def test_a_seed_makes_draws_alike() -> None:
    loop = "for x in data:\n    if random.random() < 0.5:\n        accelerator.backward(net(x))\n"
    assert asked(loop, OF_ACCELERATE)
    assert asked("torch.manual_seed(1)\n" + loop, OF_ACCELERATE), "not torch's, but Python's own numbers"
    assert not asked("random.seed(1)\n" + loop, OF_ACCELERATE)
    optional = "def fix(seed):\n    random.seed(seed)\nif args.seed:\n    fix(args.seed)\n"
    assert asked(optional + loop, OF_ACCELERATE)
    assert not asked(loop), "the runtime has seeded all"
    assert not asked(optional + loop)


@pytest.mark.parametrize(
    "seed",
    [
        "random.seed()",
        "random.seed(None)",
        "random.seed(accelerator.process_index)",
        "random.seed(int(time.time()))",
        "def fix(rank):\n    random.seed(rank)\nfix(3)",
        "class Rows:\n    def __getitem__(self, i):\n        return random.random() > 0.1 or random.random()",
        "from torchvision import transforms\ncrop = transforms.RandomResizedCrop(28)",
    ],
)
def test_processes_that_are_seeded_apart_or_draw_for_their_samples_part(seed: str) -> None:
    loop = "for x in data:\n    if random.random() < 0.5:\n        accelerator.backward(net(x))\n"
    assert asked(f"{seed}\n{loop}")


def test_a_figure_that_is_gathered_or_reduced_is_the_same_on_all() -> None:
    loop = (
        "for epoch in range(9):\n    total = 0\n    for x in data:\n        loss = net(x)\n        accelerator.backward(loss)\n"
        "        total += {}\n    {}\n    if total < 1:\n        break\n"
    )
    assert asked(loop.format("loss.item()", "pass"))
    assert not asked(loop.format("accelerator.gather(loss).mean().item()", "pass"))
    assert not asked(loop.format("loss.item()", "total = accelerator.reduce(torch.tensor(total)).item()"))


def test_objects_are_what_each_was_told() -> None:
    loop = (
        METER
        + "for epoch in range(9):\n    seen, tried = Meter(), Meter()\n    for x in data:\n        loss = net(x)\n"
        "        accelerator.backward(loss)\n        seen.update(loss.item(), x.size(0))\n"
        "        tried.update(accelerator.gather(loss).mean().item())\n    if {}:\n        break\n"
    )
    assert asked(loop.format("seen.mean() < 1"))
    assert asked(loop.format("seen.sum < 1"))
    assert not asked(loop.format("tried.mean() < 1"))
    assert not asked(loop.format("tried.sum < 1"))


def test_an_object_that_is_called_and_then_asked() -> None:
    loop = (
        STOPPER + "stopper = Stopper()\nfor epoch in range(9):\n    for x in data:\n        loss = net(x)\n"
        "        accelerator.backward(loss)\n    stopper({}, net)\n    if stopper.stop:\n        break\n"
    )
    assert asked(loop.format("loss.item()"))
    assert not asked(loop.format("accelerator.reduce(loss).item()"))


def test_functions_are_told_apart_by_who_calls_them() -> None:
    script = (
        "held = DataLoader(rest)\ndef through(batches, train):\n    total = 0\n    for x in batches:\n        loss = net(x)\n"
        "        if train:\n            accelerator.backward(loss)\n        total += loss.item()\n    return total\n"
        "for epoch in range(9):\n    seen = through(data, True)\n    kept = through(held, False)\n    if {} < 1:\n        break\n"
    )
    assert asked(script.format("seen"))
    assert not asked(script.format("kept"))


def test_keys_of_mappings_and_items_of_tuples_are_told_apart() -> None:
    script = (
        "def once():\n    for x in data:\n        loss = net(x)\n        accelerator.backward(loss)\n"
        "    return {}\nfor epoch in range(9):\n    {}\n    if {}:\n        break\n"
    )
    assert asked(script.format("{'own': loss, 'all': 1}", "told = once()", "told['own'] < 1"))
    assert not asked(script.format("{'own': loss, 'all': 1}", "told = once()", "told['all'] < 1"))
    assert asked(script.format("loss, 1", "own, all = once()", "own < 1"))
    assert not asked(script.format("loss, 1", "own, all = once()", "all < 1"))


def test_weights_that_are_collected_where_a_process_decides_for_itself() -> None:
    loop = (
        "def keep(weights, path):\n    torch.save(weights, path)\nbest = 9\nfor x in data:\n    loss = net(x)\n"
        "    accelerator.backward(loss)\n    if {} < best:\n        keep(accelerator.get_state_dict(net), 'best.pt')\n"
    )
    assert asked(loop.format("loss.item()"))
    assert not asked(loop.format("accelerator.reduce(loss.detach()).item()"))


GAME = TOP + "def update(memory):\n    accelerator.backward(net(memory))\n"
PLAY = "for game in range(9):\n    steps = 0\n    for t in range(9):\n        s, r, done, _ = env.step(a)\n        steps += 1\n"


@pytest.mark.parametrize(
    ("played", "trained"),
    [
        ("        if done:\n            break\n", "    for _ in range(steps):\n        update(s)\n"),
        ("        if done:\n            update(s)\n", ""),
        ("        if done:\n            kept.append(s)\n", "    if len(kept) > 4:\n        update(s)\n"),
        ("        if done:\n            break\n", "    while steps > 0:\n        steps -= 1\n        update(s)\n"),
    ],
)
def test_updates_that_are_counted_in_games(played: str, trained: str) -> None:
    assert said("AM961", "x = 1\n", GAME + PLAY + played + trained)
    seeded = "torch.manual_seed(0)\nenv.reset(seed=0)\n"
    assert not said("AM961", "x = 1\n", GAME + seeded + PLAY + played + trained)
    libraries = "import random\nimport numpy as np\ntorch.manual_seed(0)\nrandom.seed(0)\nnp.random.seed(0)\n"
    assert said("AM961", "x = 1\n", GAME + libraries + PLAY + played + trained)


def test_a_count_that_a_method_keeps_and_asks() -> None:
    player = (
        TOP + "class Player:\n    def __init__(self):\n        self.seen = 0\n    def play(self):\n"
        "        done = False\n        while not done:\n            s, r, done, _ = env.step(a)\n            {}\n"
        "    def learn(self):\n        if self.seen % 4 == 0:\n            accelerator.backward(net(1))\n"
        "player = Player()\nfor game in range(9):\n    player.play()\n    player.learn()\n"
    )
    assert said("AM961", "x = 1\n", player.format("self.seen += 1"))
    assert not said("AM961", "x = 1\n", player.format("pass"))


def test_a_phase_that_a_test_names() -> None:
    loop = (
        "sets = dict(fit=DataLoader(a))\nsets['try'] = DataLoader(b)\nsets['fit'] = accelerator.prepare(sets['fit'])\nbest = 0\n"
        "for phase in ['fit', 'try']:\n    total = 0\n    for x in sets[phase]:\n        total += net(x).sum()\n"
        "    if phase == '{}' and total > best:\n        kept = accelerator.get_state_dict(net)\n"
    )
    assert asked(loop.format("fit"))
    assert not asked(loop.format("try"))


def test_a_loop_that_goes_on_after_an_error_of_one_process() -> None:
    loop = "for x in data:\n    try:\n        accelerator.backward(net(x))\n    except {}:\n        {}\n"
    assert asked(loop.format("torch.cuda.OutOfMemoryError", "continue"))
    assert asked(loop.format("RuntimeError as error", "print(error)"))
    assert not asked(loop.format("RuntimeError", "print(x)\n        raise"))
    assert not asked(loop.format("KeyboardInterrupt", "break"))
    whole = (
        "try:\n    for x in data:\n        accelerator.backward(net(x))\nexcept Exception as error:\n    print(error)\n"
    )
    assert not asked(whole)


def test_rates_that_each_process_draws_for_itself() -> None:
    made = TOP.replace(
        "net, opt, data =", "rate = {}\nopt = torch.optim.SGD(net.parameters(), lr=rate)\nnet, opt, data ="
    )
    loop = "for x in data:\n    accelerator.backward(net(x))\n"
    assert said("AM961", "x = 1\n", made.format("trial.suggest_float('lr', 0.1, 1.0)") + loop)
    assert said("AM961", "x = 1\n", made.format("10 ** random.Random().uniform(-4, -1)") + loop)
    assert not said("AM961", "x = 1\n", made.format("10 ** random.uniform(-4, -1)") + loop)
    assert not said("AM961", "x = 1\n", made.format("args.lr * 2") + loop)
    named = made.replace("torch.optim.SGD(", "getattr(torch.optim, kind)(").replace("rate = {}", "rate = 1\nkind = {}")
    assert said("AM961", "x = 1\n", named.format("trial.suggest_categorical('k', ['SGD', 'Adam'])") + loop)
    assert not said("AM961", "x = 1\n", named.format("args.kind") + loop)


def test_an_evaluation_of_other_samples_on_each_process() -> None:
    loop = (
        "from torch.utils.data import DataLoader\nheld = DataLoader(rest, {})\nfor epoch in range(9):\n"
        "    for x in data:\n        accelerator.backward(net(x))\n    total = 0\n    for x in held:\n"
        "        total += net(x).item()\n    if total < 1:\n        break\n"
    )
    assert asked(loop.format("shuffle=True, drop_last=True"), OF_ACCELERATE)
    assert not asked(loop.format("shuffle=True"), OF_ACCELERATE)
    assert not asked("torch.manual_seed(0)\n" + loop.format("shuffle=True, drop_last=True"), OF_ACCELERATE)
    assert not asked(loop.format("shuffle=True, drop_last=True"))


def test_the_number_of_samples_does_not_depend_on_what_they_are() -> None:
    made = (
        "def make(n):\n    x = torch.randn(n, 8)\n    return torch.utils.data.TensorDataset(x, (x.sum(1) > 0).long())\n"
        "rows = torch.utils.data.DataLoader(make({}))\nfor x in rows:\n    accelerator.backward(net(x))\n"
    )
    assert not asked(made.format("64"))
    assert asked(made.format("random.randint(8, 64)"), OF_ACCELERATE)
    assert asked(made.format("random.Random().randint(8, 64)"))


@pytest.mark.parametrize(
    ("layer", "asked", "refused"),
    [
        ("torch.nn.BatchNorm1d(3)", "accelerator.unwrap_model(net).encoder(x)", True),
        ("torch.nn.LayerNorm(3)", "accelerator.unwrap_model(net).encoder(x)", False),
        ("torch.nn.BatchNorm1d(3)", "net(x)", False),
        ("torch.nn.BatchNorm1d(3)", "len(accelerator.unwrap_model(net).encoder)", False),
    ],
)
def test_running_statistics_of_an_evaluation_past_the_wrapper(layer: str, asked: str, refused: bool) -> None:
    loop = (
        "for epoch in range(9):\n    for batch in data:\n        accelerator.backward(net(batch))\n"
        f"    if {asked} > 1:\n        break\n"
    )
    assert bool(said("AM961", "x = 1\n", TOP + f"layer = {layer}\n" + loop)) is refused
