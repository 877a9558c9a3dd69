"""AM605 and AM606: figures of a log, and AM205: values that numpy reads."""

from __future__ import annotations

import pytest

from tests.migrate.rules.scripts import becomes, codes, stays, training
from tests.migrate.rules.verbs import noted, notes

SAMPLES = "total += loss.item() * x.size(0)"
MEANS = "total += loss.item()"


@pytest.mark.parametrize(
    ("inside", "after", "expected"),
    [
        (SAMPLES, "mean = total / len(loader.dataset)", "total / (len(loader.dataset) * loader.sample_share)"),
        (SAMPLES, "mean = total / (len(loader.dataset))", "total / (len(loader.dataset) * loader.sample_share)\n"),
        (SAMPLES, "total /= len(data)", "total /= len(data) * loader.sample_share"),
        (SAMPLES, "total /= len(data) + 1", "total /= (len(data) + 1) * loader.sample_share"),
        (SAMPLES, "mean = total / (len(data) + 1)", "total / ((len(data) + 1) * loader.sample_share)"),
        (SAMPLES, "mean = total / (2 * len(data))", "total / (2 * len(data) * loader.sample_share)"),
        (
            SAMPLES,
            "mean = total / (len(loader) * 4)",
            "total / (len(loader.base_dataloader) * 4 * loader.sample_share)",
        ),
        (
            "total += (model(x).argmax(1) == y).sum().item()",
            "print(f'{100 * total / len(data)}')",
            "100 * total / (len(data) * loader.sample_share)",
        ),
        (MEANS, "mean = total / len(loader.dataset)", "total / (len(loader.dataset) * loader.batch_share)"),
    ],
)
def test_divides_by_this_process_share_of_what_is_added_up(inside, after, expected):
    source = training(inside=inside, after=after)
    becomes(source, expected)
    assert "AM605" not in [note.split()[0] for note in notes(source)]


def test_a_weighted_mean_times_the_rows_adds_up_samples():
    weighted = "mine = (each * w[y]).sum() / w[y].sum()"
    each = "each = nn.functional.cross_entropy(model(x), y, reduction='none')"
    for rows in ("x.size(0)", "len(y)"):
        source = training(inside=f"{each}; {weighted}; total += mine.item() * {rows}", after="mean = total / len(data)")
        becomes(source, "total / (len(data) * loader.sample_share)")
    becomes(
        training(inside=f"{each}; {weighted}; total += mine.item()", after="mean = total / len(data)"), "batch_share)"
    )


def test_divides_by_about_its_part_where_it_is_not_visible_what_is_added_up():
    source = training(
        functions="from elsewhere import helper", inside="total += helper(loss)", after="total /= len(data)"
    )
    becomes(source, "total /= len(data) / accelerator.num_processes")
    assert "may differ by as much as N batches are of the data" in noted(source, "AM605")


def test_divides_by_about_its_part_where_it_is_not_visible_which_loader_was_iterated():
    source = """
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    def run(loader):
        total = 0.0
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * x.size(0)
        return total

    data = TensorDataset(torch.randn(40, 3), torch.randn(40, 1))
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(data, batch_size=4)
    print(run(loader) / len(data), run(loader) / len(loader.dataset))
    """
    becomes(source, "run(loader) / (len(data) / accelerator.num_processes)")
    becomes(source, "run(loader) / (len(loader.dataset) * loader.sample_share)")


BY_SAMPLER = """
import torch
from torch import nn
from torch.utils.data import DataLoader, SubsetRandomSampler, TensorDataset

def run(loader):
    total = 0.0
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.data.item() * x.size(0)
    return {returned}

data = TensorDataset(torch.randn(40, 3), torch.randn(40, 1))
model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
chosen, other = SubsetRandomSampler(range(30)), SubsetRandomSampler(range(30, 40))
loader = DataLoader(data, batch_size=4, sampler=chosen)
print({told})
"""


@pytest.mark.parametrize("length", ["len(loader.sampler)", "len(chosen)"])
def test_divides_by_its_share_of_the_samples_that_a_sampler_chooses(length: str):
    share = f"/ ({length} * loader.sample_share)"
    becomes(BY_SAMPLER.format(returned=f"total / {length}", told="run(loader)"), f"total {share}")
    becomes(BY_SAMPLER.format(returned="total", told=f"run(loader) / {length}"), f"run(loader) {share}")


def test_takes_no_share_of_a_sampler_that_was_handed_to_no_loader():
    source = BY_SAMPLER.format(returned="total", told="run(loader) / len(other)")
    stays(source, "run(loader) / len(other)")


def test_says_where_a_batch_sampler_chooses_how_many_samples_a_share_has():
    source = training(inside=SAMPLES, after="mean = total / len(data)")
    own = source.replace(
        "DataLoader(data, batch_size=4, shuffle=True)", "DataLoader(data, batch_sampler=Buckets(data))"
    )
    assert "as exact as batches are equally large" in noted(f"from elsewhere import Buckets\n{own}", "AM605")


def test_keeps_a_mean_over_batches():
    stays(training(inside="total += loss.item()", after="mean = total / len(loader)"), "mean = total / len(loader)")


def test_keeps_a_sum_of_something_else():
    stays(training(after="mean = other / len(loader.dataset)"), "mean = other / len(loader.dataset)")


def test_counts_the_samples_of_all_processes_in_a_log_line():
    becomes(
        training(inside='print("{}/{}".format(i * len(x), len(loader.dataset)))'),
        "i * len(x) * accelerator.num_processes",
    )


def test_counts_the_samples_of_all_in_a_part_of_all_samples():
    for whole in ("len(data)", "len(loader.dataset)", "size"):
        becomes(
            training(ready="size = len(data)", inside=f'print("%d%%" % (100 * (i * len(x)) / {whole}))'),
            f'print("%d%%" % (100 * (i * len(x) * accelerator.num_processes) / {whole}))',
        )


def test_keeps_samples_beside_the_batches_of_this_process():
    for line in ('print("%d%%" % (i * len(x) * 100 / len(loader)))', 'print(f"{i * len(x)}/{len(loader)}")'):
        stays(training(inside=line), line)
    line = "print(i * len(x) * 100 / len(loader), len(loader.dataset))"
    stays(training(inside=line), line)


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        ("i * len(x)", 'print(f"{seen}/{len(loader.dataset)}")'),
        ("i * size + epoch * len(loader.dataset)", "print(seen)"),
        ("epoch * len(data) + (i + 1) * x.size(0)", 'wandb.log({"loss": 1}, step=seen)'),
    ],
)
def test_counts_the_samples_of_all_in_a_variable_that_is_only_shown(count: str, shown: str):
    script = training(inside=f"seen = {count}\n{shown}").replace("batch_size=4, sh", "batch_size=size, sh")
    script = script.replace("data = Tensor", "size = 4\ndata = Tensor")
    times = next(part for part in ("i * len(x)", "i * size", "(i + 1) * x.size(0)") if part in count)
    becomes(script, f"seen = {count.replace(times, f'{times} * accelerator.num_processes')}")


def test_counts_the_samples_of_all_in_a_variable_that_is_set_beside_another():
    line = 'shown, seen = loss.item(), (i + 1) * len(x)\nprint(f"{shown} {seen}/{len(loader.dataset)}")'
    becomes(training(inside=line), "shown, seen = loss.item(), (i + 1) * len(x) * accelerator.num_processes")


def test_notes_samples_that_leap_with_each_epoch_where_they_are_more_than_shown():
    inside = "seen = i * len(x) + epoch * len(data)\nrate = 1 / (1 + seen)\nif seen > 3:\n    print(rate)"
    stays(training(inside=inside), "seen = i * len(x) + epoch * len(data)")
    assert "leaps at the end of each epoch" in noted(training(inside=inside), "AM606")


@pytest.mark.parametrize(
    ("inside", "told"),
    [
        ("losses.append(1)\nbar(len(losses), 10)", True),
        ("losses.append(1)\nif len(losses) % 5 == 0:\n    print(1)", True),
        ("losses.append(1)\nprint(sum(losses) / len(losses))", False),
        ("losses.append(1)\nmean = sum(losses) / len(losses)", False),
        ("losses.append(1)\nbar(len(losses), len(loader))", False),
        ("if i:\n    losses.append(1)\nbar(len(losses), 10)", False),
        ("losses = []\nlosses.append(1)\nbar(len(losses), 10)", False),
    ],
)
def test_the_length_of_a_list_of_batches_is_a_number_of_batches(inside: str, told: bool):
    source = training(functions="def bar(done, of):\n    print(done, of)\n", ready="losses = []", inside=inside)
    assert ("what goes by the number of a batch" in noted(source, "AM801")) is told


def test_keeps_a_count_that_decides():
    stays(training(inside="seen = i * len(x)"), "seen = i * len(x)")


def test_notes_a_count_that_is_compared_with_all_of_the_data():
    for test in ("i * len(x) > 20", "seen * 4 * 5 > 10 and (seen + 1) * args.batch_size >= limit", "seen >= len(data)"):
        assert "AM606" in codes(training(ready="seen = 0", inside=f"seen += 1\nif {test}:\n    print(seen)")), test
    per_epoch = training(ready="seen = 0", inside="seen += 1\nif seen % (2 * rounds) == 0:\n    print(1)")
    per_epoch = per_epoch.replace("model = nn.Linear", "rounds = len(loader)\nmodel = nn.Linear")
    assert "AM606" in codes(per_epoch)


def test_notes_a_number_of_steps_that_leaps_with_each_epoch():
    inside = "step = rounds * epoch + i\nif step > 1000:\n    print(1)"
    assert "AM606" not in codes(training(ready="rounds = len(loader)", inside=inside))
    early = training(inside=inside).replace("model = nn.Linear", "rounds = len(loader)\nmodel = nn.Linear")
    assert "AM606" in codes(early)


@pytest.mark.parametrize(
    ("window", "told"),
    [
        ("losses[-per_epoch:]", True),
        ("losses[-len(data) // 4 :]", True),
        ("losses[epoch * per_epoch :]", True),
        ("losses[-len(loader) :]", False),
        ("losses[-100:]", False),
        ("losses[epoch:]", False),
        ("[1, 2][-per_epoch:]", False),
    ],
)
def test_notes_a_window_of_steps_by_the_number_of_all_batches(window: str, told: bool):
    ready = "losses, per_epoch = [], len(data) // 4"
    source = training(ready=ready, inside="losses.append(loss.item())", after=f"print(np.mean({window}))")
    assert any("N times fewer entries" in note for note in notes(source)) == told


def test_says_nothing_of_a_count_of_steps():
    for test in ("i % 10 == 0", "seen > len(loader)", "seen * 2 > 10", "i == len(loader) - 1"):
        assert "AM606" not in codes(training(ready="seen = 0", inside=f"seen += 1\nif {test}:\n    print(seen)")), test


@pytest.mark.parametrize(
    ("test", "told"),
    [
        ("i == 390", True),
        ("i + 1 >= 391", True),
        ("i > LAST", True),
        ("i == args.last", True),
        ("40 <= i", True),
        ("round == 30", True),
        ("i == 0", False),
        ("i < 40", True),
        ("i % 30 == 29", True),
        ("(step + 1) % 600 == 0", True),
        ("step == 1000", True),
        ("step == i", True),
        ("total == 3", False),
        ("step > 0", False),
        ("i == len(loader) - 1", False),
        ("i == end", False),
    ],
)
def test_notes_the_number_of_a_batch_that_a_shard_may_not_have(test: str, told: bool) -> None:
    inside = f"round += 1\nstep += 1\nif {test}:\n    print(total)"
    source = training(functions="LAST = 390\n", ready="step = 0\nend = len(loader)", inside=inside)
    source = source.replace("    total = 0.0", "    total, round = 0.0, 0\n    round = 0")
    messages = [note for note in notes(source) if "comes N times later" in note]
    assert len(messages) == told


@pytest.mark.parametrize(
    ("inside", "told"),
    [
        ("rate = min(1.0, i / 1000)", True),
        ("done = epoch * len(loader) + i\nif done % 400 == 0:\n    print(done)", True),
        ("if i % 5 == 0:\n    total += 1\nif total % 400 == 0:\n    print(total)", True),
        ("done = epoch * len(loader) + i\nprint(done)", False),
        ("if (epoch * len(loader) + i) % 400 == 0:\n    print(total)", True),
        ("per_epoch = len(loader)\nif epoch * per_epoch + i + 1 > 400:\n    print(total)", True),
        ("if (epoch * len(loader) + i) % (2 * len(loader)) == 0:\n    print(total)", False),
        ("if epoch * len(loader) + i == 0:\n    print(total)", False),
        ("total += i * 3", True),
        ("print(epoch * len(loader) + i)", False),
        ("left = 2 * len(loader) - i\nwait = left * 0.5", False),
        ("if x.max() > 3:\n    total += 1\nif total > 400:\n    print(total)", False),
        ("rate = i / len(loader)", False),
        ("print(i, f'{i}', '%d' % (i + 1), '{}'.format(i * 2))", False),
        ("wandb.log({'step': i + 1})", False),
    ],
)
def test_notes_what_is_computed_with_the_number_of_a_batch(inside: str, told: bool) -> None:
    assert ("number of a batch (line" in "".join(notes(training(inside=inside)))) == told


def test_brings_a_batch_back_for_numpy():
    source = training(inside="").replace(
        "x, y = x.to(device)", "counts = np.bincount(y.numpy())\n        x, y = x.to(device)"
    )
    becomes(source, "np.bincount(y.cpu().numpy())")


def test_keeps_what_numpy_reads_of_an_output():
    assert "AM205" not in codes(training(inside="a = model(x).detach().cpu().numpy()"))
    assert "AM205" not in codes(training(inside="a = y.to('cpu').numpy()"))


def test_says_nothing_of_a_figure_that_every_process_computes_whole():
    scaled = "def scaled(out, y):\n    loss = F.cross_entropy(out, y, reduction='sum')\n    loss /= len(y)\n    return loss\n"
    held_out = (
        "model.eval()\nfigure, texts = 0.0, []\n"
        "with torch.no_grad():\n"
        "    for x, y in test_loader:\n"
        "        out = model(x.to(device))\n"
        "        figure += scaled(out, y.to(device)).item()\n"
        "        texts = [shown(one) for one in out]\n"
        "figure /= len(test_loader)"
    )
    source = training(functions=scaled, loss="scaled(model(x), y)", after=held_out)
    assert {"AM402"} <= codes(source)
    assert not {"AM605"} & codes(source)


def test_a_number_of_mathematics_counts_no_samples():
    ready = "bits = []\n"
    source = training(
        ready=ready, inside="told = loss.item()\ntold /= np.log(2)\nbits.append(told)", after="print(np.mean(bits))"
    )
    assert "AM605" not in codes(source)
    source = training(
        inside="total += loss.item()", after="print(total / np.sqrt(rounds()))", functions="from rules import rounds\n"
    )
    assert "AM605" in codes(source)


def counted(divisor: str, data: str, functions: str = "") -> str:
    source = training(functions=functions, inside="total += loss.item()", after=f"print(total / {divisor})")
    return source.replace("TensorDataset(torch.randn(40, 3), torch.randint(0, 2, (40,)))", data)


def test_tells_a_sum_that_is_divided_by_a_number_that_the_data_was_made_by():
    made = "n_samples = 40\nrows = torch.randn(n_samples, 3)\nmarks = torch.randint(0, 2, (n_samples,))\n"
    for divisor in ("n_samples", "(n_samples / 4)"):
        source = counted(divisor, "TensorDataset(rows, marks)", made)
        assert "over this process's share" in noted(source, "AM605"), divisor
    assert "over this process's share" in noted(counted("40", "TensorDataset(torch.randn(40, 3), one)"), "AM605")
    build = "def build(count):\n    rows = torch.randn(count, 3)\n    return TensorDataset(rows, rows)\nCOUNT = 40\n"
    assert "over this process's share" in noted(counted("COUNT", "build(COUNT)", build), "AM605")
    split = "from torch.utils.data import random_split\nmany = 30\nrest = 10\nfirst, last = random_split(made(), [many, rest])\n"
    for divisor in ("many", "(many / 4)"):
        assert "over this process's share" in noted(counted(divisor, "first", split), "AM605"), divisor


def test_says_nothing_of_other_numbers():
    width = "width = 30\nrows = torch.randn(40, width)\n"
    for divisor in ("width", "100", "2"):
        assert "AM605" not in codes(counted(divisor, "TensorDataset(rows, rows)", width)), divisor
    for divisor in ("x.size()[0]", "float(x.size()[0])", "x.shape[0]"):
        assert "AM605" not in codes(training(inside=f"print(loss.item() / {divisor})")), divisor
    batched = "batch = 20\nrows = torch.randn(batch, 3)\n"
    source = counted("batch", "TensorDataset(rows, rows)", batched).replace("batch_size=4, sh", "batch_size=batch, sh")
    assert "AM605" not in codes(source)


def test_an_entry_that_is_counted_up_counts_this_process_s_own():
    ready, inside = "seen = {{'train': {first}, 'test': 0}}", "{counts}\nsums['loss'] += loss.item() * x.size(0)"

    def source(first: str, counts: str) -> str:
        built = f"sums = {{'loss': 0.0}}\n{ready.format(first=first)}"
        return training(ready=built, inside=inside.format(counts=counts), after="print(sums['loss'] / seen['train'])")

    assert "AM605" not in codes(source("0", "seen['train'] += x.size(0)"))
    assert "`seen['train']`" in noted(source("size", "seen['test'] += x.size(0)"), "AM605")
    assert "AM605" in codes(source("len(data)", "pass"))


def test_names_a_number_of_samples_that_is_written_out():
    counted = training(inside="total += loss.item() * x.size(0)", after="print(total / 50000)")
    assert "`50000`" in noted(counted, "AM605")
    assert "AM605" not in codes(training(inside="total += loss.item()", after="print(total / 2)"))
    between = "total += loss.item()\nif i % 2000 == 1999:\n    print(total / 2000)\n    total = 0.0"
    assert "AM605" not in codes(training(inside=between))


def evaluated(divided: str, call: str = "check(model, test_loader)", inside: str = "stored[i] = x") -> str:
    """A training with an evaluation by a function, and what is divided of its figure."""
    functions = f"""
    def check(model, held_out, other=None):
        spent, stored = 0.0, {{}}
        with torch.no_grad():
            for i, (x, y) in enumerate(held_out):
                x, y = x.to(device), y.to(device)
                spent += criterion(model(x), y).item()
                {inside}
        return {divided}
    """
    return training(functions=functions, after=f"figure = {call}")


def test_divides_a_figure_of_all_data_by_the_whole_length_of_the_loader_that_is_trained_on():
    becomes(evaluated("spent / len(loader)"), "return spent / len(loader.base_dataloader)")
    becomes(evaluated("spent / len(loader)", inside="pass"), "return spent / len(loader.base_dataloader)")
    becomes(evaluated("spent", "check(model, test_loader) / len(loader)"), "/ len(loader.base_dataloader)")
    handed = evaluated("spent / len(other)", "check(model, test_loader, loader)")
    becomes(handed, "return spent / len(other.base_dataloader)")
    stays(evaluated("spent / len(held_out)"), "return spent / len(held_out)")


def test_says_that_a_figure_of_all_data_is_divided_by_a_length_that_may_be_of_a_shard():
    both = "(check(model, test_loader, loader), check(model, test_loader, test_loader))"
    for source in (
        evaluated("spent / len(other)", both),
        evaluated("spent", "check(model, test_loader); n = len(loader); figure = figure / n"),
    ):
        assert "N times too large on N processes" in noted(source, "AM605")


def test_a_mean_over_the_first_batches_of_what_it_goes_through_is_right_for_each_loader():
    over = """
    def over(batches, many=None):
        spent = 0.0
        many = len(batches) if many is None else min(many, len(batches))
        for i, (x, y) in enumerate(batches):
            if i >= many:
                break
            spent += criterion(model(x.to(device)), y.to(device)).item()
        return spent / many
    """
    source = training(functions=over, inside="print(over(loader, 2), over(test_loader, 2))")
    assert {"AM402", "AM801"} <= codes(source)
    assert "AM605" not in codes(source)


def test_a_text_on_a_bar_is_no_result_of_an_evaluation():
    body = """
    correct = 0
    bar = tqdm(test_loader)
    for x, y in bar:
        x, y = x.to(device), y.to(device)
        correct += (model(x).argmax(1) == y).sum().item()
        bar.desc = f"epoch {epoch}"
    print(correct / len(data))
    """
    assert "AM402" not in codes(training(after=body))
    stored = training(after=body.replace("bar.desc", "model.told"))
    assert "`model.told` is set by each batch" in noted(stored, "AM402")


@pytest.mark.parametrize(("other", "told"), [("len(losses)", False), ("len(data)", True)])
def test_the_least_of_numbers_of_this_process_counts_its_share(other: str, told: bool) -> None:
    inside = f"losses.append(loss.item()); print(sum(losses[-20:]) / min(20, {other}))"
    source = training(ready="losses = []", inside=inside)
    assert any("counts that or all of the data" in note for note in notes(source)) is told


@pytest.mark.parametrize("count", ["1", "x.size(0)"])
def test_entries_that_are_counted_up_divide_those_of_this_process(count):
    inside = f"sums['n'] += {count}; sums['loss'] += loss.item()"
    source = training(
        ready="sums = {'n': 0, 'loss': 0}", inside=inside, after="print({k: v / sums['n'] for k, v in sums.items()})"
    )
    assert "AM605" not in codes(source)


@pytest.mark.parametrize(("sampler", "known"), [("Balanced(data)", False), ("SubsetRandomSampler(range(8))", True)])
def test_what_a_sampler_of_the_author_counts_is_not_known(sampler: str, known: bool):
    functions = "from sampling import Balanced\nfrom torch.utils.data import SubsetRandomSampler"
    source = training(
        functions=functions,
        ready=f"loader = DataLoader(data, batch_size=4, sampler={sampler})",
        inside="total += loss.item() * len(x)",
        after="print(total / len(loader.sampler))",
    )
    if known:
        becomes(source, "print(total / (len(loader.sampler) * loader.sample_share))")
    else:
        assert "whether `len(loader.sampler)` counts that" in noted(source, "AM605")
