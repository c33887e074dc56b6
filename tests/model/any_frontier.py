"""A URL frontier to which anything happens, twice: in the model, and on servers over gRPC."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import grpc
import sqlalchemy as sa
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from model.frontier_model import DAY, DEFAULT, Asked, Frontier, Item, Listed, Numbers, crawl_of
from support import frontier, moved_clocks, oracle
from support.frontier import M
from support.projects import until

from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.store.admin import crawl_changes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from support.frontier import Client

SERVERS = 2
TIMES = 100  # so much slower than time the database's clock is
ALL = 2**31 - 1
_FRESH = (
    "DELETE FROM work",
    "DELETE FROM aliases",
    "DELETE FROM items",
    "DELETE FROM crawls",
    "UPDATE frontier SET is_active = true, default_delay = 1",
    "UPDATE frontier_nodes SET is_active = true",
)

# The lock of those who do the duties of crawls that nobody runs.
_ATTEND = "SELECT pg_advisory_lock(CAST('runs'::regclass::oid AS int), id) FROM crawls"

# Few names, so that calls meet.
CRAWLS = [DEFAULT, "other"]
given_crawls = st.sampled_from([DEFAULT, DEFAULT, "", "  ", "other"])
asked_crawls = given_crawls | st.sampled_from(["none"])
given_keys = st.sampled_from(["", "", "", "a.example", "k:%"])
asked_keys = st.sampled_from(["a.example", "b.example", "k:%", "none"])
scopes = st.just("") | asked_keys
urls = st.sampled_from(
    [
        "http://a.example/1",
        "http://a.example/2",
        "http://A.example:80/Three",
        "https://user@a.example?four",
        "http://b.example/1",
        "b.example/2",
        "http://?x",
    ]
)
metadata = st.sampled_from([(), (), (("depth", ("1",)),), (("depth", ("2",)), ("path", ("a", "")))])
filters = st.sampled_from(["", "  ", "1", "A.EX", "three", "http://a", "no such"])
# Seconds from now on; those far from it are dates of their own.
offsets = st.sampled_from([-10_000, -1, 0, 0, 1, 2, 5, 40])
dates = st.sampled_from([0, 0, 0, 1, 2, 2**31 + 5, 2**64 - 1])
few = st.sampled_from([0, 0, 1, 1, 2, 3])
holds = st.sampled_from([0, 1, 2, 600])
requests = st.builds(
    Asked,
    st.none() | st.sampled_from([DEFAULT, DEFAULT, "", "other", "none"]),
    st.sampled_from(["", "", "", "a.example", "b.example", "k:%", "none"]),
    few,
    few,
    holds,
)
settings = st.one_of(
    st.tuples(st.just("delay"), st.sampled_from([0, 1, 2, 60])),
    st.tuples(st.just("block"), st.sampled_from([None, -1, 0, 1, 30, DAY])),
    st.tuples(st.just("limit"), st.integers(0, 3)),
)
pages = st.tuples(st.integers(0, 3), st.integers(0, 3))  # where it begins, and its size
sides = st.integers(0, SERVERS - 1)
rarely = st.sampled_from([False] * 9 + [True])


class Servers:
    """Servers of one database, whose clock is slow, and what the database has of them."""

    def __init__(self, database: str, engine: sa.Engine) -> None:
        self.engine = engine
        self._database = database
        self._keeper = engine.execution_options(isolation_level="AUTOCOMMIT").connect()
        self._stacks = [ExitStack() for _ in range(SERVERS)]
        self._running = [self._start(number) for number in range(SERVERS)]

    def _start(self, number: int) -> frontier.Frontier:
        return self._stacks[number].enter_context(frontier.serving(self._database))

    def client(self, number: int) -> Client:
        """Return a client of a server."""
        return self._running[number].client

    def restart(self, number: int, how: signal.Signals) -> None:
        """End a server, and start another in its place."""
        self._running[number].stop(how)
        self._stacks[number].close()
        self._running[number] = self._start(number)
        addresses = sorted(one.address for one in self._running)

        def listed() -> list[str]:
            return sorted(self.client(number).ask("ListNodes").values)

        until(lambda: listed() == addresses, lambda: f"{listed()}, not {addresses}")

    def begin_anew(self) -> int:
        """Forget all there is; return which second begins now."""
        with self.engine.begin() as connection:
            for statement in _FRESH:
                connection.exec_driver_sql(statement)
        self._keeper.exec_driver_sql("SELECT pg_advisory_unlock_all()")
        return self.let_pass(1)

    def let_pass(self, seconds: int) -> int:
        """Let time pass to the beginning of a second; return which it is.

        Servers renew their leases by a clock that was not moved: they do it at once. Whoever does
        duties of a crawl would have work locked at moments that a history cannot tell: nobody does.
        """
        self._keeper.exec_driver_sql(_ATTEND)
        with self.engine.begin() as connection:
            renewed = "UPDATE processes SET lease_until = lease_until + make_interval(secs => :by)"
            connection.execute(sa.text(renewed), {"by": seconds})
        return moved_clocks.to_second(self.engine, seconds)

    def age(self, crawl: str, seconds: int) -> None:
        """Move the moments of a crawl back, as `scrapy itemgraph age` does."""
        with self.engine.begin() as connection:
            found = connection.execute(
                sa.text("SELECT id FROM crawls WHERE name = :name"), {"name": crawl}
            ).scalar()
            if found is not None:
                crawl_changes.age(connection, found, timedelta(seconds=seconds))

    def assert_worklists_are_true(self) -> None:
        """Show that the work of each crawl is what is outstanding of it."""
        with self.engine.begin() as connection:
            for crawl in connection.exec_driver_sql("SELECT id FROM crawls").scalars().all():
                oracle.assert_worklist_is_true(connection, crawl)

    def close(self) -> None:
        """End all servers."""
        for stack in self._stacks:
            stack.close()
        self._keeper.close()
        self.engine.dispose()


def opened(database: str) -> Servers:
    """Start servers of a database that the test has for itself."""
    moved_clocks.install(database)
    moved_clocks.slow(database, TIMES)
    return Servers(database, engines.sync_engine(database))


@st.composite
def items(draw: Any) -> list[tuple[Item, int | None]]:
    """Draw URLs to be put, and of those whose date is near now how far from it it is."""
    found = []
    for _ in range(draw(st.integers(1, 5))):
        offset = draw(st.none() | st.none() | offsets)
        date = draw(dates) if offset is None and draw(st.booleans()) else None
        found.append(
            (Item(draw(urls), draw(given_keys), draw(given_crawls), draw(metadata), date), offset)
        )
    return found


class AnyFrontier(RuleBasedStateMachine):
    """A frontier to which anything happens, twice; `servers` are the test's."""

    servers: Servers

    @initialize(dates=st.lists(st.sampled_from([None, None, 0, 1, 5]), min_size=12, max_size=12))
    def begin(self, dates: list[int | None]) -> None:
        """Have some queues with some URLs: new ones, completed ones, and dated ones."""
        self.model = Frontier(self.servers.begin_anew(), SERVERS)
        self.steps = 0
        places = [*[("a.example", DEFAULT), ("b.example", DEFAULT), ("k:%", DEFAULT)] * 3]
        places += [("a.example", "other"), ("b.example", "other"), ("a.example", "other")]
        self._put(
            0,
            [
                Item(f"http://a.example/{at % 5}", key, crawl, (), date)
                for at, ((key, crawl), date) in enumerate(zip(places, dates, strict=True))
            ],
        )
        self._let_pass(2)

    # What is put

    def _put(self, side: int, given: Iterable[Item]) -> None:
        named = {str(at): one for at, one in enumerate(given)}
        expected = dict(zip(named, self.model.put(named.values()), strict=True))
        sent = [_message(one, name) for name, one in named.items()]
        assert dict(self.servers.client(side).put(*sent)) == expected

    @rule(side=sides, given=items(), crawl=st.none() | given_crawls)
    def put(self, side: int, given: list[tuple[Item, int | None]], crawl: str | None) -> None:
        """Put URLs, discovered and known ones; of one crawl alone: discovered ones, at once."""
        if crawl is None:
            now = self.model.now
            self._put(
                side, [one if by is None else one._replace(date=now + by) for one, by in given]
            )
            return
        discovered = [one._replace(date=None, crawl=crawl) for one, _ in given]
        batch = M["DiscoveredBatch"](ID="b", items=[_info(one) for one in discovered])
        told = self.servers.client(side).put_batches(batch, M["DiscoveredBatch"](ID="probe"))
        assert dict(told) == {"b": self.model.put(discovered), "probe": []}

    # What is handed out

    def _get(self, side: int, asked: Asked) -> list[Any]:
        fields = {
            "max_urls_per_queue": asked.of_each,
            "max_queues": asked.queues,
            "key": asked.key,
            "delay_requestable": asked.hold,
        }
        if asked.crawl is not None:
            fields["crawlID"] = asked.crawl
        got = self.servers.client(side).ask("GetURLs", **fields)
        for one in got:
            known = self.model.crawls[one.crawlID][one.key].urls[one.url]
            assert _metadata(one) == known.metadata
        self.model.hand_out(asked, side, [(one.crawlID, one.key, one.url) for one in got])
        return got

    @rule(side=sides, asked=requests)
    def get(self, side: int, asked: Asked) -> None:
        """Get URLs of a queue, of a crawl, or of any."""
        self._get(side, asked)

    @rule(
        two=st.tuples(sides, sides),
        asked=requests,
        rounds=st.integers(1, 4),
        by=st.sampled_from([None, 0, 0, 3]),
        seconds=st.integers(0, 3),
    )
    def crawl_on(
        self, two: tuple[int, int], asked: Asked, rounds: int, by: int | None, seconds: int
    ) -> None:
        """Get URLs, and put them as a crawler does that has fetched them, again and again."""
        for _ in range(rounds):
            got = self._get(two[0], asked)
            date = 0 if by is None else self.model.now + by
            fetched = [Item(one.url, one.key, one.crawlID, _metadata(one), date) for one in got]
            if fetched:
                found = Item(f"{fetched[0].url}/more", fetched[0].key, fetched[0].crawl)
                self._put(two[1], [*fetched, found])
            self._let_pass(seconds)

    # What is set

    def _set_delay(self, side: int, crawl: str, key: str, seconds: int) -> None:
        self.model.set_delay(crawl, key, seconds)
        self._ask(side, "SetDelay", crawlID=crawl, key=key, delay_requestable=seconds)

    def _block(self, side: int, crawl: str, key: str, by: int | None) -> None:
        moment = 0 if by is None else self.model.now + by
        self.model.block(crawl, key, moment)
        self._ask(side, "BlockQueueUntil", crawlID=crawl, key=key, time=moment)

    def _limit(self, side: int, crawl: str, key: str, limit: int) -> None:
        is_there = self.model.limit(crawl, key, limit)
        fields = {"crawlID": crawl, "key": key, "limit": limit}
        assert self._refusal(side, "SetCrawlLimit", **fields) == (
            None if is_there else grpc.StatusCode.NOT_FOUND
        )

    def _set_active(self, side: int, *, state: bool, local: bool) -> None:
        self.model.set_active(side, state=state, local=local)
        self._ask(side, "SetActive", state=state, local=local)

    @rule(side=sides, crawl=asked_crawls, key=scopes, what=settings)
    def set_something(self, side: int, crawl: str, key: str, what: tuple[str, int | None]) -> None:
        """Set a delay, a block or a limit of a queue, or the delay of all."""
        how, number = what
        if how == "block":
            self._block(side, crawl, key or "none", number)
        elif how == "limit":
            self._limit(side, crawl, key or "none", number or 0)
        else:
            self._set_delay(side, crawl, key, number or 0)

    @rule(side=sides, local=st.booleans(), asked=requests, how_it_ends=st.sampled_from("ssgn"))
    def pause(self, side: int, local: bool, asked: Asked, how_it_ends: str) -> None:
        """Pause a server or all, look who gives URLs, and mostly resume it, or all."""
        self._set_active(side, state=False, local=local)
        for one in range(SERVERS):
            self._get(one, asked)
        self._compare_activity()
        if how_it_ends != "n":
            self._set_active(side, state=True, local=local and how_it_ends == "s")
            self._compare_activity()

    def _compare_activity(self) -> None:
        for side, local in ((0, False), (0, True), (1, True)):
            told = self._ask(side, "GetActive", local=local).state
            assert told == self.model.are_all_active(side, local=local)

    @rule(
        side=sides,
        at=st.integers(0, 5),
        how=st.sampled_from(["block", "delay", "limit", "hold"]),
        then=st.sampled_from(
            ["delete", "delete all", "put", "purge", "age", "let go", "wait", "wait"]
        ),
    )
    def shut_and_open(self, side: int, at: int, how: str, then: str) -> None:
        """Have a queue looked into in vain, then do what may open it, and look again."""
        names = [(crawl, key) for crawl in CRAWLS for key in self.model.crawls.get(crawl, {})]
        if not names:
            return
        crawl, key = names[at % len(names)]
        url = f"http://{crawl}/{at % 2}"
        self._put(side, [Item(url, key, crawl, (), 0), Item(f"{url}/more", key, crawl)])
        shut = {
            "block": lambda: self._block(side, crawl, key, 40),
            "delay": lambda: (self._set_delay(side, crawl, key, 60), self._get(side, Asked(crawl))),
            "limit": lambda: self._limit(side, crawl, key, 1),
            "hold": lambda: self._get(side, Asked(crawl, key, 1, 0, 600)),
        }
        opened = {
            "delete": lambda: self._delete_queue(side, crawl, key),
            "delete all": lambda: self._delete_crawl(side, crawl),
            "put": lambda: self._put(side, [Item(url, key, crawl, (), 1)]),
            "purge": lambda: (self._let_pass(1), self._purge(side, crawl, key, 0)),
            "age": lambda: self._age(crawl, 45),
            "let go": lambda: (
                self._block(side, crawl, key, None),
                self._limit(side, crawl, key, 0),
                self._set_delay(side, crawl, key, 0),
            ),
            "wait": lambda: self._wait_until_it_opens(side, crawl, key),
        }
        shut[how]()
        self._get(side, Asked(crawl, "", 1))
        opened[then]()
        self._put(side, [Item(f"{url}/again", key, crawl)])
        self._get(1 - side, Asked(crawl))

    def _wait_until_it_opens(self, side: int, crawl: str, key: str) -> None:
        """Look into a queue in the last second of its block, delay and holds, and go on."""
        queue = self.model.crawls[crawl][key]
        held = [one.held_until for one in queue.urls.values()]
        for moment in sorted({self.model.opens_at(queue), *held}):
            for second in (moment - 1, moment):
                if second > self.model.now:
                    self._let_pass(second - self.model.now)
                self._get(side, Asked(crawl, key, 0, 0, 5))

    # What is forgotten

    def _delete_queue(self, side: int, crawl: str, key: str) -> None:
        told = self._ask(side, "DeleteQueue", crawlID=crawl, key=key).value
        assert told == self.model.delete_queue(crawl, key)

    def _delete_crawl(self, side: int, crawl: str) -> None:
        told = self._ask(side, "DeleteCrawl", value=crawl).value
        assert told == self.model.delete_crawl(crawl)

    def _purge(self, side: int, crawl: str, key: str, days: int) -> None:
        told = self._ask(side, "PurgeURLs", crawlID=crawl, key=key, days=days).value
        assert told == self.model.purge(crawl, key, days)

    @rule(
        side=sides,
        crawl=asked_crawls,
        key=scopes,
        how=st.sampled_from(["queue", "queue", "crawl", "0 days", "1 day", "2 days"]),
    )
    def forget(self, side: int, crawl: str, key: str, how: str) -> None:
        """Delete a queue or a crawl, or purge what is old."""
        if how == "queue":
            self._delete_queue(side, crawl, key)
        elif how == "crawl":
            self._delete_crawl(side, crawl)
        else:
            self._purge(side, crawl, key, int(how[0]))

    # Time, and servers that end

    def _let_pass(self, seconds: int) -> None:
        if seconds:
            self.model.let_pass(seconds)
            assert self.servers.let_pass(seconds) == self.model.now

    def _age(self, crawl: str, seconds: int) -> None:
        self.model.age(crawl, seconds)
        self.servers.age(crawl, seconds)

    @rule(seconds=st.sampled_from([1, 2, 3, 6, 31, 700, DAY + 1]))
    def let_time_pass(self, seconds: int) -> None:
        self._let_pass(seconds)

    @rule(off=st.sampled_from([-1, 0, 0, 1]), asked=requests)
    def let_time_pass_to_what_comes_next(self, off: int, asked: Asked) -> None:
        """Go to the second at which something may be handed out, or to that before or after."""
        seconds = self.model.next_change()
        if seconds is not None and 0 < seconds + off < 10 * DAY:
            self._let_pass(seconds + off)
        self._get(0, asked)

    @rule(crawl=st.sampled_from(CRAWLS), seconds=st.sampled_from([1, 5, 45, 2 * DAY]))
    def age(self, crawl: str, seconds: int) -> None:
        """Have a crawl be older than it is."""
        self._age(crawl, seconds)

    @rule(side=sides, how=st.sampled_from([signal.SIGTERM, signal.SIGKILL]), is_meant=rarely)
    def restart(self, side: int, how: signal.Signals, is_meant: bool) -> None:
        """Have another server in the place of one; its own pause ends with it."""
        if is_meant:
            self.servers.restart(side, how)
            self.model.are_active[side] = True

    # What there is

    @rule(
        side=sides,
        crawl=asked_crawls,
        key=scopes,
        wanted=st.tuples(filters, st.booleans()),
        page=pages,
    )
    def list_a_page_of_urls(
        self, side: int, crawl: str, key: str, wanted: tuple[str, bool], page: tuple[int, int]
    ) -> None:
        """Count URLs, list them all, and a page of them, which is a part of that."""
        (text, any_case), (start, size) = wanted, page
        fields = {"crawlID": crawl, "key": key, "filter": text, "ignoreCase": any_case}
        listed = self.model.listed(crawl, key, text, any_case=any_case)
        assert self._ask(side, "CountURLs", **fields).value == len(listed)
        found = self._listed(side, size=ALL, **fields)
        assert sorted(found) == listed
        part = self._listed(side, start=start, size=size, **fields)
        assert part == found[start : start + (size or 100)]

    @rule(
        side=sides,
        crawl=asked_crawls,
        inactive=st.booleans(),
        page=pages,
    )
    def list_a_page_of_queues(
        self, side: int, crawl: str, inactive: bool, page: tuple[int, int]
    ) -> None:
        """List the keys of all queues, and a page of them, which is a part of that."""
        start, size = page
        fields = {"crawlID": crawl, "include_inactive": inactive}
        found = list(self._ask(side, "ListQueues", size=ALL, **fields).values)
        assert sorted(found) == self.model.keys(crawl, include_inactive=inactive)
        part = self._ask(side, "ListQueues", start=start, size=size, **fields)
        assert list(part.values) == found[start : start + (size or 100)]
        said = (part.start, part.size, part.total, part.crawlID)
        assert said == (start, len(part.values), 0, crawl_of(crawl))

    @rule(side=sides, crawl=asked_crawls, key=given_keys, url=urls)
    def look_at_a_url(self, side: int, crawl: str, key: str, url: str) -> None:
        """Ask for a URL, which may not be there, or have no queue; and how many its queue has."""
        assert self._numbers(side, crawl, key) == self.model.numbers(crawl, key)
        fields = {"crawlID": crawl, "key": key, "url": url}
        item = Item(url, key, crawl)
        if not item.queue:
            assert self._refusal(side, "GetURLStatus", **fields) is (
                grpc.StatusCode.INVALID_ARGUMENT
            )
            return
        there = [
            one for one in self.model.listed(crawl, item.queue, any_case=False) if one.url == url
        ]
        if there:
            assert _listed(self._ask(side, "GetURLStatus", **fields)) == there[0]
        else:
            assert self._refusal(side, "GetURLStatus", **fields) is grpc.StatusCode.NOT_FOUND

    @invariant()
    def they_are_the_same(self) -> None:
        """Compare numbers of all crawls, and from time to time crawls, queues and URLs."""
        self.steps += 1
        for side, crawl in enumerate(CRAWLS):
            assert self._numbers(side, crawl) == self.model.numbers(crawl)
            if self.steps % 4:
                continue
            assert sorted(self._ask(side, "ListCrawls").values) == sorted(self.model.crawls)
            found = sorted(self._listed(side, crawlID=crawl, size=ALL))
            assert found == self.model.listed(crawl, any_case=False)
            keys = self._ask(side, "ListQueues", crawlID=crawl, size=ALL, include_inactive=True)
            assert sorted(keys.values) == self.model.keys(crawl, include_inactive=True)

    def teardown(self) -> None:
        self.servers.assert_worklists_are_true()

    # How it is asked

    def _ask(self, side: int, method: str, **fields: Any) -> Any:
        return self.servers.client(side).ask(method, **fields)

    def _refusal(self, side: int, method: str, **fields: Any) -> Any:
        """Return the code that a call is refused with; None: it is not."""
        try:
            self._ask(side, method, **fields)
        except grpc.RpcError as error:
            return error.code()
        return None

    def _listed(self, side: int, **fields: Any) -> list[Listed]:
        return list(map(_listed, self._ask(side, "ListURLs", **fields)))

    def _numbers(self, side: int, crawl: str, key: str = "") -> Numbers:
        told = self._ask(side, "GetStats", crawlID=crawl, key=key)
        assert told.crawlID == crawl_of(crawl)
        counts = dict(told.counts)
        assert counts.keys() == {"completed", "active_queues"}
        return Numbers(
            told.size,
            told.inProcess,
            counts["completed"],
            told.numberOfQueues,
            counts["active_queues"],
        )


def _info(one: Item) -> Any:
    return frontier.info(one.url, key=one.key, crawl=one.crawl, metadata=dict(one.metadata))


def _message(one: Item, name: str) -> Any:
    if one.date is None:
        return M["URLItem"](discovered=M["DiscoveredURLItem"](info=_info(one)), ID=name)
    known = M["KnownURLItem"](info=_info(one), refetchable_from_date=one.date)
    return M["URLItem"](known=known, ID=name)


def _metadata(info: Any) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return tuple(sorted((name, tuple(one.values)) for name, one in info.metadata.items()))


def _listed(one: Any) -> Listed:
    assert one.WhichOneof("item") == "known"
    assert not one.ID
    info = one.known.info
    return Listed(
        info.key, info.url, _metadata(info), one.known.refetchable_from_date, one.creation_date
    )
