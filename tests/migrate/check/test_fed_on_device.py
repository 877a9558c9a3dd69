"""AM959: what a prepared model is called with is on its device."""

from __future__ import annotations

import pytest

from tests.migrate.check.reading import said
from tests.migrate.rules.scripts import training
from tests.migrate.rules.verbs import migrated, unchanged

TOP = (
    "import torch\nfrom torch.utils.data import DataLoader\nfrom accel_runtime import Accelerator\n"
    "accelerator = Accelerator({})\ntest = DataLoader(held_out)\nnet = accelerator.prepare(net)\n"
)


def test_batches_of_a_plain_loader_that_nothing_moves() -> None:
    loop = "for i, (x, y) in enumerate(test):\n    {}\n    net({})\n"
    assert said("AM959", "x = 1\n", TOP.format("") + loop.format("pass", "x"))
    assert said("AM959", "x = 1\n", TOP.format("") + loop.format("y = y.to(accelerator.device)", "x.float()"))
    assert said("AM959", "x = 1\n", TOP.format("") + loop.format("x = x.view(-1)", "x"))
    assert not said("AM959", "x = 1\n", TOP.format("") + loop.format("x = x.to(accelerator.device)", "x"))
    assert not said("AM959", "x = 1\n", TOP.format("") + loop.format("x = moved(x)", "x"))
    assert not said("AM959", "x = 1\n", TOP.format("") + loop.format("pass", "x.cuda()"))
    assert not said("AM959", "x = 1\n", TOP.format("cpu=True") + loop.format("pass", "x"))


def test_batches_of_a_loader_without_a_name() -> None:
    both = "for x in rows:\n    net(x)\nfor x in DataLoader(more):\n    net(x)\n"
    top = TOP.format("").replace("net = accelerator.prepare(net)", "net, rows = accelerator.prepare(net, test)")
    assert said("AM959", "x = 1\n", top + both)
    assert not said("AM959", "x = 1\n", top + both.replace("DataLoader(more)", "rows"))


def test_batches_that_the_original_did_not_move_either() -> None:
    loop = "for x in test:\n    net(x)\n"
    assert not said("AM959", "net = net.to(device)\n", TOP.format("") + loop)
    parallel = "from torch import nn\nnet = nn.DataParallel(net).cuda()\n"
    assert said("AM959", parallel, TOP.format("") + loop)


def test_batches_of_a_plain_loader_in_a_function() -> None:
    count = "def count(net, data):\n    for x in data:\n        net(x)\ncount(net, test)\n"
    assert said("AM959", "x = 1\n", TOP.format("") + count)
    prepared = TOP.format("").replace("net = accelerator.prepare(net)", "net, test = accelerator.prepare(net, test)")
    assert not said("AM959", "x = 1\n", prepared + count)


def test_a_move_that_asks_for_cuda() -> None:
    asked = "use_cuda = torch.cuda.is_available()\nif use_cuda:\n    x = x.to(accelerator.device)\nnet(x)\n"
    assert said("AM959", "x = 1\n", TOP.format("") + asked)
    assert not said("AM959", "x = 1\n", TOP.format("cpu=not torch.cuda.is_available()") + asked)
    inline = "net(x.to(accelerator.device) if torch.cuda.is_available() else x)\n"
    assert said("AM959", "x = 1\n", TOP.format("") + inline)
    assert said("AM959", "x = 1\n", TOP.format("") + "if args.gpu:\n    x = x.to(accelerator.device)\nnet(x)\n")


def test_a_move_that_asks_for_cuda_and_for_more_than_the_accelerator_is_told() -> None:
    asked = "if torch.cuda.is_available() and args.gpu:\n    x = x.to(accelerator.device)\nnet(x)\n"
    assert said("AM959", "x = 1\n", TOP.format("cpu=not args.gpu") + asked)
    both = "cpu=not torch.cuda.is_available() or not args.gpu"
    assert not said("AM959", "x = 1\n", TOP.format(both) + asked)
    alone = asked.replace("torch.cuda.is_available() and ", "")
    assert not said("AM959", "x = 1\n", TOP.format("cpu=not args.gpu") + alone)
    named = "use = torch.cuda.is_available() and args.gpu\n" + TOP.format("cpu=not use")
    assert not said("AM959", "x = 1\n", "import torch\n" + named + asked)


def test_a_move_that_asks_for_cuda_before_anything_is_prepared() -> None:
    early = "if torch.cuda.is_available():\n    net.to(accelerator.device)\n"
    assert not said("AM959", "x = 1\n", TOP.format("").replace("net = acc", early + "net = acc"))


def test_a_choice_of_the_script_that_the_accelerator_is_not_told() -> None:
    before = "if args.gpu:\n    net.cuda()\nfor x in data:\n    if args.gpu:\n        x = x.cuda()\n    net(x)\n"
    assert said("AM959", before, TOP.format("") + "net(x)\n")
    assert not said("AM959", before, TOP.format("cpu=not args.gpu") + "net(x)\n")
    beside = "import torch\nif torch.cuda.is_available():\n    {}if args.rows:\n        rows = rows.cuda()\n"
    assert not said("AM959", beside.format("x = x.cuda()\n    "), TOP.format("") + "net(x)\n")
    assert said("AM959", beside.format(""), TOP.format("") + "net(x)\n")
    other = "if loss == 'a':\n    criterion = A().cuda()\nif x.is_cuda:\n    y = y.cuda()\n"
    assert not said("AM959", other, TOP.format("") + "net(x)\n")
    machine = "import torch\nready = torch.cuda.is_available()\n" + before.replace("args.gpu", "ready")
    assert not said("AM959", machine, TOP.format("") + "net(x)\n")


def test_a_choice_of_the_script_beside_a_device_that_the_accelerator_is_told() -> None:
    parsed = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--gpu')\n"
    parsed += "p.add_argument('--device')\nargs = p.parse_args()\n"
    before = "import torch\n" + parsed + "if {}:\n    net.to(args.device)\n"
    after = "import torch\nfrom accel_runtime import Accelerator\n" + parsed
    after += "accelerator = Accelerator(device=args.device)\nnet = accelerator.prepare(net)\n"
    assert said("AM959", before.format("args.gpu"), after)
    assert not said("AM959", before.format("args.device != 'cpu'"), after)


def test_an_accelerator_on_the_cpu_beside_moves_to_a_gpu() -> None:
    helper = "def onto(x, wanted):\n    return x.cuda() if wanted else x\n"
    before = {"train.py": "from moves import onto\nonto(net, True)\n", "moves.py": helper}
    after = {"train.py": TOP.format("cpu=True") + "from moves import onto\nonto(net, True)\n", "moves.py": helper}
    assert said("AM959", before, after)
    assert not said("AM959", "x = 1\n", TOP.format("cpu=True"))


def test_an_iterator_that_is_no_loader() -> None:
    looped = "net, rounds = accelerator.prepare(net, rounds)\nfor x in rounds:\n    net(x.to(accelerator.device))\n"
    assert said("AM959", "x = 1\n", TOP.format("") + "rounds = BucketIterator(held_out)\n" + looped)
    assert not said("AM959", "x = 1\n", TOP.format("") + "rounds = DataLoader(held_out)\n" + looped)
    files = {"makers.py": "from torch.utils.data import DataLoader\ndef make():\n    return DataLoader(1)\n"}
    starred = {"train.py": TOP.format("") + "from makers import *\nrounds = make()\n" + looped, **files}
    assert not said("AM959", {"train.py": "from makers import *\n", **files}, starred)
    made = "def make():\n    return {'a': DataLoader(held_out)}\nrounds = make()['a']\n"
    assert not said("AM959", "x = 1\n", TOP.format("") + made + looped)


def test_what_stays_on_the_cpu_where_there_is_no_cuda() -> None:
    top = TOP.replace("net = acc", "{}net = acc")
    teacher = "if torch.cuda.is_available():\n    teacher.to(accelerator.device)\n"
    assert said("AM959", "x = 1\n", top.format("", teacher))
    assert not said("AM959", "x = 1\n", top.format("cpu=not torch.cuda.is_available()", teacher))
    loss = "loss = torch.nn.MSELoss()\nif torch.cuda.is_available():\n    loss = loss.to(accelerator.device)\n"
    assert not said("AM959", "x = 1\n", top.format("", loss))
    assert said("AM959", "x = 1\n", top.format("", loss.replace("MSELoss()", "BCELoss(weight=w)")))
    made = "cuda = torch.cuda.is_available()\nTensor = torch.cuda.FloatTensor if cuda else torch.FloatTensor\n"
    assert said("AM959", "x = 1\n", top.format("", made))
    assert not said("AM959", "x = 1\n", top.format("cpu=not torch.cuda.is_available()", made))
    later = "kind = torch.cuda.FloatTensor\nif torch.cuda.is_available() is False:\n    kind = torch.FloatTensor\n"
    assert said("AM959", "x = 1\n", top.format("", later))
    assert said("AM959", "x = 1\n", top.format("cpu=True", later))
    assert not said("AM959", "x = 1\n", top.format("cpu=not torch.cuda.is_available()", later))
    assert not said("AM959", "x = 1\n", top.format("cpu=True", "kind = torch.FloatTensor\n"))


@pytest.mark.parametrize("device", ["'cuda:{}'.format(n)", "'cuda:' + n", "f'cuda:{n}'", "str('cuda')"])
def test_an_accelerator_on_the_cpu_beside_a_device_with_a_number(device: str) -> None:
    after = "from accel_runtime import Accelerator\naccelerator = Accelerator(cpu=True)\n"
    (message,) = said("AM959", f"x = y.to({device})\n", f"{after}x = y.to({device})\n")
    assert "keep to the CPU" in message


MAIN = "if __name__ == '__main__':\n"
BESIDE = {"small.py": "from torch import nn\nclass Small(nn.Module):\n    pass\n" + MAIN + "    run(Small())\n"}
ON_CPU = "from accel_runtime import Accelerator\n" + BESIDE["small.py"].replace(
    "run(", "Accelerator(cpu=True).prepare("
)
LATER = "import torch\nfrom small import Small\nnet = Small().to('cuda')\nfor x in test:\n    net(x.to('cuda'))\n"


def test_an_accelerator_on_the_cpu_that_another_script_makes_when_it_is_started() -> None:
    before = {**BESIDE, "later.py": LATER}
    top = TOP.format("").replace("prepare(net)", "prepare(Small())") + "from small import Small\n"
    moved = top + "for x in test:\n    net(x.to(accelerator.device))\n"
    assert not said("AM959", before, {"small.py": ON_CPU, "later.py": moved})
    imported = ON_CPU.replace(MAIN, "if True:\n")  # where later.py imports it, that makes an Accelerator as well
    assert any("keep to the CPU" in each for each in said("AM959", before, {"small.py": imported, "later.py": moved}))


def test_a_batch_that_is_left_on_the_cpu_beside_a_script_that_keeps_to_it() -> None:
    before = {**BESIDE, "later.py": LATER}
    left = TOP.format("").replace("prepare(net)", "prepare(Small())") + "from small import Small\nnet(torch.zeros(3))\n"
    assert said("AM959", {"later.py": "x = 1\n"}, {"later.py": left})
    assert said("AM959", {**before, "later.py": "from small import Small\n"}, {"small.py": ON_CPU, "later.py": left})


PARALLEL = "import torch\nfrom torch import nn\nnet = nn.DataParallel(net).cuda()\n"
FED = TOP.replace("net = accelerator.prepare(net)", "net, train = accelerator.prepare(net, DataLoader(rows))").format(
    ""
)


@pytest.mark.parametrize(
    "lines",
    [
        "net(torch.zeros(1, 4))",
        "x, y = next(iter(test))\nnet(x)",
        "x = torch.from_numpy(a).float()\nout = net(x.view(1, -1))",
        "image = held_out[0]\nnet(image)",
        "for x, y in test:\n    board.add_graph(net, x)",
        "torch.onnx.export(net, torch.randn(1, 4), 'net.onnx')",
        "def show(net, cuda=False):\n    x = torch.zeros(1)\n    if cuda:\n        x = x.cuda()\n    return net(x)\nshow(net)",
        "def make():\n    return torch.rand(3), 4\nx, n = make()\nnet(x)",
        "class A:\n    def __init__(self):\n        self.z = torch.randn(4)\n    def run(self):\n        net(self.z)\nA().run()",
        "batch = next(iter(test))\nbatch['y'] = batch['y'].cuda()\nnet(batch['x'])",
        "net(read('picture.png'))",
        "net(z.to(found.device))",
        "import argparse\nargs = argparse.ArgumentParser().parse_args()\nargs.mean = torch.zeros(1)\nnet(args.mean)",
        "class A:\n    def __init__(self):\n        self.device = 'cpu'\n    def run(self):\n        net(z.to(self.device))",
    ],
)
def test_what_data_parallel_moved_and_nothing_moves_now(lines: str) -> None:
    wrapped = "the wrapper of the model"
    assert any(wrapped in message for message in said("AM959", PARALLEL + lines, FED + lines))
    told = PARALLEL.replace("nn.DataParallel(net).cuda()", "nn.parallel.DistributedDataParallel(net, device_ids=[0])")
    assert any(wrapped in message for message in said("AM959", told + lines, FED + lines))
    for plain in ("net = net.to(device)\n", told.replace("[0]", "None")):
        assert not any(wrapped in message for message in said("AM959", plain + lines, FED + lines))


@pytest.mark.parametrize(
    "lines",
    [
        "net(torch.zeros(1, 4, device=accelerator.device))",
        "for i, (x, y) in enumerate(train):\n    net(x.float(), y[0])",
        "x, y = next(iter(train))\nnet(x)",
        "x, y = next(iter(test))\nx = x.to(accelerator.device)\nboard.add_graph(net, x)",
        "for batch in test:\n    batch = {k: v.to(accelerator.device) for k, v in batch.items()}\n    net(**batch)",
        "def show(net, x):\n    return net(x)\nfor x in train:\n    show(net, torch.cat([x, x]) + noise)",
        "summary(net, (3, 32, 32))\nprint(net, torch.zeros(1))",
        "for x in train:\n    noise = torch.randn_like(x)\n    net(noise, 7, None, mode='fast')",
        "def onto(x):\n    return x.to(accelerator.device)\nfor x, y in test:\n    x, y = onto(x), onto(y)\n    net(x)",
        "for x in train:\n    out = net(x)\n    net(out.detach() * torch.rand(1))",
        "args = parse()\nargs.device = choose()\ndef run(args):\n    for x in test:\n        net(x.to(args.device))\nrun(args)",
        "import argparse\nparser = argparse.ArgumentParser()\ndef main():\n    args = parser.parse_args()\n"
        "    args.out = '{}-x'.format(args.out)\n    for x in train:\n        net(x, steps=args.steps, last=args.last)\nmain()",
        "class A:\n    def __init__(self):\n        self.device = choose()\n    def run(self):\n        net(z.to(self.device))",
        "class A:\n    def __init__(self):\n        self.device = choose()\nown = A()\nfor x in test:\n    net(x.to(own.device))",
    ],
)
def test_what_data_parallel_moved_and_is_on_the_device(lines: str) -> None:
    assert not said("AM959", PARALLEL + lines, FED + lines)


def test_a_batch_that_a_cast_takes_back_to_the_cpu() -> None:
    top = TOP.format("").replace("net = accelerator.prepare(net)", "net, test = accelerator.prepare(net, test)")
    loop = "Kind = torch.FloatTensor\nfor x, y in test:\n    {}\n    net({})\n"
    for inside, given in (
        ("x = x.type(torch.LongTensor)", "x"),
        ("pass", "x.type(Kind)"),
        ("pass", "x.type('torch.LongTensor')"),
    ):
        for before in ("x = 1\n", "net = net.to(device)\n"):
            assert "cast to a CPU type" in said("AM959", before, top + loop.format(inside, given))[0]
    for inside, given in (
        ("x = x.type(torch.long)", "x"),
        ("x = x.type(torch.LongTensor)\n    x = x.to(accelerator.device)", "x"),
        ("pass", "x.type(Kind).to(accelerator.device)"),
    ):
        assert not said("AM959", "net = net.to(device)\n", top + loop.format(inside, given))


@pytest.mark.parametrize(
    "lines",
    [
        "x = torch.randn(4, 2)\nnet(x)\n",
        "def batch():\n    return torch.randn(4, 2)\nnet(batch())\n",
        "rows = [torch.randn(4, 2) for _ in range(3)]\nfor x in rows:\n    net(x)\n",
        "y = torch.ones(4)\ndef fit():\n    for x in train:\n        torch.nn.functional.mse_loss(net(x), y)\nfit()\n",
        "y = torch.ones(4)\nmse = torch.nn.MSELoss()\nfor x in train:\n    mse(net(x), y)\n",
    ],
)
def test_what_the_script_makes_on_the_cpu_and_nothing_moves(lines: str) -> None:
    top = TOP.replace("net = accelerator.prepare(net)", "net, train = accelerator.prepare(net, test)")
    beside = "def old(net, device):\n    net.to(device)\n"  # nothing calls it
    assert said("AM959", lines + beside, top.format("") + lines + beside)
    assert not said("AM959", lines + beside, top.format("cpu=True") + lines + beside)
    moved = lines.replace("net(x)", "net(x.to(accelerator.device))").replace(", y)", ", y.to(accelerator.device))")
    moved = moved.replace("net(batch())", "net(batch().cuda())")
    assert not said("AM959", lines + beside, top.format("") + moved + beside)


def test_what_a_module_keeps_on_cuda_alone() -> None:
    loss = (
        "class Weighted(torch.nn.Module):\n    def __init__(self):\n        self.w = torch.ones(3)\n"
        "        if torch.cuda.is_available():\n            self.w = self.w.cuda()\n"
        "    def forward(self, out):\n        return out * self.w\n"
    )
    top = "import torch\nfrom accel_runtime import Accelerator\n" + loss
    made = "accelerator = Accelerator({})\ncriterion = Weighted()\nnet = accelerator.prepare(net)\ncriterion(net(x))\n"
    before = "import torch\n" + loss + "net = net.to(device)\ncriterion = Weighted()\ncriterion(net(x))\n"
    assert "self.w.cuda()" in said("AM959", before, top + made.format(""))[0]
    assert not said("AM959", before, top + made.format("cpu=not torch.cuda.is_available()"))
    rows = [text.replace("torch.nn.Module", "torch.utils.data.Dataset") for text in (before, top + made.format(""))]
    assert not said("AM959", *rows)


@pytest.mark.parametrize(
    ("made", "stays"),
    [("nn.MSELoss()", False), ("nn.NLLLoss(weight=w)", True), ("Weighted()", True), ("nn.PReLU(4)", True)],
)
def test_a_loss_that_is_moved_where_it_is_made(made: str, stays: bool) -> None:
    moved = f"if torch.cuda.is_available():\n    judge = {made}.to(accelerator.device)\nelse:\n    judge = {made}\n"
    after = "from torch import nn\n" + TOP.format("") + moved + "for x, y in test:\n    judge(net(x.to(d)), y)\n"
    assert bool(said("AM959", "net = net.to(d)\n", after)) is stays


@pytest.mark.parametrize(
    ("test", "stays"),
    [('device.type == "cuda"', True), ('"cuda" in str(device)', True), ('device.type != "cpu"', False)],
)
def test_a_loss_that_is_moved_where_the_accelerators_device_is_cuda(test: str, stays: bool) -> None:
    after = (
        "from torch import nn\n" + TOP + "device = accelerator.device\njudge = nn.NLLLoss(weight=w)\n"
        f"if {test}:\n    judge = nn.NLLLoss(weight=w).to(accelerator.device)\nfor x, y in test:\n    judge(net(x.to(d)), y)\n"
    )
    assert bool(said("AM959", "net = net.to(d)\n", after.format(""))) is stays
    assert not said("AM959", "net = net.to(d)\n", after.format("cpu=not torch.cuda.is_available()"))


def test_a_move_of_what_may_not_be_there() -> None:
    moved = "net = net.to(device)\nif {}:\n    extra = extra.to(device)\nshow(extra)\n"
    after = TOP.format("") + "if {}:\n    extra = extra.to(accelerator.device)\nshow(extra)\n"
    assert not said("AM959", moved.format("extra is not None"), after.format("extra is not None"))
    assert said("AM959", moved.format("args.gpu"), after.format("args.gpu"))


@pytest.mark.parametrize(
    ("given", "default", "doubted"),
    [
        ("True", "False", False),
        ("", "torch.cuda.is_available()", False),
        ("args.gpu", "True", True),
        ("", "False", True),
    ],
)
def test_a_choice_that_is_always_made_is_none(given: str, default: str, doubted: bool) -> None:
    script = (
        "import argparse\nimport torch\nparser = argparse.ArgumentParser()\nparser.add_argument('--gpu', action='store_true')\n"
        "args = parser.parse_args()\nclass Dice:\n    def __init__(self, on_gpu={default}):\n        self.on_gpu = on_gpu\n"
        "    def rate(self, x):\n        if self.on_gpu:\n            x = x.cuda()\n        return x.sum()\n"
        "dice = Dice({given})\n{top}"
        "dice.rate(net(x))\n"
    )
    before, after = (script.format(default=default, given=given, top=top) for top in ("net.cuda()\n", TOP.format("")))
    assert any("goes to a GPU only under" in message for message in said("AM959", before, after)) is doubted


def test_a_run_that_stops_without_cuda_leaves_nothing_behind() -> None:
    moved = "import torch\nif args.gpu:\n    if not torch.cuda.is_available():\n        {}\n    x = x.to(accelerator.device)\n"
    moved += "net(x)\n"
    made = TOP.format("cpu=not args.gpu")
    assert not said("AM959", "x = 1\n", made + moved.format("raise SystemExit('no GPU')"))
    assert not said("AM959", "x = 1\n", made + moved.format("sys.exit()"))
    assert said(
        "AM959", "x = 1\n", made + moved.replace("    x = x", "    else:\n        x = x").format("print('no GPU')")
    )


def test_a_parameter_that_is_annotated_as_a_loader_is_one() -> None:
    trainer = (
        "import torch\nfrom torch.utils.data import DataLoader, Dataset\nfrom accel_runtime import Accelerator\n"
        "class Trainer:\n    def __init__(self, net, rows: {}):\n        self.accelerator = Accelerator()\n"
        "        self.rows = rows\n        self.net, self.rows = self.accelerator.prepare(net, self.rows)\n"
        "    def fit(self):\n        for x in self.rows:\n            self.accelerator.backward(self.net(x).sum())\n"
    )
    assert said("AM959", "x = 1\n", trainer.format("Dataset"))
    assert said("AM959", "x = 1\n", trainer.format("list"))
    assert not said("AM959", "x = 1\n", trainer.format("DataLoader"))
    assert not said("AM959", "x = 1\n", trainer.format("torch.utils.data.DataLoader"))


def test_a_second_model_that_stayed_on_the_cpu_with_what_it_is_fed() -> None:
    top = "import torch\nfrom torch import nn\n"
    encoder = "encoder = nn.Linear(4, 4){}\n"
    probe = "def probe(rows):\n    head = nn.Linear(4, 2)\n{}    head(rows)\nprobe(encoder(x).cpu())\n"
    before = top + "device = torch.device('cuda')\n" + encoder.format(".to(device)") + probe.format("")
    after = (
        top
        + "from accel_runtime import Accelerator\naccelerator = Accelerator()\n"
        + encoder.format("")
        + "encoder = accelerator.prepare(encoder)\n"
        + probe.format("    head = accelerator.prepare(head)\n")
    )
    (message,) = said("AM959", before, after)
    assert message == "rows would be on the CPU in `head(rows)`: it is made there, and nothing moves it"
    assert not said("AM959", before, after.replace("encoder(x).cpu()", "encoder(x)"))
    assert said("AM959", before, after.replace("Accelerator()", "Accelerator(device=chosen(args.device))"))
    moved = before.replace("head = nn.Linear(4, 2)", "head = nn.Linear(4, 2).to(device)")
    assert not said("AM959", moved, after)


def test_output_that_numpy_reads_as_the_script_did_on_the_cpu() -> None:
    run = "out = net(x.to(accelerator.device))\nprint(out[0].detach(){}.numpy())\n"
    assert said("AM959", "x = 1\n", TOP.format("") + run.format(""))
    assert said("AM959", "x = y.to(device=z.weight.device)\n", TOP.format("") + run.format(""))
    assert not said("AM959", "x = 1\n", TOP.format("") + run.format(".cpu()"))
    assert not said("AM959", "x = 1\n", TOP.format("cpu=True") + run.format(""))
    assert not said("AM959", "x = x.cuda()\n", TOP.format("") + run.format(""))


@pytest.mark.parametrize(
    ("base", "test", "told"),
    [("Dataset", "device is not None", True), ("Dataset", "args.gpu", False), ("object", "device is not None", False)],
)
def test_a_data_set_that_moves_where_it_is_told_is_no_choice_of_the_script(base: str, test: str, told: bool) -> None:
    rows = f"""
        class Rows(torch.utils.data.Dataset):
            def __init__(self, device=None):
                self.x = torch.randn(20, 3)
                if {test}:
                    self.x = self.x.to(device)

            def __len__(self):
                return 20
        """
    if base == "Dataset":
        rows += "\n            def __getitem__(self, i):\n                return self.x[i], 1\n        "
    source = training(functions=rows, ready="loader = DataLoader(Rows(device), batch_size=4)")
    if told:
        migrated(source)
    else:
        assert "goes to a GPU only under" in unchanged(source)
