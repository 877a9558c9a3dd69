"""AM954: nothing in which all processes must meet depends on the rank."""

from __future__ import annotations

import pytest

from tests.migrate.check.reading import said

TOP = "from accel_runtime import Accelerator\nimport os, torch\naccelerator = Accelerator()\nnet = accelerator.prepare(net)\n"


@pytest.mark.parametrize(
    "guarded",
    [
        "if accelerator.is_main_process:\n    weights = accelerator.get_state_dict(net)\n",
        "if not accelerator.is_main_process:\n    raise SystemExit\nweights = accelerator.get_state_dict(net)\n",
        "first = accelerator.process_index == 0\nif first:\n    accelerator.wait_for_everyone()\n",
        "first = False\nif accelerator.process_index == 0:\n    first = True\nif first:\n    accelerator.reduce(x)\n",
        "if accelerator.is_main_process or accelerator.num_processes == 1:\n    accelerator.gather(x)\n",
        "accelerator.is_main_process and accelerator.gather(x)\n",
        "y = accelerator.gather(x) if accelerator.is_local_main_process else x\n",
        "if int(os.environ['LOCAL_RANK']) == 0:\n    accelerator.backward(net(x))\n",
        "if int(os.environ.get('RANK', 0)) == 0:\n    accelerator.backward(net(x))\n",
        "if torch.distributed.get_rank() == 0:\n    accelerator.backward(net(x))\n",
        "while accelerator.process_index:\n    accelerator.gather(x)\n",
        "if os.path.exists(out) is False:\n    accelerator.wait_for_everyone()\n",
        "there = os.path.isdir(out)\nif not there:\n    accelerator.wait_for_everyone()\n",
    ],
)
def test_a_meeting_that_only_some_processes_come_to(guarded: str) -> None:
    assert said("AM954", "x = 1\n", TOP + guarded)


FIRST = (
    "def build():\n    if not accelerator.is_main_process:\n        accelerator.wait_for_everyone()\n    data = read()\n"
    "    if accelerator.is_main_process:\n        accelerator.wait_for_everyone()\n    return data\nbuild()\n"
)


def test_two_waits_of_which_each_process_comes_to_one() -> None:
    assert not said("AM954", "x = 1\n", TOP + FIRST)
    for broken in (
        FIRST.replace("not accelerator", "accelerator"),
        FIRST.replace("    if accelerator.is_main_process:", "    if accelerator.is_local_main_process:"),
        FIRST.replace("data = read()", "data = accelerator.gather(read())"),
        FIRST.replace("data = read()", "if done():\n        return"),
        FIRST.replace("data = read()", "data = merge()") + "def merge():\n    return accelerator.gather(x)\n",
        FIRST.replace("\nbuild()", "\nif accelerator.is_main_process:\n    build()"),
    ):
        assert said("AM954", "x = 1\n", TOP + broken), broken


@pytest.mark.parametrize(
    "rank", ["int(os.environ['LOCAL_RANK'])", "int(os.environ.get('RANK', 0))", "torch.distributed.get_rank()"]
)
def test_a_forward_is_a_meeting_of_wrappers_alone(rank: str) -> None:
    assert said("AM954", "x = 1\n", TOP.replace("accel_runtime", "accelerate") + f"if {rank} == 0:\n    net(x)\n")
    assert not said("AM954", "x = 1\n", TOP + f"if {rank} == 0:\n    net(x)\n")


@pytest.mark.parametrize(
    "free",
    [
        "weights = accelerator.get_state_dict(net)\nif accelerator.is_main_process:\n    torch.save(weights, 'w.pt')\n",
        "if accelerator.num_processes > 1:\n    accelerator.wait_for_everyone()\n",
        "if accelerator.is_main_process:\n    print('best')\naccelerator.gather(x)\n",
        "for batch in tqdm(batches, disable=not accelerator.is_main_process):\n    net(batch)\n",
        "rank, size = accelerator.process_index, accelerator.num_processes\nif size > 1:\n    accelerator.gather(x)\n",
    ],
)
def test_a_meeting_that_every_process_comes_to(free: str) -> None:
    assert not said("AM954", "x = 1\n", TOP + free)


def test_a_rank_that_comes_through_calls_and_attributes() -> None:
    down = (
        "def evaluate(model):\n    return accelerator.gather(model(1))\n"
        "def train(rank, model):\n    if rank == 0:\n        evaluate(model)\n"
        "def run(args, model):\n    train(args.rank, model)\n"
        "def main(args):\n    args.rank = accelerator.process_index\n    run(args, net)\n"
    )
    messages = said("AM954", "x = 1\n", TOP + down)
    assert any("gather()" in message for message in messages)


def test_a_rank_that_a_function_returns_beside_the_number_of_processes() -> None:
    asked = "def world():\n    return accelerator.process_index, accelerator.num_processes\n"
    used = "index, count = world()\nif {}:\n    accelerator.gather(x)\n"
    assert said("AM954", "x = 1\n", TOP + asked + used.format("index == 0"))
    assert not said("AM954", "x = 1\n", TOP + asked + used.format("count > 1"))


def test_a_method_of_an_object_that_only_one_process_calls() -> None:
    saver = (
        "class Saver:\n    def __call__(self, model):\n        return accelerator.get_state_dict(model)\n"
        "saver = Saver()\nif accelerator.is_main_process:\n    saver(net)\n"
    )
    assert said("AM954", "x = 1\n", TOP + saver)


def test_another_name_of_the_model_whose_weights_one_process_reads() -> None:
    top = TOP.replace("net = acc", "bare = net\nnet = acc") + "net(x)\n"
    assert said(
        "AM954", "x = 1\n", top + "if accelerator.is_main_process:\n    torch.save(bare.state_dict(), 'w.pt')\n"
    )
    part = "head = bare.head\nif accelerator.is_main_process:\n    torch.save(head.state_dict(), 'w.pt')\n"
    assert said("AM954", "x = 1\n", top + part)
    assert not said(
        "AM954", "x = 1\n", top + "if accelerator.is_main_process:\n    torch.save(args.state_dict(), 'w.pt')\n"
    )


def test_weights_that_one_process_reads_before_they_can_be_sharded() -> None:
    save = "if accelerator.is_main_process:\n    torch.save(net.state_dict(), 'first.pt')\n"
    assert not said("AM954", "x = 1\n", TOP.replace("net = acc", save + "net = acc") + "net(x)\n")


def test_a_prepared_loader_that_one_process_runs_through() -> None:
    top = TOP.replace("net = accelerator.prepare(net)", "net, test = accelerator.prepare(net, test)")
    assert said("AM954", "x = 1\n", top + "if accelerator.is_main_process:\n    for x in test:\n        print(x)\n")


def test_the_state_of_an_optimizer_is_gathered_where_it_is_sharded() -> None:
    top = TOP.replace("net = accelerator.prepare(net)", "net, opt, plan = accelerator.prepare(net, opt, plan)")
    guarded = "opt.zero_grad()\nplan.step()\nif accelerator.is_main_process:\n    torch.save({}.state_dict(), 'a.pt')\n"
    assert said("AM954", "x = 1\n", top + guarded.format("opt"))
    assert said("AM954", "x = 1\n", top + "kept = {'a': opt}\n" + guarded.format("kept['a']"))
    assert not said("AM954", "x = 1\n", top + guarded.format("plan"))
    assert not said(
        "AM954", "x = 1\n", top + guarded.replace("if accelerator.is_main_process", "if True").format("opt")
    )


def test_options_kept_by_the_names_of_a_file_do_not_make_all_of_a_checkpoint_depend_on_the_rank() -> None:
    kept = (
        TOP + "every = 5\nnames = [k for k in globals()]\nconfig = {k: globals()[k] for k in names}\n"
        "rank = accelerator.process_index\nnumber = 0\nstored = torch.load('last.pt')\nnumber = stored['number']\n"
        "stored = {'number': number, 'config': config}\nif number % every == 0:\n    accelerator.get_state_dict(net)\n"
    )
    assert not said("AM954", "x = 1\n", kept)
    assert said("AM954", "x = 1\n", kept.replace("number % every", "rank % every"))
