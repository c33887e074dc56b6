"""Cookie jars and `spider.state` of a process: what changed, what is saved, what is put back."""

from __future__ import annotations

import copy
import gc
import json
import time
from datetime import UTC, datetime

import pytest
from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.downloadermiddlewares.cookies import CookiesMiddleware
from scrapy.http import Response
from scrapy.http.cookies import potential_domain_matches

from scrapy_itemgraph.model.cookies import Cookie, domains
from scrapy_itemgraph.worker.spider.cookies import KNOWN_HOSTS, Jars, State

SITE = "https://www.shop.example/"


class Browser:
    """A process: Scrapy's middleware, its jars, and ours beside them."""

    def __init__(self, *, cookies_enabled=True):
        self.crawler = Crawler(Spider, {"COOKIES_ENABLED": cookies_enabled})
        self.middleware = CookiesMiddleware()
        found = self.middleware if cookies_enabled else None
        self.crawler.get_downloader_middleware = lambda kind: found
        self.jars = Jars(self.crawler)

    def fetch(self, *set_cookies, url=SITE, noted=True, **options):
        """Fetch a page that sets these cookies; return the cookies that were sent."""
        request = Request(url, **options)
        self.middleware.process_request(request)
        headers = {"Set-Cookie": list(set_cookies)}
        self.middleware.process_response(request, Response(url, headers=headers))
        if noted:
            self.jars.note(request)
        return dict(
            pair.split("=", 1)
            for pair in request.headers.get("Cookie", b"").decode().split("; ")
            if pair
        )

    def commit(self):
        """Return what has to be saved, and note that it was."""
        cookies = self.jars.unsaved()
        self.jars.saved(cookies)
        return cookies

    def load(self, cookies, url=SITE, **options):
        """Merge cookies as a claim of a request does."""
        self.jars.merge(self.jars.wanted([Request(url, **options)]), cookies)

    def attributes(self, jar=None):
        """Return all that is known of each cookie of a jar."""
        return [vars(copy.deepcopy(cookie)) for cookie in self.middleware.jars[jar]]


@pytest.fixture
def browser():
    """Return a process."""
    return Browser()


@pytest.fixture
def other():
    """Return another process."""
    return Browser()


def names(cookies):
    """Return the names of changed cookies, those deleted with a minus."""
    return sorted(f"{'' if one.cookie else '-'}{one.name}" for one in cookies)


@pytest.mark.parametrize(
    "host",
    ["www.a.shop.example", "shop.example", "localhost", "127.0.0.1", "a.co.uk", "x.local", "a.b."],
)
def test_the_domains_of_a_host_are_those_that_scrapy_looks_at(host):
    """A host's domains are those whose cookies Scrapy's jar considers for it, and no others."""
    if host == "127.0.0.1":
        expected = {host, f".{host}"}
    else:
        expected = set(potential_domain_matches(host))
        if "." not in host:
            expected.update(potential_domain_matches(f"{host}.local"))

    assert set(domains(host)) == expected


@pytest.mark.parametrize(
    ("url", "where"),
    [
        ("http://localhost:8000/", ""),
        ("http://127.0.0.1:8000/", ""),
        (SITE, ""),
        (SITE, "; Domain=www.shop.example"),
        (SITE, "; Domain=shop.example"),
    ],
)
def test_a_spider_that_logged_in_is_logged_in_in_another_process(browser, other, url, where):
    """What a response set is sent by another process that has read it."""
    browser.fetch(f"session=abc{where}", url=url)

    other.load(browser.commit(), url=url)

    assert other.fetch(url=url) == {"session": "abc"}
    assert other.jars.unsaved() == []


def test_every_attribute_of_a_cookie_is_kept(browser, other):
    """Cookies come back with all their attributes, of the session or with a time."""
    browser.fetch(
        "plain=1",
        "empty=",
        "bare",
        'quoted="a b; c"',
        "wide=\N{SNOWMAN}",
        "timed=1; Max-Age=1000",
        "dated=1; Expires=Wed, 01 Jan 2110 10:00:00 GMT",
        "closed=1; Secure; HttpOnly; SameSite=Lax; Path=/shop; Domain=shop.example",
        "odd=1; Version=1; Port=443; Comment=hello; Mine=yes",
    )
    before = browser.attributes()

    other.load(browser.commit())

    assert other.attributes() == before
    assert len(before) >= 8


def test_only_what_differs_from_the_usual_is_stored(browser):
    """A usual cookie takes little room."""
    browser.fetch("session=abc")

    (cookie,) = browser.jars.unsaved()

    assert cookie.cookie == '{"value": "abc"}'


def test_a_cookie_is_unsaved_until_a_commit_has_saved_it(browser):
    """A commit that fails leaves its cookies to the next."""
    browser.fetch("a=1", "b=1")
    taken = browser.jars.unsaved()

    assert names(browser.jars.unsaved()) == ["a", "b"]
    browser.jars.saved(taken)

    assert browser.jars.unsaved() == []


def test_all_is_saved_and_read_again_for_a_database_that_lacks_it(browser):
    """What was saved before counts as unsaved again, and hosts as not read."""
    browser.fetch("a=1", "b=1")
    browser.commit()
    browser.jars.merge(browser.jars.wanted([Request(SITE)]), [], datetime.now(UTC))

    browser.jars.save_again()

    assert names(browser.jars.unsaved()) == ["a", "b"]
    assert set(browser.jars.wanted([Request(SITE)]).pairs.values()) == {None}


def test_a_cookie_changed_during_a_commit_stays_unsaved(browser):
    """The commit of an older value does not make a newer one saved."""
    browser.fetch("a=1", "b=1")
    taken = browser.jars.unsaved()
    browser.fetch("a=2")

    browser.jars.saved(taken)

    (left,) = browser.jars.unsaved()
    assert json.loads(left.cookie)["value"] == "2"


def test_the_same_value_again_is_no_change(browser):
    """A site or a spider that sets the same cookie with each page causes no writes."""
    browser.fetch("a=1", cookies={"b": "1"})
    browser.commit()

    browser.fetch("a=1", cookies={"b": "1"})

    assert browser.jars.unsaved() == []


def test_cookies_of_a_request_are_saved_too(browser):
    """What a request's own `cookies` put into the jar is noted when its fetch ends."""
    browser.fetch(cookies={"currency": "USD"})

    assert names(browser.jars.unsaved()) == ["currency"]


def test_a_deleted_cookie_is_deleted_elsewhere(browser, other):
    """A site's log-out reaches the other processes."""
    browser.fetch("session=abc", "kept=1")
    other.load(browser.commit())
    browser.fetch("session=; Max-Age=0")

    assert names(browser.jars.unsaved()) == ["-session"]
    other.load(browser.commit())

    assert other.fetch() == {"kept": "1"}
    assert other.jars.unsaved() == []


def test_a_cookie_that_expired_is_not_deleted_elsewhere(browser):
    """A cookie whose time is over vanishes without a word: others may have renewed it."""
    browser.fetch("a=1; Max-Age=1000")
    browser.commit()
    (cookie,) = browser.middleware.jars[None]
    cookie.expires = 1
    browser.middleware.jars[None].jar.clear_expired_cookies()

    browser.fetch()
    assert browser.jars.unsaved() == []

    renewed = stored("a", value="2", expires=int(time.time()) + 1000, discard=False)
    browser.load([renewed])
    assert browser.fetch() == {"a": "2"}


def test_an_expired_cookie_is_not_put_back(browser):
    """A stored cookie whose time is over takes no room in a jar."""
    browser.load([stored("a", value="1", expires=1, discard=False)])

    assert len(browser.middleware.jars[None]) == 0


def stored(name, jar="null", domain="www.shop.example", **attributes):
    """Return a cookie as the database has it."""
    text = json.dumps(attributes) if attributes else None
    return Cookie(jar=jar, domain=domain, path="/", name=name, cookie=text)


def test_an_unsaved_cookie_is_not_overwritten(browser):
    """What is set here and not yet committed is newer than what was read."""
    browser.fetch("a=new")

    browser.load([stored("a", value="old")])

    assert browser.fetch() == {"a": "new"}


def test_a_cookie_set_by_a_fetch_under_way_is_not_overwritten(browser):
    """What was set in the jar and is not yet noted is not lost by a claim."""
    browser.fetch("a=1")
    browser.commit()
    browser.fetch("a=2", noted=False)

    browser.load([stored("a", value="1")])
    browser.fetch()

    assert [json.loads(one.cookie)["value"] for one in browser.jars.unsaved()] == ["2"]


def test_a_read_that_was_overtaken_by_a_commit_changes_nothing(browser):
    """A cookie saved while a claim was being read is not set back to what the claim saw."""
    browser.fetch("a=1")
    (old,) = browser.commit()
    browser.fetch("a=2")
    read = browser.jars.wanted([Request(SITE)])
    browser.commit()

    browser.jars.merge(read, [old])

    assert browser.fetch() == {"a": "2"}


def test_every_read_under_way_leaves_alone_what_was_saved_meanwhile(browser):
    """Two claims may read at once; what both read is older than what a commit saved."""
    reads = [browser.jars.wanted([Request(SITE)]) for _ in range(2)]
    browser.fetch("a=2")
    browser.commit()
    for read in reads:
        browser.jars.merge(read, [stored("a", value="1")])

    assert browser.fetch() == {"a": "2"}


def test_a_read_that_was_given_up_is_forgotten(browser):
    """A claim that failed leaves nothing behind."""
    read = browser.jars.wanted([Request(SITE)])
    assert len(browser.jars._reads) == 1

    del read
    gc.collect()

    assert len(browser.jars._reads) == 0


def test_a_stored_cookie_takes_the_place_of_a_saved_one(browser):
    """What another process wrote later is used from the next claim on."""
    browser.fetch("a=1")
    browser.commit()

    browser.load([stored("a", value="2")])

    assert browser.fetch() == {"a": "2"}
    assert browser.jars.unsaved() == []


@pytest.mark.parametrize("key", [1, "user", ("user", 2), None])
def test_jars_are_kept_apart(browser, other, key):
    """Each jar has its own cookies, whatever its key is."""
    browser.fetch("a=1", meta={"cookiejar": key})
    browser.fetch("a=2", meta={"cookiejar": "another"})
    cookies = browser.commit()
    read = other.jars.wanted([Request(SITE, meta={"cookiejar": key})])

    other.jars.merge(read, [one for one in cookies if (one.jar, "www.shop.example") in read.pairs])

    assert other.fetch(meta={"cookiejar": key}) == {"a": "1"}
    assert list(other.middleware.jars) == [key]


def test_a_jar_that_cannot_be_stored_stays_in_the_process(browser, caplog):
    """A jar key without a stored form is named once, and the crawl goes on."""
    key = object()
    for _ in range(2):
        assert browser.jars.wanted([Request(SITE, meta={"cookiejar": key})]).pairs == {}
        browser.fetch("a=1", meta={"cookiejar": key})
    browser.jars.note(Request(SITE, meta={"cookiejar": []}))

    assert browser.jars.unsaved() == []
    assert browser.fetch(meta={"cookiejar": key}) == {"a": "1"}
    assert caplog.text.count("Cannot save the cookie jar") == 1


@pytest.mark.parametrize("name", ["n" * 2000, "\0"])
def test_a_cookie_that_the_database_refuses_is_left_out(browser, caplog, name):
    """A cookie with an endless or impossible name does not make a commit fail."""
    browser.fetch("short=1")
    (cookie,) = browser.middleware.jars[None]
    for value in "12":
        long = copy.copy(cookie)
        long.name, long.value = name, value
        browser.middleware.jars[None].set_cookie(long)
        browser.fetch()

    assert names(browser.jars.unsaved()) == ["short"]
    assert caplog.text.count("Cannot save the cookie") == 1


def test_requests_without_cookies_are_left_alone(browser):
    """A request with `dont_merge_cookies`, or without a host, asks for none and changes none."""
    meta = {"dont_merge_cookies": True}
    read = browser.jars.wanted([Request(SITE, meta=meta), Request("file:///tmp/page.html")])
    browser.fetch("a=1", meta=meta)

    assert read.pairs == {}
    assert browser.jars.unsaved() == []


def test_claims_ask_for_each_host_once(browser):
    """A claim asks for each pair of a jar and a host once."""
    requests = [Request(f"{SITE}{n}") for n in range(5)]
    requests.append(Request("http://a.example/", meta={"cookiejar": 1}))

    read = browser.jars.wanted(requests)

    assert list(read.pairs) == [("null", "www.shop.example"), ("1", "a.example")]


def test_few_hosts_are_remembered_as_read(browser):
    """A broad crawl does not fill the memory with the hosts that it read."""
    requests = [Request(f"http://h{n}.example/") for n in range(KNOWN_HOSTS + 5)]

    moment = datetime(2026, 3, 1, tzinfo=UTC)
    browser.jars.merge(browser.jars.wanted(requests), [], moment)

    read = browser.jars.wanted([requests[0], requests[-1]])
    assert list(read.pairs.values()) == [None, moment]


def test_other_domains_of_a_jar_are_not_looked_at(browser):
    """A note looks at the domains of its host, however many others the jar has."""
    browser.fetch("a=1", url="http://a.example/", noted=False)
    browser.fetch("b=1", url="http://b.example/")

    assert names(browser.jars.unsaved()) == ["b"]
    browser.fetch(url="http://a.example/")
    assert names(browser.jars.unsaved()) == ["a", "b"]


def test_without_the_middleware_all_is_a_no_op():
    """With COOKIES_ENABLED off nothing is noted, asked for or merged."""
    browser = Browser(cookies_enabled=False)

    browser.fetch("a=1")
    browser.load([])

    assert browser.jars.unsaved() == []
    assert browser.jars.wanted([Request(SITE)]).pairs == {}


def test_before_the_engine_is_there_all_is_a_no_op():
    """A crawler without an engine has no jars yet, and is asked again later."""
    crawler = Crawler(Spider)
    jars = Jars(crawler)
    assert jars.wanted([Request(SITE)]).pairs == {}

    crawler.get_downloader_middleware = lambda kind: CookiesMiddleware()

    assert jars.wanted([Request(SITE)]).pairs


@pytest.fixture
def spider():
    """Return a spider that has no state yet."""
    return Spider("books")


def state_of(spider):
    """Return the state of a spider, by a clock that stands still: no dump of it takes long."""
    return State(spider, clock=lambda: 0.0)


def commit(state):
    """Save what changed, and return it."""
    changes = state.changed()
    state.saved(changes)
    return changes


def merge(state, rows):
    """Merge what is stored."""
    state.merge(state.reading(), rows)


def test_a_spider_gets_an_empty_state(spider):
    """`spider.state` is there, as with a JOBDIR, and costs nothing while it is empty."""
    state = state_of(spider)

    assert spider.state == {}
    assert state.changed() == {}


def test_state_comes_back_as_it_was(spider):
    """Keys and values of all storable kinds survive a restart."""
    kept = {"page": 3, 7: "seven", ("a", 1): {"x", "y"}, "raw": b"\0", "none": None, "\0": "\ud800"}
    state = state_of(spider)
    spider.state.update(kept)
    restarted = Spider("books")

    merge(State(restarted), commit(state))

    assert restarted.state == kept


def test_only_changed_keys_are_saved(spider):
    """A key is saved when its value has become another, also inside a list."""
    state = state_of(spider)
    spider.state.update(page=1, todo=[1])
    assert commit(state) == {'"page"': "1", '"todo"': "[1]"}
    assert commit(state) == {}

    spider.state["todo"].append(2)

    assert commit(state) == {'"todo"': "[1, 2]"}


def test_all_of_a_state_is_saved_again_for_a_database_that_lacks_it(spider):
    """Also keys that have not changed since they were saved."""
    state = state_of(spider)
    spider.state["page"] = 1
    saved = commit(state)

    state.save_again()

    assert state.changed() == saved


def test_a_state_is_unsaved_until_a_commit_has_saved_it(spider):
    """A commit that fails leaves its keys to the next, and a later change stays unsaved."""
    state = state_of(spider)
    spider.state["page"] = 1
    changes = state.changed()
    assert state.changed() == changes
    spider.state["page"] = 2

    state.saved(changes)

    assert state.changed() == {'"page"': "2"}


def test_a_deleted_key_is_deleted_elsewhere(spider):
    """A key that was deleted is saved as such once, and vanishes from other processes."""
    state, other = state_of(spider), Spider("books")
    spider.state.update(a=1, b=1)
    theirs = State(other)
    merge(theirs, commit(state))
    del spider.state["a"]

    changes = commit(state)
    merge(theirs, changes)

    assert changes == {'"a"': None}
    assert other.state == {"b": 1}
    assert (commit(state), theirs.changed()) == ({}, {})


def test_keys_changed_here_are_not_overwritten(spider):
    """A key that was changed here keeps its value, and the others take the stored one."""
    state = state_of(spider)
    merge(state, {'"a"': "1", '"b"': "1", '"c"': "1"})
    spider.state["a"] = 2
    del spider.state["c"]

    merge(state, {'"a"': "3", '"b"': "3", '"c"': "3"})

    assert spider.state == {"a": 2, "b": 3}
    assert state.changed() == {'"a"': "2", '"c"': None}


def test_a_read_that_was_overtaken_by_a_commit_leaves_the_state(spider):
    """A key saved while the state was being read is not set back."""
    state = state_of(spider)
    merge(state, {'"a"': "1"})
    spider.state["a"] = 2
    read = state.reading()
    commit(state)

    state.merge(read, {'"a"': "1"})

    assert spider.state == {"a": 2}


def test_a_dict_of_the_spiders_own_is_filled(spider):
    """What is stored wins over what the spider sets up itself; the dict stays the same."""
    spider.state = mine = {"page": 0, "more": 0}
    state = state_of(spider)

    merge(state, {'"page"': "5"})

    assert spider.state is mine
    assert mine == {"page": 5, "more": 0}
    assert state.changed() == {'"more"': "0"}


def test_another_kind_of_state_is_left_alone(spider):
    """A spider argument of the name `state` is not touched."""
    spider.state = "NY"
    state = state_of(spider)

    merge(state, {'"page"': "5"})

    assert spider.state == "NY"
    assert state.changed() == {}


def test_a_value_that_cannot_be_stored_is_named_once(spider, caplog):
    """A value without a stored form is not saved, and what was stored before is not deleted."""
    state = state_of(spider)
    merge(state, {'"bad"': "1"})
    spider.state.update(bad=object(), good=1)
    spider.state[object] = 1
    spider.state["k" * 3000] = 1

    for _ in range(2):
        assert state.changed(is_last=True) == {'"good"': "1"}
    merge(state, {'"bad"': "1"})

    assert type(spider.state["bad"]) is object
    assert caplog.text.count("spider.state['bad']: ") == 1
    assert caplog.text.count("Cannot save spider.state[") == 3


def test_a_value_that_cannot_be_read_back_does_not_stop_the_start(spider, caplog):
    """A stored value whose class is gone is named, and the rest is restored."""
    state = state_of(spider)

    merge(state, {'"a"': '{"$": "enum", "c": "nothing:Here", "v": 1}', '"b"': "1"})

    assert spider.state == {"b": 1}
    assert "Cannot restore spider.state" in caplog.text


def test_a_large_state_is_looked_at_less_often(spider):
    """After a dump that took long, changes wait for a while, but not for the last commit."""
    moments = iter([0.0, 1.0, 2.0, 2.0, 3.0, 30.0, 30.0])
    state = State(spider, clock=lambda: next(moments))
    spider.state["big"] = 1
    assert commit(state) == {'"big"': "1"}
    spider.state["big"] = 2

    assert state.changed() == {}
    assert state.changed(is_last=True) == {'"big"': "2"}
    assert state.changed() == {'"big"': "2"}


def test_a_host_that_was_read_is_read_again_from_then_on(browser):
    """A claim asks for what changed since the last read of a host; a new host is read whole."""
    moment = datetime(2026, 3, 1, tzinfo=UTC)
    requests = [Request(SITE), Request("https://other.example/")]

    first = browser.jars.wanted(requests[:1])
    browser.jars.merge(first, [], moment)
    second = browser.jars.wanted(requests)

    assert first.pairs == {("null", "www.shop.example"): None}
    assert second.pairs == {
        ("null", "www.shop.example"): moment,
        ("null", "other.example"): None,
    }


def test_when_a_cookie_expires_is_saved_beside_it(browser):
    """The database can tell which cookies are over without reading them."""
    browser.fetch("a=1; Max-Age=3600", "b=1", "c=1; Expires=Sat, 01 Mar 2036 00:00:00 GMT")

    expires = {one.name: one.expires for one in browser.commit()}

    assert expires["a"] == pytest.approx(time.time() + 3600, abs=60)
    assert expires["b"] is None
    assert expires["c"] == datetime(2036, 3, 1, tzinfo=UTC).timestamp()
