"""Commits of a worker: changesets in one transaction, and what becomes of those refused."""

from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from scrapy_itemgraph.changesets import apply
from scrapy_itemgraph.changesets.taken_names import TakenNames
from scrapy_itemgraph.exceptions import (
    BlobStoreError,
    DatabaseUnavailableError,
    OperationError,
)
from scrapy_itemgraph.model.operations import Changeset, attachments
from scrapy_itemgraph.model.work import Applied, CommitResult, ErrorRecord, Outcome
from scrapy_itemgraph.store import cookies as stored_cookies
from scrapy_itemgraph.store import in_flight as stored_flights
from scrapy_itemgraph.store import lost_commit_answers, spider_state
from scrapy_itemgraph.store.blobs import ContentsGoneError
from scrapy_itemgraph.store.registry import crawls
from scrapy_itemgraph.tools import logs

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from sqlalchemy import Connection

    from scrapy_itemgraph.connections.identity import Identity
    from scrapy_itemgraph.connections.transactions import Transactions
    from scrapy_itemgraph.contents.transfer import WorkerContents
    from scrapy_itemgraph.model.cookies import Cookie
    from scrapy_itemgraph.model.operations import Operation
    from scrapy_itemgraph.model.work import Claim, Note, Pair

logger = logs.logger(__name__)

_RETRY_DELAY = timedelta(minutes=1)  # of work whose contents were lost and cannot be stored


class Commits:
    """Commits what one worker did."""

    def __init__(
        self,
        transactions: Transactions,
        contents: WorkerContents,
        own: Identity,
        *,
        spider: str,
        incremental: Collection[str] | None = None,
    ) -> None:
        self._own = own
        self.names_freed = (0, 0)  # how often the database went elsewhere; how often since then
        self.witness: Claim | None = None  # the last claim whose end is known to be committed
        self._taken = TakenNames()
        self._transactions = transactions
        self._contents = contents
        self._spider = spider
        self._incremental = incremental

    def see_freed(self, count: int) -> None:
        """Take note of how many commits of the crawl have freed names, by whomever."""
        self.names_freed = max(self.names_freed, (self.names_freed[0], count))

    def forget_names(self) -> None:
        """Know of no name any more that it is taken: the database is on another server."""
        self.names_freed = (self.names_freed[0] + 1, 0)
        self._taken = TakenNames()

    async def commit(
        self,
        changesets: Sequence[Changeset],
        *,
        cookies: Sequence[Cookie] = (),
        state: Mapping[str, str | None] | None = None,
        in_flight: Collection[Pair] | None = None,
    ) -> CommitResult:
        """Apply changesets in one transaction; one that the database refuses fails alone.

        Changed cookies, spider.state, and the pairs that are in flight from now on are saved with
        them.
        """
        try:
            done = await self._commit(changesets, cookies, state or {}, in_flight)
            return CommitResult(applied=done, is_written=in_flight is not None)
        except DatabaseUnavailableError:
            raise
        except ContentsGoneError as gone:
            stored = [await self._stored_again(one, gone) for one in changesets]
            return await self.commit(stored, cookies=cookies, state=state, in_flight=in_flight)
        except Exception as error:
            if cookies or state:
                await self._save_session(cookies, state or {})
                return await self.commit(changesets)
            if not changesets:
                raise
            if len(changesets) > 1:
                results = [await self.commit([one]) for one in changesets]
                return CommitResult(applied=[one for result in results for one in result.applied])
            (refused,) = changesets
            has_more = refused.operations or refused.scraped
            if refused.outcome is Outcome.FAILED and not has_more:
                raise
            logger.exception("The database refused a commit", extra={"action": "commit_refused"})
            described = ErrorRecord.of(error)
            if refused.claim is None:
                return CommitResult(applied=[Applied(outcome=Outcome.FAILED, error=described)])
            failed = Changeset(
                operations=(),
                outcome=Outcome.FAILED,
                claim=refused.claim,
                error=described,
                log=refused.log,
                page=refused.page,
            )
            (applied,) = await self._commit([failed])
            return CommitResult(applied=[replace(applied, error=described)])

    async def seed(self, operations: Sequence[Operation]) -> tuple[Note, ...]:
        """Apply checked operations in one transaction of their own.

        Raises:
            OperationError: naming the operation; then none of them was applied.
            BlobStoreError: what they attach cannot be stored; then none of them was applied.

        """
        attached = attachments(operations)
        if attached:
            await self._contents.store([one.content for one in attached])
        seeds = Changeset(operations=tuple(operations), outcome=Outcome.OK, attached=attached)
        (applied,) = (await self.commit([seeds])).applied
        if applied.error is not None:
            raise OperationError(f"spider {self._spider}, seeds: {applied.error.message}")
        if any(one.content.number is None for one in attached):
            raise BlobStoreError("what was stored for it was collected, and cannot be stored again")
        return applied.notes

    async def _stored_again(self, changeset: Changeset, gone: ContentsGoneError) -> Changeset:
        """Store contents again that were collected meanwhile; else have the work tried again."""
        lost = [one.content for one in changeset.attached if one.content.number in gone.numbers]
        if not lost:
            return changeset
        for content in lost:
            content.number = content.announced = None
        try:
            await self._contents.store(lost)
        except (BlobStoreError, OperationError) as error:
            return replace(
                changeset,
                operations=(),
                outcome=Outcome.OK if changeset.claim is None else Outcome.RETRY,
                error=ErrorRecord.of(error),
                delay=_RETRY_DELAY,
                allow_failure=False,
                scraped=(),
                attached=(),
            )
        return changeset

    async def put_in_flight(self, pairs: Collection[Pair]) -> None:
        """Write which pairs are in flight from now on, in a transaction of its own."""

        def write(connection: Connection) -> None:
            stored_flights.write_alone(connection, self._own.id, pairs)

        await self._transactions.call(write, hot=True)

    async def _save_session(
        self, cookies: Sequence[Cookie], state: Mapping[str, str | None]
    ) -> None:
        crawl_id = self._transactions.crawl_id
        try:
            await self._transactions.call(_save_session, crawl_id, cookies, state)
        except DatabaseUnavailableError:
            raise
        except Exception:
            logger.exception("The database refused cookies or spider.state; they are not saved")

    async def _commit(
        self,
        changesets: Sequence[Changeset],
        cookies: Sequence[Cookie] = (),
        state: Mapping[str, str | None] | None = None,
        in_flight: Collection[Pair] | None = None,
    ) -> list[Applied]:
        """Commit once, also when the answer to a commit was lost and it is asked for again."""
        token = uuid.uuid4()
        crawl_id = self._transactions.crawl_id
        freed = -1
        taken = self._taken
        has_unfenced = any(one.claim is None for one in changesets)

        def commit(connection: Connection, before: int) -> list[Applied]:
            nonlocal freed, taken
            taken = self._taken
            crawl = crawls.share_crawl(connection, crawl_id)
            if has_unfenced and not lost_commit_answers.take(connection, token):
                return apply.answered(connection, changesets, crawl_id)
            applied = apply.apply(
                connection,
                changesets,
                crawl=crawl,
                worker_id=self._own.id,
                spider=self._spider,
                is_again=before > 0,
                taken=taken,
                incremental=self._incremental,
            )
            freed = crawl.names_freed
            self.see_freed(freed)
            _save_session(connection, crawl_id, cookies, state or {})
            if in_flight is not None:
                stored_flights.write(connection, self._own.id, in_flight)
            return applied

        applied = await self._transactions.numbered(commit)
        taken.learn(applied, freed)
        for changeset, one in zip(changesets, applied, strict=True):
            if changeset.claim is not None and one.outcome is not None:
                self.witness = changeset.claim
        return applied


def _save_session(
    connection: Connection,
    crawl_id: int,
    cookies: Sequence[Cookie],
    state: Mapping[str, str | None],
) -> None:
    stored_cookies.save(connection, crawl_id, cookies)
    spider_state.save(connection, crawl_id, state)
