"""A spider whose callbacks, errbacks and items end in every way, and how each is to end."""

from __future__ import annotations

SETTINGS = """
ROBOTSTXT_OBEY = True
REDIRECT_MAX_TIMES = 3
DOWNLOADER_MIDDLEWARES = {"proj.middlewares.Downloads": 550}
SPIDER_MIDDLEWARES = {"proj.middlewares.Scrapes": 550}
ITEM_PIPELINES = {"proj.pipelines.Pipeline": 300}
"""


MIDDLEWARES = """
import scrapy
from scrapy.exceptions import IgnoreRequest


class Downloads:
    def process_request(self, request):
        wish = request.meta.get("wish")
        if wish == "ignore":
            raise IgnoreRequest("not this one")
        if wish == "break":
            raise RuntimeError("the middleware is broken")
        if wish == "answer":
            return scrapy.http.HtmlResponse(request.url, body=b"<title>mine</title>")
        if wish == "replace":
            url = request.url + "?new"
            return scrapy.Request(url, request.callback, cb_kwargs=request.cb_kwargs)
        return None

    def process_response(self, request, response):
        if request.meta.get("wish") == "ignore response":
            raise IgnoreRequest("not after all")
        return response


class Scrapes:
    def process_spider_input(self, response):
        if response.request.meta.get("wish") == "refuse input":
            raise ValueError("no such input")

    async def process_spider_output(self, response, result):
        async for one in result:
            yield one
        if response.request.meta.get("wish") == "break output":
            raise ValueError("no such output")

    def process_spider_exception(self, response, exception):
        if str(exception) == "a middleware knows":
            return [{"recovered": True}]
        return None
"""


PIPELINES = """
import asyncio

from scrapy.exceptions import DropItem


class Pipeline:
    async def process_item(self, item):
        if item.get("wait"):
            await asyncio.sleep(0.05)
        if item.get("drop"):
            raise DropItem("unwanted")
        if item.get("break"):
            raise ValueError("the pipeline is broken")
        return item
"""


SPIDER = """
from scrapy.downloadermiddlewares.retry import get_retry_request

DEAD = "http://127.0.0.1:1/"
DATA = {"t_data_slot": {"download_slot": "mine"}, "t_data_slot_kept": {"download_slot": "mine"}}


class S(scrapy.Spider):
    name = "s"
    allowed_domains = ["127.0.0.1"]

    def seeds(self):
        for name in dir(self):
            if name.startswith("t_"):
                path = getattr(self, name).__doc__ or "/page/" + name
                yield seed(name, path, tags=[name], **DATA.get(name, {}))

    def with_errback(self, item):
        path = "/page" if item.data.get("url") is None else item.data["url"]
        return scrapy.Request(path, errback=getattr(self, "e_" + item.task))

    def to_dead(self, item):
        return scrapy.Request(DEAD, meta={"dont_retry": True}, errback=self.recover)

    def dead(self, item):
        return scrapy.Request(DEAD)

    def wish(self, item):
        return scrapy.Request(item.data["url"], meta={"wish": item.task[2:].replace("_", " ")})

    def recover(self, failure):
        yield UpdateData({"recovered": type(failure.value).__name__})

    def done(self):
        return UpdateData({"done": True})

    # downloads

    @task(tags=["t_page"])
    def t_page(self, response, item):
        yield self.done()

    @task(tags=["t_redirect"])
    def t_redirect(self, response, item):
        "/redirect?to=/page/target"
        yield self.done()

    @task(tags=["t_redirect_to_seen"])
    def t_redirect_to_seen(self, response, item):
        "/redirect?to=/page/t_page"
        yield self.done()

    @task(tags=["t_redirect_to_itself"])
    def t_redirect_to_itself(self, response, item):
        "/loop"

    @task(tags=["t_too_many_redirections"])
    def t_too_many_redirections(self, response, item):
        "/redirect?to=/redirect?to=/redirect?to=/redirect?to=/redirect?to=/page"

    @task(tags=["t_redirect_offsite"])
    def t_redirect_offsite(self, response, item):
        "/redirect?to=http://elsewhere.invalid/"

    @task(tags=["t_404"])
    def t_404(self, response, item):
        "/status/404"

    @task(tags=["t_404_handled"], request="handled")
    def t_404_handled(self, response, item):
        "/status/404?handled"
        yield UpdateData({"status": response.status})

    def handled(self, item):
        return scrapy.Request(item.data["url"], meta={"handle_httpstatus_list": [404]})

    @task(tags=["t_503"], max_attempts=2, backoff=0.1)
    def t_503(self, response, item):
        "/status/503"

    @task(tags=["t_flaky"], backoff=0.1)
    def t_flaky(self, response, item):
        "/flaky/1"
        yield UpdateData({"attempt": item.attempt})

    @task(tags=["t_retry_after"], max_attempts=2, backoff="1d")
    def t_retry_after(self, response, item):
        "/status/429?retry-after=1"

    @task(tags=["t_dead"], max_attempts=2, backoff=0.1, request="dead")
    def t_dead(self, response, item):
        pass

    @task(tags=["t_other_slot"], request="elsewhere")
    def t_other_slot(self, response, item):
        yield self.done()

    def elsewhere(self, item):
        return scrapy.Request(item.data["url"], meta={"download_slot": "another"})

    @task(tags=["t_changing_slot"], request="changing")
    def t_changing_slot(self, response, item):
        yield self.done()

    def changing(self, item):
        self.turn = getattr(self, "turn", 0) + 1
        return scrapy.Request(item.data["url"], meta={"download_slot": f"turn {self.turn}"})

    @task(tags=["t_odd_slot"], request="odd_slot")
    def t_odd_slot(self, response, item):
        pass

    def odd_slot(self, item):
        return scrapy.Request(item.data["url"], meta={"download_slot": 5})

    @task(tags=["t_data_slot"])
    def t_data_slot(self, response, item):
        yield UpdateData({"slot": response.meta["download_slot"]})

    @task(tags=["t_data_slot_kept"], request="wish")
    def t_data_slot_kept(self, response, item):
        yield UpdateData({"slot": response.meta["download_slot"]})

    # middlewares

    @task(tags=["t_ignore"], request="wish")
    def t_ignore(self, response, item):
        pass

    @task(tags=["t_ignore_response"], request="wish")
    def t_ignore_response(self, response, item):
        pass

    @task(tags=["t_break"], request="wish")
    def t_break(self, response, item):
        pass

    @task(tags=["t_answer"], request="wish")
    def t_answer(self, response, item):
        yield UpdateData({"title": response.css("title::text").get()})

    @task(tags=["t_replace"], request="wish")
    def t_replace(self, response, item):
        yield UpdateData({"at": response.url.rpartition("?")[2]})

    @task(tags=["t_refuse_input"], request="wish")
    def t_refuse_input(self, response, item):
        pass

    @task(tags=["t_break_output"], request="wish")
    def t_break_output(self, response, item):
        yield self.done()

    @task(tags=["t_recovered"])
    def t_recovered(self, response, item):
        yield self.done()
        raise ValueError("a middleware knows")

    @task(tags=["t_offsite"], request="offsite")
    def t_offsite(self, response, item):
        pass

    def offsite(self, item):
        return scrapy.Request("http://elsewhere.invalid/", meta={"download_slot": "127.0.0.1"})

    @task(tags=["t_robots"])
    def t_robots(self, response, item):
        "/private/page"

    # items

    @task(tags=["t_drop"])
    def t_drop(self, response, item):
        yield self.done()
        yield {"drop": True}

    @task(tags=["t_bad_pipeline"])
    def t_bad_pipeline(self, response, item):
        yield self.done()
        yield {"break": True}

    @task(tags=["t_slow_pipeline"])
    def t_slow_pipeline(self, response, item):
        yield {"wait": True}

    @task(tags=["t_slow_bad_pipeline"])
    def t_slow_bad_pipeline(self, response, item):
        yield {"wait": True, "break": True}

    # errbacks

    @task(tags=["t_errback_404"], request="with_errback")
    def t_errback_404(self, response, item):
        "/status/404"

    def e_t_errback_404(self, failure):
        yield UpdateData({"recovered": failure.value.response.status})

    @task(tags=["t_errback_download"], request="to_dead")
    def t_errback_download(self, response, item):
        pass

    @task(tags=["t_errback_async"], request="with_errback")
    def t_errback_async(self, response, item):
        "/private/for-errback"

    async def e_t_errback_async(self, failure):
        await asyncio.sleep(0.01)
        return [UpdateData({"recovered": type(failure.value).__name__})]

    @task(tags=["t_errback_raises"], request="with_errback")
    def t_errback_raises(self, response, item):
        "/status/404"

    def e_t_errback_raises(self, failure):
        raise KeyError("the errback is broken")

    @task(tags=["t_errback_declines"], request="with_errback")
    def t_errback_declines(self, response, item):
        "/status/410"

    def e_t_errback_declines(self, failure):
        return failure

    @task(tags=["t_errback_last"], request="with_errback", max_attempts=2, backoff=0.1)
    def t_errback_last(self, response, item):
        "/status/503?last"

    def e_t_errback_last(self, failure):
        yield UpdateData(lambda old: {**old, "errbacks": old.get("errbacks", 0) + 1})

    @task(tags=["t_errback_follows"], request="with_errback")
    def t_errback_follows(self, response, item):
        "/private/follows"

    def e_t_errback_follows(self, failure):
        yield scrapy.Request(SITE + "/page/fallback", self.follow, cb_kwargs={"left": 0})

    # callbacks

    @task(tags=["t_raises"])
    async def t_raises(self, response, item):
        raise ValueError("at once")

    @task(tags=["t_raises_midway"])
    def t_raises_midway(self, response, item):
        yield self.done()
        yield {"too": "early"}
        yield scrapy.Request(SITE + "/page/never", self.follow)
        raise ValueError("midway")

    @task(tags=["t_allowed"], allow_failure=True)
    def t_allowed(self, response, item):
        yield self.done()
        raise ValueError("midway")

    @task(tags=["t_allowed_by_operation"])
    def t_allowed_by_operation(self, response, item):
        yield AllowFailure()
        yield self.done()
        raise ValueError("midway")

    @task(tags=["t_no_download"], download=False)
    def t_no_download(self, response, item):
        yield UpdateData({"response": response})

    @task(tags=["t_coroutine"])
    async def t_coroutine(self, response, item):
        await asyncio.sleep(0.01)
        return [self.done(), None]

    @task(tags=["t_async_generator"])
    async def t_async_generator(self, response, item):
        other = await item.get_item("t_page")
        yield UpdateData({"other": other.id, "none": await item.get_metadata()})

    @task(tags=["t_returns_one"])
    def t_returns_one(self, response, item):
        return self.done()

    @task(tags=["t_returns_nothing"])
    def t_returns_nothing(self, response):
        return None

    @task(tags=["t_foreign"])
    def t_foreign(self, response, item):
        yield self.done()
        yield 42

    @task(tags=["t_class"])
    def t_class(self, response, item):
        yield Expire

    @task(tags=["t_nan"])
    def t_nan(self, response, item):
        yield UpdateData({"price": float("nan")})

    @task(tags=["t_unknown_task"])
    def t_unknown_task(self, response, item):
        yield Expire(task="t_pag")

    @task(tags=["t_unknown_item"])
    def t_unknown_item(self, response, item):
        yield UpdateData({}, id="nobody")

    @task(tags=["t_bad_merge"])
    def t_bad_merge(self, response, item):
        yield UpdateData(lambda old: 1 / 0)

    @task(tags=["t_request_raises"], request=lambda item: item.data["nothing"])
    def t_request_raises(self, response, item):
        pass

    @task(tags=["t_request_junk"], request=lambda item: "http://a.b/")
    def t_request_junk(self, response, item):
        pass

    @task(tags=["t_odd_name"], name="odd.name:1")
    def t_odd_name(self, response, item):
        yield UpdateData({"task": item.task})

    # several requests

    def follow(self, response, item, left=0):
        yield UpdateData(lambda old: {**old, "seen": old.get("seen", 0) + 1})
        if left:
            url = f"{SITE}/page/{item.id}/{left}"
            yield scrapy.Request(url, self.follow, cb_kwargs={"left": left - 1})

    @task(tags=["t_chain"])
    def t_chain(self, response, item):
        yield from self.follow(response, item, 3)

    @task(tags=["t_fan"])
    def t_fan(self, response, item):
        for n in (1, 2, 3, 3, 3):
            yield scrapy.Request(f"{SITE}/page/{item.id}/{n}", self.follow)

    @task(tags=["t_same_object"])
    def t_same_object(self, response, item):
        request = scrapy.Request(SITE + "/page/same", self.follow, dont_filter=True)
        yield request
        yield request

    @task(tags=["t_plain_follow_up"])
    def t_plain_follow_up(self, response, item):
        yield scrapy.Request(SITE + "/page/plain", self.plain)

    def plain(self, response):
        yield self.done()

    @task(tags=["t_follow_404"])
    def t_follow_404(self, response, item):
        yield self.done()
        yield scrapy.Request(SITE + "/status/404?follow", self.follow)

    @task(tags=["t_follow_dead"])
    def t_follow_dead(self, response, item):
        yield scrapy.Request(DEAD, self.follow, errback=self.recover)

    @task(tags=["t_follow_ignored"])
    def t_follow_ignored(self, response, item):
        yield self.done()
        yield scrapy.Request(SITE + "/page/x", self.follow, meta={"wish": "ignore"})

    @task(tags=["t_follow_offsite"])
    def t_follow_offsite(self, response, item):
        yield self.done()
        yield scrapy.Request("http://elsewhere.invalid/", self.follow)

    @task(tags=["t_follow_flaky"])
    def t_follow_flaky(self, response, item):
        yield scrapy.Request(SITE + "/flaky/1/follow", self.follow)

    @task(tags=["t_follow_gives_up"])
    def t_follow_gives_up(self, response, item):
        yield scrapy.Request(SITE + "/flaky/9/follow", self.follow)

    @task(tags=["t_follow_redirect_to_seen"])
    def t_follow_redirect_to_seen(self, response, item):
        yield self.done()
        yield scrapy.Request(SITE + "/redirect?to=" + response.url, self.follow)

    @task(tags=["t_get_retry_request"])
    def t_get_retry_request(self, response, item):
        yield UpdateData(lambda old: {**old, "runs": old.get("runs", 0) + 1})
        request = get_retry_request(response.request, spider=self, reason="again")
        if request:
            yield request

    @task(tags=["t_replaced"])
    def t_replaced(self, response, item):
        if "again" not in response.url:
            yield response.request.replace(url=response.url + "?again")
        else:
            yield self.done()

    @task(tags=["t_copied_meta"])
    def t_copied_meta(self, response, item):
        yield scrapy.Request(SITE + "/page/copied", self.follow, meta=response.meta)

    @task(tags=["t_own_task_again"])
    def t_own_task_again(self, response, item):
        if "?2" not in response.url:
            yield scrapy.Request(response.url + "?2", self.t_own_task_again)
        yield UpdateData(lambda old: {**old, "runs": old.get("runs", 0) + 1})

    @task(tags=["t_plain_to_task"])
    def t_plain_to_task(self, response, item):
        yield scrapy.Request(SITE + "/page/to-task", self.leads_to_task)

    def leads_to_task(self, response):
        yield scrapy.Request(SITE + "/page/t_page", self.t_page)

    @task(tags=["t_no_download_follows"], download=False)
    def t_no_download_follows(self, response, item):
        yield scrapy.Request(SITE + "/page/after-nothing", self.follow)
"""


OK = ["ok"]


FAILED = ["failed"]


REFUSED = ["refused"]


EXPECTED = {
    "page": (OK, {"done": True}),
    "redirect": (OK, {"done": True}),
    "redirect_to_seen": (OK, {"done": True}),
    "redirect_to_itself": (FAILED, None),
    "too_many_redirections": (FAILED, None),
    "redirect_offsite": (REFUSED, None),
    "404": (FAILED, "http 404"),
    "404_handled": (OK, {"status": 404}),
    "503": (["retry", "failed"], "http 503"),
    "flaky": (["retry", "ok"], {"attempt": 2}),
    "retry_after": (["retry", "failed"], "http 429"),
    "dead": (["retry", "failed"], None),
    "other_slot": (["released", "ok"], {"done": True}),
    "changing_slot": (["released", "ok"], {"done": True}),
    "odd_slot": (FAILED, "request"),
    "data_slot": (OK, {"download_slot": "mine", "slot": "mine"}),
    "data_slot_kept": (OK, {"download_slot": "mine", "slot": "mine"}),
    "ignore": (REFUSED, "scrapy.exceptions.IgnoreRequest"),
    "ignore_response": (REFUSED, "scrapy.exceptions.IgnoreRequest"),
    "break": (FAILED, "RuntimeError"),
    "answer": (OK, {"title": "mine"}),
    "replace": (OK, {"at": "new"}),
    "refuse_input": (FAILED, "ValueError"),
    "break_output": (FAILED, "ValueError"),
    "recovered": (OK, {"done": True}),
    "offsite": (REFUSED, "refused"),
    "robots": (REFUSED, "scrapy.exceptions.IgnoreRequest"),
    "drop": (OK, {"done": True}),
    "bad_pipeline": (FAILED, "ValueError"),
    "slow_pipeline": (OK, {}),
    "slow_bad_pipeline": (FAILED, "ValueError"),
    "errback_404": (OK, {"recovered": 404}),
    "errback_download": (OK, {"recovered": ...}),
    "errback_async": (OK, {"recovered": "IgnoreRequest"}),
    "errback_raises": (FAILED, "KeyError"),
    "errback_declines": (FAILED, "http 410"),
    "errback_last": (["retry", "ok"], {"errbacks": 1}),
    "errback_follows": (OK, {"seen": 1}),
    "raises": (FAILED, "ValueError"),
    "raises_midway": (FAILED, "ValueError"),
    "allowed": (FAILED, {"done": True}),
    "allowed_by_operation": (FAILED, {"done": True}),
    "no_download": (OK, {"response": None}),
    "coroutine": (OK, {"done": True}),
    "async_generator": (OK, {"other": "t_page", "none": None}),
    "returns_one": (OK, {"done": True}),
    "returns_nothing": (OK, {}),
    "foreign": (FAILED, "scrapy_itemgraph.exceptions.ForeignOutputError"),
    "class": (FAILED, "scrapy_itemgraph.exceptions.ForeignOutputError"),
    "nan": (FAILED, "scrapy_itemgraph.exceptions.InvalidDataError"),
    "unknown_task": (FAILED, "scrapy_itemgraph.exceptions.OperationError"),
    "unknown_item": (FAILED, ...),
    "bad_merge": (FAILED, ...),
    "request_raises": (FAILED, "KeyError"),
    "request_junk": (FAILED, "request"),
    "odd_name": (OK, {"task": "odd.name:1"}),
    "chain": (OK, {"seen": 4}),
    "fan": (OK, {"seen": 3}),
    "same_object": (OK, {"seen": 2}),
    "plain_follow_up": (OK, {"done": True}),
    "follow_404": (FAILED, "http 404"),
    "follow_dead": (OK, {"recovered": ...}),
    "follow_ignored": (OK, {"done": True}),
    "follow_offsite": (OK, {"done": True}),
    "follow_flaky": (OK, {"seen": 1}),
    "follow_gives_up": (FAILED, "http 503"),
    "follow_redirect_to_seen": (OK, {"done": True}),
    "get_retry_request": (OK, {"runs": 2}),
    "replaced": (OK, {"done": True}),
    "copied_meta": (OK, {"seen": 1}),
    "own_task_again": (OK, {"runs": 2}),
    "plain_to_task": (FAILED, "scrapy_itemgraph.exceptions.ForeignOutputError"),
    "no_download_follows": (OK, {"seen": 1}),
}
