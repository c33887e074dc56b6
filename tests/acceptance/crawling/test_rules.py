"""Rules of a crawl: which links become pages, and how pages are asked for."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING

import pytest
from support import sites

if TYPE_CHECKING:
    from email.message import Message

# A tree of pages, each of which links to a calendar without an end.
SPIDER = """
class S(scrapy.Spider):
    name = "s"
    start_urls = [SITE + "/page/0"]

    def parse(self, response):
        number = int(response.url.rpartition("/")[2].partition("?")[0])
        for child in (2 * number + 1, 2 * number + 2):
            if child < 30:
                yield scrapy.Request(f"{SITE}/page/{child}")
            yield scrapy.Request(f"{SITE}/calendar/{child}", self.parse_day)

    def parse_day(self, response):
        day = int(response.url.rpartition("/")[2])
        if day < 200:
            yield scrapy.Request(f"{SITE}/calendar/{day + 7}", self.parse_day)
"""


class Seen(sites.Site):
    """A site that notes which user agents asked for a path."""

    def __init__(self) -> None:
        super().__init__()
        self.agents: dict[str, list[str]] = defaultdict(list)
        self.marks: dict[str, list[str | None]] = defaultdict(list)

    def respond(self, method: str, target: str, headers: Message, body: bytes):
        self.agents[target].append(headers["User-Agent"])
        self.marks[target].append(headers["X-Mark"])
        return super().respond(method, target, headers, body)

    def of(self, prefix: str) -> list[str]:
        return sorted(path for path in self.hits if path.startswith(prefix))


@pytest.fixture(scope="module")
def site_kind():
    """Return a site that notes who asks."""
    return Seen


def rules(project, *arguments, json_=True):
    """Run a command on the rules of the crawl; return its document, or its errors."""
    options = ("--json",) if json_ else ()
    ran = project.scrapy("itemgraph", "rules", *arguments, "--crawl", "s", *options)
    assert ran.code == 0, ran.log
    return json.loads(ran.output)


def test_links_that_rules_refuse_are_no_pages_of_a_plain_spiders_crawl(project, site):
    """MNB-11: accept is asked of each link before it is named; start requests are not asked."""
    project.write(SPIDER)
    first = project.crawl("-s", "CLOSESPIDER_PAGECOUNT=1")
    assert first.code == 0
    rules(project, "add", "/calendar/", "--no-accept")
    rules(project, "add", "/page/1$", "--no-accept")
    run = project.crawl()

    # What the first page found before there were rules is there; nothing that was found since.
    assert site.of("/calendar/") == ["/calendar/1", "/calendar/2"]
    assert len(site.of("/page/")) == 30
    assert run.stats["itemgraph/links_refused"] > 28


def test_a_crawl_is_added_with_what_it_takes_in(project, site):
    """MNB-11: crawls add --accept makes the first ruleset, kept to however it is started."""
    project.write(SPIDER)
    added = project.scrapy("itemgraph", "crawls", "add", "s", "--accept", "/page/")
    assert added.code == 0, added.log
    assert rules(project, "list")["rules"] == [{"match": "/page/", "accept": True}]
    wrong = project.scrapy("itemgraph", "crawls", "add", "s", "other", "--accept", "(")
    assert (wrong.code, "'(' is no pattern" in wrong.log) == (1, True)
    project.crawl()

    assert site.of("/calendar/") == []
    assert len(site.of("/page/")) == 30


def set_aside(project):
    """Return the paths of pages that are skipped."""
    rows = project.rows(
        "SELECT i.data->>'url' FROM results r JOIN items i ON i.id = r.item_id "
        "WHERE r.hold = 'skipped' ORDER BY i.id"
    )
    return [url.removeprefix(project.site_url) for (url,) in rows]


def test_pages_that_rules_skip_are_set_aside_at_their_turn_and_taken_back_by_apply(project, site):
    """MNB-7, MNB-11: what is skipped is held without a failure, and asked for once it is not."""
    project.write(SPIDER)
    project.crawl("-s", "CLOSESPIDER_PAGECOUNT=1")
    rules(project, "add", "/calendar/", "--skip", "--note", "no end to it")
    run = project.crawl()

    assert site.of("/calendar/") == []
    assert len(site.of("/page/")) == 30
    assert run.stats["itemgraph/skipped"] == len(set_aside(project)) == 60
    skipped = project.rows(
        "SELECT DISTINCT outcome, ruleset_id IS NULL FROM attempts ORDER BY 1, 2"
    )
    assert skipped == [("ok", False), ("ok", True), ("skipped", False)]
    assert project.rows("SELECT count(*) FROM failures") == [(0,)]
    assert run.stats["finish_reason"] == "finished"
    assert "60 skipped" in run.log

    day = f"{project.site_url}/calendar/5"
    why = project.scrapy("itemgraph", "explain", day).output
    assert "rule 1 (/calendar/) skips it" in why
    simulated = project.scrapy("itemgraph", "simulate", "s", "parse_day", day)
    assert (simulated.code, "the crawl's rules skip it" in simulated.output) == (0, True)
    rules(project, "add", "/calendar/5$", "--no-skip")
    assert "no rule skips it now" in project.scrapy("itemgraph", "explain", day).output
    assert rules(project, "diff")["freed"] == 1
    rules(project, "apply", "--wait")
    assert len(set_aside(project)) == 59
    project.crawl("-s", "CLOSESPIDER_PAGECOUNT=1")
    assert site.of("/calendar/") == ["/calendar/5"]


REDIRECTED = """
class S(scrapy.Spider):
    name = "s"
    start_urls = [SITE + "/redirect?to=/page/0"]

    def parse(self, response):
        for number in range(1, 4):
            yield scrapy.Request(f"{SITE}/redirect?to=/page/{number}")
"""


def test_rules_hold_for_where_a_redirect_leads(project, site):
    """A target that a rule skips or refuses is not fetched: its page is skipped, and says why."""
    project.write(REDIRECTED)
    assert project.scrapy("itemgraph", "crawls", "add", "s").code == 0
    rules(project, "add", "^[^?]*/page/1$", "--skip")
    rules(project, "add", "^[^?]*/page/2$", "--no-accept")
    rules(project, "add", "/page/0$", "--no-accept")  # the start page and its target: it is meant
    run = project.crawl()

    assert site.of("/page/") == ["/page/0", "/page/3"]
    assert set_aside(project) == ["/redirect?to=/page/1", "/redirect?to=/page/2"]
    assert run.stats["itemgraph/skipped"] == 2
    assert project.rows("SELECT count(*) FROM failures") == [(0,)]
    told = project.rows("SELECT error->>'message' FROM attempts WHERE outcome = 'skipped'")
    assert f"it led to {project.site_url}/page/1, which the crawl's rules refuse" in {
        one for (one,) in told
    }
    shown = project.scrapy("itemgraph", "show", f"{project.site_url}/redirect?to=/page/2").output
    assert "/page/2, which the crawl's rules refuse" in shown


def test_a_trap_that_waits_is_set_aside_by_one_command(project, site):
    """MNB-11: rules add --apply goes through what waits, and a person's own skips stay."""
    project.write(SPIDER, "CONCURRENT_REQUESTS = 1")
    project.crawl("-s", "CLOSESPIDER_PAGECOUNT=20")
    waiting = project.rows("SELECT count(*) FROM work")[0][0]
    junk = project.rows(
        "SELECT count(*) FROM work w JOIN items i ON i.id = w.item_id "
        "WHERE i.data->>'url' LIKE '%/calendar/%'"
    )[0][0]
    assert 0 < junk < waiting
    mine = project.rows(
        "SELECT i.data->>'url' FROM work w JOIN items i ON i.id = w.item_id "
        "WHERE i.data->>'url' LIKE '%/page/%' ORDER BY i.id LIMIT 1"
    )[0][0]
    assert project.scrapy("itemgraph", "pages", "skip", mine).code == 0

    dry = rules(project, "add", "/calendar/", "--skip", "--dry-run")
    assert (dry["waiting"], dry["skipped"], dry["is_all"]) == (waiting - 1, junk, True)
    rules(project, "add", "/calendar/", "--skip", "--apply")
    status = json.loads(project.scrapy("itemgraph", "status", "--json").output)
    assert status["sweeps"][0]["ruleset"] == 1
    rules(project, "apply", "--wait")

    assert project.rows("SELECT count(*) FROM work") == [(waiting - 1 - junk,)]
    assert len(set_aside(project)) == junk + 1
    rules(project, "remove", "/calendar/", "--apply")
    rules(project, "apply", "--wait")
    assert set_aside(project) == [mine.removeprefix(project.site_url)]
    assert project.rows("SELECT count(*) FROM work") == [(waiting - 1,)]


NEEDING = """
class S(scrapy.Spider):
    name = "s"
    start_urls = [SITE + "/page/1"]

    def parse(self, response):
        for n in range(3):
            yield scrapy.Request(f"{SITE}/link/{n}")
            yield scrapy.Request(f"{SITE}/picture/{n}", meta={"itemgraph_needed": True})
"""


def test_what_pages_need_is_taken_in_where_links_are_not(project, site):
    """MNB-11: a request that says so is no link; a rule that matches it refuses it all the same."""
    project.write(NEEDING)
    project.crawl("-s", "CLOSESPIDER_TIMEOUT=0.01", "-s", "DOWNLOAD_DELAY=60")
    rules(project, "default", "refuse")
    rules(project, "add", "/picture/2", "--no-accept")
    project.crawl()

    assert site.of("/link/") == []
    assert site.of("/picture/") == ["/picture/0", "/picture/1"]


AGENTS = """
class S(scrapy.Spider):
    name = "s"
    start_urls = [SITE + "/page/1", SITE + "/redirect?to=/page/2", SITE + "/page/3"]

    def parse(self, response):
        yield scrapy.Request(f"{SITE}/page/own", self.parse_own, headers={"User-Agent": "own"})

    def parse_own(self, response):
        pass
"""

HOOKS = """
def mark(request, spider):
    request.headers["X-Mark"] = spider.name

def broken(request, spider):
    raise ValueError("a hook of the project")
"""


def test_user_agents_and_hooks_are_of_the_request_and_not_of_what_is_stored(project, site):
    """MNB-11: a rule gives pages a user agent, and their requests to a hook of the project."""
    settings = "ITEMGRAPH_HOOKS = {'mark': 'proj.hooks.mark', 'broken': 'proj.hooks.broken'}"
    project.write(AGENTS, settings, hooks=HOOKS)
    project.crawl("-s", "CLOSESPIDER_TIMEOUT=0.01", "-s", "DOWNLOAD_DELAY=60")
    rules(project, "add", "/(page|redirect)", "--user-agent", "archivist", "--hook", "mark")
    rules(project, "add", "/page/3", "--hook", "broken")
    project.crawl()

    for path in ("/page/1", "/page/2", "/redirect?to=/page/2", "/page/own"):
        assert site.agents[path] == ["archivist"], path
        assert site.marks[path] == ["s"], path
    assert site.agents["/page/3"] == []
    assert [message for _, message in project.errors()] == ["a hook of the project"]
    assert project.rows("SELECT count(*) FROM items WHERE data::text LIKE '%archivist%'") == [(0,)]

    refused = project.scrapy("itemgraph", "rules", "add", "x", "--hook", "mork", "--crawl", "s")
    assert refused.code == 1
    assert "no hook 'mork'; did you mean 'mark'?" in refused.log


TASKS = """
class S(scrapy.Spider):
    name = "s"

    def seeds(self):
        yield seed("PAGE:1", "/page/1")
        yield seed("PAGE:2", "/page/2")

    @task(tags=["page"])
    def parse_page(self, response, item):
        yield scrapy.Request(f"{SITE}/page/more/{item.id[-1]}", self.parse_more)

    def parse_more(self, response, item):
        yield UpdateData({"done": True})
"""


def test_rules_hold_for_the_pages_of_tasks_and_for_what_goes_on_from_them(project, site):
    """MNB-11: an item of a task is skipped by its URL, and follow-ups have their user agent."""
    project.write(TASKS)
    project.crawl("-s", "CLOSESPIDER_TIMEOUT=0.01", "-s", "DOWNLOAD_DELAY=60")
    rules(project, "add", "/page/2$", "--skip")
    more = ("--user-agent", "archivist", "--no-accept", "--crawl", "s")
    said = project.scrapy("itemgraph", "rules", "add", "/more/", *more)
    assert "the crawl has tasks alone" in said.log
    project.crawl()

    assert site.of("/page/") == ["/page/1", "/page/more/1"]
    assert site.agents["/page/more/1"] == ["archivist"]
    assert set_aside(project) == ["/page/2"]


def test_what_is_no_rule_is_refused_on_the_command_line(project):
    """MNB-11: each mistake has an exit code and a line that helps; nothing is changed by one."""
    project.write(SPIDER)
    project.crawl("-s", "CLOSESPIDER_PAGECOUNT=1")

    def said(*arguments, code):
        ran = project.scrapy("itemgraph", "rules", *arguments, "--crawl", "s")
        assert ran.code == code, ran.log
        return ran.log

    assert "say what holds for such pages" in said("add", "x", code=2)
    assert "give one of --skip and --no-skip" in said("add", "x", "--skip", "--no-skip", code=2)
    assert "RE2 has no lookaround" in said("add", "(?!x)", "--skip", code=1)
    assert "the pattern is empty" in said("add", "", "--skip", code=1)
    assert "there is no rule 1: there are none" in said("remove", "1", code=1)
    assert "has no rules" in said("apply", code=1)
    assert "no ruleset 7" in said("list", "--number", "7", code=1)
    rules(project, "add", "x", "--skip", "--if", "0")
    assert "ruleset 1 is in force" in said("add", "y", "--skip", "--if", "0", code=1)
    assert [one["number"] for one in rules(project, "list", "--versions")] == [1]
    tested = rules(project, "test", "http://x/", "http://y/")["urls"]
    assert [one["skip"] for one in tested] == [
        {"value": True, "rule": 1},
        {"value": False, "rule": None},
    ]
