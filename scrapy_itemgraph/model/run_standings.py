"""How a run of a crawl stands, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

_UNSEEN = ("died", "stalled")  # ends of which nobody knows the moment


def standing(
    state: str, started_at: datetime, ended_at: datetime | None, reason: str | None
) -> str:
    """Say how a run stands, and since or until when: `stopped 2026-03-01 07:34:41Z (shutdown)`.

    Of one whose worker was killed it says when a worker was seen last, which is what `ended_at` is.
    """
    if ended_at is None:
        return f"{state} since {_moment(started_at)}"
    if reason in _UNSEEN:
        return f"{state} ({reason}; last seen {_moment(ended_at)})"
    why = "" if reason in {None, state} else f" ({reason})"
    return f"{state} {_moment(ended_at)}{why}"


def _moment(value: datetime) -> str:
    return f"{value:%Y-%m-%d %H:%M:%S}Z"
