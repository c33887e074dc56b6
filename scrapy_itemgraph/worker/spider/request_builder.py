"""Requests from claims, and the data of items that requests become."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from scrapy import Request, Spider

from scrapy_itemgraph.exceptions import ItemGraphError, RefusedUrlError
from scrapy_itemgraph.model import schemes, slots
from scrapy_itemgraph.serialize import requests
from scrapy_itemgraph.worker.downloads.request_slots import NO_DOWNLOAD, slot_of
from scrapy_itemgraph.worker.executions.execution import request_legs
from scrapy_itemgraph.worker.spider import callbacks

if TYPE_CHECKING:
    from scrapy_itemgraph.model.tasks import Task
    from scrapy_itemgraph.model.work import Claim
    from scrapy_itemgraph.worker.executions.context import ItemContext
    from scrapy_itemgraph.worker.spider.crawl_rules import CrawlRules


def complete(asked: Any, spider: Spider, task: Task, item: ItemContext) -> Request:
    """Return the request of work that was claimed, of what `ask` returned, or its coroutine.

    An ItemGraphError says what it lacks.
    """
    if not isinstance(asked, Request):
        raise ItemGraphError(f"request= of the task returned {asked!r:.80}, not a scrapy.Request")
    request = asked if request_legs.get(asked) is None else asked.copy()
    if request.callback is None:
        request.callback = getattr(spider, task.method)
    if callbacks.takes_item(request.callback):
        request.cb_kwargs.setdefault("item", item)
    if not task.download:
        request.meta.update({NO_DOWNLOAD: True, "dont_cache": True, "allow_offsite": True})
        request.dont_filter = True
    else:
        wanted = item.data.get("download_slot") if task.slot is None else task.slot
        if slots.is_usable(wanted):
            request.meta.setdefault("download_slot", wanted)
    slot = slot_of(request)
    if not slots.is_usable(slot):
        raise ItemGraphError(
            f"the request's slot is {slot!r:.80}, no text of up to {slots.MAX_BYTES} bytes"
        )
    return request


def stored_request(spider: Spider, claim: Claim, rules: CrawlRules) -> Request:
    """Return the request of a claim, as it was yielded, or where redirects and retries took it.

    It is an ItemGraphError if the spider has no such callback any more, or the data was changed,
    and a RefusedUrlError if what came over HTTP would read files, or choose its proxy.
    """
    data = claim.item.data if isinstance(claim.item.data, dict) else {}
    stored = data.get("request") if claim.request is None else claim.request
    if not isinstance(stored, dict):
        raise ItemGraphError(
            f"the item {claim.item.id} has no request in its data, which the callback "
            f"{claim.task} needs"
        )
    request = requests.load({"url": data.get("url"), **stored}, spider)
    rules.lead(request, claim.task)
    if claim.item.is_from_outside:
        _check_outside(request, is_as_given=claim.request is None)
    if callbacks.task_of(request.callback) is not None:
        raise ItemGraphError(
            f"{request} was yielded for {claim.task}, which is a @task now: make an item of it "
            "with CreateItem, and delete this one"
        )
    return request


def _check_outside(request: Request, *, is_as_given: bool) -> None:
    """Check a stored request in which somebody had a hand over HTTP."""
    if not schemes.is_web(request.url):
        raise RefusedUrlError(
            f"the item was made or changed over HTTP, and its request is for {request.url!r:.200}; "
            "from outside the project's code only http and https are fetched"
        )
    if is_as_given and request.meta.get("proxy"):  # later ones are of the project's middlewares
        raise RefusedUrlError(
            "the item was made or changed over HTTP, and its request names a proxy in its meta; "
            "from outside the project's code none may, so have a downloader middleware choose it"
        )


def request_data(request: Request, spider: Spider) -> dict[str, Any]:
    """Return the data of the item that a request becomes, or raise an UnstorableError."""
    stored = requests.dump(request, spider)
    data: dict[str, Any] = {"url": stored.pop("url"), "request": stored}
    slot = request.meta.get("download_slot")
    if slots.is_usable(slot):
        data["download_slot"] = slot
    return data


def ask(spider: Spider, task: Task, item: ItemContext) -> Any:
    """Return what the task's `request=` does, maybe a coroutine, or a request to the item's URL.

    An ItemGraphError says what the item lacks.
    """
    if task.request is not None:
        return _call_request(spider, task, item)
    url = item.data.get("url")
    if isinstance(url, str) and (task.download or ":" in url):
        if task.download and not schemes.is_web(url):
            raise RefusedUrlError(
                f"data['url'] is {url!r:.80}; by itself a task fetches http and https only, for an "
                "item's URL may come from a website. If you mean it, give the task request="
            )
        return Request(url)
    if not task.download:
        return Request(f"itemgraph://{quote(task.name)}/{quote(item.id, safe='')[:2000]}")
    raise ItemGraphError(
        f"data['url'] is {url!r:.80}; give the item a url, or the task request= or download=False"
    )


def _call_request(spider: Spider, task: Task, item: ItemContext) -> Any:
    given = task.request
    if isinstance(given, str):
        return getattr(spider, given)(item)
    assert given is not None
    name = getattr(given, "__name__", "")
    if inspect.isfunction(given) and inspect.getattr_static(type(spider), name, None) is given:
        return getattr(spider, name)(item)
    return given(item)
