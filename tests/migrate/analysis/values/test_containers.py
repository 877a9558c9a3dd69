"""Optimizers and schedulers that are kept together: each is prepared where it is kept, or the loop is left."""

from __future__ import annotations

import pytest

from tests.migrate.analysis.reading import BUILT, TRAINED, prepared, refusal, training

STEPS = TRAINED.replace(
    "        optimizer.step()", "        for one in {all}:\n            one.step()\n            one.zero_grad()"
)
MADE = "torch.optim.SGD(model.parameters(), lr=0.1)"


def script(kept: str, over: str) -> str:
    return BUILT.replace(f"optimizer = {MADE}", kept) + STEPS.replace("{all}", over)


@pytest.mark.parametrize(
    ("kept", "over", "names"),
    [
        (f"every = [{MADE}, {MADE}]", "every", ["every[0]", "every[1]"]),
        (f"every = [{MADE}]", "reversed(every)", ["every[0]"]),
        (f"every = {{'body': {MADE}, 'head': {MADE}}}", "every.values()", ["every['body']", "every['head']"]),
        (f"every = [{MADE} for _ in range(2)]", "every", ["*every"]),
        (f"every = []\nfor part in model:\n    every.append({MADE})", "every", ["*every"]),
        (f"a = {MADE}\nb = {MADE}", "(a, b)", ["a", "b"]),
        (f"a = {MADE}\nevery = [a]", "every", ["a"]),
    ],
)
def test_each_optimizer_is_prepared_where_it_is_kept(kept: str, over: str, names: list[str]) -> None:
    assert prepared(script(kept, over)) == ["model", *names, "loader"]


def test_an_optimizer_of_a_dictionary_is_prepared_when_its_key_is_named() -> None:
    text = (
        script(f"every = {{'body': {MADE}}}", "()")
        .replace("for one in ():", "if True:")
        .replace("one.", "every['body'].")
    )
    assert prepared(text) == ["model", "every['body']", "loader"]


def test_a_list_that_is_handed_to_the_training_function_is_prepared_by_its_caller() -> None:
    inner = STEPS.replace("{all}", "optimizers").replace("\n", "\n    ")
    built = "".join(f"    {line}\n" for line in BUILT.split("\n\n")[1].splitlines()).replace(
        f"optimizer = {MADE}", f"both = [{MADE}]"
    )
    text = BUILT.split("\n\n")[0] + f"\ndef train(model, loader, optimizers, device):{inner}\n"
    text += f"def main():\n{built}    train(model, loader, both, device)\nmain()\n"
    assert prepared(text) == ["model", "both[0]", "loader"]


def test_optimizers_that_are_stepped_by_name_too_are_prepared_before_they_are_kept() -> None:
    text = script(f"a = {MADE}\nevery = [a]\ncount = 1", "every").replace("one.step()", "a.step()")
    assert prepared(text) == ["model", "a", "loader"]
    assert training(text).place.after.lineno < text.lstrip("\n").splitlines().index("every = [a]") + 1


@pytest.mark.parametrize(
    ("kept", "over", "reason"),
    [
        (f"every = ({MADE}, {MADE})", "every", "make it a list"),
        (f"every = {{name: {MADE} for name in names}}", "every.values()", "make it a list"),
        ("every = make(model.parameters())", "every", "is not visible to the analysis"),
        ("", "make(model.parameters())", "is one after another"),
    ],
)
def test_what_cannot_be_prepared_in_place_is_left(kept: str, over: str, reason: str) -> None:
    assert reason in refusal(script(kept, over))


def test_each_scheduler_of_a_list_is_prepared_when_it_steps_with_the_batches() -> None:
    steps = TRAINED.replace(
        "        optimizer.step()", "        optimizer.step()\n        for one in plan:\n            one.step()"
    )
    made = "torch.optim.lr_scheduler.StepLR(optimizer, 5)"
    assert prepared(BUILT + f"plan = [{made}, {made}]\n" + steps) == [
        "model",
        "optimizer",
        "plan[0]",
        "plan[1]",
        "loader",
    ]


def test_a_model_that_a_loop_takes_up_is_prepared_in_that_loop() -> None:
    inner = "".join(f"    {line}\n" for line in (f"optimizer = {MADE}\n" + TRAINED).splitlines())
    text = BUILT.replace(f"optimizer = {MADE}\n", "models = [nn.Linear(4, 2), nn.Linear(4, 2)]\n").replace(
        "model = nn", "first = nn"
    )
    found = training(text + "for model in models:\n" + inner)
    assert [built.text for built in found.prepared] == ["model", "optimizer", "loader"]
    assert found.place.after.col_offset == 4
