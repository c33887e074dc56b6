"""How many of a website's last answers say that their pages are gone: too many are doubtful."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from scrapy_itemgraph.tools import logs

logger = logs.logger(__name__)

LAST = 500  # answers of a slot that are looked at
MOST = 100  # of these, pages that are gone: a fifth


@dataclass(slots=True)
class _Slot:
    """The answers of a slot since the first page of it was gone."""

    answers: int = 1
    gone: deque[int] = field(default_factory=deque)  # which of them, the latest last


@dataclass(slots=True, eq=False, repr=False)
class GoneShares:
    """Watches the last answers of each slot, of this process; warns once of each with too many."""

    _slots: dict[str, _Slot] = field(default_factory=dict)
    _said: set[str] = field(default_factory=set)

    def answered(self, slot: str) -> None:
        """Take note of an answer; what it says is noted after that, if the page is gone."""
        watched = self._slots.get(slot)
        if watched is not None:
            watched.answers += 1

    def found_gone(self, slot: str) -> None:
        """Take note that the last answer said that its page is gone."""
        watched = self._slots.setdefault(slot, _Slot())
        watched.gone.append(watched.answers)
        if slot not in self._said and self.are_doubtful(slot):
            self._said.add(slot)
            logger.warning(
                "%d of the last %d answers of %s say that their pages are gone "
                "(ITEMGRAPH_ANSWERS). Tasks with max_failures take such answers for failures from "
                "here on. If the pages are there, the website has changed or refuses this crawl: "
                "stop it, find out, and have them fetched again with scrapy itemgraph handle "
                "--gone",
                len(watched.gone),
                min(watched.answers, LAST),
                slot,
                extra={"action": "many_gone", "slot": slot, "gone": len(watched.gone)},
            )

    def are_doubtful(self, slot: str) -> bool:
        """Tell whether more than a fifth of a slot's last answers say that their pages are gone."""
        watched = self._slots.get(slot)
        if watched is None:
            return False
        while watched.gone and watched.gone[0] <= watched.answers - LAST:
            watched.gone.popleft()
        return len(watched.gone) > MOST
