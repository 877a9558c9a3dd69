"""AM969: what met on the CPU still does, and what is needed there stays."""

from __future__ import annotations

import pytest
from accel_migrate.analysis.moves.unmoved import Members

from tests.migrate.check.reading import said
from tests.migrate.rules.verbs import migrated, unchanged

HEAD = "import numpy as np\nimport torch\nfrom torch.utils.data import DataLoader\n{}train = DataLoader(rows)\n"
BEFORE = HEAD.format("") + "net = net.to(device)\n"
AFTER = (
    HEAD.format("from accel_runtime import Accelerator\naccelerator = Accelerator()\n")
    + "net, train = accelerator.prepare(net, train)\n"
)
OFF = AFTER.replace("(net, train)", "(net, train, device_placement=[True, False])")
LOOP = "for i, (x, n) in enumerate(train):\n    {}\n"


@pytest.mark.parametrize(
    "use",
    [
        "net(x.to(device), torch.nn.utils.rnn.pack_padded_sequence(x, n))",
        "net(x.to(device))\n    print(n.numpy())",
        "net(x.to(device))\n    np.mean(n)",
        "net(x.to(device))\n    f1_score(n, y)",
        "noise = torch.rand(3)\n    net((x + noise).to(device))",
        "table = torch.zeros(9)\n    net(x.to(device), table[n])",
        "kept = torch.bernoulli(x)\n    net(kept.to(device))",
        "out = net(x.to(device)).cpu()\n    right += (out == n).sum()",
        "def look(n):\n        return draw(n)\n    net(x.to(device), look(n))",
    ],
)
def test_what_a_prepared_loader_takes_to_the_device(use: str) -> None:
    moved = use.replace("x.to(device)", "x").replace(").to(device)", ")").replace("kept.to(device)", "kept")
    assert said("AM969", BEFORE + LOOP.format(use), AFTER + LOOP.format(moved))
    stays = use.replace("device", "accelerator.device")
    assert not said("AM969", BEFORE + LOOP.format(use), OFF + LOOP.format(stays))


@pytest.mark.parametrize(
    "use",
    [
        "net(x.to(device))\n    print(len(n), n.size(0), n.shape)",
        "loss = torch.nn.functional.mse_loss(net(x.to(device)), n.to(device))\n    total += loss.item() * len(x)",
        "out = net(x.to(device))\n    right += (out.argmax(1) == n.to(device)).sum()",
        "x = x.view(-1).to(device)\n    net(x)\n    print(i, x.cpu().numpy(), np.interp([i], [0], [1]))",
        "noise = torch.rand(3).to(device)\n    net(x.to(device) + noise)",
    ],
)
def test_what_is_on_the_device_in_both(use: str) -> None:
    moved = use
    for name in ("x", "n"):
        moved = moved.replace(f"{name}.to(device)", name)
    moved = moved.replace(".view(-1).to(device)", ".view(-1)").replace("(device)", "(accelerator.device)")
    assert not said("AM969", BEFORE + LOOP.format(use), AFTER + LOOP.format(moved))


def test_what_a_type_puts_on_the_device() -> None:
    kinds = "Tensor = torch.cuda.FloatTensor if torch.cuda.is_available() else torch.FloatTensor\n"
    use = LOOP.format("n = n.type({})\n    auxiliary(net(x.to(device)), n)")
    after = use.replace("x.to(device)", "x")
    assert not said("AM969", BEFORE + kinds + use.format("Tensor"), AFTER + kinds + after.format("Tensor"))
    assert said("AM969", BEFORE + use.format("torch.long"), AFTER + after.format("torch.long"))


def test_what_met_in_the_same_way_before() -> None:
    use = "held = DataLoader(others)\nfor a, b in held:\n    right += (net(a).argmax(1) == b).sum()\n"
    assert not said("AM969", BEFORE + use, AFTER + use)


def test_an_accelerator_that_keeps_to_the_cpu() -> None:
    use = LOOP.format("net(x)\n    n.numpy()")
    assert not said("AM969", BEFORE + use, AFTER.replace("Accelerator()", "Accelerator(cpu=True)") + use)


@pytest.mark.parametrize(
    ("names", "inside"),
    [
        ("x, n", "loss = net(x.to(place), n).mean()"),
        ("x, n", "x = x.to(place)\n    loss = net(x, n).mean()"),
        ("batch", "x, n = batch\n    loss = net(x.to(place), n).mean()"),
        ("batch", "loss = net(batch['x'].to(place), batch['n']).mean()"),
        ("batch", "batch['x'] = batch['x'].to(place)\n    loss = net(batch['x'], batch['n']).mean()"),
        ("x, n", "loss = (net(x.to(place)) * table[n].to(place)).mean()"),
        ("x, n", "loss = net(x.to(place)).mean()\n    seen = looked_up(n)"),
        ("x, n", "x = x + torch.rand(4)\n    loss = net(x.to(place)).mean()"),
    ],
)
def test_members_of_a_batch_that_the_analysis_overlooks(
    names: str, inside: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = (
        "import numpy\nimport torch\nplace = torch.device('cuda' if torch.cuda.is_available() else 'cpu')\n"
        "rows = torch.utils.data.DataLoader(data(), batch_size=4)\ntable = torch.zeros(9, 4)\nnet = build().to(place)\n"
        f"steps = torch.optim.SGD(net.parameters(), lr=0.1)\nfor {names} in rows:\n    {inside}\n"
        "    steps.zero_grad()\n    loss.backward()\n    steps.step()\n"
    )
    migrated(source)
    monkeypatch.setattr(Members, "unmoved", lambda self, loop: None)
    assert "(AM969)" in unchanged(source)


BRANCHES = """
import torch
from torch.utils.data import DataLoader
def collect(net, rows):
    for x, _ in rows:
        x = {collect}
        keep(net(x))
def fit(net, rows):
    {prepare}
    for x, y in rows:
        net({fit}).sum().backward()
    {then}
def run(fast, net, rows):
    return collect(net, rows) if fast else fit(net, rows)
run(flag(), Net().to(device), DataLoader(rows))
"""
PREPARE = (
    "from accel_runtime import Accelerator; accelerator = Accelerator(); net, rows = accelerator.prepare(net, rows)"
)


@pytest.mark.parametrize("then", ["pass", "collect(net, rows)"])
def test_a_batch_that_nothing_moves_where_its_loader_is_not_prepared(then: str) -> None:
    before = BRANCHES.format(collect="x.to(device)", prepare="pass", fit="x.to(device)", then=then)
    assert said("AM969", before, BRANCHES.format(collect="x.float()", prepare=PREPARE, fit="x", then=then))
    right = BRANCHES.format(collect="x.to(device)", prepare=PREPARE, fit="x", then=then)
    assert not said("AM969", before, right)


def test_a_helper_that_only_another_path_calls_keeps_its_moves() -> None:
    text = migrated(
        """
        import torch
        from torch import nn
        from torch.utils.data import DataLoader

        def collect(net, rows, device):
            return torch.cat([net(x.to(device)).cpu() for x, _ in rows])

        def fit(net, rows, device):
            rate = torch.optim.SGD(net.parameters(), lr=0.1)
            for x, y in rows:
                x, y = x.to(device), y.to(device)
                loss = nn.functional.mse_loss(net(x), y)
                rate.zero_grad()
                loss.backward()
                rate.step()

        def main(fast):
            device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
            net = nn.Linear(2, 1).to(device)
            rows = DataLoader(data(), batch_size=4)
            if fast:
                print(collect(net, rows, device))
                return
            fit(net, rows, device)

        main(False)
        """
    )
    assert "net(x.to(device)).cpu()" in text and "loss = nn.functional.mse_loss(net(x), y)" in text
    assert "x, y = x.to" not in text


def test_a_function_that_returns_what_it_returns_itself() -> None:
    again = "def deep(x, n):\n    if n:\n        return deep(x, n - 1)\n    return x, n\n"
    use = "a, b = deep(x.to(device), 3)\n    net(a)"
    assert not said(
        "AM969", BEFORE + again + LOOP.format(use), AFTER + again + LOOP.format(use.replace(".to(device)", ""))
    )


def test_a_bar_that_is_set_beside_other_names_goes_through_its_loader() -> None:
    source = """
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset
    from tqdm import tqdm
    def train(model, loader, optimizer):
        total, bar = 0, tqdm(loader)
        for x, y in bar:
            x = x.cuda()
            labels = torch.zeros(4, dtype=torch.long, device=x.device)
            loss = nn.functional.cross_entropy(model(x), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    loader = DataLoader(TensorDataset(torch.randn(16, 4), torch.randn(16, 4)), batch_size=4)
    model = nn.Linear(4, 4).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    train(model, loader, optimizer)
    """
    assert "x.cuda()" not in migrated(source)


EARLY = """
import torch
class Agent:
    def __init__(self, look_only):
        {}
        if look_only:
            return
        self.rate = torch.optim.SGD(self.net.parameters())
        {}
    def look(self, x):
        return self.net(x.to(device))
    def step(self, x):
        self.net(x.to(device)).sum().backward()
"""
READY = "from accel_runtime import Accelerator; accelerator = Accelerator(); self.net = accelerator.prepare(self.net)"


def test_a_constructor_that_may_return_before_it_prepares() -> None:
    before = EARLY.format("self.net = Net().to(device)", "pass")
    assert said("AM969", before, EARLY.format("self.net = Net()", READY))
    assert not said("AM969", before, EARLY.format("self.net = Net().to(device)", READY))
    assert not said(
        "AM969", before, EARLY.format("self.net = Net()", READY).replace("            return", "            print()")
    )


def test_a_constructor_with_a_function_in_it_that_returns() -> None:
    inner = "def scaled(x):\n            return x\n        self.net = Net(scaled)"
    before = EARLY.format(f"{inner}.to(device)", "pass").replace("            return\n", "            print()\n")
    after = EARLY.format(inner, READY).replace("            return\n", "            print()\n")
    assert not said("AM969", before, after)


def test_a_model_keeps_its_move_where_a_constructor_may_return_before_it_prepares() -> None:
    text = migrated(
        """
        import torch
        from torch import nn
        from torch.utils.data import DataLoader

        class Agent:
            def __init__(self, look_only=False):
                self.place = torch.device("cuda" if torch.cuda.is_available() else "cpu")
                self.net = nn.Linear(4, 2).to(self.place)
                if look_only:
                    return
                self.rows = DataLoader(data(), batch_size=4, shuffle=True)
                self.rate = torch.optim.SGD(self.net.parameters(), lr=0.1)

            def fit(self):
                for x, y in self.rows:
                    x, y = x.to(self.place), y.to(self.place)
                    loss = nn.functional.cross_entropy(self.net(x), y)
                    self.rate.zero_grad()
                    loss.backward()
                    self.rate.step()

            def look(self, x):
                return self.net(x.to(self.place))

        Agent().fit()
        """
    )
    assert "self.net = nn.Linear(4, 2).to(self.place)" in text


SHIFTED = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

class Shifted(nn.Module):
    def __init__(self):
        super().__init__()
        self.shift = {made}
        self.layer = nn.Linear(4, 3)

    def forward(self, x):
        return self.layer(x) + self.shift

loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randint(0, 3, (32,))), batch_size=4)
net = Shifted()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in loader:
    loss = nn.functional.cross_entropy(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_weights_go_where_their_module_goes() -> None:
    assert "prepare(net, optimizer, loader)" in migrated(SHIFTED.format(made="nn.Parameter(torch.zeros(3))"))
    assert "cpu=True" in migrated(SHIFTED.format(made="torch.zeros(3)"))


def test_figures_of_all_batches_are_where_those_of_one_are() -> None:
    before = BEFORE + LOOP.format("out = net(x.to(device))\n    right += (out.argmax(1).cpu() == n).sum()")
    rounds = "    for out, n in accelerator.sum_for_metrics([(out, n)]):\n        right += (out.argmax(1).cpu() == n).sum()\n"
    loop = LOOP.replace("train", "accelerator.whole_batches(train)") + rounds
    assert not said("AM969", before, OFF + loop.format("out = net(x.to(accelerator.device))"))
    assert said("AM969", before, AFTER + loop.format("out = net(x)"))
