"""Answers of websites that a project knows the meaning of: pages that are gone are no failures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

GONE = "gone"
"""The page is no more: its pair is held, and there is no failure."""

_MEANINGS = (GONE,)
_STATUSES = range(300, 600)  # callbacks get what is below
_EXAMPLE = 'write a dict such as {404: "gone"}'


def read_answers(given: Any, what: str) -> Mapping[int, str]:
    """Return what each HTTP status means; JSON has statuses as text.

    Raises:
        ValueError: there is no such status or meaning, or callbacks get pages of that status.
        TypeError: it is no dict.

    """
    if not isinstance(given, Mapping):
        raise TypeError(f"{what}: {_EXAMPLE}, not {given!r:.80}")
    return {_status(status, what): _meaning(meaning, what) for status, meaning in given.items()}


def _status(given: Any, what: str) -> int:
    number = int(given) if isinstance(given, str) and given.isdecimal() else given
    if isinstance(number, bool) or not isinstance(number, int) or number not in _STATUSES:
        raise ValueError(
            f"{what} has the status {given!r:.80}; it may have {_STATUSES[0]} to {_STATUSES[-1]}, "
            "for pages of all others go to their callbacks"
        )
    return number


def _meaning(given: Any, what: str) -> str:
    if given not in _MEANINGS:
        raise ValueError(
            f"{what} has the answer {given!r:.80}; the only one that there is is {GONE!r}"
        )
    return str(given)
