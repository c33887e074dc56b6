"""How the end of a process is judged, and what follows."""

from __future__ import annotations

from datetime import timedelta

import pytest

from scrapy_itemgraph.model.job_ends import End, judge, pause_before_next
from scrapy_itemgraph.model.jobs import Stop


def verdict(**end):
    """Return a verdict in short: the state, and "abnormal", "backs off" and "pauses" if so."""
    found = judge(End(**end))
    said = {
        "abnormal": found.is_abnormal,
        "backs off": found.backs_off,
        "pauses": found.pauses,
    }
    return " ".join([found.state, *(word for word, is_so in said.items() if is_so)])


@pytest.mark.parametrize(
    ("end", "said"),
    [
        ({"exit_code": 0, "reason": "finished"}, "completed"),
        ({"exit_code": None, "reason": "finished"}, "completed"),
        ({"exit_code": 0, "reason": "finished", "stop_wanted": Stop.ABORT}, "completed"),
        ({"exit_code": -9}, "temporary-error abnormal backs off"),
        ({"exit_code": -9, "has_worker": False}, "temporary-error abnormal backs off"),
        ({"exit_code": 3}, "temporary-error abnormal backs off"),
        ({"exit_code": 1, "reason": "finished"}, "temporary-error abnormal backs off"),
        ({"exit_code": 0}, "temporary-error abnormal backs off"),
        ({"exit_code": 0, "reason": "died"}, "temporary-error abnormal backs off"),
        ({"exit_code": 0, "reason": "shutdown"}, "temporary-error abnormal backs off"),
        ({"exit_code": 0, "reason": "itemgraph_error"}, "temporary-error abnormal backs off"),
        ({"exit_code": 2}, "permanent-error abnormal pauses"),
        ({"exit_code": None}, "temporary-error"),
        ({"exit_code": None, "reason": "shutdown"}, "temporary-error"),
        ({"exit_code": 0, "reason": "closespider_timeout"}, "completed pauses"),
        ({"exit_code": 0, "reason": "paused"}, "cancelled"),
        ({"exit_code": 0, "reason": "superseded"}, "cancelled"),
        *(
            ({"exit_code": code, "stop_wanted": why}, "cancelled")
            for why in (Stop.PAUSE, Stop.ABORT, Stop.CANCEL, Stop.PREEMPT, Stop.DEPLOY)
            for code in (0, -9)
        ),
        ({"exit_code": -9, "stop_wanted": Stop.TIME}, "temporary-error abnormal"),
        ({"exit_code": 0, "stop_wanted": Stop.MEMORY}, "temporary-error abnormal"),
        ({"exit_code": 1, "has_worker": False}, "temporary-error abnormal backs off"),
        (
            {"exit_code": 1, "has_worker": False, "refusals": 1},
            "permanent-error abnormal backs off pauses",
        ),
        ({"exit_code": 2, "has_worker": False}, "permanent-error abnormal backs off pauses"),
    ],
)
def test_the_end_of_a_process_is_judged(end, said):
    """SS-3: what a process was told, its exit code and its worker's word make the job's state."""
    assert verdict(**end) == said


def test_the_reason_names_the_signal():
    """A process that was killed for memory says by which signal."""
    assert judge(End(exit_code=-9)).reason == "it was killed by SIGKILL"


def test_the_first_abnormal_end_does_not_wait_and_later_ones_ever_longer():
    """The pause begins with the second abnormal end in a row, and doubles up to ten minutes."""
    pauses = [pause_before_next(attempts).total_seconds() for attempts in (0, 1, 2, 3, 4, 8, 99)]

    assert pauses == [0, 0, 10, 20, 40, 600, 600]
    assert pause_before_next(32767) == timedelta(minutes=10)
