"""AM961: every process takes the same number of steps."""

from __future__ import annotations

from tests.migrate.check.reading import said

TOP = (
    "import torch\nfrom accel_runtime import Accelerator\naccelerator = Accelerator()\nplan = LambdaLR(opt)\n"
    "net, opt, plan, data = accelerator.prepare(net, opt, plan, data)\n"
)


def test_a_backward_pass_for_each_part_of_a_batch() -> None:
    loop = (
        "for i, batch in enumerate(data):\n    parts = batch.split(2)\n"
        "    for part in {}:\n        accelerator.backward(net(part))\n"
    )
    assert said("AM961", "x = 1\n", TOP + loop.format("parts"))
    assert said("AM961", "x = 1\n", TOP + loop.format("range(batch.size(1))"))
    assert not said("AM961", "x = 1\n", TOP + loop.format("range(4)"))
    assert not said("AM961", "x = 1\n", TOP + loop.format("range(i)"))


def test_a_prepared_schedule_in_a_loop_that_ends_at_a_count() -> None:
    loop = "for i, x in enumerate(data):\n    accelerator.backward(net(x))\n    opt.step()\n    plan.step()\n"
    assert said("AM961", "x = 1\n", TOP + loop + "    if i == 100:\n        break\n")
    assert not said("AM961", "x = 1\n", TOP + loop)
    plain = TOP.replace("net, opt, plan, data", "net, opt, data").replace("(net, opt, plan, data)", "(net, opt, data)")
    assert not said("AM961", "x = 1\n", plain + loop + "    if i == 100:\n        break\n")
    made = plain.replace("plan = ", "opt = optimizer_of(net, 0.1)\nplan = ")
    assert not said("AM961", "x = 1\n", made + loop + "    if i == 100:\n        break\n")


def test_a_schedule_that_asks_for_the_length_of_a_prepared_loader_when_it_is_called() -> None:
    top = TOP.replace("import torch\n", "import torch\nfrom torch.optim.lr_scheduler import LambdaLR\n")
    made = top.replace("LambdaLR(opt)", "LambdaLR(opt, lr_lambda=lambda i: 1 - i / {})")
    assert said("AM961", "x = 1\n", made.format("len(data)"))
    assert said("AM961", "x = 1\n", made.replace("lr_lambda=", "").format("(9 * len(data))"))
    assert not said("AM961", "x = 1\n", made.format("total"))
    assert not said("AM961", "x = 1\n", made.format("len(words)"))


GAME = (
    "import torch\nfrom accel_runtime import Accelerator\naccelerator = Accelerator()\nnet, opt = accelerator.prepare(net, opt)\n"
    "def train(memory):\n    accelerator.backward(net(memory.sample()))\n"
)


PLAYED = "for game in range(9):\n    done = False\n    while not done:\n        s, r, done, _ = env.step(a)\n"
BROKEN = "for game in range(9):\n    for t in range(9):\n        s, r, end, cut, _ = env.step(a)\n        done = end or cut\n"


def test_a_backward_pass_in_an_episode_of_a_process_s_own() -> None:
    assert said("AM961", "x = 1\n", GAME + PLAYED + "        train(memory)\n")
    trained = GAME + BROKEN + "        train(memory)\n        if done:\n            "
    assert said("AM961", "x = 1\n", trained + "break\n")
    assert not said("AM961", "x = 1\n", trained + "s = env.reset()\n")
    assert not said("AM961", "x = 1\n", GAME + BROKEN + "        if done:\n            break\n    train(memory)\n")


def test_a_backward_pass_once_episodes_have_filled_a_memory() -> None:
    filled = PLAYED + "        memory.put(s)\n    if {}:\n        train(memory)\n"
    assert said("AM961", "x = 1\n", GAME + filled.format("memory.size() > 2000"))
    assert not said("AM961", "x = 1\n", GAME + filled.format("game > 20"))
    seeds = "torch.manual_seed(1)\nenv.reset(seed=1)\n"
    assert not said("AM961", "x = 1\n", GAME + seeds + filled.format("memory.size() > 2000"))


def test_a_training_that_ends_once_a_process_plays_well() -> None:
    solved = PLAYED + "        total += r\n    train(memory)\n    scores.append(total)\n    if {}:\n        break\n"
    assert said("AM961", "x = 1\n", GAME + solved.format("sum(scores[-5:]) > 195"))
    assert not said("AM961", "x = 1\n", GAME + solved.format("len(scores) > 195"))
    test = "def test():\n    while True:\n        s, r, done, _ = env.step(a)\n    return r\nstop = False\n"
    asked = "while game < 9 and not stop:\n    game += 1\n    train(memory)\n    if {}:\n        stop = True\n"
    assert said("AM961", "x = 1\n", GAME + test + asked.format("mean([test() for _ in range(3)]) > 195"))
    assert not said("AM961", "x = 1\n", GAME + test + asked.format("game > 5"))


def test_a_seed_that_is_given_on_request_and_actions_that_nobody_seeds_are_no_seed() -> None:
    trained = GAME + PLAYED + "        train(memory)\n"
    seeds = "torch.manual_seed(1)\nenv.seed(1)\n"
    assert not said("AM961", "x = 1\n", seeds + trained)
    assert said("AM961", "x = 1\n", "if args.seed:\n    torch.manual_seed(1)\n    env.seed(1)\n" + trained)
    assert said("AM961", "x = 1\n", seeds + trained + "        a = env.action_space.sample()\n")
    assert not said(
        "AM961", "x = 1\n", seeds + "env.action_space.seed(1)\n" + trained + "        a = env.action_space.sample()\n"
    )


def test_a_step_that_is_left_out_after_an_error_of_one_process() -> None:
    loop = "for batch in data:\n    try:\n        out = net(batch)\n    except {}:\n        {}\n    accelerator.backward(out)\n"
    assert said("AM961", "x = 1\n", TOP + loop.format("RuntimeError", "continue"))
    assert said("AM961", "x = 1\n", TOP + loop.format("Exception", "break"))
    assert not said("AM961", "x = 1\n", TOP + loop.format("RuntimeError", "raise"))
    assert not said("AM961", "x = 1\n", TOP + loop.format("KeyboardInterrupt", "break"))
    called = (
        "def step(batch):\n    try:\n        out = net(batch)\n    except RuntimeError:\n        {}\n"
        "    accelerator.backward(out)\nfor batch in data:\n    step(batch)\n"
    )
    assert said("AM961", "x = 1\n", TOP + called.format("return"))
    assert not said("AM961", "x = 1\n", TOP + called.format("raise"))


def test_a_second_schedule_made_for_the_length_of_a_loader_that_is_sharded_by_then() -> None:
    top = TOP.replace("import torch\n", "import torch\nfrom torch.optim.lr_scheduler import OneCycleLR\n")
    second = "again = OneCycleLR(opt2, 0.1, {})\nnet2, opt2, again = accelerator.prepare(net2, opt2, again)\n"
    assert said("AM961", "x = 1\n", top + second.format("2 * len(data)"))
    assert said("AM961", "x = 1\n", top + "total = 2 * len(data)\n" + second.format("total"))
    counted = top.replace("net, opt, plan, data =", "total = 2 * len(data)\nnet, opt, plan, data =")
    assert not said("AM961", "x = 1\n", counted + second.format("total"))
    assert not said("AM961", "x = 1\n", top + second.format("2 * len(data.base_dataloader)"))
    assert not said("AM961", "x = 1\n", top + second.format("2 * len(words)"))
    assert not said("AM961", "x = 1\n", top + "data = DataLoader(words)\n" + second.format("2 * len(data)"))
    assert not said(
        "AM961", "x = 1\n", top + second.format("2 * len(data)").replace(", again)", ")").replace(", again =", " =")
    )
    first = top.replace("plan = LambdaLR(opt)", "plan = OneCycleLR(opt, 0.1, len(data))")
    assert not said("AM961", "x = 1\n", first)


RESUMED = (
    "import time\nfolder = args.resume\nif not folder:\n    folder = time.strftime('%H', time.localtime(time.time()))\n"
    "start = {start}\nfor epoch in range(start, 3):\n    for x in data:\n        accelerator.backward(net(x))\n"
)


def test_a_count_from_a_file_is_the_same_on_all_whatever_its_folder_is_called() -> None:
    assert not said("AM961", "x = 1\n", TOP + RESUMED.format(start="torch.load(folder + '/last.pt')['epoch'] + 1"))
    assert said("AM961", "x = 1\n", TOP + RESUMED.format(start="int(folder)"))


def test_a_loop_that_goes_by_a_length_from_before_prepare_and_asks_for_batches() -> None:
    top = TOP.replace("net, opt, plan, data = ", "n = {}\nnet, opt, plan, data = ")
    script = top + "{}batches = iter({})\nfor i in range(n):\n    net(next(batches{}))\n"
    assert said("AM961", "x = 1\n", script.format("min(len(data), len(more))", "", "data", ""))
    assert not said("AM961", "x = 1\n", script.format("100", "", "data", ""))
    assert not said("AM961", "x = 1\n", script.format("len(data)", "n = len(data)\n", "data", ", None"))
    assert not said("AM961", "x = 1\n", script.format("len(data)", "", "cycle(data)", ""))
    assert not said("AM961", "x = 1\n", script.format("len(more)", "", "data", ""))


def test_a_trainer_that_counts_the_batches_when_it_is_built() -> None:
    trainer = """
import torch
from accel_runtime import Accelerator
class Trainer:
    def __init__(self, net, data):
        self.net, self.data = net, data
        self.many = len(data)
    def train(self):
        self.opt = torch.optim.SGD(self.net.parameters(), 0.1)
        self.accelerator = Accelerator()
        self.net, self.opt, self.data = self.accelerator.prepare(self.net, self.opt, self.data)
        {}
        rows = iter(self.data)
        for i in range(self.many):
            self.net(next(rows))
Trainer(build(), torch.utils.data.DataLoader(1)).train()
"""
    assert said("AM961", "x = 1\n", trainer.format("pass"))
