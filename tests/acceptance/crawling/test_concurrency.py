"""How many requests are under way at once."""

from __future__ import annotations

import pytest
from support import sites

from scrapy_itemgraph.postgres import engine as engines

SPIDER = """
class S(scrapy.Spider):
    name = "s"

    def seeds(self):
        for n in range(30):
            yield seed(f"PAGE:{n}", f"/slow/0.03/{n}")

    @task(tags=["page"])
    def parse_page(self, response, item):
        yield UpdateData({"done": True})
        yield scrapy.Request(response.url + "?more", self.more)

    def more(self, response, item):
        yield UpdateData({"more": True})
"""


@pytest.mark.parametrize(
    ("setting", "most"),
    [
        ("CONCURRENT_REQUESTS_PER_DOMAIN = 2", 2),
        ('DOWNLOAD_SLOTS = {"127.0.0.1": {"concurrency": 3}}', 3),
        ("CONCURRENT_REQUESTS = 1", 1),
    ],
)
def test_the_limit_of_a_slot_holds(project, site, monkeypatch, setting, most):
    """No more requests of a slot are under way than the project's settings allow."""
    under_way, peak = 0, 0
    answer = sites.Site.answer

    def counted(self, target):
        nonlocal under_way, peak
        under_way += 1
        peak = max(peak, under_way)
        try:
            return answer(self, target)
        finally:
            under_way -= 1

    monkeypatch.setattr(sites.Site, "answer", counted)
    project.write(SPIDER, settings=setting)

    run = project.crawl()

    assert set(map(tuple, project.outcomes().values())) == {("ok",)}, run.log
    assert peak == most


def test_neither_strays_nor_another_middleware_hold_work_up(project):
    """Work runs beside many requests of no task, and beside a middleware that answers first."""
    project.write(
        """
        class S(scrapy.Spider):
            name = "s"

            async def start(self):
                for n in range(30):
                    yield scrapy.Request(
                        f"{SITE}/page/{n}", self.plain, meta={"download_slot": "slow"}
                    )

            def seeds(self):
                for n in range(20):
                    yield seed(f"PAGE:{n}", f"/early/{n}")

            def plain(self, response):
                self.logger.info("A STRAY ENDS")

            @task(tags=["page"])
            def parse_page(self, response, item):
                self.logger.info("WORK ENDS")
        """,
        settings="""
        CONCURRENT_REQUESTS = 6
        CONCURRENT_REQUESTS_PER_DOMAIN = 4
        DOWNLOAD_SLOTS = {"slow": {"concurrency": 1, "delay": 0.2, "randomize_delay": False}}
        DOWNLOADER_MIDDLEWARES = {"proj.early.Early": -200}
        ITEMGRAPH_CLAIM_BATCH = 4
        """,
        early="""
        from scrapy.http import HtmlResponse


        class Early:
            def process_request(self, request):
                if "/early/" in request.url:
                    return HtmlResponse(request.url, body=b"early", request=request)
                return None
        """,
    )

    run = project.crawl()

    assert project.outcomes() == {f"PAGE:{n}": ["ok"] for n in range(20)}, run.log
    assert run.stats["reason"] == "finished"
    assert run.log.rindex("WORK ENDS") < run.log.rindex("A STRAY ENDS")


def test_what_two_workers_died_on_runs_alone(project):
    """While a suspect runs, its worker claims nothing else, also when there is something."""
    project.write("""
    from scrapy_itemgraph import exceptions


    class S(scrapy.Spider):
        name = "s"

        def seeds(self):
            yield seed("SUSPECT", tags=["suspect"])
            later = timedelta(hours=1)
            yield CreateItem(id="OTHER", tags=["other"], data={"url": SITE}, not_before=later)

        @task(tags=["suspect"])
        async def parse_suspect(self, response, item):
            if not hasattr(self, "go"):
                engine = self.crawler.engine
                self.closing = asyncio.ensure_future(engine.close_spider_async(reason="enough"))
                raise exceptions.DatabaseUnavailableError("given back")
            self.logger.info("SUSPECT BEGINS")
            await asyncio.sleep(4)
            self.logger.info("SUSPECT ENDS")

        @task(tags=["other"])
        def parse_other(self, response, item):
            self.logger.info("OTHER RUNS")
    """)
    assert project.crawl().stats["reason"] == "enough"
    change(project, "UPDATE work SET deaths = 2 WHERE not_before IS NULL")
    process = project.start("crawl", "s", "-a", "go=1")
    project.wait_for("SUSPECT BEGINS")
    change(project, "UPDATE work SET not_before = now() WHERE not_before IS NOT NULL")

    run = project.finish(process)

    assert project.outcomes() == {"SUSPECT": ["released", "ok"], "OTHER": ["ok"]}, run.log
    assert run.log.index("SUSPECT ENDS") < run.log.index("OTHER RUNS")


def change(project, statement):
    """Change the project's database behind the crawl's back."""
    engine = engines.sync_engine(project.url)
    with engine.begin() as connection:
        connection.exec_driver_sql(statement)
    engine.dispose()


ITEMS = """
import asyncio

class Pipeline:
    at_work = most = tasks = 0
    done = []

    async def process_item(self, item):
        Pipeline.at_work += 1
        Pipeline.most = max(Pipeline.most, Pipeline.at_work)
        await asyncio.sleep(0.02)
        Pipeline.at_work -= 1
        Pipeline.done.append(item["n"])
        return item

class S(scrapy.Spider):
    name = "s"
    custom_settings = {"ITEM_PIPELINES": {Pipeline: 1}}

    async def start(self):
        yield scrapy.Request(f"{SITE}/page/1")

    def parse(self, response):
        for n in range(8):
            yield {"n": n}
            Pipeline.tasks = max(Pipeline.tasks, len(asyncio.all_tasks()))
        yield scrapy.Request(f"{SITE}/page/2", self.last)
        raise ValueError("after all")

    def last(self, response):
        yield {"n": 8}

    def closed(self, reason):
        stats = self.crawler.stats
        stats.set_value("items/most", Pipeline.most)
        stats.set_value("items/tasks", Pipeline.tasks)
        stats.set_value("items/done", sorted(Pipeline.done))
"""


@pytest.mark.edge
@pytest.mark.tracebacks("ValueError: after all")
def test_as_many_items_of_a_response_are_in_pipelines_as_the_setting_says(project):
    """CONCURRENT_ITEMS holds; what was yielded before an error is processed and followed."""
    project.write(ITEMS, settings="CONCURRENT_ITEMS = 3")

    run = project.crawl()

    assert run.stats["items/most"] == 3
    assert run.stats["items/done"] == list(range(9))
    assert run.log.count("Spider error processing") == 1
    assert run.stats["item_scraped_count"] == 9


@pytest.mark.edge
@pytest.mark.tracebacks("ValueError: after all")
def test_a_response_starts_no_task_that_has_nothing_to_do(project):
    """Scrapy starts CONCURRENT_ITEMS tasks for each response; here there is one for each item."""
    project.write(ITEMS, settings="CONCURRENT_ITEMS = 1000")

    run = project.crawl()

    assert run.stats["items/most"] == 8
    assert run.stats["items/tasks"] < 100
