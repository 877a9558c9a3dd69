"""AM967: what an optimizer changes gets its gradients through a prepared model."""

from __future__ import annotations

import pytest

from tests.migrate.check.reading import said

TOP = (
    "import torch\nfrom accel_runtime import Accelerator\naccelerator = Accelerator()\n"
    "opt = torch.optim.SGD({}, lr=0.1)\nnet, opt, data = accelerator.prepare(net, opt, data)\n"
)
OWN = TOP.format("net.parameters()")
PEER = OWN.replace("accel_runtime", "accelerate")


def test_a_loss_that_only_methods_of_the_bare_model_make() -> None:
    loop = "for x in data:\n    loss = 0\n    a, b = {}\n    loss += a + b\n    loss /= 2\n    accelerator.backward(loss)\n"
    assert said("AM967", "x = 1\n", PEER + loop.format("accelerator.unwrap_model(net).energy(x)"))
    assert not said("AM967", "x = 1\n", PEER + loop.format("net(x)"))
    assert not said("AM967", "x = 1\n", PEER + loop.format("accelerator.unwrap_model(net).loss(x, *net(x))"))
    registered = "accelerator.register_forward_method(net, 'energy')\n" + loop.format("net.energy(x)")
    assert not said("AM967", "x = 1\n", OWN + registered)


def test_the_runtimes_own_averages_whichever_way_a_loss_came() -> None:
    loop = "for x in data:\n    loss = {}\n    accelerator.backward(loss)\n"
    assert not said("AM967", "x = 1\n", OWN + loop.format("net[1](x)"))
    for way in ("net.energy(x)", "net.head(x)", "net.layers[0](x)"):
        assert not said("AM967", "x = 1\n", OWN + loop.format(way)), way
        assert said("AM967", "x = 1\n", PEER + loop.format(way)), way
    for none in ("other.energy(x)", "data.energy(x)", "other(net.state_dict())", "other(opt.step())"):
        assert said("AM967", "x = 1\n", OWN + loop.format(none)), none
    early = "loss = net.head(x)\n" + OWN + "for x in data:\n    accelerator.backward(loss)\n"
    assert said("AM967", "x = 1\n", early), "before it was prepared"


def test_a_loss_of_a_tensor_that_a_prepared_optimizer_steps() -> None:
    loop = "for x in data:\n    loss = {} * net(x).detach()\n    accelerator.backward(loss)\n"
    stepped = "scale = torch.ones(1, requires_grad=True)\n" + TOP.format("[scale]")
    assert not said("AM967", "x = 1\n", stepped + loop.format("scale"))
    assert said("AM967", "x = 1\n", stepped.replace("accel_runtime", "accelerate") + loop.format("scale"))
    assert said("AM967", "x = 1\n", stepped + loop.format("scale.detach()"))
    assert said("AM967", "x = 1\n", stepped + loop.format("other"))


def test_a_branch_that_only_methods_of_the_bare_model_make() -> None:
    loop = (
        "for x in data:\n    {}\n    if plain:\n        loss = {}\n    else:\n"
        "        loss = accelerator.unwrap_model(net).encode(x)\n    accelerator.backward(loss)\n"
    )
    assert said("AM967", "x = 1\n", PEER + loop.format("pass", "net(x)"))
    assert not said("AM967", "x = 1\n", PEER + loop.format("x = net(x)", "x"))
    assert not said("AM967", "x = 1\n", OWN + loop.format("pass", "net(x)"))


def test_such_a_loss_in_a_function_of_its_own() -> None:
    made = "def cost(m, x):\n    return {}\nfor x in data:\n    accelerator.backward(cost(net, x))\n"
    assert said("AM967", "x = 1\n", PEER + made.format("accelerator.unwrap_model(m).energy(x)"))
    assert not said("AM967", "x = 1\n", PEER + made.format("accelerator.unwrap_model(m).loss(m(x))"))
    assert not said("AM967", "x = 1\n", OWN + made.format("m.energy(x)"))


def test_an_optimizer_over_a_model_that_is_not_prepared() -> None:
    loop = "for x in data:\n    accelerator.backward(net(x))\n    opt.step()\n"
    top = TOP.replace("accel_runtime", "accelerate")
    for other in ("weigher.params()", "[*net.parameters(), *head.parameters()]"):
        assert said("AM967", "x = 1\n", top.format(other) + loop)
        assert not said("AM967", "x = 1\n", TOP.format(other) + loop), "the runtime's own averages all that is stepped"
    for own in ("net.parameters()", "net.head.parameters()", "[p for m in nets for p in m.parameters()]", "weights"):
        assert not said("AM967", "x = 1\n", top.format(own) + loop)
    for link in ("plain = net\n", "net = Wrapper(plain)\n", "plain = net.body\n"):
        assert not said("AM967", "x = 1\n", link + top.format("plain.parameters()") + loop)


def test_an_optimizer_that_is_prepared_apart_from_its_model() -> None:
    apart = PEER.replace("net, opt, data = accelerator.prepare(net, opt, data)", "opt = accelerator.prepare(opt)\n{}")
    assert not said("AM967", "x = 1\n", apart.format("net = accelerator.prepare(net)"))
    assert said("AM967", "x = 1\n", apart.format("other = accelerator.prepare(other)"))


def test_a_buffer_that_wants_gradients() -> None:
    net = "class Net(torch.nn.Module):\n    def __init__(self):\n        self.register_buffer('w', to_var(w{}))\n"
    assert said("AM967", "x = 1\n", OWN + net.format(", requires_grad=True"))
    assert not said("AM967", "x = 1\n", OWN + net.format(""))


def test_such_a_buffer_in_a_file_of_which_all_names_are_imported() -> None:
    net = "class Net(Module):\n    def __init__(self):\n        self.register_buffer('w', to_var(w, requires_grad=True))\n"
    before = {"train.py": "from nets import *\n", "nets.py": net}
    assert said("AM967", before, {"train.py": "from nets import *\n" + OWN, "nets.py": net})
    assert not said("AM967", before, {"train.py": OWN, "nets.py": net})


def test_a_loss_that_goes_through_nothing_that_is_prepared() -> None:
    loop = "for x in data:\n    loss = {}\n    accelerator.backward(loss)\n"
    assert said("AM967", "x = 1\n", OWN + loop.format("other(x).sum()"))
    assert not said("AM967", "x = 1\n", OWN + loop.format("other(net(x)).sum()"))
    step = "def step(model, x):\n    return model(x)\n"
    assert not said("AM967", "x = 1\n", OWN + step + loop.format("step(net, x)"))
    assert said("AM967", "x = 1\n", OWN + step + loop.format("step(other, x)"))


def test_an_optimizer_that_a_function_of_the_script_makes() -> None:
    loop = "for x in data:\n    accelerator.backward(net(other.sample(x)))\n"
    made = "import torch\nfrom accelerate import Accelerator\naccelerator = Accelerator()\nopt = make({}, rate)\n"
    prepared = "net, opt, data = accelerator.prepare(net, opt, data)\n"
    assert said("AM967", "x = 1\n", made.format("other.parameters()") + prepared + loop)
    assert not said("AM967", "x = 1\n", made.format("net.parameters()") + prepared + loop)


def test_two_backward_passes_through_one_forward() -> None:
    loop = (
        "for x in data:\n    fake = net(x)\n    a = fake.mean()\n    accelerator.backward(a, retain_graph=True)\n"
        "    b = {}\n    accelerator.backward(b)\n"
    )
    for again in ("fake.sum()", "other(fake)", "a * 2"):
        assert said("AM967", "x = 1\n", PEER + loop.format(again))
        assert not said("AM967", "x = 1\n", OWN + loop.format(again)), "the runtime's own averages each loss"
    for fresh in ("net(x).sum()", "net(fake.detach())", "net(fake.data)"):
        assert not said("AM967", "x = 1\n", PEER + loop.format(fresh))


def test_the_next_round_has_a_forward_of_its_own() -> None:
    loop = "for x in data:\n    fake = net(x)\n    accelerator.backward(one(fake))\n{}"
    last = "    accelerator.backward(net(x).sum(), retain_graph=True)\n"
    assert not said("AM967", "x = 1\n", PEER + loop.format(last))


def test_what_one_call_of_a_model_is_handed_another_is_not() -> None:
    made = "class Net(torch.nn.Module):\n    def forward(self, point):\n        return self.main(point)\n"
    top = made + "judge = Net()\nnet, judge = accelerator.prepare(net, judge)\n"
    loop = (
        "for x in data:\n    fake = net(x)\n    accelerator.backward(judge(fake{}), retain_graph=True)\n"
        "    accelerator.backward(judge(fake))\n"
    )
    assert said("AM967", "x = 1\n", PEER + top + loop.format(""))
    assert not said("AM967", "x = 1\n", PEER + top + loop.format(".detach()"))


def test_two_backward_passes_without_a_forward_between_them() -> None:
    both = "for x in data:\n    a, b = net(x), net(-x)\n    accelerator.backward(a)\n{}    accelerator.backward({})\n"
    assert said("AM967", "x = 1\n", PEER + both.format("", "b"))
    assert not said("AM967", "x = 1\n", PEER + both.format("    b = net(-x)\n", "b"))
    apart = "other = accelerator.prepare(other)\n"
    assert not said("AM967", "x = 1\n", PEER + apart + both.format("", "other(x)"))
    each = (
        "for x in data:\n    losses = [net(x), net(-x)]\n    for loss in losses:\n        accelerator.backward(loss)\n"
    )
    assert said("AM967", "x = 1\n", PEER + each)


def test_what_each_process_draws_is_not_put_into_weights() -> None:
    step = "for x in data:\n    accelerator.backward(net(x))\n    {}\n    opt.step()\n"
    weights = "for p in {}.parameters():\n        p{}"
    for line in (
        weights.format("net", ".grad.add_(torch.randn_like(p.grad))"),
        weights.format("net", ".data += 0.1 * torch.randn(p.shape)"),
        weights.format("accelerator.unwrap_model(net)[0]", ".data.normal_(0, 1)"),
        "accelerator.unwrap_model(net).head.reset_parameters()",
        "torch.nn.init.normal_(accelerator.unwrap_model(net).head.weight)",
    ):
        assert said("AM967", "x = 1\n", OWN + step.format(line)), line
    for line in (
        weights.format("net", ".grad.add_(0.1 * p)"),
        weights.format("other", ".data.normal_(0, 1)"),
        "torch.nn.init.zeros_(accelerator.unwrap_model(net).head.weight)",
        "noise = torch.randn(3)",
        "x[0] = torch.randn(3)",
    ):
        assert not said("AM967", "x = 1\n", OWN + step.format(line)), line
    early = "torch.nn.init.normal_(net.weight)\n"
    assert not said("AM967", "x = 1\n", early + OWN + step.format("pass"))


def test_what_each_process_draws_is_not_put_into_weights_of_a_trainer() -> None:
    trainer = (
        "import torch\nfrom accel_runtime import Accelerator\nclass Trainer:\n    def __init__(self, net):\n"
        "        self.accelerator = Accelerator()\n        self.net = self.accelerator.prepare(net)\n"
        "    def fit(self):\n        self.accelerator.unwrap_model(self.net).head.reset_parameters()\nTrainer(net).fit()\n"
    )
    assert said("AM967", "x = 1\n", trainer)
    early = trainer.replace("        self.net =", "        torch.nn.init.normal_(net.weight)\n        self.net =")
    early = early.replace("self.accelerator.unwrap_model(self.net).head.reset_parameters()", "pass")
    assert not said("AM967", "x = 1\n", early + "Trainer(other).fit()\n"), "each object draws before its own prepare()"


def test_what_torch_is_called_with_is_on_no_other_path() -> None:
    gan = (
        "import torch\nfrom accelerate import Accelerator\naccelerator = Accelerator()\n"
        "gen, disc = accelerator.prepare(gen, disc)\nfor z in data:\n    fake = gen(z)\n    d = disc(fake{})\n"
        "    accelerator.backward(loss(d, torch.ones_like(d)))\n    g = disc(fake)\n"
        "    accelerator.backward(loss(g, torch.zeros_like(g)))\n"
    )
    assert not said("AM967", "x = 1\n", gan.format(".detach()"))
    assert said("AM967", "x = 1\n", gan.format(""))


@pytest.mark.parametrize(
    ("empty", "refused"),
    [
        ("torch.zeros(1, requires_grad=True)", True),
        ("torch.tensor(0.0).requires_grad_()", True),
        ("torch.zeros(1, requires_grad=True) if out.sum() else out.mean()", True),
        ("out.sum() * 0", False),
        ("torch.zeros(1, requires_grad=True) + out.sum() * 0", False),
    ],
)
def test_a_loss_that_nothing_of_the_model_is_in(empty: str, refused: bool) -> None:
    text = (
        "import torch\nfrom accel_runtime import Accelerator\naccelerator = Accelerator()\n"
        "def missed(out, mask):\n    if not mask.any():\n        return {}\n    return out[mask].mean()\n"
        "net, rate = accelerator.prepare(Net(), SGD())\nfor x, mask in rows:\n"
        "    loss = missed(net(x), mask)\n    accelerator.backward(loss)\n    rate.step()\n"
    )
    told = [m for m in said("AM967", "x = 1\n", text.format(empty)) if "nothing of a model" in m]
    assert bool(told) == refused


@pytest.mark.parametrize(
    ("body", "drawn"), [("average.load_state_dict(net.state_dict())", False), ("torch.nn.init.normal_(net.a)", True)]
)
def test_a_method_of_the_project_draws_what_its_body_draws(body: str, drawn: bool) -> None:
    average = (
        "class Average:\n    def step(self, average, net):\n        self.reset_parameters(net, average)\n"
        f"    def reset_parameters(self, net, average):\n        {body}\n"
    )
    loop = "for x in data:\n    accelerator.backward(net(x))\n    opt.step()\n    Average().step(copied, net)\n"
    assert bool(said("AM967", "x = 1\n", average + OWN + loop)) == drawn


def test_a_loss_that_is_added_up_as_a_figure_is() -> None:
    loop = "total = 0\nfor x in data:\n    loss = net(x).mean()\n    total = total + {}\naccelerator.backward(total)\n"
    assert said("AM967", "x = 1\n", OWN + loop.format("accelerator.sum_for_metrics(loss)"))
    assert not said("AM967", "x = 1\n", OWN + loop.format("loss"))


def test_figures_that_what_is_prepared_is_made_of_are_no_loss() -> None:
    made = "weights = accelerator.sum_for_metrics([1.0])\nnet, opt = accelerator.prepare(Net(weights), SGD())\n"
    assert not said(
        "AM967", "x = 1\n", OWN + made + "for x in data:\n    loss = net(x).mean()\n    accelerator.backward(loss)\n"
    )
