"""AM401 and AM402: what may be gathered, and what must be read whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from accel_migrate.pipeline import migrate
from accel_migrate.settings import Settings
from accel_migrate.source import Source

from tests.migrate.rules.scripts import becomes, training
from tests.migrate.rules.verbs import ACCELERATE, migrated, noted

MOVED = "x, y = x.to(device), y.to(device)"


def evaluation(*lines: str, functions: str = "", ready: str = "") -> str:
    body = "\n".join(f"        {line}" for line in (MOVED, *lines))
    return training(
        functions=functions, ready=ready, after=f"with torch.no_grad():\n    for x, y in test_loader:\n{body}\n"
    )


def test_gathers_outputs_and_targets_after_the_forward():
    becomes(
        evaluation("out = model(x)", "correct += (out.argmax(1) == y).sum().item()"),
        "out = model(x)\nout, y = accelerator.gather_for_metrics((out, y))",
    )


def test_gathers_predictions_that_have_the_only_name():
    becomes(
        evaluation("pred = model(x).argmax(dim=1)", "correct += (pred == y).sum().item()"),
        "pred, y = accelerator.gather_for_metrics((pred, y))",
    )


def test_gathers_parts_of_an_output_once_they_have_a_name():
    becomes(
        evaluation("out = model(x)", "logits = out.logits", "correct += (logits.argmax(1) == y).sum().item()"),
        "logits = out.logits\nlogits, y = accelerator.gather_for_metrics((logits, y))",
    )


def test_weighs_a_mean_by_the_gathered_rows():
    becomes(
        evaluation("out = model(x)", "total += criterion(out, y).item() * x.size(0)"),
        "total += criterion(out, y).item() * y.size(0)",
    )


def test_gathers_for_rows_that_are_taken_one_by_one():
    becomes(
        evaluation("out = model(x)", "_, pred = torch.max(out, 1)", "for a, b in zip(y, pred):", "    counts[a] += 1"),
        "out, y = accelerator.gather_for_metrics((out, y))",
    )


def test_gathers_for_a_meter_of_the_project_that_weighs():
    meter = "class Meter:\n    def update(self, value, n=1):\n        self.sum += value * n\n        self.count += n\n"
    becomes(
        evaluation(
            "out = model(x)",
            "loss = criterion(out, y)",
            "m.update(loss.item(), x.size(0))",
            functions=meter,
            ready="m = Meter()",
        ),
        "m.update(loss.item(), y.size(0))",
    )


def test_gathers_no_rows_for_a_meter_that_does_not_weigh():
    meter = "class Meter:\n    def update(self, value, n=1):\n        self.sum += value\n        self.count += 1\n"
    becomes(
        evaluation(
            "out = model(x)", "m.update(criterion(out, y).item(), x.size(0))", functions=meter, ready="m = Meter()"
        ),
        "for figure in accelerator.sum_for_metrics([(criterion(out, y).item(), x.size(0))]):",
    )


def test_adds_up_a_mean_of_batch_means_by_whole_batches():
    source = evaluation("out = model(x)", "total += criterion(out, y).item()") + "    print(total / len(test_loader))\n"
    becomes(source, "for x, y in accelerator.whole_batches(test_loader):\nout = model(x)\n")
    becomes(source, "total += accelerator.sum_for_metrics(criterion(out, y).item())")
    becomes(source, "print(total / len(test_loader.base_dataloader))")
    noted(source, "AM402", settings=Settings(target="accelerate"))


def test_gathers_no_rows_for_a_criterion_with_weights():
    weighted = "criterion = nn.CrossEntropyLoss(weight=torch.ones(2))"
    source = evaluation("out = model(x)", "total += criterion(out, y).item() * x.size(0)", ready=weighted)
    becomes(source, "total += accelerator.sum_for_metrics(criterion(out, y).item() * x.size(0))")


def test_gathers_no_rows_of_a_loss_without_an_output():
    source = evaluation("loss = criterion(model(x), y)", "total += loss.item() * x.size(0)", "n += (y == 1).sum()")
    assert "gather_for_metrics" not in migrated(source)


def test_gathers_no_rows_of_an_output_of_several_values():
    source = evaluation("a, b = model(x)", "n += (a > b).sum().item()", "n += (y == 1).sum().item()")
    assert "gather_for_metrics" not in migrated(source)


def test_keeps_whole_what_the_original_compared_on_the_cpu():
    body = "x = x.to(device)\n    out = model(x)\n    n += (out.cpu().argmax(1) == y).sum()"
    alone = Settings(target="accelerate")
    assert "CPU" in noted(training(after=f"for x, y in test_loader:\n    {body}"), "AM402", alone)


def test_a_size_of_a_batch_does_not_stay_on_the_cpu():
    body = (
        "x = x.to(device)\n    rows, width = x.shape\n    out = model(x)\n    shown = torch.zeros(width) + out.mean()"
    )
    reason = noted(training(after=f"for x, y in test_loader:\n    {body}"), "AM402")
    assert "`width` is a size of this process's batch" in reason


def test_keeps_whole_a_loop_with_its_counter():
    source = training(
        after="for j, (x, y) in enumerate(test_loader):\n    out = model(x)\n    n += j * (out.argmax(1) == y).sum()"
    )
    assert "counter" in noted(source, "AM402")


def test_reads_a_loader_whole_everywhere_if_one_loop_must():
    source = evaluation("out = model(x + torch.randn_like(x))", "total += criterion(out, y).item()") + (
        "for x, y in test_loader:\n    out = model(x)\n    correct += (out.argmax(1) == y).sum().item()\n"
    )
    becomes(source, "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)")


def test_gathers_no_loader_of_a_library_that_samples_by_itself():
    source = evaluation("out = model(x)", "correct += (out.argmax(1) == y).sum().item()").replace(
        "test_loader = DataLoader(data", "test_loader = GraphLoader(data"
    )
    foreign = source.replace("from tqdm", "from dgl.dataloading import DataLoader as GraphLoader\nfrom tqdm")
    assert "samples by itself" in noted(foreign, "AM402")
    becomes(foreign, MOVED)
    assert "gather_for_metrics" not in migrated(foreign)


def test_an_evaluation_does_not_stand_in_the_way_of_training():
    body = "out = model(x)\n        correct += (out.argmax(1) == y).sum().item()"
    loop = (
        "correct = 0\nwith torch.no_grad():\n    for x, y in {}:\n        x, y = x.to(device), y.to(device)\n        "
        + body
    )
    late = "if late:\n    late_loader = DataLoader(data, batch_size=4)\n"
    both = f"{loop.format('test_loader')}\nif late:\n    " + loop.format("late_loader").replace("\n", "\n    ")
    source = training(after=both).replace("loader = DataLoader", f"{late}loader = DataLoader", 1)
    becomes(source, "for x, y in accelerator.whole_batches(late_loader):")
    becomes(source, "model, optimizer, loader, test_loader = accelerator.prepare(")


def test_counts_all_batches_where_a_caller_divides_by_their_number():
    functions = (
        "def right(model, batches):\n    n = 0\n    for x, y in batches:\n        x, y = x.to(device), y.to(device)\n"
        "        out = model(x)\n        n += (out.argmax(1) == y).sum().item()\n    return n\n"
    )
    source = training(functions=functions, after="print(right(model, test_loader) / len(test_loader))")
    becomes(source, "print(right(model, test_loader) / len(test_loader.base_dataloader))")


def test_gathers_no_rows_that_are_padded_batch_by_batch():
    source = evaluation("out = model(x)", "total += (out.argmax(1) == y).sum().item()").replace(
        "test_loader = DataLoader(data,", "test_loader = DataLoader(data, collate_fn=together,"
    )
    becomes(source.replace("{functions}", ""), "accelerator.whole_batches(test_loader)")


def test_a_batch_that_the_training_only_looks_at_is_not_trained_on():
    inside = (
        "if i % 4 == 0:\n    a, b = next(iter(test_loader))\n    print(criterion(model(a.to(device)), b.to(device)))"
    )
    source = training(
        inside=inside,
        after="for x, y in test_loader:\n    x, y = x.to(device), y.to(device)\n    total -= criterion(model(x), y).item()",
    )
    becomes(source, "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)")


def test_a_second_loader_that_the_training_asks_for_batches_is_trained_on():
    inside = "a, b = next(iter(test_loader))\nloss = loss + criterion(model(a), b)"
    source = training(inside=inside).replace(
        "loss = criterion(model(x), y)", inside.replace("\n", "\n        ").replace("loss + ", "")
    )
    assert "loader, test_loader = accelerator.prepare" in migrated(source)


def test_an_evaluation_whose_loader_drops_the_last_batch_goes_through_whole_batches():
    """Gathered by rows, seven full batches on two processes would be six."""
    loop = "for a, b in test_loader:\n    a, b = a.to(device), b.to(device)\n    out = model(a)\n"
    source = training(after=f"right = 0\n{loop}    right += (out.argmax(1) == b).sum().item()\nprint(right)")
    assert "accelerator.gather_for_metrics" in migrated(source)
    built = "test_loader = DataLoader(data, batch_size=4"
    result = migrated(source.replace(built, f"{built}, drop_last=True"))
    assert "accelerator.whole_batches(test_loader)" in result
    assert "gather_for_metrics" not in result


@pytest.mark.parametrize(
    "made",
    [
        "options = {'drop_last': True}\nfirst, second = DataLoader(rows, 4), DataLoader(rows, 4, **options)",
        "kept = [DataLoader(rows, 4)]\nkept.append(DataLoader(rows, 4, drop_last=True))\nfirst, second = kept[0], kept[1]",
        "kept = {'a': DataLoader(rows, 4)}\nkept['b'] = make(rows)\nfirst, second = kept['a'], kept['b']",
        "first, second = DataLoader(rows, 4), make(rows)",
        "first, second = make(rows), DataLoader(rows, 4) if len(rows) > 99 else make(rows)",
        "first, second = DataLoader(rows, 4), DataLoader(rows, 4, False, None, None, 0, None, False, True)",
        "batches = BatchSampler(SequentialSampler(rows), 4, True)\n"
        "first, second = DataLoader(rows, 4), DataLoader(rows, batch_sampler=batches)",
        "second, first = swapped(rows)",
    ],
)
def test_a_loader_of_a_function_that_may_drop_its_last_batch(made: str) -> None:
    lines = "".join(f"    {line}\n" for line in made.splitlines())
    functions = "from torch.utils.data import BatchSampler, SequentialSampler\n"
    functions += "def make(rows):\n    return DataLoader(rows, 4, drop_last=True)\n"
    functions += "def swapped(rows):\n    return make(rows), DataLoader(rows, 4)\n"
    functions += f"def both(rows):\n{lines}    return first, second\n"
    loop = "for a, b in test_loader:\n    a, b = a.to(device), b.to(device)\n    out = model(a)\n"
    source = training(after=f"right = 0\n{loop}    right += (out.argmax(1) == b).sum().item()\nprint(right)")
    start = source.index("test_loader = DataLoader(")
    built = source[start : source.index("\n", start)]
    result = migrated(source.replace(built, f"{functions}_, test_loader = both(data)"))
    assert "accelerator.whole_batches(test_loader)" in result
    assert "gather_for_metrics" not in result
    beside = functions.replace(lines, "    first, second = make(rows), DataLoader(rows, 4)\n")
    assert "accelerator.gather_for_metrics" in migrated(source.replace(built, f"{beside}_, test_loader = both(data)"))


JUDGED = """with torch.no_grad():
    for x, y in {loader}:
        x = x.to(device)
        out = model(x)
        print(out)
"""


def test_a_loader_that_has_a_new_value_by_then_is_read_whole() -> None:
    left = JUDGED.format(loader="loader")
    assert "its own shard of the loader" in noted(training(after=left), "AM402")
    rebuilt = training() + "loader = DataLoader(data, batch_size=2)\n" + left
    assert "every process evaluates all of the data" in noted(rebuilt, "AM402")
    result = migrated(rebuilt)
    assert result.count(".prepare(") == 1
    assert result.count("x = x.to(device)\n") == 1
    body = "".join(f"    {line}\n" for line in JUDGED.format(loader="rows").splitlines())
    called = training() + f"def judge(rows):\n{body}\nloader = DataLoader(data, batch_size=2)\njudge(loader)\n"
    assert "every process evaluates all of the data" in noted(called, "AM402")
    assert migrated(called).count(".prepare(") == 1


def test_a_loader_that_is_built_again_and_trained_on_is_sharded_for_every_loop() -> None:
    passes = training()
    again = passes[passes.index("for ") :]
    source = passes + "loader = DataLoader(data, batch_size=2)\n" + again + JUDGED.format(loader="loader")
    assert "its own shard of the loader" in noted(source, "AM402")
    assert migrated(source).count(".prepare(") == 2


def test_names_the_file_of_the_line_that_is_the_reason() -> None:
    judge = """import torch
def judge(model, loader, device):
    total = 0.0
    with torch.no_grad():
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            out = model(x)
            total += (out.argmax(1) == y).sum().item()
    return total
"""
    script = training(functions="from judge import judge\n", after="print(judge(model, test_loader, device))")
    whole = script + "model.eval()\n" + JUDGED.format(loader="test_loader")
    drawn = whole.replace(
        "test_loader = DataLoader(data", "part, _ = random_split(data, [20, 20])\ntest_loader = DataLoader(part"
    )
    drawn = drawn.replace("import DataLoader", "import random_split, DataLoader")
    files = {"train.py": drawn.lstrip("\n"), "judge.py": judge}
    results = migrate([Source.from_bytes(Path(name), text.encode()) for name, text in files.items()])
    told = {r.path.name: n.message for r in results for n in r.notes if n.code == "AM402"}
    line = next(n for n, text in enumerate(files["train.py"].split("\n"), 1) if "in test_loader" in text)
    assert f"another loop reads the same loader whole (train.py:{line})" in told["judge.py"]


def test_a_counter_that_another_loop_sets_above_is_not_of_the_last_batch() -> None:
    counted = "for i, (x, y) in enumerate(test_loader):"
    judged = evaluation("out = model(x)", "correct += (out.argmax(1) == y).sum().item()", ready="correct = 0")
    judged = judged.replace("for x, y in test_loader:", counted).replace(
        "with torch.no_grad()", "print(i)\n    with torch.no_grad()"
    )
    becomes(judged, "accelerator.gather_for_metrics((out, y))")


def test_a_part_of_what_was_moved_is_on_the_device() -> None:
    cut = ["y_in = y[:-1]", "out = model(x)", "hits += (out.argmax(1)[:-1] == y_in).float().mean().item()"]
    becomes(evaluation(*cut, ready="hits = 0.0"), "for x, y in accelerator.whole_batches(test_loader):")
    early = evaluation(*cut, ready="hits = 0.0").replace(
        f"{MOVED}\n            y_in = y[:-1]", f"y_in = y[:-1]\n            {MOVED}"
    )
    compared = early.replace("out.argmax", "out.cpu().argmax")
    becomes(compared, "model, optimizer, loader, test_loader, device_placement=[True, True, True, False]")
    becomes(compared, f"y_in = y[:-1]\n{MOVED}")


@pytest.mark.parametrize("size", ["x.shape[0]", "x.size()[0]", "x.size(0)"])
def test_a_number_of_rows_is_not_on_a_device(size: str) -> None:
    meter = "class Meter:\n    def __init__(self):\n        self.sum = 0\n"
    meter += "    def update(self, value, n):\n        self.sum += value * n\nmeter = Meter()\n"
    lines = ["loss = criterion(model(x), y)", f"n = {size}", "meter.update(loss.item(), n)"]
    becomes(evaluation(*lines, functions=meter), "for x, y in accelerator.whole_batches(test_loader):")


def test_tells_one_model_that_runs_twice_from_two() -> None:
    functions = "other = nn.Linear(3, 2)\n"
    twice = ["out = model(x)", "again = {}(x)", "hits += (out.argmax(1) == again.argmax(1)).sum().item()"]
    source = evaluation(*twice, functions=functions, ready="hits = 0")
    rows_alone = Settings(target="accelerate")
    assert "the model is called more than once" in noted(source.replace("{}", "model"), "AM402", rows_alone)
    assert "several models are called" in noted(source.replace("{}", "other"), "AM402", rows_alone)
    method = source.replace("{}(x)", "model.again(x, out)")
    assert "the model is called more than once" in noted(method, "AM402", rows_alone)


def test_a_function_that_is_handed_a_loader_built_elsewhere_has_all_of_them_as_they_are():
    functions = (
        "def right(model, batches):\n    n = 0\n    for x, y in batches:\n        x, y = x.to(device), y.to(device)\n"
        "        out = model(x)\n        n += (out.argmax(1) == y).sum().item()\n    return n\n"
        "def other(model):\n    apart = DataLoader(data, batch_size=4)\n    return right(model, apart)\n"
    )
    source = training(functions=functions, after="print(right(model, test_loader), other(model))")
    becomes(source, "for x, y in accelerator.whole_batches(batches):\nx, y = x.to(device), y.to(device)")
    becomes(source, "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)")


APART = """
import torch
from torch import nn
from torch.utils.data import DataLoader

loader = DataLoader(rows, batch_size=8)
rest = DataLoader(others, batch_size=8)
net = nn.Linear(8, 2)

def fit(student, batches):
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
    for x, y in batches:
        nn.functional.cross_entropy(student(x), y).backward()
        optimizer.step()

def test(student, batches):
    right = 0
    for x, y in batches:
        right += (student(x).argmax(1) == y).sum().item()
    return right

fit(net, loader)
print(test(net, rest))
"""


def test_a_loader_that_is_built_elsewhere_is_dealt_out_as_it_is() -> None:
    chosen = 'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")\nnet = nn.Linear(8, 2).to(device)'
    source = (
        APART.replace("net = nn.Linear(8, 2)", chosen).replace("(x)", "(x.to(device))").replace("y)", "y.to(device))")
    )
    becomes(source, "student, optimizer, batches = accelerator.prepare(student, optimizer, batches)")
    becomes(
        source,
        "for x, y in accelerator.whole_batches(batches):\nright += accelerator.sum_for_metrics((student(x.to(device))",
    )
    becomes(source.replace("right\n\n", "right / len(batches)\n\n"), "right / len(batches)")


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ("TensorDataset(rows, rows)", True),
        ("torchvision.datasets.MNIST(path)", True),
        ("Rows()", True),
        ("Stream()", False),
        ("load_rows()", False),
    ],
)
def test_the_last_number_of_a_batch_that_is_dealt_out_as_it_is(data: str, told: bool) -> None:
    held = "class Rows:\n    def __len__(self): return 3\n    def __getitem__(self, i): return i\n\n"
    held += "class Stream:\n    def __len__(self): return 3\n    def __iter__(self): yield 1\n\n"
    held += 'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")\nloader ='
    lines = {
        "import torch\n": "import torch\nimport torchvision\nfrom torch.utils.data import TensorDataset\n",
        "for x, y in batches:\n        right": "for i, (x, y) in enumerate(batches):\n        right",
        "student(x)": "student(x.to(device))",
        "== y)": "== y.to(device))",
        ", y).backward": ", y.to(device)).backward",
        "return right": "return right / (i + 1)",
        "loader =": held,
        "DataLoader(others": f"DataLoader({data}",
        "nn.Linear(8, 2)": "nn.Linear(8, 2).to(device)",
    }
    source = APART
    for line, other in lines.items():
        source = source.replace(line, other)
    assert ("return right / len(batches)" in migrated(source)) is told


def test_says_of_the_loader_alone_that_it_is_built_elsewhere() -> None:
    own = APART.replace("rest = DataLoader(others, batch_size=8)\n", "").replace("test(net, rest)", "test(net)")
    own = own.replace(
        "def test(student, batches):\n", "def test(student):\n    batches = DataLoader(others, batch_size=8)\n"
    )
    said = noted(
        own.replace("right += (student(x).", "output = student(x)\n        right += (output."), "AM402", ACCELERATE
    )
    assert said.endswith("because its loader is not built where the others are prepared")


def test_a_script_that_trains_and_then_evaluates_makes_the_accelerator_for_both() -> None:
    becomes(APART, "accelerator = Accelerator(cpu=True)\nfit(net, loader)\nprint(test(net, rest))\n")
    becomes(APART, "for x, y in accelerator.whole_batches(batches):")
    guarded = APART.replace("fit(net", "if __name__ == '__main__':\n    fit(net").replace("print(", "    print(")
    becomes(guarded, "fit(net, loader, accelerator)\nprint(test(net, rest, accelerator))\n")


def test_batches_that_nothing_moves_keep_the_model_on_the_cpu() -> None:
    inside = APART.replace("fit(net, loader)\nprint(test(net, rest))\n", "main()\n")
    inside = inside.replace("loader = Data", "def main():\n    loader = Data").replace("\nrest =", "\n    rest =")
    inside = inside.replace(
        "\nnet = nn.Linear(8, 2)\n", "\n    net = nn.Linear(8, 2)\n    fit(net, loader)\n    print(test(net, rest))\n"
    )
    becomes(inside, "accelerator = Accelerator(cpu=True)\nfit(net, loader, accelerator)")


def test_a_batch_that_is_made_ready_in_place_adds_nothing_up():
    evaluated = """
        with torch.no_grad():
            hits = 0
            for x, y in test_loader:
                x += 1
                out = model(x.to(device))
                hits += (out.argmax(1) == y.to(device)).sum().item()
        print(hits)
        """
    becomes(training(after=evaluated), "accelerator.gather_for_metrics")


def test_a_figure_so_far_that_is_shown_is_over_the_batches_of_all():
    evaluated = """
        with torch.no_grad():
            hits = 0
            for j, (x, y) in enumerate(test_loader):
                print(hits / (j + 1))
                out = model(x.to(device))
                hits += (out.argmax(1) == y.to(device)).sum().item()
        print(hits)
        """
    becomes(training(after=evaluated), "print(hits / test_loader.batches_seen)")


def test_a_part_of_an_output_of_unknown_make_may_be_no_rows():
    evaluated = """
        with torch.no_grad():
            hits = 0
            for x, y in test_loader:
                output = model(x.to(device))
                logits = output{}
                hits += (logits.argmax(1) == y.to(device)).sum().item()
        print(hits)
        """
    source = training(functions="from nets import Net", after=evaluated).replace("nn.Linear(3, 2)", "Net()")
    becomes(source.format("[1]"), "for x, y in accelerator.whole_batches(test_loader):")
    becomes(source.format("['logits']"), "accelerator.gather_for_metrics")
