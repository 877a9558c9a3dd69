"""AM962: a file that one process writes is read by all only once it is there."""

from __future__ import annotations

import pytest

from tests.migrate.check.reading import said

TOP = "import torch\nfrom accel_runtime import Accelerator\naccelerator = Accelerator()\naccelerator.save(weights, 'best.pt')\n"


def test_a_file_that_is_read_back_at_once() -> None:
    assert said("AM962", "x = 1\n", TOP + "weights = torch.load('best.pt')\n")
    assert said("AM962", "x = 1\n", TOP + "def back():\n    return torch.load('best.pt', map_location='cpu')\nback()\n")
    assert not said("AM962", "x = 1\n", TOP + "accelerator.wait_for_everyone()\nweights = torch.load('best.pt')\n")
    assert not said("AM962", "x = 1\n", TOP + "weights = torch.load('other.pt')\n")
    first = "import torch\nfrom accel_runtime import Accelerator\naccelerator = Accelerator()\nweights = torch.load('best.pt')\n"
    saved = "for epoch in range(3):\n    {}accelerator.save(weights, 'best.pt')\n"
    assert not said("AM962", "x = 1\n", first + saved.format("accelerator.backward(loss)\n    "))
    (message,) = said("AM962", "x = 1\n", first + saved.format(""))
    assert message.endswith("of which one may go on and change the file before the others have come so far")


@pytest.mark.parametrize(
    ("saved", "read", "told"),
    [
        ("state", "torch.load(path).numpy()", False),
        ("net.state_dict()", "torch.load(path).numpy()", False),
        ("{'net': 1}", "torch.load(path).float().mean()", False),
        ("state", "torch.load(path)", True),
        ("state", "torch.load(path).items()", True),
        ("rows", "torch.load(path).numpy()", True),
        ("other()", "torch.load(path).numpy()", True),
    ],
)
def test_a_tensor_that_is_read_is_no_weights_of_a_model(saved: str, read: str, told: bool) -> None:
    text = (
        "import torch\nfrom pathlib import Path\nfrom accel_runtime import Accelerator\naccelerator = Accelerator()\n"
        "state = accelerator.get_state_dict(net)\nstate['epoch'] = 1\nrows = net(x)\nfolder = Path('weights')\n"
        f"for epoch in range(3):\n    accelerator.save({saved}, str(folder / '{{}}.pth'.format(epoch)))\n"
        f"    for path in list(Path('masks').glob('*')):\n        use({read})\n"
    )
    assert bool(said("AM962", "x = 1\n", text)) is told


def test_a_file_whose_name_gets_an_ending() -> None:
    saved = "import numpy as np\n" + TOP + "if accelerator.is_main_process:\n    np.save('rows', rows)\n"
    assert said("AM962", "x = 1\n", saved + "rows = np.load('rows.npy')\n")
    assert not said("AM962", "x = 1\n", saved + "rows = np.load('rows')\n")


LISTING = "import glob, os\nfrom pathlib import Path\n{}names = {}\n{}weights = torch.load({})\n"


@pytest.mark.parametrize("listed", ["glob.glob('*.pt')", "os.listdir('runs')", "list(Path('runs').glob('*.pt'))"])
def test_a_file_that_is_looked_for_while_it_is_written(listed: str) -> None:
    wait = "accelerator.wait_for_everyone()\n"
    assert said("AM962", "x = 1\n", TOP + LISTING.format("", listed, wait, "sorted(names)[-1]"))
    assert not said("AM962", "x = 1\n", TOP + LISTING.format(wait, listed, "", "sorted(names)[-1]"))
    assert not said("AM962", "x = 1\n", TOP + LISTING.format("", listed, wait, "'other.pt'"))


OWN = (
    "import os, time, torch, uuid\nfrom datetime import datetime\nfrom accel_runtime import Accelerator\n"
    "accelerator = Accelerator()\n"
)
BACK = "accelerator.save(weights, {path})\naccelerator.wait_for_everyone()\nweights = torch.load({path})\n"


@pytest.mark.parametrize(
    ("lines", "path"),
    [
        ("run = time.strftime('%H-%M-%S')", "run + '/best.pt'"),
        ("run = os.path.join('runs', datetime.now().strftime('%H-%M'))", "os.path.join(run, 'best.pt')"),
        ("run = 'runs/%s' % str(datetime.now()).replace(' ', '_')", "f'{run}/best.pt'"),
        ("def stamp():\n    return str(int(time.time()))\nargs.run = 'runs/' + stamp()", "args.run"),
        ("run = 'runs/{}'.format(uuid.uuid4())", "run"),
    ],
)
def test_a_file_under_a_name_that_each_process_makes_for_itself(lines: str, path: str) -> None:
    assert said("AM962", "x = 1\n", f"{OWN}{lines}\n{BACK.format(path=path)}")


@pytest.mark.parametrize(
    ("lines", "path"),
    [
        ("run = 'runs/3'\nstart = time.time()\nprint(time.time() - start)", "run + '/best.pt'"),
        ("log = open(time.strftime('%H.log'), 'w')", "'best.pt'"),
        (
            "import argparse\nfrom nets import KINDS\nparser = argparse.ArgumentParser()\n"
            "parser.add_argument('--run', default='runs', help=', '.join(KINDS.keys()))\nargs = parser.parse_args()",
            "args.run + '/best.pt'",
        ),
    ],
)
def test_a_file_that_has_one_name(lines: str, path: str) -> None:
    assert not said("AM962", "x = 1\n", f"{OWN}{lines}\n{BACK.format(path=path)}")


def test_a_file_that_only_one_process_writes_and_reads() -> None:
    code = "path = time.strftime('%H.pt')\naccelerator.save(x, path)\nif accelerator.is_main_process:\n    torch.load(path)\n"
    assert not said("AM962", "x = 1\n", OWN + code)


def test_a_file_under_a_name_that_is_new_is_not_what_was_read_before() -> None:
    code = (
        "weights = torch.load(os.path.join('runs', args.start))\nif accelerator.is_main_process:\n"
        "    open(os.path.join('runs', {name} + '.txt'), 'w').write('a')\n"
    )
    assert not said("AM962", "x = 1\n", OWN + code.format(name="str(datetime.now())"))
    assert said("AM962", "x = 1\n", OWN + code.format(name="args.name"))


@pytest.mark.parametrize(("ending", "told"), [("png", False), ("pt", True)])
def test_one_name_for_files_of_two_kinds(ending: str, told: bool) -> None:
    code = (
        "def show(path):\n    picture().save(path)\ndef train(args):\n    for epoch in range(3):\n"
        "        path = os.path.join(args.pictures, '{}.%s'.format(epoch))\n        show(path)\n"
        "        path = os.path.join(args.weights, 'epoch-{}.pt'.format(epoch))\n        accelerator.save(weights, path)\n"
    )
    assert bool(said("AM962", "x = 1\n", f"{OWN}{code % ending}train(args)\n")) is told


HEAD = "import os, torch\nfrom accel_runtime import Accelerator\naccelerator = Accelerator()\n"
ELSEWHERE = (
    HEAD
    + "def train(folder):\n    for e in range(3):\n        accelerator.save(w, '%s/best.pt' % folder)\n{end}train(run)\n{then}"
)


def test_a_wait_elsewhere_does_not_help() -> None:
    early = "accelerator.wait_for_everyone()\naccelerator.save(w, 'best.pt')\ntorch.load('best.pt')\n"
    assert said("AM962", "x = 1\n", HEAD + early)
    under = "accelerator.save(w, 'best.pt')\nif late:\n    accelerator.wait_for_everyone()\ntorch.load('best.pt')\n"
    assert said("AM962", "x = 1\n", HEAD + under)
    between = "accelerator.save(w, 'best.pt')\nx = accelerator.gather(x)\ntorch.load('best.pt')\n"
    assert not said("AM962", "x = 1\n", HEAD + between)


def test_a_file_that_another_function_writes_under_another_spelling() -> None:
    load = "torch.load(args.run + '/best.pt')\n"
    assert said("AM962", "x = 1\n", ELSEWHERE.format(end="", then=load))
    assert not said("AM962", "x = 1\n", ELSEWHERE.format(end="    accelerator.wait_for_everyone()\n", then=load))
    assert not said("AM962", "x = 1\n", ELSEWHERE.format(end="", then="accelerator.wait_for_everyone()\n" + load))
    assert not said("AM962", "x = 1\n", ELSEWHERE.format(end="", then="torch.load(args.run + '/first.pt')\n"))
    assert not said("AM962", "x = 1\n", ELSEWHERE.format(end="", then="torch.load('%s.pth' % args.run)\n"))


@pytest.mark.parametrize(
    ("saved", "loaded"),
    [
        ("args.output", "args.input"),
        ("paths['large']", "paths['two']"),
        ("'best.pt'", "'./best.pt'"),
        ("'runs/best.pt'", "sys.argv[1]"),
        ("f'{run}.pt'", "'%s.pt' % args.start"),
    ],
)
def test_weights_whose_names_are_not_known_to_differ(saved: str, loaded: str) -> None:
    save, load = f"{HEAD}accelerator.save(w, {saved})\n", f"w = torch.load({loaded})\n"
    assert said("AM962", "x = 1\n", save + load)
    assert not said("AM962", "x = 1\n", f"{save}accelerator.wait_for_everyone()\n{load}")


@pytest.mark.parametrize(
    ("saved", "loaded"),
    [
        ("'best.pt'", "'last.pt'"),
        ("f'{run}/best.pt'", "f'{args.start}/last.pt'"),
        ("args.run + '.pt'", "args.start + '.pth'"),
        ("os.path.join(args.run, name(3))", "os.path.join(args.start, other(3))"),
    ],
)
def test_weights_whose_names_differ(saved: str, loaded: str) -> None:
    names = "def name(number):\n    return f'{number}.pt'\ndef other(number):\n    return '{}.png'.format(number)\n"
    assert not said("AM962", "x = 1\n", f"{HEAD}{names}accelerator.save(w, {saved})\nw = torch.load({loaded})\n")
    same = f"{HEAD}{names}accelerator.save(w, name(3))\nw = torch.load(name(4))\n"
    assert said("AM962", "x = 1\n", same)


def test_a_file_whose_size_is_asked() -> None:
    lines = "accelerator.save(w, path)\nprint(os.path.getsize(path))\n"
    assert said("AM962", "x = 1\n", HEAD + lines)
    guarded = "accelerator.save(w, path)\nif accelerator.is_main_process:\n    print(os.path.getsize(path))\n"
    assert not said("AM962", "x = 1\n", HEAD + guarded)


def test_a_file_whose_path_is_handed_to_what_writes_it() -> None:
    lines = "def save(filename):\n    accelerator.save(w, filename)\nsave(path)\nshutil.copyfile(path, best)\n"
    assert said("AM962", "x = 1\n", HEAD.replace("import os", "import os, shutil") + lines)
    assert not said(
        "AM962",
        "x = 1\n",
        HEAD.replace("import os", "import os, shutil") + lines.replace("(path, best", "(other, best"),
    )


def test_a_path_that_a_function_out_of_sight_is_handed() -> None:
    top = "from accel_runtime import Accelerator\nfrom helpers import strip\naccelerator = Accelerator()\n"
    saved = top + 'accelerator.save(weights, f"{folder}/last.pt")\n{}'
    assert said("AM962", "x = 1\n", saved.replace("{}", 'strip(f"{folder}/last.pt", 1)\n'))
    waited = saved.replace("{}", 'accelerator.wait_for_everyone()\nstrip(f"{folder}/last.pt", 1)\n')
    assert not said("AM962", "x = 1\n", waited)
    assert not said("AM962", "x = 1\n", saved.replace("{}", 'strip(f"{folder}/other.pt", 1)\n'))
    assert not said("AM962", "x = 1\n", saved.replace("{}", 'print(f"{folder}/last.pt")\n'))


def test_pictures_that_are_read_back_by_names_of_the_same_words() -> None:
    drawn = (
        "import torch\nimport matplotlib.pyplot as plt\nfrom accel_runtime import Accelerator\naccelerator = Accelerator()\n"
        "def show(path):\n    if accelerator.is_main_process:\n        plt.savefig(path)\n"
        "for e in range(3):\n    name = root + 'fixed/' + str(e) + '.png'\n    show(name)\n{}"
        "for e in range(3):\n    file = root + {} + str(e + 1) + '.png'\n    pictures.append(plt.imread(file))\n"
    )
    assert said("AM962", "x = 1\n", drawn.format("", "'fixed/'"))
    assert not said("AM962", "x = 1\n", drawn.format("accelerator.wait_for_everyone()\n", "'fixed/'"))
    assert not said("AM962", "x = 1\n", drawn.format("", "'data/'").replace("str(e + 1) + '.png'", "'.jpg'"))


ALONE = (
    "import onnx, torch\nfrom accel_runtime import Accelerator\naccelerator = Accelerator()\n"
    "def export(net, folder='models'):\n    if accelerator.is_main_process:\n"
    "        torch.onnx.export(net, x, f'{folder}/full.onnx')\n%s%sexport(net)\n%s"
)
WAIT = "    accelerator.wait_for_everyone()\n"


@pytest.mark.parametrize(
    "use",
    [
        "    for name in ['full.onnx']:\n        onnx.load(f'{folder}/{name}')\n",
        "    onnx.checker.check_model(folder + '/full.onnx')\n",
        "    Session(path_or_bytes='models/full.onnx')\n",
        "    with open('models/%s.onnx' % kind) as file:\n        pass\n",
    ],
)
def test_any_use_of_a_path_that_one_process_wrote_to(use: str) -> None:
    assert said("AM962", "x = 1\n", ALONE % ("", use, ""))
    assert not said("AM962", "x = 1\n", ALONE % (WAIT, use, ""))


def test_a_path_that_a_helper_opens() -> None:
    helper = "def infer(path):\n    return Session(path)\ninfer({})\n"
    assert said("AM962", "x = 1\n", ALONE % ("", "", helper.format("'models/full.onnx'")))
    assert not said("AM962", "x = 1\n", ALONE % (WAIT, "", helper.format("'models/full.onnx'")))
    assert not said("AM962", "x = 1\n", ALONE % ("", "", helper.format("'data/other.onnx'")))


def test_a_path_that_nobody_reads() -> None:
    for use in (
        "print(f'{folder}/full.onnx')",
        "open(folder + '/log.txt', 'a')",
        "names.append(folder + '/full.onnx')",
    ):
        assert not said("AM962", "x = 1\n", ALONE % ("", f"    {use}\n", ""))
    guarded = "    if accelerator.is_main_process:\n        onnx.load(folder + '/full.onnx')\n"
    assert not said("AM962", "x = 1\n", ALONE % ("", guarded, ""))


def test_preparing_a_model_is_a_wait() -> None:
    resumed = (
        HEAD + "torch.load('best.pt')\n{}\nfor e in range(3):\n    accelerator.save(weights, 'best.pt')\n    net(x)\n"
    )
    assert not said("AM962", "x = 1\n", resumed.format("net, opt = accelerator.prepare(net, opt)"))
    assert said("AM962", "x = 1\n", resumed.format("loader = accelerator.prepare(loader)"))


def test_an_epoch_of_training_is_a_wait() -> None:
    loop = "for e in range(3):\n    for x in data:\n        accelerator.backward(net(x))\n    {}\n    {}\n"
    save, load = "accelerator.save(weights, 'best.pt')", "torch.load('best.pt')"
    assert not said("AM962", "x = 1\n", HEAD + loop.format(load + "\n    accelerator.wait_for_everyone()", save))
    assert said("AM962", "x = 1\n", HEAD + loop.format(load, save))
    assert said("AM962", "x = 1\n", HEAD + loop.format(save, load))
    inside = (
        f"for e in range(3):\n    {save}\n    for x in data:\n        {load}\n        accelerator.backward(net(x))\n"
    )
    assert said("AM962", "x = 1\n", HEAD + inside)


def test_a_quotient_is_not_a_path_unless_it_is_made_of_one() -> None:
    named = "name = '{}_{}'.format(temperature, k)\nfor e in range(3):\n    accelerator.save(weights, f'results/{name}.pt')\n"
    scaled = "    scores = torch.exp(torch.mm(x, y) / temperature)\n"
    assert not said("AM962", "x = 1\n", HEAD + named + scaled)
    made = "from pathlib import Path\nfolder = Path(args.folder)\naccelerator.save(weights, folder / name)\n"
    assert said("AM962", "x = 1\n", HEAD + made + "torch.load(folder / name)\n")
    assert said("AM962", "x = 1\n", HEAD + made + "again = folder\ntorch.load(again / name)\n")
    handed = "accelerator.save(weights, args.folder / name)\ntorch.load(args.folder / name)\n"
    assert said("AM962", "x = 1\n", HEAD + handed)


def test_names_the_path_that_is_kept_for_whoever_reads_it() -> None:
    (message,) = said("AM962", "x = 1\n", TOP + "options = Namespace(file='best.pt', size=3)\n")
    assert message.startswith("`'best.pt'`, kept by `Namespace(...)`, could be read by all processes")


@pytest.mark.parametrize(
    "read",
    [
        "frames = [np.load(one) for one in shown]\n",
        "for one in sorted(shown):\n    keep(np.load(one))\n",
        "keep(np.load(shown[-1]))\n",
    ],
)
def test_paths_that_are_kept_in_a_list(read: str) -> None:
    top = "import numpy as np\nfrom accel_runtime import Accelerator\naccelerator = Accelerator()\n"
    write = (
        "def draw(image, path):\n    if accelerator.is_main_process:\n        np.save(path, image)\n"
        "shown = []\nfor epoch in range(3):\n    path = 'seen/{}.npy'.format(epoch)\n    draw(x, path)\n    shown.append(path)\n"
    )
    assert said("AM962", "x = 1\n", top + write + read)
    assert not said("AM962", "x = 1\n", top + write + "accelerator.wait_for_everyone()\n" + read)
    assert not said("AM962", "x = 1\n", top + write + read.replace("shown", "['other/a.txt']"))


def test_a_number_in_the_name_of_a_file_is_no_file() -> None:
    saved = HEAD + "for epoch in range(3):\n    accelerator.save(weights, 'net' + str(epoch))\n    {then}\n"
    assert not said("AM962", "x = 1\n", saved.format(then="plot(list(range(0, epoch + 1)))"))
    assert said("AM962", "x = 1\n", saved.format(then="read('net' + str(epoch))"))
    assert not said("AM962", "x = 1\n", HEAD + "accelerator.save(weights, path)\nprint(path.relative_to(root))\n")


def test_a_folder_that_all_make_while_one_takes_it_away() -> None:
    removed = "import os, shutil\nif accelerator.is_main_process:\n    shutil.rmtree({})\n"
    made = "os.makedirs('runs/a', exist_ok=True)\n"
    wait = "accelerator.wait_for_everyone()\n"
    assert said("AM962", "x = 1\n", TOP + removed.format("'runs'") + made)
    assert not said("AM962", "x = 1\n", TOP + removed.format("'runs'") + wait + made)
    assert not said("AM962", "x = 1\n", TOP + removed.format("'other'") + made)
    assert not said("AM962", "x = 1\n", TOP + made + removed.format("'runs'"))
    guarded = f"if accelerator.is_main_process:\n    {made}"
    assert not said("AM962", "x = 1\n", TOP + removed.format("'runs'") + guarded)


@pytest.mark.parametrize(
    "read", ["np.arange(1, epoch + 1)", "plt.xlim(0, 1 + epoch + start)", "torch.arange(len(x) + epoch)"]
)
def test_a_sum_of_numbers_is_no_path(read: str) -> None:
    kept = f"import matplotlib.pyplot as plt\nimport numpy as np\n{TOP}"
    kept += f"for epoch in range(3):\n    {read}\n    accelerator.save(weights, f'{{folder}}/{{epoch}}.pt')\n"
    assert not said("AM962", "x = 1\n", kept)
    assert said("AM962", "x = 1\n", kept.replace(read, "np.load(folder + name)"))


@pytest.mark.parametrize(
    ("look", "wrong"),
    [
        ("if not os.path.exists(folder):\n    os.makedirs(folder)\n", False),
        (
            "if not os.path.exists(folder):\n    try:\n        os.mkdir(folder)\n    except OSError:\n        exit('no')\n",
            False,
        ),
        (
            "if not os.path.exists(folder):\n    try:\n        rows = load(folder)\n    except OSError:\n        exit('no')\n",
            True,
        ),
        ("world = gym.make(name)\n", False),
        ("zone = pytz.timezone(name)\n", False),
        ("world = games.make(name)\n", True),
    ],
)
def test_a_folder_that_is_looked_for_to_be_made_and_a_name_that_is_no_path(look: str, wrong: bool) -> None:
    top = "import os, gym, games, pytz\nfrom accel_runtime import Accelerator\naccelerator = Accelerator()\n"
    top += "name = f'{options.game}-v1'\nfolder = os.path.join('runs', name)\n"
    top += "if accelerator.is_main_process:\n    shutil.copy('all.yaml', folder)\n    keep(name)\n"
    assert bool(said("AM962", "x = 1\n", top + look)) is wrong


@pytest.mark.parametrize(
    ("call", "told"),
    [
        ("np.random.seed(run)", False),
        ("torch.cuda.manual_seed_all(run)", False),
        ("wandb.init(name=run)", False),
        ("wandb.save(run)", True),
        ("library.show(run)", True),
    ],
)
def test_a_seed_and_the_name_of_a_run_are_no_paths(call: str, told: bool) -> None:
    text = (
        "import library, sys, torch, wandb\nimport numpy as np\nfrom accel_runtime import Accelerator\n"
        "accelerator = Accelerator()\nfor run in sys.argv:\n"
        f"    {call}\n    accelerator.save(weights, run)\n"
    )
    assert bool(said("AM962", "x = 1\n", text)) is told


def test_a_name_that_all_take_from_one_process_is_theirs() -> None:
    text = (
        "import time, torch\nfrom accel_runtime import Accelerator, broadcast_object_list\naccelerator = Accelerator()\n"
        "run = f'{time.time()}.pt'\n{agreed}accelerator.save(weights, run)\naccelerator.wait_for_everyone()\n"
        "weights = torch.load(run)\n"
    )
    assert said("AM962", "x = 1\n", text.replace("{agreed}", ""))
    assert not said("AM962", "x = 1\n", text.replace("{agreed}", "run = broadcast_object_list([run])[0]\n"))


def test_a_text_that_is_replaced_in_a_path_is_no_file_that_is_renamed() -> None:
    saved = TOP.replace("'best.pt'", "path").replace("accelerator.save", "path = 'best.pt'\naccelerator.save")
    read = "accelerator.wait_for_everyone()\nx = torch.load(path.replace('best', 'last'))\n"
    assert not said("AM962", "x = 1\n", saved + "accelerator.save(weights, path.replace('best', 'last'))\n" + read)
    assert said("AM962", "x = 1\n", saved + "path.replace('last.pt')\n")


def test_what_is_written_to_a_file_is_no_part_of_its_name() -> None:
    text = (
        "from pathlib import Path\nfrom sklearn.metrics import f1_score\nfrom accel_runtime import Accelerator\n"
        "accelerator = Accelerator()\n"
        "def keep(path, text):\n    if accelerator.is_main_process:\n        path.write_text(text)\n"
        "def kept(path):\n    return path.read_text()\n"
        "keep(Path('out') / 'score.txt', str(f1_score(labels, guesses)))\n{}kept(Path('out') / 'score.txt')\n"
    )
    assert not said("AM962", "x = 1\n", text.format("accelerator.wait_for_everyone()\n"))
    (message,) = said("AM962", "x = 1\n", text.format(""))
    assert "while one may still write the file" in message
