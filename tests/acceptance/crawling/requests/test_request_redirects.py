"""Redirects and retries of requests that are items."""

from __future__ import annotations

import pytest
from support.projects import kill
from support.scripted_sites import DROPS, fp

pytestmark = pytest.mark.tracebacks("IgnoreRequest: max redirections reached")


def test_where_a_redirect_leads_is_taken_before_it_is_downloaded(project, site):
    """The target is an alias by then, and a page that links to it does not fetch it again."""
    project.write("""
    import asyncio
    from pathlib import Path

    class S(scrapy.Spider):
        name = "s"
        start_urls = [SITE + "/page/1"]

        def parse(self, response):
            yield scrapy.Request(SITE + "/redirect?to=/gate/target", self.more, priority=1)
            yield scrapy.Request(SITE + "/page/2", self.link)

        async def link(self, response):
            while not Path("arrived").exists():
                await asyncio.sleep(0.05)
            yield scrapy.Request(SITE + "/gate/target", self.more)
            yield {"linked": True}

        def more(self, response):
            yield {"url": response.url}
    """)
    process = project.start("crawl", "s")
    assert site.arrived.wait(120), project.log()
    (project.directory / "arrived").touch()

    owners = project.rows(
        "SELECT i.name FROM aliases a JOIN items i ON i.id = a.item_id "
        f"WHERE a.name = 'REQ:{fp(site, '/gate/target')}'"
    )
    project.wait_for("'linked': True")
    site.may_answer.set()
    run = project.finish(process)

    assert owners == [(f"REQ:{fp(site, '/redirect?to=/gate/target')}",)]
    assert run.stats["reason"] == "finished", run.log
    assert site.hits["/gate/target"] == 1
    assert run.stats["item_scraped_count"] == 2
    assert run.stats["dupefilter/filtered"] == 1
    assert set(map(tuple, project.request_outcomes().values())) == {("ok",)}


@pytest.mark.crawls(
    DROPS
    + """
    start_urls = [SITE + "/page/1"]

    def parse(self, response):
        yield scrapy.Request(SITE + "/page/2", self.more)

    def more(self, response):
        yield {"url": response.url}
        yield scrapy.Request(SITE + "/redirect?to=/page/2", self.more)
"""
)
def test_a_redirect_to_a_page_that_was_seen_is_dropped(run, project, site):
    """No download, no callback, no failure, but a request_dropped, as in Scrapy."""
    assert run.stats["reason"] == "finished", run.log
    assert site.hits == {"/page/1": 1, "/page/2": 1, "/redirect?to=/page/2": 1}
    assert run.stats["item_scraped_count"] == 1
    assert run.log.count("DROPPED /page/2.") == 1
    assert project.request_outcomes()["/redirect?to=/page/2"] == ["known"]
    assert project.errors() == []


@pytest.mark.crawls(
    DROPS
    + """
    start_urls = [SITE + "/page/1"]

    def parse(self, response):
        yield scrapy.Request(SITE + "/loop", self.more)

    def more(self, response):
        yield {"url": response.url}
""",
    "REDIRECT_MAX_TIMES = 3",
)
def test_a_redirect_to_itself_is_followed_until_it_fails(run, project, site):
    """A filtered request that is redirected to itself is no duplicate of itself."""
    assert run.stats["reason"] == "finished", run.log
    assert site.hits["/loop"] == 4
    assert "DROPPED" not in run.log
    assert project.request_outcomes()["/loop"] == ["failed"]


@pytest.mark.crawls(
    """
class S(scrapy.Spider):
    name = "s"
    start_urls = [SITE + "/loop"]

    def parse(self, response):
        yield {"url": response.url}
""",
    "REDIRECT_MAX_TIMES = 3",
)
def test_a_start_request_that_is_redirected_to_itself_fails(run, project, site):
    """REDIRECT_MAX_TIMES ends it, and that is a failure."""
    assert run.stats["reason"] == "finished", run.log
    assert site.hits["/loop"] == 4
    assert project.request_outcomes() == {"/loop": ["failed"]}


@pytest.mark.parametrize("origin", ["start", "child"])
def test_a_redirect_goes_on_at_its_target_after_a_crash(project, site, origin):
    """Kill -9 during the target's download: the restart does not go back to the origin."""
    project.write("""
    class S(scrapy.Spider):
        name = "s"
        start_urls = [SITE + os.environ["START"]]

        def parse(self, response):
            if response.url.endswith("/page/1"):
                yield scrapy.Request(SITE + "/redirect?to=/gate/target")
                return
            times, urls = response.meta["redirect_times"], response.meta["redirect_urls"]
            self.logger.info(f"AFTER {times} FROM {urls}.")
    """)
    start = {"start": "/redirect?to=/gate/target", "child": "/page/1"}[origin]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("START", start)
        process = project.start("crawl", "s")
        assert site.arrived.wait(120), project.log()
        kill(process)
        site.may_answer.set()

        run = project.crawl()

    assert run.stats["reason"] == "finished", run.log
    assert site.hits["/redirect?to=/gate/target"] == 1
    assert site.hits["/gate/target"] == 2
    assert f"AFTER 1 FROM ['{site.url}/redirect?to=/gate/target']." in run.log


def test_retries_are_counted_over_a_crash(project, site):
    """Kill -9 during a retry: the restart goes on with retry_times as it was."""
    site.scripts["/page/2"] = ["503", "gate", "503", "200"]
    project.write(
        """
    class S(scrapy.Spider):
        name = "s"
        start_urls = [SITE + "/page/1"]

        def parse(self, response):
            yield scrapy.Request(SITE + "/page/2", self.more)

        def more(self, response):
            self.logger.info(f"AFTER {response.meta['retry_times']} RETRIES.")
    """,
        "RETRY_TIMES = 2",
    )
    process = project.start("crawl", "s")
    assert site.arrived.wait(120), project.log()
    kill(process)
    site.may_answer.set()

    run = project.crawl()

    assert run.stats["reason"] == "finished", run.log
    assert "AFTER 2 RETRIES." in run.log
    assert site.hits["/page/2"] == 4


def test_retries_are_used_up_over_a_crash(project, site):
    """What had one retry of two before kill -9 has one more after it, then it fails."""
    site.scripts["/page/2"] = ["503", "gate", "503", "503", "200"]
    project.write(
        """
    class S(scrapy.Spider):
        name = "s"
        start_urls = [SITE + "/page/1"]

        def parse(self, response):
            yield scrapy.Request(SITE + "/page/2", self.more)

        def more(self, response):
            yield {"url": response.url}
    """,
        "RETRY_TIMES = 2",
    )
    process = project.start("crawl", "s")
    assert site.arrived.wait(120), project.log()
    kill(process)
    site.may_answer.set()

    run = project.crawl()

    assert run.stats["reason"] == "finished", run.log
    assert site.hits["/page/2"] == 4
    assert project.request_outcomes()["/page/2"] == ["died", "failed"]
    assert run.stats.get("item_scraped_count") is None
