"""What decides on the device, and the wish for the CPU that a script may have."""

from __future__ import annotations

import pytest

from tests.migrate.analysis.reading import BUILT, TRAINED, dropped, kept, refusal, training

CHOICE = 'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")'


def with_choice(choice: str) -> str:
    return BUILT.replace(CHOICE, choice) + TRAINED


@pytest.mark.parametrize(
    ("choice", "wish"),
    [
        (CHOICE, None),
        ("device = 'cuda' if torch.cuda.is_available() else 'cpu'", None),
        ("device = 'cuda:0'", None),
        ("device = torch.device('cuda') if torch.cuda.is_available() else torch.device('cpu')", None),
        ("if torch.cuda.is_available():\n    device = 'cuda'\nelse:\n    device = 'cpu'", None),
        ("device = torch.device('cpu')", "True"),
        ("device = torch.device('cpu' if args.cpu else 'cuda')", "args.cpu"),
        ("device = torch.device('cuda' if args.cuda else 'cpu')", "not args.cuda"),
        ("device = torch.device('cuda' if torch.cuda.is_available() and not args.no_cuda else 'cpu')", "args.no_cuda"),
        ("use = not args.cpu and torch.cuda.is_available()\ndevice = 'cuda' if use else 'cpu'", "args.cpu"),
        ("device = 'cpu' if not torch.cuda.is_available() else 'cuda'", None),
        ("use = True if torch.cuda.is_available() else False\ndevice = 'cuda' if use else 'cpu'", None),
        ("device = 'cuda' if bool(torch.cuda.is_available()) or args.force else 'cpu'", None),
        ("device = 'cpu' if args.where is None else 'cuda'", "args.where is None"),
        (
            "if args.a:\n    device = 'cuda'\nelif args.b:\n    device = 'cuda'\nelse:\n    device = 'cpu'",
            "not args.a and not args.b",
        ),
    ],
)
def test_a_wish_for_the_cpu_is_kept_and_availability_is_not(choice: str, wish: str | None) -> None:
    found = training(with_choice(choice))
    assert found.device is not None
    assert found.start.cpu == wish


@pytest.mark.parametrize(
    ("choice", "named", "stays"),
    [
        ("device = torch.device(args.device)", "args.device", False),
        ("device = torch.device(sys.argv[1])", "sys.argv[1]", False),
        ("device = torch.device('cuda:1')", "'cuda:1'", False),
        ("device = torch.device('cuda', 1)", "torch.device('cuda', 1)", False),
        ("device = f'cuda:{args.gpu}'", "f'cuda:{args.gpu}'", False),
        ("device = 'cuda:{}'.format(n) if n >= 0 else 'cpu'", "'cuda:{}'.format(n) if n >= 0 else 'cpu'", False),
        ("def pick(n):\n    return torch.device(n)\ndevice = pick(args.gpu)", "pick(args.gpu)", False),
        ("if args.gpu < 0:\n    device = 'cpu'\nelse:\n    device = f'cuda:{args.gpu}'", "device", True),
        ("if args.gpu:\n    device = 'cuda'\n    print('fast')\nelse:\n    device = 'cpu'", "device", True),
        ("if args.gpu:\n    device = 'cuda'\nelse:\n    torch.set_num_threads(2)\n    device = 'cpu'", "device", True),
        ("device = 'cpu'\nif args.gpu is not None:\n    device = f'cuda:{args.gpu}'", "device", True),
    ],
)
def test_a_device_that_the_user_picks_is_the_accelerators(choice: str, named: str, stays: bool) -> None:
    found = training(with_choice("import sys\n" + choice))
    assert (found.start.device, found.start.stays, found.start.cpu) == (named, stays, None)


@pytest.mark.parametrize(
    "choice",
    [
        "device = torch.device('cuda', int(os.environ['LOCAL_RANK']))",
        "local_rank = int(os.environ['LOCAL_RANK'])\ndevice = f'cuda:{local_rank}'",
    ],
)
def test_the_device_of_a_process_is_no_choice(choice: str) -> None:
    found = training(with_choice("import os\n" + choice))
    assert (found.start.device, found.start.cpu) == (None, None)


@pytest.mark.parametrize(
    ("choice", "wish"),
    [
        ("device = 'cpu'\nif torch.cuda.is_available():\n    device = 'cuda'", None),
        ("device = 'cpu'\nif torch.cuda.is_available() and args.gpu:\n    device = 'cuda'", "not args.gpu"),
        ("device = torch.device('cuda')\nif args.cpu:\n    device = torch.device('cpu')", "args.cpu"),
        ("device = 'cuda'\nprint(device)\ndevice = 'cuda'", None),
    ],
)
def test_a_device_that_is_chosen_in_two_steps_is_one_choice(choice: str, wish: str | None) -> None:
    found = training(with_choice(choice))
    assert found.device is not None and len(found.device.later) == 1
    assert found.start.cpu == wish


@pytest.mark.parametrize(
    "choice",
    [
        "device = 'cuda:0'\nif two:\n    device = 'cuda:1'",
        "device = 'cuda'\ndef f():\n    global device\n    device = 'cpu'",
    ],
)
def test_a_device_that_changes_is_left(choice: str) -> None:
    assert "several devices" in refusal(with_choice(choice))


def test_a_device_that_is_kept_by_name_is_asked_for_by_its_type() -> None:
    text = with_choice("device = 'cuda' if torch.cuda.is_available() else 'cpu'")
    asked = text + "if device == 'cuda' or device.startswith('xpu') or 'mps' in device:\n    speak(device)\n"
    assert len(training(asked).device_texts) == 3
    assert training(asked.replace("'cuda' if torch", "torch.device('cuda') if torch")).device_texts == ()


def test_a_guard_around_cuda_calls_is_a_wish_too() -> None:
    text = BUILT.replace(CHOICE, "").replace(".to(device)", "") + "if args.cuda:\n    model.cuda()\n"
    assert (
        training(text + TRAINED.replace("        x, y = x.to(device), y.to(device)\n", "")).start.cpu == "not args.cuda"
    )


def test_the_other_branch_of_a_guard_is_one_as_well() -> None:
    text = BUILT.replace(CHOICE, "").replace(".to(device)", "") + "if args.cpu:\n    pass\nelse:\n    model.cuda()\n"
    text += TRAINED.replace("        x, y = x.to(device), y.to(device)\n", "")
    assert training(text).start.cpu == "args.cpu"


@pytest.mark.parametrize("name", ["args.device", "opt.device", "cfg.device"])
def test_a_device_from_the_command_line_is_set_anew_where_it_is_still_read(name: str) -> None:
    options = name.removesuffix(".device") + " = parse()"
    text = BUILT.replace(CHOICE, options).replace("device)", f"{name})") + TRAINED.replace("device)", f"{name})")
    assert training(text).rebound == (), "nothing reads it any more"
    read = text.replace("optimizer =", f"weight = torch.ones(2, device={name})\noptimizer =")
    assert training(read).rebound == (f"{name} = str(accelerator.device)",)
    assert training(read).start.device == name


def test_a_device_that_is_compared_with_a_name_is_left() -> None:
    text = BUILT.replace(CHOICE, "args = parse()").replace("device)", "args.device)")
    text += TRAINED.replace("device)", "args.device)")
    assert "compared" in refusal(text + "if args.device == 'cuda':\n    torch.cuda.synchronize()\n")
    asked = training(text + "if args.device != 'cpu':\n    torch.cuda.synchronize()\n")
    assert asked.rebound == ("args.device = str(accelerator.device)",)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("str(device) == 'cuda'", ["device"]),
        ("'cuda' != str(device)", ["device"]),
        ("str(device) == 'cpu'", []),
        ("'cuda' in str(device)", []),
        ("device == 'cuda'", []),
        ("device != torch.device('cpu')", []),
    ],
)
def test_a_device_with_a_number_is_asked_for_its_type(asked: str, told: list[str]) -> None:
    read = training(BUILT + f"if {asked}:\n    torch.backends.cudnn.benchmark = True\n" + TRAINED)
    assert [module.source.code(node) for module, node in read.device_texts] == told


def test_a_device_that_is_compared_with_one_without_a_number_is_left() -> None:
    text = BUILT + "if device == torch.device('cuda'):\n    torch.backends.cudnn.benchmark = True\n" + TRAINED
    assert "ask for its type" in refusal(text)


def test_a_parameter_with_a_device_is_set_anew() -> None:
    body = (BUILT.split("\n\n")[1].replace(CHOICE, "noise = torch.randn(4, device=device)") + TRAINED).splitlines()
    text = BUILT.split("\n\n")[0] + "\ndef main(device='cuda:0'):\n" + "".join(f"    {line}\n" for line in body)
    assert training(text + "main()\n").rebound == ("device = accelerator.device",)


@pytest.mark.parametrize(
    "move",
    ["x.to(torch.float16)", "x.to(other)", "x.to('cpu')", "x.to(cpu)", "x.to(x.device)", "x.cpu()", "to(device)"],
)
def test_is_no_move(move: str) -> None:
    text = BUILT + "cpu = torch.device('cpu')\n" + TRAINED + f"result = {move}\n"
    assert move not in [*kept(text), *dropped(text)]


def test_a_models_move_stays_where_a_copy_is_taken_of_it() -> None:
    text = BUILT + "average = copy.deepcopy(model)\n" + TRAINED
    assert kept(text) == ["nn.Linear(4, 2).to(device)"]


def test_a_models_move_stays_where_the_model_runs_first() -> None:
    run = "shape = model(torch.zeros(1, 4, device=device)).shape\noptimizer ="
    assert kept(BUILT.replace("optimizer =", run) + TRAINED) == ["nn.Linear(4, 2).to(device)"]


def test_a_models_move_goes_with_what_only_wraps_it() -> None:
    assert "nn.Linear(4, 2).to(device)" in dropped(BUILT + "model = torch.compile(model)\n" + TRAINED)
