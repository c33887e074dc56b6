"""`graph.jobs`: the processes of crawls that people steer."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from scrapy_itemgraph.store import notify
from scrapy_itemgraph.store.admin import job_reports
from scrapy_itemgraph.store.registry import job_changes

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from scrapy_itemgraph.graph.crawl_transactions import CrawlTransactions


class Jobs:
    """The jobs of the database, by number; one that is not there is a NotFoundError.

    Who changes one says who they are: `by`, which the history keeps.
    """

    def __init__(self, transactions: CrawlTransactions) -> None:
        self._transactions = transactions

    def list(
        self,
        *,
        crawl: str | None = None,
        is_open: bool = False,
        before: int | None = None,
        limit: int = 100,
    ) -> list[job_reports.JobLine]:
        """Return jobs, the newest first: of a crawl, not over yet, and with numbers below `before`.

        As far as that is asked; `limit` at most.
        """
        asked = {"crawl": crawl, "is_open": is_open, "before": before, "limit": limit}
        return self._transactions.call(partial(job_reports.jobs, **asked))  # type: ignore[arg-type]  # of a dict

    def get(self, job: int) -> job_reports.JobLine:
        """Return one job."""
        return self._transactions.call(partial(job_reports.job, number=job))

    def output(self, job: int) -> str:
        """Return the end of what a job's process wrote, 64 kB at most.

        While it runs its runner is asked for it, and the next call has what it had written.
        """

        def within(connection: Connection) -> str:
            one = job_reports.job(connection, job)
            if one.ended_at is None:
                notify.tell_log(connection, job)
            return job_reports.output(connection, job)

        return self._transactions.call(within)

    def log(self, job: int, after: int = 0) -> job_reports.LogPart:
        """Return what a job's process wrote after so many lines, of the last 64 kB.

        While it runs its runner is asked for more, which the next call has.
        """

        def within(connection: Connection) -> job_reports.LogPart:
            found = job_reports.log(connection, job, after)
            if found.has_begun and not found.is_over:
                notify.tell_log(connection, job)
            return found

        return self._transactions.call(within)

    def cancel(self, job: int, *, by: str) -> str:
        """Cancel a job that waits, or have its process end in order; return its crawl's name.

        The crawl stays active, so another process of it is started; pause it to keep it from that.

        Raises:
            OperationError: it is over, or told to stop already.

        """
        return self._transactions.call(partial(job_changes.cancel, job=job, by=by))

    def retry(self, job: int, *, by: str) -> tuple[int, str]:
        """Have another process do what a job did; return its number, and its crawl's name.

        The crawl becomes active, if it is finished or aborted.

        Raises:
            OperationError: the job is not over, or its crawl is paused.

        """
        return self._transactions.call(partial(job_changes.retry, job=job, by=by))

    def reclaim(self, job: int, reason: str, *, by: str) -> None:
        """End a job whose process nobody sees; its claims are free, and its place as well.

        Raises:
            OperationError: it is over, or waits to be started.

        """
        change = partial(job_changes.reclaim_job, job=job, reason=reason, by=by)
        self._transactions.call(change)

    def reclaim_worker(self, worker: int, reason: str, *, by: str) -> None:
        """Free the claims of a worker that nobody sees; one that lives goes on as a new one.

        Raises:
            NotFoundError: there is no such worker, or it has stopped.

        """
        change = partial(job_changes.reclaim_worker, worker=worker, reason=reason, by=by)
        self._transactions.call(change)
