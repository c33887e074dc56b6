"""What `@task` declares, and how declarations that cannot work are refused."""

from __future__ import annotations

from datetime import timedelta

import graphs
import pytest

from scrapy_itemgraph import task, tasks
from scrapy_itemgraph.exceptions import TaskDefinitionError


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
        ({"concurrency": 0}, "concurrency must be an integer from 1"),
        ({"exclusive": "crawl"}, 'exclusive is "pair" or "item"'),
        ({"exclusive": []}, "exclusive"),
        ({"request": 5}, "request is the name of a method, or a callable"),
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
