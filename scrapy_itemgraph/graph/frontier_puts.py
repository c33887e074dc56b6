"""URLs that crawlers put into a frontier: each call is one transaction, committed as it returns."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from scrapy_itemgraph.exceptions import DatabaseUnavailableError, InvalidIdError
from scrapy_itemgraph.model.frontier import Status
from scrapy_itemgraph.store import lost_commit_answers
from scrapy_itemgraph.store.frontier import crawls as frontier_crawls
from scrapy_itemgraph.store.frontier import puts
from scrapy_itemgraph.store.registry import crawls
from scrapy_itemgraph.tools import logs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

    from scrapy_itemgraph.connections.transactions import Transactions
    from scrapy_itemgraph.model.frontier import PutURL

logger = logs.logger(__name__)


class FrontierPuts:
    """Puts URLs into queues."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions
        self._crawls: dict[str, int] = {}  # that have a frontier

    async def put(self, crawl: str, urls: Sequence[PutURL]) -> list[Status]:
        """Put URLs into queues of a crawl, in one transaction; return what became of each.

        Several puts of one URL count in their order. A URL that the database refuses is `FAIL`, and
        the others are put.

        Raises:
            DatabaseUnavailableError: when the server was away for longer than the patience.

        """
        if not urls:
            return []
        try:
            return await self._put(crawl, puts.Puts(urls))
        except DatabaseUnavailableError:
            raise
        except InvalidIdError as error:
            logger.warning("URLs are skipped: %s", error, extra={"action": "frontier_crawl"})
            return [Status.SKIPPED] * len(urls)
        except Exception:
            if len(urls) == 1:
                logger.exception(
                    "The database refused the URL %s", urls[0].url, extra={"action": "put_refused"}
                )
                return [Status.FAIL]
            middle = len(urls) // 2
            return [*await self.put(crawl, urls[:middle]), *await self.put(crawl, urls[middle:])]

    async def _put(self, crawl: str, given: puts.Puts) -> list[Status]:
        while True:
            crawl_id = self._crawls.get(crawl)
            if crawl_id is None:
                crawl_id = await self._transactions.call(frontier_crawls.announce, crawl)
                await self._transactions.call(frontier_crawls.make, crawl_id)
                self._crawls[crawl] = crawl_id
            told = await self._put_once(crawl_id, given)
            if told is not None:
                return told
            self._crawls.pop(crawl, None)  # it was deleted

    async def _put_once(self, crawl_id: int, given: puts.Puts) -> list[Status] | None:
        """Put URLs once, also where the answer to a commit was lost; None: there is no crawl."""
        token = uuid.uuid4()
        told: list[Status] | None = None

        def put(connection: Connection, before: int) -> list[Status] | None:
            nonlocal told
            crawl = crawls.share_crawl(connection, crawl_id)
            if before and not lost_commit_answers.take(connection, token):
                return told
            new = puts.find_new(connection, given, crawl_id)
            if not given.changing(new):  # nothing is written then, and nothing is flushed to disk
                told = given.statuses(new)
                return told
            if not before:
                lost_commit_answers.note(connection, [token])
            fetch = frontier_crawls.fetch(connection, crawl_id)
            told = None if fetch is None else puts.put(connection, given, new, crawl, fetch)
            return told

        return await self._transactions.numbered(put)
