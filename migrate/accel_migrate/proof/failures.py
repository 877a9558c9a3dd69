"""Why a script did not run, in one sentence: its own error, and what it wanted that is not here."""

from __future__ import annotations

import re

from accel_migrate.proof.runs import Run

GPU = re.compile(
    r"not compiled with CUDA|no NVIDIA driver|No CUDA GPUs|CUDA driver|on a CUDA device|invalid device ordinal"
    r"|not linked with support for cuda|Expected one of cpu.*device type at start of device string",
)
NETWORK = re.compile(
    r"URLError|gaierror|ConnectionError|ConnectTimeout|Max retries exceeded|Name or service not known|RemoteDisconnected"
    r"|name resolution|Network is unreachable|LocalEntryNotFoundError|couldn't connect to|OfflineMode",
)
REFUSED = re.compile(r"(\S+ asks for \S+, which has no stand-in)")
MISSING = re.compile(r"^FileNotFoundError: .*'([^'\n]+\.(?:npy|csv|tsv|txt))'$", re.MULTILINE)
FRAME = re.compile(r'^\s*File "([^"]+)", line (\d+)', re.MULTILINE)
FAILED_FIRST = re.compile(r"^accel launch: rank \d+ of \d+ failed first: (.+)$", re.MULTILINE)
RAISED = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception|Interrupt|Exit|Warning)\b.*$", re.MULTILINE)
LONGEST = 300


def sentence(run: Run) -> str:
    """What kept the script from its end."""
    if run.ended.code is None:
        return f"had no end in {run.seconds_allowed:g} s; --timeout allows more, --steps asks for less"
    error = last_error(run)
    refused = REFUSED.findall(run.ended.errors)
    if refused:
        return f"wants the network: {refused[-1]}; bring the data into the project folder first"
    if GPU.search(run.ended.errors):
        return f"needs a GPU, and this machine has none; --on-cpu runs it on the CPU ({error})"
    if NETWORK.search(run.ended.errors):
        wanted = f" to reach {run.asked_for}" if run.asked_for else ""
        return f"wants the network{wanted}; bring the data into the project folder first ({error})"
    if "EOFError: EOF when reading a line" in run.ended.errors:
        return "asks for input, and nobody answers here; give what it asks for as arguments"
    if missing := MISSING.findall(run.ended.errors):
        name = missing[-1]
        return (
            f"wants {name}, which is not there; --stand-ins --shape {name}=SIZES makes one up for the proof ({error})"
        )
    return f"ends with {error}"


def last_error(run: Run) -> str:
    """The script's own words."""
    first = FAILED_FIRST.findall(run.ended.errors)  # of several processes: the others follow from it
    found = first or RAISED.findall(run.ended.errors) or run.ended.errors.strip().splitlines()[-1:]
    return found[-1].strip()[:LONGEST] if found else f"exit code {run.ended.code}"


def place(run: Run, copy_name: str) -> tuple[str, int] | None:
    """The innermost line of the project in the traceback."""
    mark = f"/{copy_name}/project/"
    inside = [(name.partition(mark)[2], int(line)) for name, line in FRAME.findall(run.ended.errors) if mark in name]
    return inside[-1] if inside else None
