"""AM952: one Accelerator for each training, where a run makes it once."""

from __future__ import annotations

from tests.migrate.check.reading import said

TOP = "from accel_runtime import Accelerator\n"
TRAIN = "    net, opt = accelerator.prepare(net, opt)\n    accelerator.backward(net(1))\n"


def test_an_accelerator_of_each_round_for_a_model_from_outside() -> None:
    assert said("AM952", "x = 1\n", TOP + "for epoch in range(2):\n    accelerator = Accelerator()\n" + TRAIN)
    built = "for fold in range(2):\n    accelerator = Accelerator()\n    net = Net()\n    opt = SGD(net)\n" + TRAIN
    assert not said("AM952", "x = 1\n", TOP + built)


def test_an_accelerator_of_each_call_for_a_model_that_the_caller_has() -> None:
    epoch = "def epoch(net, opt):\n    accelerator = Accelerator()\n" + TRAIN
    assert said("AM952", "x = 1\n", TOP + epoch + "for e in range(2):\n    epoch(net, opt)\n")
    assert said("AM952", "x = 1\n", TOP + epoch + "def fit():\n    epoch(net, opt)\nwhile True:\n    fit()\n")
    assert not said("AM952", "x = 1\n", TOP + epoch + "epoch(net, opt)\n")


def test_a_second_accelerator_after_the_first() -> None:
    made = "accelerator = Accelerator()\n"
    assert said(
        "AM952", "x = 1\n", TOP + made + "net = accelerator.prepare(net)\n" + made + "accelerator.backward(net(1))\n"
    )
    either = "if half:\n    accelerator = Accelerator(mixed_precision='fp16')\nelse:\n    accelerator = Accelerator()\n"
    assert not said("AM952", "x = 1\n", TOP + either + "net = accelerator.prepare(net)\naccelerator.backward(net(1))\n")


def test_a_module_level_accelerator_that_a_started_process_makes_again() -> None:
    text = "{}accelerator = Accelerator()\nnet = accelerator.prepare(net)\naccelerator.backward(net(1))\n"
    workers = "from torch.utils.data import DataLoader\ndata = DataLoader(s, multiprocessing_context='spawn')\n"
    assert said("AM952", "x = 1\n", TOP + text.format(workers))
    assert said(
        "AM952", "x = 1\n", TOP + text.format("import torch\ntorch.multiprocessing.set_start_method('spawn')\n")
    )
    assert not said("AM952", "x = 1\n", TOP + text.format(workers.replace("spawn", "fork")))
    main = "if __name__ == '__main__':\n" + "".join(f"    {line}\n" for line in text.format(workers).splitlines())
    assert not said("AM952", "x = 1\n", TOP + main)


def test_an_accelerator_that_importing_the_file_makes() -> None:
    train = (
        TOP
        + "accelerator = Accelerator()\ndef fit(net):\n    net = accelerator.prepare(net)\n    accelerator.backward(net(1))\n"
    )
    other = "from train import fit\nfit(1)\n"
    assert said("AM952", {"train.py": "x = 1\n", "run.py": other}, {"train.py": train, "run.py": other})


def test_a_backward_pass_that_no_accelerator_reaches() -> None:
    step = "def step(accelerator, loss):\n    accelerator.backward(loss)\n"
    made = "first = Accelerator()\naccelerator = first\nnet = accelerator.prepare(net)\n"
    assert said("AM952", "x = 1\n", TOP + step + made)
    assert not said("AM952", "x = 1\n", TOP + step + made + "step(accelerator, net(1))\n")


def test_a_method_that_asks_for_an_attribute_that_is_not_set_yet() -> None:
    trainer = (
        "class Trainer:\n    def __init__(self):\n        self.load()\n        self.accelerator = Accelerator()\n"
        "        self.net = self.accelerator.prepare(net)\n"
        "    def load(self):\n        self.accelerator.print('loaded')\n"
    )
    assert said("AM952", "x = 1\n", TOP + trainer)
    later = trainer.replace("        self.load()\n", "").replace(
        "prepare(net)\n", "prepare(net)\n        self.load()\n"
    )
    assert not said("AM952", "x = 1\n", TOP + later)
    handed = trainer.replace("self.load()", "self.net = onto(net, self.accelerator)")
    assert said("AM952", "x = 1\n", TOP + handed)


NAMED = "import os\nimport torch\nos.environ['CUDA_VISIBLE_DEVICES'] = gpu\n"
MADE = "accelerator = Accelerator()\n"


def test_gpus_that_are_named_after_the_accelerator_took_one() -> None:
    assert said("AM952", NAMED, TOP + MADE + NAMED)
    assert not said("AM952", NAMED, TOP + NAMED + MADE)
    helper = "def choose(gpu):\n    os.environ.setdefault('CUDA_VISIBLE_DEVICES', gpu)\n"
    assert said("AM952", NAMED, TOP + "import os\n" + helper + MADE + "choose(1)\n")
    assert not said("AM952", NAMED, TOP + "import os\n" + helper + MADE)


def test_gpus_that_the_original_names_too_late_as_well() -> None:
    asked = "import torch\nfast = torch.cuda.is_available()\n"
    assert not said("AM952", asked + NAMED, TOP + asked + MADE + NAMED)


def test_an_accelerator_of_each_trial_of_a_search() -> None:
    trial = "def objective(trial, net):\n    net = Net()\n    opt = SGD(net)\n    accelerator = Accelerator()\n" + TRAIN
    outside = "import optuna, functools\nstudy = optuna.create_study()\n"
    for handed in ("objective", "lambda trial: objective(trial, net)", "functools.partial(objective, net=net)"):
        (message,) = said("AM952", "x = 1\n", TOP + outside + trial + f"study.optimize({handed}, n_trials=3)\n")
        assert "study.optimize(" in message
    assert said(
        "AM952", "x = 1\n", TOP + outside + trial + "def run():\n    return objective(1, net)\nlist(map(run, x))\n"
    )
    kept = (
        "class Objective:\n    def __call__(self, trial):\n        objective(trial, net)\nstudy.optimize(Objective())\n"
    )
    assert said("AM952", "x = 1\n", TOP + outside + trial + kept)
    assert not said("AM952", "x = 1\n", TOP + outside + trial + "objective(1, net)\n")


def test_an_accelerator_of_a_function_that_a_command_line_runs() -> None:
    main = "import fire\ndef main():\n    accelerator = Accelerator()\n" + TRAIN
    assert not said("AM952", "x = 1\n", TOP + main + "fire.Fire(main)\n")
    assert not said("AM952", "x = 1\n", TOP + main + "from absl import app\napp.run(main)\n")
    assert said("AM952", "x = 1\n", TOP + main + "from ray import tune\ntune.run(main)\n")
    assert not said("AM952", "x = 1\n", TOP + main + "tasks = {}\ntasks.update(main=main)\nprint(main)\nmain()\n")
    assert not said("AM952", "x = 1\n", TOP + main + "def once(run):\n    run()\nonce(main)\n")


def test_an_accelerator_of_each_process_that_a_helper_starts() -> None:
    train = (
        TOP + "from launch import launch\ndef main():\n    accelerator = Accelerator()\n" + TRAIN + "launch(main, 2)\n"
    )
    helper = "import torch\ndef launch(run, n):\n    torch.multiprocessing.spawn({}, args=(run,), nprocs=n)\n"
    one = {"train.py": "x = 1\n", "launch.py": helper.format("worker")}
    assert said("AM952", one, one | {"train.py": train})
    assert not said("AM952", one, one | {"train.py": train.replace("launch(main, 2)", "launch(print, 2)\nmain()")})
