"""The page on Accelerate's own tests accounts for each of them."""

import re
from collections import Counter
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "runtime" / "accelerate-tests.md").read_text()


def test_every_test_that_does_not_pass_has_a_reason():
    files = {
        file: (int(theirs), int(ours))
        for file, theirs, ours in re.findall(r"^\| (test_\w+) \| (\d+) \| (\d+) \|$", PAGE, re.M)
    }
    explained = Counter()
    for file, count, why in re.findall(r"^\| (test_\w+): [^|]* \| (\d+) \| ([^|]+) \|$", PAGE, re.M):
        assert why.strip()
        explained[file] += int(count)
    assert {file: theirs - ours for file, (theirs, ours) in files.items()} == {file: explained[file] for file in files}
    total, passed = map(int, re.search(r"Of the (\d+) that pass.*?, (\d+) pass here", PAGE, re.S).groups())
    assert (total, passed) == tuple(map(sum, zip(*files.values())))
