"""What a start says of code that has changed, of what is fresh, and of what it goes on with."""

from __future__ import annotations

import pytest
from support.projects import PATIENCE, kill, until

SPIDER = """
class S(scrapy.Spider):
    name = "s"
    start_urls = [SITE + "/page/start"]

    def seeds(self):
        yield seed("A", "/page/a")
        yield seed("B", "/page/b")
        yield seed("C", "/page/c", tags=["other"])

    def parse(self, response):
        yield response.follow("/page/d", self.plain)

    def plain(self, response):
        yield UpdateData({"n": 1})

    @task(tags=["page"])
    def t_page(self, response, item):
        yield UpdateData({"n": 1})

    @task(tags=["other"])
    def t_other(self, response, item):
        yield UpdateData({"n": 1})
"""
NEVER = 'ITEMGRAPH_DEFAULT_TTL = "never"\n'  # or a new run fetches the pages of callbacks again
EDITED = SPIDER.replace(
    '    @task(tags=["page"])\n', '    # Comments do not count\n\n    @task(tags=["page"])\n'
).replace('"n": 1', '"n": 2', 2)


def test_an_edited_callback_is_told_of_until_its_results_are_made_again(project, site):
    """The start names the task, its fresh results and what to do; another version ends that."""
    project.write(SPIDER, NEVER)
    first = project.crawl()
    project.write(EDITED, NEVER)

    second = project.crawl()
    third = project.crawl()
    project.write(EDITED.replace('tags=["page"]', 'tags=["page"], version="2"'), NEVER)
    fourth = project.crawl()

    assert "has changed since" not in first.log
    page = "The code of t_page has changed since 2 of its results were made"
    assert f"WARNING: {page}" in second.log
    assert "WARNING: The code of plain has changed since 1 of its results" in second.log
    assert '@task(version="…")' in second.log
    assert 'ITEMGRAPH_CALLBACKS = {"plain": {"version": "…"}}' in second.log
    assert "The code of t_other" not in second.log
    assert "The code of parse" not in second.log
    assert "results are fresh (of their task's present version" in second.log
    assert f"INFO: {page}" in third.log
    assert "WARNING: The code of" not in third.log
    assert "The code of t_page" not in fourth.log
    hits = {path: site.hits[path] for path in ("/page/a", "/page/c", "/page/d")}
    assert hits == {"/page/a": 2, "/page/c": 1, "/page/d": 1}


def test_an_edited_callback_whose_pages_a_new_run_fetches_is_not_told_of(project):
    """Without a time to live there is nothing to do; of a task there is."""
    project.write(SPIDER)
    project.crawl()
    project.write(EDITED)

    second = project.crawl()

    assert "The code of t_page has changed" in second.log
    assert "The code of plain" not in second.log


def test_a_start_that_goes_on_with_a_run_says_what_is_done_and_what_waits(project, site):
    """After a kill the next start counts what it resumes; a first one resumes nothing."""
    project.write("""
    class S(scrapy.Spider):
        name = "s"

        def seeds(self):
            yield seed("A", "/page/a")
            yield seed("B", "/page/b")
            yield seed("C", "/gate")

        @task(tags=["page"])
        def t_page(self, response, item):
            pass
    """)
    process = project.start("crawl", "s")
    assert site.arrived.wait(PATIENCE)
    until(lambda: len(project.attempts()) == 2, project.log)
    kill(process)
    first = project.log()
    site.may_answer.set()

    second = project.crawl()

    assert "resuming" not in first
    assert "resuming: 2 done, 1 waiting" in second.log
    assert second.stats["reason"] == "finished"


BROKEN = """
class S(scrapy.Spider):
    name = "s"
    start_urls = [SITE + "/page/plain", SITE + "/gate"]

    def seeds(self):
        yield seed("A", "/page/task")

    @task(tags=["page"])
    def of_task(self, response, item):
        yield UpdateData({"n": 1 / (FACTOR)})

    def parse(self, response):
        if "plain" in response.url:
            yield {"n": 1 / (FACTOR)}
"""


def broken(project, site):
    """Start a crawl in which a task and a plain callback fail, and that stays alive; return it."""
    project.write(BROKEN.replace("FACTOR", "0"))
    process = project.start("crawl", "s")
    until(lambda: project.rows("SELECT count(*) FROM failures") == [(2,)], project.log)
    assert site.arrived.wait(60), project.log()
    return process


@pytest.mark.tracebacks("ZeroDivisionError")
def test_handled_failures_are_not_tried_by_a_worker_of_older_code(project, site):
    """It is named, leaves the work to the next start, and does not end the run without it."""
    process = broken(project, site)
    project.write(BROKEN.replace("FACTOR", "1"))

    handled = project.scrapy("itemgraph", "handle", "--all")
    explained = project.scrapy("itemgraph", "explain", "A")
    status = project.scrapy("itemgraph", "status", "-v")
    until(lambda: project.log(process).count("handled with other code") == 2, project.log)
    site.may_answer.set()
    process.wait(60)

    assert "2 handled; they may run again" in handled.output
    assert handled.output.count(f"(process {process.pid} on ") == 2
    assert "runs older code of of_task, and takes none of its work" in handled.output
    assert "leaves it alone, for it runs older code: restart it" in explained.output
    assert "of_task, parse" in status.output
    assert project.rows("SELECT count(*) FROM failures") == [(2,)]
    assert project.rows("SELECT is_finished FROM runs") == [(False,)]

    again = project.crawl()

    assert again.stats["reason"] == "finished", again.log
    assert project.rows("SELECT count(*), max(run) FROM crawls") == [(1, 1)]
    assert project.rows("SELECT count(*) FROM failures WHERE handled_at IS NULL") == [(0,)]
    assert project.rows("SELECT count(*) FROM work") == [(0,)]


LATE = """
class S(scrapy.Spider):
    name = "s"
    start_urls = [SITE + "/gate"]

    def parse(self, response):
        yield scrapy.Request(SITE + "/page/late", self.late)

    def late(self, response):
        yield {"n": 1 / (FACTOR)}
"""


@pytest.mark.tracebacks("ZeroDivisionError")
def test_a_callback_that_is_met_after_its_edit_runs_the_code_of_before(project, site):
    """What a worker runs is what it loaded, and not what stands in the file by then."""
    waits = 'ITEMGRAPH_IDLE = "wait"\n'
    project.write(LATE.replace("FACTOR", "0"), waits)
    project.start("crawl", "s")
    assert site.arrived.wait(60)
    project.write(LATE.replace("FACTOR", "1"), waits)
    site.may_answer.set()
    until(lambda: project.rows("SELECT count(*) FROM failures") == [(1,)], project.log)

    handled = project.scrapy("itemgraph", "handle", "--all")

    assert "runs older code of late" in handled.output


@pytest.mark.tracebacks("ZeroDivisionError")
def test_code_that_is_not_here_changes_nothing(project, site):
    """Who handles without it, or with what cannot be loaded, lets no worker back, and bars none."""
    broken(project, site)
    project.write(BROKEN.replace("FACTOR", "1"))
    project.scrapy("itemgraph", "handle", "--task", "parse")
    project.write("")

    elsewhere = project.scrapy("itemgraph", "handle", "--all")
    project.write("import no_such_module\n")
    unloadable = project.scrapy("itemgraph", "handle", "--all")
    site.may_answer.set()

    assert "1 handled" in elsewhere.output
    assert "older code" not in elsewhere.output
    assert unloadable.code == 0
    assert "cannot be loaded here" in unloadable.log + unloadable.output
    left = project.rows("SELECT name, cardinality(left_by) FROM tasks ORDER BY name")
    assert left == [("of_task", 0), ("parse", 1)]


OWN = """
class S(scrapy.Spider):
    name = "s"
    start_urls = [SITE + "/page/plain", SITE + "/gate"]

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.parse = self.parse_page

    def parse_page(self, response):
        if "plain" in response.url:
            yield {"n": 1 / 0}
"""


@pytest.mark.tracebacks("ZeroDivisionError")
def test_a_callback_of_the_instance_is_never_older_code(project, site):
    """What a spider sets on itself cannot be compared with its class."""
    project.write(OWN)
    project.start("crawl", "s")
    until(lambda: project.rows("SELECT count(*) FROM failures") == [(1,)], project.log)
    assert site.arrived.wait(60)

    handled = project.scrapy("itemgraph", "handle", "--all")
    site.may_answer.set()

    assert "1 handled" in handled.output
    assert "older code" not in handled.output


@pytest.mark.tracebacks("ZeroDivisionError")
@pytest.mark.parametrize("how", ["unchanged", "any code"])
def test_handled_failures_are_tried_at_once(project, site, how):
    """By the worker that runs: where its code is what is on disk, or whatever its code is."""
    broken(project, site)
    options = ()
    if how == "any code":
        project.write(BROKEN.replace("FACTOR", "1"))
        project.scrapy("itemgraph", "handle", "--task", "parse")  # which it takes back
        options = ("--any-code",)

    handled = project.scrapy("itemgraph", "handle", "--all", *options)

    assert "older code" not in handled.output
    tried = "SELECT count(*) FROM attempts WHERE outcome = 'failed'"
    until(lambda: project.rows(tried) == [(4,)], project.log)
    site.may_answer.set()
