"""AM601: what is printed and logged is printed and logged once, or it is said that it is not."""

from __future__ import annotations

import pytest

from tests.migrate.rules.scripts import becomes, codes, training
from tests.migrate.rules.verbs import migrated, noted, notes


def test_prints_once():
    becomes(training(after="print(epoch)"), "accelerator.print(epoch)")


def test_notes_prints_above_the_accelerator():
    source = training(functions="def load(n):\n    print(n)\n    print(n + 1)\nload(3)\n")
    assert "(lines 13, 14)" in noted(source, "AM601")


def test_says_nothing_of_a_function_that_nothing_calls():
    assert not [n for n in notes(training(functions="def unused():\n    print(1)\n")) if "prints this" in n]


def test_keeps_a_print_of_one_process():
    source = training(ready="me = int(os.environ.get('RANK', 0))", after="if me == 1:\n    print(epoch)")
    assert "    print(epoch)" in migrated(source)
    assert not [n for n in notes(source) if "prints this" in n]


@pytest.mark.parametrize(
    ("functions", "line"),
    [
        ("import logging\n", "logging.info('%d', epoch)"),
        ("import logging\nlog = logging.getLogger(__name__)\n", "log.warning('here')"),
        ("from loguru import logger\n", "logger.info('here')"),
    ],
)
def test_notes_what_every_process_logs(functions: str, line: str):
    assert "every process logs this" in noted(training(functions=functions, after=line), "AM601")


def test_says_nothing_of_a_log_under_a_guard():
    source = training(
        functions="import logging\n",
        ready="me = int(os.environ.get('RANK', 0))",
        after="if me == 0:\n    logging.info(1)",
    )
    assert not [n for n in notes(source) if "logs this" in n]


@pytest.mark.parametrize(
    ("functions", "line"),
    [
        ("", 'sys.stdout.write("%f" % loss.item())'),
        ("import pprint\n", "pprint.pp(total)"),
    ],
)
def test_writes_to_the_terminal_once(functions: str, line: str):
    source = training(functions=functions, after=line)
    becomes(source, f"if accelerator.is_local_main_process:\n    {line}")
    assert not [n for n in notes(source) if "prints this" in n]


def test_notes_text_that_is_written_to_the_terminal():
    message = noted(training(inside="sys.stdout.write(describe(loss))"), "AM601")
    assert "every process prints this; print it" in message
    early = noted(training(functions='def load(n):\n    sys.stdout.write("x")\nload(3)\n'), "AM601")
    assert "the Accelerator is not made yet" in early


@pytest.mark.parametrize(
    ("functions", "line"),
    [
        ("from pprint import pprint\n", "pprint(describe(total))"),
        ("", "print(total, file=sys.stdout)"),
        ("stream = sys.stdout if len(sys.argv) > 1 else open(os.devnull)\n", "print(total, file=stream)"),
    ],
)
def test_notes_other_ways_to_print(functions: str, line: str):
    assert "every process prints this" in noted(training(functions=functions, after=line), "AM601")


def test_says_nothing_of_what_is_printed_to_a_file():
    source = training(functions="import io\nlog = io.StringIO()\n", after="print(total, file=log)")
    assert "AM601" not in codes(source)
