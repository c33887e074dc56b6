"""A crawl that nobody runs, beside a living worker of another crawl."""

from __future__ import annotations

from support.projects import kill, until

from scrapy_itemgraph import ItemGraph

SPIDER = """
class S(scrapy.Spider):
    name = "s"

    def seeds(self):
        yield seed("GATE", "/gate", tags=["gate"])
        yield seed("OLD", tags=["old"])

    @task(tags=["old"], nice=-1)
    def parse_old(self, response, item):
        yield SetTTL("1s")

    @task(tags=["gate"])
    def parse_gate(self, response, item):
        pass


class Other(scrapy.Spider):
    name = "other"
    custom_settings = {"ITEMGRAPH_IDLE": "wait"}

    @task(tags=["nothing"])
    def parse(self, response, item):
        pass
"""


def test_a_worker_of_another_crawl_does_what_is_due(project, site):
    """It buries the killed worker, gives its claim back and stages; then the run goes on."""
    project.write(SPIDER, "CONCURRENT_REQUESTS = 1")
    killed = project.start("crawl", "s")
    assert site.arrived.wait(120), project.log()
    kill(killed)
    other = project.start("crawl", "other")
    with ItemGraph.open(project.url, "s") as graph:
        until(lambda: (_waiting(graph), len(graph.status()["workers"])) == (2, 0), project.log)
        (stopped,) = graph.crawls.runs()
        site.may_answer.set()
        run = project.crawl()
        (finished,) = graph.crawls.runs()
    kill(other)

    assert (stopped.state, stopped.reason) == ("stopped", "died")
    assert run.stats["reason"] == "finished"
    assert run.stats["itemgraph/committed"] == 2
    assert (finished.number, finished.state) == (stopped.number, "finished")
    assert project.outcomes()["GATE"] == ["died", "ok"]


def _waiting(graph):
    return sum(task.waiting for task in graph.tasks.list())
