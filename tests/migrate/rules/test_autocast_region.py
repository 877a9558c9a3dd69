"""AM303: autocast regions."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
from accel_migrate.pipeline import migrate
from accel_migrate.settings import DEFAULTS, Settings
from accel_migrate.source import Source

from tests.migrate.rules.verbs import migrated, noted, rewritten, unchanged

SCRIPT = """
    import torch
    from torch import nn

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    loader = torch.utils.data.DataLoader(data(), batch_size=4)
    model = nn.Linear(2, 1).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        {region}
            loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    """


def made_of(region: str) -> str:
    """The argument that chooses the precision, for a region."""
    text = migrated(SCRIPT.format(region=region))
    assert "with accelerator.autocast():" in text
    return text.split("mixed_precision=")[1].split("autocast_forward")[0].rstrip(" ,\n")


def test_region_becomes_the_accelerators():
    rewritten(
        SCRIPT.format(region="with torch.autocast(device.type, dtype=torch.bfloat16):"),
        """
        import torch
        from accel_runtime import Accelerator
        from torch import nn

        accelerator = Accelerator(mixed_precision="bf16", autocast_forward=False)
        loader = torch.utils.data.DataLoader(data(), batch_size=4)
        model = nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        for x, y in loader:
            with accelerator.autocast():
                loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
        """,
    )


@pytest.mark.parametrize(
    ("amp", "asked"), [("False", "'no'"), ("True", "'fp16' if torch.cuda.is_available() else 'no'")]
)
def test_what_a_call_hands_over_for_it_is_no_question(amp: str, asked: str):
    source = """
    import torch
    from torch import nn

    def train(model, device, amp=False):
        loader = torch.utils.data.DataLoader(data(), batch_size=4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.cuda.amp.GradScaler(enabled=amp)
        for x, y in loader:
            with torch.cuda.amp.autocast(enabled=amp):
                loss = nn.functional.mse_loss(model(x.to(device)), y.to(device))
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()

    device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
    model = nn.Linear(2, 1).to(device)
    train(model, device, amp={})
    """
    text = migrated(source.format(amp))
    assert text.split("mixed_precision=")[1].split("autocast_forward")[0].rstrip(" ,\n") == asked


def test_cuda_by_name_asks_for_a_gpu():
    assert made_of('with torch.autocast("cuda"):') == '"fp16" if torch.cuda.is_available() else "no"'
    assert made_of("with torch.cuda.amp.autocast():") == '"fp16" if torch.cuda.is_available() else "no"'


@pytest.mark.parametrize("asked", ["torch.cuda.is_available()", "torch.cuda.is_available() and gpu"])
def test_a_script_that_keeps_to_cuda_asks_for_it_once(asked: str):
    source = f"""
    import torch
    from torch import nn

    gpu = True
    loader = torch.utils.data.DataLoader(data(), batch_size=4)
    model, teacher = nn.Linear(2, 1), nn.Linear(2, 1)
    if {asked}:
        model.cuda()
        teacher.cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.cuda.amp.GradScaler()
    for x, y in loader:
        if {asked}:
            x, y = x.cuda(), y.cuda()
        with torch.cuda.amp.autocast():
            loss = nn.functional.mse_loss(model(x), teacher(y))
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    """
    precision = migrated(source).split("mixed_precision=")[1].split("autocast_forward")[0]
    assert precision.count("torch.cuda.is_available()") == 1


def test_what_the_script_does_not_scale_is_not_scaled():
    off = "kwargs_handlers=[GradScalerKwargs(enabled=False)]"
    assert off in migrated(SCRIPT.format(region="with torch.cuda.amp.autocast():"))
    assert off not in migrated(SCRIPT.format(region="with torch.cuda.amp.autocast(dtype=torch.bfloat16):"))


def test_default_dtype_follows_the_device():
    assert made_of("with torch.autocast(device.type):") == '"fp16" if torch.cuda.is_available() else "bf16"'


def test_a_condition_that_asks_for_the_gpu_is_written_once():
    asked = 'with torch.autocast(device.type, enabled=torch.fast and device.type == "cuda"):'
    assert made_of(asked) == '"fp16" if torch.fast and torch.cuda.is_available() else "no"'


def test_condition_is_kept():
    text = made_of("with torch.cuda.amp.autocast(enabled=torch.fast, dtype=torch.bfloat16):")
    assert text == '"bf16" if torch.fast and torch.cuda.is_available() else "no"'


def test_condition_from_a_parameter_is_what_callers_pass():
    text = migrated(
        """
        import argparse
        import torch
        from torch import nn


        def train(model, loader, optimizer, device, amp=False):
            for x, y in loader:
                with torch.cuda.amp.autocast(enabled=amp):
                    loss = nn.functional.mse_loss(model(x.to(device)), y.to(device))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()


        def main():
            parser = argparse.ArgumentParser()
            parser.add_argument("--amp", action="store_true")
            args = parser.parse_args()
            device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
            loader = torch.utils.data.DataLoader(data())
            model = nn.Linear(2, 1).to(device)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            train(model, loader, optimizer, device, args.amp)


        main()
        """
    )
    assert 'mixed_precision="fp16" if args.amp and torch.cuda.is_available() else "no"' in text


def test_region_that_is_switched_off_stays_torchs_own():
    text = migrated(SCRIPT.format(region='with torch.autocast("cuda", enabled=False):'))
    assert 'with torch.autocast("cuda", enabled=False):' in text
    assert "mixed_precision" not in text


def test_region_with_a_dtype_that_cannot_be_told_stays_torchs_own():
    text = migrated(SCRIPT.format(region='with torch.autocast("cuda", dtype=getattr(torch, name())):'))
    assert "getattr(torch, name())" in text
    assert "mixed_precision" not in text


def test_region_inside_a_model_stays():
    text = migrated(
        """
        import torch
        from torch import nn


        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(2, 1)

            def forward(self, x):
                with torch.cuda.amp.autocast():
                    return self.layer(x)


        loader = torch.utils.data.DataLoader(data())
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """
    )
    assert "with torch.cuda.amp.autocast():" in text
    assert "mixed_precision" not in text


def test_the_cpu_by_name_stays_torchs_own():
    text = migrated(SCRIPT.format(region='with torch.autocast("cpu", dtype=torch.bfloat16):'))
    assert 'with torch.autocast("cpu", dtype=torch.bfloat16):' in text
    assert "mixed_precision" not in text


def test_accelerate_is_told_no_option_it_lacks():
    source = SCRIPT.format(region="with torch.cuda.amp.autocast():")
    peer = Settings(target="accelerate")
    assert "autocast_forward" not in migrated(source, peer)
    assert "float32" in noted(source, "AM303", peer)


IDIOM = """
    import torch
    from contextlib import nullcontext
    from torch import nn

    {choice}
    loader = torch.utils.data.DataLoader(data(), batch_size=4)
    model = nn.Linear(2, 1).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def train():
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            with ctx:
                loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    def probe(x):
        with torch.no_grad(), ctx:
            return model(x.to(device))

    train()
    print(probe(torch.zeros(1, 2)))
    """
AVAILABLE = '"cuda" if torch.cuda.is_available() else "cpu"'


@pytest.mark.parametrize(
    ("device", "kind"),
    [
        (f"torch.device({AVAILABLE})", "device.type"),
        (AVAILABLE, '"cuda" if "cuda" in device else "cpu"'),
        (AVAILABLE, '"cuda" if device.startswith("cuda") else "cpu"'),
        (f"torch.device({AVAILABLE})", '"cpu" if device.type == "cpu" else "cuda"'),
    ],
)
def test_a_context_that_is_chosen_once_and_entered_in_several_functions(device: str, kind: str) -> None:
    choice = f"""device = {device}
    dtype = "bfloat16"
    kind = {kind}
    ptdtype = {{"float32": torch.float32, "bfloat16": torch.bfloat16}}[dtype]
    ctx = nullcontext() if kind == "cpu" else torch.amp.autocast(device_type=kind, dtype=ptdtype)"""
    text = migrated(IDIOM.format(choice=choice))
    assert 'mixed_precision={"float32": "no", "bfloat16": "bf16"}[dtype] if torch.cuda.is_available() else "no"' in text
    assert "ctx = accelerator.autocast()\n" in text
    assert "nullcontext" not in text and "kind" not in text
    assert "with torch.no_grad(), ctx:" in text


def test_a_context_chosen_by_the_users_device_follows_it() -> None:
    choice = """device = sys.argv[1]
    kind = "cuda" if "cuda" in device else "cpu"
    ctx = nullcontext() if kind == "cpu" else torch.amp.autocast(device_type=kind, dtype=torch.bfloat16)"""
    text = migrated(IDIOM.format(choice=choice).replace("import torch\n", "import sys, torch\n", 1))
    assert "device=sys.argv[1]" in text
    assert 'mixed_precision="bf16" if "cuda" in sys.argv[1] else "no"' in text


def test_a_context_chosen_among_three_devices_leaves_the_loop() -> None:
    choice = """device = "cpu"
    if torch.cuda.is_available():
        device = "cuda"
    elif torch.backends.mps.is_available():
        device = "mps"
    kind = "cuda" if device == "cuda" else "cpu"
    ctx = nullcontext() if kind == "cpu" else torch.amp.autocast(device_type=kind, dtype=torch.bfloat16)"""
    assert "turns mixed precision on" in unchanged(IDIOM.format(choice=choice))


@pytest.mark.parametrize("value", ["False", "True", "0"])
def test_a_switch_that_is_set_only_below_the_device_is_not_copied(value: str):
    source = SCRIPT.format(region='with torch.autocast("cuda", enabled=use_amp):')
    below = source.replace("    loader =", f'    print("on", device)\n    use_amp = {value}\n    loader =', 1)
    assert "`use_amp`, which decides about mixed precision, is set only after" in unchanged(below)
    above = source.replace("    device =", f"    use_amp = {value}\n    device =", 1)
    assert "if use_amp and" in migrated(above)


def test_a_device_of_another_file_is_asked_for_once():
    config = 'import torch\n\nDEVICE = "cuda" if torch.cuda.is_available() else "cpu"\nAMP = True\n'
    region = "with torch.cuda.amp.autocast(enabled=config.AMP):"
    train = dedent(SCRIPT.format(region=region)).replace("device)", "config.DEVICE)")
    train = train.replace("import torch\n", "import torch\nimport config\n", 1).replace(
        "device = ", "scale = torch.ones(1).to("
    )
    train = train.replace('torch.device("cuda" if torch.cuda.is_available() else "cpu")', "config.DEVICE)")
    train = train.replace("mse_loss(model(x), y)", "mse_loss(model(x), y) * scale")
    files = {"train.py": train, "config.py": config}
    result, _ = migrate([Source.from_bytes(Path(name), text.encode()) for name, text in files.items()], DEFAULTS)
    assert 'mixed_precision="fp16" if config.AMP and torch.cuda.is_available() else "no"' in result.after.decode()


@pytest.mark.parametrize("parsed", ["options()", "parser.parse_args()"])
def test_options_that_are_parsed_below_the_device_are_parsed_once(parsed: str):
    source = f"""
        import argparse
        import torch
        from torch import nn


        def options():
            return argparse.ArgumentParser().parse_args()


        def main():
            parser = argparse.ArgumentParser()
            device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
            args = {parsed}
            rows = args.rows
            model = nn.Linear(2, 1).to(device)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in torch.utils.data.DataLoader(rows):
                with torch.cuda.amp.autocast(enabled=args.amp):
                    loss = nn.functional.mse_loss(model(x.to(device)), y.to(device))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()


        main()
        """
    text = migrated(source)
    assert f"args = {parsed}\n    accelerator = Accelerator(" in text
    assert 'mixed_precision="fp16" if args.amp and' in text
