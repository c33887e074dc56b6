"""Messages of a version of the API, and the records that the graph takes and gives.

What the versions have in common is here; `v2` and `v3` say what they call it, and what differs.
Messages are typed `Any`: their classes are made of descriptors as the modules are loaded.
"""

from __future__ import annotations

import logging
import re
from abc import ABC, abstractmethod
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from scrapy_itemgraph.exceptions import InvalidDataError, InvalidIdError
from scrapy_itemgraph.model import input_checks
from scrapy_itemgraph.model.frontier import (
    PutURL,
    Request,
    crawl_of,
    is_usable_key,
    item_name,
    key_of,
)
from scrapy_itemgraph.urlfrontier.puts import Batch, Item
from scrapy_itemgraph.urlfrontier.sizes import MOST_SENT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from scrapy_itemgraph.model.frontier import HandedURL, KnownURL, Stats, Status
    from scrapy_itemgraph.urlfrontier.descriptors import Api

# In no URL; in what is read of a message of the other version there are some.
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
HOLD = 30  # seconds
PAGE = 100  # what a list has unless another size is said
# In the order of their numbers, TRACE first; Python has none.
LEVELS = (logging.DEBUG, logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)


class Codec(ABC):
    """Reads and writes the messages of a version."""

    CRAWL: str  # what a field with a crawl's name is called,
    NAME: str  # and that which an ack repeats
    IGNORE_CASE: str
    WHICH: str  # the oneof of GetURLs that says a crawl, or any

    def __init__(self, api: Api) -> None:
        self.api = api
        self._info = api.messages["URLInfo"]
        self._item = api.messages["URLItem"]
        self._list = api.messages["StringList"]
        self._ack = api.messages["AckMessage"]

    # What comes in

    def crawl(self, message: Any) -> str:
        """Return the crawl that a request names."""
        return crawl_of(getattr(message, self.CRAWL))

    @abstractmethod
    def item(self, message: Any) -> Item:
        """Read an item of PutURLs."""

    def url_item(self, message: Any) -> Item:
        """Read a URLItem."""
        name = getattr(message, self.NAME)
        kind = message.WhichOneof("item")
        if kind is None:
            return Item(name, "", None)
        part = getattr(message, kind)
        date = part.refetchable_from_date if kind == "known" else None
        return self.info_item(name or part.info.url, part.info, date)

    def info_item(self, name: str, info: Any, refetchable_from: int | None) -> Item:
        """Return what is put by a URLInfo, and is acked by a name."""
        crawl = self.crawl(info)
        return Item(name, crawl, _put(info, crawl, refetchable_from))

    def batch(self, message: Any) -> Batch:
        """Read a batch of PutDiscovered."""
        items = [self.info_item("", info, None) for info in message.items]
        return Batch(getattr(message, self.NAME), items)

    def request(self, message: Any) -> Request | None:
        """Read what GetURLs asks for; None: a key without a crawl, which has no URLs."""
        is_said = message.WhichOneof(self.WHICH) == self.CRAWL
        crawl = self.crawl(message) if is_said else None
        if message.key and crawl is None:
            return None
        return Request(
            crawl=crawl,
            key=message.key or None,
            urls_per_queue=message.max_urls_per_queue,
            queues=message.max_queues,
            hold=message.delay_requestable or HOLD,
        )

    def page(self, message: Any) -> tuple[int, int]:
        """Return where a page of a list begins, and how much it has at most."""
        return message.start, message.size or PAGE

    def text_filter(self, message: Any) -> dict[str, Any]:
        """Return which URLs are listed or counted; a blank filter is none."""
        return {
            "filter": message.filter.strip() or None,
            "ignore_case": getattr(message, self.IGNORE_CASE),
        }

    @abstractmethod
    def deleted_crawl(self, message: Any) -> str:
        """Return the crawl that DeleteCrawl names."""

    @abstractmethod
    def blocked_until(self, message: Any) -> int:
        """Return until when BlockQueueUntil blocks, in seconds; 0: it ends the block."""

    @abstractmethod
    def log_level(self, message: Any) -> int | None:
        """Return a level of Python's `logging`; None for a number that is no level."""

    # What goes out

    def info(self, one: HandedURL | KnownURL) -> Any:
        """Write a URL."""
        lists = {name: self._list(values=values) for name, values in one.metadata.items()}
        return self._info(url=one.url, key=one.key, metadata=lists, **{self.CRAWL: one.crawl})

    def known(self, one: KnownURL) -> Any:
        """Write a URL as lists have it: each is known, whatever it was put as."""
        part = {"info": self.info(one), "refetchable_from_date": one.refetchable_from}
        return self._item(known=part, creation_date=one.created_at)

    def queue_list(self, message: Any, crawl: str, keys: Sequence[str]) -> Any:
        """Write the answer to ListQueues; the total is not counted, as upstream does not."""
        fields = {"values": keys, "start": message.start, "size": len(keys), self.CRAWL: crawl}
        return self._answer("ListQueues", **fields)

    def strings(self, method: str, values: Sequence[str]) -> Any:
        """Write a list of names, as a method answers."""
        return self._answer(method, values=values)

    def nothing(self, method: str) -> Any:
        """Write an answer without content."""
        return self._answer(method)

    @abstractmethod
    def handed(self, one: HandedURL) -> Any:
        """Write a URL as GetURLs gives it."""

    @abstractmethod
    def listed(self, method: str, one: KnownURL) -> Any:
        """Write a URL as GetURLStatus and ListURLs give it."""

    @abstractmethod
    def ack(self, name: str, status: Status) -> Any:
        """Write the answer to an item of PutURLs."""

    @abstractmethod
    def batch_ack(self, name: str, statuses: Iterable[Status]) -> Any:
        """Write the answer to a batch of PutDiscovered."""

    @abstractmethod
    def stats(self, crawl: str, one: Stats) -> Any:
        """Write counts of a queue or a crawl."""

    @abstractmethod
    def count(self, value: int) -> Any:
        """Write the answer to CountURLs."""

    @abstractmethod
    def removed(self, method: str, number: int) -> Any:
        """Write how many URLs a method removed."""

    @abstractmethod
    def is_active(self, value: bool) -> Any:
        """Write the answer to GetActive."""

    def _answer(self, method: str, **fields: Any) -> Any:
        return self.api.methods[method].gives(**fields)


def counts(one: Stats) -> dict[str, int]:
    """Return numbers that have no field of their own, by name."""
    found = {"completed": one.completed, "active_queues": one.active_queues}
    return {**found, "estimated": 1} if one.is_estimated else found


def texts(message: Any) -> Iterator[str]:
    """Yield what a request says in words."""
    return (value for _, value in message.ListFields() if isinstance(value, str))


class _Lists:
    """Metadata of a message, which is read where it is stored, for most of what comes is known."""

    __slots__ = ("_info",)

    def __init__(self, info: Any) -> None:
        self._info = info

    def items(self) -> Iterable[tuple[str, Iterable[str]]]:
        """Return names and lists."""
        return [(name, one.values) for name, one in self._info.metadata.items()]


def _put(info: Any, crawl: str, refetchable_from: int | None) -> PutURL | None:
    """Return the URL that is put; None: it cannot be stored, or has no queue."""
    url, key = info.url, info.key
    derived = key_of(url)
    key = key or derived
    if not (url and key and is_usable_key(key)) or _CONTROL.search(url):
        return None
    if not (_is_crawl(crawl) and _is_storable(info)):
        return None
    name = item_name(url, key, derived)
    try:
        input_checks.check_id(name)
        input_checks.check_text(key, "the key")
    except (InvalidIdError, InvalidDataError):
        return None
    return PutURL(url, key, name, _Lists(info), refetchable_from)


@lru_cache(maxsize=1000)
def _is_crawl(name: str) -> bool:
    try:
        input_checks.check_crawl(name)
    except InvalidIdError:
        return False
    return True


def _is_storable(info: Any) -> bool:
    """Tell whether a URL comes back to each client, and has no NUL in its metadata.

    A message without a byte of 0 has none in its texts; that of an empty text has one.
    """
    raw = info.SerializeToString()
    if len(raw) > MOST_SENT:
        return False
    return b"\0" not in raw or not any(
        "\0" in name or any("\0" in value for value in one.values)
        for name, one in info.metadata.items()
    )
