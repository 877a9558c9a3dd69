"""Names by the clock that all processes take from the main one, where a result without that would be wrong."""

from __future__ import annotations

import pytest

from tests.migrate.rules.verbs import ACCELERATE, migrated, noted, unchanged

SCRIPT = """
    import os
    import time
    from datetime import datetime

    import torch
    from torch import nn
    from torch.utils.data import DataLoader

    run = {name}
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    {below}
    loader = DataLoader(rows, batch_size=4)
    model = nn.Linear(2, 1).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x.to(device)), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    torch.save(model.state_dict(), {path})
    {after}
    """
READ = "model.load_state_dict(torch.load({path}))"


def script(name: str, path: str = "run", below: str = "pass", after: str = READ) -> str:
    return SCRIPT.format(name=name, path=path, below=below, after=after.format(path=path))


@pytest.mark.parametrize(
    "name",
    [
        "f'{time.time()}.pt'",
        "'runs/%s.pt' % datetime.now()",
        "'runs/' + time.strftime('%H%M%S') + '.pt'",
        "os.path.join('runs', datetime.now().strftime('%H%M%S'))",
    ],
)
def test_a_file_that_is_read_back_has_the_main_processs_name(name: str) -> None:
    text = migrated(script(name))
    assert "accelerator = Accelerator()\nrun = broadcast_object_list([run])[0]\n" in text
    assert "from accel_runtime import Accelerator, broadcast_object_list\n" in text


def test_a_name_that_leads_to_another_is_enough() -> None:
    text = migrated(
        script("datetime.now().strftime('%H%M%S')", path="f'runs/{run}/{weights}'", below="weights = 'best.pt'")
    )
    assert text.count("broadcast_object_list([") == 1


def test_what_is_not_read_back_keeps_its_line() -> None:
    assert "broadcast_object_list" not in migrated(script("f'{time.time()}.pt'", after="pass"))


def test_a_name_that_is_made_below_the_accelerator_is_handed_on_right_there() -> None:
    text = migrated(script("'x'", path="f'{late}/best.pt'", below="late = f'{time.time()}'\n    other = late + '/x'"))
    assert "late = f'{time.time()}'\nlate = broadcast_object_list([late])[0]\nother = late + '/x'\n" in text


def test_a_name_that_only_some_come_to_is_left() -> None:
    source = script("'x'", path="late", below="if run:\n        late = f'{time.time()}.pt'")
    assert "by its clock" in unchanged(source)


def test_accelerate_has_no_such_name_to_import() -> None:
    assert "by its clock" in unchanged(script("f'{time.time()}.pt'"), ACCELERATE)


def test_a_folder_of_that_name_is_one_folder_below_the_accelerator() -> None:
    made = "os.makedirs(run, exist_ok=True)"
    agreed = script("f'runs/{time.time()}'", path="f'{run}/best.pt'", below=made)
    with pytest.raises(AssertionError):
        noted(agreed, "AM505")
    assert "names this folder for itself" in noted(script("f'runs/{time.time()}'", below=made, after="pass"), "AM505")
