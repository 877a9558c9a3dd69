"""Calls whose result each process has for its own: what is named by one does not have one name on all."""

from __future__ import annotations

_TABLE: dict[str, dict[str, tuple[str, ...]]] = {
    "its clock": {
        "time": ("time", "time_ns", "strftime", "ctime", "asctime", "localtime", "gmtime", "perf_counter", "monotonic"),
        "datetime": ("datetime.now", "datetime.today", "datetime.utcnow", "date.today"),
    },
    "chance": {
        "uuid": ("uuid1", "uuid4"),
        "secrets": ("token_hex", "token_urlsafe", "token_bytes", "choice", "randbelow", "randbits"),
        "os": ("urandom",),
    },
    "its own number": {"os": ("getpid", "getppid"), "threading": ("get_ident",)},
    "the machine that it runs on": {"socket": ("gethostname",), "platform": ("node",)},
    "a temporary folder of its own": {
        "tempfile": ("mkdtemp", "mktemp", "mkstemp", "TemporaryDirectory", "NamedTemporaryFile"),
    },
}  # fmt: skip
# By what each process finds it out.
OWN = {f"{module}.{name}": by for by, rows in _TABLE.items() for module, names in rows.items() for name in names}
TELLING_TIME = frozenset(["strftime", "isoformat"])  # methods of a date, whoever made it
