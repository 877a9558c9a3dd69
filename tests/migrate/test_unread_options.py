"""Options that nothing reads any more are named."""

from __future__ import annotations

from pathlib import Path

import pytest
from accel_migrate.flow.version import Version
from accel_migrate.source import Source
from accel_migrate.unread_options import unread_options

TRAIN, OTHER = Path("train.py"), Path("other.py")
ADDED = """
parser.add_argument("-n", "--nodes", type=int)
parser.add_argument("--dist-url")
parser.add_argument("--size", dest="width")
args = parser.parse_args()
"""
READ = ADDED + "start(args.nodes, args.dist_url, args.width)\n"


def version(path: Path, text: str) -> Version:
    return Version(Source.from_bytes(path, text.encode()))


def said(before: str, after: str, other: str = "") -> list[str]:
    originals = {TRAIN: version(TRAIN, before), OTHER: version(OTHER, other)}
    return [note.message for _, note in unread_options(originals, {TRAIN: version(TRAIN, after)})]


def test_options_that_are_no_longer_read_are_named_in_one_note():
    (message,) = said(READ, ADDED + "start(args.width)\n")
    assert message.startswith("nothing reads `--nodes`, `--dist-url` any more; take them out")


def test_an_option_is_known_by_the_name_it_is_stored_under():
    (message,) = said(READ, ADDED + "start(args.nodes, args.dist_url)\n")
    assert "`--size`" in message


def test_the_note_stands_where_the_first_of_them_is_added():
    ((path, note),) = unread_options({TRAIN: version(TRAIN, READ)}, {TRAIN: version(TRAIN, ADDED)})
    assert (path, note.line) == (TRAIN, 2)


@pytest.mark.parametrize("read", ["use(options.nodes)", 'getattr(options, "nodes")', 'vars(options)["nodes"]'])
def test_an_option_that_another_file_reads_is_not_named(read):
    before = ADDED + "start(args.nodes)\n"
    assert said(before, ADDED, other=read) == []


def test_an_option_that_was_never_read_is_not_named():
    assert said(ADDED, ADDED) == []
