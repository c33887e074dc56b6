"""The runner's rounds: each second, or as soon as there is news, it sees what is to be done."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from scrapy_itemgraph.channels.channel import Channels
from scrapy_itemgraph.exceptions import (
    DatabaseUnavailableError,
    ItemGraphError,
    MissingRightError,
    SchemaVersionError,
)
from scrapy_itemgraph.graph.runner_graph import RunnerGraph, first_news
from scrapy_itemgraph.model.jobs import Stop
from scrapy_itemgraph.runner import host, log_files
from scrapy_itemgraph.runner.left_processes import LeftProcess
from scrapy_itemgraph.runner.log_files import JobLog
from scrapy_itemgraph.runner.process import Child
from scrapy_itemgraph.tools import logs, wording
from scrapy_itemgraph.tools.async_tools import cancelled, ignore_signals

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from scrapy_itemgraph.model.runners import Assigned, HostState, LeftJob, Look, OwnJob
    from scrapy_itemgraph.runner.options import Options

logger = logs.logger(__name__)

ROUND = 1.0  # seconds between two looks
_REPORT_EVERY = 10.0  # seconds between two looks at the host
_AWAKEN_EVERY = 60.0  # seconds between two looks for work of crawls that had ended
_PRUNE_EVERY = 60.0  # seconds between two looks at how much the logs are
_STEPS_OF_SCHEDULES = 20  # of a round; the next comes at once while there is more
_RETRY = 2.0  # seconds until something is tried again for which the database was away
_SAY_AGAIN = 600.0  # seconds until a failure is said again that is as it was
_START_AGAIN = 10.0  # seconds without a start after one that the host refused
_CLOSE_WITHIN = 15.0  # seconds that the database has at the end
_MEMORY_SAID = 0  # of a process that runs still; the most is known at its end


class Supervisor:
    """Has places, starts in them what it is assigned, and sees it end."""

    def __init__(self, graph: RunnerGraph, options: Options) -> None:
        self._graph = graph
        self._options = options
        self._children: dict[int, Child] = {}  # by place
        self._left: set[int] = set()  # jobs whose runner is gone, and whose process is here
        self._tasks: set[asyncio.Task[None]] = set()
        self._signals = 0
        self._is_idle = False  # nothing runs, and nothing was there to be started
        self._has_changed = asyncio.Event()  # a signal came, or a process ended
        self._reported_at = self._awakened_at = self._pruned_at = -float("inf")
        self._low: str | None = None
        self._starts_after = 0.0
        self._is_cut_off = False
        self._failure = ""  # of the last round, as it was said
        self._said_again_at = 0.0
        self._outdated: SchemaVersionError | None = None

    async def run(self) -> None:
        """Do rounds until the runner was told to end and nothing runs any more.

        Raises:
            SchemaVersionError: another version of this code has migrated the database meanwhile.

        """
        loop = asyncio.get_running_loop()
        for one in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(one, self._told_to_end)
        rounds = loop.create_task(self._do_rounds())
        rounds.add_done_callback(lambda _: self._has_changed.set())
        while not (rounds.done() or self._is_over()):
            await self._has_changed.wait()
            self._has_changed.clear()
        await cancelled([] if rounds.done() else [rounds])
        if self._tasks:  # the database is told what ended, unless it is away
            await asyncio.wait(self._tasks, timeout=_CLOSE_WITHIN)
        await cancelled([*self._tasks])
        if not rounds.cancelled():
            rounds.result()
        if self._outdated is not None:
            raise self._outdated

    def _is_over(self) -> bool:
        if not all(child.outlives_kill for child in self._children.values()):
            return False
        return bool(self._signals) or (self._options.once and self._is_idle)

    async def _do_rounds(self) -> None:
        own, news = self._graph.own_news(), self._graph.news()
        await self._renew_schedules()
        while True:
            await self._round()
            self._has_changed.set()
            await first_news(own, news, timeout=ROUND)

    # Rounds

    async def _round(self) -> None:
        try:
            await self._look()
        except DatabaseUnavailableError as error:
            if not self._is_cut_off:
                logger.warning("%s The runner goes on waiting for it", error)
            self._is_cut_off = True
            await asyncio.sleep(_RETRY)
        except SchemaVersionError as error:
            self._end_outdated(error)
        except Exception as error:  # noqa: BLE001 - what runs must not end for it; the next may be well
            self._say_failed(error)
            await asyncio.sleep(_RETRY)
        else:
            self._is_cut_off = False
            self._failure = ""
            self._graph.notices.begin_if_due()
        await self._prune_logs()

    def _say_failed(self, error: Exception) -> None:
        """Say why a round failed, with a traceback where nobody knows what that means."""
        failure, now = f"{type(error).__name__}: {error}", time.monotonic()
        if failure == self._failure and now < self._said_again_at:
            return
        self._failure, self._said_again_at = failure, now + _SAY_AGAIN
        logger.error(
            "A round failed, and is tried again every %d seconds: %s",
            _RETRY,
            error,
            exc_info=None if isinstance(error, MissingRightError) else error,
            extra={"action": "round_failed"},
        )

    async def _look(self) -> None:
        found = await self._graph.look(self._host())
        if found is None:  # it was given up for dead; it registers anew in a moment
            if self._graph.refusal is not None:
                self._give_up(self._graph.refusal)
            return
        self._obey(found)
        # What becomes free, or falls due, is what the next round may start.
        has_news = await self._tidy(found)
        has_news |= await self._awaken()
        if found.is_due:
            has_news |= await self._start_due()
        while found.may_preempt and await self._graph.preempt():
            has_news = True
        assigned: list[Assigned] = []
        if found.may_assign and not self._signals and time.monotonic() >= self._starts_after:
            assigned = await self._graph.assign()
        for job in assigned:
            await self._start(job)
        self._is_idle = not (assigned or self._children or self._tasks or has_news)

    def _host(self) -> HostState | None:
        """Look at the host now and then; None in between."""
        now = time.monotonic()
        if now - self._reported_at < _REPORT_EVERY:
            return None
        self._reported_at = now
        options = self._options
        folders = [options.logs]
        if options.settings.database.database_url is None:
            folders.append(options.settings.database.data_dir)
        found = host.state(folders, min_memory=options.min_memory, min_disk=options.min_disk)
        if found.low is not None and self._low is None:
            logger.warning("Nothing is started while the host is low on %s", found.low)
        elif found.low is None and self._low is not None:
            logger.info("The host has enough again")
        self._low = found.low
        return found

    def _obey(self, found: Look) -> None:
        """Stop the processes that are to stop, or whose job is not theirs any more."""
        jobs = {job.place: job for job in found.jobs}
        for place, child in self._children.items():
            job = jobs.get(place)
            if job is None or job.job != child.job.job or job.is_over:
                if not child.is_stopping:
                    logger.warning(
                        "Job %d of the crawl %s was declared lost; its process is stopped",
                        child.job.job,
                        child.job.crawl,
                    )
                child.stop()
                continue
            child.has_worker = job.worker_id is not None
            if job.stop_wanted is not None:
                child.stop()

    async def _tidy(self, found: Look) -> bool:
        """End what nobody runs: of dead runners, and of this one what was never started.

        Returns whether there was something.
        """
        buried: list[str] = []
        if found.gone:
            buried = await self._graph.bury(found.gone)
            for name in buried:
                logger.warning("The runner %s is gone; its crawls are started elsewhere", name)
        orphans = [one.job for one in found.left if not self._has_process(one) and one.is_orphan]
        if orphans:
            await self._graph.end_orphans(orphans)
        strays = [job for job in found.jobs if self._is_stray(job)]
        for job in strays:
            await self._graph.end(job.job, exit_code=None, reason="it was not started")
        return bool(buried or orphans or strays)

    def _has_process(self, left: LeftJob) -> bool:
        """Tell whether the process of a job is here still whose runner is gone; have it end."""
        if left.job in self._left:
            return True
        process = LeftProcess.find(left)
        if process is None:
            return False
        self._left.add(left.job)
        self._run(self._end_left(left, process), f"end left job {left.job}")
        return True

    async def _end_left(self, left: LeftJob, process: LeftProcess) -> None:
        seconds = self._options.stop_after.total_seconds()
        logger.warning(
            "The runner of job %d of the crawl %s is gone, and its process %d is not; that has %s "
            "to end",
            left.job,
            left.crawl,
            process.pid,
            wording.format_period(seconds),
            extra={"action": "job_left", "job": left.job, "crawl": left.crawl},
        )
        try:
            await process.end(seconds)
        finally:
            self._left.discard(left.job)

    async def _awaken(self) -> bool:
        """Look now and then whether a crawl that had ended has work: a website was unblocked.

        Returns whether one had.
        """
        if time.monotonic() - self._awakened_at < _AWAKEN_EVERY:
            return False
        self._awakened_at = time.monotonic()
        return bool(await self._graph.awaken())

    async def _start_due(self) -> bool:
        """Have crawls begin that are due: so many that the next round is not late for it.

        Returns whether there were some.
        """
        for step in range(_STEPS_OF_SCHEDULES):
            if not await self._graph.start_due():
                return step > 0
        return True

    async def _renew_schedules(self) -> None:
        """Have due times by the clock be those of the time zones as this start knows them."""
        with suppress(DatabaseUnavailableError):  # the rounds say so, and wait for it
            for one in await self._graph.renew_schedules():
                logger.warning(
                    "The schedule %d of the crawl %s (%s) is due at %s now: its time zone's rules "
                    "are others than before",
                    one.id,
                    one.crawl,
                    one.rule,
                    one.next_at,
                )

    def _is_stray(self, job: OwnJob) -> bool:
        """Tell whether a job of a place has no process: the answer to its assignment was lost."""
        child = self._children.get(job.place)
        is_ending = any(task.get_name() == _name(job.job) for task in self._tasks)
        return (child is None or child.job.job != job.job) and not is_ending

    # Processes

    async def _start(self, job: Assigned) -> None:
        log = JobLog(self._options.logs, job.crawl, job.job)
        if log.error is not None:
            logger.warning("Job %d has no file for its log: %s", job.job, log.error)
        try:
            child = Child.start(job, log, self._options)
        except OSError as error:  # no fault of the crawl: the project's folder is gone, say
            logger.warning("Job %d of the crawl %s cannot start: %s", job.job, job.crawl, error)
            self._starts_after = time.monotonic() + _START_AGAIN
            log.close()
            seen = {"exit_code": None, "reason": f"it cannot be started here: {error}"}
            self._run(self._end(job.job, **seen), _name(job.job))
            return
        logger.info(
            "Job %d: the crawl %s begins in place %d, process %d",
            job.job,
            job.crawl,
            job.place,
            child.pid,
            extra={"action": "job_started", "job": job.job, "crawl": job.crawl},
        )
        self._children[job.place] = child
        self._note_running()
        self._run(self._attend(child), _name(job.job))

    async def _attend(self, child: Child) -> None:
        """Be with a process until it has ended, and the database knows it."""
        job = child.job
        beside = [asyncio.create_task(one) for one in self._beside(child)]
        try:
            seen = await child.ended()
        finally:
            await cancelled(beside)
        self._children.pop(job.place, None)
        self._note_running()
        verdict = await self._end(
            job.job,
            exit_code=seen.code,
            output=child.log.tail,
            lines=child.log.lines,
            memory=seen.memory,
        )
        state, why = ("lost", "it was over") if verdict is None else (verdict.state, verdict.reason)
        logger.info(
            "Job %d: the crawl %s ends in place %d: %s (%s)",
            job.job,
            job.crawl,
            job.place,
            state,
            why,
            extra={"action": "job_ended", "job": job.job, "crawl": job.crawl},
        )

    def _beside(self, child: Child) -> list[Coroutine[Any, Any, None]]:
        """Return what goes on beside a process: notes of it, its log's readers, its time limit."""
        found = [self._tell_start(child), self._tell_log(child)]
        if child.job.time_limit is not None:
            found.append(self._limit(child, child.job.time_limit.total_seconds()))
        return found

    async def _tell_start(self, child: Child) -> None:
        await self._patiently(self._graph.started, child.job.job, child.pid, str(child.log.path))

    async def _tell_log(self, child: Child) -> None:
        """Write the end of a log to the database whenever somebody far away reads it."""
        job = child.job.job
        news = self._graph.news_of_log(job)
        await news.wait(0)  # the first wait ends at once
        try:
            while True:
                if await news.wait(3600):
                    seen = (child.log.tail, child.log.lines, _MEMORY_SAID)
                    await self._patiently(self._graph.keep_output, job, *seen)
        finally:
            self._graph.forget_log(job)

    async def _limit(self, child: Child, seconds: float) -> None:
        await asyncio.sleep(seconds)
        logger.warning(
            "Job %d of the crawl %s has run for %s, its time limit",
            child.job.job,
            child.job.crawl,
            wording.format_period(seconds),
        )
        await self._stop(child, Stop.TIME)

    async def _stop(self, child: Child, why: Stop) -> None:
        """Stop a process, whether or not the database can be told why."""
        telling = asyncio.ensure_future(self._patiently(self._graph.stop, child.job.job, why))
        try:
            await asyncio.wait({telling}, timeout=_RETRY)
            child.stop()
            await telling
        finally:
            telling.cancel()

    async def _end(self, job: int, **seen: Any) -> Any:
        return await self._patiently(self._graph.end, job, **seen)

    async def _patiently(self, call: Any, *given: Any, **named: Any) -> Any:
        """Call, as often as it takes while the database is away, or refuses; rounds say so."""
        while True:
            try:
                return await call(*given, **named)
            except (DatabaseUnavailableError, MissingRightError):
                await asyncio.sleep(_RETRY)

    def _note_running(self) -> None:
        self._graph.runs({place: child.job.job for place, child in self._children.items()})
        self._has_changed.set()

    def _run(self, doing: Coroutine[Any, Any, Any], name: str) -> None:
        """Run something beside the rounds."""

        def done(task: asyncio.Task[Any]) -> None:
            self._tasks.discard(task)
            self._has_changed.set()
            if not task.cancelled() and (error := task.exception()) is not None:
                logger.error("%s: %s", task.get_name(), error, exc_info=error)

        task = asyncio.get_running_loop().create_task(doing, name=name)
        self._tasks.add(task)
        task.add_done_callback(done)

    # The end

    def _told_to_end(self) -> None:
        """Drain at the first signal; stop all at the second, and kill all at the third."""
        self._signals += 1
        self._has_changed.set()
        waits = wording.format_period(self._options.stop_after.total_seconds())
        if self._signals == 1:
            logger.warning("Told to end: nothing is started any more%s", self._what_runs(waits))
            asyncio.get_running_loop().call_later(
                self._options.stop_after.total_seconds(), self._stop_all
            )
            self._run(self._drain(), "drain")
        elif self._signals == 2:  # noqa: PLR2004 - the second one
            logger.warning("Told to end again: what runs is stopped; a third signal kills it")
            self._stop_all()
        else:
            for child in self._children.values():
                child.kill()

    def _end_outdated(self, error: SchemaVersionError) -> None:
        """End, for whatever this runner starts would be refused, and its crawl be set aside."""
        if self._outdated is None:
            logger.error("The runner ends: %s", error, extra={"action": "runner_outdated"})
            self._outdated = error
            if not self._signals:
                self._told_to_end()

    def _give_up(self, refusal: str) -> None:
        """End, for another process has become this runner while this one was taken for dead."""
        if not self._signals:
            logger.error("This process ends, with what it runs: %s", refusal.partition(";")[0])
        self._signals = max(self._signals, 1)
        for child in self._children.values():
            child.stop()

    def _what_runs(self, waits: str) -> str:
        """Say how many processes have so long to end, if there are some."""
        if not (count := len(self._children)):
            return ", and nothing runs"
        have, them = ("has", "it") if count == 1 else ("have", "them")
        several = "1 process" if count == 1 else f"{count:,} processes"
        return f", and {several} {have} {waits} to end; a second signal stops {them} at once"

    def _stop_all(self) -> None:
        for child in self._children.values():
            self._run(self._stop(child, Stop.DEPLOY), f"stop {child.job.job}")

    async def _drain(self) -> None:
        with suppress(ItemGraphError):
            async with asyncio.timeout(_RETRY):
                await self._graph.drain()

    # Logs

    async def _prune_logs(self) -> None:
        now = time.monotonic()
        if now - self._pruned_at < _PRUNE_EVERY:
            return
        self._pruned_at = now
        running = {child.log.path for child in self._children.values()}
        prune = log_files.prune
        most = self._options.max_logs
        deleted = await asyncio.to_thread(prune, self._options.logs, most, running)
        if deleted:
            were = "1 old log file was" if deleted == 1 else f"{deleted:,} old log files were"
            logger.info("%s deleted, for --max-logs", were)


def _name(job: int) -> str:
    return f"job {job}"


async def run(options: Options) -> None:
    """Run a runner until it is told to end.

    Raises:
        ItemGraphError: it cannot begin, in one clear line.

    """
    options.logs.mkdir(parents=True, exist_ok=True)
    terms = options.terms
    channels = Channels.of(options.settings.notices, terms.project, options.directory)
    graph = await RunnerGraph.open(options.settings, terms, channels)
    logger.warning(
        "The runner %s takes crawls of the project %s: places: %d, process %d",
        terms.name,
        terms.project,
        terms.places,
        os.getpid(),
        extra={"action": "runner_up"},
    )
    try:
        await Supervisor(graph, options).run()
    finally:
        with suppress(ItemGraphError, TimeoutError):
            async with asyncio.timeout(_CLOSE_WITHIN):
                await graph.close()
        ignore_signals()
