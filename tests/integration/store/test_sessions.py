"""Sessions in the database: the last write wins, nobody deadlocks, and one worker logs in."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa
from support.plans import explaining, touched
from support.races import Crawl

from scrapy_itemgraph.model.cookies import MAX_KEY_BYTES, Cookie
from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.store import cookies as stored_cookies
from scrapy_itemgraph.store import logins, spider_state
from scrapy_itemgraph.store.registry import workers

pytestmark = pytest.mark.server

HOST = "www.shop.example"


class Nothing:
    """A spider without tasks."""


@pytest.fixture
def crawl(engine) -> Crawl:
    """Make a crawl."""
    return Crawl(engine, Nothing)


def cookie(name: str, value: str | None = '{"value": "1"}', **given: Any) -> Cookie:
    """Return a cookie of the default jar."""
    return Cookie(**{"jar": "null", "domain": HOST, "path": "/"} | given, name=name, cookie=value)


def save(crawl: Crawl, *cookies: Cookie, **state: str | None) -> None:
    """Save and commit."""
    with crawl.engine.begin() as connection:
        stored_cookies.save(connection, crawl.id, cookies)
        spider_state.save(connection, crawl.id, state)


def cookies(crawl: Crawl, *wanted: tuple[str, str]) -> list[Cookie]:
    """Return the cookies of (jar, host) pairs."""
    with crawl.engine.begin() as connection:
        pairs = dict.fromkeys(wanted or [("null", HOST)])
        return stored_cookies.load(connection, crawl.id, pairs)[0]


def state(crawl: Crawl) -> dict[str, str | None]:
    """Return the stored state."""
    with crawl.engine.begin() as connection:
        return spider_state.load(connection, crawl.id)[0]


def test_cookies_come_back_as_they_were(crawl):
    """A cookie is read as it was saved, byte for byte, also one that was deleted."""
    odd = '{"value":  "\\u0000 \\ud800 \N{SNOWMAN}", "expires": 1e3}'
    given = [cookie("a", odd), cookie("b", None), cookie("c", path="/c")]

    save(crawl, *given)

    assert sorted(cookies(crawl), key=lambda one: one.name) == given


def test_only_the_cookies_of_the_wanted_jars_and_hosts_are_read(crawl):
    """A claim reads what its hosts could be sent, from their jars, in this crawl."""
    mine = [
        cookie("host"),
        cookie("dot", domain=f".{HOST}"),
        cookie("parent", domain=".shop.example"),
        cookie("bare", domain="shop.example"),
        cookie("local", domain="localhost.local", jar="1"),
        cookie("ip", domain="127.0.0.1"),
    ]
    others = [
        cookie("a", domain=".other.example"),
        cookie("b", domain="www2.shop.example"),
        cookie("c", jar="1"),
        cookie("d", domain=".example"),
    ]
    save(crawl, *mine, *others)
    save(Crawl(crawl.engine, Nothing, "another"), cookie("e"))

    found = cookies(
        crawl, ("null", HOST), ("null", HOST), ("1", "localhost"), ("null", "127.0.0.1")
    )

    assert sorted(one.name for one in found) == sorted(one.name for one in mine)


def test_nothing_wanted_reads_nothing(crawl):
    """A claim without requests, and a commit without changes, send no statement."""
    with crawl.engine.begin() as connection:
        statements = []
        sa.event.listen(connection, "before_execute", lambda *given: statements.append(given))

        stored_cookies.save(connection, crawl.id, [])
        spider_state.save(connection, crawl.id, {})
        logins.free(connection, [])
        assert stored_cookies.load(connection, crawl.id, {}) == ([], None)

    assert statements == []


def test_the_last_write_wins(crawl):
    """A cookie and a key have the value that was written last, also within one commit."""
    save(crawl, cookie("a", "1"), cookie("a", "2"), page="1", more="1")
    assert [one.cookie for one in cookies(crawl)] == ["2"]

    save(crawl, cookie("a", None), page="2", more=None)

    assert [one.cookie for one in cookies(crawl)] == [None]
    assert state(crawl) == {"page": "2", "more": None}


def test_a_longest_key_can_be_stored(crawl):
    """A key of the most bytes that are let through fits into the index, however random it is."""
    rest = MAX_KEY_BYTES - len("null" + HOST + "/")
    name = "".join(chr(33 + (n * n * 7919 + n * 31) % 90) for n in range(rest))

    save(crawl, cookie(name), **{name: "1"})

    assert cookies(crawl) == [cookie(name)]
    assert state(crawl) == {name: "1"}


@pytest.mark.parametrize("kind", ["cookies", "state"])
def test_two_writers_wait_for_each_other(crawl, pair, kind):
    """Two commits that change the same cookies or keys in another order do not deadlock."""

    def write(connection: sa.Connection, value: str, *names: str) -> None:
        if kind == "cookies":
            stored_cookies.save(connection, crawl.id, [cookie(name, value) for name in names])
        else:
            spider_state.save(connection, crawl.id, dict.fromkeys(names, value))

    one, two = pair
    one.run(write, "1", "a")
    two.start(write, "2", "b", "a")
    two.until_blocked()

    one.run(write, "1", "b")
    one.commit()
    two.resume()
    two.commit()

    stored = state(crawl) or {one.name: one.cookie for one in cookies(crawl)}
    assert stored == {"a": "2", "b": "2"}


def begin(actor, crawl: Crawl, worker: int, generation: int = 0) -> tuple[bool, int]:
    """Try to be the one that logs in, and commit."""
    answer = actor.run(logins.begin, crawl.id, worker, generation)
    actor.commit()
    return answer


def login(crawl: Crawl) -> tuple[int, int | None]:
    """Return the state of the login."""
    with crawl.engine.begin() as connection:
        return logins.state(connection, crawl.id)


def test_one_worker_logs_in_for_all(crawl, pair):
    """While a worker logs in no other does, and afterwards the session is another."""
    one, two = pair
    first, second = crawl.worker(), crawl.worker()
    assert login(crawl) == (0, None)

    assert begin(one, crawl, first) == (True, 0)
    assert begin(two, crawl, second) == (False, 0)
    assert begin(one, crawl, first) == (True, 0)
    assert login(crawl) == (0, first)

    assert one.run(logins.end, crawl.id, first, renewed=True) == 1
    one.commit()
    assert login(crawl) == (1, None)
    assert begin(two, crawl, second) == (False, 1)
    assert begin(two, crawl, second, 1) == (True, 1)


def test_a_login_that_failed_is_tried_by_another(crawl, pair):
    """A worker that could not log in leaves the session as it was, and another may try."""
    one, two = pair
    first, second = crawl.worker(), crawl.worker()
    begin(one, crawl, first)

    assert one.run(logins.end, crawl.id, first, renewed=False) == 0
    one.commit()

    assert begin(two, crawl, second) == (True, 0)
    assert crawl.rows("SELECT renewed_at FROM logins") == [(None,)]


@pytest.mark.parametrize("generation", [0, 4])
def test_of_two_workers_at_once_one_logs_in(crawl, pair, generation):
    """Two workers that begin at the same moment do not both log in, on the first time either."""
    one, two = pair
    first, second = crawl.worker(), crawl.worker()
    assert one.run(logins.begin, crawl.id, first, generation) == (True, generation)
    two.start(logins.begin, crawl.id, second, generation)
    two.until_blocked()
    one.commit()

    assert two.resume() == (False, generation)


def test_a_worker_that_began_after_the_other_had_registered_is_seen(crawl, pair):
    """Who waits for the login sees as alive a worker that registered while it waited."""
    one, two = pair
    save(crawl)
    begin(one, crawl, crawl.worker())
    one.run(logins.end, crawl.id, login(crawl)[1], renewed=False)
    one.commit()
    second = crawl.worker()
    two.pause_before(logins.BEGIN_LOGIN)
    two.start(logins.begin, crawl.id, second, 0)
    two.until_paused()

    third = crawl.worker()
    one.start(logins.begin, crawl.id, third, 0)
    one.until_blocked()
    assert two.resume() == (True, 0)
    two.commit()

    assert one.resume() == (False, 0)


@pytest.mark.parametrize("end", ["lease", "stop"])
def test_the_login_of_a_dead_worker_is_taken(crawl, pair, end):
    """A worker that died or stopped while it logged in does not hold up the others."""
    one, two = pair
    first, second = crawl.worker(), crawl.worker()
    begin(one, crawl, first)
    if end == "lease":
        crawl.expire_lease(first)
    else:
        two.run(workers.stop, first, "finished")
        two.commit()

    assert begin(two, crawl, second) == (True, 0)
    assert one.run(logins.end, crawl.id, first, renewed=True) == 0
    one.commit()

    assert login(crawl) == (0, second)


def test_the_login_of_the_dead_is_freed(crawl, pair):
    """When the claims of the dead are taken over their login is free, and no other's is."""
    one, _ = pair
    first, second = crawl.worker(), crawl.worker()
    begin(one, crawl, first)

    one.run(logins.free, [second])
    one.commit()
    assert login(crawl) == (0, first)
    one.run(logins.free, [first])
    one.commit()

    assert login(crawl) == (0, None)


FILL = """
    INSERT INTO cookies (crawl_id, jar, domain, path, name, cookie)
    SELECT :crawl, CASE WHEN n % 2 = 0 THEN 'null' ELSE CAST(n % 1000 AS text) END,
        'h' || n / 10 || '.example', '/', 'c' || n % 10, '{}'
    FROM generate_series(1, 200000) AS n
"""


@pytest.mark.parametrize("analysed", [False, True])
def test_a_claim_reads_few_cookies(crawl, analysed):
    """Of a jar with a hundred thousand cookies a claim reads those of its hosts, by the key."""
    crawl.execute("ALTER TABLE cookies SET (autovacuum_enabled = off)")
    crawl.execute(FILL, crawl=crawl.id)
    if analysed:
        crawl.execute("ANALYZE cookies")
    wanted = [("null", f"h{n}.example") for n in range(100, 125)]

    with crawl.engine.begin() as connection:
        engines.hot_path(connection)
        with explaining(connection) as explained:
            found, _ = stored_cookies.load(connection, crawl.id, dict.fromkeys(wanted))

    for plan in explained:
        (scan,) = [node for node in plan.nodes if node.get("Relation Name") == "cookies"]
        assert scan["Index Name"] in {"cookies_pkey", "cookies_changed_idx"}
        assert "domain" in scan["Index Cond"]
        assert all(touched(node) <= 200 for node in plan.nodes)
    assert len(explained) == 2
    assert len(found) == 125


MANY_OF_ONE = """
    INSERT INTO cookies (crawl_id, jar, domain, path, name, cookie, changed_at, expires_at)
    SELECT :crawl, 'null', 'www.shop.example', CASE WHEN n % 50 = 0 THEN '/' ELSE '/' || n END,
        'c' || n, '{}', clock_timestamp() - interval '1 hour', CASE
            WHEN :is_over THEN clock_timestamp() - make_interval(secs => n)
            WHEN n % 2 = 0 THEN clock_timestamp() + interval '1 hour' END
    FROM generate_series(1, 100000) AS n
"""


def read(crawl, since):
    """Return what a claim reads of the host, when, and the most rows that a step of it touched."""
    with crawl.engine.begin() as connection:
        engines.hot_path(connection)
        with explaining(connection) as explained:
            found, at = stored_cookies.load(connection, crawl.id, {("null", HOST): since})
    return found, at, max(touched(node) for plan in explained for node in plan.nodes)


def test_a_hundred_thousand_cookies_of_one_domain_are_read_once_and_in_part(crawl):
    """The first claim reads three thousand, the general ones first; the next one what changed."""
    crawl.execute(MANY_OF_ONE, crawl=crawl.id, is_over=False)

    first, at, _ = read(crawl, None)
    save(crawl, cookie("new"), cookie("c50", None))
    second, later, most = read(crawl, at)

    assert len(first) == stored_cookies.MOST_COOKIES
    assert sum(one.path == "/" for one in first) == 2000
    assert sorted((one.name, one.cookie is None) for one in second) == [
        ("c50", True),
        ("new", False),
    ]
    assert later > at
    assert most < 20


def test_expired_cookies_are_not_read_but_by_those_who_may_have_an_older_one(crawl):
    """A claim of a new host gets no expired cookie; who read before learns that one is over."""
    crawl.execute(MANY_OF_ONE, crawl=crawl.id, is_over=True)
    first, at, _ = read(crawl, None)

    save(crawl, cookie("old", expires=1.0), cookie("far", expires=1e30), cookie("gone", None))

    assert first == []
    assert sorted(one.name for one in cookies(crawl)) == ["far", "gone"]
    assert sorted(one.name for one in read(crawl, at)[0]) == ["far", "gone", "old"]
