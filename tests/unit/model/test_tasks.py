"""What `@task` declares, and how declarations that cannot work are refused."""

from __future__ import annotations

from datetime import timedelta

import pytest
from support import graphs

from scrapy_itemgraph import RateLimit, task
from scrapy_itemgraph.exceptions import TaskDefinitionError
from scrapy_itemgraph.model import tasks


def declare(**options):
    """Decorate a method with @task."""

    def parse_book(self, response, item): ...

    parse_book.__qualname__ = "BooksSpider.parse_book"
    return task(**options)(parse_book)


def test_a_task_is_named_by_its_method_and_has_defaults():
    """SRAP-12: a decorated method is a task, keyed by its name, with the contract's defaults."""
    (options,) = tasks.discover(graphs.spider(parse={"tags": ["page"]})).values()

    assert (options.name, options.method, options.tags) == ("parse", "parse", ("page",))
    assert (options.version, options.ttl, options.nice) == ("1", None, 0)
    assert (options.max_attempts, options.max_failures, options.exclusive) == (3, None, "pair")
    assert options.download
    assert not options.allow_failure
    assert not options.retry_failed_on_version_bump


def test_ttls_are_read_at_import():
    """SRAP-23: a TTL is read when it is declared; "never" is not the default."""
    spider = graphs.spider(
        a={"tags": ["t"], "ttl": "1d12h"}, b={"tags": ["t"], "ttl": "never"}, c={"tags": ["t"]}
    )

    ttls = {name: one.ttl for name, one in tasks.discover(spider).items()}

    assert ttls == {"a": timedelta(days=1, hours=12), "b": "never", "c": None}


@pytest.mark.parametrize(
    ("options", "what_is_wrong"),
    [
        ({"tags": "page"}, "tags is a list: write tags=['page']"),
        ({"tags": []}, "tags is empty"),
        ({"tags": [""]}, "a name in tags is empty"),
        ({"tags": [5]}, "a name in tags must be a string, not int"),
        ({"tags": ["a\0"]}, "NUL"),
        ({"tags": None}, "not iterable"),
        ({"name": ""}, "the name '' has odd characters"),
        ({"name": "a b"}, "the name 'a b' has odd characters"),
        ({"name": "parse\n"}, "odd characters"),
        ({"name": "-parse"}, "odd characters"),
        ({"name": "x" * 101}, "odd characters"),
        ({"name": "a/b"}, "odd characters"),
        ({"name": 5}, "string"),
        ({"version": ""}, "version must be a non-empty string, not ''"),
        ({"version": 2}, "version must be a non-empty string, not 2"),
        ({"version": "\ud800"}, "lone surrogate"),
        ({"ttl": "soon"}, "ttl is 'soon'"),
        ({"ttl": 0}, "ttl is 0"),
        ({"ttl": -5}, "ttl is -5"),
        ({"ttl": True}, "ttl is True"),
        ({"ttl": float("nan")}, "ttl is nan"),
        ({"ttl": timedelta(days=40_000)}, "ttl is"),
        ({"depends_on": "parse"}, "depends_on is a list: write depends_on=['parse']"),
        ({"nice": "high"}, "nice must be an integer"),
        ({"nice": True}, "nice must be an integer"),
        ({"nice": 2**31}, "nice must be an integer"),
        ({"max_attempts": 0}, "max_attempts must be an integer from 1"),
        ({"max_failures": 0}, "max_failures must be an integer from 1"),
        ({"concurrency": 0}, "concurrency must be an integer from 1, not 0"),
        ({"concurrency": True}, "concurrency must be an integer from 1, not True"),
        ({"concurrency": "2"}, "concurrency must be an integer from 1, not '2'"),
        (
            {"concurrency": 3, "rate_limit": RateLimit("1/s", concurrency=2)},
            "concurrency=3 and rate_limit=RateLimit(…, concurrency=2) both say",
        ),
        ({"rate_limit": "fast"}, "rate_limit is 'fast'; write how many"),
        ({"rate_limit": "0/s"}, "rate_limit is '0/s'"),
        ({"rate_limit": 10}, "rate_limit is 10"),
        ({"rate_limit": False}, "rate_limit is False"),
        ({"rate_limit": "1/365d"}, "at least one a day"),
        ({"rate_limit_by_tag": "1/s"}, "rate_limit_by_tag is a dict of tags to rates"),
        ({"rate_limit_by_tag": {"slow"}}, "rate_limit_by_tag is a dict of tags to rates"),
        ({"rate_limit_by_tag": {"slow": "fast"}}, "rate_limit_by_tag['slow'] is 'fast'"),
        ({"rate_limit_by_tag": {"slow": None}}, "rate_limit_by_tag['slow'] is None"),
        ({"rate_limit_by_tag": {("a", "b"): "0/s"}}, "rate_limit_by_tag[('a', 'b')] is '0/s'"),
        ({"rate_limit_by_tag": {5: "1/s"}}, "a tag in rate_limit_by_tag must be a string, not"),
        ({"rate_limit_by_tag": {("a", 5): "1/s"}}, "a tag in rate_limit_by_tag must be a string"),
        ({"rate_limit_by_tag": {frozenset("ab"): "1/s"}}, "must be a string, not frozenset"),
        ({"rate_limit_by_tag": {"": "1/s"}}, "a tag in rate_limit_by_tag is empty"),
        ({"rate_limit_by_tag": {"a\0": "1/s"}}, "NUL"),
        ({"rate_limit_by_tag": {(): "1/s"}}, "a tuple without a tag"),
        ({"rate_limit_by_tag": {("a" * 600, "b" * 600): "1/s"}}, "has 1,201 bytes"),
        ({"rate_limit_by_tag": {("a", "b"): "1/s", ("b", "a"): "2/s"}}, "the tags a, b twice"),
        ({"rate_limit_by_tag": {"a": "1/s", ("a",): "2/s"}}, "the tags a twice"),
        ({"autothrottle": "yes"}, "autothrottle must be True, False or None, not 'yes'"),
        ({"autothrottle": 1}, "autothrottle must be True, False or None, not 1"),
        ({"exempt_global": "yes"}, "exempt_global must be True or False, not 'yes'"),
        ({"exempt_global": None}, "exempt_global must be True or False, not None"),
        ({"exclusive": "crawl"}, 'exclusive is "pair" or "item"'),
        ({"exclusive": []}, "exclusive"),
        ({"request": 5}, "request is the name of a method, or a callable"),
        ({"revalidate": "yes"}, "revalidate is True or False, not 'yes'"),
        ({"revalidate": True, "download": False}, "are for tasks that download"),
        ({"unchanged_if": len}, 'unchanged_if is "body" or the name of a method'),
        ({"backoff": "soon"}, "backoff is 'soon'"),
        ({"backoff": ["1s", 0]}, "backoff is 0"),
    ],
)
def test_an_option_that_cannot_work_is_refused_at_import(options, what_is_wrong):
    """SRAP-12: an option that cannot work is an error that names the method and the option."""
    with pytest.raises(TaskDefinitionError) as raised:
        declare(**{"tags": ["book"], **options})

    assert str(raised.value).startswith("@task of BooksSpider.parse_book: ")
    assert what_is_wrong in str(raised.value)


def test_two_tasks_of_one_name_are_refused():
    """SRAP-12: a name is one task's; the error names spider, both methods and the name."""
    spider = graphs.spider(parse={"tags": ["t"]}, other={"tags": ["t"], "name": "parse"})

    with pytest.raises(TaskDefinitionError, match=r"Spider: parse and other are both.*'parse'"):
        tasks.discover(spider)


def test_an_undecorated_override_is_refused():
    """SRAP-12: a subclass that overrides a task without @task would lose it, so it is an error."""
    base = graphs.spider(parse={"tags": ["t"]})
    child = type("Child", (base,), {"parse": lambda self, response, item: None})

    with pytest.raises(TaskDefinitionError, match=r"Child\.parse overrides a task but is not"):
        tasks.discover(child)


def test_a_decorated_override_replaces_the_task():
    """SRAP-12: a subclass may declare a task anew, and inherits the others."""
    base = graphs.spider(parse={"tags": ["t"]}, index={"tags": ["t"]})
    again = vars(graphs.spider(parse={"tags": ["t"], "version": "2"}))["parse"]

    found = tasks.discover(type("Child", (base,), {"parse": again}))

    assert {name: one.version for name, one in found.items()} == {"parse": "2", "index": "1"}


@pytest.mark.parametrize(
    ("name", "what_is_wrong"),
    [("wordz", "names no method of the spider; did you mean 'words'?"), ("later", "is async")],
)
def test_what_counts_of_a_page_is_told_by_a_plain_method(name, what_is_wrong):
    """Otherwise each page would fail."""

    async def later(self, response): ...

    spider = graphs.spider(parse_book={"tags": ["t"], "unchanged_if": name})
    spider.words, spider.later = lambda self, response: "", later

    with pytest.raises(TaskDefinitionError) as raised:
        tasks.discover(spider)

    assert what_is_wrong in str(raised.value)


def test_an_unknown_dependency_is_refused_with_a_hint():
    """SRAP-21: a dependency that is no task of the spider is an error at start."""
    spider = graphs.spider(
        parse_book={"tags": ["t"]}, review={"tags": ["t"], "depends_on": ["parse_bok"]}
    )

    with pytest.raises(TaskDefinitionError) as raised:
        tasks.discover(spider)

    assert "Spider: the task 'review' depends on 'parse_bok'" in str(raised.value)
    assert "did you mean 'parse_book'?" in str(raised.value)


@pytest.mark.parametrize("length", [1, 2, 5])
def test_a_cycle_of_dependencies_is_refused(length):
    """SRAP-21: tasks that wait for each other, or for themselves, are an error at start."""
    names = [f"t{n}" for n in range(length)]
    spider = graphs.spider(
        **{
            name: {"tags": ["t"], "depends_on": [names[(n + 1) % length]]}
            for n, name in enumerate(names)
        }
    )

    with pytest.raises(TaskDefinitionError, match=r"Spider: tasks depend on each other: t\d → "):
        tasks.discover(spider)


def test_a_dependency_that_may_never_be_called_for_is_found():
    """SRAP-21: a task whose items need not carry its dependency's tags is told apart."""
    found = tasks.discover(
        graphs.spider(
            parse={"tags": ["page"]},
            review={"tags": ["page", "list"], "depends_on": ["parse"]},
            price={"tags": ["page"], "depends_on": ["parse"]},
        )
    )

    pairs = [(one.name, on.name) for one, on in tasks.uncovered_dependencies(found)]

    assert pairs == [("review", "parse")]


def test_retries_wait_ten_seconds_doubling_to_ten_minutes():
    """Backoff doubles from 10 s to 10 min, unless the task says its own."""
    (usual,) = tasks.discover(graphs.spider(a={"tags": ["t"]})).values()
    (own,) = tasks.discover(graphs.spider(a={"tags": ["t"], "backoff": ["1s", "1h"]})).values()

    assert [usual.retry_delay(n).total_seconds() for n in (1, 2, 3, 9, 90)] == [
        *(10, 20, 40),
        *(600, 600),
    ]
    assert [own.retry_delay(n).total_seconds() for n in (1, 2, 3)] == [1, 3600, 3600]


def test_limits_are_read_at_import():
    """SRAP-25: a task keeps its limits as values, those by tags under all tags in order."""
    spider = graphs.spider(
        a={
            "tags": ["t"],
            "rate_limit": "10/s",
            "rate_limit_by_tag": {"slow": "1/min", ("c", "b", "c"): RateLimit(concurrency=2)},
            "concurrency": 4,
            "autothrottle": True,
            "exempt_global": True,
        },
        b={"tags": ["t"]},
    )

    found = tasks.discover(spider)

    assert found["a"].rate_limit == RateLimit("10/s")
    assert found["a"].rate_limit_by_tag == {
        ("slow",): RateLimit("1/min"),
        ("b", "c"): RateLimit(concurrency=2),
    }
    assert (found["a"].concurrency, found["a"].autothrottle) == (4, True)
    assert found["a"].exempt_global
    assert (found["b"].rate_limit, found["b"].rate_limit_by_tag) == (None, {})
    assert (found["b"].concurrency, found["b"].autothrottle) == (None, None)
    assert not found["b"].exempt_global


def test_a_plain_callback_may_have_limits():
    """SRAP-25: the task of a plain callback takes its limits from ITEMGRAPH_CALLBACKS."""
    options = {"rate_limit": "1/s", "concurrency": 2, "exempt_global": True}

    made = tasks.of_callback("parse", options)
    usual = tasks.of_callback("parse", {})

    assert (made.rate_limit, made.concurrency) == (RateLimit("1/s"), 2)
    assert made.exempt_global
    assert (usual.rate_limit, usual.concurrency, usual.exempt_global) == (None, None, False)


@pytest.mark.parametrize(
    ("options", "what_is_wrong"),
    [
        ({"rate_limit": "fast"}, "rate_limit is 'fast'"),
        ({"concurrency": 0}, "concurrency must be an integer from 1"),
        ({"exempt_global": "yes"}, "exempt_global must be True or False"),
        ({"rate_limit": RateLimit(concurrency=1), "concurrency": 1}, "both say"),
        ({"rate_limits": "1/s"}, "there is no 'rate_limits'; there are version, ttl"),
    ],
)
def test_a_limit_of_a_plain_callback_that_cannot_work_is_refused(options, what_is_wrong):
    """SRAP-25: a limit in ITEMGRAPH_CALLBACKS that cannot be kept is an error that names it."""
    with pytest.raises(TaskDefinitionError) as raised:
        tasks.of_callback("parse", options)

    assert str(raised.value).startswith("ITEMGRAPH_CALLBACKS['parse']: ")
    assert what_is_wrong in str(raised.value)


@pytest.mark.parametrize(
    ("options", "what_is_wrong"),
    [
        ({"at": "03:00", "ttl": "1d"}, "ttl and at both say when results expire"),
        ({"at": "03:00", "every": "6h"}, "give one of every= or at= or cron="),
        ({"spread": "1h"}, "spread goes with every, at or cron"),
        ({"cron": "0 3 31 2 *"}, "bad day-of-month; the fields are minute hour"),
        ({"at": "03:00", "time_zone": "Europe/Berln"}, "did you mean 'Europe/Berlin'"),
    ],
)
def test_a_clock_that_cannot_be_kept_is_refused_where_it_is_declared(options, what_is_wrong):
    """SS-6: of a task and of a plain callback alike; the error names it, and says what to write."""
    with pytest.raises(TaskDefinitionError, match=r"^@task of ") as of_task:
        tasks.task(tags=["page"], **options)(lambda self, response, item: None)
    with pytest.raises(TaskDefinitionError, match=r"^ITEMGRAPH_CALLBACKS") as of_callback:
        tasks.of_callback("parse", options)

    assert all(what_is_wrong in str(one.value) for one in (of_task, of_callback))
