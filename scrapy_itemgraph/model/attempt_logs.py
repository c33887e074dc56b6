"""What a callback logged about its item, as it is kept with the attempt."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

LEVELS = ("error", "warn", "info", "debug")  # categories that are shown by default
MOST_BYTES = 8192  # of a line, in UTF-8
MOST_OF_CATEGORY = 100  # bytes
_CUT = " […]"


class LogLine(NamedTuple):
    """A line of `item.log`; `seconds` is how long after the claim it came."""

    seconds: float
    category: str
    message: str


def as_json(lines: Sequence[LogLine]) -> str | None:
    """Return the JSON that is stored; None without lines."""
    return json.dumps([line._asdict() for line in lines]) if lines else None


def cut(text: str, most: int = MOST_BYTES) -> str:
    """Return a text as it can be stored: without NUL and lone surrogates, in so many bytes.

    What is cut is marked.
    """
    # A character is a byte at least, so what comes after the first `most + 1` is cut anyway.
    stored = text[: most + 1].replace("\0", "\N{SYMBOL FOR NULL}").encode(errors="replace")
    if len(stored) <= most:
        return stored.decode()
    return stored[: most - len(_CUT.encode())].decode(errors="ignore") + _CUT
