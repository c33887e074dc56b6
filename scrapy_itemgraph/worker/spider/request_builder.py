"""Requests from claims, and what a failed download means."""

from __future__ import annotations

import hashlib
import inspect
import re
from functools import lru_cache
from types import MethodType
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from scrapy import Request, Spider
from scrapy.utils.spider import iterate_spider_output

from scrapy_itemgraph.exceptions import ConfigurationError, ItemGraphError
from scrapy_itemgraph.model import slots, tasks
from scrapy_itemgraph.serialize import requests
from scrapy_itemgraph.throttle.local_slots import NO_DOWNLOAD, slot_of
from scrapy_itemgraph.tools import logs, wording
from scrapy_itemgraph.worker.executions.execution import LEG
from scrapy_itemgraph.worker.spider import methods

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping

    from scrapy.crawler import Crawler
    from scrapy.http import Response

    from scrapy_itemgraph.model.tasks import Task
    from scrapy_itemgraph.model.work import Claim
    from scrapy_itemgraph.worker.executions.context import ItemContext

logger = logs.logger(__name__)

_SCHEMES = {"http", "https"}  # that may be fetched because data says so
START = "_itemgraph_start"
_SECRET = re.compile(r"passw|secret|token|keys?$|(^|_)(pass|pwd|o?auth)(_|$)", re.IGNORECASE)


def warn_of_no_callbacks(names: Iterable[str], spider: Spider) -> None:
    """Log each name of `ITEMGRAPH_CALLBACKS` that is a method of no spider that is loaded."""
    own = methods.callback_names(type(spider))
    loaded = list(_subclasses(Spider))
    for name in names:
        if name not in own and not any(hasattr(one, name) for one in loaded):
            logger.warning(
                "ITEMGRAPH_CALLBACKS[%r] changes nothing: the spider %s has no such method%s",
                name,
                spider.name,
                wording.closest(name, own),
                extra={"action": "unknown_callback"},
            )


def _subclasses(cls: type[Spider]) -> Iterator[type[Spider]]:
    for one in cls.__subclasses__():
        yield one
        yield from _subclasses(one)


def spider_arguments(spider: Spider) -> dict[str, str]:
    """Return what a spider was started with, as far as it keeps it in its attributes.

    Scrapy passes arguments to the spider and forgets them.
    """
    return {
        name: value
        for name, value in vars(spider).items()
        if isinstance(value, str) and name != "name" and not name.startswith("_")
    }


def digests(arguments: Mapping[str, str]) -> dict[str, str]:
    """Return what tells arguments from others and keeps no value; secrets are left out."""
    return {
        name: hashlib.sha256(value.encode(errors="surrogatepass")).hexdigest()[:12]
        for name, value in arguments.items()
        if not _SECRET.search(name)
    }


def crawl_name(template: str, spider: Spider) -> str:
    """Return the name of the crawl, from `ITEMGRAPH_CRAWL`."""
    known = spider_arguments(spider) | {"name": spider.name}
    try:
        return template.format_map(known)
    except (KeyError, IndexError, ValueError, AttributeError) as error:
        raise ConfigurationError(
            f"ITEMGRAPH_CRAWL = {template!r} needs {error}, which is no argument of this run; "
            f"there are {', '.join(sorted(known))}"
        ) from None


class WithoutResponse:
    """A callback that gets None for its response, for a task that downloads nothing."""

    def __init__(self, callback: Callable[..., Any]) -> None:
        self.callback = callback

    def __call__(self, _response: Response, **kwargs: Any) -> Any:
        """Call the callback."""
        return self.callback(None, **kwargs)


def unwrapped(callback: Any) -> Any:
    """Return the user's own callback or errback."""
    if callback is None or type(callback) is MethodType:  # nearly all: at once
        return callback
    while isinstance(callback, WithoutResponse) or hasattr(callback, "itemgraph_wrapped"):
        callback = (
            callback.callback
            if isinstance(callback, WithoutResponse)
            else callback.itemgraph_wrapped
        )
    return callback


def callback_of(request: Request, spider: Spider) -> Any:
    """Return the user's callback that will get the response of `request`."""
    if request.callback is not None:
        return unwrapped(request.callback)
    default = spider._parse  # noqa: SLF001 - what the engine calls
    is_stock = getattr(default, "__func__", None) is Spider._parse  # noqa: SLF001
    return spider.parse if is_stock else default


def task_of(callback: Any) -> Task | None:
    """Return the task that a callback is, if it is one."""
    return getattr(callback, tasks.MARK, None)


def takes_item(callback: Any) -> bool:
    """Tell whether a callback's signature asks for the `item`."""
    function = getattr(callback, "__func__", callback)
    try:
        return _takes_item(function)
    except TypeError:  # not hashable
        return _takes_item.__wrapped__(function)


@lru_cache(maxsize=1000)
def _takes_item(function: Any) -> bool:
    try:
        parameter = inspect.signature(function).parameters.get("item")
    except (TypeError, ValueError):
        return False
    return parameter is not None and parameter.kind in {
        parameter.POSITIONAL_OR_KEYWORD,
        parameter.KEYWORD_ONLY,
    }


def build_request(spider: Spider, task: Task, item: ItemContext) -> Request:
    """Build the request of work that was claimed.

    Raises:
        ItemGraphError: saying what the item or the task's `request=` lacks.

    """
    request = _user_request(spider, task, item)
    callback = unwrapped(request.callback) or getattr(spider, task.method)
    if takes_item(callback):
        request.cb_kwargs.setdefault("item", item)
    request.callback = callback if task.download else WithoutResponse(callback)
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


def stored_request(spider: Spider, claim: Claim) -> Request:
    """Return the request of a claim, as it was yielded, or where redirects and retries took it.

    Raises:
        ItemGraphError: when the spider has no such callback any more, or the data was changed.

    """
    data = claim.item.data if isinstance(claim.item.data, dict) else {}
    stored = data.get("request") if claim.request is None else claim.request
    if not isinstance(stored, dict):
        raise ItemGraphError(
            f"the item {claim.item.id} has no request in its data, which the callback "
            f"{claim.task} needs"
        )
    request = requests.load({"url": data.get("url"), **stored}, spider)
    if task_of(request.callback) is not None:
        raise ItemGraphError(
            f"{request} was yielded for {claim.task}, which is a @task now: make an item of it "
            "with CreateItem, and delete this one"
        )
    return request


def request_data(request: Request, spider: Spider) -> dict[str, Any]:
    """Return the data of the item that a request becomes.

    Raises:
        UnstorableError: when it cannot be stored.

    """
    stored = requests.dump(request, spider)
    data: dict[str, Any] = {"url": stored.pop("url"), "request": stored}
    slot = request.meta.get("download_slot")
    if slots.is_usable(slot):
        data["download_slot"] = slot
    return data


def login_of(spider: Spider) -> Callable[[], Any] | None:
    """Return the spider's `login()`, if it takes no arguments; else it is a callback."""
    login = getattr(spider, "login", None)
    if not callable(login):
        return None
    return login if _takes_nothing(getattr(login, "__func__", login)) else None


@lru_cache(maxsize=100)
def _takes_nothing(function: Callable[..., Any]) -> bool:
    parameters = list(inspect.signature(function).parameters.values())
    needed = [
        one.name
        for one in parameters
        if one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD
    ]
    return needed in ([], ["self"])


async def iterate(
    given: Any, *, each: Callable[[Any], Iterable[Any]] = iterate_spider_output
) -> AsyncIterator[Any]:
    """Iterate over what a method of the spider gave back, plain or asynchronous.

    Args:
        given: A generator of either kind, something else, or an awaitable of it.
        each: What makes an iterable of something that is not asynchronous.

    """
    if inspect.isawaitable(given):
        given = await given
    if hasattr(given, "__aiter__"):
        async for one in given:
            yield one
    else:
        for one in each(given):
            yield one


def wake_engine(crawler: Crawler) -> None:
    """Have the engine ask the scheduler again; without it Scrapy looks every five seconds.

    Scrapy's only public call that does this, `engine.crawl`, would announce a request twice.
    """
    slot = getattr(crawler.engine, "_slot", None)
    if slot is not None:
        slot.nextcall.schedule()


def _user_request(spider: Spider, task: Task, item: ItemContext) -> Request:
    if task.request is not None:
        request = _call_request(spider, task, item)
        if not isinstance(request, Request):
            raise ItemGraphError(
                f"request= of the task returned {request!r:.80}, not a scrapy.Request"
            )
        return request.copy() if LEG in request.meta else request
    url = item.data.get("url")
    if isinstance(url, str) and (task.download or ":" in url):
        if task.download and url.partition(":")[0].strip().lower() not in _SCHEMES:
            raise ItemGraphError(
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
