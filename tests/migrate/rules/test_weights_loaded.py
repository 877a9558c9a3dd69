"""AM502: weights come to the CPU, after the file is written, into the model itself."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import dedent

import pytest
from accel_migrate.pipeline import migrate
from accel_migrate.plan import FileResult, Status
from accel_migrate.settings import DEFAULTS
from accel_migrate.source import Source

from tests.migrate.rules.scripts import becomes, codes, stays, training
from tests.migrate.rules.verbs import ACCELERATE, _migrated, migrated, noted, notes, unchanged
from tests.migrate.test_reasons import results


def test_reads_to_the_cpu_before_prepare():
    becomes(
        training(ready='model.load_state_dict(torch.load("init.pt", map_location=device))'),
        'model.load_state_dict(torch.load("init.pt", map_location="cpu"))',
    )


def test_names_the_cpu_where_nothing_was_named():
    becomes(
        training(ready='model.load_state_dict(torch.load("init.pt"))'),
        'model.load_state_dict(torch.load("init.pt", map_location="cpu"))',
    )


def test_fills_the_model_itself_after_prepare():
    source = training(after="model.load_state_dict(best)")
    becomes(source, "accelerator.unwrap_model(model).load_state_dict(best)", ACCELERATE)
    stays(source, "model.load_state_dict(best)")


def test_waits_for_a_file_of_this_run():
    source = training(after='torch.save(model.state_dict(), "m.pt")\nmodel.load_state_dict(torch.load("m.pt"))')
    loads = 'load_state_dict(torch.load("m.pt", map_location="cpu"))'
    becomes(source, f"accelerator.wait_for_everyone()\nmodel.{loads}")
    becomes(source, f"accelerator.wait_for_everyone()\naccelerator.unwrap_model(model).{loads}", ACCELERATE)


@pytest.mark.parametrize(
    ("between", "waits"), [("", 1), ("torch.save(1, 'b.pt')", 2), ("keep()", 2), ("print(1)", 1), ("look()", 1)]
)
def test_waits_once_for_files_that_are_read_one_after_another(between: str, waits: int):
    after = 'torch.save(model.state_dict(), "a.pt")\nmodel.load_state_dict(torch.load("a.pt"))\nBETWEEN\n'
    after = after.replace("BETWEEN", between) + 'optimizer.load_state_dict(torch.load("b.pt"))\n'
    functions = "def keep():\n    torch.save(1, 'b.pt')\ndef look():\n    print(1)"
    source = training(functions=functions, after=after)
    assert migrated(source).count("wait_for_everyone") == waits


def test_follows_a_checkpoint_that_is_read_by_its_parts():
    becomes(
        training(
            ready='c = torch.load("c.pt", map_location=device)\nmodel.load_state_dict(c["model"])\nepoch = c["epoch"]'
        ),
        'c = torch.load("c.pt", map_location="cpu")',
    )


def test_keeps_the_place_of_what_is_used_as_it_is():
    stays(
        training(ready='mask = torch.load("mask.pt", map_location=device)\nmask = mask * 2'),
        'mask = torch.load("mask.pt", map_location=device)',
    )


def test_keeps_a_load_to_the_cpu():
    assert "AM502" not in codes(training(ready='model.load_state_dict(torch.load("i.pt", map_location="cpu"))'))


def test_names_no_device_where_all_stays_on_the_cpu():
    moved = training(after="model.load_state_dict(torch.load('m.pt'))")
    assert "map_location" in migrated(moved)
    plain = moved.replace(".to(device)", "").replace("x, y = x, y\n", "x = x + torch.zeros(3)\n")
    text = migrated(re.sub("device = .*", "", plain))
    assert "cpu=True" in text and "map_location" not in text


def test_keeps_a_load_into_another_model():
    stays(training(ready="other = nn.Linear(2, 2)", after="other.load_state_dict(best)"), "other.load_state_dict(best)")


def test_keeps_a_load_into_a_model_that_is_built_anew_when_all_is_done():
    end = 'torch.save(model.state_dict(), "m.pt")\nmodel = nn.Linear(3, 2).to(device)\n'
    end += 'model.load_state_dict(torch.load("m.pt"))\n'
    text = migrated(training() + end + "print(model.weight)\n")
    assert 'model.load_state_dict(torch.load("m.pt", map_location="cpu"))\nprint(model.weight)\n' in text
    assert "unwrap_model" not in migrated(training() + end, ACCELERATE)
    assert "unwrap_model" in migrated(training() + end.replace("nn.Linear(3, 2)", "copy.copy(model)"), ACCELERATE)


def test_does_not_wait_where_nothing_is_saved():
    source = training(after='model.load_state_dict(torch.load("m.pt"))')
    becomes(source, 'model.load_state_dict(torch.load("m.pt", map_location="cpu"))')
    assert "wait_for_everyone" not in migrated(source)


RESUMED = """
import argparse
import torch
from torch.utils.data import DataLoader

parser = argparse.ArgumentParser()
parser.add_argument("--resume")
args = parser.parse_args()


def main():
    loader = DataLoader(rows, batch_size=4)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    print(len(loader))
    score(model)
    for trial in range({trials}):
        if args.resume:
            kept = newest(args.resume)
            if kept:
                model.load_state_dict(torch.load(kept))
        for epoch in range(3):
            for x in loader:
                loss = model(x).mean()
                loss.backward()
                optimizer.step()
            torch.save(model.state_dict(), "model.pt")


def score(model):
    pass


{runs}
"""
ONE_TRIAL = ("    for trial in range({trials}):\n", "    if True:\n")


def test_does_not_wait_where_the_script_resumes_before_it_saves() -> None:
    once = RESUMED.replace(*ONE_TRIAL)
    for runs in ("main()", 'if __name__ == "__main__":\n    main()'):
        text = migrated(once.format(runs=runs))
        assert 'torch.load(kept, map_location="cpu")' in text
        assert "wait_for_everyone" not in text


def test_does_not_wait_where_functions_load_before_other_functions_save() -> None:
    once = RESUMED.replace(*ONE_TRIAL).replace("model.load_state_dict(torch.load(kept))", "fill(model, kept)")
    once = once.replace("def score", "def fill(net, path):\n    net.load_state_dict(torch.load(path))\n\n\ndef score")
    assert "wait_for_everyone" not in migrated(once.format(runs="main()"))
    methods = once.replace("def main():", "def train():").replace(
        "epoch in range(3):", "epoch in range(3):\n            model.train()"
    )
    assert "wait_for_everyone" not in migrated(methods.format(runs="train()"))
    for runs in ("for turn in range(2):\n    main()", "main()\nfill(last, 'model.pt')", "main()\nrun(fill)"):
        result = _migrated(once.format(runs=runs), DEFAULTS)
        assert result.status is Status.UNCHANGED or b"wait_for_everyone" in (result.after or b""), runs


@pytest.mark.parametrize(
    "source",
    [
        RESUMED.format(trials=2, runs="main()"),
        RESUMED.replace(*ONE_TRIAL).format(runs="for turn in range(2):\n    main()"),
        RESUMED.replace(*ONE_TRIAL).format(runs="main()\nmain()"),
        RESUMED.replace(*ONE_TRIAL).format(runs="main()\nrun(main)"),
    ],
)
def test_does_not_trust_a_load_before_the_save_of_what_may_run_again(source: str) -> None:
    loose = (
        source.replace("if kept:", "if True:")
        .replace("newest(args.resume)", '"model.pt"')
        .replace("if args.resume", "if True")
    )
    for text in (source, loose):
        result = _migrated(text, DEFAULTS)
        assert result.status is Status.UNCHANGED or b"wait_for_everyone" in (result.after or b"")


PARALLEL = """
    import torch
    from torch import nn

    model = nn.DataParallel(nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = torch.utils.data.DataLoader(data(), batch_size=4)
    {before}
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    torch.save({saved}.state_dict(), "m.pt")
    """


def test_says_that_older_files_have_other_keys():
    source = PARALLEL.format(saved="model", before='model.load_state_dict(torch.load("m.pt"))')
    assert "`module.` in front of their keys" in noted(source, "AM502")


def test_says_nothing_of_older_files_whose_keys_lose_the_prefix():
    cut = 'model.load_state_dict({k.replace("module.", ""): v for k, v in saved.items()})'
    tried = "try:\n        model.load_state_dict(saved)\n    except RuntimeError:\n        "
    for before, older in ((cut, False), (tried + cut, False), (tried + "pass", True)):
        source = PARALLEL.format(saved="model", before=f'saved = torch.load("m.pt")\n    {before}')
        assert any("in front of their keys" in note for note in notes(source)) is older


@pytest.mark.parametrize(
    "line",
    [
        "state = {k[7:]: v for k, v in torch.load('m.pt').items()}",
        "state = {'module.' + k: v for k, v in torch.load('m.pt').items()}",
        "names = [k for k in torch.load('m.pt') if k.startswith('module.')]",
        "state = torch.load('m.pt')\n    if not all(k.startswith('module.') for k in state):\n        state = state['net'][:2]",
        "state = torch.load('m.pt')\n    if 'a'.startswith('module.'):\n        state = state['net']",
    ],
)
def test_names_what_counts_on_the_prefix(line: str):
    assert "do not begin with `module.`" in noted(PARALLEL.format(saved="model", before=line), "AM502")


@pytest.mark.parametrize(
    "before",
    [
        "pass",
        "state = {k.replace('module.', ''): v for k, v in torch.load('m.pt').items()}",
        "rows = [line[7:] for line in open('log')]",
        "state = {k[7:] if k.startswith('module.') else k: v for k, v in torch.load('m.pt').items()}",
        "state = torch.load('m.pt')\n    if all(k.startswith('module.') for k in state):\n"
        "        state = {k[len('module.') :]: v for k, v in state.items()}",
    ],
)
def test_says_at_the_save_that_the_keys_change(before: str):
    found = [n for n in notes(PARALLEL.format(saved="model", before=before)) if "module." in n]
    assert len(found) == 1 and "what else loads such files must not count on it" in found[0]


def test_says_at_a_save_by_a_helper_that_the_keys_change():
    source = PARALLEL.format(saved="model", before="def keep(*args, **more):\n        torch.save(*args, **more)")
    source = source.replace("torch.save(model", "keep(model")
    assert "what else loads such files must not count on it" in noted(source, "AM502")


@pytest.mark.parametrize(
    ("saved", "before"),
    [
        ("model.module", 'model.module.load_state_dict(torch.load("m.pt"))'),
        ("bare", "bare = model.module"),
        ("net", "net = model.module if many else model"),
        ("net", "net = model\n    if many:\n        net = model.module"),
        ("(model.module if many else model)", "pass"),
        ("optimizer", "pass"),
    ],
)
def test_says_nothing_of_keys_that_fit(saved: str, before: str):
    assert not [n for n in notes(PARALLEL.format(saved=saved, before=before)) if "module." in n]


def test_a_branch_that_takes_the_model_out_speaks_for_the_other():
    choice = "if many:\n    state = model.module.state_dict()\nelse:\n    state = model.state_dict()\n"
    after = "torch.save(state, 'm.pt')"
    wrapped = "model = nn.DataParallel(model)"
    assert not [n for n in notes(training(ready=wrapped, after=choice + after)) if "module." in n]
    alike = "if many:\n    use(model.module.name)\n    state = model.state_dict()\n"
    assert [n for n in notes(training(ready=wrapped, after=alike + after)) if "no longer begin" in n]


@pytest.mark.parametrize(("saved", "said"), [("model", True), ("plain", False), ("handed", True), ("kept", False)])
def test_follows_the_wrapper_to_what_is_saved(saved: str, said: bool):
    ready = "plain = model\nmodel = nn.DataParallel(model)\nkept = plain"
    functions = "def keep(handed):\n    torch.save(handed.state_dict(), 'm.pt')"
    after = "keep(model)" if saved == "handed" else f"torch.save({saved}.state_dict(), 'm.pt')"
    source = training(functions=functions if saved == "handed" else "", ready=ready, after=after)
    assert any("no longer begin with `module.`" in note for note in notes(source)) is said


def test_waits_before_the_file_is_asked_for():
    becomes(
        training(
            after='torch.save(model.state_dict(), "m.pt")\n'
            'if os.path.exists("m.pt"):\n    model.load_state_dict(torch.load("m.pt"))'
        ),
        'accelerator.wait_for_everyone()\nif os.path.exists("m.pt"):',
    )


def test_waits_before_the_file_is_opened_whatever_else_is_done_while_it_is_open():
    becomes(
        training(
            after='torch.save(model.state_dict(), "m.pt")\nwith open("m.pt", "rb") as kept:\n    known = len("m.pt")\n'
            "    if known:\n        model.load_state_dict(torch.load(kept))"
        ),
        'accelerator.wait_for_everyone()\nwith open("m.pt", "rb") as kept:',
    )


def test_waits_before_the_file_is_looked_for():
    becomes(
        training(
            after='torch.save(model.state_dict(), "m.pt")\nprint("saved")\nfound = sorted(glob.glob("*.pt"))\n'
            "last = found[-1]\nmodel.load_state_dict(torch.load(last))"
        ),
        'accelerator.wait_for_everyone()\nfound = sorted(glob.glob("*.pt"))',
    )


def test_a_name_of_a_function_is_not_what_was_read():
    becomes(
        training(
            ready='def keep(state):\n    torch.save(state, "m.pt")\nstate = torch.load("c.pt")\n'
            'model.load_state_dict(state["model"])'
        ),
        'state = torch.load("c.pt", map_location="cpu")',
    )


def test_does_not_wait_where_only_some_processes_load():
    reading = 'torch.save(model.state_dict(), "m.pt")\nif me == 0:\n    print(torch.load("m.pt"))'
    assert "wait_for" not in migrated(training(ready='me = int(os.environ.get("RANK", 0))', after=reading))


READS = """
    import torch
    from torch import nn

    def score(path):
        net = nn.DataParallel(nn.Linear(2, 1)).cuda()
        {load}
        return net
    """


def _beside(place: str, load: str, saved: str = "model") -> FileResult:
    texts = {"train.py": PARALLEL.format(saved=saved, before="pass"), place: READS.format(load=load)}
    sources = [Source.from_bytes(Path(name), dedent(text).encode()) for name, text in texts.items()]
    return migrate(sources[:1], siblings={sources[1].path: sources[1]})[0]


def test_leaves_weights_that_a_wrapper_of_another_file_reads():
    result = _beside("score.py", "net.load_state_dict(torch.load(path))")
    assert result.status is Status.UNCHANGED
    assert "line 7 of score.py reads weights into a wrapper" in result.reason


def test_notes_a_wrapper_of_another_folder():
    result = _beside("tools/score.py", "net.load_state_dict(torch.load(path))")
    assert result.status is Status.MIGRATED
    assert any("line 7 of score.py counts on it" in note.message for note in result.notes)


@pytest.mark.parametrize(
    ("load", "saved"),
    [
        ("net.module.load_state_dict(torch.load(path))", "model"),
        ("net.load_state_dict(torch.load(path))", "model.module"),
        ("net.load_state_dict(torch.load(path)); net(path).backward()", "model"),
    ],
)
def test_takes_the_wrapper_where_files_go_on_fitting(load: str, saved: str):
    assert _beside("score.py", load, saved).status is Status.MIGRATED


RESUMES = """
    import torch
    from torch import nn

    def fit(kept):
        for x in torch.randn(9, 1, 2):
            loss = net(x).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        torch.save({{"net": net.state_dict()}}, kept)

    net = nn.DataParallel(nn.Linear(2, 1)).cuda()
    {load}
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    fit("{kept}")
    """


@pytest.mark.parametrize(
    ("load", "kept", "is_apart"),
    [
        ("if resume: net.load_state_dict(torch.load('other.pt')['net'])", "other.pt", True),
        ("net.load_state_dict(torch.load('other.pt')['net'])", "other.pt", False),
        ("if resume: net.load_state_dict(torch.load('first.pt')['net'])", "other.pt", False),
        ("if resume: net.load_state_dict(torch.load('m.pt')['net'])", "m.pt", False),
    ],
)
def test_a_training_beside_that_resumes_from_its_own_file_counts_on_no_other(load: str, kept: str, is_apart: bool):
    texts = {
        "train.py": PARALLEL.format(saved="model", before="pass"),
        "other.py": RESUMES.format(load=load, kept=kept),
    }
    sources = [Source.from_bytes(Path(name), dedent(text).encode()) for name, text in texts.items()]
    result = migrate(sources[:1], siblings={sources[1].path: sources[1]})[0]
    assert (result.status is Status.MIGRATED) is is_apart


DOWNLOADED = [
    "net.load_state_dict(torch.hub.load_state_dict_from_url(path))",
    "got = torch.utils.model_zoo.load_url(path)['net']; net.load_state_dict(got)",
    "got = torch.utils.model_zoo.load_url(path); net.load_state_dict(got['net'])",
    "net.load_state_dict(state_dict=torch.hub.load_state_dict_from_url(path))",
]
NOT_ONLY = (
    "got = torch.hub.load_state_dict_from_url(path) if ':' in path else torch.load(path); net.load_state_dict(got)"
)


@pytest.mark.parametrize("load", DOWNLOADED)
def test_downloaded_weights_are_none_that_the_training_saves(load: str):
    assert _beside("score.py", load).status is Status.MIGRATED
    assert not any("score.py" in note.message for note in _beside("tools/score.py", load).notes)


def test_weights_that_may_be_downloaded_may_be_those_that_the_training_saves():
    assert _beside("score.py", NOT_ONLY).status is Status.UNCHANGED


def test_leaves_a_wrapper_of_the_training_into_which_downloaded_weights_go():
    scoring = f"def score(path):\n    net = nn.DataParallel(nn.Linear(3, 2))\n    {DOWNLOADED[0]}"
    source = training(functions=scoring, ready="model = nn.DataParallel(model)")
    assert "reads weights into a wrapper that the training does not use" in unchanged(source)


def test_names_the_folder_of_a_file_whose_name_others_have():
    texts = {
        "train.py": PARALLEL.format(saved="model", before="pass"),
        "tools/__init__.py": READS.format(load="net.load_state_dict(torch.load(path))"),
        "other/__init__.py": "",
    }
    sources = [Source.from_bytes(Path(name), dedent(text).encode()) for name, text in texts.items()]
    result = migrate(sources[:1], siblings={source.path: source for source in sources[1:]})[0]
    assert any("line 7 of tools/__init__.py counts on it" in note.message for note in result.notes)


def test_leaves_a_wrapper_beside_the_training_that_reads_older_files():
    scoring = "def score(path):\n    net = nn.DataParallel(nn.Linear(3, 2))\n    net.load_state_dict(torch.load(path))"
    source = training(functions=scoring, ready="model = nn.DataParallel(model)")
    assert "reads weights into a wrapper that the training does not use" in unchanged(source)


@pytest.mark.parametrize(
    "read",
    [
        "old = torch.load('w.pt')\nnew = {k[7:]: v for k, v in old.items()}\nmodel.load_state_dict(new)",
        "restore(torch.load('w.pt'))",
        "own = model.state_dict()\nown.update(torch.load('w.pt'))\nmodel.load_state_dict(own)",
    ],
)
def test_notes_weights_that_reach_a_model_by_another_name(read: str) -> None:
    helper = "def restore(weights):\n    model.load_state_dict(weights)\n"
    assert "to the GPU that saved them" in noted(training(functions=helper, ready=read), "AM502")
    on_cpu = read.replace("'w.pt'", "'w.pt', map_location='cpu'")
    assert not [n for n in notes(training(functions=helper, ready=on_cpu)) if "GPU that saved" in n]


def test_says_nothing_of_data_that_is_loaded() -> None:
    source = training(ready="rows = torch.load('rows.pt')\nprint(len(rows))")
    assert not [note for note in notes(source) if "GPU that saved" in note]


COACH = """
    import os
    import torch
    from torch import nn
    from torch.utils.data import DataLoader

    class Coach:
        def __init__(self, path):
            self.device = torch.device("cuda")
            self.model = nn.Linear(2, 1).to(self.device)
            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
            self.rows = DataLoader(build(), batch_size=4)
            if os.path.exists(path):
                self.resume(path)
            {above}

        def resume(self, path):
            self.model.load_state_dict(torch.load(path, map_location=self.device))

        def train(self):
            for epoch in range(3):
                {again}
                for x in self.rows:
                    loss = self.model(x.to(self.device)).mean()
                    self.optimizer.zero_grad()
                    loss.backward()
                    self.optimizer.step()
                torch.save(self.model.state_dict(), "kept.pt")

    {made}
    """
ONCE = "coach = Coach('kept.pt')\n    coach.train()"


def test_a_file_that_is_asked_for_as_a_trainer_is_made_is_of_an_earlier_run():
    text = migrated(COACH.format(above="", again="pass", made=ONCE))
    assert "        if os.path.exists(path):\n            self.resume(path)\n" in text
    assert "wait_for_everyone" not in text


@pytest.mark.parametrize(
    ("above", "again", "made"),
    [
        ("", "self.resume('kept.pt')", ONCE),
        ("", "pass", f"{ONCE}\n    coach.resume('kept.pt')"),
        ("", "pass", f"{ONCE}\n    load = coach.resume\n    load('kept.pt')"),
        ("self.train()\n            self.resume(path)", "pass", "coach = Coach('kept.pt')"),
    ],
)
def test_a_file_that_may_be_of_this_run_is_waited_for(above: str, again: str, made: str):
    result = _migrated(COACH.format(above=above, again=again, made=made), DEFAULTS)
    assert result.status is Status.UNCHANGED or "wait_for_everyone" in result.after.decode()


ASKED_FIRST = """
    import os
    import torch
    from torch import nn
    from torch.utils.data import DataLoader

    class Coach:
        def __init__(self, folder, data):
            self.folder = folder
            self.data = data
            self.device = "cuda" if torch.cuda.is_available() else "cpu"
            self.model = nn.Linear(3, 1).to(self.device)

        def train(self):
            loader = DataLoader(self.data, batch_size=4)
            optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
            for batch in loader:
                x, y = (part.to(self.device) for part in batch)
                loss = nn.functional.mse_loss(self.model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            torch.save({"folder": self.folder}, os.path.join(self.folder, "options.pt"))
            torch.save(self.model.state_dict(), os.path.join(self.folder, "model.pt"))

        def load(self):
            if not os.path.exists(self.folder):
                raise FileNotFoundError("train first")
            try:
                self.options = torch.load(os.path.join(self.folder, "options.pt"))
                self.model.load_state_dict(torch.load(os.path.join(self.folder, "model.pt")))
            except OSError:
                raise FileNotFoundError("some files are missing")

    coach = Coach("saved", data)
    coach.train()
    coach.load()
    """


def test_waits_once_above_the_question_that_leaves_without_the_file():
    source = dedent(ASKED_FIRST)
    becomes(source, "self.accelerator.wait_for_everyone()\nif not os.path.exists(self.folder):")
    assert migrated(source).count("wait_for_everyone") == 1


HELPERS = """import torch


def accuracy(model, loader, device):
    right = 0
    with torch.no_grad():
        for x, y in loader:
            right += (model(x.to(device)).argmax(1) == y.to(device)).sum().item()
    return right / len(loader.dataset)


def restored(model, path):
    model.load_state_dict(torch.load(path))
    return model
"""
FIRST = """import torch
from torch import nn
from torch.utils.data import DataLoader
from helpers import accuracy{restored}

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
loader = DataLoader(rows(), batch_size=4)
model = nn.Linear(4, 4).to(device)
{again}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(accuracy(model, loader, device))
"""


@pytest.mark.parametrize("reads", [False, True])
def test_a_helper_that_only_another_script_runs_reads_as_it_did(reads: bool):
    given = {"restored": ", restored", "again": "model = restored(model, 'old.pt')"} if reads else {}
    first = FIRST.format(**{"restored": "", "again": "", **given})
    other = "from helpers import restored\nfrom nets import Net\nprint(restored(Net(), 'a.pt'))\n"
    found = results(first=first, other=other, helpers=HELPERS)
    assert found["first"].status is Status.MIGRATED
    assert ("map_location" in found["helpers"].after.decode()) == reads


@pytest.mark.parametrize(
    ("read", "told"),
    [
        ("state = torch.load(path)\n    model = state['model']", True),
        ("model = torch.load(path)['model']", True),
        ("model = torch.load(path)", True),
        ("state = torch.load(path, map_location='cpu')\n    model = state['model']", False),
        ("state = torch.load(path)\n    names = state['names']", False),
    ],
)
def test_names_objects_that_every_process_reads_to_the_gpu_that_saved_them(read: str, told: bool):
    source = training(ready="pass").replace(
        "model = nn.Linear(3, 2).to(device)",
        f"path = 'x.tar'\nmodel = nn.Linear(3, 2)\nif resume:\n    {read}\nmodel = model.to(device)",
    )
    assert any("reads these objects" in note for note in notes(source)) == told
