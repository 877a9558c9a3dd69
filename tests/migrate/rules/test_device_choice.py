"""Devices: the user's choice holds, the CPU stays the CPU, and what follows a tensor is left alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import pytest
from accel_migrate.pipeline import migrate
from accel_migrate.plan import Status
from accel_migrate.settings import DEFAULTS
from accel_migrate.source import Source

from tests.migrate.rules.scripts import becomes, training
from tests.migrate.rules.verbs import migrated, noted, notes, unchanged

SCRIPT = """
    import argparse, torch
    from torch import nn

    parser = argparse.ArgumentParser()
    parser.add_argument("--where", default="cuda:0")
    parser.add_argument("--gpu", type=int, default=0)
    args = parser.parse_args()
    {choice}
    loader = torch.utils.data.DataLoader(data(), batch_size=4)
    model = nn.Linear(4, 1).to({name})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        loss = (model(x.to({name})) - y.to({name})).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    {after}
    """


def script(choice: str, name: str = "place", after: str = "") -> str:
    return SCRIPT.format(choice=choice.replace("\n", "\n    "), name=name, after=after.replace("\n", "\n    "))


def test_the_option_is_handed_to_the_accelerator():
    result = migrated(script("place = torch.device(args.where)"))
    assert "accelerator = Accelerator(device=args.where)\n" in result
    assert "torch.device" not in result


@pytest.mark.parametrize("chosen", ["args.where", 'os.environ.get("DEVICE", "cpu")', "sys.argv[1]"])
def test_a_device_that_is_only_a_text_is_handed_to_the_accelerator(chosen: str) -> None:
    result = migrated(script(f"place = {chosen}"))
    assert f"accelerator = Accelerator(device={chosen})\n" in result


def test_the_number_of_a_gpu_beside_its_kind_is_handed_to_the_accelerator() -> None:
    chosen = 'torch.device("cuda", args.where)'
    assert f"accelerator = Accelerator(device={chosen})\n" in migrated(script(f"place = {chosen}"))
    named = chosen.replace("args", "index=args")
    assert f"accelerator = Accelerator(device={named})\n" in migrated(script(f"place = {named}"))
    assert "accelerator = Accelerator()\n" in migrated(script('place = torch.device("cuda", 0)'))


def test_a_text_that_the_user_picks_is_asked_by_its_type() -> None:
    result = migrated(script("place = args.where", after='print("cuda" in place, place == "cpu")'))
    assert 'print("cuda" in place.type, place.type == "cpu")' in result


@pytest.mark.parametrize("question", ['place == "cuda"', 'place.split(":")[1]', 'place.startswith("cuda:1")'])
def test_a_question_to_the_number_of_the_device_leaves_the_loop(question: str) -> None:
    unchanged(script("place = args.where", after=f"print({question})"))


def test_a_choice_of_several_lines_stays_and_is_handed_over():
    choice = 'if args.gpu < 0:\n    place = "cpu"\nelse:\n    place = f"cuda:{args.gpu}"'
    result = migrated(script(choice, after="print(torch.zeros(1, device=place))"))
    assert (
        '    place = f"cuda:{args.gpu}"\naccelerator = Accelerator(device=place)\nplace = accelerator.device\n'
        in result
    )


def test_a_condition_that_every_move_repeats_is_handed_over():
    assert "accelerator = Accelerator(cpu=not args.gpu)\n" in migrated(script("", '"cuda" if args.gpu else "cpu"'))


def test_a_second_condition_beside_the_choice_leaves_the_loop():
    choice = (
        'place = "cpu" if args.where == "host" else "cuda"\ntable = torch.zeros(4).to("cuda" if args.gpu else "cpu")'
    )
    unchanged(script(choice))


def test_a_note_says_what_the_choice_means_on_several_processes():
    assert "on N processes each has a GPU of its own" in noted(script("place = torch.device(args.where)"), "AM101")


def test_accelerate_is_told_of_the_cpu_alone_and_a_note_says_so():
    settings = replace(DEFAULTS, target="accelerate")
    source = script("place = torch.device(args.where)")
    assert 'Accelerator(cpu=torch.device(args.where).type == "cpu")' in migrated(source, settings)
    assert "CUDA_VISIBLE_DEVICES" in noted(source, "AM101", settings)


@pytest.mark.parametrize(
    "kept",
    [
        'host = torch.device("cpu")\nweights = loss.to(host)',
        'weights = loss.to(torch.device("cpu"))',
        'weights = loss.to("cpu")',
        'weights = loss.to(device="cpu")',
        "def add(t):\n    device = t.device\n    return t + torch.ones(1).to(device)\nweights = add(loss)",
        "weights = torch.ones(1).to(next(model.parameters()).device)",
    ],
)
def test_what_goes_to_the_cpu_or_follows_a_tensor_is_left(kept):
    result = migrated(script('place = "cuda" if torch.cuda.is_available() else "cpu"', after=kept))
    assert kept in result


def test_a_device_that_a_constructor_keeps_to_itself_is_set_from_the_accelerator():
    result = migrated("""
        import torch
        from torch import nn

        class Fitting:
            def __init__(self, points):
                place = torch.device("cuda:0") if torch.cuda.is_available() else torch.device("cpu")
                self.net = nn.Linear(2, 1).to(place)
                self.points = points.to(place)
                self.steps = torch.optim.Adam(self.net.parameters())

            def fit(self):
                for _ in range(3):
                    loss = self.net(self.points).pow(2).mean()
                    self.steps.zero_grad()
                    loss.backward()
                    self.steps.step()

        Fitting(torch.randn(8, 2)).fit()
        """)
    assert "        self.accelerator = Accelerator()\n        place = self.accelerator.device\n" in result
    assert "self.points = points.to(place)" in result


def test_a_device_of_the_file_that_methods_read_stays_where_it_is():
    result = migrated("""
        import torch

        place = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")

        class Fitting:
            def __init__(self, points):
                self.points = points.to(place)
                self.net = torch.nn.Linear(2, 1).to(place)
                self.steps = torch.optim.Adam(self.net.parameters())

            def fit(self):
                for _ in range(3):
                    loss = self.net(self.points).pow(2).mean()
                    self.steps.zero_grad()
                    loss.backward()
                    self.steps.step()

            def answer(self, point):
                return self.net(torch.tensor(point).to(place))

        fitting = Fitting(torch.randn(8, 2))
        fitting.fit()
        """)
    assert "accelerator = Accelerator()\nplace = accelerator.device\n\nclass Fitting" in result
    assert "accelerator.backward(loss)" in result
    assert "self.accelerator" not in result


def test_an_option_that_is_asked_as_a_text_stays_one():
    source = script("", "args.where", 'if args.where.startswith("cuda"):\n    print("there is a GPU")')
    result = migrated(source)
    assert "accelerator = Accelerator(device=args.where)\nargs.where = str(accelerator.device)\n" in result
    assert 'if args.where.startswith("cuda"):' in result


def test_an_option_that_is_compared_with_a_name_without_a_number_leaves_the_loop():
    source = script("", "args.where", 'if args.where == "cuda":\n    print("there is a GPU")')
    assert "`args.where` is compared with the name of a device" in unchanged(source)
    for asked in ("args.where is not None", "args.where >= 0"):
        source = script("", "args.where", f'if {asked}:\n    print("there is a GPU")')
        assert f"is the device, and asked for a number or None by `{asked}`" in unchanged(source)


@pytest.mark.parametrize(
    ("choice", "after", "told"),
    [
        ('place = "cuda"', 'other = nn.Linear(1, 1).to("cuda:1")', '`"cuda:1"` is a second device'),
        (
            'place = "cuda:0"\nother = "cuda:1"',
            "teacher = nn.Linear(1, 1).to(other)",
            "live on different GPUs",
        ),
        ('place = "cuda"', 'mask = torch.ones(1, device=f"cuda:{args.gpu}")', "may name another device"),
        ('place = "cuda"', "mask = torch.ones(1, device=unseen())", "`unseen()` may name another device"),
    ],
)
def test_a_second_device_leaves_the_loop(choice, after, told):
    assert told in unchanged(script(choice, after=after))


@pytest.mark.parametrize("computed", ["image.add(mean)", "image.sub_(mean)"])
def test_a_callable_that_goes_where_its_image_is_names_no_second_device(computed):
    scaling = f"""
class Scaling:
    def __call__(self, image):
        device = image.device
        mean = torch.ones(3).to(device)
        return {computed}
"""
    source = dedent(script('place = "cuda"'))
    head, _, rest = source.partition('place = "cuda"')
    assert "Accelerator(" in migrated(f'{head}{scaling}\nplace = "cuda"{rest}')


def test_one_gpu_by_its_number_in_every_move_is_the_accelerators():
    result = migrated(script("", '"cuda:1"'))
    assert 'Accelerator(device="cuda:1")' in result


def test_a_device_of_another_file_that_names_a_number_leaves_the_loop(tmp_path):
    main = dedent(script('from masks import mask\nplace = "cuda"', after="mask(3)"))
    for number, status in ((":0", Status.UNCHANGED), ("", Status.MIGRATED)):
        masks = f'import torch\nplace = "cuda{number}"\ndef mask(n):\n    return torch.ones(n, device=place)\n'
        files = [
            Source.from_bytes(tmp_path / name, text.encode())
            for name, text in (("train.py", main), ("masks.py", masks))
        ]
        assert migrate(files, DEFAULTS)[0].status is status


def test_the_device_of_a_rank_is_the_accelerators_in_every_branch():
    result = migrated("""
        import argparse, torch
        from torch import nn
        from torch.nn.parallel import DistributedDataParallel

        parser = argparse.ArgumentParser()
        parser.add_argument("--many", action="store_true")
        parser.add_argument("--local_rank", type=int)
        args = parser.parse_args()
        if args.many:
            torch.cuda.set_device(args.local_rank)
            place = torch.device("cuda:{}".format(args.local_rank))
            torch.distributed.init_process_group("nccl")
        else:
            place = torch.device("cuda:{}".format(args.local_rank) if args.local_rank is not None else "cpu")
        loader = torch.utils.data.DataLoader(data(), batch_size=4)
        model = nn.Linear(4, 1).to(place)
        if args.many:
            model = DistributedDataParallel(model, device_ids=[args.local_rank])
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for x in loader:
            loss = model(x.to(place)).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(torch.ones(1, device=place))
        """)
    assert "args = parser.parse_args()\naccelerator = Accelerator()\nplace = accelerator.device\n" in result
    assert "is not None" not in result


GUARDED = """
    import argparse, torch
    from torch import nn

    parser = argparse.ArgumentParser()
    parser.add_argument("--gpu", action="store_true")
    args = parser.parse_args()
    loader = torch.utils.data.DataLoader(data(), batch_size=4)
    model = nn.Linear(4, 1)
    if {first}:
        model.cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        noise = torch.rand(4, 4)
        if {second}:
            x, y, noise = x.cuda(), y.cuda(), noise.cuda()
        loss = (model(x + noise) - y).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    """


def test_a_move_that_asks_for_cuda_as_well_as_for_an_option_tells_the_accelerator_both():
    asked = "torch.cuda.is_available() and args.gpu"
    result = migrated(GUARDED.format(first=asked, second=asked))
    assert "Accelerator(cpu=not torch.cuda.is_available() or not args.gpu)" in result
    assert "Accelerator(cpu=not args.gpu)" in migrated(GUARDED.format(first="args.gpu", second="args.gpu"))


@pytest.mark.parametrize(
    ("bound", "wish"),
    [
        ("args.gpu = not args.slow and torch.cuda.is_available()", "not args.gpu"),
        ("args.gpu = torch.cuda.is_available()", "not args.gpu"),
        ("if args.slow: args.gpu = torch.cuda.is_available()", "not torch.cuda.is_available() or not args.gpu"),
    ],
)
def test_an_option_that_asks_for_cuda_by_itself_is_not_asked_for_it_again(bound: str, wish: str):
    source = GUARDED.format(first="args.gpu", second="args.gpu")
    above, device, below = source.partition("    model = ")
    assert f"Accelerator(cpu={wish})" in migrated(f"{above}    {bound}\n{device}{below}")


NUMBERED = """
    import argparse

    import torch
    from torch import nn
    from torch.utils.data import DataLoader

    parser = argparse.ArgumentParser()
    parser.add_argument("--gpu-id", default=0, type=int)
    parser.add_argument("--no-cuda", action="store_true")
    args = parser.parse_args()
    net = nn.Linear(4, 2)
    if {test}:
        net.cuda(args.gpu_id)
    steps = torch.optim.SGD(net.parameters(), lr=0.1)
    for x in DataLoader(data, batch_size=4):
        if {test}:
            x = x.cuda(args.gpu_id)
        net(x).sum().backward()
        steps.step()
    """


@pytest.mark.parametrize(
    ("test", "chosen"),
    [
        (
            "not args.no_cuda and torch.cuda.is_available()",
            '"cpu" if args.no_cuda or not torch.cuda.is_available() else ',
        ),
        ("torch.cuda.is_available()", '"cpu" if not torch.cuda.is_available() else '),
    ],
)
def test_a_number_is_told_only_where_there_is_such_a_gpu(test: str, chosen: str) -> None:
    source = NUMBERED.format(test=test).replace(
        "for x in DataLoader(data, batch_size=4):", "rows = DataLoader(data)\n    for x in rows:"
    )
    assert f'Accelerator(device={chosen}f"cuda:{{args.gpu_id}}")' in migrated(source)


def test_a_device_of_a_constant_that_a_file_beside_goes_to_as_well() -> None:
    """Without CUDA the helper stays on the CPU, so the model does too."""
    settings = "import torch\nPLACE = 'cuda' if torch.cuda.is_available() else 'cpu'\n"
    shown = "import settings\n\ndef show(net, x):\n    print(net(x.to(settings.PLACE)))\n"
    script = dedent(
        """
        import torch
        from torch import nn
        from torch.utils.data import DataLoader
        import settings
        from shown import show

        net = nn.Linear(2, 1).to(settings.PLACE)
        rate = torch.optim.SGD(net.parameters(), lr=0.1)
        rows = DataLoader(data(), batch_size=4)
        for x, y in rows:
            x, y = x.to(settings.PLACE), y.to(settings.PLACE)
            loss = nn.functional.mse_loss(net(x), y)
            rate.zero_grad()
            loss.backward()
            rate.step()
        show(net, torch.ones(1, 2))
        """
    )
    files = {"settings.py": settings, "shown.py": shown, "train.py": script}
    results = migrate([Source.from_bytes(Path(name), text.encode()) for name, text in files.items()])
    assert "Accelerator(cpu=not torch.cuda.is_available())" in results[-1].after.decode()
    files["shown.py"] = shown.replace(".to(settings.PLACE)", "")
    results = migrate([Source.from_bytes(Path(name), text.encode()) for name, text in files.items()])
    assert "Accelerator()" in results[-1].after.decode()


CHAIN = """if torch.backends.mps.is_available():
    device = torch.device("mps")
    print("mps")
elif torch.cuda.is_available():
    device = torch.device("cuda")
    print("cuda")
else:
    device = torch.device("cpu")
    print("cpu")
"""


def test_a_chain_of_branches_that_do_more_hands_over_what_it_chose() -> None:
    chosen = 'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n'
    becomes(training().replace(chosen, CHAIN), f"{CHAIN}accelerator = Accelerator(device=device)")
    half = CHAIN.replace('    device = torch.device("cuda")\n', "")
    assert "set to several devices" in unchanged(training().replace(chosen, half))


IN_MAIN = """
    import argparse, torch
    from torch import nn

    def right(model, batches, place):
        count = 0
        for x, y in batches:
            count += (model(x.to(place)).argmax(1) == y.to(place)).sum().item()
        {after}
        return count

    def main():
        parser = argparse.ArgumentParser()
        parser.add_argument("--where", default="cuda:0")
        args = parser.parse_args()
        loader = torch.utils.data.DataLoader(data(), batch_size=4)
        held_out = torch.utils.data.DataLoader(data(), batch_size=4)
        model = nn.Linear(4, 2).to(args.where)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x.to(args.where)), y.to(args.where))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(right(model, held_out, args.where))

    main()
    """


def test_a_parameter_that_only_told_where_batches_go_gives_way() -> None:
    result = migrated(IN_MAIN.format(after="pass"))
    assert "def right(model, batches, accelerator):" in result
    assert "right(model, held_out, accelerator)" in result
    read = migrated(IN_MAIN.format(after="print(place)"))
    assert "def right(model, batches, place, accelerator):" in read
    assert "right(model, held_out, args.where, accelerator)" in read


SCHEDULE = """
import torch
from torch import nn
from torch.utils.data import DataLoader


class Schedule:
    def __init__(self, device="cpu"):
        self.device = device

    def to(self, device):
        self.device = device
        return self

    def sample(self, model):
        device = self.device
        return model(torch.randn(4, device=device))


device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
loader = DataLoader(data, batch_size=4)
model = nn.Linear(4, 2).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
schedule = Schedule({told})
for x in loader:
    loss = model(x.to(device)).sum()
    loss.backward()
    optimizer.step()
    schedule.sample(model)
"""


def test_an_object_that_could_be_moved_is_where_it_was_put() -> None:
    assert "schedule = Schedule(device)\n" in migrated(SCHEDULE.format(told="device"))
    assert "may name another device" in unchanged(SCHEDULE.format(told="unseen()"))
    assert unchanged(SCHEDULE.format(told="device).to(unseen()"))


def test_a_function_that_goes_to_the_gpu_of_its_process_runs_once_that_is_known() -> None:
    nets = (
        "from torch import nn\n\nclass Teacher(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.layer = nn.Linear(4, 1).cuda()\n\n    def forward(self, x):\n        return self.layer(x)\n"
    )
    train = dedent("""\
        import torch
        from torch import nn
        from nets import Teacher

        loader = torch.utils.data.DataLoader(data(), batch_size=4)
        teacher = Teacher()
        model = nn.Linear(4, 1).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x, y in loader:
            loss = (model(x.cuda()) - teacher(x.cuda())).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """)
    sources = [Source.from_bytes(Path(name), text.encode()) for name, text in (("nets.py", nets), ("train.py", train))]
    made = migrate(sources)[1]
    after = made.after.decode()
    assert made.status is Status.MIGRATED, made.reason
    assert after.index("= Accelerator(") < after.index("teacher = Teacher()")


@pytest.mark.parametrize(
    "act", ["torch.manual_seed(3)", "torch.backends.cudnn.benchmark = True", 'print("hello")', "global rate; rate = 1"]
)
def test_a_function_that_chooses_the_device_and_acts_is_still_called(act: str) -> None:
    pick = f'def pick():\n    {act}\n    return torch.device("cuda" if torch.cuda.is_available() else "cpu")\n'
    assert "accelerator = Accelerator(device=pick())\n" in migrated(script(f"{pick}place = pick()"))
    assert "`pick()` would no longer be called" in unchanged(script(pick, name="pick()"))


PICKED = """
import torch
from torch import nn
from torch.utils.data import DataLoader


# The best that there is.
def pick():
    if torch.{asked}.is_available():
        return torch.device("{kind}")
    return torch.device("cpu")


def other():
    return 1


device = pick()
model = nn.Linear(4, 2).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(data, batch_size=4)
for x in loader:
    loss = model(x.to(device)).sum()
    loss.backward()
    optimizer.step()
"""


def test_a_function_that_only_chose_the_device_goes_with_its_call() -> None:
    script = PICKED.format(asked="cuda", kind="cuda")
    result = migrated(script)
    assert "pick" not in result and "The best that there is." not in result
    assert "import DataLoader\n\n\ndef other()" in result
    assert "def pick():" in migrated(script + "print(pick())\n")
    assert "without a reader" in unchanged(script.replace("def pick", "@cache\ndef pick"))


def test_a_function_that_another_file_names_stays() -> None:
    top, _, rest = PICKED.format(asked="cuda", kind="cuda").partition("device = pick()")
    body = "".join(f"    {line}\n" for line in f"device = pick(){rest}".splitlines())
    script = f"{top}def main():\n{body}\nif __name__ == '__main__':\n    main()\n"
    files = (("train.py", script), ("plot.py", "from train import pick\nprint(pick())\n"))
    found = migrate([Source.from_bytes(Path(name), text.encode()) for name, text in files])
    assert found[0].status is Status.MIGRATED and "def pick():" in found[0].after.decode()


def test_a_function_that_knows_of_no_cuda_stays() -> None:
    assert "without a reader" in unchanged(PICKED.format(asked="backends.mps", kind="mps"))


FLAGGED = """
import torch
from torch import nn
from torch.utils.data import DataLoader


def noise(x, on_gpu):
    drawn = torch.randn(4)
    if on_gpu:
        drawn = drawn.cuda()
    return x + drawn


def fit(model, loader, optimizer, on_gpu):
    for x in loader:
        if on_gpu:
            x = x.cuda()
        loss = model(noise(x, on_gpu)).sum()
        loss.backward()
        optimizer.step()


def main():
    on_gpu = torch.cuda.is_available()
    model = nn.Linear(4, 2)
    if on_gpu:
        model = model.cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(data, batch_size=4)
    fit(model, loader, optimizer, on_gpu)


main()
"""


def test_a_question_for_cuda_that_is_handed_over_keeps_the_model_from_other_accelerators() -> None:
    assert "Accelerator(cpu=not torch.cuda.is_available())" in migrated(FLAGGED)


def test_an_option_stays_a_text_for_those_who_store_all_options():
    stored = migrated(
        script("", name="args.where", after="print(model(torch.ones(2, 4, device=args.where)), vars(args))")
    )
    assert "args.where = str(accelerator.device)\n" in stored
    asked = migrated(script("", name="args.where", after="print(torch.ones(1).to(args.where), args.where.type)"))
    assert "args.where = accelerator.device\n" in asked


@pytest.mark.parametrize("number", ['f"cuda:{GPU}"', '"cuda:{}".format(GPU)', '"cuda:" + str(GPU)', '"cuda:%d" % GPU'])
def test_a_text_with_the_number_of_the_first_gpu_is_the_first_gpu(number: str) -> None:
    assert "accelerator = Accelerator()\n" in migrated(script(f"GPU = 0\nplace = {number}"))
    assert f"accelerator = Accelerator(device={number})\n" in migrated(script(f"GPU = 1\nplace = {number}"))


ENTRY = 'settings = {"lr": 0.1, "place": "cuda" if torch.cuda.is_available() else "cpu"}'


def test_an_entry_of_a_dictionary_is_the_device_that_is_written_there() -> None:
    used = 'mask = torch.ones(1, device=settings["place"])'
    result = migrated(script(ENTRY, 'settings["place"]', used))
    assert "model = nn.Linear(4, 1)\n" in result
    assert "loss = (model(x) - y)" in result


@pytest.mark.parametrize(
    "more",
    [
        "settings.update(vars(args))",
        'settings["place"] = args.where',
        "settings[args.where] = args.where",
        "settings |= vars(args)",
        "settings = load(settings)",
    ],
)
def test_an_entry_that_may_be_set_anew_is_no_known_device(more: str) -> None:
    unchanged(script(f"{ENTRY}\n{more}", 'settings["place"]', 'mask = torch.ones(1, device=settings["place"])'))


KEEPER = """
class Noise:
    def __init__(self, told, device=None):
        self.device = {kept}

    def like(self, x):
        return torch.randn(x.shape, device=self.device)


"""


@pytest.mark.parametrize(("kept", "told"), [("told.where", "args"), ("device", "1, device=args.where")])
def test_an_object_that_keeps_the_device_of_the_options_is_handed_the_accelerators(kept: str, told: str) -> None:
    head, _, rest = dedent(script(f"noise = Noise({told})", "args.where", "print(noise.like(x))")).partition("parser =")
    result = migrated(f"{head}{KEEPER.format(kept=kept)}parser ={rest}")
    assert "args.where = str(accelerator.device)\nnoise = Noise(" in result


def test_a_tensor_that_a_method_is_asked_of_is_no_option() -> None:
    decode = "def decode(images):\n    place = images.device\n    return torch.ones(images.size(0), device=place)\n\n\n"
    head, _, rest = dedent(script('place = "cuda"', after="decode(load_image())")).partition("parser =")
    assert "Accelerator(" in migrated(f"{head}{decode}parser ={rest}")


def test_the_kind_of_a_device_is_where_the_device_is() -> None:
    chosen = (
        'place = torch.device("cuda" if torch.cuda.is_available() else "cpu")\nscaler = torch.amp.GradScaler(device={})'
    )
    assert "Accelerator(" in migrated(script(chosen.format("place.type")))


SETTINGS = """
class Settings:
    rate = 0.1
    place{annotation} = {value}
{more}

def noise(x, settings):
    return torch.randn(x.shape, device=settings.place)


"""
PLAIN = '"cuda" if torch.cuda.is_available() else "cpu"'


def of_settings(value: str = PLAIN, more: str = "", annotation: str = "", made: str = "Settings()") -> str:
    source = dedent(script('place = "cuda"', after=f"print(noise(x, {made}))"))
    head, _, rest = source.partition("parser =")
    return f"{head}{SETTINGS.format(value=value, more=more, annotation=annotation)}parser ={rest}"


@pytest.mark.parametrize(("annotation", "made"), [("", "Settings()"), ("", "Settings"), (": str", "Settings(rate=1)")])
def test_an_attribute_of_a_class_of_settings_is_the_device_that_is_written_there(annotation: str, made: str) -> None:
    assert "device=settings.place" in migrated(of_settings(annotation=annotation, made=made))


CONSTRUCTED = """
class Settings:
    def __init__(self, rate=0.1, place={value}):
        self.rate = rate
        self.place = place
        {more}

class Beside:
    def __init__(self, names):
        for name in names:
            setattr(self, name, 0)

def noise(x, settings):
    return torch.randn(x.shape, device=settings.place)


"""


def constructed(value: str = PLAIN, more: str = "pass", made: str = "Settings()") -> str:
    return (
        of_settings(made=made)
        .replace(SETTINGS.format(value=PLAIN, more="", annotation=""), CONSTRUCTED)
        .format(value=value, more=more)
    )


@pytest.mark.parametrize("made", ["Settings()", "Settings(0.2)"])
def test_what_a_constructor_of_settings_sets_is_the_device_that_it_is_handed(made: str) -> None:
    assert "device=settings.place" in migrated(constructed(made=made))


@pytest.mark.parametrize(
    "changed",
    [
        {"value": "args.where"},
        {"made": "Settings(place=args.where)"},
        {"made": "Settings(**vars(args))"},
        {"more": "self.place = args.where"},
        {"more": "self.__dict__.update(vars(args))"},
        {"more": "setattr(self, args.name, args.where)"},
    ],
)
def test_a_constructor_that_may_set_another_device_is_left(changed: dict[str, str]) -> None:
    unchanged(constructed(**changed))


@pytest.mark.parametrize("count", ["scores.shape[0]", "len(scores.unbind())"])
def test_what_a_predictor_gives_is_no_settings(count: str) -> None:
    head = """
        def ranks(scores):
            return torch.arange(COUNT, device=scores.device)

        class Head(nn.Module):
            def __init__(self, predictor):
                super().__init__()
                self.predictor = predictor

            def forward(self, x):
                scores = self.predictor(x)
                return scores + ranks(scores)

        """
    above, _, rest = (
        dedent(script('place = "cuda"', after="print(Head(unseen())(x))"))
        .replace("--where", "--device")
        .partition("parser =")
    )
    assert "device=scores.device" in migrated(f"{above}{dedent(head).replace('COUNT', count)}parser ={rest}")


@pytest.mark.parametrize(
    "changed",
    [
        {"value": "args.where"},
        {"made": "Settings(place=args.where)"},
        {"made": "Settings(**vars(args))"},
        {"made": "load()"},
        {"more": "    def __getattr__(self, name):\n        return args.where\n"},
        {"more": "setattr(Settings, args.name, args.where)\n"},
        {"more": "Settings.place = args.where\n"},
    ],
)
def test_an_attribute_of_settings_that_may_be_set_anew_is_no_known_device(changed: dict[str, str]) -> None:
    unchanged(of_settings(**changed))


def test_a_function_that_calls_itself_hands_on_the_device_that_it_has() -> None:
    moved = "def moved(rows, device):\n    if isinstance(rows, list):\n        return [moved(row, device) for row in rows]\n"
    moved += "    return rows.to(device)\n\n\n"
    head, _, rest = dedent(script('place = "cuda"', after='moved([x], "cuda")')).partition("parser =")
    assert "Accelerator(" in migrated(f"{head}{moved}parser ={rest}")


@pytest.mark.parametrize("there", ["is_available", "is_built"])
def test_a_device_of_three_kinds_that_another_file_sets_is_handed_to_the_accelerator(there: str) -> None:
    setting = f'"cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.{there}() else "cpu"'
    train = dedent(script("from setting import PLACE", "PLACE", "print(torch.ones(1, device=PLACE))"))
    texts = {"train.py": train, "setting.py": f"import torch\nPLACE = {setting}\n"}
    results = migrate([Source.from_bytes(Path(name), text.encode()) for name, text in texts.items()], DEFAULTS)
    after = {result.path.name: result.after.decode() for result in results}["train.py"]
    assert "accelerator = Accelerator(device=PLACE)\n" in after
    assert "loss = (model(x) - y)" in after


def test_a_device_of_three_kinds_is_what_the_accelerator_takes() -> None:
    choice = '"cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_built() else "cpu"'
    assert "Accelerator()" in migrated(script(f"place = {choice}"))


def test_the_advice_for_another_device_can_be_followed() -> None:
    numbered = unchanged(script('place = "cuda"', after='mask = torch.ones(1, device=f"cuda:{args.gpu}")'))
    assert 'name it without its number, as "cuda"' in numbered
    unknown = unchanged(script('place = "cuda"', after="mask = torch.ones(1, device=unseen())"))
    assert "hand over the device that the model is moved to" in unknown


@pytest.mark.parametrize("brought", ["from setting import PLACE", "from setting import *"])
def test_what_goes_to_an_imported_device_goes_there_once_the_accelerator_has_chosen_it(brought: str) -> None:
    train = dedent(script(f"{brought}\nteacher = nn.Linear(4, 1).to(PLACE)", "PLACE", "print(teacher(x.to(PLACE)))"))
    setting = 'import torch\nPLACE = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n'
    texts = {"train.py": train, "setting.py": setting}
    results = migrate([Source.from_bytes(Path(name), text.encode()) for name, text in texts.items()], DEFAULTS)
    after = {result.path.name: result.after.decode() for result in results}["train.py"]
    assert 0 < after.find("accelerator = Accelerator(") < after.find("teacher = nn.Linear(4, 1).to(PLACE)")


BY_A_METHOD = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

class Fitting:
    def __init__(self, rate):
        self.rate = rate
        self.device = self.get_device()

    def get_device(self):
        return {chosen}

    def run(self):
        loader = DataLoader(TensorDataset(torch.randn(40, 3), torch.randn(40, 2)), batch_size=8)
        net = nn.Linear(3, 2).to(self.device)
        optimizer = torch.optim.SGD(net.parameters(), lr=self.rate)
        for x, y in loader:
            loss = nn.functional.mse_loss(net(x.to(self.device)), y.to(self.device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

Fitting(0.1).run()
"""


def test_a_method_may_choose_the_device():
    text = migrated(BY_A_METHOD.format(chosen='"cuda" if torch.cuda.is_available() else "cpu"'))
    assert "net = nn.Linear(3, 2)\n" in text and "mse_loss(net(x), y)" in text
    unchanged(BY_A_METHOD.format(chosen='"cuda:1" if self.rate > 1 else "cpu"'))


HANDED_ON = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

class Round:
    def __init__(self, net, loader, optimizer, device):
        {kept}

    def run(self):
        for x, y in self.loader:
            loss = nn.functional.mse_loss(self.net(x.to(self.device)), y.to(self.device))
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()

def main():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    net = nn.Linear(3, 2).to(device)
    loader = DataLoader(TensorDataset(torch.randn(40, 3), torch.randn(40, 2)), batch_size=8)
    Round(net, loader, torch.optim.SGD(net.parameters(), lr=0.1), device).run()

main()
"""


def test_a_device_that_is_kept_beside_others():
    text = migrated(
        HANDED_ON.format(kept="self.net, self.loader, self.optimizer, self.device = net, loader, optimizer, device")
    )
    assert "self.accelerator.prepare(" in text and "mse_loss(self.net(x), y)" in text


@pytest.mark.parametrize(
    ("asked", "loss", "bound"),
    [
        ('device == "cuda"', "nn.CrossEntropyLoss(weight=torch.ones(2))", True),
        ('"cuda" in device', "nn.CrossEntropyLoss(weight=torch.ones(2))", True),
        ('device == "cuda"', "nn.CrossEntropyLoss()", False),
        ('device != "cpu"', "nn.CrossEntropyLoss(weight=torch.ones(2))", False),
    ],
)
def test_a_loss_that_is_moved_for_cuda_alone_keeps_to_cuda_or_the_cpu(asked: str, loss: str, bound: bool):
    source = f"""
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset
        device = "cuda" if torch.cuda.is_available() else "cpu"
        criterion = {loss}
        if {asked}:
            criterion = {loss}.cuda()
        model = nn.Linear(4, 2).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loader = DataLoader(TensorDataset(torch.randn(40, 4), torch.randint(0, 2, (40,))), batch_size=8)
        for x, y in loader:
            loss = criterion(model(x.to(device)), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """
    assert ("Accelerator(cpu=not torch.cuda.is_available())" in migrated(dedent(source))) is bound


BRANCHES = """
if args.cpu:
    place = "cpu"
    args.workers = 0
else:
    place = {chosen}"""


@pytest.mark.parametrize(
    "number", ['f"cuda:{args.gpu}"', 'torch.device("cuda:%d" % args.gpu)', '"cuda:" + str(args.gpu)']
)
def test_an_if_that_chooses_a_gpu_by_an_option_and_does_more_stays_above_the_accelerator(number: str):
    result = migrated(script(BRANCHES.format(chosen=number)))
    assert f"        place = {number}\n".replace("        ", "    ") in result
    assert result.index("accelerator = Accelerator(device=place)\n") > result.index("args.workers = 0")


@pytest.mark.parametrize("number", ['f"cuda:{args.local_rank}"', 'f"cuda:{turn}"', 'f"cuda:{who()}"'])
def test_an_if_that_works_a_number_out_and_does_more_leaves_the_loop(number: str):
    source = script("turn = who() % 2" + BRANCHES.format(chosen=number))
    assert unchanged(source).startswith("`place` is set to several devices")


@pytest.mark.parametrize(
    ("asked", "read"),
    [
        ("args.device", True),
        ('options["device"]', True),
        ('options.get("device", "cpu")', True),
        ('os.environ["LOCAL_RANK"]', False),
        ("args.local_rank", False),
        ("who()", False),
    ],
)
def test_an_if_that_falls_back_to_the_cpu_from_what_a_setting_names(asked: str, read: bool):
    chosen = f"""
asked = {asked}
if asked == "cuda" and not torch.cuda.is_available():
    print("no GPU")
    place = torch.device("cpu")
else:
    place = torch.device(asked)"""
    if read:
        assert migrated(script(chosen)).index("accelerator = Accelerator(device=place)\n")
    else:
        assert "several devices" in unchanged(script(chosen))


CHOSEN_IN_MAIN = """
    import argparse, torch
    from torch import nn

    place = None

    def train(model, loader, optimizer):
        for x, y in loader:
            x, y = x.to(place), y.to(place)
            loss = (torch.ones(1, device=place) * (model(x) - y)).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    def main():
        global place
        parser = argparse.ArgumentParser()
        parser.add_argument("--cpu", action="store_true")
        parser.add_argument("--gpu", type=int, default=0)
        args = parser.parse_args()
        if args.cpu:
            place = torch.device("cpu")
        else:
            place = torch.device(f"cuda:{args.gpu}")
        loader = torch.utils.data.DataLoader(data(), batch_size=4)
        model = nn.Linear(4, 1).to(place)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        train(model, loader, optimizer)

    main()
    """


def test_a_device_that_is_none_until_main_chooses_is_that_of_main():
    result = migrated(CHOSEN_IN_MAIN)
    assert "place = None\n" in result
    assert "    accelerator = Accelerator(device=place)\n    place = accelerator.device\n" in result
    assert ".to(place)" not in result and "torch.ones(1, device=place)" in result


def test_a_device_that_two_functions_choose_leaves_the_loop():
    second = "    def other():\n        global place\n        place = 'cuda:1'\n\n    def main():\n"
    assert "several devices" in unchanged(CHOSEN_IN_MAIN.replace("    def main():\n", second))


def test_a_text_that_is_made_a_device_of_after_it_was_asked() -> None:
    chosen = 'device = "cuda" if torch.cuda.is_available() else "cpu"\nif device == "cuda":\n    print("fast")\n'
    plain = 'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n'
    text = migrated(training().replace(plain, f"{chosen}device = torch.device(device)\n"))
    assert "accelerator = Accelerator(" in text and "model = nn.Linear(3, 2)\n" in text
    other = unchanged(training().replace(plain, f"{chosen}device = torch.device(other)\n"))
    assert "is set to several devices" in other


def test_an_accelerator_in_front_of_a_definition_leaves_its_blank_lines_to_it():
    between = '\n\n\n# by hand\ndef total(values):\n    return sum(values)\n\n\nprint("ready")'
    result = migrated(script(BRANCHES.format(chosen='f"cuda:{args.gpu}"') + between))
    assert "accelerator = Accelerator(device=place)\n\n\n# by hand\ndef total" in result


EACH_KIND = """
    import argparse
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset
    parser = argparse.ArgumentParser()
    parser.add_argument("--slow", action="store_true")
    args = parser.parse_args()
    fast = not args.slow and torch.accelerator.is_available()
    if fast:
        device = torch.accelerator.current_accelerator()
    else:
        device = torch.device("cpu")
    model = nn.Linear(4, 2).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(TensorDataset(torch.randn(40, 4), torch.randint(0, 2, (40,))), batch_size=8)
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    def look(held_out):
        if fast:
            device = torch.accelerator.current_accelerator()
        else:
            device = torch.device("cpu")
        for x, y in held_out:
            if fast:
                if device.type == "cuda":
                    x, y = x.cuda(non_blocking=True), y.cuda(non_blocking=True)
                else:
                    {other}
            print(model(x).max(), y)
            break

    look(DataLoader(TensorDataset(torch.randn(40, 4), torch.randint(0, 2, (40,))), batch_size=8))
"""


def test_batches_that_each_kind_of_gpu_gets_by_a_move_of_its_own():
    moved = migrated(EACH_KIND.format(other="x, y = x.to(device), y.to(device)"))
    assert "Accelerator(cpu=args.slow)" in moved
    unchanged(EACH_KIND.format(other="pass"))


def test_options_that_are_parsed_in_the_call_and_shown():
    source = """
    import argparse
    import torch
    from torch import nn
    from torch.utils.data import DataLoader


    def main(chosen):
        print(chosen)
        device = torch.device(chosen.device)
        model = nn.Linear(2, 1).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x, y in DataLoader(rows, batch_size=4):
            loss = nn.functional.mse_loss(model(x.to(device)), y.to(device))
            loss.backward()
            optimizer.step()


    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    main(parser.parse_args())
    """
    assert "Accelerator(device=chosen.device)" in migrated(source)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("1", '"cuda:1"'),
        ('"cuda:1"', '"cuda:1"'),
        ("chosen", '"cuda:2"'),
        ("args.gpu", 'f"cuda:{args.gpu}"'),
        ("0", ""),
        ('"cuda"', ""),
    ],
)
def test_the_gpu_that_a_script_makes_the_current_one_is_the_accelerators(given: str, told: str) -> None:
    source = f"""
    import argparse
    import torch
    from torch import nn
    from torch.utils.data import DataLoader

    parser = argparse.ArgumentParser()
    parser.add_argument("--gpu", type=int, default=0)
    args = parser.parse_args()
    chosen = 2
    torch.cuda.set_device({given})
    model = nn.Linear(2, 1).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in DataLoader(rows, batch_size=4):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x.cuda()), y.cuda()).backward()
        optimizer.step()
    """
    assert f"accelerator = Accelerator({'device=' if told else ''}{told})\n" in migrated(source)
    asked = source.replace(f"torch.cuda.set_device({given})", f"if rows:\n        torch.cuda.set_device({given})")
    if told:
        assert "the Accelerator would not know of it" in unchanged(asked)
    else:
        migrated(asked)


def test_a_trainer_takes_its_device_from_under_a_key() -> None:
    trainer = """
        import torch
        from torch import nn

        class Trainer:
            def __init__(self, config):
                self.config = config
                self.device = self.config["run"]["device"]
                self.net = nn.Linear(4, 1).to(self.device)
                self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
                self.loader = torch.utils.data.DataLoader(rows(), batch_size=4)

            def train(self):
                for x, y in self.loader:
                    loss = (self.net(x.to(self.device)) - y.to(self.device)).pow(2).mean()
                    self.optimizer.zero_grad()
                    loss.backward()
                    self.optimizer.step()

        Trainer(load()).train()
        """
    text = migrated(trainer)
    assert 'self.accelerator = Accelerator(device=self.config["run"]["device"])' in text
    assert "self.net = nn.Linear(4, 1)\n" in text
    assert "loss = (self.net(x) - y).pow(2)" in text


def test_a_device_that_a_file_which_was_not_given_sets_is_a_device():
    source = training(functions="from config import DEVICE").replace("device)", "DEVICE)")
    assert "`DEVICE` may name another device" in unchanged(
        "\n".join(line for line in source.split("\n") if not line.startswith("device ="))
    )


def test_a_type_that_the_model_takes_on_is_no_device():
    source = training(ready="half = torch.float16\nmodel.to(half)", inside="z = x.to(half)")
    becomes(source, "model.to(half)")
    becomes(source, "z = x.to(half)")


def test_a_model_that_is_only_logged_before_prepare_needs_no_move():
    source = training(functions="import logging", ready="logging.info(model)\nlogging.getLogger(__name__).info(model)")
    becomes(source, "model = nn.Linear(3, 2)")


def test_what_is_made_where_a_buffer_is_goes_along_with_the_model():
    functions = """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(3, 2)
                self.register_buffer("mean", torch.zeros(3))

            def forward(self, x):
                return self.layer(x - self.mean) + self.noise()

            def noise(self):
                return torch.randn(2, device=self.mean.device)
        """
    source = training(functions=functions).replace("model = nn.Linear(3, 2)", "model = Net()")
    becomes(source, "model = Net()")


def test_what_settings_of_unknown_make_name_is_no_tensor_s_device():
    functions = (
        "class Settings:\n    def __init__(self):\n        self.base = torch.load('run')\nsettings = Settings()\n"
    )
    source = training(functions=functions, inside="z = torch.zeros(3, device=settings.base.device)")
    assert "`settings.base.device` may name another device" in unchanged(source)


def test_a_type_of_cuda_tensors_alone_is_no_choice_of_a_device():
    source = training(functions="kind = torch.cuda.FloatTensor", inside="z = kind(3)").replace(".to(device)", ".cuda()")
    becomes(source, "accelerator = Accelerator()")


@pytest.mark.parametrize(
    ("ready", "inside"),
    [("model.double()", "pass"), ("torch.set_default_dtype(torch.float64)", "pass"), ("pass", "x = x.double()")],
)
def test_numbers_of_64_bits_stay_off_a_gpu_that_has_none(ready: str, inside: str):
    assert "Accelerator()" in migrated(training(ready="pass", inside="y = y.long()"))
    assert "Accelerator(cpu=not torch.cuda.is_available())" in migrated(training(ready=ready, inside=inside))
    nowhere = training(ready=ready, inside=inside).replace(".to(device)", "").replace("device = ", "# ")
    assert "Accelerator(cpu=True)" in migrated(nowhere)
    assert any("computes with numbers of 64 bits (line " in each for each in notes(nowhere))
