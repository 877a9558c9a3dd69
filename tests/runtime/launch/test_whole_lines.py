"""Output in whole lines."""

from __future__ import annotations

import io

from accel_runtime.launch.whole_lines import WholeLines


def test_pieces_go_out_as_lines_and_the_rest_at_the_end() -> None:
    stream = io.StringIO()
    lines = WholeLines(stream)
    print("rank", 0, end=" ", file=lines)
    assert stream.getvalue() == ""
    print("of 2\nand", end="", file=lines)
    assert stream.getvalue() == "rank 0 of 2\n"
    lines.close()
    lines.close()
    assert stream.getvalue() == "rank 0 of 2\nand"
