"""Which limits apply to a task's work, and which of them can limit nothing."""

from __future__ import annotations

import logging
import math

import pytest
from support import graphs

from scrapy_itemgraph import RateLimit
from scrapy_itemgraph.graph import startup_report
from scrapy_itemgraph.model import limits, tasks
from scrapy_itemgraph.model.limits import Limit, Terms


def declared(**options):
    """Return the task `shop:list` with the given options."""
    spider = graphs.spider(parse={"tags": ["page"], "name": "shop:list", **options})
    (found,) = tasks.discover(spider).values()
    return found


def limits_of(task, *, rate_limit=None, rate_groups=None):
    """Return what limits a task of the spider `books`, by rates as they are written."""
    return limits.of_task(
        task,
        spider="books",
        rate_limit=None if rate_limit is None else RateLimit.read(rate_limit, "it"),
        rate_groups={
            name: RateLimit.read(rate, "it") for name, rate in (rate_groups or {}).items()
        },
    )


def told(caplog, spider, **given):
    """Return the warnings that a start of a spider logs."""
    with caplog.at_level(logging.WARNING):
        startup_report.tell(tasks.discover(spider), renamed={}, vanished=[], **given)
    return [record.getMessage() for record in caplog.records]


def test_a_task_without_limits_has_none():
    """SRAP-25: nothing limits a task where nobody says so."""
    assert limits_of(declared()) == ()
    assert limits_of(declared(autothrottle=False)) == ()


def test_all_limits_that_apply_hold_together():
    """SRAP-26, SRAP-27: a task's limits are in addition to the global one and its groups'."""
    task = declared(rate_limit="2/s", concurrency=3, rate_limit_by_tag={"slow": "1/min"})
    groups = {"shop:*": "1/s", "news:*": "5/s", "*:list": RateLimit(concurrency=4)}

    assert limits_of(task, rate_limit="10/s", rate_groups=groups) == (
        Limit(kind="global", name="", gap=0.1, concurrency=None),
        Limit(kind="group", name="shop:*", gap=1.0, concurrency=None),
        Limit(kind="group", name="*:list", gap=None, concurrency=4),
        Limit(kind="task", name="books/shop:list", gap=0.5, concurrency=3),
        Limit(kind="tags", name="books/shop:list:slow", gap=60.0, concurrency=None, tags=("slow",)),
    )


def test_a_task_that_is_exempt_leaves_the_global_limit_alone():
    """SRAP-26: `exempt_global` takes a task out of the global limit, and out of no other."""
    task = declared(exempt_global=True, rate_limit="2/s")

    found = limits_of(task, rate_limit="10/s", rate_groups={"*": "1/s"})

    assert [one.kind for one in found] == ["group", "task"]


@pytest.mark.parametrize(
    ("options", "gap", "concurrency", "throttles"),
    [
        ({"rate_limit": "2/s"}, 0.5, None, False),
        ({"concurrency": 3}, None, 3, False),
        ({"rate_limit": "2/s", "concurrency": 3}, 0.5, 3, False),
        ({"rate_limit": RateLimit("2/s", concurrency=3)}, 0.5, 3, False),
        ({"rate_limit": RateLimit(concurrency=3)}, None, 3, False),
        ({"autothrottle": True}, None, None, True),
        ({"autothrottle": True, "rate_limit": "2/s"}, 0.5, None, True),
        ({"autothrottle": False, "rate_limit": "2/s"}, 0.5, None, False),
    ],
)
def test_what_a_task_says_of_itself_is_one_limit(options, gap, concurrency, throttles):
    """SRAP-25: rate, concurrency and throttling of a task are one limit of its own."""
    assert limits_of(declared(**options)) == (
        Limit(
            kind="task",
            name="books/shop:list",
            gap=gap,
            concurrency=concurrency,
            throttles=throttles,
        ),
    )


def test_a_limit_by_tags_is_named_by_all_of_them():
    """SRAP-25: a set of tags has one limit, whatever their order; a comma ends no tag."""
    by_tag = {("slow", "big"): "1/s", "slow,big": "2/s", "a\\": RateLimit(concurrency=1)}

    found = limits_of(declared(rate_limit_by_tag=by_tag))

    assert [(one.name, one.tags) for one in found] == [
        ("books/shop:list:big,slow", ("big", "slow")),
        ("books/shop:list:slow\\,big", ("slow,big",)),
        ("books/shop:list:a\\\\", ("a\\",)),
    ]


@pytest.mark.parametrize("pattern", ["shop:list", "shop:*", "*", "shop:li?t", "shop:[a-l]*"])
def test_a_group_is_a_pattern_of_task_names(pattern):
    """SRAP-27: a group matches task names by wildcards, and is no stray."""
    (found,) = limits_of(declared(), rate_groups={pattern: "1/s"})

    assert (found.kind, found.name) == ("group", pattern)
    assert limits.strays([pattern], ["other", "shop:list"]) == []


@pytest.mark.parametrize("pattern", ["shop", "list", "SHOP:*", "shop:list:*", "shop.*", "[shop]*l"])
def test_a_group_that_matches_no_task_limits_nothing(pattern):
    """A pattern is of whole names and of their case."""
    assert limits_of(declared(), rate_groups={pattern: "1/s"}) == ()
    assert [one for one, _ in limits.strays([pattern], ["shop:list"])] == [pattern]


@pytest.mark.parametrize(
    ("pattern", "hint"),
    [
        ("shp:*", "; did you mean 'shop:*'?"),
        ("Shop:*", "; did you mean 'shop:*'?"),
        ("*:lst", "; did you mean '*:list'?"),
        ("parse_bok", "; did you mean 'parse_book'?"),
        ("parse-*", "; did you mean 'parse_*'?"),
        ("boks*", "; did you mean 'books'?"),
        ("weather:*", ""),
        ("weather", ""),
    ],
)
def test_a_stray_group_comes_with_the_near_miss(pattern, hint):
    """SRAP-27: a group that matches no task hints at the group or the task that it resembles."""
    names = ["shop:list", "shop:page", "parse_book", "books"]

    assert limits.strays([pattern], names) == [(pattern, hint)]


def test_a_group_is_a_stray_where_there_are_no_tasks():
    """Without tasks each group is a stray, without a hint."""
    assert limits.strays({"shop:*": "1/s"}, []) == [("shop:*", "")]


def test_a_limit_by_a_tag_of_no_task_is_found_once():
    """A tag that no task of the spider is called for by is told, with the tag it resembles."""
    spider = graphs.spider(
        parse={"tags": ["page"], "rate_limit_by_tag": {"pge": "1/s", ("book", "pge"): "2/s"}},
        review={"tags": ["book"], "rate_limit_by_tag": {"premium": "1/s", "page": "2/s"}},
    )

    assert limits.unknown_tags(tasks.discover(spider)) == [
        ("parse", "pge", "; did you mean 'page'?"),
        ("review", "premium", ""),
    ]


def test_a_start_tells_of_strays_and_unknown_tags(caplog):
    """A start warns of groups that match no task and of limits by unknown tags, by name."""
    spider = graphs.spider(parse={"tags": ["page"], "rate_limit_by_tag": {"pge": "1/s"}})

    warnings = told(caplog, spider, stray_groups=limits.strays(["pars", "x:*"], ["parse"]))

    group, other, tag = warnings
    assert group.startswith("The group 'pars' in ITEMGRAPH_RATE_GROUPS matches no task")
    assert group.endswith("; did you mean 'parse'?")
    assert other == (
        "The group 'x:*' in ITEMGRAPH_RATE_GROUPS matches no task, so it limits nothing"
    )
    assert tag.startswith("The task 'parse' has a rate limit by the tag 'pge', which calls for no")
    assert tag.endswith("; did you mean 'page'?")


def test_a_start_says_nothing_of_limits_that_hold(caplog):
    """A start with limits that all apply to something has nothing to warn of."""
    spider = graphs.spider(
        parse={"tags": ["page"], "rate_limit": "1/s", "rate_limit_by_tag": {"page": "1/min"}}
    )

    assert told(caplog, spider) == []


@pytest.mark.parametrize(
    ("gap", "due_in", "starts"),
    [
        (0.1, 0.0, 3),
        (0.1, 0.31, 0),
        (0.001, 0.0, 301),
        (0.0, 9.0, limits.MANY),
        (5e-324, 0.0, limits.MANY),
        (1e-320, 0.0, limits.MANY),
        (0.00099, 0.0, limits.MANY),
        (-1.0, 0.0, limits.MANY),
        (math.nan, 0.0, limits.MANY),
        (math.inf, 0.0, 1),
        (1e308, 0.0, 1),
        (0.1, -math.inf, 3),
        (0.1, math.inf, 0),
        (0.1, math.nan, 0),
    ],
)
def test_starts_ahead_are_counted_to_ten_thousand_whatever_the_numbers(gap, due_in, starts):
    """No gap and no moment raises an error; a gap below a millisecond is none."""
    assert limits.starts_within(gap, due_in) == starts


def test_a_rate_that_is_too_high_to_be_told_from_none_is_none():
    """A limit above a thousand starts a second neither paces nor makes work wait for its turn."""
    of_all = limits.of_all(RateLimit("5000/s"))

    assert of_all.gap is None
    assert of_all.terms == Terms(gap=0.0, concurrency=limits.MANY)
    assert limits.of_all(RateLimit("1000/s")).terms == Terms(gap=0.001)
