"""The command `accel-migrate`. Nothing heavy is imported before there is work to do."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import click

from accel_migrate.errors import MigrateError
from accel_migrate.options import COLORS, FORMATS, PRECISIONS, STANDARD_INPUT, TARGETS, Options

EPILOG = """
Exit codes: 0 done, or nothing to do; 1 --check or --diff found something to change; 2 a file or the request failed.
"""


def _file(**options: Any) -> Any:
    return click.Path(path_type=Path, dir_okay=False, **options)


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}, epilog=EPILOG)
@click.argument("paths", nargs=-1, metavar="PATH...", type=click.Path(path_type=Path, allow_dash=True))
@click.option("--diff", is_flag=True, help="Print the changes as a diff that git can apply; write nothing.")
@click.option("--check", is_flag=True, help="Write nothing; exit with 1 if something would change.")
@click.option("-i", "--interactive", is_flag=True, help="Ask about each change, as git add -p does.")
@click.option("-o", "--output", type=_file(), help="Write the one migrated file here and leave the original.")
@click.option("--stdin-filename", type=_file(), help="The name of the script that comes from standard input (-).")
@click.option("--target", type=click.Choice(TARGETS), help="The package to migrate to.  [default: accel_runtime]")
@click.option("--keep-device/--no-keep-device", default=None, help="Leave .to(device) calls where they are.")
@click.option("--mixed-precision", type=click.Choice(PRECISIONS), help="Write this precision into the script.")
@click.option("--unsafe-fixes/--no-unsafe-fixes", default=None, help="Also apply changes that are marked for review.")
@click.option("--select", multiple=True, metavar="CODES", help="Only these rules: codes or their beginnings.")
@click.option("--ignore", multiple=True, metavar="CODES", help="Not these rules.")
@click.option(
    "--exclude", multiple=True, metavar="PATTERN", help="Skip what matches, inside folders; as in .gitignore."
)
@click.option("-j", "--jobs", type=click.IntRange(min=1), help="Processes to use.  [default: one per core]")
@click.option("--time-limit", type=click.FloatRange(min=0, min_open=True), help="Seconds per file.  [default: 60]")
@click.option("--output-format", type=click.Choice(FORMATS), help="The form of the report.  [default: full]")
@click.option("--html", type=_file(), help="Also write the report as one page for a browser.")
@click.option("--statistics", is_flag=True, help="Count files, changes, lines and rules.")
@click.option("--color", type=click.Choice(COLORS), default="auto", help="When to use colours.")
@click.option("-q", "--quiet", is_flag=True, help="Tell only what failed.")
@click.option("-v", "--verbose", is_flag=True, help="Also tell about files without torch, and where errors come from.")
@click.version_option(package_name="accel-migrate", message="%(prog)s %(version)s")
def command(**given: Any) -> int:
    """Rewrite plain PyTorch training scripts, notebooks and projects in place for an Accelerator, and say what was
    done and what was left, with the reason. PATH is a file, a folder, a notebook, or - for standard input."""
    options = Options(**given)
    if not options.paths:
        raise click.UsageError("name a file, a folder, or - for standard input")
    if STANDARD_INPUT in options.paths and not options.reads_stdin:
        raise click.UsageError("- stands alone; name files and folders in a run of their own")
    from accel_migrate.configuration import configuration

    first = Path.cwd() / (options.stdin_filename or options.paths[0])
    options = options.over(configuration(first if first.is_dir() else first.parent))
    from accel_migrate.run import run

    return run(options)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command and exit."""
    try:
        code = command.main(arguments, prog_name="accel-migrate", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        code = 2
    except MigrateError as error:
        print(f"accel-migrate: {error}", file=sys.stderr)
        code = 2
    except click.Abort:
        print("accel-migrate: stopped", file=sys.stderr)
        code = 130
    sys.exit(code)
