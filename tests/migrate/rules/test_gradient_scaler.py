"""AM304 and AM305: the script's own GradScaler, and its state."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
from accel_migrate.pipeline import migrate
from accel_migrate.plan import Status
from accel_migrate.settings import Settings
from accel_migrate.source import Source

from tests.migrate.rules.verbs import migrated, noted, notes, unchanged

SCRIPT = """
    import torch
    from torch import nn

    loader = torch.utils.data.DataLoader(data(), batch_size=4)
    model = nn.Linear(2, 1).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.cuda.amp.GradScaler()
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x.cuda()), y.cuda())
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        {body}
    """
STEP = "scaler.step(optimizer)\n        scaler.update()"


def test_scaler_goes_and_the_accelerator_scales():
    text = migrated(SCRIPT.format(body=STEP))
    assert "scaler" not in text
    assert 'mixed_precision="fp16" if torch.cuda.is_available() else "no"' in text
    assert "    accelerator.backward(loss)\n    optimizer.step()\n" in text


def test_unscaling_before_clipping_goes():
    text = migrated(
        SCRIPT.format(
            body="scaler.unscale_(optimizer)\n        nn.utils.clip_grad_norm_(model.parameters(), 1)\n        " + STEP
        )
    )
    assert "unscale" not in text
    assert "accelerator.clip_grad_norm_(model.parameters(), 1)" in text


def test_unscaling_for_something_else_is_the_accelerators():
    text = migrated(SCRIPT.format(body="scaler.unscale_(optimizer)\n        look(model)\n        " + STEP))
    assert "accelerator.unscale_gradients(optimizer)\n    look(model)" in text


def test_state_leaves_a_dictionary():
    text = migrated(
        SCRIPT.format(body=STEP)
        + """
    torch.save({
        "model": model.state_dict(),
        "scaler": scaler.state_dict(),
        "epoch": 3,
    }, "last.pt")
    """
    )
    assert '    "model": accelerator.get_state_dict(model),\n    "epoch": 3,\n' in text


@pytest.mark.parametrize(
    "body",
    [
        "scaler.step(optimizer)\n        scaler.update(2.0)",
        "scaler.step(optimizer)\n        if scaler.get_scale() > 1: scaler.update()",
        "scaler.step(optimizer, closure)\n        scaler.update()",
        "taken = scaler.step(optimizer)\n        scaler.update()",
        "step(optimizer, scaler)",
    ],
)
def test_use_without_a_counterpart_leaves_the_loop(body):
    assert unchanged(SCRIPT.format(body=body))


def test_branches_that_differ_leave_the_loop():
    reason = unchanged(
        """
        import torch
        from torch import nn

        loader = torch.utils.data.DataLoader(data(), batch_size=4)
        model = nn.Linear(2, 1).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.cuda.amp.GradScaler() if FAST else None
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x.cuda()), y.cuda())
            optimizer.zero_grad()
            if scaler is not None:
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
            else:
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
        """
    )
    assert "differ in more than the scaler" in reason


def test_a_scaler_of_unknown_make_leaves_the_loop():
    assert "scales the loss" in unchanged(
        SCRIPT.format(body=STEP).replace("torch.cuda.amp.GradScaler()", "make_scaler()")
    )


DATA = """
    from sklearn.preprocessing import StandardScaler
    import joblib
    scaler = StandardScaler()
    rows = scaler.fit_transform(rows())
    joblib.dump(scaler, "scaler.pkl")
"""


def test_another_object_of_the_same_name_stays():
    text = migrated(DATA + SCRIPT.format(body=STEP))
    assert "scaler = StandardScaler()\nrows = scaler.fit_transform(rows())\njoblib.dump(scaler, " in text
    assert "GradScaler" not in text
    after = SCRIPT.format(body=STEP) + DATA + "    scaler.inverse_transform(rows)\n"
    assert "scaler.scale" not in migrated(after)
    assert migrated(after).count("scaler") == migrated(SCRIPT.format(body=STEP) + DATA).count("scaler") + 1


@pytest.mark.parametrize(
    "script",
    [
        DATA + SCRIPT.format(body=STEP).replace("scaler = torch", "if half:\n        scaler = torch"),  # may be either
        DATA + SCRIPT.format(body=STEP).replace("    scaler = torch.cuda.amp.GradScaler()\n", ""),
        DATA.replace("fit_transform(rows())", "scale(rows())") + SCRIPT.format(body=STEP),  # a scaler for all we know
        "    import library\n    scaler = library.scaler()\n    kept = keep(scaler)\n" + SCRIPT.format(body=STEP),
    ],
)
def test_what_may_not_be_the_scaler_leaves_the_loop(script):
    unchanged(script)


def test_says_that_the_accelerator_scales_on_the_cpu_too():
    forward = "        loss = nn.functional.mse_loss(model(x.cuda()), y.cuda())\n"
    region = "        with torch.autocast({device}, dtype=torch.float16):\n    " + forward
    anywhere = SCRIPT.replace(forward, region.replace("{device}", "x.device.type")).format(body=STEP)
    assert "scales there as well" in noted(anywhere, "AM304")
    on_cuda = SCRIPT.replace(forward, region.replace("{device}", "'cuda'")).format(body=STEP)
    with pytest.raises(AssertionError, match="no AM304"):
        noted(on_cuda, "AM304")


def test_an_import_from_which_two_changes_take_a_name_each():
    text = migrated(
        """
        import torch
        from torch import nn
        from torch.amp import autocast, GradScaler

        def step(net: nn.Module, x, y, opt, scaling: GradScaler):
            with autocast("cuda", dtype=torch.float16):
                loss = nn.functional.mse_loss(net(x), y)
            opt.zero_grad()
            scaling.scale(loss).backward()
            scaling.step(opt)
            scaling.update()

        net = nn.Linear(2, 1).cuda()
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        scaling = GradScaler("cuda")
        for x, y in torch.utils.data.DataLoader(data(), batch_size=4):
            step(net, x.cuda(), y.cuda(), opt, scaling)
        """
    )
    assert "torch.amp" not in text and "def step(net: nn.Module, x, y, opt):" in text


BRANCHES = """
    import argparse
    import torch
    from torch import nn

    parser = argparse.ArgumentParser()
    parser.add_argument("--fast", action="store_true")
    fast = parser.parse_args().fast
    loader = torch.utils.data.DataLoader(data(), batch_size=4)
    model = nn.Linear(2, 1).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = {scaler}
    for x, y in loader:
        x, y = x.cuda(), y.cuda()
        optimizer.zero_grad()
        if {test}:
            with torch.autocast("cuda"):
                loss = nn.functional.mse_loss(model(x), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        else:
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
    """
AMP = 'torch.amp.GradScaler("cuda"{})'


@pytest.mark.parametrize(
    ("scaler", "test"),
    [
        (AMP.format(", enabled=fast"), "fast"),
        (AMP.format(""), "fast"),
    ],
)
def test_a_branch_in_full_precision_is_not_scaled(scaler: str, test: str) -> None:
    text = migrated(BRANCHES.format(scaler=scaler, test=test))
    assert 'mixed_precision="fp16" if fast and torch.cuda.is_available() else "no"' in text


@pytest.mark.parametrize(("comment", "stays"), [("# The scaler, for speed", False), ("# By hand from here", True)])
def test_a_comment_above_a_choice_of_scalers_goes_with_it(comment: str, stays: bool) -> None:
    choice = f"{comment}\n    if fast:\n        scaler = {AMP.format('')}\n    else:\n        scaler = None"
    text = migrated(BRANCHES.format(scaler="", test="fast").replace("scaler = \n", f"{choice}\n"))
    assert (comment in text, "scaler = " in text) == (stays, False)


def test_passes_of_which_one_is_scaled_under_no_condition_leave_the_loop():
    one = "        scaler.scale(loss).backward()\n"
    both = SCRIPT.format(body=STEP).replace(one, "        loss.backward(retain_graph=True)\n" + one)
    assert "is not scaled and another one is" in unchanged(both)


def test_autocast_that_is_on_where_the_scaler_is_off_leaves_the_loop():
    forward = "        loss = nn.functional.mse_loss(model(x.cuda()), y.cuda())\n"
    always = SCRIPT.format(body=STEP).replace(forward, '        with torch.autocast("cuda"):\n    ' + forward)
    sometimes = always.replace("GradScaler()", "GradScaler(enabled=torch.fast)")
    assert "scales only if `torch.fast`" in unchanged(sometimes)
    together = sometimes.replace('autocast("cuda")', 'autocast("cuda", enabled=torch.fast)')
    assert 'mixed_precision="fp16" if torch.fast and torch.cuda.is_available() else "no"' in migrated(together)


def test_a_scaler_that_is_on_for_half_alone():
    forward = "        loss = nn.functional.mse_loss(model(x.cuda()), y.cuda())\n"
    region = '        with torch.autocast("cuda", dtype=kind):\n    ' + forward
    text = SCRIPT.format(body=STEP).replace(forward, region)
    text = text.replace("    scaler =", "    kind = torch.float16 if torch.old else torch.bfloat16\n    scaler =")
    for enabled in ("kind == torch.float16", "torch.old"):
        made = migrated(text.replace("GradScaler()", f"GradScaler(enabled={enabled})"))
        assert '("fp16" if torch.old else "bf16") if torch.cuda.is_available() else "no"' in made


def test_a_schedule_goes_on_beside_a_step_that_the_scaler_skips():
    scheduled = SCRIPT.format(body=STEP + "\n        schedule.step()").replace(
        "    scaler =", "    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3)\n    scaler ="
    )
    assert "schedule_skipped_steps=True" in migrated(scheduled)
    assert "schedule_skipped_steps" not in migrated(SCRIPT.format(body=STEP))
    peer = Settings(target="accelerate")
    assert "schedule_skipped_steps" not in migrated(scheduled, peer)
    assert "counts every step" in noted(scheduled, "AM304", peer)


def test_another_script_has_a_scaler_of_its_own():
    text = dedent(SCRIPT.format(body=STEP)).encode()
    results = migrate([Source.from_bytes(Path(name), text) for name in ("first.py", "second.py")])
    assert [result.status for result in results] == [Status.MIGRATED, Status.MIGRATED], [r.reason for r in results]


def test_leaves_a_clipping_of_scaled_gradients():
    script = """
    import torch
    from torch import nn
    from torch.utils.data import DataLoader

    loader = DataLoader(data, batch_size=4)
    model = nn.Linear(3, 1).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler({device})
    for x, y in loader:
        with torch.autocast("cuda"):
            loss = nn.functional.mse_loss(model(x.cuda()), y.cuda())
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        {unscaled}
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    """
    assert "still scaled" in unchanged(script.format(device='"cuda"', unscaled="pass"))
    right = script.format(device='"cuda"', unscaled="scaler.unscale_(optimizer)")
    assert "accelerator.clip_grad_norm_(" in migrated(right)
    assert "on the CPU" in unchanged(right.replace('"cuda")\n    for', '"cpu")\n    for'))


TWO = """
import torch
from torch import nn
from torch.utils.data import DataLoader

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def train(judge, maker, loader, second, first, {parameters}):
    for x, _ in loader:
        x = x.to(device)
        with torch.cuda.amp.autocast():
            made = maker(x)
            loss = judge(made.detach()).mean()
        second.zero_grad()
        s_scaler.scale(loss).backward()
        s_scaler.step(second)
        s_scaler.update()
        with torch.cuda.amp.autocast():
            loss = -judge(made).mean()
        first.zero_grad()
        f_scaler.scale(loss).backward()
        f_scaler.step(first)
        f_scaler.update()


def main():
    loader = DataLoader(rows(), batch_size=4)
    maker, judge = nn.Linear(4, 4).to(device), nn.Linear(4, 1).to(device)
    first = torch.optim.Adam(maker.parameters())
    second = torch.optim.Adam(judge.parameters())
    f_scaler = torch.cuda.amp.GradScaler()
    s_scaler = torch.cuda.amp.GradScaler()
    for epoch in range(3):
        train(judge, maker, loader, second, first, {arguments})


main()
"""


@pytest.mark.parametrize(
    ("parameters", "arguments", "rest", "handed"),
    [
        ("f_scaler, s_scaler", "f_scaler, s_scaler", "", ""),
        ("f_scaler, s_scaler, rate", "f_scaler, s_scaler, 0.1", ", rate", ", 0.1"),
        ("f_scaler, s_scaler, rate", "s_scaler=s_scaler, f_scaler=f_scaler, rate=0.1", ", rate", ", rate=0.1"),
    ],
)
@pytest.mark.parametrize("inside", [False, True])
def test_a_function_that_is_handed_two_scalers_is_handed_neither(
    parameters: str, arguments: str, rest: str, handed: str, inside: bool
):
    source = TWO.format(parameters=parameters, arguments=arguments)
    if inside:  # the Accelerator is made in main(), and takes the place of the first
        source = source.replace(".to(device)", ".cuda()").replace("device = torch.device", "name = str")
    text = migrated(source)
    given = ", accelerator" if inside else ""
    named = ", accelerator=accelerator" if inside and "=" in arguments else given
    assert f"def train(judge, maker, loader, second, first{given}{rest}):" in text
    assert f"train(judge, maker, loader, second, first{named}{handed})" in text
    assert "scaler" not in text


def test_a_scaler_of_the_scripts_own_for_an_old_torch_steps_as_the_optimizer_does() -> None:
    source = """
    import torch
    from torch import nn
    from torch.utils.data import DataLoader

    try:
        from torch.cuda.amp import GradScaler
    except ImportError:

        class GradScaler:
            def scale(self, loss):
                return loss

            def step(self, optimizer):
                {steps}

            def update(self):
                pass


    model = nn.Linear(2, 1).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = GradScaler()
    for x, y in DataLoader(rows, batch_size=4):
        optimizer.zero_grad()
        with torch.cuda.amp.autocast():
            loss = nn.functional.mse_loss(model(x.cuda()), y.cuda())
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    """
    text = migrated(source.format(steps="optimizer.step()"))
    assert "    accelerator.backward(loss)\n    optimizer.step()\n" in text
    assert "AM957" in unchanged(source.format(steps="optimizer.step()\n                report()"))


@pytest.mark.parametrize(
    ("made", "called", "said"),
    [
        ("scaler", "fit(2)", ""),
        ("scaler", "fit(2)\nfit(3)", "which goes on from where it is"),
        ("scaler", "for epochs in (2, 3):\n    fit(epochs)", "which goes on from where it is"),
        ("scaler", "def main():\n    fit(2)\nmain()\nmain()", "which goes on from where it is"),
        ("scaler, other", "fit(2)", "one for all"),
    ],
)
def test_names_a_scale_of_its_own_that_each_scaler_had(made: str, called: str, said: str) -> None:
    first, _, second = made.partition(", ")
    more = f"""
                {second}.scale(nn.functional.l1_loss(model(x.cuda()), y.cuda())).backward()
                {second}.step(optimizer)
                {second}.update()"""
    source = f"""
    import torch
    from torch import nn

    def fit(epochs):
        scaler = torch.cuda.amp.GradScaler()
        other = torch.cuda.amp.GradScaler()
        for epoch in range(epochs):
            for x, y in loader:
                loss = nn.functional.mse_loss(model(x.cuda()), y.cuda())
                optimizer.zero_grad()
                {first}.scale(loss).backward()
                {first}.step(optimizer)
                {first}.update(){more if second else ""}

    loader = torch.utils.data.DataLoader(data(), batch_size=4)
    model = nn.Linear(2, 1).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    """
    source = dedent(source if second else source.replace("        other = torch.cuda.amp.GradScaler()\n", "")) + called
    assert said in noted(source, "AM304") if said else not any("scale" in note for note in notes(source))
