"""What a failed download means for its work: another attempt, a refusal or a failure."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from scrapy.exceptions import IgnoreRequest
from scrapy.spidermiddlewares.httperror import HttpError
from scrapy.utils.misc import load_object

from scrapy_itemgraph.model.answers import GONE
from scrapy_itemgraph.model.work import Outcome
from scrapy_itemgraph.worker.downloads import site_feedback
from scrapy_itemgraph.worker.executions import error_records

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scrapy.settings import BaseSettings

    from scrapy_itemgraph.model.tasks import Task

TOO_MANY_REDIRECTS = "too many redirects"  # the type of such a failure
_JITTER = 0.25  # of a delay, up and down
_REDIRECTED_TOO_OFTEN = "max redirections reached"  # what Scrapy's redirect middlewares raise


@dataclass(frozen=True)
class Verdict:
    """What a download that brought no page to its callback means for the work."""

    outcome: Outcome
    kind: str
    delay: timedelta | None = None


class RetryPolicy:
    """Tells errors that are retried from refusals and failures, as the project's settings say."""

    def __init__(
        self,
        settings: BaseSettings,
        *,
        max_retry_after: timedelta,
        answers: Mapping[int, str] | None = None,
    ) -> None:
        enabled = settings.getbool("RETRY_ENABLED")
        self._codes = {int(c) for c in settings.getlist("RETRY_HTTP_CODES")} if enabled else set()
        self._exceptions = (
            tuple(load_object(e) for e in settings.getlist("RETRY_EXCEPTIONS")) if enabled else ()
        )
        self._max_retry_after = max_retry_after.total_seconds()
        self._answers = answers or {}  # of tasks that have none of their own

    def judge(
        self,
        error: BaseException,
        task: Task | None,
        attempt: int,
        *,
        left: int | None = None,
        page_of: Task | None = None,
    ) -> Verdict:
        """Judge the error that a request's errback gets; `task` is None when it has no retry.

        `left` is how many attempts a person gave the page, this one among them; None: as its task
        says. `page_of` is the task whose page it is; None of a request that goes on from a page.
        """
        asked = None
        if isinstance(error, HttpError):
            if self._is_gone(error.response.status, page_of):
                return Verdict(Outcome.GONE, f"http {error.response.status}")
            kind = f"http {error.response.status}"
            is_retryable = error.response.status in self._codes
            seconds = site_feedback.retry_after(error.response, self._max_retry_after)
            asked = None if seconds is None else timedelta(seconds=max(seconds, 0.001))
        elif isinstance(error, IgnoreRequest):
            if str(error) == _REDIRECTED_TOO_OFTEN:  # no page came, and nobody refused it
                return Verdict(Outcome.FAILED, TOO_MANY_REDIRECTS)
            return Verdict(Outcome.REFUSED, error_records.type_name(error))
        else:
            kind = error_records.type_name(error)
            is_retryable = isinstance(error, self._exceptions)
        if not is_retryable or task is None:
            return Verdict(Outcome.FAILED, kind)
        is_last = attempt >= task.max_attempts if left is None else left <= 1
        if is_last:
            return Verdict(Outcome.FAILED, kind)
        jitter = random.uniform(1 - _JITTER, 1 + _JITTER)
        return Verdict(Outcome.RETRY, kind, asked or task.retry_delay(attempt) * jitter)

    def _is_gone(self, status: int, page_of: Task | None) -> bool:
        """Tell whether the project says of an answer that the page is no more."""
        if page_of is None:
            return False
        answers = self._answers if page_of.answers is None else page_of.answers
        return answers.get(status) == GONE
