"""What is written differs from what was read only where a change says so, and every diff is one that git applies."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.migrate.conftest import Run

FILES = {
    "unix": b"import torch\nx = f().cuda()\n",
    "crlf": b"import torch\r\nx = f().cuda()\r\ny = 1\r\n",
    "mixed": b"import torch\r\nx = f().cuda()\ny = 1\r\n",
    "bom": b"\xef\xbb\xbfimport torch\nx = f().cuda()\n",
    "latin-1": b"# -*- coding: latin-1 -*-\nimport torch\nx = f().cuda()  # \xe9t\xe9\n",
    "no final newline": b"import torch\nx = f().cuda()",
    "no final newline, crlf": b"import torch\r\nx = f().cuda()",
    "form feed": b"import torch\n\x0c\nx = f().cuda()\n",
    "tabs": b"import torch\nif True:\n\tx = f().cuda()\n",
    "utf-8": "import torch\nx = f().cuda()  # été ✓\n".encode(),
}


@pytest.mark.parametrize("kind", FILES)
def test_every_other_byte_is_kept(run: Run, kind: str) -> None:
    Path("train.py").write_bytes(FILES[kind])
    assert run("train.py").code == 0
    assert Path("train.py").read_bytes() == FILES[kind].replace(b".cuda()", b"")


@pytest.mark.parametrize("name", ["train.py", "my folder/my train.py", 'quo"te.py', "été.py"])
def test_git_applies_the_diff_of_every_kind_of_file(run: Run, name: str) -> None:
    subprocess.run(["git", "init", "-q", "."], check=True)
    Path(name).parent.mkdir(exist_ok=True)
    for data in FILES.values():
        Path(name).write_bytes(data)
        patch = run("--diff", name).raw
        subprocess.run(["git", "apply", "--whitespace=nowarn", "-"], input=patch, check=True)
        assert Path(name).read_bytes() == data.replace(b".cuda()", b"")
