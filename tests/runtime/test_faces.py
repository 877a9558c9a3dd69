"""The places that scripts import from."""

import subprocess
import sys

import accel_runtime
import pytest
from accel_runtime import utils


@pytest.mark.parametrize("face", [accel_runtime, utils], ids=lambda face: face.__name__)
def test_every_name_is_there(face):
    assert [name for name in face.__all__ if not hasattr(face, name)] == []


def test_a_name_of_the_peer_that_is_not_here_says_what_to_use():
    with pytest.raises(ImportError, match=r"ask accelerator\.state"):
        from accel_runtime import AcceleratorState  # noqa: F401
    with pytest.raises(AttributeError, match="no attribute 'Accelerater'"):
        _ = accel_runtime.Accelerater


def test_the_package_alone_brings_no_torch():
    code = "import accel_runtime, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
