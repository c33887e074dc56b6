"""How a run of a crawl stands, and what the next one does with a page, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_itemgraph.model import counts, moments
from scrapy_itemgraph.model.next_commands import KEEPS_DONE

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
        return f"{state} since {moments.to_second(started_at)}"
    if reason in _UNSEEN:
        return f"{state} ({reason}; last seen {moments.to_second(ended_at)})"
    why = "" if reason in {None, state} else f" ({reason})"
    return f"{state} {moments.to_second(ended_at)}{why}"


def left_out(long_links: int, url_limit: int | None) -> str | None:
    """Say how many links were longer than URLLENGTH_LIMIT; None where none was."""
    if not long_links:
        return None
    limit = "" if url_limit is None else f" ({url_limit:,})"
    were = "was" if long_links == 1 else "were"
    return f"{counts.many(long_links, 'link')} longer than URLLENGTH_LIMIT{limit} {were} left out"


def fetches_again(following: str) -> str:
    """Say of a plain page that is done, and has no time to live, which run fetches it again."""
    return (
        f"{following} fetches it again when it comes to it, unless ITEMGRAPH_DEFAULT_TTL "
        f"(-s {KEEPS_DONE}) or ITEMGRAPH_CALLBACKS says how long it stays done"
    )
