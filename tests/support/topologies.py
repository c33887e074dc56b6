"""A crawler as StormCrawler is one: spouts get URLs, and updaters put what became of them.

What they are told and when is written down, and what is wrong with it: a URL that two have, one
that comes before its date or again without one, a queue that is served within its delay, a tuple
whose ack takes too long, a call that fails. The web is made up: a page's links follow from its URL.
"""

from __future__ import annotations

import queue
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import grpc

from support import frontier
from support.frontier import Client, M

if TYPE_CHECKING:
    from collections.abc import Iterator

SPOUTS = UPDATERS = 4
QUEUES = OF_EACH = 10
HOLD = 30  # seconds
EXPIRY = 60.0  # seconds after which a tuple without an ack fails
BATCH = 100  # discovered URLs
BATCH_WITHIN = 1.0  # seconds
SLOW_DELAY = 3  # seconds between two fetches of a host that asks for it
# With the pings of whoever has a firewall that forgets idle connections.
CHANNEL = (
    ("grpc.use_local_subchannel_pool", 1),  # each has a connection of its own
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
)


@dataclass(frozen=True, kw_only=True)
class Web:
    """Hosts with pages; every fifth page is fetched again, `period` seconds later."""

    hosts: int
    pages: int  # of each host
    period: int

    def url(self, host: int, page: int) -> str:
        return f"http://h{host}.example/{page}"

    def _place(self, url: str) -> tuple[int, int]:
        host, _, page = url.removeprefix("http://h").partition(".example/")
        return int(host), int(page)

    def links(self, url: str) -> list[str]:
        """Return what a page links to: pages below it, and from a first page other hosts."""
        host, page = self._place(url)
        found = [self.url(host, one) for one in range(10 * page, 10 * page + 10)]
        near = [self.url(one, 0) for one in (3 * host + 1, 3 * host + 2, 3 * host + 3)]
        places = ((one, self._place(one)) for one in [*found, *(near if page == 0 else [])])
        return [one for one, (host, page) in places if host < self.hosts and page < self.pages]

    def date(self, url: str) -> int:
        """Return when a page that was fetched just now is fetched again; 0: never."""
        return int(time.time()) + self.period if self._place(url)[1] % 5 == 1 else 0

    def delay(self, key: str) -> int | None:
        """Return the delay that a host asks for; None: none."""
        return SLOW_DELAY if self._place(f"http://{key}/0")[0] % 10 == 7 else None


class Served(NamedTuple):
    """Between which moments a queue was served."""

    before: float
    after: float


@dataclass
class Ledger:
    """What all parts of the crawler know, and what is `wrong`. Moments are of the wall's clock."""

    default_delay: int
    wrong: list[str] = field(default_factory=list)
    told: set[str] = field(default_factory=set)  # URLs that were put
    fetched: dict[str, int] = field(default_factory=dict)  # how often, by URL
    dates: dict[str, int] = field(default_factory=dict)  # what was said last of URLs
    slowest_ack: float = 0.0
    lost_streams: int = 0
    _delays: dict[str, tuple[float, int]] = field(default_factory=dict)  # since when, and which
    _served: dict[str, Served] = field(default_factory=dict)
    _held: dict[str, float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def serve(self, before: float, infos: list[Any]) -> list[str]:
        """Take note of what a call gave since `before`; return keys that never were served yet."""
        now = Served(before, time.time())
        with self._lock:
            new = []
            for key in {one.key for one in infos}:
                last = self._served.get(key)
                self._served[key] = now
                since, slow = self._delays.get(key, (now.after, 0))
                delay = slow if last and since < last.before else self.default_delay
                if last is None:
                    new.append(key)
                elif max(now.after - last.before, last.after - now.before) < delay:
                    self.wrong.append(f"{key} is served within its delay of {delay} s")
            for one in infos:
                self._serve(one.url, now)
            return new

    def _serve(self, url: str, now: Served) -> None:
        if now.after < self._held.get(url, 0):
            self.wrong.append(f"{url} is given to a second one")
        date = self.dates.get(url)
        if date == 0 or (date is not None and now.after < date):
            self.wrong.append(f"{url} is given, but not to be fetched before {date}")
        self._held[url] = now.before + HOLD
        self.fetched[url] = self.fetched.get(url, 0) + 1

    def slow(self, key: str, delay: int) -> None:
        """Take note that a queue has a delay of its own from now on."""
        with self._lock:
            self._delays[key] = time.time(), delay

    def tell(self, url: str, date: int | None) -> bool:
        """Take note that a URL is put; False: it was discovered before."""
        with self._lock:
            is_new = url not in self.told
            self.told.add(url)
            if date is not None:
                self.dates[url] = date
                self._held.pop(url, None)
            return is_new

    def ack(self, sent: float, what: str, statuses: list[str]) -> None:
        """Take note that what was sent at a moment is acked."""
        took = time.monotonic() - sent
        with self._lock:
            self.slowest_ack = max(self.slowest_ack, took)
            if took > EXPIRY:
                self.wrong.append(f"{what} has expired: its ack took {took:.0f} s")
            if "FAIL" in statuses:
                self.wrong.append(f"{what} has failed")

    def fail(self, what: str) -> None:
        """Take note of what must not happen."""
        with self._lock:
            self.wrong.append(what)

    def lose(self) -> None:
        """Take note that a stream ended which the crawler did not end."""
        with self._lock:
            self.lost_streams += 1


class Pipe:
    """An endless stream of one method; after its end what was not acked is sent again in another.

    A server may go only where that `is_expected`.
    """

    def __init__(self, client: Client, method: str, ledger: Ledger, *, is_expected: bool) -> None:
        self._client, self._method, self._ledger = client, method, ledger
        self._is_expected = is_expected
        self._unacked: dict[str, tuple[float, Any]] = {}
        self._lock = threading.Condition()
        self._is_closed = False
        self._sent: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def send(self, message: Any) -> None:
        """Send a message, whose ID is its own."""
        with self._lock:
            self._unacked[message.ID] = time.monotonic(), message
            self._sent.put(message)

    def _read(self) -> None:
        while True:
            try:
                for ack in self._client.call(self._method)(
                    iter(self._sent.get, None), wait_for_ready=True
                ):
                    self._take(ack)
            except grpc.RpcError as error:
                self._ledger.lose()
                if not self._is_expected:
                    self._ledger.fail(f"a stream of {self._method} ended: {error}")
                    return
            with self._lock:
                if self._is_closed and not self._unacked:
                    return
                self._sent.put(None)  # whoever still reads the stream that ended
                self._sent = queue.SimpleQueue()
                for _, message in self._unacked.values():
                    self._sent.put(message)
                if self._is_closed:
                    self._sent.put(None)

    def _take(self, ack: Any) -> None:
        is_batch = self._method == "PutDiscovered"
        statuses = [frontier.status(one) for one in (ack.statuses if is_batch else [ack.status])]
        with self._lock:
            sent, _ = self._unacked.pop(ack.ID)
            self._lock.notify_all()
        self._ledger.ack(sent, f"{self._method} {ack.ID}", statuses)

    def close(self) -> None:
        """Send nothing more, and wait for all acks."""
        with self._lock:
            self._is_closed = True
            self._sent.put(None)
        self._reader.join(2 * EXPIRY)
        if self._unacked or self._reader.is_alive():
            self._ledger.fail(f"{len(self._unacked)} of {self._method} were never acked")


class Updater:
    """Puts what became of URLs, and what their pages link to: one by one, or by the hundred."""

    def __init__(
        self, address: str, web: Web, ledger: Ledger, *, in_batches: bool, is_expected: bool
    ) -> None:
        self.web, self.ledger = web, ledger
        self._client = Client(address, *CHANNEL)
        self._number = 0
        self._known = Pipe(self._client, "PutURLs", ledger, is_expected=is_expected)
        self._batches = (
            Pipe(self._client, "PutDiscovered", ledger, is_expected=is_expected)
            if in_batches
            else None
        )
        self._gathered: list[Any] = []
        self._since = time.monotonic()
        self._given: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def take(self, url: str) -> None:
        """Have a URL that was fetched put."""
        self._given.put(url)

    def discover(self, url: str) -> None:
        """Put a URL that was found, unless it was before."""
        if not self.ledger.tell(url, None):
            return
        if self._batches is None:
            self._known.send(frontier.discovered(url, name=self._name()))
        else:
            self._gathered.append(frontier.info(url))

    def _name(self) -> str:
        self._number += 1
        return str(self._number)

    def _work(self) -> None:
        while True:
            try:
                url = self._given.get(timeout=BATCH_WITHIN / 2)
            except queue.Empty:
                url = ""
            if url is None:
                self._flush()
                return
            if url:
                for link in self.web.links(url):
                    self.discover(link)
                date = self.web.date(url)
                self.ledger.tell(url, date)
                self._known.send(frontier.known(url, date, name=self._name()))
            is_late = time.monotonic() - self._since > BATCH_WITHIN
            if len(self._gathered) >= BATCH or is_late:
                self._flush()

    def _flush(self) -> None:
        self._since = time.monotonic()
        if self._batches is not None and self._gathered:
            given, self._gathered = self._gathered, []
            self._batches.send(M["DiscoveredBatch"](ID=f"batch-{self._name()}", items=given))

    def close(self) -> None:
        """Put what there is, and wait for all acks."""
        self._given.put(None)
        self._thread.join(2 * EXPIRY)
        for pipe in (self._known, self._batches):
            if pipe is not None:
                pipe.close()
        self._client.close()


class Spout:
    """Gets URLs again and again, not more often than once in a while, until it is told to end."""

    def __init__(
        self, address: str, updaters: list[Updater], pause: float, *, is_expected: bool
    ) -> None:
        self._client = Client(address, *CHANNEL)
        self._updaters = updaters
        self._pause = pause
        self._is_expected = is_expected
        self._ledger = updaters[0].ledger
        self._is_ending = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def _work(self) -> None:
        while not self._is_ending.wait(self._pause):
            before, got = time.time(), []
            asked = M["GetParams"](
                max_urls_per_queue=OF_EACH, max_queues=QUEUES, delay_requestable=HOLD
            )
            try:
                for one in self._client.call("GetURLs")(asked, wait_for_ready=True):
                    got.append(one)  # noqa: PERF402 - what came before an error has come
            except grpc.RpcError as error:
                if not self._is_expected:
                    self._ledger.fail(f"GetURLs failed: {error}")
            self._set_delays(self._ledger.serve(before, got))
            for one in got:
                self._updaters[hash(one.key) % len(self._updaters)].take(one.url)

    def _set_delays(self, keys: list[str]) -> None:
        """Tell the delays that robots.txt of hosts asks for, as they are met for the first time."""
        for key in keys:
            delay = self._updaters[0].web.delay(key)
            if delay is None:
                continue
            try:
                self._client.ask("SetDelay", key=key, crawlID="DEFAULT", delay_requestable=delay)
            except grpc.RpcError as error:
                if not self._is_expected:
                    self._ledger.fail(f"SetDelay failed: {error}")
            else:
                self._ledger.slow(key, delay)

    def end(self) -> None:
        self._is_ending.set()

    def close(self) -> None:
        """End it; what it has got is with the updaters then."""
        self.end()
        self._thread.join(2 * EXPIRY)
        self._client.close()


@contextmanager
def crawling(
    address: str, web: Web, *, pause: float, default_delay: int, is_expected: bool = False
) -> Iterator[Ledger]:
    """Crawl from one page on, and at the end wait until all acks have come.

    Servers may end and come back only where that `is_expected`.
    """
    ledger = Ledger(default_delay)
    updaters = [
        Updater(address, web, ledger, in_batches=bool(number % 2), is_expected=is_expected)
        for number in range(UPDATERS)
    ]
    updaters[0].discover(web.url(0, 0))
    spouts = [Spout(address, updaters, pause, is_expected=is_expected) for _ in range(SPOUTS)]
    try:
        yield ledger
    finally:
        for spout in spouts:
            spout.end()
        for one in (*spouts, *updaters):
            one.close()
