"""The pages about launching say what the commands do."""

from __future__ import annotations

from pathlib import Path

from accel_runtime.cli import COMMANDS
from accel_runtime.cli.flags import HELP

DOCS = Path(__file__).parents[3] / "docs"


def test_every_command_has_a_page_and_every_setting_its_flag_on_it() -> None:
    assert all((DOCS / f"commands/accel-{command}.md").is_file() for command in COMMANDS)
    page = (DOCS / "commands/accel-launch.md").read_text()
    assert not [key for key in HELP if f"--{key.replace('_', '-')}" not in page]


def test_the_recipe_for_ray_is_the_one_that_is_tested() -> None:
    recipe = (Path(__file__).parents[2] / "distributed/launched/ray_recipe.py").read_text()
    assert recipe.split('"""', 2)[2].strip() in (DOCS / "howto" / "ray.md").read_text()
