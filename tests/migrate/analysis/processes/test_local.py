"""Which values are this process's own once the loader is sharded, and which decisions depend on them."""

from __future__ import annotations

import ast
from textwrap import dedent, indent

import pytest

from tests.migrate.rules.scripts import becomes, codes, stays, training
from tests.migrate.rules.verbs import ACCELERATE, migrated, noted, unchanged

PLATEAU = "plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)"
AVERAGED = 'accelerator.reduce(torch.tensor({}, dtype=torch.float64), "mean").item()'


def test_a_plateau_is_looked_for_in_the_figure_of_all():
    source = training(
        ready=PLATEAU,
        inside="losses.append(loss.item())",
        after="plateau.step(sum(losses) / len(losses))\nlosses = []",
    )
    becomes(source, f"plateau.step({AVERAGED.format('sum(losses) / len(losses)')})")


def test_a_figure_with_a_name_is_averaged_where_it_is_complete():
    source = training(
        ready=PLATEAU,
        inside="total += loss.item()",
        after="mean = total / len(loader)\nprint(mean)\nplateau.step(mean)",
    )
    becomes(source, f"mean = total / len(loader)\nmean = {AVERAGED.format('mean')}")
    assert migrated(source).count("accelerator.reduce") == 1


def test_a_figure_that_is_divided_in_place_is_averaged_below_it():
    source = training(ready=PLATEAU, inside="total += loss.item()", after="total /= len(loader)\nplateau.step(total)")
    becomes(source, f"total /= len(loader)\ntotal = {AVERAGED.format('total')}")


def test_a_figure_that_a_function_returns_is_averaged_in_its_caller():
    source = """
    import torch
    from torch import nn
    from torch.utils.data import DataLoader

    def epoch_of(model, loader, optimizer):
        total = 0.0
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        return total / len(loader), 3

    def main():
        loader = DataLoader([(torch.randn(4), torch.randn(1)) for _ in range(8)], batch_size=2)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        best, patience = 9.0, 0
        for epoch in range(3):
            mean, _ = epoch_of(model, loader, optimizer)
            if mean < best:
                best, patience = mean, 0
            else:
                patience += 1
            if patience > 2:
                break

    main()
    """
    text = migrated(source)
    assert f"mean = {AVERAGED.format('mean')}" in text
    assert text.count("accelerator.reduce") == 1


@pytest.mark.parametrize(
    ("ready", "then"),
    [
        ("def keep(state):\n    torch.save(state, 'm.pt')", "keep({'model': model.state_dict()})"),
        ("def keep(net):\n    torch.save(net.state_dict(), 'm.pt')", "keep(model)"),
        ("def show(net):\n    print(net(torch.zeros(1, 4, device=device)))", "show(model)"),
    ],
)
def test_weights_are_collected_and_models_run_by_all_or_none(ready: str, then: str):
    source = training(ready=f"best = 9.0\n{ready}", inside=f"if loss.item() < best:\n    {then}")
    becomes(source, 'if accelerator.reduce(loss.detach(), "mean").item() < best:')


def test_a_decision_in_a_round_that_concerns_nobody_else_is_each_process_s_own():
    source = training(
        ready="low = 0\ndef show(x):\n    print(x)", inside="if loss.item() < 0.5:\n    low += 1\n    show(low)"
    )
    assert "reduce" not in migrated(source)


def test_a_sum_of_tensors_stays_a_tensor():
    source = training(
        ready="best = 9.0", inside="total += loss", after="if total < best:\n    best = total\n    model.eval()"
    )
    text = migrated(source + "    print(total.item(), best)\n")
    assert 'total = accelerator.reduce(total.detach(), "mean")\n    if total < best:' in text
    assert text.count("accelerator.reduce") == 1


@pytest.mark.parametrize("asked", ["mean.item()", "torch.isnan(mean)", "best.item()"])
def test_what_may_be_a_tensor_is_not_made_a_number_where_it_is_asked_for_more(asked: str):
    functions = "def mean_of(model, loader):\n    return score(model, loader)"
    after = f"mean = mean_of(model, loader)\nif mean < best:\n    best = mean\nprint({asked})"
    text = migrated(training(functions=functions, ready="best = 9.0", inside="score.add(loss)", after=after))
    assert "mean = accelerator.reduce(" not in text


def test_a_figure_that_is_averaged_is_alike_wherever_it_is_read_after_that():
    lines = "if total >= old:\n    worse += 1\nold = total"
    text = migrated(training(ready="old, worse = 9.0, 0", inside="total += loss.item()", after=lines))
    assert text.count("accelerator.reduce") == 1
    turned = migrated(
        training(
            ready="old, worse = 9.0, 0",
            inside="total += loss.item()",
            after=lines.replace("total >= old", "old < total"),
        )
    )
    assert turned.count("accelerator.reduce") == 1
    anew = "if total >= old:\n    worse += 1\ntotal = loss.item()\nif total > 3:\n    break"
    text = migrated(training(ready="old, worse = 9.0, 0", inside="total += loss.item()", after=anew))
    assert text.count("accelerator.reduce") == 2


def test_the_best_of_figures_that_are_averaged_is_alike():
    after = "total /= len(loader)\nif total < best:\n    best = total\n    torch.save(model.state_dict(), 'm.pt')"
    text = migrated(training(ready="best = 9.0", inside="total += loss.item()", after=after))
    assert text.count("accelerator.reduce") == 1


def test_a_sum_that_is_divided_where_it_is_asked_is_averaged_itself():
    after = "if total / len(loader) < best:\n    best = total / len(loader)\n    torch.save(model.state_dict(), 'm.pt')"
    text = migrated(training(ready="best = 9.0", inside="total += loss.item()", after=after))
    assert f"    total = {AVERAGED.format('total')}\n    if total / len(loader) < best:" in text
    assert text.count("accelerator.reduce") == 1


def test_a_way_out_of_the_loop_is_taken_by_all():
    becomes(
        training(inside="if loss.item() < 0.1:\n    break"),
        'if accelerator.reduce(loss.detach(), "mean").item() < 0.1:',
    )


def test_a_step_that_is_left_out_is_left_out_by_all():
    becomes(
        training(inside="if torch.isnan(loss):\n    continue"),
        'if torch.isnan(accelerator.reduce(loss.detach(), "mean")):',
    )


def test_a_loss_that_became_a_number_is_no_tensor():
    source = training(inside="loss = loss.item()\nif loss > 9:\n    raise SystemExit")
    becomes(source.replace("for epoch in range(2):", "while True:"), "if accelerator.reduce(torch.tensor(")


def test_what_an_object_that_ends_training_is_told_is_averaged():
    functions = (
        "class Patience:\n    def __init__(self):\n        self.best, self.over = 9.0, False\n"
        "    def look(self, value):\n        self.over = value > self.best\n        self.best = min(self.best, value)\n"
    )
    source = training(
        functions=functions,
        ready="patience = Patience()",
        inside="total += loss.item()",
        after="patience.look(total / len(loader))\nif patience.over:\n    break",
    )
    becomes(source, f"total = {AVERAGED.format('total')}\npatience.look(total / len(loader))")


def test_what_a_loop_goes_on_by_is_asked_of_all_each_time():
    source = """
    import torch
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    error = 9.0
    while error > 0.1:
        loss = model(torch.randn(4, 2)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        error = loss.item()
    """
    assert f"while {AVERAGED.format('error')} > 0.1:" in migrated(source)


def test_a_best_that_is_not_there_yet_is_not_averaged():
    source = training(
        ready="best = None",
        inside="total += loss.item()",
        after="if best is None or total < best:\n    best = total\n    model.eval()",
    )
    text = migrated(source)
    assert "best = accelerator" not in text
    assert text.count("accelerator.reduce") == 1


@pytest.mark.parametrize(
    "lines",
    [
        {"inside": "if i > 10:\n    break"},
        {"inside": "if x.size(0) < 4:\n    continue"},
        {"inside": "if loss.item() > 10:\n    print('large')"},
        {"ready": PLATEAU, "after": "plateau.step(0.5)"},
        {
            "ready": PLATEAU,
            "after": "worst = 0.0\nwith torch.no_grad():\n    for a, b in test_loader:\n        out = model(a)\n"
            "        worst += criterion(out, b).item()\nplateau.step(worst)",
        },
        {
            "ready": "seen = {}",
            "inside": "if 'a' not in seen:\n    seen['a'] = 0.0\n    continue\nseen['a'] += loss.item()",
        },
        {"inside": "lr = optimizer.param_groups[0]['lr']\nif lr < 1e-9:\n    break"},
    ],
)
def test_what_is_the_same_on_all_is_left_alone(lines):
    source = training(**lines)
    assert "AM806" not in codes(source)
    assert "accelerator.reduce" not in migrated(source)


MEAN = """
class Mean:
    def __init__(self):
        self.number, self.value = 0, 0.0
    def add(self, value):
        self.value = (self.value * self.number + value) / (self.number + 1)
        self.number += 1
    def item(self):
        return self.value
"""


def test_item_of_an_object_that_is_no_tensor_is_averaged_as_a_number():
    source = training(
        functions=MEAN,
        ready=PLATEAU,
        inside="if i == 0:\n    mean = Mean()\nmean.add(loss.item())",
        after="figure = mean.item()\nplateau.step(figure)",
    )
    becomes(source, f"figure = mean.item()\nfigure = {AVERAGED.format('figure')}")


def test_item_of_a_sum_of_losses_is_averaged_as_the_tensor_it_is():
    source = training(ready=PLATEAU, inside="total += loss", after="figure = total.item()\nplateau.step(figure)")
    becomes(source, 'figure = accelerator.reduce(total.detach(), "mean").item()')


def test_what_one_object_was_given_is_not_said_of_another_of_its_class():
    source = training(
        functions=MEAN,
        ready="best = 9.0",
        inside="trained.add(loss.item())",
        after="with torch.no_grad():\n    for a, b in test_loader:\n        a, b = a.to(device), b.to(device)\n"
        "        out = model(a).tolist()\n        tested.add(out[0][0])\n"
        "figure = tested.item()\nif figure < best:\n    best = figure\n    torch.save(model.state_dict(), 'best.pt')",
    ).replace("    total = 0.0", "    trained = Mean()\n    tested = Mean()")
    assert "AM806" not in codes(source)


PLAIN = """
class Plain:
    def near(self, out):
        {kept}return self.half(out)
    def half(self, out):
        return out.mean().item() / 2
    def of(self, out):
        return out.tolist()[0][0]
"""


@pytest.mark.parametrize(("kept", "told"), [("", False), ("self.last = 1\n        ", True)])
def test_what_one_method_is_given_is_not_said_of_another_where_the_class_keeps_nothing(kept: str, told: bool) -> None:
    source = training(
        functions=PLAIN.format(kept=kept),
        ready="best = 9.0\nplain = Plain()",
        inside="print(plain.near(loss))",
        after="summed = 0.0\nwith torch.no_grad():\n    for a, b in test_loader:\n        a, b = a.to(device), b.to(device)\n"
        "        out = model(a)\n        summed += plain.of(out)\nfigure = summed / len(test_loader)\n"
        "if figure < best:\n    best = figure\n    torch.save(model.state_dict(), 'best.pt')",
    )
    assert ("AM806" in codes(source)) is told
    assert "AM901" not in codes(source)


def test_what_an_object_is_given_under_another_name_is_its_own():
    source = training(
        functions=MEAN + "def keep(kept, value):\n    kept.add(value)\n",
        ready=PLATEAU,
        inside="keep(trained, loss.item())",
        after="plateau.step(trained.item())",
    ).replace("    total = 0.0", "    trained = Mean()")
    assert "AM806" in codes(source)


def test_what_is_bound_inside_with_hides_what_was_bound_above():
    source = training(
        ready="best = 9.0",
        inside="out = model(x)",
        after="worst = 0.0\nfor a, b in test_loader:\n    a, b = a.to(device), b.to(device)\n    with torch.no_grad():\n"
        "        out = model(a)\n    rows = out.tolist()\n    worst = max(worst, rows[0][0])\n"
        "if worst < best:\n    best = worst\n    torch.save(model.state_dict(), 'best.pt')",
    )
    assert "AM806" not in codes(source)


def test_what_cannot_be_averaged_is_told():
    assert "`y`" in noted(training(inside="if (y == 1).all():\n    continue"), "AM806")


def test_every_figure_parses():
    ast.parse(migrated(training(ready=PLATEAU, inside="total += loss", after="plateau.step(metrics=total)")))


SAMPLES = "total += loss.item() * x.size(0)"


@pytest.mark.parametrize(
    ("inside", "after", "expected"),
    [
        (
            "seen[epoch] += (model(x).argmax(1) == y).sum().item()",
            "seen[epoch] /= len(loader.dataset)",
            "seen[epoch] /= len(loader.dataset) / accelerator.num_processes",
        ),
        (SAMPLES, "m = total / len(loader.sampler)", "m = total / (len(loader.sampler) * loader.sample_share)"),
        (SAMPLES, "m = total / len(data)", "m = total / (len(data) * loader.sample_share)"),
        (SAMPLES, "n = len(loader.dataset)\nm = total / n", "m = total / (n * loader.sample_share)"),
        (f"{SAMPLES} / len(data)", "", f"{SAMPLES} / (len(data) * loader.sample_share)"),
    ],
)
def test_a_sum_of_a_share_is_divided_by_the_share(inside, after, expected):
    becomes(training(ready="seen = [0, 0]", inside=inside, after=after), expected)


@pytest.mark.parametrize(
    ("inside", "after", "kept"),
    [
        ("total += loss.item()", "mean = total / len(loader)", "mean = total / len(loader)"),
        ("total += loss.item()\nn += 1", "mean = total / n", "mean = total / n"),
        ("total += loss.item()", "mean = total / (i + 1)", "mean = total / (i + 1)"),
        ("rows.append(loss.item())", "mean = sum(rows) / len(rows)", "mean = sum(rows) / len(rows)"),
        ("if i % 9 == 8:\n    print(total / 9)", "", "print(total / 9)"),
        ("print(total / (4 * i))\ntotal += loss.item() * 4", "", "print(total / (4 * i))"),
        ("", "mean = i / len(loader.dataset)", "mean = i / len(loader.dataset)"),
    ],
)
def test_what_is_over_the_same_batches_is_left_alone(inside, after, kept):
    source = training(ready="n, rows = 0, []", inside=inside, after=after)
    stays(source, kept)
    assert "AM605" not in codes(source)


def test_a_loss_that_is_weighed_by_the_data_is_left_alone():
    loss = "criterion(model(x), y) + F.relu(model(x)).sum() / len(data)"
    stays(training(loss=loss), f"loss = {loss}")


def test_a_length_taken_before_prepare_counts_the_batches_of_all():
    source = training(ready="", inside="total += loss.item()", after="mean = total / batches").replace(
        "model = nn.Linear", "batches = len(loader)\nmodel = nn.Linear"
    )
    becomes(source, "mean = total / (batches * loader.batch_share)")


def test_a_divisor_out_of_sight_is_told():
    assert "not visible to the analysis" in noted(
        training(inside="total += loss.item()", after="mean = total / data.count()"), "AM605"
    )


def test_what_a_while_binds_anew_above_is_not_what_was_bound_in_another_loop_of_it():
    source = """
    import torch
    from torch import nn
    from torch.utils.data import DataLoader

    rows = [(torch.randn(4), torch.randn(1)) for _ in range(8)]
    loader, test_loader = DataLoader(rows, batch_size=2), DataLoader(rows, batch_size=2)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    step, best = 0, 9.0
    while step < 6:
        for x, y in loader:
            outputs = model(x)
            loss = nn.functional.mse_loss(outputs, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % 3 == 0:
                worst = 0.0
                for a, b in test_loader:
                    outputs = model(a)
                    rows = outputs.tolist()
                    worst = max(worst, rows[0][0])
                if worst < best:
                    best = worst
                    torch.save(model.state_dict(), "best.pt")
    """
    assert "AM806" not in codes(source)


def test_a_counter_that_a_bar_hands_out_is_the_same_on_all():
    source = """
    import torch
    from tqdm import tqdm
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with tqdm(range(9)) as bar:
        for i in bar:
            loss = model(torch.randn(4, 2)).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            bar.set_description(f"{loss.item()}")
            if i % 4 == 0:
                torch.save(model.state_dict(), "m.pt")
    """
    assert "AM806" not in codes(source)


SHUFFLED = """
    import torch
    from torch import nn
    from torch.utils.data import DataLoader

    net = nn.Linear(3, 2)
    rate = torch.optim.SGD(net.parameters(), lr=0.1)
    rows, held = DataLoader(data(), batch_size=4, shuffle=True), DataLoader(rest(), batch_size=8, shuffle={})
    best, stale = 0, 0
    for epoch in range(9):
        for x, y in rows:
            loss = nn.functional.cross_entropy(net(x), y)
            rate.zero_grad()
            loss.backward()
            rate.step()
        right = []
        for x, y in held:
            with torch.no_grad():
                guess = net(x).argmax(1)
            keep(guess, y)
            right.append((guess == y).float().mean())
        share = sum(right) / len(right)
        if share > best:
            best, stale = share, 0
        else:
            stale += 1
            if stale > 2:
                break
"""


def test_a_whole_evaluation_in_an_order_of_its_own_is_averaged_before_it_decides():
    assert "share = accelerator.reduce(" in migrated(SHUFFLED.format("True"))
    assert "share = accelerator.reduce(" in migrated(SHUFFLED.format("flag"))
    assert "accelerator.reduce(" not in migrated(SHUFFLED.format("False"))
    assert "accelerator.reduce(" not in migrated(SHUFFLED.format("True, generator=fixed()"))


def test_a_whole_evaluation_of_a_part_that_each_process_draws_is_averaged_too():
    split = SHUFFLED.format("False").replace("rest()", "apart")
    drawn = (
        "from torch.utils.data import random_split\n    mine, apart = random_split(data(), [8, 3]{})\n    best, stale"
    )
    text = split.replace("best, stale", drawn.format(""), 1).replace("    rows, held", "    ROWS", 1)
    rows = next(line for line in text.splitlines() if "ROWS" in line)
    text = text.replace(rows + "\n", "").replace(
        "    best, stale", rows.replace("ROWS", "rows, held") + "\n    best, stale", 1
    )
    assert "share = accelerator.reduce(" in migrated(text, ACCELERATE)
    assert "accelerator.reduce(" not in migrated(text.replace("[8, 3]", "[8, 3], generator=fixed()"), ACCELERATE)
    assert "accelerator.reduce(" not in migrated(text)  # all are seeded alike
    folds = "    import torch\n    for fold in range(2):\n" + indent(dedent(text), " " * 8)
    assert "share = accelerator.reduce(" in migrated(folds)  # the second is drawn when they have trained
    by_rank = "torch.manual_seed(int(os.environ['RANK']))\n    net = nn.Linear"
    assert "share = accelerator.reduce(" in migrated("\n    import os" + text.replace("net = nn.Linear", by_rank, 1))


@pytest.mark.parametrize(
    ("kept", "averaged"),
    [
        ("history['best'] = fit", False),
        ("history['best'] = fit\njson.dump(history, open('log', 'w'))", False),
        ("history['best'] = fit + loss.item()", True),
        ("history['best'] += loss.item()", True),
        ("history['best'], _ = loss.item(), 0", True),
        ("history['best'] = fit\nhistory.update(best=loss.item())", True),
        ("history['best'] = fit\nother = history\nother['best'] = loss.item()", True),
        ("history['best'] = fit\nfor key in history:\n    history[key] = loss.item()", True),
    ],
)
def test_an_entry_beside_one_that_is_this_processs_own(kept: str, averaged: bool) -> None:
    lines = "".join(f"    {line}\n" for line in kept.splitlines())
    source = training(
        ready="import json\nhistory = {'losses': [], 'best': 0.0}\nfixed = torch.ones(4)",
        inside="history['losses'].append(loss.item())",
        after="fit = model(fixed).sum().item()\nif fit >= history['best']:\n"
        f"{lines}    torch.save(model.state_dict(), 'best.pt')",
    )
    assert ("AM806" in codes(source)) == averaged


@pytest.mark.parametrize(
    "function",
    [
        "hard = F.cross_entropy(out, y)\nif not mask.any():\n    return hard\nreturn hard + F.cross_entropy(out[mask], y[mask])",
        "hard = F.cross_entropy(out, y)\nif mask.any():\n    hard = hard + F.cross_entropy(out[mask], y[mask])\nreturn hard",
        "known = mask.sum()\nif known == 0:\n    return out.sum() * 0\nreturn out[mask].sum() / known.float()",
        "known = mask.sum().item()\nif known > 0:\n    return out[mask].sum() / known\nreturn out.sum() * 0",
        "known = mask.sum()\nif known < 2:\n    return out.sum() * 0\nreturn out[mask].sum() / known.float()",
    ],
)
@pytest.mark.parametrize("owner", ["", "class Loss(nn.Module):\n"])
def test_what_a_loss_asks_of_its_own_rows_is_left_alone(function: str, owner: str) -> None:
    name = "forward(self, out, y, mask)" if owner else "pupil(out, y, mask)"
    lines = "".join(f"    {line}\n" for line in function.splitlines())
    defined = f"def {name}:\n{lines}"
    whole = owner + "".join(f"    {line}\n" for line in defined.splitlines()) if owner else defined
    source = training(functions=whole, loss=("Loss()" if owner else "pupil") + "(model(x), y, y > 0)")
    assert "reduce(" not in migrated(source)
    assert "AM806" not in codes(source)


@pytest.mark.parametrize(
    "asked", ["mask.sum() == 0", "not mask.any()", "mask.sum().item() < 2", "mask.float().mean() < 0.1", "loss == 0"]
)
@pytest.mark.parametrize("step", ["{}", "def step(x, y, mask, loss):\n{}step(x, y, mask, loss)\n"])
def test_a_step_that_is_left_out_for_want_of_rows_is_not_decided_by_an_average(asked: str, step: str) -> None:
    leaves = "continue" if step == "{}" else "return"
    body = f"if {asked}:\n    {leaves}\noptimizer.zero_grad()\nloss.backward()\noptimizer.step()\n"
    inner = body if step == "{}" else "".join(f"    {line}\n" for line in body.splitlines())
    lines = "mask = y > 0\n" + step.format(inner)
    source = training().replace(
        "        optimizer.zero_grad()\n        loss.backward()\n        optimizer.step()\n",
        "".join(f"        {line}\n" for line in lines.splitlines()),
    )
    assert f"would depend on `{asked}`" in unchanged(source)


@pytest.mark.parametrize(
    ("inside", "after", "kept"),
    [
        (
            "hits += (model(x).argmax(1) == y).sum().item()",
            "if hits > best:\n    best = hits\n    model.eval()",
            "print(f'{hits:d}', best)",
        ),
        ("hits = hits + loss", "if hits < best:\n    best = hits.item()\n    model.eval()", "hits.backward()"),
        (
            "kept.append(loss.detach())",
            "hits = torch.stack(kept).mean()\nif hits < best:\n    best = 1\n    model.eval()",
            "hits.shape",
        ),
        (
            "hits += loss.item()",
            "hits = hits / torch.tensor(3)\nif hits < best:\n    best = 1\n    model.eval()",
            "hits.item()",
        ),
    ],
)
def test_a_name_that_is_read_as_what_it_was_is_not_set_to_its_average(inside: str, after: str, kept: str) -> None:
    source = training(ready="best, hits, kept = 9, 0, []", inside=inside, after=f"{after}\n{kept}")
    text = migrated(source)
    assert "hits = accelerator.reduce(" not in text
    assert "if accelerator.reduce(" in text


@pytest.mark.parametrize(
    ("above", "kept", "averaged"),
    [
        ("best = scores['loss']", "scores['loss'] = total", False),
        ("best = scores['loss']", "scores['loss'].append(total)", True),
        ("best = keep()", "scores['loss'] = total", True),
    ],
)
def test_an_entry_that_is_read_before_any_is_set_is_the_same_on_all(above: str, kept: str, averaged: bool) -> None:
    source = training(
        functions="def keep():\n    return scores['loss']\n",
        ready=f"scores = json.load(open('scores.json'))\n{above}",
        inside="total += loss.item()",
        after=f"score = total / 8\nif score < best:\n    best = score\n    {kept}\n    torch.save(model.state_dict(), 'b.pt')",
    )
    assert ("best = accelerator.reduce(" in migrated(source)) is averaged


def test_a_function_that_is_called_again_finds_the_entry_that_it_has_set():
    source = """
    import torch
    from torch import nn
    from torch.utils.data import DataLoader

    scores = {"loss": 9.0}
    loader = DataLoader([(torch.randn(4), torch.randn(1)) for _ in range(8)], batch_size=2)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def epoch(kept):
        best, total = kept["loss"], 0.0
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        score = total / 4
        if score < best:
            torch.save(model.state_dict(), "best.pt")
        kept["loss"] = total

    for _ in range(3):
        epoch(scores)
    """
    assert migrated(source).count("accelerator.reduce(") == 2


def test_a_figure_of_all_is_spelled_as_the_file_names_torch():
    source = training(
        ready=PLATEAU, inside="losses.append(loss.item())", after="plateau.step(sum(losses) / len(losses))\nlosses = []"
    )
    renamed = (
        source.replace("import torch\n", "import torch as th\n")
        .replace("torch.", "th.")
        .replace("from th.", "from torch.")
    )
    becomes(renamed, f"plateau.step({AVERAGED.format('sum(losses) / len(losses)').replace('torch', 'th')})")


def test_one_entry_of_a_mapping_is_its_own_and_another_is_not() -> None:
    functions = """
        def update(model, state):
            if state["epoch"] == 0:
                torch.save(model.state_dict(), state["file"])
            elif state["epoch"] >= 1:
                before, now = state["losses"][-2:]
                state["bad"] = state["bad"] + 1 if before < 1 else 0
                if now < state["best"]:
                    torch.save(model.state_dict(), state["file"])
            return state
    """
    ready = "state = {'epoch': 0, 'bad': 0, 'best': 1e8, 'losses': [], 'file': 'a.pt'}"
    after = "state['epoch'] = epoch\nstate['losses'].append(total / len(loader))\nstate = update(model, state)\n"
    after += "if state['epoch'] > 5:\n    break"
    source = training(functions=functions, ready=ready, inside="total += loss.item()", after=after)
    text = migrated(source)
    assert 'now = accelerator.reduce(torch.tensor(float(now), dtype=torch.float64), "mean").item()\n' in text
    assert 'elif state["epoch"] >= 1:\n' in text and "if state['epoch'] > 5:\n" in text
    assert text.count("accelerator.reduce") == 1


def test_a_figure_that_an_elif_asks_is_averaged_there() -> None:
    source = training(
        ready="scores = {}",
        inside='scores["total"] = scores.get("total", 0.0) + loss.item()',
        after='if epoch == 0:\n    torch.save(model.state_dict(), "a.pt")\n'
        'elif scores["total"] < 3:\n    torch.save(model.state_dict(), "b.pt")',
    )
    assert "\n    elif accelerator.reduce(" in migrated(source)


LOSS_OF_PARTS = """
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Linear(3, 1)
            self.criterion = nn.MSELoss()

        def part(self, x):
            return self.criterion(self.body(x), x[:, :1])

        def cost(self, x):
            inner = self.part(x)
            edge = self.part(x + 1)
            return inner + edge


    loader = DataLoader(data, batch_size=4)
    batches = iter(loader)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
    while True:
        try:
            x, y = next(batches)
        except StopIteration:
            batches = iter(loader)
            x, y = next(batches)
        loss = model.cost(x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        plateau.step(loss)
        if loss.item() < 0.1:
            break
    """


def test_a_loss_that_methods_add_up_is_a_tensor_where_it_is_averaged():
    header = "import torch\nfrom torch import nn\nfrom torch.utils.data import DataLoader\n"
    after = migrated(header + dedent(LOSS_OF_PARTS))
    assert 'plateau.step(accelerator.reduce(loss.detach(), "mean"))' in after
    assert 'if accelerator.reduce(loss.detach(), "mean").item() < 0.1:' in after


@pytest.mark.parametrize(
    ("kept", "decides"),
    [
        ("best = total", False),
        ("best = total\n    print(f'best: {best}')", False),
        ("best = total\n    stale = 0", False),
        ("best = total\n    step_size = best", True),
        ("best = total\n    model.eval()", True),
    ],
)
def test_a_best_figure_that_is_only_shown_decides_nothing(kept: str, decides: bool):
    source = training(
        ready="best = 9.0", inside="total += loss.item()", after=f"if total < best:\n    {kept}\nprint(best)"
    )
    source += "\nmodel.train(step_size > 0)\n" if "step_size" in kept else ""
    assert ("AM806" in codes(source)) is decides


def test_a_metric_of_torchmetrics_is_computed_for_all_processes():
    source = training(
        ready="import torchmetrics\nbest = 0.0\nmetric = torchmetrics.MeanMetric().to(device)",
        inside="metric.update(loss)",
        after="score = metric.compute()\nif score > best:\n    best = score\n    torch.save(model.state_dict(), 'best.pt')",
    )
    assert "accelerator.reduce" not in migrated(source)
    assert "AM806" not in codes(source)
    apart = source.replace("MeanMetric()", "MeanMetric(sync_on_compute=False)")
    assert "a process's own batch" in unchanged(apart)


@pytest.mark.parametrize(("figure", "is_alike"), [("score", True), ("mean", False)])
def test_one_of_the_figures_that_a_function_returns(figure: str, is_alike: bool) -> None:
    source = f"""
    import torch
    import torchmetrics
    from torch import nn
    from torch.utils.data import DataLoader

    metric = torchmetrics.MeanMetric()

    def epoch_of(model, loader, optimizer):
        total = 0.0
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
            metric.update(loss)
        return metric.compute(), total / len(loader)

    def main():
        loader = DataLoader([(torch.randn(4), torch.randn(1)) for _ in range(8)], batch_size=2)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        {PLATEAU}
        for epoch in range(3):
            score, mean = epoch_of(model, loader, optimizer)
            plateau.step({figure})

    main()
    """
    assert ("accelerator.reduce" not in migrated(source)) is is_alike


def test_the_loss_of_an_evaluation_that_may_be_left_under_the_name_of_the_trained_one():
    measured = "rows = []\ntotal = 0.0\nfor x, y in test_loader:\n    x, y = x.to(device), y.to(device)\n"
    measured += "    loss = criterion(model(x), y)\n    total += loss.item()\n    rows.append(seen(x))\n"
    source = training(
        functions="from elsewhere import seen, kind", after=f"{measured}print(total / len(test_loader.dataset))"
    )
    chosen = "        if kind == 1:\n            loss = criterion(model(x), y)\n"
    chosen += "        elif kind == 2:\n            loss = criterion(model(x), 1 - y)\n"
    plain = "        loss = criterion(model(x), y)\n        optimizer"
    assert plain in source
    for each in (source, source.replace(plain, f"{chosen}        optimizer")):
        assert "AM402" in codes(each), unchanged(each)
        assert "AM605" not in codes(each)


@pytest.mark.parametrize(
    ("left", "then", "is_told"),
    [
        ("return", "print(len(kept))", False),
        ("return", "state.best = 1", True),
        ("return", "seen.append(1)", True),
        ("return", "model(torch.zeros(1, 3))", True),
        ("return True", "print(sum(losses))\n    return False", True),
    ],
)
def test_a_function_that_is_left_early_where_nobody_waits_below(left: str, then: str, is_told: bool) -> None:
    source = training(
        functions=f"from elsewhere import state\nseen = []\ndef show(model, kept):\n"
        f"    if not kept[-1]:\n        {left}\n    {then}",
        ready="kept = []",
        inside="kept.append((loss.item(), i))",
        after="show(model, kept)",
    )
    assert ("AM806" in codes(source)) is is_told
