"""The table of what goes together is true: a cell is refused with the reason that it gives, or not at all."""

import runpy
from pathlib import Path

import pytest
from accel_runtime import resolve
from accel_runtime.errors import ConfigError
from accel_runtime.options import Options
from accel_runtime.refusals import check_combination
from accel_runtime.support import DEVICES, Standing, cell, cells, summary

from tests.runtime.test_devices import Meta

DOCS = Path(__file__).parents[2] / "docs"
TWO_PROCESSES = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}


def imitation_of(kind):
    hardware = Meta()
    hardware.name = kind
    return lambda *_: hardware


@pytest.mark.parametrize("kind", DEVICES)
def test_a_cell_is_refused_with_its_reason_or_not_at_all(monkeypatch, kind):
    monkeypatch.setattr(resolve, "device_for", imitation_of(kind))
    for one in cells():
        if one.device != kind:
            continue
        if one.standing is not Standing.REFUSED:
            check_combination(one.strategy, one.precision, kind)
            continue
        asked = "ddp" if one.strategy == "single" else one.strategy
        options = Options(strategy=asked, mixed_precision=one.precision)
        with pytest.raises(ConfigError) as raised:
            resolve.session_from(options, (), {} if one.strategy == "single" else TWO_PROCESSES)
        assert str(raised.value).endswith(one.reason)


def test_the_table_has_every_choice_and_no_device_is_more_than_untested_but_those_at_hand():
    assert {one.precision for one in cells()} == set(resolve.PRECISIONS)
    assert {one.strategy for one in cells()} | {"xla"} == set(resolve.STRATEGIES)
    assert {one.device for one in cells() if one.standing is Standing.TESTED} == {"cpu", "xla"}


def test_devices_of_which_the_same_is_true_share_a_line():
    lines = summary()
    assert lines["single on cpu"].startswith("no, bf16, fp16, fp8-emulated tested here; fp8 refused because")
    assert "single on xpu, npu, hpu, mtia, mlu, musa, sdaa, mps" in lines
    assert lines["single on xla"].startswith("no, bf16 tested here; fp16 refused because TPUs")
    assert cell("ddp", "no", "mps").reason in lines["ddp on mps"]


def test_the_page_is_what_the_table_says():
    page = runpy.run_path(str(DOCS / "make_support.py"))["page"]
    assert (DOCS / "support.md").read_text() == page(), "docs/support.md is out of date; run: make docs"
