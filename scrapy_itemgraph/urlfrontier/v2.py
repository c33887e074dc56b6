"""Version 2.6 of the API: its messages, and the records that the graph takes and gives.

Messages are typed `Any`: their classes are made of descriptors as the module is loaded.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from scrapy_itemgraph.exceptions import InvalidDataError, InvalidIdError
from scrapy_itemgraph.model import input_checks
from scrapy_itemgraph.model.frontier import (
    KnownURL,
    PutURL,
    Request,
    Stats,
    Status,
    crawl_of,
    is_usable_key,
    item_name,
    key_of,
)
from scrapy_itemgraph.urlfrontier import descriptors
from scrapy_itemgraph.urlfrontier.puts import Batch, Item

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from scrapy_itemgraph.model.frontier import HandedURL, Metadata

API = descriptors.load("urlfrontier", "urlfrontier.URLFrontier")

URLInfo = API.messages["URLInfo"]
URLItem = API.messages["URLItem"]
StringList = API.messages["StringList"]
AckMessage = API.messages["AckMessage"]
BatchAck = API.messages["BatchAck"]

_HOLD = 30  # seconds
_PAGE = 100  # what a list has unless another size is said
# By the numbers of LogLevelParams.Level; Python has no TRACE.
_LEVELS = (logging.DEBUG, logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)


# What comes in


def item(message: Any) -> Item:
    """Read an item of PutURLs."""
    kind = message.WhichOneof("item")
    if kind is None:
        return Item(message.ID, "", None)
    part = getattr(message, kind)
    info = part.info
    date = part.refetchable_from_date if kind == "known" else None
    return Item(message.ID or info.url, crawl_of(info.crawlID), put(info, date))


def batch(message: Any) -> Batch:
    """Read a batch of PutDiscovered."""
    items = [Item("", crawl_of(info.crawlID), put(info, None)) for info in message.items]
    return Batch(message.ID, items)


def put(info: Any, refetchable_from: int | None) -> PutURL | None:
    """Return the URL that is put; None: it cannot be stored, or has no queue."""
    url, key = info.url, info.key
    derived = key_of(url)
    key = key or derived
    metadata = read_metadata(info.metadata)
    if not (url and key and is_usable_key(key) and _is_storable(info.crawlID, metadata)):
        return None
    try:
        input_checks.check_id(item_name(url, key, derived))
        input_checks.check_text(key, "the key")
    except (InvalidIdError, InvalidDataError):
        return None
    return PutURL(url, key, metadata, refetchable_from)


def _is_storable(crawl: str, metadata: Metadata) -> bool:
    try:
        input_checks.check_crawl(crawl_of(crawl))
    except InvalidIdError:
        return False
    return not any(
        "\0" in name or any("\0" in value for value in values) for name, values in metadata.items()
    )


def read_metadata(given: Mapping[str, Any]) -> dict[str, list[str]]:
    """Read a map of lists."""
    return {name: list(values.values) for name, values in given.items()}


def request(message: Any) -> Request | None:
    """Read what GetURLs asks for; None: a key without a crawl, which has no URLs."""
    crawl = crawl_of(message.crawlID) if message.WhichOneof("item") == "crawlID" else None
    if message.key and crawl is None:
        return None
    return Request(
        crawl=crawl,
        key=message.key or None,
        urls_per_queue=message.max_urls_per_queue,
        queues=message.max_queues,
        hold=message.delay_requestable or _HOLD,
    )


def page(message: Any) -> tuple[int, int]:
    """Return where a page of a list begins, and how much it has at most."""
    return message.start, message.size or _PAGE


def text_filter(message: Any) -> dict[str, Any]:
    """Return which URLs are listed or counted; a blank filter is none."""
    return {"filter": message.filter.strip() or None, "ignore_case": message.ignoreCase}


def log_level(message: Any) -> int | None:
    """Return a level of Python's `logging`; None for a number that is no level."""
    return _LEVELS[message.level] if 0 <= message.level < len(_LEVELS) else None


# What goes out


def info(one: HandedURL | KnownURL) -> Any:
    """Write a URL as GetURLs gives it."""
    return URLInfo(
        url=one.url,
        key=one.key,
        crawlID=one.crawl,
        metadata={name: StringList(values=values) for name, values in one.metadata.items()},
    )


def known(one: KnownURL) -> Any:
    """Write a URL as lists have it: each is known, whatever it was put as."""
    part = {"info": info(one), "refetchable_from_date": one.refetchable_from}
    return URLItem(known=part, creation_date=one.created_at)


def ack(name: str, status: Status) -> Any:
    """Write the answer to an item of PutURLs."""
    return AckMessage(ID=name, status=int(status))


def batch_ack(name: str, statuses: Iterable[Status]) -> Any:
    """Write the answer to a batch of PutDiscovered."""
    return BatchAck(ID=name, statuses=map(int, statuses))


def stats(crawl: str, one: Stats) -> Any:
    """Write counts of a queue or a crawl."""
    counts = {"completed": one.completed, "active_queues": one.active_queues}
    if one.is_estimated:
        counts["estimated"] = 1
    return API.messages["Stats"](
        size=one.size,
        inProcess=one.in_process,
        counts=counts,
        numberOfQueues=one.queues,
        crawlID=crawl,
    )


def queue_list(message: Any, crawl: str, keys: Sequence[str]) -> Any:
    """Write the answer to ListQueues; the total is not counted, as upstream does not."""
    return API.messages["QueueList"](
        values=keys, start=message.start, size=len(keys), crawlID=crawl
    )


def strings(values: Sequence[str]) -> Any:
    """Write a list of names."""
    return StringList(values=values)


def number(value: int) -> Any:
    """Write a number."""
    return API.messages["Long"](value=value)


def boolean(value: bool) -> Any:
    """Write whether something is so."""
    return API.messages["Boolean"](state=value)


def nothing() -> Any:
    """Write an answer without content."""
    return API.messages["Empty"]()


def texts(message: Any) -> Iterator[str]:
    """Yield what a request says in words."""
    return (value for _, value in message.ListFields() if isinstance(value, str))
