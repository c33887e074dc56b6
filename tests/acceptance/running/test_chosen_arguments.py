"""What whoever queues a crawl can choose: arguments that Scrapy, a feed or a file stands behind."""

from __future__ import annotations

from support import queued, web_servers

from scrapy_itemgraph.graph import ItemGraph

SPIDERS = """
from scrapy_itemgraph.contrib.sites import SiteSpider


class S(scrapy.Spider):
    name = "s"

    def __init__(self, name=None, start="", city="", **kwargs):
        super().__init__(name, **kwargs)
        self.city = city

    def seeds(self):
        yield seed("PAGE")

    @task(tags=["page"])
    def parse_page(self, response, item):
        yield {"page": 1}


class Kept(SiteSpider):
    name = "kept"
"""
FEEDS = 'FEEDS = {"feeds/%(name)s-%(city)s.jsonl": {"format": "jsonlines"}}'


def test_over_http_no_argument_replaces_what_scrapy_has_or_names_a_file(project, site, monkeypatch):
    """SS-3: `name` and the like, and `urls` of a spider for sites, are refused and not queued."""
    monkeypatch.setenv("SITE", project.site_url)
    project.write(SPIDERS)
    with web_servers.serving(project.url, cwd=project.directory) as server:

        def ask(spider, project="proj", **arguments):
            body = {"spider": spider, "project": project, "arguments": arguments}
            answer = server.ask("POST", "/api/v1/queue", json=body)
            return answer.status_code, answer.text

        for name in ("name", "custom_settings", "start_urls", "__class__"):
            status, said = ask("s", **{name: "../../outside"})
            assert (status, "would replace" in said) == (422, True), said
        assert ask("kept", url="https://a.example/", urls="/etc/passwd")[0] == 422
        for name in ("name", "start", "urls"):
            status, said = ask("s", "elsewhere", **{name: "x"})
            assert (status, "does not have" in said) == (422, True), said
        assert server.get("/api/v1/queue")["rows"] == []
        assert ask("s", start="2026-01-01", urls="a b")[0] == 201
        assert ask("kept", url="https://a.example/")[0] == 201


def test_a_process_of_the_queue_leaves_no_folder_of_its_feeds(project, site):
    """SS-3: whoever added the crawl, its process refuses arguments that lead a feed elsewhere."""
    project.write(SPIDERS, FEEDS)
    chosen = {"named": {"name": "../../out"}, "led": {"city": "/../../out"}, "well": {"city": "x"}}
    for name, arguments in chosen.items():
        queued.add(project, name, arguments=arguments)

    queued.add(project, "old", arguments={"city": "/etc"})
    queued.set_terms(project, "old", start_settings={"FEEDS": {}, "FEED_URI": "feeds/%(city)s.xml"})

    run = project.finish(queued.work(project, "--once"))

    assert run.code == 0, run.log
    for path in (project.directory / "out.jsonl", project.directory.parent / "out-.jsonl"):
        assert not path.exists()
    assert (project.directory / "feeds" / "s-x.jsonl").read_text() == '{"page": 1}\n'
    with ItemGraph.open(project.url) as graph:
        why = {one.crawl: one.reason for one in graph.jobs.list()}
    assert "'name' would replace what Scrapy itself has on the spider s" in why["named"]
    assert "would lead the feed feeds/%(name)s-%(city)s.jsonl out of its folder" in why["led"]
    assert "would lead the feed feeds/%(city)s.xml out of its folder" in why["old"]
    by_hand = project.crawl("-a", "name=other", "-s", "ITEMGRAPH_CRAWL=by-hand")
    assert (project.directory / "feeds" / "other-.jsonl").exists(), by_hand.log


def test_the_command_line_refuses_what_a_process_would(project, site):
    """`crawls add` says at once which argument cannot be; one that the spider names is taken."""
    project.write(SPIDERS)
    add = ("itemgraph", "crawls", "add", "s", "one", "-a")

    refused = project.scrapy(*add, "name=../../out")
    assert (refused.code, "would replace" in refused.log) == (1, True)
    assert project.scrapy(*add, "start=2026-01-01").code == 0
