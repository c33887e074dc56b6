"""Wording: texts for people, in log lines, errors and terminals."""

from __future__ import annotations

import difflib
import math
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable


_DIGITS = re.compile(r"\d+")
_NEAR = 0.75  # the least similarity, from 0 to 1, of a misspelt word: 'pgae' is 'page'


def one_line(value: Any) -> str:
    """Return a value's text as it may stand in one line of a log or a terminal.

    Newlines, control characters (C0, C1, DEL), marks that turn the direction of text, other
    invisible characters and lone surrogates are escaped as Python escapes them: what a website sent
    can neither forge a line nor steer a terminal.
    """
    text = str(value)
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape", "surrogatepass").decode()
        for char in text
    )


def format_period(seconds: float) -> str:
    """Write a number of seconds for people, in its largest unit and the next: "3d 4h", "12m"."""
    if not math.isfinite(seconds):
        return "ever"
    rest = max(0, round(seconds))
    units = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))
    first = next((n for n, (_, size) in enumerate(units) if rest >= size), len(units) - 1)
    parts = []
    for unit, size in units[first : first + 2]:
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{unit}")
    return " ".join(parts) or "0s"


def format_size(size: int) -> str:
    """Write a number of bytes for people: `12 kB`, `1.25 GB`; units are decimal."""
    found = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if found < 1000:  # noqa: PLR2004 - decimal units
            return f"{found:.3g} {unit}"
        found /= 1000
    return f"{found:.3g} TB"


def closest(word: str, known: Iterable[str]) -> str:
    """Return a hint such as `; did you mean 'category'?`, or nothing."""
    near = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def near_miss(word: str, known: Iterable[str]) -> str | None:
    """Return the word that is meant if this one is misspelt; None: it resembles none of them.

    Words that differ in digits alone, such as days, are other words.
    """
    letters = _DIGITS.sub("", word)
    others = [one for one in known if _DIGITS.sub("", one) != letters]
    return next(iter(difflib.get_close_matches(word, others, n=1, cutoff=_NEAR)), None)
