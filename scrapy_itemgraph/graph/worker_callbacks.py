"""Tasks that a worker registers as it starts, and plain callbacks that are met later."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from scrapy_itemgraph.graph.worker_start import register_worker
from scrapy_itemgraph.model.tasks import of_named_callback
from scrapy_itemgraph.store.registry import code_changes, crawl_starts, runs
from scrapy_itemgraph.store.registry import tasks as stored_tasks

if TYPE_CHECKING:
    import uuid
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from sqlalchemy import Connection

    from scrapy_itemgraph.connections.identity import Identity
    from scrapy_itemgraph.connections.transactions import Transactions
    from scrapy_itemgraph.graph.worker_job import WorkerJob
    from scrapy_itemgraph.graph.worker_limits import WorkerLimits
    from scrapy_itemgraph.graph.worker_start import WorkerStart
    from scrapy_itemgraph.model.tasks import Outdated, RegisteredTask, Task
    from scrapy_itemgraph.settings import Settings
    from scrapy_itemgraph.store.registry.processes import NewProcess
    from scrapy_itemgraph.store.registry.runs import Run


class Unchecked(Protocol):
    """Runs a function of a recovery in a transaction; see `Transactions.unchecked`."""

    async def __call__(self, function: Callable[[Connection], Any]) -> Any:
        """Run it once, on the server that the recovery looks at."""


class WorkerCallbacks:
    """The tasks of one worker, those of plain callbacks included, as they are registered.

    `tasks` has them by number, `names` those of plain callbacks. `outdated` are the names of tasks
    that a later start declares otherwise, `left` of those that are left to workers of newer code.
    """

    def __init__(
        self,
        transactions: Transactions,
        settings: Settings,
        start: WorkerStart,
        own: Identity,
        limits: WorkerLimits,
        *,
        job: WorkerJob,
    ) -> None:
        self.tasks: dict[int, RegisteredTask] = {}
        self.names: set[str] = set()
        self.outdated: set[str] = set()
        self.left: set[str] = set()
        self._call = transactions.call
        self._crawl_id = transactions.crawl_id
        self._settings = settings
        self._start = start
        self._own = own
        self._limits = limits
        self._job = job
        self._sources: dict[str, uuid.UUID] = {}  # those that the database was told of

    async def register_tasks(self) -> Sequence[str]:
        """Register what the spider declares; return the names of tasks that vanished."""
        registration = await self._call(self._register_tasks)
        self._take(registration)
        return registration.vanished

    def register_tasks_anew(self, connection: Connection) -> None:
        """Do the same in a database that lacks them; see `worker_recovery`."""
        self._take(self._register_tasks(connection))

    def register_callbacks_anew(self, connection: Connection) -> Mapping[int, RegisteredTask]:
        """Register plain callbacks that the database may lack; see `worker_recovery`."""
        if not self.names:
            return {}
        return stored_tasks.register_callbacks(
            connection,
            self._crawl_id,
            self._start.spider,
            [self._of_callback(name) for name in sorted(self.names)],
            self._settings.results.default_ttl,
        )

    async def take_anew(self, known: Mapping[int, RegisteredTask], unchecked: Unchecked) -> None:
        """Take note of those that were registered anew; limits are saved by `unchecked`."""
        new = self._new(known)
        tasks = {number: self._of_callback(one.name) for number, one in new.items()}
        if any(map(self._limits.of_task, tasks.values())):
            await unchecked(lambda connection: self._limits.register_in(connection, tasks))
        self.tasks.update(new)

    async def register(self, callbacks: Iterable[Task]) -> None:
        """Register plain callbacks that were met for the first time."""
        await self._take_callbacks(
            await self._call(
                stored_tasks.register_callbacks,
                self._crawl_id,
                self._start.spider,
                list(callbacks),
                self._settings.results.default_ttl,
            )
        )

    async def learn(self) -> bool:
        """Take note of plain callbacks that other workers registered; tell whether there are."""
        spider = self._start.spider
        return await self._take_callbacks(
            await self._call(stored_tasks.known_callbacks, self._crawl_id, spider, hot=True)
        )

    async def note_code(self) -> Sequence[Outdated]:
        """Remember what code the tasks run now; return what of their fresh results is older."""
        return await self._note_code(self.tasks)

    # The worker, which tells of its code

    def register_process(self, connection: Connection) -> NewProcess:
        """Register this process as a worker of the crawl, with its job."""
        lease = self._settings.database.lease
        worker = register_worker(connection, self._crawl_id, self._start, self._sources, lease)
        code_changes.go_on_leaving(connection, self._crawl_id, worker.id, self.left)
        self._job.join(connection, worker.id)
        return worker

    def register_in_run(self, connection: Connection) -> tuple[Run, NewProcess]:
        """Join the crawl's run, or begin one, as a new worker."""
        self._job.lock(connection)
        run = runs.join(
            connection,
            self._crawl_id,
            for_queue=self._job.is_of_runner,
            continues=self._settings.run.continue_ and not self._job.is_of_runner,
        )
        if run.is_over:
            self._job.see_end()
        if not self._own.id:
            crawl_starts.refuse_beside_others(connection, self._crawl_id, self._start.of_crawl)
        worker = self.register_process(connection)
        if run.started_at == worker.started_at:
            runs.began_by(
                connection,
                self._crawl_id,
                run.number,
                worker=worker.id,
                spider=self._start.spider,
                job=self._start.job,
            )
        return run, worker

    # Its own

    def _register_tasks(self, connection: Connection) -> stored_tasks.Registration:
        return stored_tasks.register_tasks(
            connection,
            self._crawl_id,
            self._start.spider,
            self._start.tasks,
            self._settings.results.default_ttl,
            of_callback=self._of_callback,
            limits_of=self._limits.of_task,
            of_all=self._limits.of_all,
            outdated=self.outdated,
        )

    def _take(self, registration: stored_tasks.Registration) -> None:
        self.tasks = registration.tasks
        self._limits.learn(registration.limits)
        self.names |= registration.callbacks

    async def _take_callbacks(self, known: Mapping[int, RegisteredTask]) -> bool:
        new = self._new(known)
        limited = {number: self._of_callback(one.name) for number, one in new.items()}
        await self._limits.register(limited)
        await self._note_code(new)
        self.tasks.update(new)
        self.names |= {one.name for one in known.values()}
        return bool(new)

    def _new(self, known: Mapping[int, RegisteredTask]) -> dict[int, RegisteredTask]:
        """Return the plain callbacks that this worker has to take note of, and can run."""
        return {
            number: one._replace(revalidates=self._of_callback(one.name).keeps_validators)
            for number, one in known.items()
            if number not in self.tasks and self._start.has_callback(one.name)
        }

    def _of_callback(self, name: str) -> Task:
        return of_named_callback(name, self._settings.results.callbacks)

    async def _note_code(self, tasks: Mapping[int, RegisteredTask]) -> Sequence[Outdated]:
        digests = {
            number: source
            for number, one in tasks.items()
            if (source := self._start.source_of(one.name)) is not None
        }
        if not digests:
            return ()
        self._sources |= {tasks[number].name: source for number, source in digests.items()}

        def note(connection: Connection) -> Sequence[Outdated]:
            code_changes.save_sources(connection, self._own.id, self._sources)
            return code_changes.note(connection, digests)

        return await self._call(note)
