"""Downloader slots: how Scrapy keeps each one, by its settings and AutoThrottle."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from scrapy_itemgraph.model.limits import MANY, SlotTerms, Terms
from scrapy_itemgraph.model.rates import SHORTEST_GAP, usable_gap
from scrapy_itemgraph.worker import scrapy_internals

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scrapy.core.downloader import Slot
    from scrapy.crawler import Crawler
    from scrapy.settings import BaseSettings

    from scrapy_itemgraph.throttle.limiter import Limiter


class DownloaderSlots:
    """How Scrapy keeps its slots, as the settings say and AutoThrottle has them."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        settings = crawler.settings
        self._by_slot = settings.getdict("DOWNLOAD_SLOTS")
        self._has_throttle = settings.getbool("AUTOTHROTTLE_ENABLED")
        self._formula = AutoThrottle(settings)
        self._concurrency = settings.getint("CONCURRENT_REQUESTS_PER_IP") or settings.getint(
            "CONCURRENT_REQUESTS_PER_DOMAIN"
        )

    def terms(self, name: str) -> Terms:
        """Return how a slot is kept; with Scrapy's jitter its gaps are not below their least."""
        downloader = self._downloader
        return self._terms(downloader, name, self._live(downloader).get(name))

    def all_terms(self) -> SlotTerms:
        """Return how all slots are kept just now."""
        downloader = self._downloader
        live = self._live(downloader)
        usual = self._default_delay(downloader), self._concurrency
        own = self._by_slot.keys() | {
            name for name, one in live.items() if (one.delay, one.concurrency) != usual
        }
        return SlotTerms(
            self._terms(downloader, "", None),
            {name: self._terms(downloader, name, live.get(name)) for name in own},
        )

    @property
    def _downloader(self) -> Any:
        engine = self._crawler.engine
        return None if engine is None else engine.downloader

    @staticmethod
    def _live(downloader: Any) -> Mapping[str, Slot]:
        return {} if downloader is None else downloader.slots

    def _terms(self, downloader: Any, name: str, slot: Slot | None) -> Terms:
        given = self._by_slot.get(name, {})
        if slot is not None:
            delay, concurrency = slot.delay, slot.concurrency
        else:
            delay = given.get("delay", self._default_delay(downloader))
            concurrency = given.get("concurrency", self._concurrency)
        return _terms(delay, concurrency, self._jitter(downloader, given))

    def delay(self, limiter: Limiter) -> float | None:
        """Return the delay that AutoThrottle gives a slot; None where it has none to tell."""
        slot = self._slot(limiter.key[1]) if self._has_throttle else None
        return float(slot.delay) if slot is not None and slot is limiter.adopted_by else None

    def adopt(self, limiter: Limiter) -> None:
        """Go on with the delay that AutoThrottle left, here or elsewhere, in Scrapy's slot."""
        slot = self._slot(limiter.key[1]) if self._has_throttle else None
        if slot is None or (slot is limiter.adopted_by and not limiter.adopts):
            return
        if limiter.throttle is not None:
            slot.delay = self._formula.bounded(limiter.throttle)
        limiter.adopted_by, limiter.adopts = slot, False

    def _slot(self, name: str) -> Slot | None:
        return self._live(self._downloader).get(name)

    def _default_delay(self, downloader: Any) -> float:
        delay = scrapy_internals.default_delay(downloader, self._crawler.spider)
        return self._crawler.settings.getfloat("DOWNLOAD_DELAY") if delay is None else delay

    def _jitter(self, downloader: Any, given: Any) -> float:
        if "jitter" in given:
            return float(given["jitter"])
        if "randomize_delay" in given:
            return 0.5 if given["randomize_delay"] else 0.0
        jitter = scrapy_internals.default_jitter(downloader)
        if jitter is not None:
            return float(jitter)
        return 0.5 if self._crawler.settings.getbool("RANDOMIZE_DOWNLOAD_DELAY") else 0.0


@lru_cache(maxsize=10_000)
def _terms(delay: float, concurrency: int, jitter: float) -> Terms:
    delay = usable_gap(delay)
    gap = max(delay * (1 - jitter), SHORTEST_GAP) if delay else 0.0
    at_once = max(int(concurrency), 1) if concurrency > 0 else MANY
    return Terms(gap=gap, concurrency=at_once, delay=max(delay, gap))


class AutoThrottle:
    """AutoThrottle's formula and settings, for the delays of tasks."""

    def __init__(self, settings: BaseSettings) -> None:
        self.least = settings.getfloat("DOWNLOAD_DELAY")
        self.most = settings.getfloat("AUTOTHROTTLE_MAX_DELAY")
        self.first = max(self.least, settings.getfloat("AUTOTHROTTLE_START_DELAY"))
        self._target = settings.getfloat("AUTOTHROTTLE_TARGET_CONCURRENCY") or 1.0

    def bounded(self, delay: float) -> float:
        """Return a delay within the bounds that the settings give."""
        return min(max(self.least, delay), self.most)

    def adjusted(self, delay: float, latency: float, status: int) -> float:
        """Return the delay that follows from a response, as Scrapy's extension computes it."""
        target = latency / self._target
        new = self.bounded(max(target, (delay + target) / 2))
        # Errors are quick to answer: they never make it shorter.
        return delay if status != 200 and new <= delay else new  # noqa: PLR2004 - HTTP's OK
