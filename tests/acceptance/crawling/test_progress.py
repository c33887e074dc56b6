"""What a run does beside its pages, and says of it."""

from __future__ import annotations

import signal

from support.projects import until

from scrapy_itemgraph import CreateItem, ItemGraph
from scrapy_itemgraph.postgres import engine as engines

SPIDER = """
class S(scrapy.Spider):
    name = "s"

    def seeds(self):
        for number in range(501):
            yield CreateItem(id=f"OTHER:{number}")

    @task(tags=["note"], download=False)
    def read(self, response, item):
        pass
"""

IMPATIENT = """
from scrapy_itemgraph.tools import progress
progress._QUIET = progress._EVERY = 0
"""


def test_a_run_logs_how_far_a_sweep_is(project):
    """A task that is new to items that are there is brought to them with a line now and then."""
    project.write(SPIDER, settings=IMPATIENT)
    with ItemGraph.open(project.url, "s") as graph:
        graph.apply([CreateItem(id=f"{number}", tags=["note"]) for number in range(130)])

    run = project.crawl()

    assert run.code == 0, run.log
    bringing = "Bringing a change of the task 'read' to the items: "
    assert f"{bringing}100 of 130 items (77%)" in run.log
    assert "All items have what changed of the tasks" in run.log
    assert "Sowing seeds: 500 operations" in run.log
    assert "these numbers are not final" not in run.log
    assert run.stats["itemgraph/committed"] == 130


def test_a_run_deletes_what_nobody_needs(project):
    """A short run too deletes old rows, in the second in which it has nothing else to do."""
    project.write(SPIDER)
    assert project.crawl().code == 0
    engine = engines.sync_engine(project.url)
    with engine.begin() as connection:
        old = "SELECT gen_random_uuid(), now() - interval '2 days' FROM generate_series(1, 2500)"
        connection.exec_driver_sql(f"INSERT INTO commit_tokens (token, committed_at) {old}")
        connection.exec_driver_sql("UPDATE processes SET stopped_at = now() - interval '31 days'")
    engine.dispose()

    old = "SELECT count(*) FROM commit_tokens WHERE committed_at < now() - interval '1 day'"
    process = project.start("crawl", "s", "-s", "ITEMGRAPH_IDLE=wait")
    until(lambda: project.rows(old) == [(0,)], project.log)
    process.send_signal(signal.SIGINT)
    run = project.finish(process)

    assert run.code == 0, run.log
    assert "Pruned 1000 commit_tokens, 1 processes" in run.log
    assert project.rows("SELECT count(*) FROM workers") == [(1,)]
