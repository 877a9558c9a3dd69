"""Why a script did not run, in one sentence."""

from __future__ import annotations

import pytest
from accel_migrate.proof.failures import sentence
from accel_migrate.proof.runs import Ended, Run

LAUNCHED = """\
[rank1]: RuntimeError: connection closed by peer
Exception in thread watchdog:
accel launch: rank 0 of 2 failed first: AssertionError: sizes differ (train.py:50)
  then rank 1: RuntimeError: connection closed by peer
"""


@pytest.mark.parametrize(
    ("errors", "told"),
    [
        (LAUNCHED, "ends with AssertionError: sizes differ (train.py:50)"),
        ("Traceback\nValueError: no data\n", "ends with ValueError: no data"),
        (
            "x.NetworkRefusedError: train.py:3 asks for example.org:80, which has no stand-in\n",
            "wants the network: train.py:3 asks for example.org:80, which has no stand-in; bring the data into the "
            "project folder first",
        ),
        (
            "FileNotFoundError: [Errno 2] No such file or directory: 'data/x.npy'\n",
            "wants data/x.npy, which is not there; --stand-ins --shape data/x.npy=SIZES makes one up for the proof "
            "(FileNotFoundError: [Errno 2] No such file or directory: 'data/x.npy')",
        ),
        ("FileNotFoundError: 'x.pkl'\n", "ends with FileNotFoundError: 'x.pkl'"),
        (
            "urllib.error.URLError: <urlopen error>\n",
            "wants the network; bring the data into the project folder first (urllib.error.URLError: <urlopen error>)",
        ),
    ],
)
def test_the_cause_is_named_and_not_what_followed_from_it(errors: str, told: str) -> None:
    assert sentence(Run((), Ended(1, "", errors), 60.0)) == told
