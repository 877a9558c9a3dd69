"""What leaves a batch on the CPU, and what leant on DataParallel or on draws after the move."""

from __future__ import annotations

import pytest
from accel_migrate.settings import DEFAULTS

from tests.migrate.rules.verbs import _migrated, migrated, noted, unchanged

SCRIPT = """
    import torch
    from torch import nn

    def half(model, part, where):
        return model(part.to(where)) + torch.zeros(1, device=where)

    place = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    words = torch.utils.data.DataLoader(data(), batch_size=4)
    reader = build()
    {wrapped}
    reader = reader.to(place)
    {between}
    steps = torch.optim.SGD(reader.parameters(), lr=0.1)
    for {names} in words:
        {inside}
        steps.zero_grad()
        loss.backward()
        steps.step()
    """
OFF = "device_placement=[True, True, False]"


def script(names: str, inside: str, wrapped: str = "", between: str = "") -> str:
    return SCRIPT.format(
        names=names,
        inside=inside.replace("\n", "\n        "),
        wrapped=wrapped.replace("\n", "\n    "),
        between=between.replace("\n", "\n    "),
    )


@pytest.mark.parametrize(
    ("names", "inside"),
    [
        ("x, n", "loss = reader(x.to(place), n).mean()"),
        ("x, n", "x = x.to(place)\nloss = reader(x, n).mean()"),
        ("batch", "x, n = batch\nloss = reader(x.to(place), n).mean()"),
        ("batch", "loss = reader(batch['x'].to(place), batch['n']).mean()"),
        ("batch", "batch['x'] = batch['x'].to(place)\nloss = reader(batch['x'], batch['n']).mean()"),
        ("i, (x, n)", "loss = (reader(x.to(place)) * table[n].to(place)).mean()"),
    ],
)
def test_a_member_that_is_never_moved_stays_on_the_cpu(names, inside):
    source = script(names, inside).replace("in words", "in enumerate(words)" if "i, (" in names else "in words")
    result = migrated(source)
    assert OFF in result
    assert inside.replace("\n", "\n    ") in result


def test_batches_of_a_data_set_that_is_on_the_device_are_not_said_to_be_on_the_cpu():
    source = script("x, n", "loss = (reader(x) - n).mean()", between="rows = torch.zeros(8, 3).to(place)")
    result = _migrated(source.replace("data()", "torch.utils.data.TensorDataset(rows, rows)"), DEFAULTS)
    assert OFF in result.after.decode()
    (told,) = [change.message for change in result.applied if change.code == "AM102"]
    assert told.endswith("; batches stay where the data set has them, unless the script moves them, or parts of them")


@pytest.mark.parametrize(
    "use",
    [
        "x.mul_(mask)",
        "x *= mask",
        "x = x.mul(mask)",
        "x = x.bernoulli(0.5)",
        "w = numpy.array(x.view(-1))",
        "w = numpy.abs(x)",
        "if (x > mask).any():\n    print(1)",
        "w = 1 if x.gt(mask).any() else 2",
        "w = (reader(x.to(place)).argmax(1).cpu() == n).sum()",
        "w = n.eq(reader(x.to(place)).cpu())",
        "kept.last = n",
        "kept['n'] = n",
        "w = rows(x, 5)",
    ],
)
def test_what_is_done_before_the_move_is_done_on_the_cpu(use):
    helper = "def rows(x, depth):\n    return x.numpy() if depth == 0 else rows(x, depth - 1)"
    inside = f"{use}\nx, n = x.to(place), n.to(place)\nloss = reader(x, n).mean()"
    result = migrated(script("x, n", inside, between=helper))
    assert OFF in result
    assert "x, n = x.to(place), n.to(place)" in result
    assert ".cpu().numpy()" not in result


@pytest.mark.parametrize(
    "use",
    [
        "x = x.view(x.size(0), -1).float()",
        "w = (n == 1).sum().item()",
        "x -= 0.5",
        "w = x.clamp(-1, 1).mean(dim=0).tolist()",
        "if n is not None and x.max() > 3:\n    print(x[:, 0].sum())",
        "w = n.numpy()",
    ],
)
def test_what_is_the_same_on_every_device_leaves_the_batch_to_the_loader(use):
    inside = f"{use}\nx, n = x.to(place), n.to(place)\nloss = reader(x, n).mean()"
    result = migrated(script("x, n", inside))
    assert "device_placement" not in result
    assert "n.to(place)" not in result


@pytest.mark.parametrize(
    ("names", "inside"),
    [
        ("x, n", "print(n.shape, len(n), n.tolist())\nloss = reader(x.to(place)).mean()"),
        ("x", "loss = half(reader, x, place).mean()"),
        ("batch", "batch = {k: v.to(place) for k, v in batch.items()}\nloss = reader(**batch).mean()"),
        ("x", "if torch.cuda.is_available():\n    x = x.cuda()\nloss = reader(x).mean()"),
    ],
)
def test_what_is_moved_or_only_looked_at_is_the_loaders(names, inside):
    result = migrated(script(names, inside))
    assert "device_placement" not in result


@pytest.mark.parametrize(
    "between",
    [
        "reader.apply(draw)",
        "nn.init.normal_(reader.weight)",
        "reader.reset_parameters()",
        "for p in reader.parameters():\n    nn.init.xavier_uniform_(p)",
        "def draw(net):\n    for p in net.parameters():\n        p.data.uniform_(-0.1, 0.1)\ndraw(reader)",
    ],
)
def test_a_move_stays_above_weights_that_are_drawn(between):
    assert "reader = reader.to(place)" in migrated(script("x", "loss = reader(x.to(place)).mean()", between=between))


def test_a_part_comes_out_of_data_parallel_and_its_names_are_said():
    wrapped = "reader.features = nn.DataParallel(reader.features)"
    source = script("x", "loss = reader(x.to(place)).mean()", wrapped)
    assert "DataParallel" not in migrated(source)
    assert "lose the `module.` behind `features.`" in noted(source, "AM702")


@pytest.mark.parametrize(
    "wrapped",
    [
        "reader.features = nn.DataParallel(reader.features)\nfront = reader.features.module",
        "front = nn.DataParallel(reader.features)",
    ],
)
def test_a_part_in_a_data_parallel_that_is_looked_into_leaves_the_loop(wrapped):
    assert "a part of a model" in unchanged(script("x", "loss = reader(x.to(place)).mean()", wrapped))


def test_a_prefix_that_goes_only_without_data_parallel_leaves_the_loop():
    wrapped = (
        "state = torch.load('weights.pt')\n"
        "if torch.cuda.device_count() > 1:\n    reader = nn.DataParallel(reader)\n"
        "else:\n    state = {k.replace('module.', ''): v for k, v in state.items()}\n"
        "reader.load_state_dict(state)"
    )
    assert "lose `module.`" in unchanged(script("x", "loss = reader(x.to(place)).mean()", wrapped))


def test_a_counter_behind_a_progress_bar_is_no_member():
    source = script("i, x", "loss = reader(x.to(place)).mean() / (i + 1)")
    source = source.replace("    for i, x in words:", "    bar = tqdm(enumerate(words))\n    for i, x in bar:")
    assert "device_placement" not in migrated(source)


def test_data_parallel_moved_its_input_and_the_prepared_loader_does_from_now_on():
    result = migrated(script("x, y", "loss = (reader(x) - y.to(place)).mean()", "reader = nn.DataParallel(reader)"))
    assert "loss = (reader(x) - y).mean()" in result
    assert "device_placement" not in result


@pytest.mark.parametrize(
    "inside",
    [
        "x = x.type(torch.LongTensor)\nx = x.to(place)\nloss = reader(x).mean()",
        "loss = reader(x.type(torch.Tensor).to(place)).mean()",
        "loss = reader(x.type('torch.LongTensor').to(place)).mean()",
        "loss = reader(x.type(Kind).to(place)).mean()",
        "loss = reader(x.type_as(table).to(place)).mean()",
        "loss = reader(torch.FloatTensor(x).to(place)).mean()",
    ],
)
def test_a_cast_to_a_type_of_the_cpu_keeps_the_move_after_it(inside):
    result = migrated(script("x, n", inside, between="Kind = torch.FloatTensor"))
    assert OFF in result
    assert inside.replace("\n", "\n    ") in result


def test_a_cast_to_a_type_of_numbers_moves_nothing():
    result = migrated(script("x, n", "loss = reader(x.type(torch.long).to(place)).mean()"))
    assert "device_placement" not in result
    assert "reader(x.type(torch.long)).mean()" in result


@pytest.mark.parametrize(
    "inside",
    [
        "n = torch.squeeze(n)\nif torch.cuda.is_available():\n    x, n = x.cuda(), n.cuda()\nloss = (reader(x) - n).mean()",
        "loss = (reader(torch.flatten(x, 1).to(place)) - n.to(place)).mean()",
        "rows = torch.reshape(x, (len(x), -1))\nloss = (reader(rows.to(place)) - n.to(place)).mean()",
    ],
)
def test_a_member_in_another_shape_is_moved_with_the_batch(inside: str):
    result = migrated(script("x, n", inside))
    assert "device_placement" not in result
    assert ".cuda()" not in result.split("for x, n")[1] and ".to(" not in result.split("for x, n")[1]


def test_a_member_that_is_computed_with_before_its_move_stays_on_the_cpu():
    assert OFF in migrated(script("x, n", "n = torch.log(n)\nloss = (reader(x.to(place)) - n.to(place)).mean()"))
