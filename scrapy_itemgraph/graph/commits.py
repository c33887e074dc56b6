"""Commits of a worker: changesets in one transaction, and what becomes of those refused."""

from __future__ import annotations

import logging
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

from scrapy_itemgraph import answers, apply, database, registry, sessions
from scrapy_itemgraph.exceptions import DatabaseUnavailableError
from scrapy_itemgraph.operations import Changeset
from scrapy_itemgraph.types import Applied, Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Connection

    from scrapy_itemgraph.graph.transactions import Transactions
    from scrapy_itemgraph.types import Cookie

logger = logging.getLogger(__name__)


class Commits:
    """Commits what one worker did; `worker_id` follows the worker when it registers anew."""

    def __init__(self, transactions: Transactions, *, spider: str) -> None:
        self.worker_id = 0
        self._transactions = transactions
        self._spider = spider

    async def commit(
        self,
        changesets: Sequence[Changeset],
        *,
        cookies: Sequence[Cookie] = (),
        state: Mapping[str, str | None] | None = None,
    ) -> list[Applied]:
        """Apply changesets in one transaction; one that the database refuses fails alone."""
        try:
            return await self._commit(changesets, cookies, state or {})
        except DatabaseUnavailableError:
            raise
        except Exception as error:
            if cookies or state:
                await self._save_session(cookies, state or {})
                return await self.commit(changesets)
            if not changesets:
                raise
            if len(changesets) > 1:
                return [applied for one in changesets for applied in await self.commit([one])]
            (refused,) = changesets
            if refused.outcome is Outcome.FAILED:
                raise
            logger.exception("The database refused a commit", extra={"action": "commit_refused"})
            described = {"type": type(error).__name__, "message": str(error)}
            if refused.claim is None:
                return [Applied(outcome=Outcome.FAILED, error=described)]
            failed = Changeset(
                operations=(), outcome=Outcome.FAILED, claim=refused.claim, error=described
            )
            (applied,) = await self._commit([failed])
            return [replace(applied, error=described)]

    async def _save_session(
        self, cookies: Sequence[Cookie], state: Mapping[str, str | None]
    ) -> None:
        crawl_id = self._transactions.crawl_id
        try:
            await self._transactions.call(sessions.save, crawl_id, cookies, state)
        except DatabaseUnavailableError:
            raise
        except Exception:
            logger.exception("The database refused cookies or spider.state; they are not saved")

    async def _commit(
        self,
        changesets: Sequence[Changeset],
        cookies: Sequence[Cookie] = (),
        state: Mapping[str, str | None] | None = None,
    ) -> list[Applied]:
        """Commit once, also when the answer to a commit was lost and it is asked for again."""
        is_again = False
        token = uuid.uuid4()
        crawl_id = self._transactions.crawl_id
        has_unfenced = any(one.claim is None for one in changesets)

        def commit(connection: Connection) -> list[Applied]:
            nonlocal is_again
            now = database.hot_path(connection)
            registry.share_crawl(connection, crawl_id)
            if has_unfenced and not answers.take(connection, token):
                return apply.answered(connection, changesets, crawl_id)
            was_asked, is_again = is_again, True
            applied = apply.apply(
                connection,
                changesets,
                crawl_id=crawl_id,
                worker_id=self.worker_id,
                now=now,
                spider=self._spider,
                is_again=was_asked,
            )
            sessions.save(connection, crawl_id, cookies, state or {})
            return applied

        return await self._transactions.patiently(commit)
