"""AM601: what is printed and logged is printed and logged once, or it is said that it is not."""

from __future__ import annotations

import pytest
from accel_migrate.settings import Settings

from tests.migrate.rules.scripts import becomes, codes, stays, training
from tests.migrate.rules.verbs import migrated, noted, notes

ONCE = Settings(prints="once")


@pytest.mark.parametrize(
    "line", ["print(epoch)", "sys.stdout.write(describe(loss))", "logging.info(epoch)", "for x in tqdm(loader): pass"]
)
def test_leaves_to_the_launcher_what_goes_to_the_terminal(line: str):
    source = training(functions="import logging\n", after=line)
    stays(source, line)
    assert not {"AM601", "AM602"} & codes(source)


def test_says_how_to_see_what_each_process_prints_of_itself():
    source = training(ready="me = int(os.environ.get('RANK', 0))", after="print(f'rank {me} has {total}')")
    assert "start with --show-ranks all" in noted(source, "AM601")
    alone = training(ready="me = int(os.environ.get('RANK', 0))", after="if me == 1:\n    print(total)")
    assert "not every process prints the same here" in noted(alone, "AM601")
    for test in ("me == 0", "me <= 0", "me in (-1, 0)", "not me"):
        main = training(ready="me = int(os.environ.get('RANK', 0))", after=f"if {test}:\n    print(total)")
        assert "AM601" not in codes(main)
    assert "AM601" not in codes(training(after="print(f'{epoch} {total} {device}')"))


def printing(*lines: str) -> str:
    """An evaluation by whole batches with these lines in each round."""
    body = "".join(
        f"        {line}\n" for line in ("score = criterion(model(x.to(device)), y.to(device)).item()", *lines)
    )
    head = "hits, scores = 0, []\nwith torch.no_grad():\n    for j, (x, y) in enumerate(test_loader):\n"
    return training(
        functions="import logging\n", after=f"{head}{body}        scores.append(score)\nprint(sum(scores))\n"
    )


@pytest.mark.parametrize(
    "line",
    [
        "print(f'score {score:.3f}')",
        "print(j, score)",
        "logging.info('score %s', score)",
        "if score > 1: print(score)",
        "if epoch == 1: print(score)",
    ],
)
def test_says_that_a_line_for_each_batch_of_an_evaluation_is_of_its_own_process(line: str):
    source = printing(line)
    stays(source, line)
    assert "its own batches of the evaluation" in noted(source, "AM601")
    once = [note for note in notes(source, ONCE) if "its own batches of the evaluation" in note]
    assert once and "--show-ranks" not in once[0]


@pytest.mark.parametrize(
    "line",
    ["if j % 10 == 0: print(j, score)", "if j == 0: print(score)", "print(j)", "print(sum(scores))", "pass"],
)
def test_says_nothing_of_the_progress_of_an_evaluation(line: str):
    assert "AM404" in codes(printing(line))
    assert "AM601" not in codes(printing(line))


@pytest.mark.parametrize(
    "line",
    [
        "logging.basicConfig(filename='train.log')",
        "logging.getLogger().addHandler(logging.FileHandler('train.log'))",
        "logger.add('train.log')",
    ],
)
def test_notes_a_log_file_that_every_process_writes(line: str):
    functions = "import logging\nfrom loguru import logger\n"
    assert "every process writes to this log file" in noted(training(functions=functions, ready=line), "AM601")
    assert "AM601" not in codes(training(functions=functions, ready="logging.basicConfig(level=20)"))


def test_accelerate_shows_every_process_so_the_script_prints_once():
    becomes(training(after="print(epoch)"), "accelerator.print(epoch)", Settings(target="accelerate"))


def test_prints_once():
    becomes(training(after="print(epoch)"), "accelerator.print(epoch)", ONCE)


def test_prints_once_what_a_script_silenced_on_other_processes():
    quiet = "import builtins\nif int(os.environ.get('RANK', 0)) != 0:\n    builtins.print = lambda *a: None"
    becomes(training(ready=quiet, after="print(epoch)"), "accelerator.print(epoch)")


def test_notes_prints_above_the_accelerator():
    source = training(functions="def load(n):\n    print(n)\n    print(n + 1)\nload(3)\n")
    assert "(lines 13, 14)" in noted(source, "AM601", ONCE)


def test_says_nothing_of_a_function_that_nothing_calls():
    assert not [n for n in notes(training(functions="def unused():\n    print(1)\n"), ONCE) if "prints this" in n]


def test_keeps_a_print_of_one_process():
    source = training(ready="me = int(os.environ.get('RANK', 0))", after="if me == 1:\n    print(epoch)")
    assert "    print(epoch)" in migrated(source, ONCE)
    assert not [n for n in notes(source, ONCE) if "prints this" in n]


@pytest.mark.parametrize(
    ("functions", "line"),
    [
        ("import logging\n", "logging.info('%d', epoch)"),
        ("import logging\nlog = logging.getLogger(__name__)\n", "log.warning('here')"),
        ("from loguru import logger\n", "logger.info('here')"),
    ],
)
def test_notes_what_every_process_logs(functions: str, line: str):
    assert "every process logs this" in noted(training(functions=functions, after=line), "AM601", ONCE)


def test_says_nothing_of_a_log_under_a_guard():
    source = training(
        functions="import logging\n",
        ready="me = int(os.environ.get('RANK', 0))",
        after="if me == 0:\n    logging.info(1)",
    )
    assert not [n for n in notes(source, ONCE) if "logs this" in n]


@pytest.mark.parametrize(
    ("functions", "line"),
    [
        ("", 'sys.stdout.write("%f" % loss.item())'),
        ("import pprint\n", "pprint.pp(total)"),
    ],
)
def test_writes_to_the_terminal_once(functions: str, line: str):
    source = training(functions=functions, after=line)
    becomes(source, f"if accelerator.is_local_main_process:\n    {line}", ONCE)
    assert not [n for n in notes(source, ONCE) if "prints this" in n]


def test_notes_text_that_is_written_to_the_terminal():
    message = noted(training(inside="sys.stdout.write(describe(loss))"), "AM601", ONCE)
    assert "every process prints this; print it" in message
    early = noted(training(functions='def load(n):\n    sys.stdout.write("x")\nload(3)\n'), "AM601", ONCE)
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
    assert "every process prints this" in noted(training(functions=functions, after=line), "AM601", ONCE)


def test_says_nothing_of_what_is_printed_to_a_file():
    source = training(functions="import io\nlog = io.StringIO()\n", after="print(total, file=log)")
    assert "AM601" not in codes(source)


def test_a_logger_that_a_function_makes_is_one():
    functions = "import logging\ndef get_logger():\n    logger = logging.getLogger('x')\n    return logger\n"
    source = training(functions=functions, ready="logger = get_logger()", after="logger.info(total)")
    assert "every process logs this" in noted(source, "AM601", ONCE)


def test_says_nothing_of_a_function_that_one_process_runs_by_its_decorator():
    told = "from ranks import master_only\n{}def tell(i):\n    print(i)\n    open('log', 'a').write(i)\n"
    for decorator, is_said in (("@master_only\n", False), ("", True)):
        source = training(functions=told.format(decorator), inside="tell(str(i))")
        assert "AM301" in codes(source)
        assert ("AM504" in codes(source)) is is_said
