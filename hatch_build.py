"""Project URLs for the wheel: those of the repository that a GitHub workflow builds it in; elsewhere none are claimed."""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class ProjectUrls(MetadataHookInterface):
    def update(self, metadata: MutableMapping[str, Any]) -> None:
        metadata["urls"] = project_urls(os.environ)


def project_urls(environ: MutableMapping[str, str]) -> dict[str, str]:
    """Empty outside of a workflow."""
    if "GITHUB_REPOSITORY" not in environ:
        return {}
    home = f"{environ['GITHUB_SERVER_URL']}/{environ['GITHUB_REPOSITORY']}"
    main = f"{home}/blob/main"
    return {
        "Source": home,
        "Issues": f"{home}/issues",
        "Changelog": f"{main}/CHANGELOG.md",
        "Documentation": f"{main}/docs/index.md",
    }
