"""`request=` methods that are coroutines, and the metadata that they see."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.edge

SEVERAL = """
class S(scrapy.Spider):
    name = "s"
    under_way = most = 0

    def seeds(self):
        for n in range(20):
            yield seed(f"PAGE:{n}", f"/page/{n}")

    async def page_request(self, item):
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        answer = await self.crawler.engine.download_async(scrapy.Request(SITE + "/page/token"))
        await asyncio.sleep(0.3)
        self.under_way -= 1
        token = answer.css("h1::text").get()
        return scrapy.Request(item.data["url"], headers={"Token": token}, meta={"most": self.most})

    @task(tags=["page"], request="page_request")
    def parse(self, response, item):
        yield UpdateData({"token": response.request.headers["Token"].decode(), "most": self.most})
"""


def test_several_methods_await_at_once(project):
    """Each awaits a token that the site gives it, while the methods of other items do so too."""
    run = project.write(SEVERAL).crawl()

    assert set(map(tuple, project.outcomes().values())) == {("ok",)}, run.log
    data = project.data().values()
    assert {one["token"] for one in data} == {"/page/token"}
    assert max(one["most"] for one in data) >= 10
    assert run.stats["downloader/request_count"] == 40


BESIDE = """
class S(scrapy.Spider):
    name = "s"

    def __init__(self, **arguments):
        super().__init__(**arguments)
        self.is_parsed = asyncio.Event()

    def seeds(self):
        yield seed("SLOW", tags=["slow"])
        yield seed("PAGE", "/page/1")

    async def slow_request(self, item):
        await asyncio.wait_for(self.is_parsed.wait(), 60)
        return scrapy.Request(item.data["url"])

    @task(tags=["slow"], nice=-1, request="slow_request")
    def parse_slow(self, response, item):
        yield UpdateData({"done": True})

    @task(tags=["page"])
    def parse(self, response, item):
        yield CreateItem(id="NEW", tags=["new"], data={"url": SITE + "/page/3"})

    @task(tags=["new"], request=lambda item: scrapy.Request(item.data["url"]))
    def parse_new(self, response, item):
        self.is_parsed.set()
"""


def test_a_method_that_awaits_holds_nothing_else_back(project):
    """It awaits a page that was claimed with its own, and one that was found by that."""
    run = project.write(BESIDE).crawl()

    assert project.outcomes() == {
        "PAGE": ["ok"],
        "NEW": ["ok"],
        "SLOW": ["ok"],
    }, run.log


ENDS = """
async def cancelled():
    waited = asyncio.get_running_loop().create_future()
    waited.cancel()
    await waited


class S(scrapy.Spider):
    name = "s"
    asked = {"sync": 0, "async": 0}

    def seeds(self):
        for kind in ("sync", "async"):
            for how in ("again", "error", "exit", "ignored", "none", "url"):
                yield seed(f"{kind}:{how}", tags=[kind])
        yield seed("gen", tags=["gen"])
        yield seed("cancelled", tags=["async"])

    def made(self, item):
        kind, _, how = item.id.partition(":")
        if how == "again":
            self.asked[kind] += 1
            if self.asked[kind] < 3:
                raise TryAgain(after=0.05, reason="no token yet")
        if how == "error":
            item.log("info", "a line before the end")
            raise ValueError("no token")
        if how == "exit":
            raise SystemExit("no token at all")
        if how == "ignored":
            raise IgnoreRequest("not wanted")
        if how == "none":
            return None
        return scrapy.Request("odd:" if how == "url" else item.data["url"])

    async def made_later(self, item):
        await asyncio.sleep(0.01)
        if item.id == "cancelled":
            await cancelled()
        return self.made(item)

    async def made_in_turn(self, item):
        yield self.made(item)

    @task(tags=["sync"], request="made")
    def parse_sync(self, response, item):
        yield UpdateData({"done": True})

    @task(tags=["async"], request="made_later")
    def parse_async(self, response, item):
        yield UpdateData({"done": True})

    @task(tags=["gen"], request="made_in_turn")
    def parse_gen(self, response, item):
        yield UpdateData({"done": True})
"""
ERRORS = """
    SELECT i.name, a.outcome, a.error->>'type', a.error->>'message', a.error->>'spider',
        a.error->>'task', a.error->>'item', a.error->>'place', a.error->>'url',
        jsonb_array_length(a.log::jsonb)
    FROM attempts a JOIN items i ON i.id = a.item_id ORDER BY a.id
"""


@pytest.mark.tracebacks("")
def test_a_coroutine_ends_as_other_methods_do(project):
    """Errors, TryAgain, and what is no Request come to the same, with spider, task and item."""
    run = project.write(ENDS).crawl()
    rows = [list(map(str, row)) for row in project.rows(ERRORS)]
    sync = [row for row in rows if row[0].startswith("sync:")]
    later = [
        [each.replace("async", "sync") for each in row]
        for row in rows
        if row[0].startswith("async:")
    ]

    assert sorted(later) == sorted(sync), run.log
    assert [row[1] for row in sync if row[0] == "sync:again"] == ["retry", "retry", "ok"]
    assert [row[1:9] for row in sync if row[0] == "sync:error"] == [
        [
            "failed",
            "ValueError",
            "no token",
            "s",
            "parse_sync",
            "sync:error",
            "proj.spiders.s.S.made",
            project.site_url + "/page",
        ]
    ]
    errors = {row[0]: " ".join(row[2:4]) for row in rows}
    assert errors["cancelled"].startswith("asyncio.exceptions.CancelledError")
    assert errors["gen"].startswith("request request= of the task returned <async_generator object")
    assert "was never awaited" not in run.log


STOPPED = """
class S(scrapy.Spider):
    name = "s"

    def seeds(self):
        for n in range(20):
            yield seed(f"PAGE:{n}", f"/page/{n}", tags=["later"])
        yield seed("GATE", "/gate", tags=["gate"])

    async def later_request(self, item):
        if not hasattr(self, "go"):
            self.logger.info("%s awaits", item.id)
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0.05)
                self.logger.info("%s is given up", item.id)
        return scrapy.Request(item.data["url"])

    @task(tags=["later"], request="later_request")
    def parse_later(self, response, item):
        yield UpdateData({"done": True})

    @task(tags=["gate"], nice=1)
    def parse_gate(self, response, item):
        yield UpdateData({"done": True})
"""


def test_work_is_given_back_whose_method_awaits_when_the_crawl_is_told_to_stop(project, site):
    """SIGTERM: the page that is fetched is committed, methods are cancelled and clean up."""
    project.write(STOPPED)
    process = project.start("crawl", "s")
    project.wait_for("awaits")
    assert site.arrived.wait(120), project.log()

    process.terminate()
    project.wait_for("shutting down gracefully")
    site.may_answer.set()
    run = project.finish(process)

    assert run.stats["reason"] == "shutdown", run.log
    assert project.claimed() == 0
    outcomes = project.outcomes()
    assert outcomes.pop("GATE") == ["ok"]
    assert set(map(tuple, outcomes.values())) == {("released",)}
    assert run.log.count("awaits") == run.log.count("is given up") == len(outcomes)

    again = project.crawl("-a", "go=1")

    assert again.code == 0, again.log
    assert {ends[-1] for ends in project.outcomes().values()} == {"ok"}
    assert project.rows("SELECT count(*) FROM failures") == [(0,)]


METADATA = """
class S(scrapy.Spider):
    name = "s"

    def seeds(self):
        yield seed("PAGE", tags=["page", "sync", "plain"])

    async def later_request(self, item):
        assert (await item.get_metadata() or {}) == item.metadata
        return self.page_request(item)

    def page_request(self, item):
        return scrapy.Request(SITE + "/page/after/" + item.metadata.get("last", "none"))

    @task(tags=["page"], request="later_request")
    def parse_page(self, response, item):
        assert item.metadata == ({} if "none" in response.url else {"last": "first"})
        yield UpdateMetadata({"last": "first"})

    @task(tags=["sync"], request="page_request")
    def parse_sync(self, response, item):
        yield UpdateMetadata({"last": "second"})

    @task(tags=["plain"])
    def parse_plain(self, response, item):
        yield UpdateData({"seen": hasattr(item, "metadata")})
"""


def test_a_method_sees_what_its_task_has_stored_with_the_item(project, site):
    """It is empty before the first result; tasks without `request=` do not have it loaded."""
    run = project.write(METADATA).crawl()
    assert project.outcomes() == {"PAGE": ["ok"] * 3}, run.log

    assert project.scrapy("itemgraph", "expire", "PAGE", "--crawl", "s").code == 0
    run = project.crawl()

    assert project.outcomes() == {"PAGE": ["ok"] * 6}, run.log
    assert {target: hits for target, hits in site.hits.items() if "after" in target} == {
        "/page/after/none": 2,
        "/page/after/first": 1,
        "/page/after/second": 1,
    }
    assert project.data()["PAGE"]["seen"] is False


def test_a_simulation_awaits_the_method_and_has_the_metadata(project, site):
    """It fetches what the method asks for, and changes nothing."""
    project.write(METADATA).crawl()

    told = project.scrapy("itemgraph", "simulate", "s", "parse_page", "PAGE")

    assert told.code == 0, told.log
    assert site.hits["/page/after/first"] == 1
    assert project.outcomes() == {"PAGE": ["ok"] * 3}
