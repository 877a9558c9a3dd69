"""What a run shows of variables, and what the codemod makes of it where the code does not say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from accel_migrate.errors import MigrateError
from accel_migrate.facts import Fact, Facts, Place, digest, load, save
from accel_migrate.pipeline import Settings, migrate
from accel_migrate.plan import FileResult, Status
from accel_migrate.proof.runs import start
from accel_migrate.source import Source

from tests.migrate.conftest import Run
from tests.migrate.proof.test_recorder import job

SCRIPT = """\
import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BUILT = {"line": lambda: nn.Linear(2, 1)}


def build(name):
    return globals()["BUILT"][name]()


def squared(output, target):
    return ((output - target) ** 2).mean()


class Trainer:
    def __init__(self, **parts):
        self.__dict__.update(parts)

    def run(self, loader):
        for x, y in loader:
            self.optimizer.zero_grad()
            loss = self.measure(self.model(x), y)
            loss.backward()
            self.optimizer.step()


def main():
    args = argparse.Namespace(name="line")
    args.measure = getattr(nn, "MSELoss")()
    model = build(args.name)
    optimizer = getattr(torch.optim, "SGD")(model.parameters(), lr=0.1)
    loader = DataLoader(TensorDataset(torch.ones(8, 2), torch.ones(8, 1)), batch_size=2)
    plain = getattr(nn.functional, "relu")
    own = globals()["squared"]
    changing = model
    Trainer(model=model, optimizer=optimizer, measure=args.measure).run(loader)
    changing = loader
    return plain, own, changing


main()
"""


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, object]]:
    folder = tmp_path_factory.mktemp("seen")
    ended = start(job(folder, SCRIPT, steps=20, observe=True))
    assert ended.code == 0, ended.errors
    return list(json.loads((folder / "journal" / "facts.json").read_text()))


def test_variables_attributes_and_options_are_seen_by_their_function(seen: list[dict[str, object]]) -> None:
    kinds = {(place[1], place[2]): each["kind"] for each in seen if isinstance(place := each["place"], list)}
    line = SCRIPT[: SCRIPT.index("def main")].count("\n") + 1
    method = SCRIPT[: SCRIPT.index("    def run")].count("\n") + 1
    assert kinds[line, "model"] == kinds[method, "self.model"] == "model"
    assert kinds[line, "args.measure"] == kinds[method, "self.measure"] == "module without weights"
    assert kinds[line, "loader"] == kinds[method, "loader"] == "loader"
    assert kinds[line, "plain"] == "function"
    assert kinds[line, "args"] == "options"
    assert (0, "build") not in kinds and (0, "squared") not in kinds


def test_a_variable_that_held_two_kinds_tells_nothing(seen: list[dict[str, object]]) -> None:
    assert not [each for each in seen if isinstance(place := each["place"], list) and place[2] == "changing"]


def test_an_optimizer_tells_whose_parameters_it_updates(seen: list[dict[str, object]]) -> None:
    (optimizer,) = [each for each in seen if isinstance(p := each["place"], list) and p[2] == "optimizer"]
    over = optimizer["over"]
    assert isinstance(over, list)
    assert {place[2] for place in over} == {"model", "self.model"}


def fact_of(seen: list[dict[str, object]], name: str) -> dict[str, object]:
    return next(each for each in seen if isinstance(place := each["place"], list) and place[2] == name)


def test_variables_that_held_one_object_tell_each_other(seen: list[dict[str, object]]) -> None:
    same = fact_of(seen, "model")["same"]
    assert isinstance(same, list) and "self.model" in {place[2] for place in same}
    assert "changing" not in {place[2] for place in same}


def test_a_function_of_the_project_tells_where_it_is_written(seen: list[dict[str, object]]) -> None:
    own = fact_of(seen, "own")
    line = SCRIPT[: SCRIPT.index("def squared")].count("\n") + 1
    assert own["kind"] == "own function" and own["same"] == [["train.py", line, "squared"]]


def test_a_backward_pass_tells_which_models_its_loss_was_computed_through(seen: list[dict[str, object]]) -> None:
    (backward,) = [each for each in seen if each["kind"] == "backward pass"]
    over, place = backward["over"], backward["place"]
    assert isinstance(over, list) and {each[2] for each in over} >= {"model", "self.model"}
    assert isinstance(place, list) and place[1] == SCRIPT[: SCRIPT.index("loss.backward()")].count("\n") + 1


UNTOLD = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def made():
    return nn.Linear(2, 1)


def main(measure):
    model = globals()["made"]()
    optimizer = torch.optim.SGD(list(globals()["weights"](model)), lr=0.1)
    loader = DataLoader(TensorDataset(torch.ones(8, 2), torch.ones(8, 1)), batch_size=2)
    for x, y in loader:
        optimizer.zero_grad()
        loss = measure(model(x), y)
        loss.backward()
        optimizer.step()


def weights(model):
    return model.parameters()


main(getattr(nn, "MSELoss")())
"""
PATH = Path("/project/train.py")


LINE = UNTOLD[: UNTOLD.index("def main")].count("\n") + 1
MODEL = Place(PATH, LINE, "model")
ALL = (
    Fact(MODEL, "model", 6),
    Fact(Place(PATH, LINE, "optimizer"), "optimizer", 6, (MODEL,)),
    Fact(Place(PATH, LINE, "measure"), "module without weights", 4),
)


def with_facts(*facts: Fact) -> FileResult:
    source = Source.from_bytes(PATH, UNTOLD.encode())
    (result,) = migrate([source], Settings(facts=Facts(facts, {PATH: digest(source.data)})))
    return result


@pytest.mark.parametrize("facts", [(), ALL[1:]], ids=["none", "no model"])
def test_without_what_is_needed_the_loop_is_left(facts: tuple[Fact, ...]) -> None:
    assert with_facts(*facts).status is Status.UNCHANGED


def test_what_a_run_showed_is_taken_where_the_code_does_not_tell_and_every_change_says_so() -> None:
    result = with_facts(*ALL)
    assert result.status is Status.MIGRATED, result.reason
    assert all("observed (4 times)" in change.message for change in result.applied)
    assert b"model, optimizer, loader = accelerator.prepare(model, optimizer, loader)" in result.after
    (note,) = [note for note in result.notes if note.code == "AM902"]
    assert "`measure` is a module without weights, observed 4 times" in note.message


def test_a_run_never_overrules_the_code() -> None:
    against = with_facts(*ALL, Fact(Place(PATH, LINE, "loader"), "model", 1))
    assert against.after == with_facts(*ALL).after


HANDED_ON = """\
import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Fitting:
    def __init__(self, **parts):
        self.args = parts["args"]
        self.model = parts["model"]
        self.optimizer = parts["optimizer"]
        self.measure = parts["measure"]

    def run(self, loader):
        for x, y in loader:
            self.optimizer.zero_grad()
            with torch.autocast("cuda", enabled=self.args.half):
                loss = self.measure(self.model(x), y)
            loss.backward()
            self.optimizer.step()


def squared(output, target):
    return ((output - target) ** 2).mean()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--half", action="store_true")
    args = parser.parse_args()
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(TensorDataset(torch.ones(8, 2), torch.ones(8, 1)), batch_size=2)
    fitting = Fitting(model=model, optimizer=optimizer, args=args, measure=squared)
    fitting.run(loader)


main()
"""


def line_of(text: str) -> int:
    return HANDED_ON[: HANDED_ON.index(text)].count("\n") + 1


def handed_on(*left_out: str) -> FileResult:
    """Migrated with what a run shows, but for the names that are left out."""
    facts = []
    for name, kind in (("model", "model"), ("optimizer", "optimizer"), ("args", "options")):
        built, kept = Place(PATH, line_of("def main"), name), Place(PATH, line_of("def __init__"), f"self.{name}")
        over = (Place(PATH, line_of("def main"), "model"),) if kind == "optimizer" else ()
        facts += [Fact(built, kind, 5, over, (kept,)), Fact(kept, kind, 5, over, (built,))]
    measure = Place(PATH, line_of("def __init__"), "self.measure")
    facts.append(Fact(measure, "own function", 5, (), (Place(PATH, line_of("def squared"), "squared"),)))
    source = Source.from_bytes(PATH, HANDED_ON.encode())
    taken = tuple(fact for fact in facts if fact.place.name not in left_out)
    (result,) = migrate([source], Settings(facts=Facts(taken, {PATH: digest(source.data)})))
    return result


def test_an_object_is_followed_to_the_variable_that_held_it_in_a_run() -> None:
    result = handed_on()
    assert result.status is Status.MIGRATED, result.reason
    assert b"model, optimizer, loader = accelerator.prepare(model, optimizer, loader)\n    fitting = " in result.after
    assert b"args.half" in result.after.partition(b"= Accelerator(")[2][:120]


@pytest.mark.parametrize("name", ["self.model", "self.args"])
def test_what_the_run_did_not_show_is_not_followed(name: str) -> None:
    assert handed_on(name).status is Status.UNCHANGED


def test_what_is_not_followed_to_where_it_was_built_is_prepared_by_the_object_that_has_it() -> None:
    text = " ".join(handed_on("self.optimizer").after.decode().split())
    assert "self.model, self.optimizer = self.accelerator.prepare( self.model, self.optimizer )" in text
    assert "loader = self.accelerator.prepare(loader) for x, y in loader:" in text


AROUND = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from warming import Warming


class Around(nn.Module):
    def __init__(self, inner):
        super().__init__()
        setattr(self, "inner", inner)

    def forward(self, x):
        return ((self.inner(x) - x) ** 2).mean()


def main():
    net = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    around = Around(net)
    warming = Warming(optimizer)
    for (x,) in DataLoader(TensorDataset(torch.ones(8, 2)), batch_size=2):
        optimizer.zero_grad()
        loss = around(x)
        loss.backward()
        optimizer.step()
        warming.step()


main()
"""
WARMING = """\
from torch.optim.lr_scheduler import LambdaLR


class Warming(LambdaLR):
    def __init__(self, optimizer):
        super().__init__(optimizer, lambda step: 1)
"""


def around_facts(folder: Path) -> Facts:
    """What a run shows of a module around the one that the optimizer was built over."""
    running = job(folder, AROUND, steps=4, observe=True)
    (folder / "copy" / "warming.py").write_text(WARMING)
    ended = start(running)
    assert ended.code == 0, ended.errors
    facts = []
    for told in json.loads((folder / "journal" / "facts.json").read_text()):
        place, *others = (
            Place(Path("/project", p[0]), p[1], p[2]) for p in [told["place"], *told["over"], *told["same"]]
        )
        over = tuple(others[: len(told["over"])])
        facts.append(Fact(place, told["kind"], told["times"], over, tuple(others[len(over) :])))
    return Facts(tuple(facts), {})


def test_a_module_around_the_one_that_is_updated_is_prepared_and_no_other_script_is_drawn_in(tmp_path: Path) -> None:
    facts = around_facts(tmp_path)
    texts = {"train.py": AROUND, "other.py": AROUND, "warming.py": WARMING}
    sources = [Source.from_bytes(Path("/project", name), text.encode()) for name, text in texts.items()]
    alone = {result.path.name: result for result in migrate(sources, Settings())}
    assert "the optimizer updates `net`, and the loss is computed through `around`" in alone["train.py"].reason
    seen = {result.path.name: result for result in migrate(sources, Settings(facts=facts))}
    assert seen["train.py"].status is Status.MIGRATED, seen["train.py"].reason
    assert b"around, optimizer" in seen["train.py"].after.partition(b"accelerator.prepare(")[2][:20]
    (note,) = [note for note in seen["train.py"].notes if note.code == "AM902"]
    assert "`around` is a model that holds the parameters of others, observed" in note.message
    assert seen["other.py"].reason == alone["other.py"].reason


def test_a_file_that_changed_since_is_refused() -> None:
    source = Source.from_bytes(PATH, UNTOLD.encode())
    fact = Fact(Place(PATH, 6, "measure"), "module without weights", 4)
    (result,) = migrate([source], Settings(facts=Facts((fact,), {PATH: digest(b"other")})))
    assert result.status is Status.FAILED and "has changed since its run was observed" in result.reason


def test_facts_come_back_from_their_file(tmp_path: Path) -> None:
    script, file = tmp_path / "src" / "train.py", tmp_path / "kept" / "facts.json"
    model = Place(script, 3, "model")
    facts = Facts(
        (Fact(model, "model", 2), Fact(Place(script, 0, "optimizer"), "optimizer", 1, (model,))), {script: "a"}
    )
    file.parent.mkdir()
    file.write_bytes(save(facts, file))
    assert load(file) == facts


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 0}', '{"version": 1, "files": {}, "facts": [{}]}'])
def test_a_file_without_facts_is_named(tmp_path: Path, text: str) -> None:
    file = tmp_path / "facts.json"
    file.write_text(text)
    with pytest.raises(MigrateError, match=r"facts\.json"):
        load(file)


def test_what_rests_on_facts_is_not_written_without_a_proof(run: Run) -> None:
    Path("train.py").write_text(UNTOLD)
    done = run("train.py", "--facts", "facts.json")
    assert done.code == 2 and "written only with a proof; add --write-if-proven" in " ".join(done.err.split())
    assert Path("train.py").read_text() == UNTOLD
