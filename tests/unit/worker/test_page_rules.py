"""What rules do to requests: user agents that are not stored, hooks, and links that are refused."""

from __future__ import annotations

import pytest
from scrapy import Request
from support.parts import Parts

from scrapy_itemgraph.exceptions import ConfigurationError, ItemGraphError
from scrapy_itemgraph.model.rule_matching import CompiledRules
from scrapy_itemgraph.model.rules import PageRule, Ruleset
from scrapy_itemgraph.worker.spider.page_rules import PageRules, loaded_hooks, without_rules

URL = "https://museum.example/api/1"


def mark(request, spider):
    """Mark a request."""
    request.meta["marked_by"] = spider.name


def prepared(request, *rules, **hooks):
    """Return a request as it goes out under rules, and as it is stored."""
    parts = Parts()
    page_rules = PageRules(parts.spider, parts.crawler.stats, hooks)
    execution = parts.claimed()
    execution.rules = CompiledRules(Ruleset(rules=rules))
    page_rules.prepare(request, execution)
    return request, without_rules(request, execution)


@pytest.mark.parametrize("own", [None, "own"])
def test_a_user_agent_of_rules_goes_out_and_is_not_stored(event_loop_run, own):
    """MNB-11: where a redirect is noted the request has its own user agent, or none."""
    headers = {} if own is None else {"User-Agent": own}
    rule = PageRule(match="/api/", user_agent="archivist")

    sent, stored = event_loop_run(prepared, Request(URL, headers=headers), rule)

    assert sent.headers["User-Agent"] == b"archivist"
    assert stored.headers.get("User-Agent") == (None if own is None else own.encode())


def test_a_hook_gets_the_request_and_one_that_is_none_is_an_error(event_loop_run):
    """MNB-11: a hook changes what it is given; an unknown one is named, with the rule."""
    rule = PageRule(match="/api/", hook="mark")

    sent, _ = event_loop_run(prepared, Request(URL), rule, mark=mark)
    assert sent.meta["marked_by"] == "s"
    with pytest.raises(ItemGraphError, match="rule 1 of the crawl calls the hook 'mark'"):
        event_loop_run(prepared, Request(URL), rule)
    with pytest.raises(ItemGraphError, match="returns nothing"):
        event_loop_run(prepared, Request(URL), rule, mark=lambda request, _: request)


@pytest.mark.parametrize(
    ("path", "said"),
    [("no.such.module", "cannot be imported"), ("scrapy.http", "is no function")],
)
def test_what_is_no_hook_ends_the_start(path, said):
    """MNB-11: a hook of ITEMGRAPH_HOOKS that cannot be imported, or called, is said at once."""
    with pytest.raises(ConfigurationError, match=said):
        loaded_hooks({"mark": path})
    assert loaded_hooks({"mark": mark}) == {"mark": mark}


@pytest.fixture
def event_loop_run():
    """Return a function that runs another one on an event loop."""
    import asyncio

    def run(function, *args, **kwargs):
        async def within():
            return function(*args, **kwargs)

        return asyncio.run(within())

    return run
