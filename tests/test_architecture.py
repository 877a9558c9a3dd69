"""The layers of both packages, kept by their import statements: see docs/architecture.md."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TypeGuard

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = {"accel_migrate": ROOT / "migrate", "accel_runtime": ROOT / "runtime"}

# From the command down to the ground, the last line. A module imports from the lines below its own; one that is not
# named here stands on the ground: it imports nothing else of its package.
LAYERS = {
    "accel_migrate": """
        __main__
        cli
        proof
        run
        configuration interactive present
        options report work
        catalogue findings pipeline project unread_callers
        judge rewriting rules
        edits emit import_lines
        rule
        analysis apply check discover document emptied leftovers undo unread_options verify
        effects items
        flow
        notebook
        outcome settings source
        facts
        __init__ errors plan
    """,
    "accel_runtime": """
        __main__
        commands
        cli
        __init__
        utils
        big_modeling data_loader hooks launchers memory_utils
        notebook
        accelerator launch operations state
        large
        announcement run_properties support
        checkpoint
        bundle
        resolve
        devices metrics precision scheduler strategies
        optimizer
        accumulation processes
        agreement data recording
        collectives config_file handlers tracking weights
        arguments peer_config peer_environment seeding
        logging options progress watchdog
        values world
        errors found_accelerator keywords unsupported
    """,
}

# The packages of the codemod's analysis, from what rules read down to the text: each imports from the lines below its own.
ANALYSIS = [
    "notes",
    "trainings",
    "precision",
    "placement",
    "storage",
    "distribution",
    "evaluation",
    "moves",
    "processes",
    "values",
]


@cache
def modules(package: str) -> list[str]:
    """Names below the package: `rules.print_call`, and `rules` for a package's own `__init__`."""
    folder = SOURCES[package] / package
    parts = [path.relative_to(folder).with_suffix("").parts for path in sorted(folder.rglob("*.py"))]
    return [".".join(part if part == ("__init__",) or part[-1] != "__init__" else part[:-1]) for part in parts]


@cache
def tree(package: str, module: str) -> ast.Module:
    path = SOURCES[package].joinpath(package, *module.split("."))
    return ast.parse((path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text())


def imported(package: str, module: str) -> Iterator[str]:
    """Every module that is imported anywhere in this one, by its full name."""
    for node in ast.walk(tree(package, module)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{package}.{module}:{node.lineno} imports by dots; write the module's full name"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def own_imports(package: str, module: str) -> set[str]:
    """What it imports of its own package: the longest module name in each import."""
    known = modules(package)
    below = [name.removeprefix(f"{package}.") for name in imported(package, module) if name.startswith(f"{package}.")]
    found = {max((name for name in known if f"{it}.".startswith(f"{name}.")), key=len, default="") for it in below}
    return found - {"", module}


def depths(package: str) -> dict[str, float]:
    """How deep each part of the package lies, in lines of LAYERS."""
    lines = LAYERS[package].strip().splitlines()
    named = {name: depth for depth, line in enumerate(lines) for name in line.split()}
    parts = {module.split(".")[0] for module in modules(package)}
    assert not named.keys() - parts, "LAYERS names what is not there"
    return {part: named.get(part, len(lines) - 1.5) for part in parts}


@pytest.mark.parametrize("package", SOURCES)
def test_imports_lead_down(package: str) -> None:
    depth = depths(package)
    edges = {(module, other) for module in modules(package) for other in own_imports(package, module)}
    parts = {(module.split(".")[0], other.split(".")[0]) for module, other in edges}
    assert not [f"{part} imports {other}" for part, other in parts if part != other and depth[part] >= depth[other]]


def test_the_packages_of_the_analysis_lead_down() -> None:
    found = [m.split(".") for m in modules("accel_migrate") if m.startswith("analysis.")]
    assert {parts[1] for parts in found} == set(ANALYSIS)
    for parts in found:
        others = {
            name.split(".")[1] for name in own_imports("accel_migrate", ".".join(parts)) if name[:9] == "analysis."
        }
        assert not [o for o in others if ANALYSIS.index(o) < ANALYSIS.index(parts[1])], ".".join(parts)


@pytest.mark.parametrize(("package", "other"), [("accel_migrate", "accel_runtime"), ("accel_runtime", "accel_migrate")])
def test_the_two_packages_do_not_know_each_other(package: str, other: str) -> None:
    for module in modules(package):
        assert not [name for name in imported(package, module) if name.split(".")[0] == other], module


@pytest.mark.parametrize(
    ("package", "folder", "shared"),
    [
        ("accel_migrate", "rules", ()),
        (
            "accel_runtime",
            "strategies",
            ("batch_norms", "communication", "layout"),
        ),
        ("accel_runtime", "devices", ("streams",)),
        ("accel_runtime", "precision", ("autocast", "bf16", "fp8", "full")),
    ],
)
def test_variants_do_not_know_each_other(package: str, folder: str, shared: tuple[str, ...]) -> None:
    for module in modules(package):
        if module.startswith(f"{folder}."):
            # A variant of several files has its name before an underscore in all of them.
            family = module.split("_")[0]
            others = {name for name in own_imports(package, module) if name.split("_")[0] != family}
            siblings = {name for name in others if name.startswith(f"{folder}.")}
            assert siblings <= {f"{folder}.{name}" for name in shared}, module


def test_only_the_command_line_and_the_package_itself_import_the_accelerator() -> None:
    users = {m for m in modules("accel_runtime") if "accelerator" in own_imports("accel_runtime", m)}
    assert {user.split(".")[0] for user in users} <= {"cli", "__init__"}


def test_the_check_shares_no_conclusion_with_what_it_checks() -> None:
    """It is what doubts the analysis: it may know the language, the sources and the plan, and nothing of a training."""
    for module in modules("accel_migrate"):
        if module.split(".")[0] in ("check", "flow"):
            known = {name.split(".")[0] for name in own_imports("accel_migrate", module)}
            assert known <= {"check", "flow", "source", "plan", "errors", "effects", "items"}, module
            assert module.split(".")[0] == "check" or "check" not in known, module


def test_libcst_is_known_to_the_applier_alone() -> None:
    users = {m for m in modules("accel_migrate") if "libcst" in {i.split(".")[0] for i in imported("accel_migrate", m)}}
    assert {user.split(".")[0] for user in users} == {"apply"}


def test_codemod_needs_no_torch() -> None:
    for module in modules("accel_migrate"):
        assert "torch" not in {name.split(".")[0] for name in imported("accel_migrate", module)}, module


def test_environment_is_handed_on_whole_and_read_from_a_mapping() -> None:
    """Outside of the launcher and the commands, `os.environ` is only ever an argument: who reads it takes a mapping."""
    # `surroundings` is the exception by its very purpose: scripts change the environment with it.
    for module in modules("accel_runtime"):
        if module.split(".")[0] in ("cli", "launch", "surroundings"):
            continue
        program = tree("accel_runtime", module)
        handed = {id(value) for node in ast.walk(program) for value in _arguments(node)}
        for node in ast.walk(program):
            if isinstance(node, ast.Attribute) and ast.unparse(node) in ("os.environ", "os.getenv"):
                assert id(node) in handed, f"accel_runtime.{module}:{node.lineno} reads the environment by itself"


def _arguments(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.Call):
        return [*node.args, *(keyword.value for keyword in node.keywords)]
    return list(node.defaults) if isinstance(node, ast.arguments) else []


def test_no_line_number_stands_for_order() -> None:
    """Which of two nodes runs first, `flow.sequence` says; where one is written, `Module.position` and `spans`."""
    for module in modules("accel_migrate"):
        if module.split(".")[0] not in ("analysis", "check", "flow", "rules"):
            continue
        for node in ast.walk(tree("accel_migrate", module)):
            if _asks_for_order(node):
                told = {part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)}
                told |= {part.value for part in ast.walk(node) if isinstance(part, ast.Constant)}
                found = told & {"lineno", "end_lineno"} if f"{module}:{ast.unparse(node)}" not in OF_LAYOUT else set()
                assert not found, f"accel_migrate.{module}:{node.lineno} compares lines: {ast.unparse(node)}"


# What is about the lines themselves: how a script is laid out, and what a report counts.
OF_LAYOUT = {
    "analysis.values.observed:min([node.lineno, *[each.lineno for each in node.decorator_list]])",
    "check.accounted:bisect_left(block, line, key=lambda statement: statement.end_lineno or 0)",
    "rules.accelerator_parameter:function.body[0].lineno > function.lineno",
    "rules.accelerator_parameter:len({node.lineno for node in reads}) > 1",
    "rules.experiment_logged:sorted({used.lineno for used in missed})",
}


def _asks_for_order(node: ast.AST) -> TypeGuard[ast.expr]:
    if isinstance(node, ast.Compare):
        return any(isinstance(each, ast.Lt | ast.LtE | ast.Gt | ast.GtE) for each in node.ops)
    name = getattr(node.func, "id", getattr(node.func, "attr", "")) if isinstance(node, ast.Call) else ""
    return name in ("sorted", "sort", "min", "max", "range", "bisect", "bisect_left", "bisect_right")
