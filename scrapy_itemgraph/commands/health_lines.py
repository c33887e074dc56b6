"""Which crawls of a list are not well, and why, in sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_itemgraph.commands import printing
from scrapy_itemgraph.model import counts
from scrapy_itemgraph.model.health import Health

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_MOST = 10
_ORDER = list(Health)


def below(crawls: Iterable[tuple[str, Health, str]]) -> Iterator[str]:
    """Yield why crawls (name, health, why) are not well, broken ones first, below their table."""
    found = [one for one in crawls if one[1] is not Health.GREEN]
    if found:
        yield ""
    for name, health, why in sorted(found, key=lambda one: _ORDER.index(one[1]))[:_MOST]:
        yield from printing.sentence(why, f"{printing.clean(name)} ({health.word}): ")
    if len(found) > _MOST:
        yield f"({counts.many(len(found) - _MOST, 'more crawl')}; --json has why)"
