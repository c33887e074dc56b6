"""How the end of a process of a crawl that people steer is judged, and what follows.

Here is no I/O: who sees a process end says what was seen, and gets a verdict.
"""

from __future__ import annotations

import signal
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

from scrapy_itemgraph.model.jobs import FAILED, REASONS, SUPERSEDED, JobState, Stop

CRASH_LOOP = 5
"""So many abnormal ends in a row, in which the crawl did no page, pause it."""

FINISHED, SHUTDOWN = "finished", "shutdown"  # of the reasons that a worker gives
_PERMANENT = 2  # the exit code of a misuse, and of Ssscrape's permanent errors
_LONGEST_LINE = 300  # characters of it that a reason has
_FIRST_PAUSE, _LONGEST_PAUSE = timedelta(seconds=10), timedelta(minutes=10)
_LIMITS = {Stop.TIME: "it ran longer than its time limit", Stop.MEMORY: "it took too much memory"}
_ASKED = {
    Stop.PAUSE: "the crawl was paused",
    Stop.DRAIN: "the crawl was drained",
    Stop.ABORT: "the crawl was aborted",
    Stop.CANCEL: "it was cancelled",
    Stop.PREEMPT: "a better crawl took its place",
    Stop.DEPLOY: "its runner stopped",
}
# What a worker says that obeyed, whoever noted that it should.
_OBEYED = {*REASONS.values(), SUPERSEDED}
_BURIED = {"died", "stalled"}


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """How a process ended, as far as somebody saw it.

    `exit_code` is negative for a signal, and None where nobody saw the end: its runner was gone.
    `reason` is what its worker said last, and `has_worker` whether there was one: else it ended
    before it could register. `taken_for` is why its place was taken from it, if not for a better
    crawl. `refusals` counts the jobs in a row before it that ended so.
    """

    exit_code: int | None
    reason: str | None = None
    has_worker: bool = True
    stop_wanted: Stop | None = None
    taken_for: str | None = None
    refusals: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What an end means: the job's state and the reason that people read.

    Ends that are `is_abnormal` count towards a crash loop; those that `backs_off` have the next
    process wait, if the one before ended so as well. `pauses` says that the crawl is paused.
    """

    state: JobState
    reason: str
    is_abnormal: bool = False
    backs_off: bool = False
    pauses: bool = False


def judge(end: End) -> Verdict:
    """Tell what an end means."""
    if end.reason == FINISHED and end.exit_code in {0, None}:
        return Verdict(state=JobState.COMPLETED, reason=FINISHED)
    asked = _as_asked(end)
    if asked is not None:
        return asked
    if end.exit_code is None:
        return Verdict(state=JobState.TEMPORARY_ERROR, reason="its runner was gone")
    if not end.has_worker and end.exit_code >= 0:
        return _refused(end)
    return _judge_code(end, end.exit_code)


def _as_asked(end: End) -> Verdict | None:
    """Judge a process that was told to stop; None: it was not."""
    if end.stop_wanted in _LIMITS:
        reason = _LIMITS[end.stop_wanted]
        return Verdict(state=JobState.TEMPORARY_ERROR, reason=reason, is_abnormal=True)
    if end.stop_wanted is not None:
        return Verdict(state=JobState.CANCELLED, reason=end.taken_for or _ASKED[end.stop_wanted])
    if end.reason in _OBEYED:
        return Verdict(state=JobState.CANCELLED, reason=str(end.reason))
    return None


def _refused(end: End) -> Verdict:
    """Judge a process that ended before it registered: at the second in a row that is for good."""
    is_permanent = end.refusals > 0 or end.exit_code == _PERMANENT
    return Verdict(
        state=JobState.PERMANENT_ERROR if is_permanent else JobState.TEMPORARY_ERROR,
        reason=f"it ended as it started, with exit code {end.exit_code}",
        is_abnormal=True,
        backs_off=True,
        pauses=is_permanent,
    )


def _judge_code(end: End, code: int) -> Verdict:
    """Judge a process that nobody told to stop by its exit code, and by what its worker said."""
    if code == _PERMANENT:
        reason = f"it ended with exit code {code}, a permanent error"
        return Verdict(state=JobState.PERMANENT_ERROR, reason=reason, is_abnormal=True, pauses=True)
    if code < 0:
        return _failed(f"it was killed by {signal_name(-code)}")
    if code > 0:
        return _failed(f"it ended with exit code {code}")
    return _judge_word(end.reason)


def _judge_word(word: str | None) -> Verdict:
    """Judge a process that ended in order by what its worker said."""
    if word is None or word in _BURIED:
        return _failed(f"it ended without a word ({word or 'no reason'})")
    if word in FAILED:
        return _failed(f"its spider was closed for an error: {word}")
    if word == SHUTDOWN:
        return _failed("somebody stopped the process by a signal")
    said = f"its spider closed itself: {word}"
    return Verdict(state=JobState.COMPLETED, reason=said, pauses=True)


def _failed(reason: str) -> Verdict:
    return Verdict(state=JobState.TEMPORARY_ERROR, reason=reason, is_abnormal=True, backs_off=True)


def pause_before_next(attempts: int) -> timedelta:
    """Return how long the next process waits after so many in a row that ended abnormally.

    The first is started again at once; from the second on ten seconds, doubling to ten minutes.
    """
    if attempts < 2:  # noqa: PLR2004 - the second in a row
        return timedelta()
    return min(_FIRST_PAUSE * 2.0 ** min(attempts - 2, 32), _LONGEST_PAUSE)


def signal_name(number: int) -> str:
    """Return a signal's name."""
    with suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"


def with_last_line(reason: str, output: str | None) -> str:
    """Add to a reason the last line that a process wrote: as a rule its error.

    It is for those who may read its log anyway; notices go to others as well.
    """
    lines = (output or "").strip().splitlines()
    return f"{reason}: {lines[-1].strip()[:_LONGEST_LINE]}" if lines else reason
