"""Where the Accelerator is made, and what is printed once because of it."""

from __future__ import annotations

import ast

import pytest

from tests.migrate.analysis.reading import BUILT, TRAINED, refusal, training

CHOICE = 'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")'
WITHOUT = TRAINED.replace("        x, y = x.to(device), y.to(device)\n", "")


def start(text: str) -> str:
    """The statement that the Accelerator is made before, or in place of; `after: ` where it comes right after."""
    found = training(text, prints_once=True).start
    code = found.module.source.code(found.statement).splitlines()[0]
    return f"after: {code}" if found.at_prepare else code


def printed(text: str) -> list[str]:
    return [ast.unparse(call) for _, call in training(text, prints_once=True).prints]


def test_takes_the_place_of_the_choice_of_a_device() -> None:
    assert start(BUILT + TRAINED) == CHOICE


def test_is_made_right_before_prepare_where_no_device_is_chosen() -> None:
    text = BUILT.replace(CHOICE, "").replace(".to(device)", "") + WITHOUT
    assert start(text).startswith("after: optimizer =")


def test_is_made_before_what_needs_its_device() -> None:
    text = BUILT.replace(CHOICE, "table = torch.ones(4).cuda()").replace(".to(device)", "") + WITHOUT
    assert start(text) == "table = torch.ones(4).cuda()"


def test_is_made_before_the_last_object_when_that_needs_its_device() -> None:
    text = BUILT.replace(CHOICE, "").replace(".to(device)", "").replace("lr=0.1", "lr=torch.tensor(0.1).cuda()")
    assert start(text + WITHOUT).startswith("optimizer =")


@pytest.mark.parametrize("line", ["print('data')", "print(model)\nprint('ready')"])
def test_is_made_before_the_first_print(line: str) -> None:
    assert (
        start(BUILT.replace("loader =", f"{line}\nloader =").replace(CHOICE, f"n = 1\n{line}\n{CHOICE}") + TRAINED)
        == (line.splitlines()[0])
    )


def test_is_made_beside_the_device_where_the_launcher_shows_one_process() -> None:
    found = training(BUILT.replace(CHOICE, f"print('data')\n{CHOICE}") + TRAINED + "print('end')\n")
    assert found.start.module.source.code(found.start.statement) == CHOICE and not found.prints


def test_is_made_before_a_function_that_uses_it_is_called() -> None:
    helper = "def noise():\n    return torch.ones(4).cuda()\nfirst = noise()\nimport numpy\n"
    text = BUILT.replace(CHOICE, helper).replace(".to(device)", "") + WITHOUT
    assert start(text) == "first = noise()"


def test_is_left_where_it_is_needed_before_its_options_are_known() -> None:
    text = (
        BUILT.replace(CHOICE, "")
        .replace(".to(device)", "")
        .replace("loader =", "x = torch.ones(4).to('cuda')\nloader =")
    )
    text += "args = parser.parse_args()\nif args.cuda:\n    model.cuda()\n" + WITHOUT
    assert "before the options" in refusal(text)


def test_is_made_after_the_arguments_are_parsed() -> None:
    text = BUILT.replace(CHOICE, f"print('hello')\nargs = parser.parse_args()\nprint(args)\n{CHOICE}")
    assert start(text + TRAINED) == "print(args)"
    assert printed(text + TRAINED) == ["print(args)"]


def test_is_made_after_the_options_that_it_reads() -> None:
    choice = "flag = ask()\nprint(flag)\ndevice = torch.device('cpu' if flag else 'cuda')"
    assert start(BUILT.replace(CHOICE, choice) + TRAINED) == "print(flag)"


@pytest.mark.parametrize(
    "call", ["print('x', file=log)", "log(print)", "value = print('x')", "printer.print('x')", "pprint('x')"]
)
def test_is_not_a_print_to_hold_back(call: str) -> None:
    assert printed(BUILT + TRAINED + call + "\n") == []


def test_a_print_of_its_own_name_is_the_scripts() -> None:
    assert printed("def print(*a): ...\n" + BUILT + TRAINED + "print('x')\n") == []


def test_a_function_that_runs_before_goes_on_printing_by_itself() -> None:
    text = BUILT.replace(CHOICE, "def note():\n    print('x')\nnote()\n" + CHOICE)
    assert printed(text + TRAINED) == []
    assert printed(text.replace("\nnote()\n", "\n") + TRAINED + "note()\n") == ["print('x')"]


def test_a_function_that_builds_all_prints_once_through_a_global() -> None:
    imports, objects = (BUILT.replace(CHOICE, "") + TRAINED).split("\n\n", 1)
    body = "".join(f"    {line}\n" for line in objects.splitlines())
    text = f"{imports}\n{CHOICE}\n\ndef main():\n{body}    print('done')\n\nmain()\n"
    assert printed(text) == ["print('done')"]


def test_is_made_before_a_print_inside_the_last_thing_before_prepare() -> None:
    text = BUILT.replace(CHOICE, "").replace(".to(device)", "")
    late = "if resume:\n    print('resumed')\n    model.load_state_dict(state)\n"
    assert start(text + late + WITHOUT) == "if resume:"
    assert printed(text + late + WITHOUT) == ["print('resumed')"]


SPAWNED = """
import torch, torch.distributed as dist, torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

def run(number, count, node):
    tag = 'run'
    {above}
    dist.init_process_group("gloo", world_size=count, rank=number)
    model = DistributedDataParallel(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in torch.utils.data.DataLoader(data):
        loss = (model(x) - y).pow(2).mean()
        loss.backward()
        optimizer.step()

count = 2
mp.spawn(run, nprocs=count, args=(count, 0))
"""


@pytest.mark.parametrize(
    "above", ["node = node * count + number", "if number != 0:\n        tag = ''", "for _ in range(count): pass"]
)
def test_is_made_before_a_spawned_function_reads_what_it_was_told(above: str) -> None:
    assert start(SPAWNED.format(above=above)) == above.splitlines()[0]


@pytest.mark.parametrize(
    "override",
    [
        "exec(open('settings.py').read())",
        "for word in words:\n    globals()[word] = 1",
        "globals().update(settings)",
        "vars().update(settings)",
        "names = globals()\nnames.update(settings)",
        "def read():\n    globals().update(settings)\nread()",
    ],
)
def test_is_made_after_what_may_set_any_name(override: str) -> None:
    choice = CHOICE + "\nseed = 0\n" + override
    found = training(BUILT.replace(CHOICE, choice) + TRAINED)
    assert found.start.statement.lineno > found.start.module.source.text[
        : found.start.module.source.text.index("loader =")
    ].count("\n")
    assert found.device is None and found.given is not None, "what was overridden is asked, not replaced"


def test_an_instance_that_sets_its_own_attributes_sets_no_names() -> None:
    module = "class Net(nn.Module):\n    def __init__(self):\n        setattr(self, 'layer', nn.Linear(4, 2))\n\n"
    text = BUILT.replace("model = nn.Linear(4, 2)", "model = Net()").replace(CHOICE, module + CHOICE)
    assert start(text + TRAINED) == CHOICE


def test_a_spawned_function_that_cannot_ask_the_accelerator_is_left() -> None:
    trainer = """
        import torch, torch.multiprocessing as mp
        from torch import nn
        from torch.nn.parallel import DistributedDataParallel

        class Trainer:
            def __init__(self, number):
                self.model = DistributedDataParallel(nn.Linear(4, 1).to(number))
                self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
                self.loader = torch.utils.data.DataLoader(data)

            def fit(self):
                for x, y in self.loader:
                    loss = (self.model(x) - y).sum()
                    loss.backward()
                    self.optimizer.step()

        def run(number, count):
            torch.distributed.init_process_group("gloo", rank=number, world_size=count)
            log = open(f"log{number}.txt", "w")
            Trainer(number).fit()

        count = 2
        mp.spawn(run, nprocs=count, args=(count,))
        """
    assert "run() is spawned and reads `number`" in refusal(trainer)


def test_is_left_where_it_is_needed_before_any_name_may_be_set() -> None:
    text = BUILT.replace(CHOICE, f"{CHOICE}\ntable = torch.ones(4).cuda()\nexec(settings)")
    assert "before the options" in refusal(text + TRAINED)


def _indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())


IMPORTS, OBJECTS = BUILT.replace(CHOICE, "").replace(".to(device)", "").split("\n\n", 1)


def test_is_made_outside_of_a_loop_over_seeds() -> None:
    text = f"{IMPORTS}\nloader = DataLoader(data)\nfor seed in range(3):\n" + _indented(OBJECTS + WITHOUT)
    found = training(text)
    assert start(text) == "for seed in range(3):"
    assert found.place.after.col_offset == 4


def test_is_made_above_a_choice_to_train_when_more_follows_it() -> None:
    text = f"{IMPORTS}\nmodel = nn.Linear(4, 2)\nif wanted:\n" + _indented(
        OBJECTS.replace("model = nn.Linear(4, 2)\n", "") + WITHOUT
    )
    assert start(text) == "if wanted:"
    assert printed(text + "print('end')\n") == ["print('end')"]


def test_is_left_where_its_options_are_set_in_each_round() -> None:
    inner = OBJECTS + "args = parser.parse_args()\nif args.cuda:\n    model.cuda()\n" + WITHOUT
    assert "further in" in refusal(f"{IMPORTS}\nfor seed in range(3):\n" + _indented(inner))


def _with_main(loader: str, more: str = "") -> str:
    imports, objects = (BUILT.replace(CHOICE, "") + TRAINED).split("\n\n", 1)
    body = _indented(objects.replace("DataLoader(data, batch_size=4)", loader))
    return f"{imports}\n{CHOICE}\n\ndef main():\n{body}{more}\n\nif __name__ == '__main__':\n    main()\n"


@pytest.mark.parametrize("how", ["'spawn'", "context"])
def test_is_made_in_main_when_workers_import_the_file(how: str) -> None:
    text = _with_main(f"DataLoader(data, num_workers=2, multiprocessing_context={how})")
    assert training(text).creation.is_function
    assert training(_with_main("DataLoader(data)")).creation.parent is None


def test_is_made_in_main_when_another_file_imports_this_one() -> None:
    other = "# other.py\nfrom train import main\n"
    assert training(_with_main("DataLoader(data)"), other).creation.is_function


def test_a_global_device_that_is_still_read_stays_global() -> None:
    text = _with_main("DataLoader(data, multiprocessing_context='spawn')", "    torch.ones(1, device=device)\n")
    assert training(text).creation.parent is None


NAMED = "os.environ['CUDA_VISIBLE_DEVICES'] = gpu"


@pytest.mark.parametrize("named", [NAMED, "choose(gpu)"])
def test_is_made_after_the_gpus_are_named(named: str) -> None:
    helper = f"import os\ndef choose(gpu):\n    {NAMED}\n"
    text = BUILT.replace(CHOICE, f"{helper}print('begins')\n{named}\nprint('named')").replace(".to(device)", "")
    assert start(text + WITHOUT) == "print('named')"


def test_is_not_made_where_it_is_needed_before_the_gpus_are_named() -> None:
    text = BUILT.replace(CHOICE, f"import os\ntable = torch.ones(4).cuda()\n{NAMED}").replace(".to(device)", "")
    assert "or the GPUs named" in refusal(text + WITHOUT)
