"""Pages that MkDocs makes while it builds: the gallery from fixtures/, the API from docstrings, the repository's own pages."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from accel_runtime import _PLACES
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
FIXTURES = ROOT / "fixtures"

# Page -> title, what it shows, and how the names of its cases begin or end; a case belongs to the first that fits.
FAMILIES = {
    "left": ("Left alone", "What is refused, and with which words.", r"_left$|^no_training|^already_|^unknown_"),
    "precision": ("Mixed precision", "`autocast` and `GradScaler` become the Accelerator's.", r"^amp_"),
    "distributed": ("DDP by hand", "Processes that the script started and joined by itself.", r"^ddp_|^data_parallel"),
    "devices": (
        "Devices and moves",
        "Who chooses the device, and which moves go.",
        r"cuda|device|moves$|_cpu$|^dtype|^dict_batches|_open_file$",
    ),
    "evaluation": (
        "Evaluation and figures",
        "Every sample counts once, on any number of processes.",
        r"evaluate|predictions|metric|meters|figures|progress|means_kept|events",
    ),
    "saving": (
        "Saving and resuming",
        "Files are written once, whole, by one process.",
        r"resume|best|checkpoints|saves|ema|samples$|built_again",
    ),
    "structure": (
        "Where things are built",
        "Functions, classes, several files: the Accelerator finds its way.",
        r"class|files?$|engine|globals|^nested|^folds|^main|aliases|^cells|^tabs|^one_line|asked$",
    ),
    "training": ("How it trains", "Losses, loaders, schedules and loops of other kinds.", r""),
}

# Page -> the case whose proof it begins with, which `make proofs` writes.
PROVEN = {
    "precision": "amp_enabled",
    "distributed": "ddp_reduced_metrics",
    "devices": "dict_batches",
    "evaluation": "train_and_evaluate",
    "saving": "resume_and_best",
    "structure": "trainer_class",
    "training": "scheduler_per_epoch_and_plateau",
}

# Page -> title and the public names on it; the Accelerator has a page of its own.
API = {
    "configuration": ("Configuration", r"Kwargs$|Configuration$|Plugin$|Type$"),
    "models": ("Large models", r"offload|dispatch|device_map|^init_|^load_"),
    "tools": ("Launchers and tools", r""),
}

# The repository's own pages, and what their links mean on the site.
OWN = {"contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md", "security.md": "SECURITY.md"}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Puts the made pages into the navigation."""
    sections: list[Any] = config.nav or []
    for section in sections:
        if "Gallery" in section:
            section["Gallery"] = ["gallery/index.md", *({FAMILIES[key][0]: f"gallery/{key}.md"} for key in FAMILIES)]
        if "API" in section:
            section["API"] = [{"Accelerator": "api/accelerator.md"}, *({API[key][0]: f"api/{key}.md"} for key in API)]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the made pages."""
    for place, text in made_pages():
        files.append(File.generated(config, place, content=text))
    return files


def on_page_content(html: str, **_: Any) -> str:
    """Marks options in the text, which a line must not break after their dashes."""
    return re.sub(r"<code>(--?[\w-]+)</code>", r'<code class="option">\1</code>', html)


def made_pages() -> Iterator[tuple[str, str]]:
    """Place on the site and Markdown of each."""
    yield "gallery/index.md", _gallery()
    for key in FAMILIES:
        yield f"gallery/{key}.md", _family(key)
    yield "api/accelerator.md", _reference("Accelerator", ["Accelerator"])
    for key, (title, _) in API.items():
        yield f"api/{key}.md", _reference(title, [name for name in _PLACES if _page_of(name) == key])
    for place, source in OWN.items():
        yield place, _on_site((ROOT / source).read_text())


def family_of(case: str) -> str:
    """The page that shows the case."""
    return next(key for key, (_, _, pattern) in FAMILIES.items() if re.search(pattern, case))


def cases(family: str) -> list[Path]:
    return sorted(folder for folder in FIXTURES.iterdir() if folder.is_dir() and family_of(folder.name) == family)


def _gallery() -> str:
    rows = [f"| [{title}]({key}.md) | {shows} | {len(cases(key))} |" for key, (title, shows, _) in FAMILIES.items()]
    return "\n".join(
        [
            "# Gallery",
            "",
            "Whole scripts before and after, with the reasons. Each is a case of the tests: it is migrated to the letter, and",
            "trained before and after. On one process the losses are equal to the bit; on two the evaluation prints the",
            "figures of the original. Some pages begin with the proof of a script.",
            "",
            "| family | | scripts |",
            "| --- | --- | --- |",
            *rows,
            "",
        ]
    )


def _family(key: str) -> str:
    title, shows, _ = FAMILIES[key]
    proof = [_proof(PROVEN[key]), ""] if key in PROVEN else []
    return "\n".join([f"# {title}", "", shows, "", *proof, *(line for case in cases(key) for line in _case(case))])


def _proof(case: str) -> str:
    name = case.replace("_", " ")
    return (
        f"[The proof of *{name}*, with its curves](../proofs/{case}.html): what `accel-migrate --verify --html` writes."
    )


def _case(folder: Path) -> Iterator[str]:
    """Why, then the change as a diff, the script before and after, and the report."""
    notes = (folder / "NOTES.md").read_text().partition("\n")[2].strip()
    yield from (f"## {folder.name.replace('_', ' ')}", "", notes, "")
    before, after = (_script(folder, state) for state in ("before", "after"))
    diff = "".join(difflib.unified_diff(before.splitlines(True), after.splitlines(True), "before", "after"))
    report = (folder / "report.txt").read_text()
    tabs = {
        "Change": ("diff", diff),
        "Before": ("python", before),
        "After": ("python", after),
        "Report": ("text", report),
    }
    for name, (language, text) in tabs.items():
        if text.strip():
            yield from (f'=== "{name}"', "", f"    ```{language}", *(f"    {line}" for line in text.splitlines()))
            yield from ("    ```", "")


def _script(folder: Path, state: str) -> str:
    """One script, or the files of a project one after the other."""
    if (folder / f"{state}.py").exists():
        return (folder / f"{state}.py").read_text().expandtabs()
    files = sorted((folder / state).rglob("*.py"))
    return "\n".join(f"# {file.relative_to(folder / state).as_posix()}\n{file.read_text()}" for file in files)


def _page_of(name: str) -> str:
    if name == "Accelerator":
        return "accelerator"
    return next(key for key, (_, pattern) in API.items() if re.search(pattern, name))


def _reference(title: str, names: list[str]) -> str:
    places = [f"::: accel_runtime.{_PLACES[name]}.{name}\n" for name in names]
    return "\n".join([f"# {title}", "", "Imported from `accel_runtime`.", "", *places])


def _on_site(text: str) -> str:
    """Links from the top of the repository, as links from the top of the site."""
    text = re.sub(r"\]\(docs/", "](", text)
    return re.sub(r"\]\(([A-Z]+)\.md", lambda found: f"]({found[1].lower()}.md", text)
