"""Runs Accelerate's own tests with `accelerate` being this runtime, from a checkout of Accelerate.

    python benchmarks/accelerate_tests.py CHECKOUT tests/test_data_loader.py tests/test_scheduler.py
    python benchmarks/accelerate_tests.py CHECKOUT src/accelerate/test_utils/scripts/test_sync.py    # under torchrun

Needs pytest, parameterized, packaging and huggingface_hub beside the runtime. Only `accelerate.test_utils`, which the tests
import, is taken from the checkout; every other `accelerate.x` is `accel_runtime.x`. Two things differ on purpose and are set
for them: a last, shorter accumulation window weighs as Accelerate has it (`weigh_last_window=False`), and test_script does
not check that an Accelerator fails after `AcceleratorState._reset_state()` (a check it leaves out without pytest).
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

RUNTIME = Path(__file__).parent.parent / "runtime"
PACKAGE = """\
import importlib
import importlib.abc
import importlib.util
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

SOURCES = Path({sources!r})


class SameModule(importlib.abc.Loader):
    def create_module(self, spec):
        return importlib.import_module("accel_runtime." + spec.name.partition(".")[2])

    def exec_module(self, module):
        pass


class Alias(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.startswith("accelerate.test_utils"):
            place = SOURCES.joinpath(*name.split("."))
            if place.is_dir():
                inside = [str(place)]
                return importlib.util.spec_from_file_location(
                    name, place / "__init__.py", submodule_search_locations=inside
                )
            return importlib.util.spec_from_file_location(name, place.with_suffix(".py"))
        if name.startswith("accelerate."):
            found = importlib.util.find_spec("accel_runtime." + name.partition(".")[2])
            if found is not None:
                return ModuleSpec(name, SameModule(), is_package=found.submodule_search_locations is not None)
        return None


sys.meta_path.insert(0, Alias())
sys.modules["accelerate"] = importlib.import_module("accel_runtime")
# By this the tests find the scripts of the checkout.
sys.modules["accelerate"].__file__ = str(SOURCES / "accelerate" / "__init__.py")

make = importlib.import_module("accel_runtime.accumulation").GradientAccumulationPlugin.__init__
make.__defaults__ = (*make.__defaults__[:-1], False)
importlib.import_module("accel_runtime.utils").is_pytest_available = lambda: False
"""

# What a script does in a way that differs here on purpose, by its name: the text, and what is run instead. Streams are read
# by every process unless process 0 is asked to read for all; a checkpoint is one folder for all processes.
ADAPTED = {
    "test_distributed_data_loop.py": {
        "DataLoaderConfiguration(use_stateful_dataloader=True)": (
            "DataLoaderConfiguration(use_stateful_dataloader=True, dispatch_batches=iterable)"
        ),
        "accelerator.save_state(tmpdir)": (
            "tmpdir = accelerator.gather_object([tmpdir])[0]; accelerator.save_state(tmpdir)"
        ),
    }
}


def main(checkout: Path, tests: list[str]) -> int:
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "accelerate"
        package.mkdir()
        (package / "__init__.py").write_text(PACKAGE.replace("{sources!r}", repr(str(checkout / "src"))))
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([folder, str(RUNTIME)]),
            "ACCELERATE_USE_CPU": "true",
            "HF_HUB_OFFLINE": "1",
        }

        def failed(*command: str) -> bool:
            return subprocess.run([sys.executable, "-m", *command], cwd=checkout, env=environment).returncode != 0

        def in_two_processes(script: str) -> bool:
            copy, text = Path(folder) / Path(script).name, (checkout / script).read_text()
            for theirs, instead in ADAPTED.get(copy.name, {}).items():
                text = text.replace(theirs, instead)
                print(f"{script}: with {instead!r} for {theirs!r}")
            copy.write_text(text)
            return failed("torch.distributed.run", "--nproc-per-node=2", str(copy))

        scripts = [test for test in tests if Path(test).parent.name == "scripts"]
        ended = {script: in_two_processes(script) for script in scripts}
        for script, wrong in ended.items():
            print("FAILED" if wrong else "PASSED", script)
        rest = [test for test in tests if test not in scripts]
        wrong = bool(rest) and failed("pytest", "-q", "-p", "no:cacheprovider", "-rfE", *rest)
        return int(wrong or any(ended.values()))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).absolute(), sys.argv[2:] or ["tests"]))
