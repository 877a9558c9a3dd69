"""A package `accelerate` that is this runtime, for libraries that import Accelerate by its name."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = '''\
"""Every `accelerate.x` is `accel_runtime.x`, the same module."""

import importlib
import importlib.abc
import importlib.util
import sys


class Alias(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if not name.startswith("accelerate."):
            return None
        try:
            module = importlib.import_module("accel_runtime." + name.partition(".")[2])
        except ModuleNotFoundError as error:
            if (error.name or "").startswith("accel_runtime"):
                return None
            raise
        return importlib.util.spec_from_loader(name, self, is_package=hasattr(module, "__path__"))

    def create_module(self, spec):
        module = importlib.import_module("accel_runtime." + spec.name.partition(".")[2])
        self.own = module.__spec__
        return module

    def exec_module(self, module):
        module.__spec__ = self.own


sys.meta_path.insert(0, Alias())
sys.modules["accelerate"] = importlib.import_module("accel_runtime")
'''
_METADATA = "Metadata-Version: 2.1\nName: accelerate\nVersion: 1.15.0\n"


def write_alias(folder: Path) -> Path:
    """Writes the package into the folder, which belongs on PYTHONPATH before all others."""
    (folder / "accelerate").mkdir(parents=True)
    (folder / "accelerate" / "__init__.py").write_text(_PACKAGE)
    (folder / "accelerate-1.15.0.dist-info").mkdir()
    (folder / "accelerate-1.15.0.dist-info" / "METADATA").write_text(_METADATA)
    return folder
