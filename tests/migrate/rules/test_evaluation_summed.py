"""AM404: figures of whole batches, and all that keeps an evaluation from being divided by them."""

from __future__ import annotations

import pytest

from tests.migrate.rules.scripts import becomes, codes, training
from tests.migrate.rules.verbs import migrated, noted, notes, unchanged

MOVED = "x, y = x.to(device), y.to(device)"
READY = "hits, losses, seen = 0, [], 0"


def evaluation(*lines: str, functions: str = "", ready: str = READY, loop: str = "x, y in test_loader") -> str:
    body = "\n".join(f"        {line}" for line in (MOVED, *lines))
    return training(functions=functions, after=f"{ready}\nwith torch.no_grad():\n    for {loop}:\n{body}\n")


def test_adds_up_a_figure_of_an_output_without_a_name() -> None:
    becomes(
        evaluation("hits += (model(x).argmax(1) == y).sum().item()"),
        "for x, y in accelerator.whole_batches(test_loader):\n"
        "hits += accelerator.sum_for_metrics((model(x).argmax(1) == y).sum().item())",
    )


def test_a_name_with_an_annotation_is_bound_as_any_other() -> None:
    lines = ("x: torch.Tensor = x.to(device)", "right: int = (model(x).argmax(1) == y).sum().item()", "hits += right")
    becomes(evaluation(*lines), "hits += accelerator.sum_for_metrics(right)")


def test_what_a_lambda_does_to_each_member_is_judged() -> None:
    counted = "hits += model(x).sum().item()"
    becomes(
        evaluation("x, y = map(lambda t: t.to(device), (x, y))", counted),
        "hits += accelerator.sum_for_metrics(model(x).sum().item())",
    )
    kept = evaluation("x, y = map(lambda t: kept.append(t) or t, (x, y))", counted, functions="kept = []\n")
    assert "`kept.append()` is not known" in noted(kept, "AM402")


def test_what_a_function_does_to_each_member_is_judged() -> None:
    counted = "hits += (model(x).argmax(1) == y).sum().item()"
    becomes(
        evaluation("x, y = list(map(torch.stack, (x, y)))", counted),
        "hits += accelerator.sum_for_metrics((model(x).argmax(1) == y).sum().item())",
    )
    kept = evaluation("seen += len(list(map(kept.append, (x, y))))", counted, functions="kept = []\n")
    assert "`kept.append()` is not known" in noted(kept, "AM402")
    own = "def put(t):\n    kept[0] = t\n"
    assert "`put()` is not known" in noted(evaluation("a, b = map(put, (x, y))", counted, functions=own), "AM402")


def test_a_container_of_the_standard_library_leaves_nothing_behind() -> None:
    parts = "def parts(out, y):\n    kept = OrderedDict()\n    kept['right'] = (out.argmax(1) == y).sum()\n    return kept\n"
    source = evaluation(
        "hits += parts(model(x), y)['right'].item()", functions=f"from collections import OrderedDict\n{parts}"
    )
    becomes(source, "hits += accelerator.sum_for_metrics(parts(model(x), y)['right'].item())")


def test_what_is_raised_leaves_nothing_behind() -> None:
    raised = "if out.dim() != 2:\n        raise ValueError(f'{out.shape}')"
    functions = f"def right(out, y):\n    {raised}\n    return (out.argmax(1) == y).sum()\n"
    source = evaluation("hits += right(model(x), y).item()", functions=functions)
    becomes(source, "hits += accelerator.sum_for_metrics(right(model(x), y).item())")


@pytest.mark.parametrize("moved", ["batch = (t.to(device) for t in batch)", "batch = [t.to(device) for t in batch]"])
def test_what_goes_over_the_parts_of_a_batch_reads_one_batch(moved: str) -> None:
    counted = f"{moved}\n        x, y = batch\n        hits += (model(x).argmax(1) == y).sum().item()"
    loop = f"with torch.no_grad():\n    for batch in tqdm(test_loader):\n        {counted}\n"
    source = training(functions="from tqdm import tqdm\n", after=f"hits = 0\n{loop}")
    becomes(source, "for batch in tqdm(accelerator.whole_batches(test_loader)):")


def test_joins_a_list_in_the_order_of_the_batches() -> None:
    becomes(
        evaluation("losses.append(criterion(model(x), y).item())"),
        "losses.extend(accelerator.sum_for_metrics([criterion(model(x), y).item()]))",
    )


def test_extends_a_list_by_the_lists_of_all_batches() -> None:
    becomes(
        evaluation("losses.extend(model(x).argmax(1).cpu().numpy().tolist())"),
        "losses.extend(accelerator.sum_for_metrics(model(x).argmax(1).cpu().numpy().tolist()))",
    )
    becomes(
        evaluation("losses.extend(model(x).argmax(1).cpu().numpy())"),
        "losses.extend(accelerator.sum_for_metrics(list(model(x).argmax(1).cpu().numpy())))",
    )


@pytest.mark.parametrize("added", ["losses.extend({})", "losses += {}"])
def test_a_list_that_a_round_binds_to_a_name_extends_too(added: str) -> None:
    named = ("shown = model(x).argmax(1).tolist()", "if verbose: shown = [0]", added.format("shown"))
    becomes(evaluation(*named), added.format("accelerator.sum_for_metrics(shown)"))
    either = ("shown = model(x).argmax(1).tolist()", "if verbose: shown = model(x)", added.format("shown"))
    becomes(
        evaluation(*either), {"losses.extend({})": "sum_for_metrics(list(shown))"}.get(added, REPLAYED.format("shown"))
    )


def test_feeds_an_object_of_the_project_the_figures_of_all_batches() -> None:
    meter = "class Last:\n    def update(self, value, n):\n        self.value = value, n\n"
    becomes(
        evaluation("m.update(criterion(model(x), y).item(), x.size(0))", functions=meter, ready="m = Last()"),
        "for figure in accelerator.sum_for_metrics([(criterion(model(x), y).item(), x.size(0))]):\n    m.update(*figure)",
    )


def test_leaves_what_only_shows() -> None:
    source = evaluation(
        "hits += (model(x).argmax(1) == y).sum().item()",
        "if j % 5 == 0:",
        "    print(j, len(test_loader), hits)",
        loop="j, (x, y) in enumerate(tqdm(test_loader))",
    )
    becomes(source, "for j, (x, y) in enumerate(tqdm(accelerator.whole_batches(test_loader))):")
    becomes(source, "print(j, len(test_loader), hits)")


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (["hits += j * (model(x) > 0).sum().item()"], "counter"),
        (["hits -= (model(x) > 0).sum().item()"], "not a sum"),
        (["hits = max(hits, model(x).max().item())"], "`hits` goes on from batch to batch"),
        (["hits += (model(x) > seen).sum().item()", "seen += 1"], "`seen` goes on from batch to batch"),
        (["for row in model(x):", "    hits += row.max().item()", "seen += model(x)[0]"], "on the batch"),
        (["if len(x) < 4:", "    continue", "hits += model(x).sum().item()"], "left out"),
        (["hits += model(x).sum().item()", "if j > 3:", "    break"], "end early"),
        (["hits += model(x + torch.randn_like(x)).sum().item()"], "random"),
        (["hits += model(x).sum().item() * np.random.binomial(1, 0.5)"], "it draws random numbers"),
        (["losses += model(x).sum(1).cpu().numpy()"], "what `losses` holds"),
        (["table[j] = model(x).sum().item()"], "by position"),
        (["hits += other(model(x))"], "`other()` is not known to leave nothing behind"),
        (["hits += keeps(model(x))"], "`kept.append()` is not known to leave nothing behind"),
        (["hits += model(x).sum().item()", "save_image(x, 'x.png')"], "more than add up"),
        (["hits += model(x).sum().item() / (j + 1)"], "counter"),
        (["hits += model(x).sum().item()", "stores(j)"], "more than add up"),
        (["hits += model(x).sum().item()", "print(hits, file=table)"], "more than add up"),
        (["rows = losses", "rows.append(model(x).sum().item())", "seen += 1"], "not known to leave nothing behind"),
        (["hits += model.score(x)"], "a method of the model"),
    ],
)
def test_keeps_whole(lines: list[str], reason: str) -> None:
    functions = "kept = []\ndef keeps(out):\n    kept.append(out)\n    return out.sum()\n"
    functions += (
        "last = 0\ndef stores(at):\n    global last\n    last = at\n    print(at)\ndef shows():\n    print(last)\n"
    )
    source = evaluation(*lines, functions=functions, loop="j, (x, y) in enumerate(test_loader)")
    assert reason in noted(source, "AM402")
    assert "whole_batches" not in migrated(source)


REPLAYED = "for {0} in accelerator.sum_for_metrics([{0}]):"
PREDICTED = ("out = model(x)", "p = out.argmax(1)")


@pytest.mark.parametrize(
    "lines",
    [
        ["if p.sum() > 0:", "    hits += 1"],
        ["hits = max(hits, p.max().item())"],
        ["losses = torch.cat((losses, p), 0)"],
        ["losses = np.append(losses, p.cpu())"],
        ["for each in p:", "    if each > 3:", "        break", "    hits += 1"],
        ["for each in p:", "    losses.append(each.item())"],
        ["losses.append(p.max().item())", "losses.append(p.min().item())"],
        ["try:", "    hits += int(p[0])", "except ValueError:", "    hits = 0"],
        ["for c in range(2):", "    losses.append((p == c).sum())"],
        ["hits += p.sum().item()", "seen += hits"],
        ["p = p * hits", "hits = max(hits, p.max().item())"],
    ],
)
def test_runs_for_the_batches_of_all_what_is_no_sum(lines: list[str]) -> None:
    becomes(evaluation(*PREDICTED, *lines), "\n".join([REPLAYED.format("p"), *(f"    {line}" for line in lines)]))


def test_what_is_run_for_all_batches_is_one_loop_with_all_that_it_reads() -> None:
    source = evaluation(*PREDICTED, "hits = max(hits, p.max().item())", "losses = losses + [y.sum()]", "seen += len(p)")
    becomes(
        source,
        "for p, y in accelerator.sum_for_metrics([(p, y)]):\n    hits = max(hits, p.max().item())\n"
        "    losses = losses + [y.sum()]\n    seen += len(p)",
    )


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (["hits = max(hits, p.max().item() + j)"], "`hits` goes on"),
        (["hits = max(hits, model(x).max().item())"], "`hits` goes on"),
        (["hits = max(hits, p.max().item(), model(p).max())"], "`hits` goes on"),
        (["hits = max(hits, (p * torch.rand(1)).max())"], "random"),
        (["both = map(abs, model(x))", "hits = max(hits, max(both))"], "`map()` is not known"),
        (["if p.sum() > 0:", "    continue", "hits = max(hits, model(x).max())"], "left out"),
        (["hits += p.sum().item()", "if j == 3:", "    break"], "end early"),
        (["if p.sum() > 0:", "    break", "hits += p.sum().item()", "losses.append(j)"], "end early"),
        (["fold(p, model)"], "more than add up"),
        (["remember(p)"], "more than add up"),
        (["for c in range(2):", "    losses.append(model(x + c).sum())"], "several times"),
        (["if p.sum() > 0:", "    evaluator.process(p)"], "more than add up"),
        (["hits = max(hits, p.max().item())", "y = model(x * hits)"], "`hits` goes on"),
    ],
)
def test_keeps_whole_what_cannot_be_run_for_all_batches(lines: list[str], reason: str) -> None:
    functions = "seen_so_far = []\ndef remember(p):\n    seen_so_far.append(p)\n"
    functions += "def fold(p, net):\n    net.eval().update(p)\n"
    source = evaluation(*PREDICTED, *lines, functions=functions, loop="j, (x, y) in enumerate(test_loader)")
    assert reason in noted(source, "AM402")


def test_what_may_end_the_loop_runs_for_all_batches_with_all_that_counts() -> None:
    lines = ["losses.append(p.sum())", "seen += 1", "if seen > limit:", "    break"]
    replayed = "".join(f"\n    {line}" for line in lines)
    becomes(evaluation(*PREDICTED, *lines), f"{REPLAYED.format('p')}{replayed}\nelse:\n    continue\nbreak")
    counted = ["hits += p.sum().item()", "if hits > limit:", "    continue", "seen += len(p)"]
    replayed = "".join(f"\n    {line}" for line in counted)
    becomes(evaluation(*PREDICTED, *counted), f"{REPLAYED.format('p')}{replayed}\n")
    assert "else:" not in migrated(evaluation(*PREDICTED, *counted))


def test_a_function_may_change_what_it_is_handed() -> None:
    functions = (
        "def fold(p, table):\n    parts = [0, 1]\n    for part in parts:\n        table[part] += (p == part).sum()\n"
    )
    becomes(
        evaluation(*PREDICTED, "fold(p, table)", functions=functions), f"{REPLAYED.format('p')}\n    fold(p, table)"
    )
    elsewhere = evaluation("fold(y, table)", *PREDICTED, "fold(p, table)", functions=functions)
    assert "more than add up" in noted(elsewhere, "AM402")


def test_a_name_that_is_only_bound_takes_nothing_along() -> None:
    lines = ("_, p = model(x).max(1)", "for _, each in enumerate(p):", "    if each > 0:", "        hits += 1")
    becomes(evaluation(*lines), REPLAYED.format("p"))


def test_a_model_may_be_set_to_evaluate_in_each_round() -> None:
    becomes(evaluation("model = model.eval()", "hits += model(x).sum().item()"), "hits += accelerator.sum_for_metrics(")


@pytest.mark.parametrize("asked", ["index(y[0].item())", "count(1)"])
def test_a_list_may_be_asked(asked: str) -> None:
    kinds = evaluation("hits += model(x).sum().item() * len(list(F.kinds.keys()))")
    becomes(kinds, "hits += accelerator.sum_for_metrics(model(x).sum().item() * len(list(F.kinds.keys())))")
    becomes(
        evaluation(f"hits += model(x).sum().item() * kinds.{asked}", functions="kinds = [0, 1]\n"), "sum_for_metrics"
    )


def test_what_is_kept_as_the_loader_yields_it_is_dealt_out_as_it_is() -> None:
    source = evaluation(*PREDICTED, "losses.extend(y)").replace(MOVED, "x = x.to(device)")
    becomes(source, "losses.extend(accelerator.sum_for_metrics(list(y)))")
    becomes(source, "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)")


def test_a_batch_that_is_made_for_the_round_may_be_changed() -> None:
    source = evaluation(
        "y = b.pop('y')", "hits += (model(b['x']).argmax(1) == y).sum().item()", loop="b in test_loader"
    )
    becomes(source.replace(MOVED, "pass"), "accelerator.whole_batches(test_loader)")
    kept = source.replace(MOVED, "pass").replace(
        "DataLoader(data, batch_size=4)\nmodel", "DataLoader(data, 4, collate_fn=own)\nmodel"
    )
    assert "`b.pop()` is not known" in noted(kept, "AM402")


def test_no_whole_batch_is_sent() -> None:
    whole = evaluation(
        "out = model(batch['x'])", "hits = max(hits, batch['y'].sum() + out.sum())", loop="batch in test_loader"
    )
    assert "`hits` goes on" in noted(whole.replace(MOVED, "pass"), "AM402")


def test_keeps_whole_a_model_that_draws_in_its_forward() -> None:
    drawing = (
        "class Net(nn.Module):\n    def forward(self, x):\n        return self.noisy(x)\n"
        "    def noisy(self, x):\n        return x + torch.randn_like(x)\n"
    )
    source = evaluation("hits += model(x).sum().item()", functions=drawing)
    source = source.replace("nn.Linear(3, 2).to(device)", "Net().to(device)")
    assert "draws random numbers" in noted(source, "AM402")
    trained = source.replace(
        "return x + torch", "return x + torch.rand(1) if self.training else x + 0 * torch.zeros_like(x)  #"
    )
    becomes(trained, "accelerator.whole_batches(test_loader)")


@pytest.mark.parametrize(
    ("asked", "drawn", "exact"),
    [
        ("x, 0", "random.random() < ratio", True),
        ("x, ratio=0.0", "torch.rand(1) < ratio", True),
        ("x, 0.5", "random.random() < ratio", False),
        ("x", "random.random() < ratio", False),
        ("x, 0", "random.random() > ratio", False),
        ("x, 0", "torch.randn(1) < ratio", False),
    ],
)
def test_a_model_that_draws_and_goes_by_it_only_in_training(asked: str, drawn: str, exact: bool) -> None:
    forced = (
        "import random\nclass Net(nn.Module):\n    def forward(self, x, ratio=0.5):\n"
        f"        forces = {drawn}\n        return x + 1 if forces else x\n"
    )
    source = evaluation(f"hits += model({asked}).sum().item()", functions=forced)
    source = source.replace("nn.Linear(3, 2).to(device)", "Net().to(device)")
    assert ("whole_batches" in migrated(source)) is exact


def test_keeps_whole_a_model_that_goes_on_from_its_last_state() -> None:
    keeping = (
        "class Net(nn.Module):\n    def forward(self, x):\n        x = x + self.state\n        self.state = x.mean()\n"
        "        return x\n"
    )
    source = evaluation("hits += model(x).sum().item()", functions=keeping)
    source = source.replace("nn.Linear(3, 2).to(device)", "Net().to(device)")
    assert "keeps `self.state`" in noted(source, "AM402")


def test_leaves_on_the_cpu_what_the_original_compared_there() -> None:
    source = evaluation("hits += (model(x).cpu().argmax(1) == y).sum().item()").replace(MOVED, "x = x.to(device)", 2)
    source = source.replace(
        "        x = x.to(device)\n        loss", "        x, y = x.to(device), y.to(device)\n        loss"
    )
    becomes(source, "model, optimizer, loader, test_loader, device_placement=[True, True, True, False]")
    becomes(source, "hits += accelerator.sum_for_metrics((model(x).cpu().argmax(1) == y).sum().item())")


def test_deals_out_as_it_is_a_loader_whose_number_of_batches_is_asked_for() -> None:
    source = evaluation("hits += model(x).sum().item()") + "    report(len(test_loader))\n"
    becomes(source, "for x, y in accelerator.whole_batches(test_loader):")
    becomes(source, "report(len(test_loader))")


def test_goes_over_whole_batches_by_a_bar_that_is_made_before() -> None:
    source = evaluation(
        "hits += (model(x).argmax(1) == y).sum().item()", loop="x, y in bar", ready=f"{READY}\nbar = tqdm(test_loader)"
    )
    becomes(source, "bar = tqdm(accelerator.whole_batches(test_loader))")
    assert "wrapped before the loop" in noted(f"{source}    for z in bar:\n        print(z)\n", "AM402")


@pytest.mark.parametrize(
    "figure", ["hits += model(x).sum().item()", "out = model(x)\n        hits += (out.argmax(1) == y).sum().item()"]
)
def test_keeps_whole_what_shows_a_figure_by_how_far_its_bar_is(figure: str) -> None:
    shown = "bar.set_postfix(hits=hits / (bar.{}))"
    by_bar = evaluation(figure, shown.format("n + 1"), loop="x, y in bar", ready=f"{READY}\nbar = tqdm(test_loader)")
    assert "divided by how far a bar is" in noted(by_bar, "AM402")
    assert "AM402" not in codes(by_bar.replace("(bar.n + 1)", "len(test_loader)"))


def test_a_bar_may_take_the_name_of_its_loader() -> None:
    source = evaluation(
        "hits += criterion(model(x), y).item()",
        "test_loader.desc = str(hits / (j + 1))",
        loop="j, (x, y) in enumerate(test_loader)",
        ready=f"{READY}\ntest_loader = tqdm(test_loader)",
    )
    becomes(source, "test_loader = tqdm(accelerator.whole_batches(test_loader))")
    becomes(source, "test_loader.desc = str(hits / test_loader.iterable.batches_seen)")
    hidden = source.replace("tqdm(test_loader)", "track(test_loader)").replace("test_loader.desc = ", "text = ")
    assert "counter takes part" in noted(hidden, "AM402")


@pytest.mark.parametrize("begun", ["torch.zeros(1).to(device)", "torch.zeros(2).cuda().double()"])
def test_a_sum_that_begins_on_the_device(begun: str) -> None:
    becomes(
        evaluation("hits += model(x).sum()", ready=f"hits = {begun}"),
        "hits += accelerator.sum_for_metrics(model(x).sum())",
    )


BAR = "def bar(at, of, text):\n    sys.stdout.write(str(at) + text)\n    sys.stdout.flush()\n"


def test_divides_by_the_batches_of_all_processes() -> None:
    source = evaluation(
        "hits += criterion(model(x), y).item()",
        "bar(j, len(test_loader), str(hits / (j + 1)))",
        functions=BAR,
        loop="j, (x, y) in enumerate(test_loader)",
    )
    becomes(source, "bar(j, len(test_loader), str(hits / test_loader.batches_seen))")
    becomes(f"{source}    print(hits / (j + 1))\n", "print(hits / test_loader.batches_seen)")
    becomes(f"{source}    print(hits / j)\n", "print(hits / (test_loader.batches_seen - 1))")
    counted = source.replace("enumerate(test_loader)", "enumerate(test_loader, 1)")
    becomes(f"{counted}    print(hits / j)\n", "print(hits / test_loader.batches_seen)")
    begun = source.replace("enumerate(test_loader)", "enumerate(test_loader, first)")
    assert "counter takes part" in noted(begun, "AM402")


def test_keeps_whole_a_counter_that_another_loop_may_have_set() -> None:
    source = evaluation("hits += criterion(model(x), y).item()", loop="j, (x, y) in enumerate(test_loader)")
    source = source.replace("with torch.no_grad():", "if seen:\n        j = 3\n    else:")
    assert "`j` of the last batch" in noted(f"{source}    print(hits / (j + 1))\n", "AM402")


def test_feeds_a_meter_of_a_dictionary_and_shows_a_text_of_it() -> None:
    source = evaluation(
        "m['loss'].update(criterion(model(x), y).item(), x.size(0))",
        "text = OrderedDict([('loss', m['loss'].value)])",
        "bar.set_postfix(text)",
        "del x",
        functions="class Last:\n    def update(self, value, n):\n        self.value = value, n\n",
        ready="m = {'loss': Last()}\nbar = tqdm(total=len(test_loader))",
    )
    becomes(source, "    m['loss'].update(*figure)")
    becomes(source, "bar = tqdm(total=len(test_loader))")
    assert "OrderedDict()" in noted(source.replace("bar.set_postfix(text)", "y = text"), "AM402")


@pytest.mark.parametrize(("made", "summed"), [("tqdm(total=len(test_loader))", True), ("Scores()", False)])
def test_a_bar_that_is_told_of_each_batch_is_only_shown(made: str, summed: bool) -> None:
    source = evaluation("hits += criterion(model(x), y).item()", "bar.update()", ready=f"{READY}\nbar = {made}")
    text = migrated(f"{source}    print(bar)\n")
    assert ("        bar.update()\n" in text and "hits += accelerator.sum_for_metrics(" in text) is summed


def test_asks_the_loader_behind_for_the_number_of_batches() -> None:
    source = (
        evaluation("hits += model(x).sum().item()") + "    print(len(test_loader), 100 * max(len(test_loader), 1))\n"
    )
    behind = "len(test_loader.base_dataloader)"
    becomes(source, f"print({behind}, 100 * max({behind}, 1))")


@pytest.mark.parametrize("asked", ["len(test_loader)", "test_loader.__len__()"])
def test_the_number_of_batches_has_a_name(asked: str) -> None:
    source = (
        evaluation("hits += criterion(model(x), y).item()", ready=f"{READY}\nrounds = {asked}")
        + "    print(hits / rounds)\n"
    )
    becomes(source, "rounds = len(test_loader.base_dataloader)")
    assert "AM605" not in codes(source)


def test_a_model_may_keep_what_is_set_anew_in_each_forward() -> None:
    keeping = (
        "class Net(nn.Module):\n    def forward(self, x):\n        if len(x) != self.size:\n            self.size = len(x)\n"
        "        return self.layer.forward(x) * self.size\n"
    )
    source = evaluation("hits += model.forward(x).sum().item()", functions=keeping)
    source = source.replace("nn.Linear(3, 2).to(device)", "Net().to(device)")
    becomes(source, "accelerator.whole_batches(test_loader)")
    assert "keeps `self.size`" in noted(source.replace("len(x) != ", "len(x) > "), "AM402")


@pytest.mark.parametrize(
    "imported", ["torch_geometric.loader import DataLoader", "dgl.dataloading import GraphDataLoader"]
)
def test_goes_through_batches_of_graphs(imported: str) -> None:
    source = evaluation("out = model(x)", "hits += (out.argmax(1) == y).sum().item()")
    source = source.replace("test_loader = DataLoader(data", "test_loader = GraphLoader(data")
    source = source.replace("from tqdm", f"from {imported} as GraphLoader\nfrom tqdm")
    becomes(source, "hits += accelerator.sum_for_metrics((out.argmax(1) == y).sum().item())")


def test_a_graph_loader_that_deals_out_by_itself_stays() -> None:
    source = evaluation("out = model(x)", "hits += (out.argmax(1) == y).sum().item()")
    source = source.replace("test_loader = DataLoader(data, ", "test_loader = GraphDataLoader(data, use_ddp=many, ")
    source = source.replace("from tqdm", "from dgl.dataloading import GraphDataLoader\nfrom tqdm")
    assert "samples by itself" in noted(source, "AM402")


TRAINED_AND_EVALUATED = """
    import torch
    from torch import nn
    from torch.utils.data import DataLoader

    def fit(model, batches, optimizer):
        total = 0.0
        for x, y in batches:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return 1 / len(batches)

    def right(model, batches):
        hits = 0.0
        for x, y in batches:
            hits += (model(x).argmax(1) == y).sum().item() / len(y)
        return hits / len(batches)

    def main():
        loader = DataLoader(data(), batch_size=4, shuffle=True)
        model = nn.Linear(3, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        fit(model, loader, optimizer)
        print(right(model, loader){asked})

    main()
    """


def test_evaluates_the_loader_that_is_trained_on() -> None:
    result = migrated(TRAINED_AND_EVALUATED.format(asked=""))
    assert "for x, y in accelerator.whole_batches(batches):" in result
    assert "return hits / len(batches.base_dataloader)" in result
    assert "return 1 / len(batches)\n" in result
    assert "AM955" in unchanged(TRAINED_AND_EVALUATED.format(asked=", range(len(loader))"))


SOLVERS = """
    import torch
    from torch import nn
    from torch.utils.data import DataLoader

    class Solver:
        def __init__(self, model):
            self.model = model
            self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def right(self, batches):
            hits = 0.0
            with torch.no_grad():
                for x, y in batches:
                    hits += nn.functional.cross_entropy(self.model(x), y).item()
            return hits / len(batches)

        def fit(self, loader, batches):
            print("fit")
            for _ in range(2):
                for x, y in loader:
                    loss = nn.functional.cross_entropy(self.model(x), y)
                    self.optimizer.zero_grad()
                    loss.backward()
                    self.optimizer.step()
                print(self.right(batches))

    def main():
        loader, batches = DataLoader(data(), batch_size=4, shuffle=True), DataLoader(data())
        Solver(nn.Linear(3, 2)).fit(loader, batches)
        other = Solver(nn.Linear(3, 2))
        {first}
        other.fit(loader, batches)

    main()
    """


def test_a_method_that_another_object_has_run_while_it_trained() -> None:
    result = migrated(SOLVERS.format(first="pass"))
    assert "for x, y in self.accelerator.whole_batches(batches):" in result
    assert "return hits / len(batches.base_dataloader)" in result
    earlier = SOLVERS.format(first="other.right(batches)")
    assert noted(earlier, "AM402").endswith("or of none if it were sharded (AM955)")
    assert "for x, y in batches:" in migrated(earlier)


@pytest.mark.parametrize(
    ("rebound", "whole"), [("Head(model.body)", False), ("copy.copy(model)", True), ("model.train()", True)]
)
def test_a_model_whose_name_held_one_that_draws(rebound: str, whole: bool) -> None:
    functions = (
        "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.body = nn.Linear(3, 2)\n"
        "    def forward(self, x):\n        return self.body(x + torch.randn_like(x))\n"
        "class Head(nn.Module):\n    def __init__(self, body):\n        super().__init__()\n        self.body = body\n"
        "    def forward(self, x):\n        return self.body(x)\n"
    )
    source = evaluation("hits += model(x).sum().item()", functions=functions)
    source = source.replace("model = nn.Linear(3, 2).to(device)", f"model = Net()\nmodel = {rebound}.to(device)")
    assert ("draws random numbers" in str(notes(source))) == whole


def keeps_state_or_shares(model: str, keeps: bool) -> None:
    source = evaluation("hits += model(x).sum().item()", functions=model)
    source = source.replace("nn.Linear(3, 2).to(device)", "Net().to(device)")
    if keeps:
        assert "keeps `self.state`" in noted(source, "AM402")
    else:
        becomes(source, "accelerator.whole_batches(test_loader)")


@pytest.mark.parametrize(
    ("first", "keeps"),
    [
        ("self.state = self.fresh(x)", False),
        ("n, self.state = len(x), 0", False),
        ("if len(x): self.state = 0", True),
        ("self.state = self.detached()", True),
        ("self.state = self.state * 2", True),
    ],
)
def test_a_state_that_each_forward_begins_anew(first: str, keeps: bool) -> None:
    keeping = (
        "class Net(nn.Module):\n    def fresh(self, x):\n        return torch.zeros(len(x), 1)\n"
        "    def detached(self):\n        return self.state.detach()\n"
        f"    def forward(self, x):\n        {first}\n        x, self.state = x + self.state, x.mean()\n        return x\n"
    )
    keeps_state_or_shares(keeping, keeps)


@pytest.mark.parametrize(
    ("lines", "keeps"),
    [
        ("x = self.mixed(x)\n        self.state = x.mean()", True),
        ("x = self.mixed(x)\n        self.note(x)", True),
        ("self.note(x)\n        x = self.mixed(x)\n        self.note(x)", False),
        ("self.state = 0\n        x = self.mixed(x)\n        self.state = x.mean()", False),
        ("x = self.whole(x)\n        x = self.whole(x)", False),
    ],
)
def test_a_state_that_other_methods_of_the_model_read_and_set(lines: str, keeps: bool) -> None:
    keeping = (
        "class Net(nn.Module):\n    def mixed(self, x):\n        return x + self.state\n"
        "    def note(self, x):\n        self.state = x.mean()\n"
        "    def whole(self, x):\n        self.state = x.sum()\n        return self.mixed(x)\n"
        f"    def forward(self, x):\n        {lines}\n        return x\n"
    )
    keeps_state_or_shares(keeping, keeps)


@pytest.mark.parametrize(
    "read", ["[y for _, y in test_loader]", "list(test_loader)", "sum(len(y) for _, y in test_loader)"]
)
def test_prepares_no_loader_whose_batches_are_collected(read: str) -> None:
    source = evaluation("hits += criterion(model(x), y).item()") + f"    kept = {read}\n"
    becomes(source, "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)")
    becomes(source, f"for x, y in accelerator.whole_batches(test_loader):\n{MOVED}")
    kept = source.replace("hits +=", "hits = x.mean() +")
    assert "test_loader)` reads all batches of its loader" in noted(kept, "AM402").replace("]`", ")`")


def test_what_a_replayed_statement_binds_first_is_shown_where_it_is_bound() -> None:
    lines = ("out = model(x)", "seen = np.append(seen, out.std().item())", "last = seen[-1]", "total += last")
    text = migrated(evaluation(*lines, "print(last)", ready="seen, total = np.array([]), 0.0"))
    assert "for out in accelerator.sum_for_metrics([out]):" in text
    assert "                print(last)\n" in text, text
    text = migrated(evaluation(*lines, "print(total)", ready="seen, total = np.array([]), 0.0"))
    assert "            print(total)\n" in text and "                print(total)" not in text, text


def test_a_loader_that_also_goes_to_a_loop_that_trains_stays_whole() -> None:
    source = """\
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

net = nn.Linear(4, 1)
data = TensorDataset(torch.randn(30, 4), torch.randn(30, 1))


def run(loader, trains=False):
    for x, y in loader:
        loss = nn.functional.mse_loss(net(x), y)
        if trains:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


loader = DataLoader(data, batch_size=4, shuffle=True)
valid = DataLoader(data, batch_size=4)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(2):
    run(loader, trains=True)
    run(valid)
found = np.array([])
for x, y in valid:
    out = net(x).detach().numpy()
    found = np.append(found, out)
"""
    assert "for x, y in valid:" in migrated(source)
    assert any("also goes to a loop that trains" in each for each in notes(source))


def test_of_a_list_of_loaders_each_is_evaluated_as_it_is() -> None:
    made = (
        "def parts(many=True):\n    held = [DataLoader(data, 4)]\n    for part in (1, 2) if many else ():\n"
        "        held.append(DataLoader(data, 5))\n    return held if many else held[0]\n"
    )
    body = "hits += (model(a.to(device)).argmax(1) == b.to(device)).sum().item()\n"
    counted = f"for held in every:\n    for a, b in held:\n        {body}"
    source = training(functions=made, ready="every = parts()", after=f"hits = 0\n{counted}")
    becomes(
        source, "for held in every:\nfor a, b in accelerator.whole_batches(held):\nhits += accelerator.sum_for_metrics("
    )
    becomes(source, "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)")


@pytest.mark.parametrize(("asked", "said"), [("if y.sum() > 3:", True), ("for _ in range(int(y.sum())):", False)])
def test_an_evaluation_that_breaks_a_condition_if_it_is_shared_is_left_whole(asked: str, said: bool) -> None:
    functions = (
        "def right(batches):\n    hits = 0\n    for a, b in batches:\n"
        "        hits += (model(a.to(device)).argmax(1) == b.to(device)).sum().item()\n    print(hits)\n"
    )
    source = training(functions=functions, inside=f"{asked}\n            right(test_loader)")
    if not said:  # nothing would warn of processes that part there
        assert "(AM961)" in unchanged(source)
        return
    assert "whether sum_for_metrics() runs would depend on `y.sum() > 3`" in noted(source, "AM402")
    assert "`y.sum()` is this process's own" in noted(source, "AM806")
    becomes(source, "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)")


PHASES = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split
from tqdm import tqdm

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
loaders = {"train": DataLoader(rows, batch_size=4, shuffle=True), "val": DataLoader(held, batch_size=4)}
model = nn.Linear(3, 2).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for phase in ["train", "val"]:
        total, right, kept = 0.0, 0, []
        for i, (x, y) in enumerate(tqdm(loaders[phase])):
            x, y = x.to(device), y.to(device)
            optimizer.zero_grad()
            with torch.set_grad_enabled(phase == "train"):
                out = model(x)
                loss = nn.functional.cross_entropy(out, y)
                if phase == "train":
                    loss.backward()
                    optimizer.step()
            total += loss.item() * len(x)
            right += (out.argmax(1) == y).sum()
        print(phase, total / len(loaders[phase].dataset), right)
"""


def test_one_loop_that_trains_and_evaluates_deals_out_where_it_evaluates() -> None:
    chosen = """enumerate(tqdm(loaders[phase] if phase == "train" else accelerator.whole_batches(loaders[phase]))):"""
    becomes(PHASES, f"for i, (x, y) in {chosen}")
    becomes(PHASES, "total += accelerator.sum_for_metrics(loss.item() * len(x))")
    assert not {"AM402", "AM605"} & codes(PHASES)
    named = PHASES.replace("        total,", '        trains = phase == "train"\n        total,').replace(
        'if phase == "train"', "if trains"
    )
    becomes(named, chosen)


@pytest.mark.parametrize(
    ("line", "other"),
    [
        ("len(loaders[phase].dataset)", "len(loaders[phase])"),
        ("right += (", "kept.append("),
        ("right += (out.argmax(1) == y).sum()", "if i == 3:\n                break"),
        ("loss.item() * len(x)", "loss.item() / (i + 1)"),
        ("            with", "            right += len(x)\n            with"),
        ("                    optimizer.step()", "                    right += optimizer.step()"),
        ("                    optimizer.step()", "                    kept.append(optimizer.step())"),
        ('if phase == "train":\n                    loss', 'if phase == "train" and i > 0:\n                    loss'),
        ("loaders = {", "rows, held = random_split(everything, [9, 9])\nloaders = {"),
    ],
)
def test_one_loop_that_trains_and_evaluates_stays_whole(line: str, other: str) -> None:
    assert line in PHASES
    assert "sum_for_metrics" not in migrated(PHASES.replace(line, other))


BOTH = """
import torch
from torch import nn
from torch.utils.data import DataLoader
from elsewhere import judged

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
loader = DataLoader(rows(), batch_size=4, shuffle=True)
held_out = DataLoader(rows(), batch_size=4)
model = nn.Linear(4, 4).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def accuracy(data):
    right = 0
    with torch.no_grad():
        for x, y in data:
            right += {counted}
    return right / len(data.dataset)


total = 0.0
for x, y in loader:
    loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    total += loss.item()
print(total / len(loader))
print(accuracy(loader), accuracy(held_out))
"""


def test_data_that_a_script_trains_on_is_evaluated_by_a_function_over_all_processes() -> None:
    source = BOTH.format(counted="(model(x.to(device)).argmax(1) == y.to(device)).sum().item()")
    becomes(source, "right += accelerator.sum_for_metrics((model(x).argmax(1) == y).sum().item())")
    becomes(source, "print(total / len(loader))")


def test_says_that_a_figure_of_a_shard_is_divided_by_the_length_of_all() -> None:
    message = noted(BOTH.format(counted="judged(model(x.to(device)), y.to(device))"), "AM402")
    assert "its own shard" in message and "`len(data.dataset)` is that of all" in message


ON_WHAT_IS_TRAINED = ("hits += (model(x).argmax(1) == y).sum() + (model(-x).argmax(1) == y).sum()",)


def test_a_loader_that_the_same_code_trains_on_is_evaluated_by_whole_batches() -> None:
    source = evaluation(*ON_WHAT_IS_TRAINED, loop="x, y in loader")
    text = migrated(source + "print(hits / len(loader), total / len(loader))\n")
    assert "for x, y in accelerator.whole_batches(loader):" in text
    assert "print(hits / len(loader.base_dataloader), total / len(loader))" in text


def test_a_length_that_also_counts_the_steps_of_this_process_leaves_the_loop() -> None:
    source = evaluation(*ON_WHAT_IS_TRAINED, ready=f"rounds = len(loader)\n{READY}", loop="x, y in loader")
    assert "rounds = len(loader.base_dataloader)\n" in migrated(source + "print(hits / rounds)\n")
    assert "AM955" in unchanged(source + "print(hits / rounds, total / rounds)\n")


def test_a_meter_of_seconds_is_each_process_s_own():
    meter = (
        "import time\nclass Meter:\n    def __init__(self):\n        self.sum, self.n = 0, 0\n"
        "    def update(self, value, n=1):\n        self.sum += value * n\n        self.n += n\n"
    )
    evaluated = """
        with torch.no_grad():
            hits, spent, end = 0, Meter(), 0
            end = time.time()
            for x, y in test_loader:
                hits += (model(x.to(device)).argmax(1) == y.to(device)).sum().item()
                spent.update({})
                end = time.time()
        print(hits)
        """.replace(", end = 0, Meter(), 0", " = 0, Meter()")
    timed = training(functions=meter, after=evaluated.format("time.time() - end"))
    becomes(timed, "for x, y in accelerator.whole_batches(test_loader):")
    becomes(timed, "spent.update(time.time() - end)")


def test_how_far_a_process_is_goes_by_its_own_batches():
    evaluated = """
        with torch.no_grad():
            total = 0
            for j, (x, y) in enumerate(test_loader):
                loss = criterion(model(x.to(device)), y.to(device))
                total += loss.item()
                if j % 2 == 0:
                    print("%.0f%%" % (100.0 * j / len(test_loader)))
        print(total / len(test_loader))
        """
    becomes(training(after=evaluated), 'print("%.0f%%" % (100.0 * j / len(test_loader)))')


def test_a_path_that_is_taken_apart_leaves_nothing_behind() -> None:
    source = evaluation("name = os.path.basename(paths[0])", "hits += criterion(model(x), y).item()", "print(name)")
    becomes(source, "hits += accelerator.sum_for_metrics(criterion(model(x), y).item())")


def test_a_meter_of_unknown_make_among_others_is_fed_what_it_was_fed():
    meter = (
        "class Meter:\n    def __init__(self):\n        self.sum = 0\n"
        "    def update(self, value):\n        self.sum += value\n"
    )
    evaluated = """
        meters = {{"loss": {made}, "other": Meter()}}
        with torch.no_grad():
            for x, y in test_loader:
                loss = criterion(model(x.to(device)), y.to(device))
                meters["loss"].update(loss.item())
        print(meters["loss"].sum)
        """
    known = training(functions=meter, after=evaluated.format(made="Meter()"))
    becomes(known, 'for figure in accelerator.sum_for_metrics([loss.item()]):\nmeters["loss"].update(figure)')
    unknown = training(functions=meter, after=evaluated.format(made="made_elsewhere()"))
    becomes(unknown, 'meters["loss"].update(loss.item())')
