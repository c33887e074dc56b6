"""A URL frontier in plain Python, written from what the API says and not from the package.

Moments are whole seconds since 1970, as in the API. Where the API is silent, the model says so
where it decides.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    Metadata = tuple[tuple[str, tuple[str, ...]], ...]
    Name = tuple[str, str]  # of a queue: its crawl and its key

OK, SKIPPED = "OK", "SKIPPED"
DEFAULT = "DEFAULT"
DAY = 86_400
HOLD = 30  # seconds, unless a request says another
LAST_ORDER = 2**31 - 1  # later dates are as late as this one
# How long a queue may be passed over by who names none, though it may be served again since.
RESTS_WHEN_HELD = 1  # seconds, when as much of it was held as was asked for
RESTS_WHEN_FULL = 5  # seconds, when its limit was reached


class Item(NamedTuple):
    """A URL as it is put: `date` None: discovered, 0: never to be fetched again."""

    url: str
    key: str = ""
    crawl: str = DEFAULT
    metadata: Metadata = ()
    date: int | None = None

    @property
    def queue(self) -> str:
        """The key of its queue; empty: it has none."""
        return self.key or key_of(self.url)


class Asked(NamedTuple):
    """What GetURLs asks for: `crawl` None is any; 0 of each queue, or 0 queues, is no limit."""

    crawl: str | None = None
    key: str = ""
    of_each: int = 0
    queues: int = 0
    hold: int = 0


class Listed(NamedTuple):
    """A URL as lists have it."""

    key: str
    url: str
    metadata: Metadata
    date: int
    created: int


class Numbers(NamedTuple):
    """What GetStats tells of a queue or a crawl."""

    size: int = 0
    in_process: int = 0
    completed: int = 0
    queues: int = 0
    active_queues: int = 0


@dataclass(slots=True)
class URL:
    """A URL of a queue. It comes in the order of its `rank`, not before `opens`, unless held."""

    key: str
    url: str
    metadata: Metadata
    created: int
    date: int | None  # None: that of its discovery; 0: it is completed
    rank: tuple[int, int]  # its date, and then which call put it
    opens: int
    held_until: int = 0

    @property
    def is_completed(self) -> bool:
        return self.date == 0

    def listed(self) -> Listed:
        date = self.created if self.date is None else self.date
        return Listed(self.key, self.url, self.metadata, date, self.created)


@dataclass(slots=True)
class Queue:
    """A queue; `passed_over_for` are queues that were served while this one waited as well."""

    urls: dict[str, URL] = field(default_factory=dict)
    delay: int | None = None
    blocked_until: int = 0
    limit: int = 0
    last_served: int = 0
    rests_until: int = 0
    passed_over_for: set[str] = field(default_factory=set)

    @property
    def completed(self) -> int:
        return sum(one.is_completed for one in self.urls.values())

    @property
    def is_full(self) -> bool:
        return 0 < self.limit <= self.completed


def crawl_of(name: str) -> str:
    """Return which crawl a name means: a blank one is the default."""
    return name if name.strip() else DEFAULT


def key_of(url: str) -> str:
    """Return the key that a URL has unless one is said: its host."""
    _, has_scheme, rest = url.rpartition("://")
    authority = re.split("[/?&#]", rest)[0]
    host = authority.rpartition("@")[2] if has_scheme else authority
    return host.split(":")[0].lower()


class Frontier:
    """All queues of all crawls, and what is set for them, at some moment."""

    def __init__(self, now: int, servers: int) -> None:
        self.now = now
        self.crawls: dict[str, dict[str, Queue]] = {}
        self.default_delay = 1
        self.is_active = True
        self.are_active = [True] * servers  # each by itself
        self._places = itertools.count()

    # What is put

    def put(self, items: Iterable[Item]) -> list[str]:
        """Put URLs; the API does not say which of one call is put first."""
        place = next(self._places)
        return [self._put(one, place) for one in items]

    def _put(self, item: Item, place: int) -> str:
        key = item.queue
        if not key:
            return SKIPPED
        queue = self.crawls.setdefault(crawl_of(item.crawl), {}).setdefault(key, Queue())
        old = queue.urls.get(item.url)
        if item.date is None and old is not None:
            return SKIPPED
        # The API does not say where a URL stands among others of its new date: where it stood,
        # unless there was nothing to fetch.
        if old is not None and not old.is_completed:
            place = old.rank[1]
        if old is not None and old.is_completed and queue.limit and item.date != 0:
            queue.rests_until = 0
        queue.urls[item.url] = URL(
            key,
            item.url,
            item.metadata,
            created=self.now if old is None else old.created,
            date=item.date,
            rank=(self.now if item.date is None else min(item.date, LAST_ORDER), place),
            opens=item.date or 0,
        )
        return OK

    # What is handed out

    def is_held(self, url: URL) -> bool:
        return not url.is_completed and url.held_until > self.now

    def due(self, queue: Queue) -> list[URL]:
        """Return what a queue has to fetch now, the earliest dates first."""
        found = [
            one
            for one in queue.urls.values()
            if not one.is_completed and max(one.opens, one.held_until) <= self.now
        ]
        return sorted(found, key=lambda one: one.rank)

    def held(self, queue: Queue) -> int:
        return sum(map(self.is_held, queue.urls.values()))

    def opens_at(self, queue: Queue) -> int:
        """Return the first second at which a queue is neither blocked nor waits for its delay."""
        delay = self.default_delay if queue.delay is None else queue.delay
        return max(queue.blocked_until, queue.last_served + delay) + 1

    def scope(self, asked: Asked) -> dict[Name, Queue]:
        """Return the queues that a request is for."""
        if asked.key and asked.crawl is None:
            return {}
        wanted = None if asked.crawl is None else crawl_of(asked.crawl)
        return {
            (crawl, key): queue
            for crawl, queues in self.crawls.items()
            for key, queue in queues.items()
            if wanted in {None, crawl} and asked.key in {"", key}
        }

    def hand_out(self, asked: Asked, server: int, given: Sequence[tuple[str, str, str]]) -> None:
        """Check what a server hands out, each by crawl, key and URL; and hand it out.

        The API does not say which queues are served where fewer are asked for than wait; but none
        is served again while another one waits.
        """
        if not (self.is_active and self.are_active[server]):
            assert not given, "handed out during a pause"
            return
        scope = self.scope(asked)
        waiting = self._waiting(asked, scope)
        served: dict[Name, list[str]] = {}
        for crawl, key, url in given:
            served.setdefault((crawl, key), []).append(url)
        assert served.keys() <= waiting.keys(), "queues that are not to be served now"
        for name, urls in served.items():
            self._assert_are_first(urls, waiting[name], asked.of_each)
        must = {name for name in waiting if asked.key or scope[name].rests_until <= self.now}
        if asked.queues and len(served) >= asked.queues:
            assert len(served) == asked.queues, "more queues than are asked for"
        else:
            assert must <= served.keys(), "queues that wait and were passed over"
        if not asked.key:
            self._take_turns(scope, must, served)
        self._let_rest(asked, scope)
        for name, urls in served.items():
            self._hold(scope[name], urls, asked.hold or HOLD)

    def _waiting(self, asked: Asked, scope: Mapping[Name, Queue]) -> dict[Name, list[URL]]:
        """Return the queues that may be served, and all that is due of them."""
        return {
            name: due
            for name, queue in scope.items()
            if self.opens_at(queue) <= self.now
            and not queue.is_full
            and not self._is_enough_held(queue, asked)
            and (due := self.due(queue))
        }

    def _is_enough_held(self, queue: Queue, asked: Asked) -> bool:
        return 0 < asked.of_each <= self.held(queue)

    def _let_rest(self, asked: Asked, scope: Mapping[Name, Queue]) -> None:
        """Have queues that were perhaps looked into in vain not looked into for a while."""
        for queue in scope.values():
            rests = 0
            if self.opens_at(queue) <= self.now:
                if queue.is_full:
                    rests = RESTS_WHEN_FULL
                elif self._is_enough_held(queue, asked):
                    rests = RESTS_WHEN_HELD
            if rests:
                queue.rests_until = max(queue.rests_until, self.now + rests)
                queue.passed_over_for.clear()

    @staticmethod
    def _assert_are_first(given: Sequence[str], due: Sequence[URL], most: int) -> None:
        ranks = {one.url: one.rank for one in due}
        assert len(set(given)) == len(given), "a URL twice"
        assert set(given) <= ranks.keys(), "URLs that are not due, or are held"
        first = [one.rank for one in due][: most or None]
        assert [ranks[one] for one in given] == first, "not the first, in their order"

    @staticmethod
    def _take_turns(scope: Mapping[Name, Queue], must: set[Name], served: Iterable[Name]) -> None:
        """Show that no queue is served again while another of its crawl waits."""
        for (crawl, key), queue in scope.items():
            if (crawl, key) not in must or (crawl, key) in served:
                queue.passed_over_for.clear()
                continue
            before = {other for of, other in served if of == crawl}
            assert not queue.passed_over_for & before, f"{key} waits, and others are served again"
            queue.passed_over_for |= before

    def _hold(self, queue: Queue, urls: Iterable[str], seconds: int) -> None:
        queue.last_served = self.now
        queue.passed_over_for.clear()
        for url in urls:
            queue.urls[url].held_until = self.now + seconds
            queue.urls[url].opens = 0

    # What is set

    def _queue(self, crawl: str, key: str) -> Queue | None:
        return self.crawls.get(crawl_of(crawl), {}).get(key)

    def set_delay(self, crawl: str, key: str, seconds: int) -> None:
        """Set a queue's delay, or without a key that of all that have none of their own."""
        queue = self._queue(crawl, key)
        if not key:
            self.default_delay = seconds
            for one in self.queues():
                if one.delay is None:
                    one.rests_until = 0
        elif queue is not None:
            queue.delay, queue.rests_until = seconds, 0

    def block(self, crawl: str, key: str, until: int) -> None:
        """Block a queue through a second."""
        queue = self._queue(crawl, key)
        if queue is not None:
            queue.blocked_until, queue.rests_until = until, 0

    def limit(self, crawl: str, key: str, limit: int) -> bool:
        """Have a queue stop at so many completed URLs; False: there is no such queue."""
        queue = self._queue(crawl, key)
        if queue is not None:
            queue.limit, queue.rests_until = limit, 0
        return queue is not None

    def set_active(self, server: int, *, state: bool, local: bool) -> None:
        """Pause or resume a server, or all; all are resumed that were paused by themselves."""
        if local:
            self.are_active[server] = state
            return
        self.is_active = state
        if state:
            self.are_active = [True] * len(self.are_active)

    def are_all_active(self, server: int, *, local: bool) -> bool:
        """Tell whether a server hands URLs out, or all do."""
        return self.is_active and (self.are_active[server] if local else all(self.are_active))

    # What is forgotten

    def delete_queue(self, crawl: str, key: str) -> int:
        """Forget a queue, and what was set for it; return how many URLs it had."""
        queues = self.crawls.get(crawl_of(crawl), {})
        gone = queues.pop(key, Queue())
        if not queues:
            self.crawls.pop(crawl_of(crawl), None)
        return len(gone.urls)

    def delete_crawl(self, crawl: str) -> int:
        """Forget all queues of a crawl; return how many URLs they had."""
        return sum(len(one.urls) for one in self.crawls.pop(crawl_of(crawl), {}).values())

    def purge(self, crawl: str, key: str, days: int) -> int:
        """Forget what was created before a second so many days ago; queues stay."""
        before, number = self.now - days * DAY, 0
        for queue in self.scope(Asked(crawl, key)).values():
            old = [url for url, one in queue.urls.items() if one.created < before]
            if queue.limit and any(queue.urls[url].is_completed for url in old):
                queue.rests_until = 0
            for url in old:
                del queue.urls[url]
            number += len(old)
        return number

    # Time

    def let_pass(self, seconds: int) -> None:
        self.now += seconds

    def age(self, crawl: str, seconds: int) -> None:
        """Move the moments of a crawl back; dates that crawlers said stay as they were said."""
        for queue in self.crawls.get(crawl, {}).values():
            queue.blocked_until = max(0, queue.blocked_until - seconds)
            queue.last_served = max(0, queue.last_served - seconds)
            queue.rests_until -= seconds
            for one in queue.urls.values():
                one.created -= seconds
                one.opens -= seconds
                one.held_until -= seconds

    def next_change(self) -> int | None:
        """Return in how many seconds something may be handed out that may not be now."""
        moments = [self.opens_at(queue) for queue in self.queues()]
        moments += [
            moment
            for queue in self.queues()
            for one in queue.urls.values()
            if not one.is_completed
            for moment in (one.opens, one.held_until)
        ]
        return min((one - self.now for one in moments if one > self.now), default=None)

    # What there is

    def queues(self) -> Iterator[Queue]:
        return (queue for queues in self.crawls.values() for queue in queues.values())

    def has_work(self, queue: Queue) -> bool:
        """Tell whether a queue has something to fetch, now or later."""
        return queue.completed < len(queue.urls)

    def keys(self, crawl: str, *, include_inactive: bool) -> list[str]:
        """Return the keys of a crawl's queues, sorted; lists have them in an order that stays."""
        found = self.crawls.get(crawl_of(crawl), {}).items()
        return sorted(
            key
            for key, queue in found
            if include_inactive or (self.has_work(queue) and queue.blocked_until < self.now)
        )

    def listed(self, crawl: str, key: str = "", text: str = "", *, any_case: bool) -> list[Listed]:
        """Return the URLs of a crawl or a queue that contain a text, sorted."""
        wanted = text.strip()
        found = (
            url.listed()
            for queue in self.scope(Asked(crawl, key)).values()
            for url in queue.urls.values()
            if wanted in url.url or (any_case and wanted.lower() in url.url.lower())
        )
        return sorted(found)

    def numbers(self, crawl: str, key: str = "") -> Numbers:
        """Return how many there are of a crawl, or of a queue; of what is unknown none."""
        found = list(self.scope(Asked(crawl, key)).values())
        completed = sum(one.completed for one in found)
        return Numbers(
            sum(len(one.urls) for one in found) - completed,
            sum(map(self.held, found)),
            completed,
            len(found),
            sum(map(self.has_work, found)),
        )
