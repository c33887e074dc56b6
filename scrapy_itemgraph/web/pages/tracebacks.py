"""Tracebacks as they are read: the project's own line stands out among those of libraries."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import groupby
from typing import Any

_FRAME = re.compile(r'  File "(?P<file>.+)", line (?P<line>\d+)(?:, in (?P<function>.+))?')
_WITHIN = "    "  # how far what belongs to a frame is indented at least


@dataclass(frozen=True, slots=True)
class Piece:
    """Some lines of a traceback; `is_own`: those of the project's function that raised it."""

    text: str
    is_own: bool


@dataclass(frozen=True, slots=True)
class Traceback:
    """A traceback in pieces; `file` and `line` are of the project's own line, where it has one."""

    pieces: list[Piece]
    file: str = ""
    line: int | None = None


def of_error(error: Any) -> Traceback | None:
    """Return a recorded error's traceback, or None; its own line is that of the error's place."""
    if not isinstance(error, dict):
        return None
    text = str(error.get("traceback") or "").rstrip()
    if not text:
        return None
    lines = text.split("\n")
    place = str(error.get("place") or "")
    own = next((at for at in reversed(range(len(lines))) if _is_of(lines[at], place)), None)
    if own is None:
        return Traceback([Piece(text, is_own=False)])
    end = next((at for at in range(own + 1, len(lines)) if not _is_within(lines[at])), len(lines))
    pieces = [
        Piece("\n".join(lines[at] for at in places), is_own)
        for is_own, places in groupby(range(len(lines)), lambda at: own <= at < end)
    ]
    found = _FRAME.fullmatch(lines[own])
    assert found is not None
    return Traceback(pieces, re.split(r"[/\\]", found["file"])[-1], int(found["line"]))


def _is_within(line: str) -> bool:
    """Whether a line belongs to the frame before it: its source, and marks below that."""
    return line.startswith(_WITHIN) or not line.strip()


def _is_of(line: str, place: str) -> bool:
    """Whether a line names a frame of a function, by its module and name: `books.spider.S.parse`.

    A frame has the function's own name, or in newer Pythons all of it.
    """
    found = _FRAME.fullmatch(line)
    if found is None or not place:
        return False
    names = place.split(".")
    if (found["function"] or "").split(".")[-1] != names[-1]:
        return False
    module = re.split(r"[/\\]", found["file"].removesuffix(".py").removesuffix("/__init__"))
    return any(names[: len(module) - at] == module[at:] for at in range(len(module)))
