"""The command `accel-migrate`. Nothing heavy is imported before there is work to do."""

from __future__ import annotations

import atexit
import gc
import io
import os
import sys
import traceback
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import click
from click.shell_completion import CompletionItem, get_completion_class

from accel_migrate.errors import MigrateError
from accel_migrate.options import COLORS, FORMATS, PRECISIONS, PRINTS, STANDARD_INPUT, TARGETS, Options

SHELLS = ("bash", "zsh", "fish")
COLLECT_AFTER = 100_000  # objects, some 30 MB of them
EPILOG = """
Exit codes: 0 done, or nothing to do; 1 --check or --diff found something to change; 2 a file or the request failed.
With --verify: 0 proven; 1 the migrated script differs; 2 it could not be run.
"""


def _file(**options: Any) -> Any:
    return click.Path(path_type=Path, dir_okay=False, **options)


def _codes(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from accel_migrate.catalogue import explained

    return [
        CompletionItem(rule.code, help=rule.summary) for rule in explained() if rule.code.startswith(incomplete.upper())
    ]


class _Command(click.Command):
    """With --verify, what follows `--` is for the script."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own, rest = args, []
        if "--" in args and {"--verify", "--write-if-proven", "--observe"} & set(args[: args.index("--")]):
            own, rest = args[: args.index("--")], args[args.index("--") + 1 :]
        left = super().parse_args(ctx, own)
        ctx.params["arguments"] = tuple(rest)
        return left


@click.command(
    cls=_Command, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}, epilog=EPILOG
)
@click.argument("paths", nargs=-1, metavar="PATH...", type=click.Path(path_type=Path, allow_dash=True))
@click.option("--diff", is_flag=True, help="Print the changes as a diff that git can apply; write nothing.")
@click.option("--check", is_flag=True, help="Write nothing; exit with 1 if something would change.")
@click.option("-i", "--interactive", is_flag=True, help="Ask about each change, as git add -p does.")
@click.option("-o", "--output", type=_file(), help="Write the one migrated file here and leave the original.")
@click.option("--stdin-filename", type=_file(), help="The name of the script that comes from standard input (-).")
@click.option("--target", type=click.Choice(TARGETS), help="The package to migrate to.  [default: accel_runtime]")
@click.option("--keep-device/--no-keep-device", default=None, help="Leave .to(device) calls where they are.")
@click.option("--mixed-precision", type=click.Choice(PRECISIONS), help="Write this precision into the script.")
@click.option("--prints", type=click.Choice(PRINTS), help="Who keeps N processes from printing N times: see AM601.")
@click.option("--unsafe-fixes/--no-unsafe-fixes", default=None, help="Also apply changes that are marked for review.")
@click.option("--select", multiple=True, metavar="CODES", shell_complete=_codes, help="Only these rules, as AM101,AM2.")
@click.option("--ignore", multiple=True, metavar="CODES", shell_complete=_codes, help="Not these rules.")
@click.option("--exclude", multiple=True, metavar="PATTERN", help="Skip what matches in folders, as .gitignore does.")
@click.option("-j", "--jobs", type=click.IntRange(min=1), help="Processes to use.  [default: one per core]")
@click.option("--time-limit", type=click.FloatRange(min=0, min_open=True), help="Seconds per file.  [default: 60]")
@click.option("--output-format", type=click.Choice(FORMATS), help="The form of the report.  [default: full]")
@click.option("--html", type=_file(), help="Also write the report as one page for a browser.")
@click.option("--statistics", is_flag=True, help="Count files, changes, lines and rules.")
@click.option("--color", type=click.Choice(COLORS), default="auto", help="When to use colours.")
@click.option("-q", "--quiet", is_flag=True, help="Report only what failed.")
@click.option("-v", "--verbose", is_flag=True, help="Also report files without torch, and where errors come from.")
@click.option("--verify", is_flag=True, help="Run the script as it is and migrated, and compare them; write nothing.")
@click.option("--write-if-proven", is_flag=True, help="Verify, and rewrite in place only what trains as it did.")
@click.option("--steps", type=click.IntRange(min=1), default=20, help="Losses to verify.  [default: 20]")
@click.option("--processes", type=click.IntRange(min=1), default=2, help="Processes to verify on.  [default: 2]")
@click.option("--python", metavar="PATH", help="The interpreter that runs the script.  [default: this one]")
@click.option("--timeout", type=click.FloatRange(min=1), default=600.0, help="Seconds for each run.  [default: 600]")
@click.option("-m", "--module", metavar="NAME", help="Verify this module, as python -m runs it.")
@click.option("--data", multiple=True, type=click.Path(path_type=Path, exists=True), help="Only read: not copied.")
@click.option("--on-cpu", is_flag=True, help="Verify a script for a GPU on the CPU.")
@click.option("--stand-ins", is_flag=True, help="Verify on made-up data and random weights where its own are missing.")
@click.option(
    "--shape", multiple=True, metavar="PATH=SIZES", help="Make up this file, as data.npy=100x3x32x32:float32."
)
@click.option(
    "--shrink", multiple=True, metavar="NAME=NUMBER", help="Verify with a smaller constant, as image_size=32."
)
@click.option("--observe", is_flag=True, help="Run the script, see what its variables hold, and verify what follows.")
@click.option("--facts", type=_file(), help="Keep what --observe saw in this file; without --observe, read it.")
@click.option("--undo", is_flag=True, help="Put back what the last in-place run under this folder changed.")
@click.option("--notes", is_flag=True, help="Print the notes of the last in-place run under this folder again.")
@click.option("--explain", metavar="CODE", shell_complete=_codes, help="Explain what a rule does and why, or all.")
@click.option("--completion", type=click.Choice(SHELLS), help="Print the completion script for a shell.")
@click.option("--version", is_flag=True, help="Print the version.")
def command(undo: bool, notes: bool, explain: str | None, completion: str | None, version: bool, **given: Any) -> int:
    """Rewrite plain PyTorch training scripts, notebooks and projects in place for an Accelerator, and say what was
    done and what was left, with the reason. PATH is a file, a folder, a notebook, or - for standard input.

    With --verify, the script is also run as it is and migrated, and both are compared loss by loss; its own
    arguments come after --."""
    if version:
        return _print(f"accel-migrate {_version()}\n")
    if completion:
        return _print_completion(completion)
    if explain:
        from accel_migrate import catalogue

        return _print(catalogue.explain(explain))
    options = Options(**given)
    contradiction = _contradiction(options, "--undo" if undo else "--notes" if notes else "") or _unverifiable(options)
    if contradiction:
        raise click.UsageError(contradiction)
    if notes:
        return _notes()
    if undo:
        return _undo()
    return _verify(options) if _verifies(options) else _run(options)


def _contradiction(options: Options, looks_back: str) -> str:
    """Why the options cannot be meant as they stand; empty when they can."""
    if looks_back:
        return f"{looks_back} takes no path: it looks at the current folder and below" if options.paths else ""
    if not options.paths and not (options.module and _verifies(options)):
        return "name a file, a folder, or - for standard input"
    if STANDARD_INPUT in options.paths and not options.reads_stdin:
        return "- stands alone; name files and folders in a run of their own"
    if options.reads_stdin and options.interactive:
        return "--interactive needs standard input for the answers; name a file"
    if options.output is not None and not options.writes:
        return "--output writes, and --check and --diff do not; choose one"
    return ""


def _verifies(options: Options) -> bool:
    return options.verify or options.write_if_proven or options.observe


def _unverifiable(options: Options) -> str:
    """Why --verify cannot go with the other options; empty when it can."""
    if not _verifies(options):
        if options.stand_ins or options.shape:
            return "--stand-ins says what to verify on; add --verify"
        if options.shrink:
            return "--shrink says what to verify with; add --verify"
        if options.facts is not None and options.writes:
            return "what rests on --facts is written only with a proof; add --write-if-proven, or --diff to look at it"
        return "-m says what to verify; add --verify" if options.module else ""
    if options.reads_stdin:
        return "--verify runs a script from its folder; name a file"
    if options.shape and not options.stand_ins:
        return "--shape makes up what --stand-ins runs on; add --stand-ins"
    if options.interactive or options.check or options.output is not None:
        return "--verify stands in the place of --check, --interactive and --output; leave them out"
    return ""


def _verify(options: Options) -> int:
    from accel_migrate.proof.command import verify
    from accel_migrate.proof.subject import paths_of

    return verify(_configured(replace(options, paths=options.paths or paths_of(options.module, Path.cwd()))))


def _run(options: Options) -> int:
    from accel_migrate.run import run

    return run(_configured(options))


def _configured(options: Options) -> Options:
    from accel_migrate.configuration import configuration

    first = Path.cwd() / (options.stdin_filename or options.paths[0])
    return options.over(configuration(first if first.is_dir() else first.parent))


def _print(text: str) -> int:
    click.echo(text, nl=False)
    return 0


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("accel-migrate")
    except PackageNotFoundError:
        return "from a source tree that is not installed"


def _print_completion(shell: str) -> int:
    completion = get_completion_class(shell)
    assert completion is not None
    return _print(completion(command, {}, "accel-migrate", "_ACCEL_MIGRATE_COMPLETE").source() + "\n")


def _notes() -> int:
    from accel_migrate.outcome import shown
    from accel_migrate.undo import notes, state_folder

    current = Path.cwd()
    found = {path: lines for path, lines in notes(current, state_folder()).items() if lines}
    click.echo(f"{sum(map(len, found.values()))} notes of the last run under this folder.")
    for path, lines in found.items():
        click.echo("".join(f"\n{shown(path, current)}:{line}" for line in lines)[1:])
    return 0


def _undo() -> int:
    """0 when everything is back, or there was nothing; 2 when a file had to be left."""
    from accel_migrate.outcome import shown
    from accel_migrate.undo import state_folder, undo

    current = Path.cwd()
    restored = undo(current, state_folder())
    left = [each for each in restored if each.problem]
    if not restored:
        click.echo("Nothing to undo under this folder.")
    else:
        click.echo(f"Restored {len(restored) - len(left)} of {len(restored)} files.")
    for each in restored:
        if not each.problem:
            click.echo(shown(each.path, current))
    for each in left:
        click.echo(f"accel-migrate: {shown(each.path, current)}: {each.problem}", err=True)
    return 2 if left else 0


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command and exit."""
    # What is imported lives as long as the process, and the trees of a project until it is done: the collector would go
    # through them again and again, and once more when all ends.
    gc.set_threshold(COLLECT_AFTER)
    atexit.register(gc.freeze)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a file name may be bytes that are no text
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
    except BrokenPipeError:
        # The reader, `head` perhaps, has seen enough; what is left in the buffer must not fail at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 141
    except Exception:
        traceback.print_exc()
        print("accel-migrate: internal error; please report it with the lines above", file=sys.stderr)
        code = 2
    sys.exit(code)
