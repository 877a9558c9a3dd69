"""AM902: what a run showed, and the code does not tell."""

from __future__ import annotations

from collections.abc import Iterator

from accel_migrate.edits import note
from accel_migrate.plan import Change, Safety
from accel_migrate.rule import Context, Rule

CODE = "AM902"


def find(context: Context) -> Iterator[Change]:
    training, module = context.training, context.module
    seen = [each for each in training.observed if each.variable.scope.module is module]
    told = "; ".join(f"`{each.variable.name}` is {_a(each.kind)}, observed {each.times} times" for each in seen)
    if told:
        first = next((b.call for b in training.backwards if b.module is module), None) or training.place.after
        message = f"the code does not say, and a run showed: {told}; what other arguments bring is not known"
        yield note(context, CODE, first, message)


def _a(kind: str) -> str:
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"


RULE = Rule(
    code=CODE,
    summary="what a variable holds was observed in a run",
    why="Where the code does not say what a variable holds (a class chosen by its name, a registry, options that carry "
    "objects), `--observe` runs the script and looks. What rests on that is marked, and is written only together with a proof "
    "of the same run (`--write-if-proven`): with other arguments the variable may hold something else.",
    example_before="model = eval(args.model).Model(args)",
    example_after="model = eval(args.model).Model(args)  # with --observe: a model in 20 of 20 looks",
    find=find,
    safety=Safety.NOTE,
)
