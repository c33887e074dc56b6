"""What a failed download means: another attempt, a refusal or a failure."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Response
from scrapy.settings import Settings
from scrapy.spidermiddlewares.httperror import HttpError

from scrapy_itemgraph.model import tasks
from scrapy_itemgraph.model.work import Outcome
from scrapy_itemgraph.worker.spider.retry_or_failure import RetryPolicy

TASK = replace(tasks.of_callback("parse", {}), max_attempts=3)


def http_error(status: int, **headers: str) -> HttpError:
    """Return the error of a response."""
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return HttpError(Response("http://a.example/", status=status, headers=given))


@pytest.mark.parametrize(
    ("error", "attempt", "outcome", "kind"),
    [
        (http_error(503), 1, Outcome.RETRY, "http 503"),
        (http_error(503), TASK.max_attempts, Outcome.FAILED, "http 503"),
        (http_error(404), 1, Outcome.FAILED, "http 404"),
        (IgnoreRequest(), 1, Outcome.REFUSED, "scrapy.exceptions.IgnoreRequest"),
        (ValueError(), 1, Outcome.FAILED, "ValueError"),
    ],
)
def test_an_error_means_what_the_projects_retry_settings_say(error, attempt, outcome, kind):
    """Errors of RETRY_HTTP_CODES are tried again while attempts are left; refusals never are."""
    policy = RetryPolicy(Settings(), max_retry_after=timedelta(hours=1))

    verdict = policy.judge(error, TASK, attempt)

    assert (verdict.outcome, verdict.kind) == (outcome, kind)


def test_a_sites_retry_after_is_the_delay_up_to_the_longest():
    """The delay is what the site asks for, at most ITEMGRAPH_MAX_RETRY_AFTER."""
    policy = RetryPolicy(Settings(), max_retry_after=timedelta(seconds=90))

    delays = [
        policy.judge(http_error(503, Retry_After=seconds), TASK, 1).delay
        for seconds in ("7", "7000")
    ]

    assert delays == [timedelta(seconds=7), timedelta(seconds=90)]


def test_without_a_task_or_with_retries_switched_off_nothing_is_tried_again():
    """Follow-ups of no claim, and projects with RETRY_ENABLED = False, have no other attempt."""
    longest = timedelta(hours=1)
    on, off = (
        RetryPolicy(Settings({"RETRY_ENABLED": one}), max_retry_after=longest)
        for one in (True, False)
    )

    outcomes = [
        on.judge(http_error(503), None, 1).outcome,
        off.judge(http_error(503), TASK, 1).outcome,
    ]

    assert outcomes == [Outcome.FAILED, Outcome.FAILED]


def test_an_answer_that_the_project_knows_is_a_page_that_is_gone():
    """By ITEMGRAPH_ANSWERS, or what the task says itself; of a follow-up it is a failure."""
    answers = {404: "gone", 503: "gone"}
    policy = RetryPolicy(Settings(), max_retry_after=timedelta(hours=1), answers=answers)
    own = replace(TASK, answers={410: "gone"})

    verdicts = [
        policy.judge(http_error(404), TASK, 1, page_of=TASK),
        policy.judge(http_error(503), TASK, 1, page_of=TASK),
        policy.judge(http_error(410), TASK, 1, page_of=TASK),
        policy.judge(http_error(404), TASK, 1, page_of=own),
        policy.judge(http_error(410), TASK, 1, page_of=own),
        policy.judge(http_error(404), TASK, 1),
    ]

    assert [one.outcome for one in verdicts] == [
        *(Outcome.GONE, Outcome.GONE, Outcome.FAILED),
        *(Outcome.FAILED, Outcome.GONE, Outcome.FAILED),
    ]
    assert verdicts[0].kind == "http 404"
