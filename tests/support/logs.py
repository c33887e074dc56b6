"""What no process that a test starts may leave in its log, unless the test says so.

That is a task or coroutine that nobody waited for, and a traceback that nobody expects. A test
that makes one names it: `@pytest.mark.tracebacks("ValueError: no title")`, by any text of it. Texts
of other marks, such as a module's, count too.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

FORGOTTEN = ("never retrieved", "never awaited")
# Scrapy asks the internet once for what domains are public, and goes on without an answer.
_OF_OTHERS = ("/public_suffix_list.dat",)
_BEGIN = "Traceback (most recent call last)"
_CHAINED = re.compile(
    r"(During handling of the above exception, another exception occurred"
    r"|The above exception was the direct cause of the following exception):\s*$"
)
_RECORD = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\b|\w[\w.]*:\d+: \w*Warning: ")
_watched: list[Path] = []
_taken: list[str] = []


def watch(log: Path) -> None:
    """Have a log looked at when the test has ended."""
    _watched.append(log)


def take(log: str) -> str:
    """Have the text of a log looked at when the test has ended; return it."""
    _taken.append(log)
    return log


def gather() -> None:
    """Read the logs that are watched, before their directory is gone."""
    for log in _watched:
        if log.exists():
            take(log.read_text(errors="replace"))
    _watched.clear()


def complaints(expected: Collection[str]) -> list[str]:
    """Return what stands in the logs that were given and should not, and forget them."""
    gather()
    found = [complaint for text in _taken for complaint in of_text(text, expected)]
    _taken.clear()
    return found


def of_text(log: str, expected: Collection[str] = ()) -> Iterator[str]:
    """Go over what stands in a log and should not; `expected` are parts of what may."""
    lines = log.splitlines()
    for number, line in enumerate(lines):
        if any(words in line for words in FORGOTTEN) and not any(text in line for text in expected):
            yield "\n".join(lines[number : number + 20])
    for traceback in tracebacks(lines):
        if not any(text in traceback for text in (*expected, *_OF_OTHERS)):
            yield f"a traceback that nobody expects:\n{traceback}"


def tracebacks(lines: Collection[str]) -> Iterator[str]:
    """Go over the tracebacks of a log, each with what it is chained to and the line before it."""
    block: list[str] = []
    before = ""
    for line in lines:
        begins = _BEGIN in line
        is_chained = begins and bool(block) and any(map(_CHAINED.search, block[-3:]))
        if block and (_RECORD.match(line) or (begins and not is_chained)):
            yield "\n".join(block)
            block = []
        if block:
            block.append(line)
        elif begins:
            block = [before, line]
        if line.strip():
            before = line
    if block:
        yield "\n".join(block)
