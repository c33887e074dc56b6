"""Clients of version 3: of its own messages, or of those of 2.6, which are translated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy_itemgraph.urlfrontier import v2, v3
from support.frontier import Client

if TYPE_CHECKING:
    from support.frontier import Frontier

M2, M3 = v2.API.messages, v3.API.messages
LAST_SECOND = 253_402_300_799  # of a Timestamp: 9999-12-31


class OwnClient(Client):
    """Calls of version 3, of its own messages, under a path."""

    def __init__(self, address: str, service: str) -> None:
        super().__init__(address)
        self.service = service

    def call(self, name: str) -> Any:
        """Return a call as gRPC has it."""
        method = v3.API.methods[name]
        return self.called(
            self.service, method, method.takes.SerializeToString, method.gives.FromString
        )

    def ask(self, method: str, **fields: Any) -> Any:
        """Return the one answer to a request, or the list of a stream of them."""
        described = v3.API.methods[method]
        given = self.call(method)(described.takes(**fields), timeout=60)
        return list(given) if described.gives_stream else given


class TranslatingClient(Client):
    """Takes and gives messages of 2.6, and speaks version 3 under the path of the proposal."""

    def call(self, name: str) -> Any:
        """Return a call as gRPC has it."""
        method = v3.API.methods[name]
        return self.called(
            "urlfrontier.URLFrontier",
            method,
            lambda asked: as_v3(name, asked),
            lambda answer: as_v2(name, method.gives.FromString(answer)),
        )


def speaking(version: str, served: Frontier) -> Client:
    """Return a client of a server that takes and gives messages of 2.6, in any version."""
    if version == "2.6":
        return Client(served.address)
    return TranslatingClient(served.said["v3_address"])


def as_v3(name: str, asked: Any) -> bytes:
    """Return a request of 2.6 as version 3 has it: most have the same bytes."""
    made = asked.SerializeToString()
    if name == "PutURLs":
        made = M3["PutURLsRequest"](item=M3["URLItem"].FromString(made)).SerializeToString()
    elif name == "GetURLs":
        which = asked.WhichOneof("item")
        chosen = {"any_crawl_id": True} if which == "anyCrawlID" else {"crawl_id": asked.crawlID}
        made = M3["GetURLsRequest"](
            max_urls_per_queue=asked.max_urls_per_queue,
            max_queues=asked.max_queues,
            key=asked.key,
            delay_requestable=asked.delay_requestable,
            **(chosen if which else {}),
        ).SerializeToString()
    elif name == "BlockQueueUntil":
        made = M3["BlockQueueUntilRequest"](
            key=asked.key,
            crawl_id=asked.crawlID,
            time={"seconds": min(asked.time, LAST_SECOND)},
        ).SerializeToString()
    elif name == "SetLogLevel":
        made = M3["SetLogLevelRequest"](
            package=asked.package, level=asked.level + 1
        ).SerializeToString()
    return bytes(made)


def as_v2(name: str, answer: Any) -> Any:
    """Return an answer of version 3 as 2.6 has it: some have the same bytes."""
    gives = v2.API.methods[name].gives
    if name in {"DeleteQueue", "DeleteCrawl", "PurgeURLs"}:
        assert answer.HasField("urls_removed")
        return gives(value=answer.urls_removed.value)
    if name == "GetActive":
        assert answer.HasField("state")
        return gives(state=answer.state.value)
    if name in {"GetURLs", "GetURLStatus", "ListURLs"}:
        return gives.FromString(answer.url.SerializeToString())
    if name == "PutURLs":
        return gives(ID=answer.ack.id, status=answer.ack.status - 1)
    if name == "PutDiscovered":
        return gives(ID=answer.id, statuses=[one - 1 for one in answer.statuses])
    return gives.FromString(answer.SerializeToString())
