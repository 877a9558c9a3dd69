"""AM504 and AM505: files and folders."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent, indent

import pytest
from accel_migrate.pipeline import migrate
from accel_migrate.settings import DEFAULTS
from accel_migrate.source import Source

from tests.migrate.rules import handwritten
from tests.migrate.rules.scripts import becomes, codes, stays, training
from tests.migrate.rules.verbs import _migrated, migrated, noted, notes, unchanged


def test_guards_a_picture():
    becomes(training(after='save_image(x, "x.png")'), 'if accelerator.is_main_process:\nsave_image(x, "x.png")')


def test_puts_neighbours_under_one_guard():
    becomes(
        training(after='np.save("a.npy", a)\n# the other\nnp.save("b.npy", b)'),
        'if accelerator.is_main_process:\nnp.save("a.npy", a)\n# the other\nnp.save("b.npy", b)',
    )


@pytest.mark.parametrize(
    ("condition", "joined"),
    [
        ("epoch > 0", "epoch > 0 and"),
        ("total and epoch", "total and epoch and"),
        ("total or epoch", "(total or epoch) and"),
        ("(total or epoch)", "((total or epoch) and"),
    ],
)
def test_joins_a_guard_to_the_condition_around_it(condition: str, joined: str):
    source = training(after=f'if {condition}:\n    # the best\n    np.save("a.npy", a)\n    np.save("b.npy", b)')
    bracket = ")" if joined.startswith("((") else ""
    becomes(source, f'if {joined} accelerator.is_main_process{bracket}:\n# the best\nnp.save("a.npy", a)\nnp.save("b')


def test_joins_no_guard_to_a_condition_with_more_under_it():
    guarded = 'if epoch:\nif accelerator.is_main_process:\nnp.save("a.npy", a)'
    becomes(training(after='if epoch:\n    np.save("a.npy", a)\n    total = 0.0'), guarded)
    becomes(training(after='if epoch:\n    np.save("a.npy", a)\nelse:\n    total = 0.0'), guarded)
    becomes(training(after='if total:\n    pass\nelif epoch:\n    np.save("a.npy", a)'), f"el{guarded}")


def test_guards_a_table_as_a_whole():
    becomes(
        training(after='with open("log.csv", "a") as f:\n    f.write(str(total))'),
        'if accelerator.is_main_process:\nwith open("log.csv", "a") as f:\nf.write(str(total))',
    )


def test_guards_a_file_opened_inside_the_call():
    becomes(training(after='json.dump(log, open("l.json", "w"))'), "if accelerator.is_main_process:\njson.dump(log")


@pytest.mark.parametrize(
    ("functions", "made"),
    [
        ("", "model(x)"),
        ("def draw(net, x):\n    return net(x)", "draw(model, x)"),
        ("def inner(net, x):\n    return net(x)\ndef draw(net, x):\n    return inner(net, x)", "draw(model, x).cpu()"),
    ],
)
def test_all_run_the_model_of_which_one_process_writes(functions: str, made: str) -> None:
    becomes(
        training(functions=functions, after=f'save_image({made}, "x.png")'),
        f'output = {made}\nif accelerator.is_main_process:\nsave_image(output, "x.png")',
    )


def test_notes_a_write_in_which_the_model_runs():
    source = training(after='with open("x", "w") as f:\n    f.write(str(model(x)))')
    above = 'output = str(model(x))\nif accelerator.is_main_process:\nwith open("x", "w") as f:\nf.write(output)'
    becomes(source, above)
    for body in ("f.write(str(model(x)))\n        f.flush()", "f.write(str(model(f)))"):
        message = noted(source.replace("f.write(str(model(x)))", body), "AM504")
        assert "all processes must do together" in message


def test_notes_a_write_whose_names_are_read_later():
    message = noted(training(after='with open("log", "w") as f:\n    size = f.write("x")\nprint(size)'), "AM504")
    assert "`size`" in message


def test_keeps_a_file_that_is_read():
    stays(training(after='with open("names.txt") as f:\n    names = f.read()'), 'with open("names.txt") as f:')


def test_keeps_a_write_that_the_author_guards():
    assert "AM504" not in codes(training(after='if rank == 0:\n    np.save("a.npy", a)'))


def test_keeps_a_function_that_training_does_not_call():
    assert "AM504" not in codes(training(functions='def unused(a):\n    np.save("a.npy", a)\n'))


def test_keeps_an_open_of_the_authors_own():
    assert "AM504" not in codes(training(functions="def open(path, mode):\n    return path\n", after='open("x", "w")'))


def test_makes_a_folder_without_a_race():
    becomes(
        training(after='if not os.path.exists("out"):\n    os.makedirs("out")'),
        'if not os.path.exists("out"):\nos.makedirs("out", exist_ok=True)',
    )


def test_keeps_a_folder_that_must_be_new():
    stays(training(after='os.makedirs("out")'), 'os.makedirs("out")')


def test_keeps_a_folder_that_may_exist():
    assert "AM505" not in codes(training(after='if not os.path.exists("o"):\n    os.makedirs("o", exist_ok=True)'))
    assert "AM505" not in codes(training(after='if not os.path.exists("o"):\n    os.makedirs("o", 0o755, True)'))


@pytest.mark.parametrize(("caught", "told"), [("FileNotFoundError", True), ("OSError", False)])
def test_keeps_an_os_mkdir_whose_author_deals_with_missing_parents(caught: str, told: bool):
    made = f'if not os.path.exists("a/o"):\n    try:\n        os.mkdir("a/o")\n    except {caught}:\n        sys.exit("none")'
    stays(training(after=made), 'os.mkdir("a/o")')
    assert ("AM505" in codes(training(after=made))) is told


def test_keeps_a_folder_that_no_run_of_the_training_makes():
    source = training(functions="def draw():\n    if not os.path.exists('o'):\n        os.makedirs('o')\n")
    stays(source, "os.makedirs('o')")


def test_keeps_a_picture_in_memory():
    assert "AM504" not in codes(training(functions="import io", after="page = io.BytesIO()\nfigure.savefig(page)"))


def test_keeps_what_a_function_writes_into_memory():
    draw = "import io\ndef draw(out):\n    np.save(out, 1)\n"
    assert "AM504" not in codes(training(functions=draw, after="page = io.BytesIO()\ndraw(page)"))


def test_keeps_what_one_process_writes_two_calls_down():
    functions = "def write(a):\n    np.save('a.npy', a)\ndef report(who, a):\n    if who == 0:\n        write(a)\n"
    source = training(functions=functions, ready="me = int(os.environ.get('RANK', 0))", after="report(me, total)")
    assert "AM504" not in codes(source)


def test_guards_what_an_option_may_let_all_processes_write():
    source = training(
        ready="me = int(os.environ.get('RANK', 0))", after='if loud or me == 0:\n    np.save("a.npy", total)'
    )
    becomes(
        source,
        'if (loud or accelerator.is_main_process) and accelerator.is_main_process:\nnp.save("a.npy", total)',
    )


def test_notes_a_file_that_is_written_before_there_is_an_accelerator():
    functions = "def index(path):\n    with open(path, 'w') as f:\n        f.write('x')\nindex('words.txt')\n"
    assert "may not be made yet" in noted(training(functions=functions), "AM504")


def test_a_download_is_noted_as_a_whole():
    functions = (
        "import urllib.request\ndef fetch(url, path):\n    urllib.request.urlretrieve(url, path)\n"
        "    os.rename(path, 'x')\nfetch('https://a.example/x', 'y')\n"
    )
    assert "downloads what is missing" in noted(training(functions=functions), "AM604")
    assert "AM504" not in codes(training(functions=functions))


def test_one_process_makes_a_folder_that_must_be_new():
    becomes(
        training(after="os.mkdir(f'run{epoch}')"),
        "if accelerator.is_main_process:\nos.mkdir(f'run{epoch}')\naccelerator.wait_for_everyone()",
    )


def test_notes_a_new_folder_where_there_is_no_accelerator():
    assert "all but the first may fail" in noted(training(functions="os.makedirs('run')"), "AM505")


@pytest.mark.parametrize(
    "made",
    [
        "if os.path.exists('run') is False:\n    os.mkdir('run')",
        "if os.path.isdir('run') == False:\n    os.mkdir('run')",
        "if os.path.isdir('run'):\n    pass\nelse:\n    os.mkdir('run')",
        "if total > 1 and not os.path.exists('run'):\n    os.mkdir('run')",
    ],
)
def test_a_folder_that_is_asked_for_in_other_words_is_made_by_all(made: str):
    source = training(after=made)
    becomes(source, "os.makedirs('run', exist_ok=True)")
    assert "wait_for_everyone" not in migrated(source)


def test_no_process_waits_under_a_question_for_the_folder():
    source = training(
        after="if os.path.exists('run'):\n    total += 1\n    len(os.listdir('run'))\n    os.mkdir('run/a')"
    )
    assert "all but the first may fail" in noted(source, "AM505")


@pytest.mark.parametrize(
    ("removed", "made"),
    [
        ("if os.path.exists(run):\n    {}shutil.rmtree(run)", "os.makedirs(run, exist_ok=True)"),
        ("{}shutil.rmtree(run, ignore_errors=True)", "os.makedirs(os.path.join(run, 'images'), exist_ok=True)"),
        ("if os.path.isdir(run):\n    {}shutil.move(run, run + '.old')", "os.makedirs(run, exist_ok=True)"),
        (
            "try:\n    {}shutil.rmtree(run)\nexcept OSError:\n    pass",
            "try:\n    os.mkdir(run)\nexcept OSError:\n    pass",
        ),
    ],
)
def test_a_folder_is_made_again_when_one_process_has_taken_it_away(removed: str, made: str):
    text = migrated(training(ready=f"run = 'out'\n{removed.format('')}\n{made}"))
    gone, waits, again = (text.index(part) for part in ("shutil.", "accelerator.wait_for_everyone()\n", made))
    assert gone < waits < again
    assert "accelerator.is_main_process" in text[:gone]


@pytest.mark.parametrize(
    "renewed",
    [
        "if os.path.exists('out'):\n    shutil.rmtree('out')\n    os.mkdir('out')\nelse:\n    os.mkdir('out')",
        "try:\n    shutil.rmtree('out')\n    os.mkdir('out')\nexcept OSError:\n    os.mkdir('out')",
    ],
)
def test_one_process_takes_a_folder_away_and_makes_it_in_one_statement(renewed: str):
    source = training(ready=renewed)
    becomes(source, f"if accelerator.is_main_process:\n{renewed}\naccelerator.wait_for_everyone()")
    assert migrated(source).count("is_main_process") == 1


def test_a_folder_that_the_main_process_takes_away_and_makes_needs_no_second_wait():
    source = training(ready="if os.path.exists('out'):\n    shutil.rmtree('out')\nos.makedirs('out')")
    assert migrated(source).count("wait_for_everyone") == 1


def test_what_is_inserted_between_two_guards_keeps_them_apart():
    becomes(
        training(after="os.mkdir(f'{epoch}')\nopen(f'{epoch}/a', 'w').write('x')"),
        """
        if accelerator.is_main_process:
        os.mkdir(f'{epoch}')
        accelerator.wait_for_everyone()
        if accelerator.is_main_process:
        open(f'{epoch}/a', 'w').write('x')
        """,
    )


@pytest.mark.parametrize("test", ["if", "while"])
def test_every_process_takes_the_oldest_file_from_its_list(test: str):
    becomes(
        training(
            ready="kept = []", after=f"kept.append(str(epoch))\n{test} len(kept) > 2:\n    os.remove(kept.pop(0))"
        ),
        f"{test} len(kept) > 2:\ntaken = kept.pop(0)\nif accelerator.is_main_process:\nos.remove(taken)",
    )


@pytest.mark.parametrize("changed", ["lines['n'] += 1", "lines.update(n=1)", "log.n += 1", "next(lines)"])
def test_notes_a_file_beside_which_something_is_changed_that_all_read(changed: str):
    after = f"with open('log', 'a') as f:\n    f.write('x')\n    {changed}\nif lines['n'] + log.n > 2:\n    break"
    source = training(ready="lines, log = {'n': 0}, argparse.Namespace(n=0)", functions="import argparse", after=after)
    assert "which is changed in it, is read outside of it" in noted(source, "AM504")
    stays(source, after)


def test_what_only_the_writing_reads_may_be_changed_in_it():
    after = "rows.append(total)\nwith open('log', 'a') as f:\n    f.write(str(rows))\n    rows.clear()"
    becomes(training(ready="rows = []", after=after), "rows.append(total)\nif accelerator.is_main_process:\nwith open")


@pytest.mark.parametrize(
    ("opened", "writes"),
    [
        ("cache = np.memmap('c', dtype='float32', mode='w+', shape=(4,))", True),
        ("cache = np.memmap('c', 'float32', 'r')", False),
        ("cache = np.lib.format.open_memmap('c', shape=(4,))", True),
        ("cache = shelve.open('c')", True),
        ("cache = shelve.open('c', flag='r')", False),
    ],
)
def test_notes_files_that_are_kept_open_for_writing(opened: str, writes: bool):
    assert ("AM504" in codes(training(functions="import shelve", ready=opened))) is writes


def test_a_folder_made_by_a_name_of_its_own_is_only_told():
    source = training(functions="from os import mkdir\n", after="if not os.path.exists('run'):\n    mkdir('run')")
    assert "os.makedirs(..., exist_ok=True)" in noted(source, "AM505")
    becomes(source, "    mkdir('run')")


def test_a_folder_that_each_process_names_for_itself_is_told_once():
    source = training(functions="import time\nos.mkdir(f'run{time.time()}')\n")
    assert len([note for note in notes(source) if "folder" in note]) == 1


def test_keeps_a_folder_whose_failure_is_caught():
    source = training(after="try:\n    os.mkdir('run')\nexcept FileExistsError:\n    pass")
    assert "AM505" not in codes(source)


@pytest.mark.parametrize(
    ("functions", "line"),
    [
        ("import skimage.io\n", 'skimage.io.imsave("x.png", x)'),
        ("from skimage import io\n", 'io.imsave("x.png", x)'),
        ("import imageio.v2 as imageio\n", 'imageio.mimsave("x.gif", [x])'),
        ("import imageio\n", 'with imageio.get_writer("x.gif") as film:\n    film.append_data(x)'),
        ("import matplotlib.pyplot as plt\n", 'plt.imsave("x.png", x)'),
        ("from PIL import Image\n", 'Image.fromarray(x).save("x.png")'),
        ("from pathlib import Path\n", 'Path("log.txt").write_text("x")'),
        ("", 'open("log.txt", "a").write(str(total))'),
    ],
)
def test_guards_what_writes_a_picture_or_a_text(functions: str, line: str):
    becomes(training(functions=functions, after=line), f"if accelerator.is_main_process:\n{line}")


def test_notes_a_file_that_is_kept_open():
    assert "is written to later" in noted(training(ready='log = open("log.txt", "w")'), "AM504")


def test_notes_a_file_that_an_object_keeps_open():
    log = """
    class Log:
        def __init__(self, path):
            self.file = open(path, "a")

        def say(self, text):
            self.file.write(text)
    """
    source = training(functions=log, ready='log = Log("log.txt")', after="log.say(str(total))")
    assert "is written to later" in noted(source, "AM504")


@pytest.mark.parametrize(
    "line", ['os.system("convert *.png x.gif")', 'subprocess.run(["convert", "x.gif"], check=True)']
)
def test_notes_a_command(line: str):
    message = noted(training(functions="import subprocess\n", after=line), "AM504")
    assert "every process runs this command" in message


def test_says_nothing_of_a_command_that_the_author_guards():
    assert "AM504" not in codes(training(after='if rank == 0:\n    os.system("convert *.png x.gif")'))


@pytest.mark.parametrize(
    ("functions", "line"),
    [
        ("from torchvision.transforms import ToPILImage\n", "ToPILImage()(x[0]).save('first.png')"),
        ("from torchvision.transforms.functional import to_pil_image\n", "to_pil_image(x[0]).save(path)"),
        ("from shapes import draw\n", "draw(y).convert('L').save(f'{epoch}.gif')"),
        ("import pandas as pd\n", "pd.DataFrame(y).to_json('y.json')"),
        ("import pandas as pd\n", "pd.DataFrame(y).to_csv(path_or_buf='y.csv')"),
    ],
)
def test_guards_what_writes_a_picture_or_a_table(functions: str, line: str):
    becomes(training(functions=functions, after=line), f"if accelerator.is_main_process:\n{line}")


@pytest.mark.parametrize("line", ["text = settings.to_json()", "show(settings.to_json(indent=2))"])
def test_keeps_what_gives_its_text_back(line: str):
    source = training(functions="from settings import settings, show\n", after=line)
    stays(source, line)
    assert "AM504" not in codes(source)


@pytest.mark.parametrize("method", ["export_chrome_trace", "export_stacks", "export_memory_timeline"])
def test_guards_what_a_profile_exports(method: str):
    line = f"seen.{method}(f'{{epoch}}.json')"
    source = training(functions="from torch.profiler import profile\n\nseen = profile()\n", after=line)
    becomes(source, f"if accelerator.is_main_process:\n{line}")


@pytest.mark.parametrize(
    "line",
    [
        'np.savetxt(f"losses_{rank}.txt", losses)',
        'torch.save(losses, "losses_" + str(rank) + ".pt")',
        'name = os.path.join("parts", "%d.npy" % rank); np.save(name, losses)',
        'with open(f"log_{rank}.txt", "w") as log: log.write(str(loss))',
        'with open(f"part_{rank}.pt", "wb") as part: torch.save(losses, part)',
        'np.save(own("losses", rank), losses)',
    ],
)
def test_what_is_named_by_the_rank_each_process_writes(line: str):
    start = "rank = dist.get_rank(); losses = []"
    source = handwritten.script(start=start, body=line).replace(
        "    def main():",
        "    import numpy as np\n\n\n    def own(name, number):\n        return name + str(number)\n\n\n    def main():",
    )
    assert line.partition("; ")[2] or line in migrated(source)
    assert not {"AM504", "AM501"} & set(codes(source))
    shared = (
        source.replace("{rank}", "{epoch}")
        .replace("rank)", "epoch)")
        .replace("% rank", "% epoch")
        .replace(", rank", ", epoch")
    )
    assert {"AM504", "AM501"} & set(codes(shared))


def test_a_folder_of_the_clock_may_be_there_already_on_several_processes_alone():
    ready = "run = time.strftime('%H-%M-%S')\nos.makedirs(run)"
    source = training(functions="import time\n", ready=ready)
    becomes(source, "os.makedirs(run, exist_ok=accelerator.num_processes > 1)")
    assert "each process names this folder for itself" in noted(source, "AM505")
    tried = ready.replace("os.makedirs(run)", "try:\n    os.makedirs(run)\nexcept OSError:\n    pass")
    stays(training(functions="import time\n", ready=tried), "os.makedirs(run)")


def test_one_process_still_refuses_the_folder_of_an_earlier_run():
    functions = "import argparse, time\nfrom pathlib import Path\n"
    ready = """
        parser = argparse.ArgumentParser()
        parser.add_argument("--name")
        args = parser.parse_args()
        if args.name is None:
            args.name = time.strftime("%H-%M-%S")
        out = Path("runs") / args.name
        out.mkdir(parents=True)
    """
    source = training(functions=functions, ready=ready)
    becomes(source, "out.mkdir(parents=True, exist_ok=accelerator.num_processes > 1)")


@pytest.mark.parametrize("makes", ["os.makedirs(run)", "Path(run).mkdir()"])
def test_keeps_a_folder_of_the_clock_that_is_made_before_the_accelerator(makes: str):
    functions = f"import time\nfrom pathlib import Path\nrun = time.strftime('%H-%M-%S')\n{makes}\n"
    source = training(functions=functions)
    stays(source, f"\n{makes}\n")
    assert "all but the first may fail" in noted(source, "AM505")


def test_keeps_an_os_mkdir_of_the_clock_since_it_makes_no_parents():
    source = training(functions="import time\n", ready="os.mkdir(time.strftime('runs/%H-%M-%S'))")
    stays(source, "os.mkdir(time.strftime('runs/%H-%M-%S'))")
    assert "all but the first may fail" in noted(source, "AM505")


def test_notes_a_folder_that_each_process_names_for_itself():
    functions = "from datetime import datetime\ndef stamp():\n    return datetime.now().strftime('%H-%M')\n"
    source = training(functions=functions, ready="run = f'runs/{stamp()}'\nos.makedirs(run, exist_ok=True)")
    assert "each process names this folder for itself" in noted(source, "AM505")
    source = training(functions="import time\n", ready="os.makedirs('runs', exist_ok=True)\nstart = time.time()")
    assert "AM505" not in codes(source)


def test_guards_a_file_in_a_function_that_downloads_as_well():
    lines = training(after='np.save("y.npy", y)').splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("device"))
    body = ['raw = Digits("d", download=True)', *lines[start:]]
    source = "\n".join([*lines[:start], "def main():", *[f"    {line}" for line in body], "main()", ""])
    becomes(source, 'if accelerator.is_main_process:\nnp.save("y.npy", y)')


def test_all_run_the_method_of_the_model_that_a_file_is_made_by():
    functions = (
        "class Net(nn.Module):\n    def forward(self, x):\n        return x\n    def draw(self, x):\n        return x\n"
    )
    source = training(functions=functions, after='save_image(model.draw(x), "x.png")').replace(
        "nn.Linear(3, 2)", "Net()"
    )
    becomes(source, 'output = model.draw(x)\nif accelerator.is_main_process:\nsave_image(output, "x.png")')


def test_notes_what_torch_writes_before_the_training():
    cached = "def cached():\n    torch.save(torch.ones(3), 'x.pt')\n    return torch.load('x.pt')\nrows = cached()\n"
    assert "every process writes this file" in noted(training(functions=cached), "AM504")
    uncalled = cached.replace("rows = cached()", "")
    assert "AM504" not in codes(training(functions=uncalled))
    assert "AM504" not in codes(training(after="torch.save(model.state_dict(), 'x.pt')"))


def test_says_the_same_of_several_files_once():
    early = "shutil.copy('a', 'b')\nshutil.copy('c', 'd')\nshutil.copy('e', 'f')\n"
    told = [each for each in notes(training(functions=early)) if "every process writes this file" in each]
    assert len(told) == 1
    assert told[0].endswith("(as in line 13, line 14)")


def test_says_nothing_of_a_command_that_answers_a_question():
    for command in ("['git', 'rev-parse', 'HEAD']", "'nvidia-smi -q'", "'stty size'"):
        source = training(functions=f"import subprocess\ntold = subprocess.check_output({command})\n")
        assert "AM504" not in codes(source), command
    assert "AM504" in codes(training(functions="import subprocess\nsubprocess.run(['convert', 'a', 'b'])\n"))


FETCHED = """with open("x.jpg", "wb") as f:
    answer = urlopen("http://127.0.0.1/")
    f.write(answer.read())
"""


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("", "", False),
        ("answer = 'y'\nprint(answer)\n", "", False),
        ("", "answer = 'y'\nprint(answer)\n", False),
        ("answer = 'y'\nprint(answer)\n", "print(answer)\n", True),
        ("for n in range(2):\n    print(n)\n", "def show():\n    print(answer)\n", True),
    ],
)
def test_what_a_guarded_statement_sets_must_not_be_read_later(before: str, after: str, told: bool) -> None:
    source = training(functions=f"from urllib.request import urlopen\n{before}") + FETCHED + after
    messages = notes(source)
    assert any("`answer`, which is set in it, is read later" in each for each in messages) == told
    assert any("downloads what is missing" in each for each in messages) == told


def test_what_another_training_of_the_file_saves_is_not_this_ones():
    one = """
        def fit_{name}(place):
            device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
            net = torch.nn.Linear(4, 2).to(device)
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            for step in range(3):
                loss = net(torch.ones(8, 4).to(device)).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            torch.save(net.state_dict(), place + "/{name}.pt")
    """
    source = "import torch\n" + dedent(one).format(name="a") + dedent(one).format(name="b")
    result = _migrated(source + "\nif __name__ == '__main__':\n    fit_b('.')\n", DEFAULTS)
    assert result.after.decode().count("accelerator.save(accelerator.get_state_dict(net)") == 2
    assert not [note for note in result.notes if note.code == "AM504"]


def test_a_folder_that_is_named_by_the_clock_only_afterwards_is_no_process_its_own():
    ready = "import time\nplace = 'runs'\n{first}os.makedirs(place)\n{then}print(place)"
    stamped = "place = place + time.strftime('%H')\n"
    assert "names this folder for itself" in noted(training(ready=ready.format(first=stamped, then="")), "AM505")
    later = notes(training(ready=ready.format(first="", then=stamped)))
    assert not [each for each in later if "names this folder for itself" in each]


@pytest.mark.parametrize(
    ("write", "read"),
    [
        ('np.save("a.npy", a)', 'a = np.load("a.npy")'),
        ('with open(name, "w") as f:\n    f.write("x")', "text = open(name).read()"),
        ('with open(name, "w") as f:\n    f.write("x")', "with open(name) as f:\n    text = f.read()"),
        ('Path(name).write_text("x")', "text = Path(name).read_text()"),
        ("torch.save(total, name)", "size = os.path.getsize(name)"),
        ('np.save("a", a)', 'a = np.load("a.npy")'),
        ('with open(os.path.join("out", name), "w") as f:\n    f.write("x")', 'text = open(f"out/{name}").read()'),
        ('with open("out/" + name, "w") as f:\n    f.write("x")', 'text = (Path("out") / "a.txt").read_text()'),
    ],
)
def test_waits_where_a_file_is_read_back(write: str, read: str):
    script = training(functions="from pathlib import Path\nname = 'a.txt'", after=f"{write}\n{read}")
    becomes(script, f"accelerator.wait_for_everyone()\n{read.splitlines()[0]}")
    assert migrated(script).count("wait_for_everyone") == 1


def test_waits_once_for_several_files():
    script = training(after='np.save("a.npy", a)\nnp.save("b.npy", b)\na = np.load("a.npy")\nb = np.load("b.npy")')
    assert migrated(script).count("wait_for_everyone") == 1


@pytest.mark.parametrize("read", ['c = np.load("c.npy")', 'if epoch == 9:\n    c = np.load("c.npy")'])
def test_waits_for_no_other_file(read: str):
    assert "wait_for_everyone" not in migrated(training(after=f'np.save("a.npy", a)\n{read}'))


def test_leaves_a_loop_in_which_a_file_is_read_back_under_a_condition():
    reason = noted(training(after='np.save("a.npy", a)\nif epoch:\n    a = np.load("a.npy")'), "AM901")
    assert "while one may still write the file" in reason


@pytest.mark.parametrize(
    "line", ['Path("old.pt").unlink()', 'a.tofile("a.bin")', 'table.to_feather("t.f")', 'os.rmdir("tmp")']
)
def test_guards_what_takes_a_file_away_or_writes_an_array(line: str):
    becomes(training(functions="from pathlib import Path", after=line), f"if accelerator.is_main_process:\n{line}")


ADDED = """\
if os.path.exists("log.json"):
    log = json.load(open("log.json"))
    {}
    json.dump(log, open("log.json", "w"))
else:
    json.dump([total], open("log.json", "w"))
"""


def test_a_file_that_is_asked_for_read_and_written_is_one_process_alone():
    becomes(training(after=ADDED.format("log.append(total)")), "if accelerator.is_main_process:\nif os.path.exists(")


@pytest.mark.parametrize(
    "inside",
    [
        "best = total",
        "history.append(total)",
        "torch.manual_seed(1)",
        "total_of(model)",
        "torch.save(model.state_dict(), 'm.pt')",
    ],
)
def test_what_does_more_than_files_is_not_one_process_alone(inside: str):
    result = _migrated(
        training(ready="history, best = [], 0", after=ADDED.format(inside) + "print(history, best)"), DEFAULTS
    )
    assert b"    if os.path.exists(" not in result.after.replace(b"\n    if", b"\nif")


@pytest.mark.parametrize(
    "line", ['torch.jit.script(model).save("m.pt")', 'traced = torch.jit.trace(model, x)\ntraced.save("m.pt")']
)
def test_guards_what_a_compiled_model_writes_of_itself(line: str):
    guarded = line.rpartition("\n")[2]
    becomes(training(after=line), f"if accelerator.is_main_process:\n{guarded}")


def test_notes_a_file_inside_a_block_that_writes_another():
    source = training(
        after='with open("log.txt", "w") as log:\n    model(x)\n    f = open("best.txt", "w")\n    f.write("1")'
    )
    assert sum("every process writes this file" in note for note in notes(source)) == 2


BUILT_BELOW = (
    "import torch\nfrom torch import nn\nfrom torch.utils.data import DataLoader\n"
    "device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')\n"
    "def note(what):\n    print(what, file=open('shape.txt', 'w'))\n"
    "def build():\n    model = nn.Linear(4, 1).to(device)\n    note(model)\n    return model\n"
    "def fit(rows):\n    model = build()\n    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    "    for x, y in rows:\n        x, y = x.to(device), y.to(device)\n        optimizer.zero_grad()\n"
    "        loss = nn.functional.mse_loss(model(x), y)\n        loss.backward()\n        optimizer.step()\n"
    "fit(DataLoader(data, batch_size=4))\n"
)


def test_guards_what_a_function_writes_before_prepare_where_the_accelerator_is_made():
    becomes(BUILT_BELOW, "if accelerator.is_main_process:\nprint(what, file=open('shape.txt', 'w'))")


def test_says_of_a_function_that_may_run_before_the_accelerator_is_made_that_it_does():
    early = BUILT_BELOW.replace("device = torch", "build = lambda: nn.Linear(4, 1)\nnote(build())\ndevice = torch", 1)
    note, device = early.index("def note"), early.index("build = lambda")
    early = (
        early[:device]
        + early[note:].partition("def build")[0]
        + early[device:note]
        + "def build"
        + early.partition("def build")[2]
    )
    assert "because it runs before `prepare`, where the Accelerator may not be made yet" in noted(early, "AM504")


ASKED = (
    "if os.path.exists({path}):\n    model.load_state_dict(torch.load({path}))\n"
    "else:\n    mark = {made}\n    mark.close()"
)
FUNCTION = (
    "def begin(model, path):\n    try:\n        model.load_state_dict(torch.load(path))\n"
    "    except FileNotFoundError:\n        with open(path, 'w'):\n            pass\nbegin(model, 'kept.pt')"
)


@pytest.mark.parametrize(
    "before",
    [
        ASKED.format(path="'kept.pt'", made="open('kept.pt', 'w')"),
        "KEPT = 'kept.pt'\n" + ASKED.format(path="KEPT", made="open(KEPT, 'wb')"),
        "from pathlib import Path\n" + ASKED.format(path="Path('kept.pt')", made="Path('kept.pt').open('w')"),
        FUNCTION,
    ],
)
def test_says_that_a_file_is_read_which_another_process_may_have_begun(before: str):
    message = noted(training(ready=before), "AM504")
    assert "keep it from those that read it (line" in message
    assert "after all have asked whether the file is there" in message


def test_says_nothing_of_readers_where_another_file_is_read():
    other = ASKED.format(path="'kept.pt'", made="open('marks.txt', 'w')")
    assert "those that read" not in noted(training(ready=other), "AM504")


def test_says_nothing_of_readers_of_another_script():
    begun = training(
        functions="def keep():\n    with open('kept.txt', 'w') as file:\n        file.write('x')\n", ready="keep()"
    )
    top, start, body = begun.partition("device =")
    started = f"{top}\ndef main():\n{indent(start + body, '    ')}\n\nif __name__ == '__main__':\n    main()\n"
    for imported, told in (("import train\ntrain.main()", True), ("from train import keep", False)):
        texts = {"train.py": started, "show.py": f"{imported}\nprint(open('kept.txt').read())\n"}
        (result, _) = migrate([Source.from_bytes(Path(name), text.encode()) for name, text in texts.items()])
        assert any("those that read" in note.message for note in result.notes) is told


def test_says_it_of_a_file_beside_data_that_are_downloaded_where_all_is_set_up():
    body = training(ready=ASKED.format(path="'kept.pt'", made="open('kept.pt', 'w')")).partition("import wandb\n")
    downloaded = body[2].replace("data = TensorDataset(", "raw = Digits('d', download=True)\ndata = TensorDataset(")
    source = f"{body[0]}\ndef main():\n{indent(downloaded, '    ')}\nmain()\n"
    assert "keep it from those that read it" in noted(source, "AM504")


KEEPING = """import json
import matplotlib.pyplot as plt
import numpy as np


def keep(rows, path):
    kept = {}
    kept["rows"] = rows
    fig, axis = plt.subplots()
    axis.plot(np.arange(len(rows)), rows)
    plt.savefig(path)
    with open(path + ".json", "w") as file:
        json.dump(kept, file)
    print("kept", path)
"""


def with_helper(helper: str, after: str) -> tuple[str, str, list[str]]:
    script = "from keeping import keep\n" + training(inside="rows.append(loss.item())", after=after, ready="rows = []")
    files = {"train": script, "keeping": helper}
    sources = [Source.from_bytes(Path(f"{name}.py"), text.encode()) for name, text in files.items()]
    done = {result.path.stem: result for result in migrate(sources, DEFAULTS)}
    told = [note.message for result in done.values() for note in result.notes if note.code in ("AM504", "AM607")]
    return done["train"].after.decode(), done["keeping"].after.decode(), told


@pytest.mark.parametrize("end", ["", "    return\n", "    return None\n"])
def test_guards_the_calls_of_a_function_that_only_writes(end: str) -> None:
    train, keeping, told = with_helper(KEEPING + end, 'keep(rows, "rows.png")')
    assert 'if accelerator.is_main_process:\n        keep(rows, "rows.png")' in train
    assert keeping == KEEPING + end and not told


def test_guards_the_calls_of_a_function_that_puts_pictures_beside_each_other() -> None:
    helper = (
        "import torch\nfrom torchvision.utils import save_image\n\n\ndef keep(rows, path):\n    beside = []\n"
        "    for row in rows:\n        wide = row.repeat(3, 1, 1) if row.size(0) == 1 else row\n"
        "        beside.extend([wide, row.unsqueeze(0).clamp(0, 1)])\n"
        "    save_image(torch.stack(beside, dim=0), path)\n"
    )
    train, keeping, told = with_helper(helper, 'keep(rows, "rows.png")')
    assert 'if accelerator.is_main_process:\n        keep(rows, "rows.png")' in train and keeping == helper and not told


def test_guards_the_calls_of_a_function_that_another_file_has_under_the_same_name() -> None:
    body = training(inside="rows.append(loss.item())", after='keep(rows, "r.png")', ready="rows = []")
    imports, _, steps = body.partition("\n\n")
    helper = KEEPING.replace("plt.savefig(path)", "plt.savefig(path)\n    plt.show()")
    train = f"{imports}\n{helper}\n\ndef main():\n{indent(steps, '    ')}\n\nmain()\n"
    files = {"train": train, "other": f"{KEEPING}\n\nkeep([1], 'o.png')\n"}
    sources = [Source.from_bytes(Path(f"{name}.py"), text.encode()) for name, text in files.items()]
    (done,) = [result for result in migrate(sources, DEFAULTS) if result.path.stem == "train"]
    assert 'if accelerator.is_main_process:\n            keep(rows, "r.png")' in done.after.decode(), done.reason
    assert not [note for note in done.notes if note.code in ("AM504", "AM607")]


def test_guards_the_calls_of_a_function_that_draws_into_parts_of_a_figure() -> None:
    helper = KEEPING.replace("fig, axis = plt.subplots()", "fig, axes = plt.subplots(1, 2)").replace(
        "axis.plot", "axes[0].plot"
    )
    train, _, told = with_helper(helper, 'keep(rows, "rows.png")')
    assert 'if accelerator.is_main_process:\n        keep(rows, "rows.png")' in train and not told
    _, _, told = with_helper(KEEPING.replace("axis.plot(", "rows[0].append("), 'keep(rows, "rows.png")')
    assert told


@pytest.mark.parametrize(
    ("old", "new", "after"),
    [
        ('kept["rows"] = rows', "rows.sort()", 'keep(rows, "r")'),
        ('kept["rows"] = rows', "rows += [0]", 'keep(rows, "r")'),
        ('kept["rows"] = rows', "rows[0] = 0", 'keep(rows, "r")'),
        ('kept["rows"] = rows', "np.random.shuffle(rows)", 'keep(rows, "r")'),
        ('print("kept", path)', "return path", 'keep(rows, "r")'),
        ("kept = {}", "kept = {}", 'name = keep(rows, "r")'),
        ("kept = {}", "kept = {}", 'keep(rows, "r")\nlater(keep)'),
    ],
)
def test_leaves_the_calls_of_a_function_that_does_more(old: str, new: str, after: str) -> None:
    train, keeping, told = with_helper(KEEPING.replace(old, new), after)
    assert "is_main_process" not in train and "is_main_process" not in keeping
    assert any(message.startswith("every process") for message in told)


def test_guards_the_calls_of_a_function_that_two_trainings_share() -> None:
    trainer = """
import torch
from keeping import keep
from torch import nn


class {name}:
    def __init__(self, loader):
        self.loader = loader
        self.model = nn.Linear(4, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def fit(self):
        rows = []
        for x, y in self.loader:
            loss = nn.functional.mse_loss(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            rows.append(loss.item())
        keep(rows, "rows.png")
"""
    main = """
from first import First
from second import Second
from torch.utils.data import DataLoader
from rows import data

First(DataLoader(data, batch_size=4)).fit()
Second(DataLoader(data, batch_size=4)).fit()
"""
    files = {
        "first": trainer.format(name="First"),
        "keeping": KEEPING,
        "main": main,
        "second": trainer.format(name="Second"),
    }
    sources = [Source.from_bytes(Path(f"{name}.py"), text.encode()) for name, text in files.items()]
    done = {result.path.stem: result for result in migrate(sources, DEFAULTS)}
    guarded = '        if self.accelerator.is_main_process:\n            keep(rows, "rows.png")\n'
    assert [name for name, result in done.items() if guarded in result.after.decode()] == ["first", "second"]
    assert not [note for result in done.values() for note in result.notes if note.code == "AM607"]


@pytest.mark.parametrize(
    "search",
    [
        "while os.path.isdir(run):\n    count += 1\n    run = f'runs/{count}'",
        "for count in range(99):\n    run = f'runs/{count}'\n    if not os.path.exists(run):\n        break",
    ],
)
def test_a_folder_that_is_the_first_free_one_is_another_on_each_process(search: str) -> None:
    ready = f"count, run = 0, 'runs/0'\n{search}\nos.makedirs(run)\nweights = os.path.join(run, 'net.pt')"
    source = training(ready=ready, after="torch.save(model.state_dict(), weights)")
    assert "each process names this folder for itself, by `os.path." in noted(source, "AM505")
    again = unchanged(source + "model.load_state_dict(torch.load(weights))\n")
    assert "under a name that each process makes for itself, by what it finds in a folder (`os.path." in again
    asked = training(ready="run = 'runs'\nif not os.path.isdir(run):\n    os.makedirs(run)\nweights = run + '/net.pt'")
    assert "exist_ok=True" in migrated(asked)


def test_a_function_of_a_file_that_is_not_read_may_read_what_was_saved():
    saved = 'if epoch:\n    path = "last.pt"\n    torch.save(model.state_dict(), path)\n    {read}'
    scored = saved.format(read="from scoring import evaluate\n    evaluate(path)")
    becomes(training(after=scored), "accelerator.wait_for_everyone()\nevaluate(path)")
    shown = saved.format(read="from os import fspath\n    fspath(path)")
    assert "wait_for_everyone" not in migrated(training(after=shown))


def test_all_work_out_what_the_calls_of_a_function_that_writes_hand_over() -> None:
    train = with_helper(KEEPING, 'keep(model(x), "r")')[0]
    assert "output = model(x)\n" in train and 'keep(output, "r")' in train


@pytest.mark.parametrize("read", ["model.fc.weight.detach().numpy()", "model.rows().tolist()"])
def test_all_gather_the_weights_that_one_process_writes(read: str) -> None:
    functions = (
        "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.fc = nn.Linear(3, 2)\n"
        "    def forward(self, x):\n        return self.fc(x)\n    def rows(self):\n        return self.fc.weight\n"
    )
    source = training(functions=functions, after=f'np.save("w.npy", {read})')
    source = source.replace("model = nn.Linear(3, 2)", "model = Net()")
    becomes(source, f'output = {read}\nif accelerator.is_main_process:\nnp.save("w.npy", output)')
    taken = source.replace(f'np.save("w.npy", {read})', "rows = model.rows()\n    np.save('w.npy', rows.numpy())")
    becomes(taken, "output = rows.numpy()\nif accelerator.is_main_process:\nnp.save('w.npy', output)")
    handed = source.replace(f'"w.npy", {read}', "model.rows(), 'w.txt'").replace("np.save(", "dump(")
    written = (
        "def dump(rows, path):\n    text = str(rows.tolist())\n    with open(path, 'w') as f:\n        f.write(text)\n"
    )
    handed = handed.replace("class Net", f"{written}class Net")
    assert "no condition may keep a process out" in noted(handed, "AM105")
    inside = handed.replace("    text = str(rows.tolist())\n", "").replace("write(text)", "write(str(rows.tolist()))")
    opened = "with open(path, 'w') as f:\nf.write(output)"
    becomes(inside, f"output = str(rows.tolist())\nif accelerator.is_main_process:\n{opened}")
    longer = inside.replace("        f.write(str", "        f.write('rows')\n        f.write(str")
    assert "which all processes must gather together" in noted(longer, "AM504")
    assert "is_main_process" not in migrated(longer)


def test_what_is_worked_out_above_a_guard_is_changed_there() -> None:
    source = training(after='save_image(model(x.to(device)), "x.png")')
    becomes(source, 'output = model(x)\nif accelerator.is_main_process:\nsave_image(output, "x.png")')
    parallel = training(after='save_image(model.module(x), "x.png")').replace(
        "model = nn.Linear(3, 2)", "model = nn.DataParallel(nn.Linear(3, 2))"
    )
    becomes(parallel, 'output = model(x)\nif accelerator.is_main_process:\nsave_image(output, "x.png")')


def test_a_table_that_is_given_as_a_text_is_no_file():
    stays(training(after="frame.to_csv()"), "frame.to_csv()")
    assert "AM504" not in codes(training(after="frame.to_json(orient='rows')"))
    becomes(training(after="frame.to_csv('t.csv')"), "if accelerator.is_main_process:\nframe.to_csv('t.csv')")


HELD_OUT_BELOW = """
import torch
from torch import nn
from torch.utils.data import DataLoader
from torchvision.utils import save_image


def judge(model, rows, count):
    total = 0.0
    for i, x in enumerate(rows):
        out = model(x)
        total += out.sum().item()
        if i == count:
            save_image(out, "first.png")
    return total


if __name__ == "__main__":
    device = torch.device("cuda")
    loader = DataLoader(data, batch_size=4)
    held_out = [x.to(device) for x in DataLoader(data, batch_size=4)]
    model = nn.Linear(4, 2).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x in loader:
        loss = model(x.to(device)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        judge(model, held_out, 0)
"""


def test_a_function_that_evaluates_and_writes_a_picture_is_handed_the_accelerator():
    text = migrated(HELD_OUT_BELOW)
    assert "def judge(model, rows, count, accelerator):" in text
    assert "        if i == count and accelerator.is_main_process:\n            save_image(" in text


def test_says_which_function_is_not_handed_the_accelerator():
    source = HELD_OUT_BELOW.replace("        judge(model", "        {0: judge}[0](model").replace(
        "judge(model, held", "judge(model, held"
    )
    assert "because judge() is not handed the Accelerator" in noted(source, "AM504")
