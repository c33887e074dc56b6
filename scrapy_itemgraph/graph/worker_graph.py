"""The door of a running crawl: the same functions as everybody's, awaited on the reactor's loop."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import time
from typing import TYPE_CHECKING, Any

from scrapy_itemgraph.connections import feed_locks
from scrapy_itemgraph.connections.connect import ensure_schema
from scrapy_itemgraph.connections.process import OwnProcess
from scrapy_itemgraph.connections.transactions import Transactions
from scrapy_itemgraph.contents.transfer import WorkerContents
from scrapy_itemgraph.exceptions import BlobStoreError, OperationError
from scrapy_itemgraph.graph import startup_report
from scrapy_itemgraph.graph.commits import Commits
from scrapy_itemgraph.graph.worker_duties import WorkerDuties
from scrapy_itemgraph.graph.worker_feed_exports import WorkerFeeds
from scrapy_itemgraph.graph.worker_limits import WorkerLimits
from scrapy_itemgraph.graph.worker_recovery import WorkerRecovery
from scrapy_itemgraph.graph.worker_sessions import WorkerSessions
from scrapy_itemgraph.graph.worker_upkeep import WorkerUpkeep
from scrapy_itemgraph.model import slots
from scrapy_itemgraph.model.crawl_arguments import CrawlStart
from scrapy_itemgraph.model.operations import Changeset, attachments
from scrapy_itemgraph.model.tasks import of_named_callback
from scrapy_itemgraph.model.work import ClaimResult, ErrorRecord, Outcome
from scrapy_itemgraph.postgres import engine, errors
from scrapy_itemgraph.postgres.server_sharing import EmbeddedServer
from scrapy_itemgraph.store import notify, queues, tallies
from scrapy_itemgraph.store import slots as stored_slots
from scrapy_itemgraph.store.limits import holdings
from scrapy_itemgraph.store.registry import (
    code_changes,
    crawl_starts,
    crawls,
    item_sweeps,
    runs,
    workers,
)
from scrapy_itemgraph.store.registry import tasks as stored_tasks
from scrapy_itemgraph.store.worklist import claims as stored_claims
from scrapy_itemgraph.store.worklist import stored_redirects
from scrapy_itemgraph.tools import logs

if TYPE_CHECKING:
    import uuid
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from typing import Self

    from sqlalchemy import Connection

    from scrapy_itemgraph.model.limits import Use
    from scrapy_itemgraph.model.operations import Operation
    from scrapy_itemgraph.model.tallies import Tallies
    from scrapy_itemgraph.model.tasks import Outdated, RegisteredTask, Task
    from scrapy_itemgraph.model.work import (
        Claim,
        ClaimBudget,
        Note,
        Redirect,
        RedirectAnswer,
    )
    from scrapy_itemgraph.postgres.async_engine import AsyncEngine
    from scrapy_itemgraph.settings import Settings
    from scrapy_itemgraph.store.registry.processes import NewProcess

logger = logs.logger(__name__)


class WorkerGraph(WorkerUpkeep):
    """What one worker does with its crawl's graph; made by `open`."""

    def __init__(
        self,
        settings: Settings,
        engine: AsyncEngine,
        server: EmbeddedServer | None,
        *,
        spider: str = "",
        job: str | None = None,
        code: str | None = None,
        has_callback: Callable[[str], bool] = lambda _: True,
        source_of: Callable[[str], uuid.UUID | None] = lambda _: None,
        on_replaced: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(Transactions(engine, settings.database.patience), settings)
        self._engine = engine
        self._server = server
        self._spider = spider
        self._job = job
        self._code_version = code
        self._has_callback = has_callback
        self.process = OwnProcess(
            self._transactions,
            workers.KIND,
            self._register_process,
            lease=settings.database.lease,
            patience=settings.database.patience,
            session_url=settings.database.session_url if server is None else None,
            on_replaced=on_replaced,
        )
        self.callbacks: set[str] = set()
        self._tasks: Mapping[str, Task] = {}
        self.has_cookies = False
        self._source_of = source_of
        self._sources: dict[str, uuid.UUID] = {}  # those that the database was told of
        self.contents = WorkerContents(self._transactions, settings.records.blobs)
        self._commits = Commits(
            self._transactions, self.contents, self.process.identity, spider=spider
        )
        self.recovery = WorkerRecovery(self._transactions, self._commits, self.process, self)
        self.commit = self._commits.commit
        self.put_in_flight = self._commits.put_in_flight

    @classmethod
    async def open(
        cls,
        settings: Settings,
        *,
        crawl: str | CrawlStart,
        spider: str,
        tasks: Mapping[str, Task],
        has_callback: Callable[[str], bool] = lambda _: True,
        callback_names: Collection[str] = (),
        job: str | None = None,
        code: str | None = None,
        source_of: Callable[[str], uuid.UUID | None] = lambda _: None,
        on_replaced: Callable[[], None] = lambda: None,
        **more: Any,
    ) -> Self:
        """Find or start the server, migrate if allowed, register crawl, tasks and worker.

        `crawl` is the crawl's name, or who starts with which arguments. `has_callback` tells
        whether this worker's code has a plain callback that another one registers later, and
        `callback_names` are those that may become tasks. `source_of` returns the digest of a task's
        code, by its name. `job` and `code` are what people are told of the process: its job and its
        code's version. `on_replaced` is called when this worker was given up for dead, before it
        begins anew. None of these is called within a transaction. `more` is what another class of
        graph takes.

        Raises:
            ItemGraphError: with one clear line.

        """
        server = None
        url = settings.database.database_url
        if url is None:
            server = await asyncio.to_thread(
                EmbeddedServer.start, settings.database.data_dir, settings.database.postgres_bin
            )
            url = server.url
        idle = settings.database.lease.total_seconds() / 2  # the beat gets its row in time
        graph = cls(
            settings,
            engine.async_engine(url, longest_idle=idle),
            server,
            spider=spider,
            job=job,
            code=code,
            has_callback=has_callback,
            source_of=source_of,
            on_replaced=on_replaced,
            **more,
        )
        try:
            await graph.contents.open()
            with errors.all_translated(graph._engine.url):
                start = crawl if isinstance(crawl, CrawlStart) else CrawlStart(spider, name=crawl)
                await graph._register(start, tasks, callback_names)
        except BaseException:
            await graph._dispose()
            raise
        return graph

    async def _register(
        self,
        start: CrawlStart,
        tasks: Mapping[str, Task],
        callback_names: Collection[str],
    ) -> None:
        await self._ensure_schema()
        renamed = await self._call(item_sweeps.rename_tags, self.settings.results.tag_renames)
        started = await self._call(crawl_starts.find_or_make, start)
        self._take_crawl(started.crawl_id)
        self._tasks = tasks
        self._take_registration(await self._call(self._register_tasks))
        await self.process.register(self._register_in_run)
        self._started_at = self.process.identity.started_at
        self.recovery.begin(started.name)
        self.is_resumed = self.run.started_at < self._started_at
        await self._begin_to_live()
        locks = feed_locks.of(self.process.session, self._transactions.connect_arguments)
        self.feeds = WorkerFeeds(self._transactions, self._crawl_id, locks)
        startup_report.tell(
            tasks,
            renamed=renamed,
            of_crawl=started.warnings,
            vanished=self._registration.vanished,
            stray_groups=await self.limits.stray_groups({*tasks, *callback_names}),
            outdated=self._kept(await self._note_code(self._registration.tasks)),
        )

    def _register_tasks(self, connection: Connection) -> stored_tasks.Registration:
        return stored_tasks.register_tasks(
            connection,
            self._crawl_id,
            self._spider,
            self._tasks,
            self.settings.results.default_ttl,
            of_callback=self._of_callback,
            limits_of=self.limits.of_task,
            of_all=self.limits.of_all,
            outdated=self._outdated,
        )

    def _take_registration(self, registration: stored_tasks.Registration) -> None:
        self._registration = registration
        self.limits.learn(registration.limits)
        self.callbacks |= registration.callbacks

    def register_anew(self, connection: Connection) -> NewProcess:
        """Register tasks and worker in a database that knows neither; see `worker_recovery`."""
        self._take_registration(self._register_tasks(connection))
        return self._register_in_run(connection)

    async def register_missing(self) -> None:
        """Register plain callbacks and feeds that the database lacks; see `worker_recovery`."""
        run = self._transactions.unchecked
        new = self._new(await run(self._register_missing))
        tasks = {number: self._of_callback(one.name) for number, one in new.items()}
        if any(map(self.limits.of_task, tasks.values())):
            await run(lambda connection: self.limits.register_in(connection, tasks))
        self._registration.tasks.update(new)

    def _register_missing(self, connection: Connection) -> Mapping[int, RegisteredTask]:
        if hasattr(self, "feeds"):  # else it is not open yet
            self.feeds.register_anew(connection)
        if not self.callbacks:
            return {}
        return stored_tasks.register_callbacks(
            connection,
            self._crawl_id,
            self._spider,
            [self._of_callback(name) for name in sorted(self.callbacks)],
            self.settings.results.default_ttl,
        )

    def _of_callback(self, name: str) -> Task:
        return of_named_callback(name, self.settings.results.callbacks)

    async def _ensure_schema(self) -> None:
        is_embedded = self._server is not None
        await self._transactions.when_up(engine.check_version, is_known=is_embedded)
        allowed = self.settings.database.auto_migrate
        automatic = is_embedded if allowed is None else allowed
        alone_since = None if self._server is None else self._server.alone_since
        await self._call(ensure_schema, auto=automatic, alone_since=alone_since)

    def _take_crawl(self, crawl_id: int) -> None:
        """Make the parts that work for one crawl."""
        self._crawl_id = self._transactions.crawl_id = crawl_id
        self.sessions = WorkerSessions(self._transactions, crawl_id, self.process.identity)
        self.duties = WorkerDuties(self._transactions, crawl_id, self.settings)
        self.limits = WorkerLimits(
            self._transactions, self.settings, self.process.identity, spider=self._spider
        )

    async def _begin_to_live(self) -> None:
        """Take the worker's lock, and listen and renew its lease from now on."""
        await self.process.begin()
        self._news = self.process.session.subscribe(notify.of_crawl(self._crawl_id))
        self._own_news = self.process.own_news()
        if not self.process.session.has_session:
            startup_report.tell_no_session()

    def _register_in_run(self, connection: Connection) -> NewProcess:
        """Join the crawl's run, or begin one, as a new worker."""
        self.run = run = runs.join(connection, self._crawl_id)
        worker = self._register_process(connection)
        if run.started_at == worker.started_at:
            runs.began_by(
                connection,
                self._crawl_id,
                run.number,
                worker=worker.id,
                spider=self._spider,
                job=self._job,
            )
        return worker

    def _register_process(self, connection: Connection) -> NewProcess:
        worker = workers.register(
            connection,
            self._crawl_id,
            spider=self._spider,
            host=socket.gethostname(),
            process_id=os.getpid(),
            job=self._job,
            code=self._code_version,
            sources=self._sources,
            lease=self.settings.database.lease,
        )
        code_changes.go_on_leaving(connection, self._crawl_id, worker.id, self._left)
        return worker

    async def seed(self, operations: Sequence[Operation]) -> tuple[Note, ...]:
        """Apply checked operations in one transaction of their own.

        Raises:
            OperationError: naming the operation; then none of them was applied.
            BlobStoreError: what they attach cannot be stored; then none of them was applied.

        """
        attached = attachments(operations)
        if attached:
            await self.contents.store([one.content for one in attached])
        seeds = Changeset(operations=tuple(operations), outcome=Outcome.OK, attached=attached)
        (applied,) = (await self.commit([seeds])).applied
        if applied.error is not None:
            raise OperationError(f"spider {self._spider}, seeds: {applied.error.message}")
        if any(one.content.number is None for one in attached):
            raise BlobStoreError("what was stored for it was collected, and cannot be stored again")
        return applied.notes

    # Plain callbacks

    async def register_callbacks(self, callbacks: Iterable[Task]) -> None:
        """Register plain callbacks that were met for the first time."""
        await self._take_callbacks(
            await self._call(
                stored_tasks.register_callbacks,
                self._crawl_id,
                self._spider,
                list(callbacks),
                self.settings.results.default_ttl,
            )
        )

    async def learn_callbacks(self) -> bool:
        """Take note of plain callbacks that other workers registered; tell whether there are."""
        return await self._take_callbacks(
            await self._call(stored_tasks.known_callbacks, self._crawl_id, self._spider, hot=True)
        )

    async def _take_callbacks(self, known: Mapping[int, RegisteredTask]) -> bool:
        new = self._new(known)
        limited = {number: self._of_callback(one.name) for number, one in new.items()}
        await self.limits.register(limited)
        await self._note_code(new)
        self._registration.tasks.update(new)
        self.callbacks |= {one.name for one in known.values()}
        return bool(new)

    def _new(self, known: Mapping[int, RegisteredTask]) -> dict[int, RegisteredTask]:
        """Return the plain callbacks that this worker has to take note of, and can run."""
        ours = self._registration.tasks
        return {
            number: one
            for number, one in known.items()
            if number not in ours and self._has_callback(one.name)
        }

    async def _note_code(self, tasks: Mapping[int, RegisteredTask]) -> Sequence[Outdated]:
        """Remember what code tasks run now; return what of their fresh results is older."""
        digests = {
            number: source
            for number, one in tasks.items()
            if (source := self._source_of(one.name)) is not None
        }
        if not digests:
            return ()
        self._sources |= {tasks[number].name: source for number, source in digests.items()}

        def note(connection: Connection) -> Sequence[Outdated]:
            code_changes.save_sources(connection, self.worker_id, self._sources)
            return code_changes.note(connection, digests)

        return await self._call(note)

    def _kept(self, outdated: Sequence[Outdated]) -> list[Outdated]:
        """Return what stays as older code made it: not the pages that a new run fetches again."""
        incremental = self.settings.results.incremental_callbacks
        if self.is_resumed or incremental is None:
            return list(outdated)
        return [one for one in outdated if not one.is_callback or one.task in incremental]

    async def redirect(self, gone: Sequence[Redirect]) -> list[RedirectAnswer]:
        """Note where claims' requests went; for each, whether it may go on there."""
        return await self._call(stored_redirects.redirect, self._crawl_id, gone, hot=True)

    # Work

    async def claim(self, budget: ClaimBudget) -> ClaimResult:
        """Claim work, and the limits that it keeps to."""
        tokens = stored_claims.new_tokens(budget.most)

        def claim(connection: Connection, before: int) -> ClaimResult:
            if before:
                crawls.share_crawl(connection, self._crawl_id)
                stored_claims.unclaim(connection, tokens, self.worker_id)
                holdings.keep_only(connection, self.worker_id, budget.rooms)
            self.has_cookies, others_log_in, freed = stored_claims.before_claim(
                connection, self._crawl_id, self.worker_id
            )
            self._commits.see_freed(freed)
            if others_log_in:
                return ClaimResult()
            admission = self.limits.admission(budget)
            claims = stored_claims.claim(
                connection,
                crawl_id=self._crawl_id,
                worker_id=self.worker_id,
                tasks=self._registration.tasks,
                tokens=tokens,
                limit=budget.most,
                alone=budget.alone,
                admission=admission,
                in_flight=budget.in_flight,
            )
            grants = tuple(admission.grants.values())
            return ClaimResult(claims=claims, grants=grants, again_in=admission.again_in)

        with self.recovery.kept(tokens):
            return await self._transactions.numbered(claim)

    @property
    def names_freed(self) -> tuple[int, int]:
        """How often names were freed, as of the last claim or commit; it only grows."""
        return self._commits.names_freed

    async def release(self, claims: Sequence[Claim]) -> int:
        """Give claims back in their place; return how many were still ours."""
        if not claims:
            return 0
        with self.recovery.kept([one.token for one in claims]):
            return await self._call(
                stored_claims.release, claims, self.worker_id, hot=True, share=True
            )

    async def refile(self, claim: Claim, slot: str) -> bool:
        """Give a claim back into the queue of the slot that its request really has.

        With a slot that cannot be stored there is no queue: then it fails.
        """
        if not slots.is_usable(slot):
            what = f"the request's slot is no text of up to {slots.MAX_BYTES} bytes: {slot!r:.80}"
            error = ErrorRecord(type="OperationError", message=what)
            failed = Changeset(operations=(), outcome=Outcome.FAILED, claim=claim, error=error)
            (applied,) = (await self.commit([failed])).applied
            return applied.outcome is not None

        def refile(connection: Connection) -> bool:
            slot_id = stored_slots.intern_slots(connection, [slot])[slot]
            queue_id = queues.intern(connection, self._crawl_id, slot_id)
            return stored_claims.refile(connection, claim, queue_id, self.worker_id)

        with self.recovery.kept([claim.token]):
            return await self._call(refile, hot=True, share=True)

    @property
    def lives(self) -> bool:
        """Whether lock and lease stand, so that nobody else can have this worker's limits."""
        return self.process.lives

    async def wait_for_own_news(self, timeout: float) -> bool:  # noqa: ASYNC109 - likewise
        """Wait for news for this very worker, `timeout` seconds at most; whether there were."""
        return await self._own_news.wait(timeout)

    async def wait(self, timeout: float) -> None:  # noqa: ASYNC109 - the poll that backs it up
        """Wait for news of the crawl, `timeout` seconds at most.

        News are for all, and often for few: of many workers each is woken now and then only.
        """
        until = time.monotonic() + timeout
        while await self._news.wait(until - time.monotonic()):
            if random.random() * self.crowd < 1:
                return

    def hurry(self) -> None:
        """Wait for a server that is gone a short time only, for the crawl ends."""
        self._transactions.hurry()

    async def close(
        self,
        reason: str,
        uses: Sequence[Use] = (),
        told: Sequence[Tallies] = (),
        *,
        error: str | None = None,
    ) -> None:
        """Give back what is still claimed, and be gone; `uses` tell how limits were used last.

        What the worker did and may not have told yet is `told`; `error` is what it ended by.
        """
        self.hurry()
        try:
            self.process.stop()
            await self._call(self._stop, reason, uses, told, error, hot=True, share=True)
        finally:
            await self._dispose()

    def _stop(
        self,
        connection: Connection,
        reason: str,
        uses: Sequence[Use],
        told: Sequence[Tallies],
        error: str | None,
    ) -> None:
        self._give_back(connection, reason, uses)
        new = [some for some in told if tallies.add(connection, self._crawl_id, some)]
        runs.leave(connection, self._crawl_id, self.run.number, reason=reason, error=error)
        runs.count(connection, self._crawl_id, self.run.number, new)

    def _give_back(self, connection: Connection, reason: str, uses: Sequence[Use]) -> None:
        stored_claims.release_all(connection, self.worker_id)
        holdings.release_all(connection, self.worker_id, uses)
        workers.stop(connection, self.worker_id, reason)

    async def _dispose(self) -> None:
        self.contents.close()
        await self.process.close()
        await self._transactions.close()
        if self._server is not None:
            await asyncio.to_thread(self._server.close)
