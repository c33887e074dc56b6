"""Each way in which an execution may go ends its claim once, with the right outcome.

All scenarios are items of one crawl; each test looks at its own.
"""

from __future__ import annotations

import pytest
from conftest import new_database
from support import sites
from support.execution_scenarios import EXPECTED, MIDDLEWARES, PIPELINES, SETTINGS, SPIDER
from support.projects import Project

# What the scenarios do on purpose.
pytestmark = [
    pytest.mark.edge,
    pytest.mark.server,
    pytest.mark.tracebacks(
        "ValueError: midway",
        "ValueError: the pipeline is broken",
        "ValueError: no such output",
        "ValueError: no such input",
        "ValueError: at once",
        "RuntimeError: the middleware is broken",
        "KeyError: 'the errback is broken'",
        "HttpError: Ignoring non-200 response",
        "ConnectionRefusedError",
        "did you mean 't_page'?",
        "merge['price'] is nan",
        "ForeignOutputError: spider s, task t_",
    ),
]


@pytest.fixture(scope="module")
def crawled(tmp_path_factory, server_url, template):
    """Crawl all scenarios once; yield the run, its project and its site."""
    with new_database(server_url, template) as url, sites.site() as site:
        site.robots = "User-agent: *\nDisallow: /private/\n"
        project = Project(tmp_path_factory.mktemp("project"), url, site.url)
        project.write(SPIDER, SETTINGS, middlewares=MIDDLEWARES, pipelines=PIPELINES)
        run = project.crawl()
        attempts = project.attempts()
        data = project.data()
        yield run, project, site, attempts, data


@pytest.mark.parametrize("name", EXPECTED)
def test_scenario(crawled, name):
    """The scenario's attempts end as they should, and leave what they should."""
    _, _, _, attempts, data = crawled
    outcomes, left = EXPECTED[name]

    found = [(outcome, kind) for item, _, outcome, kind in attempts if item == f"t_{name}"]

    assert [outcome for outcome, _ in found] == outcomes
    if isinstance(left, dict):
        kept = {key: value for key, value in data[f"t_{name}"].items() if key != "url"}
        assert kept.keys() == left.keys()
        assert all(value is ... or kept[key] == value for key, value in left.items())
    else:
        assert left in (None, ...) or found[-1][1] == left
        assert data[f"t_{name}"].keys() == {"url"}


def test_every_claim_ended(crawled):
    """Nothing stays claimed, no leg was forgotten, no claim was lost, and the run finished."""
    run, project, _, attempts, _ = crawled

    assert run.code == 0
    assert run.stats["reason"] == "finished"
    assert project.claimed() == 0
    assert "itemgraph/legs_forgotten" not in run.stats
    assert "itemgraph/lease_lost" not in run.stats
    assert run.stats["itemgraph/refiled"] == 2
    assert run.stats["itemgraph/claimed"] == len(attempts)
    assert "Unhandled" not in run.log


def test_items_of_a_task_that_raises_do_not_leave(crawled):
    """What a callback yielded before it raised is neither scraped nor followed."""
    run, _, site, _, _ = crawled

    assert "'too': 'early'" not in run.log
    assert site.hits["/page/never"] == 0


def test_follow_ups_are_filtered_within_their_execution(crawled):
    """A URL asked for three times by one execution is fetched once."""
    _, _, site, _, _ = crawled

    assert site.hits["/page/t_fan/3"] == 1


def test_errors_name_spider_task_and_item(crawled):
    """The error of a failed attempt says where it happened."""
    _, project, _, _, _ = crawled

    rows = project.rows("SELECT error FROM failures WHERE NOT is_refusal")

    assert len(rows) > 10
    for (error,) in rows:
        assert error["spider"] == "s"
        assert error["item"].startswith("t_")
        assert error["task"]
    messages = {error["item"]: error["message"] for (error,) in rows}
    assert "yielded int 42" in messages["t_foreign"]
    assert "did you mean 't_page'" in messages["t_unknown_task"]
    assert "CreateItem" in messages["t_plain_to_task"]
    assert "spider s, task t_nan, item t_nan" in messages["t_nan"]
    assert "UpdateData" in messages["t_nan"]
    assert "the request's slot is 5" in messages["t_odd_slot"]


def test_retry_after_wins_over_backoff(crawled):
    """The site's Retry-After decides when the next attempt may start."""
    run, _, _, _, _ = crawled

    assert "[retry] spider s, task t_retry_after, item t_retry_after in 1 s: http 429" in run.log
