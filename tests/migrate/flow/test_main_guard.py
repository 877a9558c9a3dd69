"""What runs only when a file is started as a script."""

from __future__ import annotations

from pathlib import Path

import pytest
from accel_migrate.flow.main_guard import under_main
from accel_migrate.flow.scopes import Module
from accel_migrate.source import Source


@pytest.mark.parametrize(
    ("text", "guarded"),
    [
        ('if __name__ == "__main__":\n    train()\n', True),
        ('if "__main__" == __name__ and go:\n    for epoch in range(3):\n        train()\n', True),
        ('if type(net).__name__ == "Net":\n    train()\n', False),
        ("train()\n", False),
    ],
)
def test_a_condition_on_how_the_file_is_run(text: str, guarded: bool) -> None:
    module = Module(Source.from_bytes(Path("a.py"), text.encode()))
    assert under_main(module, module.calls[-1]) is guarded
