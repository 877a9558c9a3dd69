"""AM810: weights that are copied before every process has the same.

For Accelerate, where nobody seeds the processes but the script; our runtime's are seeded alike, unless the script objects.
"""

from __future__ import annotations

from functools import partial

import pytest
from accel_migrate.settings import DEFAULTS, Settings

from tests.migrate.rules import verbs
from tests.migrate.rules.handwritten import script as distributed

noted = partial(verbs.noted, settings=Settings(target="accelerate"))
notes = partial(verbs.notes, settings=Settings(target="accelerate"))

SCRIPT = """
import copy
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

{seed}
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
loader = DataLoader(TensorDataset(torch.randn(8, 4), torch.randn(8, 2)), batch_size=4)
model = nn.Linear(4, 2).to(device)
teacher = nn.Linear(4, 2).to(device)
{before}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    x, y = x.to(device), y.to(device)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y) + nn.functional.mse_loss(model(x), teacher(x).detach())
    loss.backward()
    optimizer.step()
    {after}
"""
LOOP = "for p, q in zip(model.parameters(), teacher.parameters()):\n    q.data.copy_(p.data)"
COPIES = [LOOP, "teacher.load_state_dict(model.state_dict())", "teacher = copy.deepcopy(model)"]


def script(before: str = "", seed: str = "", after: str = "pass") -> str:
    return SCRIPT.format(before=before, seed=seed, after=after)


@pytest.mark.parametrize("copied", COPIES)
def test_tells_a_copy_of_weights_that_each_process_drew(copied: str) -> None:
    assert "the copy is another one" in noted(script(copied), "AM810")


@pytest.mark.parametrize("copied", COPIES)
def test_says_nothing_where_all_draw_alike(copied: str) -> None:
    assert not [note for note in notes(script(copied, seed="torch.manual_seed(1)")) if "the copy is another" in note]


@pytest.mark.parametrize("before", ["", *COPIES])
@pytest.mark.parametrize(
    "seed", ["", "if len(loader):\n    torch.manual_seed(1)", "torch.manual_seed(random.randint(1, 9))"]
)
def test_our_runtime_has_all_draw_alike(before: str, seed: str) -> None:
    source = script(before, seed).replace("import copy", "import copy\nimport random")
    assert not [note for note in verbs.notes(source) if "not seeded alike" in note]


@pytest.mark.parametrize(
    "seed", ["torch.seed()", "torch.manual_seed(int(time.time()))", "torch.manual_seed(int.from_bytes(os.urandom(4)))"]
)
def test_a_seed_of_each_process_is_told_there_too(seed: str) -> None:
    source = script("teacher = copy.deepcopy(model)", seed).replace(
        "import copy", "import copy\nimport os\nimport time"
    )
    assert "the copy is another one" in verbs.noted(source, "AM810", DEFAULTS)


@pytest.mark.parametrize(
    "before",
    [
        "",
        "for p in model.parameters():\n    nn.init.normal_(p)",
        "model.load_state_dict(torch.load('model.pt'))",
        "teacher.load_state_dict(torch.load('teacher.pt'))",
        "settings = copy.deepcopy({'lr': 0.1})",
    ],
)
def test_says_nothing_of_what_copies_no_weights(before: str) -> None:
    assert not [note for note in notes(script(before)) if "the copy is another" in note]


def test_says_nothing_of_a_copy_after_prepare() -> None:
    source = script(after="best = copy.deepcopy(model)")
    assert not [note for note in notes(source) if "the copy is another" in note]


def drawn(source: str) -> list[str]:
    return [note for note in notes(source) if "draws itself" in note]


@pytest.mark.parametrize(
    "before", ["", "for p in teacher.parameters():\n    p.requires_grad = False", "teacher.eval()"]
)
def test_tells_a_fixed_network_that_each_process_draws(before: str) -> None:
    assert drawn(script(before))
    assert not drawn(script(before, seed="torch.manual_seed(1)"))


@pytest.mark.parametrize(
    "before",
    ["teacher.load_state_dict(torch.load('teacher.pt'))", LOOP, "fill(teacher)", "teacher = torch.load('t.pt')"],
)
def test_says_nothing_of_a_network_whose_weights_are_set(before: str) -> None:
    assert not drawn(script(before))


def test_says_nothing_of_a_pretrained_network() -> None:
    source = script().replace("teacher = nn.Linear(4, 2)", "teacher = models.resnet18(pretrained=True)")
    assert not drawn("from torchvision import models\n" + source)


@pytest.mark.parametrize("teacher", ["nn.Linear(4, 2)", "None"])
def test_tells_nothing_of_layers_that_a_method_of_the_trained_model_runs(teacher: str) -> None:
    tagger = """class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(4, 2)
    def cost(self, x, y):
        return nn.functional.mse_loss(self.out(x), y)
"""
    source = script(seed="torch.seed()").replace("model = nn.Linear(4, 2)", f"{tagger}model = Tagger()")
    fixed = " + teacher(x).mean()" if teacher != "None" else ""
    source = source.replace("teacher = nn.Linear(4, 2).to(device)", f"teacher = {teacher}")
    lines = [f"    loss = model.cost(x, y){fixed}" if "loss = nn" in line else line for line in source.split("\n")]
    assert len([note for note in verbs.notes("\n".join(lines)) if "draws itself" in note]) == (teacher != "None")


CENTERS = """
class CenterLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.centers = nn.Parameter(torch.{made}(2, 2))

    def forward(self, x, y):
        return (x - self.centers[0]).pow(2).mean()


criterion = CenterLoss()
"""
LAYERS = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = [nn.Linear(4, 4) for _ in range(2)]
        self.out = nn.Linear(4, 2)
        {more}

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.out(x)


model = Net().to(device)
"""


@pytest.mark.parametrize(("made", "told"), [("randn", True), ("zeros", False)])
def test_tells_a_criterion_with_weights_of_its_own(made: str, told: bool) -> None:
    text = script(CENTERS.format(made=made)).replace("nn.functional.mse_loss(model(x), y)", "criterion(model(x), y)")
    assert any("`criterion` has weights" in message for message in notes(text)) is told


BY_ONE = "for i, layer in enumerate(self.layers):\n            self.add_module(str(i), layer)"


@pytest.mark.parametrize(
    ("more", "told"), [("", True), ("self.all = nn.ModuleList(self.layers)", False), (BY_ONE, False)]
)
def test_tells_layers_that_a_model_keeps_in_a_plain_list(more: str, told: bool) -> None:
    text = script(LAYERS.format(more=more))
    assert any("`self.layers` has weights" in message for message in notes(text)) is told
    assert not any("has weights" in m for m in notes(script(LAYERS.format(more=more), "torch.manual_seed(0)")))


def test_tells_a_fixed_network_that_changes_a_value_in_place() -> None:
    loss = "nn.functional.mse_loss(model(x), y) + nn.functional.mse_loss(model(x), teacher(x).detach())"
    source = script().replace(f"    loss = {loss}\n", "    x.mul_(teacher(x))\n    loss = model(x).pow(2).mean()\n")
    assert "`teacher` has weights that each process draws itself" in noted(
        source.replace("nn.Linear(4, 2)", "nn.Linear(4, 4)"), "AM810"
    )


@pytest.mark.parametrize("seed, told", [("torch.manual_seed(5 + rank)", True), ("torch.manual_seed(5)", False)])
def test_a_wrapper_gave_all_processes_the_weights_of_one(seed: str, told: bool) -> None:
    wrapped = "\n        ".join(
        ["rank = dist.get_rank()", seed, "teacher = nn.Linear(2, 2)", "teacher = DDP(teacher)", "model = DDP("]
    )
    source = (
        distributed().replace("model = DDP(", wrapped).replace("model(x.cuda())", "model(teacher(x.cuda()).detach())")
    )
    assert any("`teacher` has weights" in each for each in verbs.notes(source)) == told
