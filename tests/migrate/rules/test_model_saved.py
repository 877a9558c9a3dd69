"""AM501: weights are saved once, and by names that any number of processes can load."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import dedent, indent

import pytest
from accel_migrate.pipeline import migrate
from accel_migrate.settings import DEFAULTS
from accel_migrate.source import Source

from tests.migrate.rules.handwritten import script
from tests.migrate.rules.scripts import becomes, codes, stays, training
from tests.migrate.rules.verbs import ACCELERATE, migrated, noted, notes, unchanged


def test_saves_weights_through_the_accelerator():
    becomes(
        training(after='torch.save(model.state_dict(), "model.pt")'),
        'accelerator.save(accelerator.get_state_dict(model), "model.pt")',
    )


def test_takes_weights_out_of_a_dictionary():
    becomes(
        training(after='torch.save({"model": model.state_dict(), "opt": optimizer.state_dict()}, "c.pt")'),
        'accelerator.save({"model": accelerator.get_state_dict(model), "opt": optimizer.state_dict()}, "c.pt")',
    )


def test_saves_a_whole_model_without_its_wrapper():
    source = training(after='torch.save(model, "m.pt")')
    becomes(source, 'accelerator.save(accelerator.unwrap_model(model), "m.pt")', ACCELERATE)
    becomes(source, 'accelerator.save(model, "m.pt")')


def test_guards_a_file_that_is_opened_by_hand():
    source = training(after='with open("m.pt", "wb") as f:\n    torch.save(model, f)')
    guarded = """
        if accelerator.is_main_process:
            with open("m.pt", "wb") as f:
                torch.save({}, f)
        """
    becomes(source, guarded.format("model"))
    becomes(source, guarded.format("accelerator.unwrap_model(model)"), ACCELERATE)


def test_collects_weights_in_front_of_a_guard():
    becomes(
        training(after='torch.save(model.state_dict(), "m.pt", pickle_protocol=4)'),
        """
        model_state = accelerator.get_state_dict(model)
        if accelerator.is_main_process:
            torch.save(model_state, "m.pt", pickle_protocol=4)
        """,
    )


def test_collects_the_state_of_an_optimizer_in_front_of_a_guard():
    state = '{"net": model.state_dict(), "opt": optimizer.state_dict()}'
    collected = """
        model_state = accelerator.get_state_dict(model)
        optimizer_state = optimizer.state_dict()
        if accelerator.is_main_process:
        """
    becomes(training(after=f'torch.save({state}, "c.pt", pickle_protocol=4)'), collected)
    becomes(
        training(functions="import pickle", after=f'with open("c", "wb") as f:\n    pickle.dump({state}, f)'), collected
    )
    body = f"if dist.get_rank() == 0:\n                torch.save({state}, 'c.pt')"
    result = migrated(script(body=body))
    assert "optimizer_state = optimizer.state_dict()\n        if accelerator.is_main_process:" in result


def test_notes_a_model_that_is_saved_as_an_object():
    assert "where its weights are sharded" in noted(training(after='torch.save({"net": model}, "m.pt")'), "AM501")
    assert not [note for note in notes(training(after='torch.save(model.state_dict(), "m.pt")')) if "sharded" in note]


@pytest.mark.parametrize(("saved", "told"), [("model", True), ("model.module", False)])
def test_says_that_objects_saved_so_far_are_inside_of_a_wrapper(saved: str, told: bool):
    source = training(ready="model = nn.DataParallel(model)", after=f"torch.save({saved}, 'm.pt')")
    assert ("may hold it inside a DataParallel" in noted(source, "AM501")) == told


def test_hands_the_accelerator_to_a_function_that_saves():
    helper = "import torch\ndef keep(net, path):\n    torch.save(net.state_dict(), path)\n"
    main = f"def main():\n{indent(training(after='keep(model, path)'), '    ')}\nmain()\n"
    becomes(helper + main, "def keep(net, path, accelerator):\naccelerator.save(accelerator.get_state_dict(net), path)")


def test_hands_nothing_to_a_property_that_gives_a_function():
    """The function that it gives takes what it took."""
    given = "        return lambda net, path: torch.save(net.state_dict(), path)\n"
    helper = f"import torch\nclass Tools:\n    @property\n    def keep(self):\n{given}"
    main = f"def main():\n    tools = Tools()\n{indent(training(after='tools.keep(model, path)'), '    ')}\nmain()\n"
    for target in (DEFAULTS, ACCELERATE):
        assert "(AM970)" in unchanged(helper + main, target)


def test_keeps_a_save_that_comes_before_prepare():
    stays(
        training(ready='torch.save(model.state_dict(), "init.pt")\nmodel.requires_grad_(True)'),
        'torch.save(model.state_dict(), "init.pt")',
    )


def test_keeps_a_save_into_memory():
    stays(training(after="buffer = io.BytesIO()\ntorch.save(total, buffer)"), "torch.save(total, buffer)")


def test_keeps_the_state_of_something_else():
    stays(
        training(ready="other = nn.Linear(2, 2)", after="weights = other.state_dict()"), "weights = other.state_dict()"
    )


def test_keeps_a_method_of_the_same_name():
    stays(training(after='store.save(model, "m.pt")'), 'store.save(model, "m.pt")')


def test_keeps_a_script_that_only_saves():
    unchanged('import torch\nmodel = torch.nn.Linear(1, 1)\ntorch.save(model.state_dict(), "m.pt")\n')


def test_says_nothing_without_a_save():
    assert "AM501" not in codes(training())


GUARDED = """
    import os
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel as DDP

    dist.init_process_group("nccl")
    rank = int(os.environ["RANK"])
    loader = torch.utils.data.DataLoader(data(), batch_size=4)
    model = DDP(torch.nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    best = 0
    for epoch in range(4):
        for x, y in loader:
            loss = torch.nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if {test}:
            {line}
            torch.save({{"model": model.module.state_dict()}}, "m.pt")
    """


def test_a_function_that_names_what_it_saves_runs_on_every_process():
    script = GUARDED.format(test="rank == 0 and epoch % 2 == 0", line="keep(epoch)")
    script = script.replace('        torch.save({"model": model.module.state_dict()}, "m.pt")\n', "")
    function = (
        "def keep(epoch):\n        kept = {'model': model.module.state_dict(), 'epoch': epoch}\n"
        "        torch.save(kept, 'm.pt')\n\n    dist.init"
    )
    becomes(
        script.replace("dist.init", function, 1),
        "kept = {'model': accelerator.get_state_dict(model), 'epoch': epoch}\n    accelerator.save(kept, 'm.pt')",
    )


def test_all_collect_weights_when_a_guard_asks_for_more_than_the_main_process():
    becomes(
        GUARDED.format(test="rank == 0 and epoch % 2 == 0", line="print(epoch)"),
        "if epoch % 2 == 0:\n    model_state = accelerator.get_state_dict(model)\n"
        "if accelerator.is_main_process and epoch % 2 == 0:",
    )


def test_what_one_guard_saves_is_collected_under_one_condition():
    becomes(
        GUARDED.format(test="rank == 0 and epoch % 2 == 0", line='kept = {"opt": optimizer.state_dict()}'),
        "if epoch % 2 == 0:\n    optimizer_state = optimizer.state_dict()\n"
        "    model_state = accelerator.get_state_dict(model)\nif accelerator.is_main_process and epoch % 2 == 0:",
    )


@pytest.mark.parametrize(
    ("test", "line"),
    [
        ("rank == 0 and score > best", "best = score"),  # what is best, the main process alone knows
        ("rank == 0 and ask()", "pass"),
        ("rank == 0 or epoch % 2 == 0", "pass"),
        ("not several or (several and rank % 2 == 0)", "pass"),
    ],
)
def test_what_only_the_main_process_can_ask_is_not_asked_of_all(test: str, line: str):
    becomes(
        GUARDED.format(test=test, line=line),
        "optimizer.step()\nmodel_state = accelerator.get_state_dict(model)\nif ",
    )


def test_all_collect_weights_above_a_guard_further_out():
    becomes(
        GUARDED.format(test="rank == 0", line="pass").replace(
            "torch.save(", "if epoch > 1:\n                torch.save("
        ),
        """
        if epoch > 1:
            model_state = accelerator.get_state_dict(model)
        if accelerator.is_main_process:
            pass
            if epoch > 1:
                accelerator.save({"model": model_state}, "m.pt")
        """,
    )


def test_another_name_of_the_model_is_collected_too():
    becomes(
        training(ready="bare = model", after='torch.save(bare.state_dict(), "m.pt")'),
        'accelerator.save(accelerator.get_state_dict(bare), "m.pt")',
    )


def test_a_part_of_the_model_is_collected_too():
    net = "class Net(nn.Module):\n    def __init__(self):\n        self.body = nn.Linear(3, 2)\n"
    source = training(functions=net, after='torch.save(model.body.state_dict(), "m.pt")')
    source = source.replace("nn.Linear(3, 2).to", "Net().to")
    becomes(source, 'accelerator.save(accelerator.get_state_dict(model.body), "m.pt")')
    bare = "accelerator.unwrap_model(model).body"
    becomes(source, f'accelerator.save(accelerator.get_state_dict({bare}), "m.pt")', ACCELERATE)


KEEPS = """
import torch
from torch import nn
class Base(nn.Module):
    def keep(self, path):
        torch.save(self.state_dict(), f=path)
class Net(Base):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(3, 2)
    def keep(self, path):
        super().keep(path)
    def keep_part(self):
        torch.save(self.body.state_dict(), "body.pt")
model = Net()
{before}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in torch.utils.data.DataLoader(rows()):
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
{after}
"""


def test_a_model_that_saves_itself_is_collected_too():
    result = migrated(KEEPS.format(before="", after='model.keep("m.pt")'))
    assert "accelerator.save(accelerator.get_state_dict(self), f=path)" in result
    result = migrated(KEEPS.format(before="", after="model.keep_part()"))
    assert 'accelerator.save(accelerator.get_state_dict(self.body), "body.pt")' in result


def test_a_model_that_saves_itself_before_it_is_prepared_does_so_alone():
    result = migrated(KEEPS.format(before='model.keep("first.pt")', after=""))
    assert "get_state_dict" not in result


SAVER = """
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel as DDP

    def keep(net, path):
        {first}
        torch.save(net.state_dict(), path)

    def main():
        dist.init_process_group("nccl")
        loader = torch.utils.data.DataLoader(data(), batch_size=4)
        model = DDP(torch.nn.Linear(2, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for epoch in range(4):
            for x, y in loader:
                loss = torch.nn.functional.mse_loss(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            if {test}:
                {before}keep(model, "m.pt")

    main()
    """


def test_every_process_calls_a_function_that_collects():
    text = migrated(SAVER.format(first="print(path)", test="dist.get_rank() == 0 and epoch > 1", before=""))
    assert "        if epoch > 1:\n            keep(model" in text
    assert "    accelerator.print(path)\n    accelerator.save(accelerator.get_state_dict(net), path)" in text


def test_one_process_goes_on_in_a_function_that_does_more_than_save():
    becomes(
        SAVER.format(first="clean(path)", test="dist.get_rank() == 0", before=""),
        """
        def keep(net, path, accelerator):
            net_state = accelerator.get_state_dict(net)
            if not accelerator.is_main_process:
                return
            clean(path)
            accelerator.save(net_state, path)
        """,
    )


def test_leaves_a_loop_whose_weights_only_some_processes_would_collect():
    reason = unchanged(SAVER.format(first="pass", test="dist.get_rank() == 0", before="show(model); "))
    assert "a condition on the rank decides which processes call keep()" in reason


def test_a_helper_that_saves_gets_the_model_itself():
    helper = "def save_all(objects, path):\n    torch.save({k: v.state_dict() for k, v in objects.items()}, path)\n"
    source = training(functions=helper, after='save_all({"net": model, "optimizer": optimizer}, "m.pt")')
    becomes(source, 'save_all({"net": accelerator.unwrap_model(model), "optimizer": optimizer}, "m.pt")', ACCELERATE)
    stays(source, 'save_all({"net": model, "optimizer": optimizer}, "m.pt"')
    stays(training(functions=helper.replace("save_all", "run"), after='run({"net": model}, "m.pt")'), '{"net": model}')


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ('state = {"net": model}\ntorch.save(state, "m.pt")', '{"net": accelerator.unwrap_model(model)}'),
        ('torch.save(dict(net=model), "m.pt")', "dict(net=accelerator.unwrap_model(model))"),
        ('kept = {}\nkept["net"] = model\ntorch.save(kept, "m.pt")', 'kept["net"] = accelerator.unwrap_model(model)'),
        ('best = model\ntorch.save([best, epoch], "m.pt")', "[accelerator.unwrap_model(best), epoch]"),
    ],
)
def test_a_whole_model_inside_of_what_is_saved_loses_its_wrapper(lines: str, expected: str):
    becomes(training(after=lines), expected, ACCELERATE)
    stays(training(after=lines), re.sub(r"accelerator.unwrap_model\((\w+)\)", r"\1", expected))


def test_a_whole_model_that_a_function_is_handed_to_save_loses_its_wrapper():
    helper = "def keep(state, path):\n    torch.save(state, path)\n"
    source = training(functions=helper, after='keep({"net": model}, "m.pt")')
    becomes(source, 'keep({"net": accelerator.unwrap_model(model)}, "m.pt")', ACCELERATE)
    stays(source, 'keep({"net": model}, "m.pt")')


STOPPER = """
    class Stopper:
        def __init__(self, path):
            self.path, self.best = path, None

        def __call__(self, loss, net):
            if self.best is None or loss < self.best:
                self.keep(net)
                self.best = loss

        def keep(self, net):
            torch.save(net.state_dict(), self.path)
    """


def test_an_object_that_is_called_saves_once_and_without_the_wrapper():
    source = training(functions=STOPPER, ready='stop = Stopper("m.pt")', after="stop(total, model)")
    becomes(source, "accelerator.save(accelerator.get_state_dict(net), self.path)")
    reading = source + '\nmodel.load_state_dict(torch.load("m.pt"))\n'
    becomes(reading, "accelerator.wait_for_everyone()\naccelerator.unwrap_model(model).load_state_dict(", ACCELERATE)
    becomes(reading, "accelerator.wait_for_everyone()\nmodel.load_state_dict(")


def test_an_object_that_a_function_is_handed_and_calls_saves_once():
    work = "def watch(net, total, stop):\n    stop(total, net)\n"
    source = training(functions=STOPPER, after='watch(model, total, Stopper("m.pt"))')
    becomes(
        source.replace("device = ", work + "device = "), "accelerator.save(accelerator.get_state_dict(net), self.path)"
    )


@pytest.mark.parametrize("opened", ['open("m.pt", "wb")', 'Path("m.pt").open("wb")'])
def test_a_file_that_is_opened_in_place_is_opened_by_one_process(opened):
    becomes(
        training(functions="from pathlib import Path", after=f"torch.save(model.state_dict(), {opened})"),
        f"""
        model_state = accelerator.get_state_dict(model)
        if accelerator.is_main_process:
            torch.save(model_state, {opened})
        """,
    )


def test_an_open_file_is_not_handed_to_the_accelerator_by_another_name():
    source = training(
        functions="def keep(state, file):\n    torch.save(state, file)\n",
        after='keep({"epoch": epoch}, open("m.pt", "wb"))',
    )
    assert ".save(" in migrated(source) and "accelerator.save(" not in migrated(source)


def test_weights_are_collected_above_the_line_where_other_processes_return():
    functions = """
    import torch.distributed as dist
    def keep(net, path):
        if dist.get_rank() != 0:
            return
        state = {"epoch": 1}
        if path:
            state["net"] = net.state_dict()
        torch.save(state, path)
    """
    source = training(functions=functions, ready="dist.init_process_group('gloo')", after='keep(model, "m.pt")')
    becomes(
        source,
        """
        if path:
            net_state = accelerator.get_state_dict(net)
        if not accelerator.is_main_process:
            return
        state = {"epoch": 1}
        if path:
            state["net"] = net_state
        """,
    )


def test_weights_that_change_below_the_line_where_other_processes_return_are_not_collected_above_it():
    functions = """
    import torch.distributed as dist
    def keep(net, path):
        if dist.get_rank() != 0:
            return
        net.load_state_dict(torch.load("best.pt"))
        torch.save(net.state_dict(), path)
    """
    source = training(functions=functions, ready="dist.init_process_group('gloo')", after='keep(model, "m.pt")')
    assert "the weights are set under that condition" in unchanged(source)


@pytest.mark.parametrize("chain", ["cpu()", "eval()", 'to("cpu")', "half()", "cpu().eval()"])
def test_takes_weights_behind_calls_that_return_the_model(chain: str):
    becomes(
        training(after=f'torch.save(model.{chain}.state_dict(), "model.pt")'),
        f'accelerator.save(accelerator.get_state_dict(model.{chain}), "model.pt")',
    )
    source = training(after=f'torch.save(model.{chain}, "m.pt")')
    becomes(source, f'accelerator.save(accelerator.unwrap_model(model).{chain}, "m.pt")', ACCELERATE)
    becomes(source, f'accelerator.save(model.{chain}, "m.pt")')


def test_saves_weights_beside_a_file_that_another_module_writes():
    texts = {
        "train.py": "from logs import note\n" + training(after='torch.save(model.state_dict(), "m.pt")\nnote("done")'),
        "logs.py": 'def note(text):\n    with open("log.txt", "a") as f:\n        f.write(text)\n',
    }
    results = migrate([Source.from_bytes(Path(name), text.encode()) for name, text in texts.items()], DEFAULTS)
    assert b'accelerator.save(accelerator.get_state_dict(model), "m.pt")' in results[0].after, results[0].reason


CALLED = """
    import torch
    {helper}
    def fit(net, device):
        loader = torch.utils.data.DataLoader(data(), batch_size=4)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for x, y in loader:
            loss = torch.nn.functional.mse_loss(net(x.to(device)), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    if __name__ == "__main__":
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        net = torch.nn.Linear(2, 1)
        net.to(device)
        {lines}
    """
KEEP = "def keep(model):\n        torch.save(model.state_dict(), 'm.pt')\n"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("fit(net, device)\n        {}", 'accelerator.save(accelerator.get_state_dict(net), "m.pt")'),
        (
            "try:\n            fit(net, device)\n        except KeyboardInterrupt:\n            {}",
            'except KeyboardInterrupt:\n        accelerator.save(accelerator.get_state_dict(net), "m.pt")',
        ),
        ("fit(net, device)\n        keep(net)", "accelerator.save(accelerator.get_state_dict(model), 'm.pt')"),
        ("fit(net, device)\n        state = [net.state_dict()]", "state = [accelerator.get_state_dict(net)]"),
    ],
)
def test_all_collect_weights_where_a_function_that_prepares_has_come_back(lines: str, expected: str):
    lines = lines.format('torch.save(net.state_dict(), "m.pt")')
    assert expected in migrated(CALLED.format(helper=KEEP, lines=lines))


def test_what_is_saved_before_a_function_prepares_is_written_once():
    text = migrated(CALLED.format(helper="", lines='torch.save(net.state_dict(), "m.pt")\n        fit(net, device)'))
    assert "if accelerator.is_main_process:\n        torch.save(net.state_dict()" in text


def test_says_that_a_model_a_function_has_prepared_is_saved_as_an_object():
    assert "no process has all" in noted(
        CALLED.format(helper="", lines='fit(net, device)\n        torch.save(net, "m.pt")'), "AM501"
    )


def test_says_of_weights_that_are_saved_out_of_reach_of_the_accelerator_that_they_may_be_sharded():
    source = """
        import torch

        def fit(net):
            device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
            loader = torch.utils.data.DataLoader(data(), batch_size=4)
            net.to(device)
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            for x, y in loader:
                loss = torch.nn.functional.mse_loss(net(x.to(device)), y.to(device))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()

        model = torch.nn.Linear(2, 1)
        fit(model)
        torch.save(model.state_dict(), "m.pt")
        """
    assert "have every process take accelerator.get_state_dict(model)" in noted(source, "AM501")


@pytest.mark.parametrize(
    ("guard", "told"), [('int(os.environ["LOCAL_RANK"]) == 0', True), ("dist.get_rank() == 0", False)]
)
def test_a_file_that_each_machine_wrote_is_told_of(guard: str, told: bool):
    saved = 'torch.save(model.state_dict(), "m.pt")'
    function = f"def keep(model):\n    {saved}\n"
    for source in (
        script(body=f"if {guard}: {saved}"),
        function + dedent(script(body=f"if {guard}: keep(model)")),
    ):
        assert not any("each machine wrote the file" in each for each in notes(source))  # nobody reads it back
        source = source.replace("optimizer = ", 'model.load_state_dict(torch.load("m.pt")); optimizer = ', 1)
        assert any("each machine wrote the file" in each for each in notes(source)) is told


KEEPER = """
import torch
from torch import nn


class Keeper:
    def __init__(self, model, loader, device):
        self.device = device
        self.model, self.loader = model.to(device), loader
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def fit(self):
        for x, y in self.loader:
            x, y = x.to(self.device), y.to(self.device)
            self.optimizer.zero_grad()
            loss = nn.functional.mse_loss(self.model(x), y)
            loss.backward()
            self.optimizer.step()
"""
STARTED = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from keeper import Keeper

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
loader = DataLoader(TensorDataset(torch.randn(40, 4), torch.randn(40, 1)), batch_size=8)
net = nn.Linear(4, 1)
keeper = Keeper(net, loader, device)
keeper.fit()
"""


@pytest.mark.parametrize(
    "saved", ['torch.save(net.state_dict(), "net.pt")', 'torch.save({"net": net.state_dict(), "n": 3}, "net.pt")']
)
def test_says_that_another_file_writes_what_a_class_has_sharded(saved: str):
    files = {"keeper.py": KEEPER, "main.py": STARTED + saved + "\n"}
    results = {r.path.name: r for r in migrate([Source.from_bytes(Path(n), t.encode()) for n, t in files.items()])}
    assert results["keeper.py"].applied
    (note,) = [note for note in results["main.py"].notes if note.code == "AM501"]
    assert note.line == 12 and "the run stops here with an error" in note.message
    files["main.py"] = STARTED + 'torch.save(loader.dataset, "rows.pt")\n'
    results = {r.path.name: r for r in migrate([Source.from_bytes(Path(n), t.encode()) for n, t in files.items()])}
    assert results["keeper.py"].applied and "AM501" not in {note.code for note in results["main.py"].notes}


@pytest.mark.parametrize(
    ("folder", "path", "own"),
    [
        ("with tempfile.TemporaryDirectory() as folder:", 'os.path.join(folder, "best.pt")', True),
        ("with tempfile.TemporaryDirectory() as folder:", 'f"{folder}/best.pt"', True),
        ("folder = tempfile.mkdtemp()\nif folder:", 'pathlib.Path(folder) / "best.pt"', True),
        ("with tempfile.TemporaryDirectory() as folder:", 'os.path.join("weights", folder)', False),
        ("folder = args.out or tempfile.mkdtemp()\nif folder:", 'folder + "/best.pt"', False),
    ],
)
def test_every_process_writes_what_is_in_a_temporary_folder_of_its_own(folder: str, path: str, own: bool):
    after = f"import os, pathlib, tempfile\n{folder}\n    torch.save(model.state_dict(), {path})"
    written = f"torch.save(accelerator.get_state_dict(model), {path})"
    becomes(training(after=after), written if own else written.replace("torch.save", "accelerator.save"))


@pytest.mark.parametrize(("kind", "first"), [("staticmethod", ""), ("classmethod", "cls, ")])
@pytest.mark.parametrize("called", ["self", "Engine"])
def test_a_method_without_an_object_is_handed_the_accelerator(kind: str, first: str, called: str) -> None:
    source = f"""
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        class Engine:
            def __init__(self, loader, device):
                self.loader = loader
                self.device = device
                self.model = nn.Linear(3, 1).to(device)
                self.optimizer = torch.optim.Adam(self.model.parameters())

            @{kind}
            def write({first}state, path):
                torch.save(state, path)

            def fit(self):
                for x, y in self.loader:
                    x, y = x.to(self.device), y.to(self.device)
                    loss = ((self.model(x) - y) ** 2).mean()
                    self.optimizer.zero_grad()
                    loss.backward()
                    self.optimizer.step()
                {called}.write(self.model.state_dict(), "m.pt")

        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        data = TensorDataset(torch.randn(20, 3), torch.randn(20, 1))
        Engine(DataLoader(data, batch_size=4, shuffle=True), device).fit()
    """
    becomes(
        dedent(source),
        f"""
        def write({first}state, path, accelerator):
            accelerator.save(state, path)
    """,
    )
    becomes(dedent(source), f'{called}.write(self.accelerator.get_state_dict(self.model), "m.pt", self.accelerator)')
