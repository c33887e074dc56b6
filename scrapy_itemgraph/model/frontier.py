"""A URL frontier: what other crawlers put into it and get from it, as the URLFrontier API says.

Moments are whole seconds since 1970. A queue is known by its crawl and its key.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass, field
from enum import IntEnum
from json.encoder import encode_basestring as quoted
from typing import TYPE_CHECKING, NamedTuple, Protocol

from scrapy_itemgraph.model import slots

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    Metadata = Mapping[str, Sequence[str]]

DEFAULT_CRAWL = "DEFAULT"
TAG = "url"  # of items that are URLs of a frontier
TASK = "fetch"  # what is to be done with them
SPIDER = "urlfrontier"  # that the task is of while no spider declares it
DEFINITION = uuid.UUID("6c1c7e0a-2f0e-5b5e-9a34-0a1f6f3f7071")  # of the task then
PREFIX = "URL:"
KEYED_PREFIX = "URL@"  # where the key is not the URL's host
MAX_KEY_UNITS = 255  # of UTF-16
LAST_NICE = 2**31 - 1
LAST_SECOND = 253_402_128_000  # 9999-12-30, which is the last moment that is stored
MAX_DATE = 2**64 - 1  # that a message can say
MAX_SECONDS = 2**63 - 1  # what is stored of larger numbers

_AUTHORITY_ENDS = re.compile(r"[/?&#]")


class Status(IntEnum):
    """What became of a URL that was put, with the numbers of the API."""

    OK = 0
    SKIPPED = 1
    FAIL = 2


class Lists(Protocol):
    """Lists of texts by name, which are read only where they are written: a dict, or a message."""

    def items(self) -> Iterable[tuple[str, Iterable[str]]]:
        """Return names and lists."""


class PutURL(NamedTuple):
    """A URL that a crawler puts into a queue, and the name of the item that it is.

    `refetchable_from` is from when on it may be fetched (again), 0: never again; None: it was only
    discovered, and counts if it is new.
    """

    url: str
    key: str
    name: str
    metadata: Lists
    refetchable_from: int | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """Which URLs a crawler asks for.

    `crawl` None: of any crawl. `key` None: of any queue; it goes with a crawl. Of each queue up to
    `urls_per_queue`, and of up to `queues` queues; 0: no limit. Nobody else gets them for `hold`
    seconds.
    """

    crawl: str | None = None
    key: str | None = None
    urls_per_queue: int = 0
    queues: int = 0
    hold: int = 30


class HandedURL(NamedTuple):
    """A URL that is handed out, and the work that it is, to be given back by.

    It is held `until` a second since 1970.
    """

    crawl: str
    key: str
    url: str
    metadata: Metadata
    item_id: int
    task_id: int
    until: int


@dataclass(frozen=True, slots=True)
class KnownURL:
    """A URL as the frontier has it. `refetchable_from` 0: it is never fetched again."""

    crawl: str
    key: str
    url: str
    metadata: Metadata
    refetchable_from: int
    created_at: int


@dataclass(frozen=True, slots=True)
class Stats:
    """How many URLs a queue or a crawl has.

    `size` are those that are not completed: due or not, held or not. `in_process` are held by
    crawlers now. Where one `is_estimated`, it stands beyond what is counted exactly.
    """

    size: int = 0
    in_process: int = 0
    completed: int = 0
    queues: int = 0
    active_queues: int = 0
    is_estimated: bool = field(default=False, kw_only=True)


def crawl_of(given: str) -> str:
    """Return the crawl that a request names; a blank name is the default crawl's."""
    return given if given.strip() else DEFAULT_CRAWL


def key_of(url: str) -> str:
    """Return the key of the queue that a URL has unless another is said; empty: it has no host.

    It is what stands between `://` and the first of `:` `/` `?` `&`, as URLFrontier cuts it, but
    in lower case, without a user, and an IPv6 address is whole.
    """
    _, has_scheme, rest = url.partition("://")
    authority = _AUTHORITY_ENDS.split(rest if has_scheme else url, maxsplit=1)[0]
    host = authority.rpartition("@")[2] if has_scheme else authority
    if host.startswith("["):
        return host.partition("]")[0].lower() + "]" if "]" in host else ""
    return host.partition(":")[0].lower()


def is_usable_key(key: str) -> bool:
    """Tell whether a queue can have this key: it is not longer than 255 UTF-16 units."""
    return len(key) <= MAX_KEY_UNITS and (
        key.isascii() or len(key.encode("utf-16-le", "surrogatepass")) <= 2 * MAX_KEY_UNITS
    )


def item_name(url: str, key: str, derived: str) -> str:
    """Return the id of the item that a URL of a queue is; `derived` is the URL's own key."""
    if key == derived:
        return PREFIX + url
    return f"{KEYED_PREFIX}{key.replace('%', '%25').replace(':', '%3A')}:{url}"


def item_data(one: PutURL) -> str:
    """Return the data of the item that a URL of a queue is, as JSON; it is made piece by piece.

    An encoder would take half as long again, and the dict that it wants as long once more.
    """
    lists = [
        f"{quoted(name)}: [{', '.join([quoted(value) for value in values])}]"
        for name, values in one.metadata.items()
    ]
    data = f'"url": {quoted(one.url)}, "metadata": {{{", ".join(lists)}}}'
    if one.refetchable_from is not None:
        data += f', "refetchable_from_date": {one.refetchable_from}'
    if one.key != slots.of_url(one.url):
        data += f', "download_slot": {quoted(one.key)}'
    return f"{{{data}}}"
