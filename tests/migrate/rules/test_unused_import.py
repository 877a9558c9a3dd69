"""AM104: imports that the migration made unused."""

from __future__ import annotations

from tests.migrate.rules.handwritten import script
from tests.migrate.rules.verbs import migrated


def test_what_only_the_distribution_used_goes():
    text = migrated(script())
    for name in ("torch.distributed", "DistributedDataParallel", "DistributedSampler"):
        assert name not in text


def test_a_name_that_is_still_used_stays():
    assert "import torch.distributed as dist\n" in migrated(
        script(body="if dist.is_initialized(): dist.broadcast(loss, 0)")
    )


def test_what_was_unused_before_stays():
    assert "import os\n" in migrated(script())


def test_other_names_of_the_same_import_stay():
    source = (
        script()
        .replace("    from torch.utils.data import DataLoader\n", "")
        .replace(
            "from torch.utils.data.distributed import DistributedSampler",
            "from torch.utils.data import DataLoader, DistributedSampler, Dataset",
        )
    )
    assert "from torch.utils.data import DataLoader, Dataset\n" in migrated(source)


def test_what_a_module_hands_on_stays():
    source = script().replace("    def main():", '    __all__ = ["DDP"]\n\n\n    def main():')
    assert "DistributedDataParallel as DDP" in migrated(source)


def test_what_the_accelerator_is_told_with_stays():
    source = script(wrapper=", find_unused_parameters=settings.UNUSED").replace(
        "    import os\n", "    import os\n    import settings\n"
    )
    text = migrated(source)
    assert "import settings\n" in text
    assert "find_unused_parameters=settings.UNUSED" in text
