"""What a server that does not start says of it in its log, and what to do then."""

from __future__ import annotations

import re
from dataclasses import dataclass

_RECORD = re.compile(r"^[^\n]*? \[\d+\] (?P<level>[A-Z]+):  (?P<text>.*(?:\n\t.*)*)", re.MULTILINE)
_OF_A_FILE = re.compile(r" in file |\bparameter \"")
# FATAL to a client alone, which is told to come again.
_OF_A_CONNECTION = re.compile(
    r"the database system is (starting up|shutting down|in recovery mode|not )"
    r"|terminating .*(connection|process) "
)
_STARTING = "starting PostgreSQL"
_NO_START = "could not start server"
_ENDS = {"FATAL", "PANIC"}  # levels of what ends a server
_MORE = {"DETAIL", "HINT"}  # levels of what is said of the record before
_NAMELESS = "contains errors"  # so ends a record whose errors stand before it, at LOG

ADVICE = (
    ("No space left on device", "Free space on the disk of {directory}"),
    (_NAMELESS, "Put these lines right, or remove them"),
    (
        "shared memory",
        "Say shared_buffers = 128MB at the end of {directory}/cluster/postgresql.conf",
    ),
    ("Permission denied", "Give {directory} back to the account that made it"),
    ("pg_control", "{damaged}"),
    ("checkpoint record", "{damaged}"),
)
"""What to do, by a part of what the server says."""

_DAMAGED = (
    "Files of the database are damaged: bring {directory} back from a copy; or remove "
    "{directory}/cluster, which begins with an empty graph, and `scrapy itemgraph load` a dump"
)
_ANYTHING = "Put right what it says"


@dataclass(frozen=True, slots=True)
class Record:
    """A record of the log: its level, such as FATAL, and its text in one line."""

    level: str
    text: str

    def __str__(self) -> str:
        return self.text if self.level == "LOG" else f"{self.level}: {self.text}"


def last_words(log: str) -> str:
    """Return what ended a server: the last FATAL or PANIC with its details; "" without one.

    `log` is what it wrote, with `%m [%p] ` before each record.
    """
    records = [Record(m["level"], " ".join(m["text"].split())) for m in _RECORD.finditer(log)]
    ends = [
        number
        for number, one in enumerate(records)
        if one.level in _ENDS and not _OF_A_CONNECTION.match(one.text)
    ]
    if not ends:
        return ""
    first, after = ends[-1], ends[-1] + 1
    if records[first].text.endswith(_NAMELESS):
        while first and _OF_A_FILE.search(records[first - 1].text):
            first -= 1
    while after < len(records) and records[after].level in _MORE:
        after += 1
    return "; ".join(map(str, records[first:after]))


def was_killed(log: str, output: str) -> bool:
    """Tell whether a server began to start, and ended without a word; `output` is pg_ctl's."""
    has_begun = not log.strip() or _STARTING in log
    return has_begun and _NO_START in output and not last_words(log)


def advice(said: str, directory: object) -> str:
    """Return what a person can do about the last words of a server in a directory, a sentence."""
    found = next((what for part, what in ADVICE if part in said), _ANYTHING)
    whole = found.format(directory=directory, damaged=_DAMAGED.format(directory=directory))
    return f"{whole}, then try again."
