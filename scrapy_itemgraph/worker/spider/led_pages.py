"""Pages whose redirects lead to one and the same page: many of them are doubtful."""

from __future__ import annotations

import shlex
from collections import Counter
from dataclasses import dataclass, field

from scrapy_itemgraph.model import page_names
from scrapy_itemgraph.tools import logs

logger = logs.logger(__name__)

MOST = 10  # pages of a slot that lead to one page without a warning
_MOST_TARGETS = 1000  # of a slot that are counted


@dataclass(slots=True, eq=False, repr=False)
class LedPages:
    """Counts, in this process, which known pages redirects lead to; warns once of each slot."""

    _targets: dict[str, Counter[str]] = field(default_factory=dict)
    _said: set[str] = field(default_factory=set)

    def led(self, slot: str, name: str, url: str) -> None:
        """Take note that a page of a slot led to a known page, of this name and URL."""
        if slot in self._said:
            return
        targets = self._targets.setdefault(slot, Counter())
        targets[name] += 1
        if targets[name] > MOST:
            given = url if page_names.plain_name(url) == name else name
            self._said.add(slot)
            del self._targets[slot]
            logger.warning(
                "More than %d pages of %s led to %s, a page that the crawl has, and count as done "
                "without their callback (outcome known). If that is a login or an error page, "
                "have them fetched again once that is mended: scrapy itemgraph handle --led-to %s",
                MOST,
                slot,
                url,
                shlex.quote(given),
                extra={"action": "many_known", "slot": slot, "url": url},
            )
        elif len(targets) > _MOST_TARGETS:  # those that few lead to are let go
            self._targets[slot] = Counter(dict(targets.most_common(_MOST_TARGETS // 2)))
