"""Names that files of a project pass on to each other."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from accel_migrate.flow.program import Program
from accel_migrate.flow.scopes import Module
from accel_migrate.pipeline import migrate
from accel_migrate.source import Source

TRAINING = """import torch
from torch import nn
{imported}
net = nn.Linear(3, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in loader:
    loss = nn.functional.mse_loss(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
LOADER = "from torch.utils.data import DataLoader\nloader = DataLoader(list(range(8)), batch_size=2)\n"


def _home(files: dict[str, str], dotted: str) -> str | None:
    modules = [Module(Source.from_bytes(Path(name), text.encode())) for name, text in files.items()]
    found = Program(modules).imported_variable(modules[0], dotted)
    return f"{found.scope.module.source.path}:{found.name}" if found is not None else None


@pytest.mark.parametrize(
    ("passed_on", "home"),
    [
        ("from .rows import batches", "kit/rows.py:batches"),
        ("from kit.rows import batches", "kit/rows.py:batches"),
        ("from .rows import batches as train\nbatches = train", "kit/__init__.py:batches"),
        ("from .rows import other as batches", "kit/rows.py:other"),
        ("from .again import batches", "kit/rows.py:batches"),
        (
            "try:\n    from .rows import batches\nexcept ImportError:\n    from .more import batches",
            "kit/__init__.py:batches",
        ),
        ("from library import batches", "kit/__init__.py:batches"),
    ],
)
def test_an_imported_name_leads_to_the_file_that_sets_it(passed_on: str, home: str) -> None:
    files = {
        "train.py": "from kit import batches\n",
        "kit/__init__.py": passed_on + "\n",
        "kit/rows.py": "batches = other = 1\n",
        "kit/again.py": "from .rows import batches\n",
        "kit/more.py": "batches = 2\n",
    }
    assert _home(files, "kit.batches") == home
    assert _home(files, "torch.batches") is None
    assert _home(files, "batches") is None


def test_files_that_pass_a_name_on_in_a_circle_end() -> None:
    files = {"train.py": "", "one.py": "from two import it\n", "two.py": "from one import it\n"}
    assert _home(files, "one.it") is not None


def test_imports_the_package_where_a_file_in_it_has_its_name() -> None:
    files = {
        "kit/train.py": "import kit",
        "kit/kit.py": "",
        "kit/__init__.py": "from . import engine",
        "kit/engine.py": "",
    }
    program = Program(Module(Source.from_bytes(Path(name), text.encode())) for name, text in files.items())
    train, beside, package, engine = program.modules
    assert program.imports(train) == (beside, package)
    assert program.imports(package) == (package, engine)


@pytest.mark.parametrize("imported", ["from kit import loader", "from kit.rows import loader"])
def test_a_loader_that_a_package_passes_on_is_prepared(imported: str) -> None:
    texts = {
        "train.py": TRAINING.format(imported=imported),
        "kit/__init__.py": "from .rows import loader\n",
        "kit/rows.py": LOADER,
    }
    sources = [Source.from_bytes(Path(name), text.encode()) for name, text in texts.items()]
    result = migrate(sources[:1], siblings={source.path: source for source in sources[1:]})[0]
    assert b"net, optimizer, loader = accelerator.prepare(net, optimizer, loader)" in result.after


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ("model = model.Net()", ["Net"]),
        ("if deep:\n    model = model.Net()\nelse:\n    model = model.Net()", ["Net", "Net"]),
        ("model = model.Net()\nmodel = model.Net()", ["Net", None]),
    ],
)
def test_a_name_is_the_imported_file_until_it_is_bound_anew(lines: str, found: list[str | None]) -> None:
    files = {"train.py": f"import model\n{lines}\n", "model.py": "class Net:\n    pass\n"}
    modules = [Module(Source.from_bytes(Path(name), text.encode())) for name, text in files.items()]
    program = Program(modules)
    calls = [call for call in modules[0].calls if isinstance(call.func, ast.Attribute)]
    named = [program.definition(modules[0], call.func) for call in calls]
    assert [getattr(each.node, "name", None) if each is not None else None for each in named] == found


def test_a_call_runs_what_its_name_is_bound_to_there() -> None:
    text = "train = load()\ntrain(0)\n\ndef train(x): ...\n\ntrain(1)\n\ndef main():\n    train(2)\n"
    module = Module(Source.from_bytes(Path("train.py"), text.encode()))
    program = Program([module])
    called = {call.args[0].value: call.func for call in module.calls if call.args}  # type: ignore[attr-defined]
    runs = {number: program.definition(module, function) for number, function in called.items()}
    assert runs[0] is None and runs[2] is None
    assert runs[1] is not None and runs[1].node is module.tree.body[2]


@pytest.mark.parametrize(
    ("bound", "named"),
    [
        ("judge = test", "test"),
        ("scored = test\njudge = scored", "test"),
        ("judge = Judge", "Judge"),
        ("judge = test if fast else Judge", None),
        ("if fast:\n    judge = test\nelse:\n    judge = Judge", None),
        ("judge, other = test", None),
        ("judge = other\nother = judge", None),
    ],
)
def test_another_name_of_a_function_is_that_function(bound: str, named: str | None) -> None:
    text = f"def test(net): pass\nclass Judge: pass\nfast = other = 1\n{bound}\njudge(net)\n"
    module = Module(Source.from_bytes(Path("train.py"), text.encode()))
    (call,) = module.calls
    found = Program([module]).definition(module, call.func)
    assert (found.node.name if found is not None else None) == named
