"""Suspects: work that workers died or stalled on, which runs with nothing else."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from scrapy_itemgraph.graph import WorkerGraph
    from scrapy_itemgraph.worker.executions.active_executions import ActiveExecutions
    from scrapy_itemgraph.worker.executions.execution import Execution
    from scrapy_itemgraph.worker.executions.outbox import Outbox
    from scrapy_itemgraph.worker.executions.ready_requests import ReadyRequests

_BATCH = 25  # ordinary requests after which what must run alone has its turn
_LONGEST_DRAIN = 30.0  # seconds at most that this waits for those under way


@dataclass(slots=True, eq=False)
class _Turn:
    """The turn of what must run alone: after each ordinary batch, and no longer than that took."""

    _handed_out: int = 0  # when the last turn ended
    _ended_at: float = field(default_factory=time.monotonic)
    _began_at: float = 0.0
    _waits_since: float = 0.0
    _least: int = _BATCH

    def is_due(self, handed_out: int, is_idle: bool) -> bool:
        """Whether a turn may begin: so many requests were handed out, or nothing else is to do."""
        return is_idle or handed_out - self._handed_out >= self._least

    def begin(self) -> None:
        """Begin a turn, which waits for what is under way."""
        self._began_at = self._waits_since = time.monotonic()

    def goes_on(self) -> None:
        """Take note that a suspect runs: the next one waits for it, however long it takes."""
        self._waits_since = math.inf

    def takes_too_long(self) -> bool:
        """Whether what is under way has been waited for long enough."""
        return time.monotonic() - self._waits_since > _LONGEST_DRAIN

    def is_over(self) -> bool:
        """Whether it has lasted as long as the ordinary work before it."""
        if self._waits_since < math.inf:  # the first one
            return False
        ordinary = max(1.0, self._began_at - self._ended_at)
        return time.monotonic() - self._began_at > ordinary

    def end(self, handed_out: int) -> None:
        self._handed_out, self._ended_at = handed_out, time.monotonic()
        self._least = _BATCH

    def put_off(self, handed_out: int) -> None:
        """End a turn that did not come to anything; the next one is later."""
        self.end(handed_out)
        self._least = 20 * _BATCH


@dataclass(slots=True, eq=False, repr=False, kw_only=True)
class Suspects:
    """Says when a suspect may be claimed: one after another, between ordinary batches.

    Nothing is handed out until what is under way has ended; what is claimed waits in memory.
    """

    graph: WorkerGraph
    active: ActiveExecutions
    ready: ReadyRequests
    outbox: Outbox
    _turn: _Turn = field(default_factory=_Turn)

    def may_claim(self, *, is_dry: bool, is_running: bool) -> bool:
        """Begin, go on with or end the turn of suspects; tell whether to claim one now.

        `is_dry` tells that no ordinary work was found, `is_running` that the engine takes requests.
        """
        ready, turn = self.ready, self._turn
        if not ready.is_holding:
            is_idle = is_dry and not self._others()
            if not self.graph.upkeep.suspects_wait or not turn.is_due(ready.handed_out, is_idle):
                return False
            turn.begin()
            ready.hold()
        if self._others() or ready.is_writing or self.outbox.pending:
            if turn.takes_too_long():
                turn.put_off(ready.handed_out)
                ready.go_on()
            return False
        if turn.is_over() or not is_running:
            self._end_turn()
            return False
        self.graph.upkeep.suspects_wait = False  # until one is found, or told of meanwhile
        return True

    def claimed(self, *, has_found: bool) -> None:
        """Take note of whether a suspect was found; without one the turn is over."""
        if has_found:
            self.graph.upkeep.suspects_wait = True
            self._turn.goes_on()
        else:
            self._end_turn()

    def _end_turn(self) -> None:
        self._turn.end(self.ready.handed_out)
        self.ready.go_on()

    def _others(self) -> Collection[Execution]:
        """Return the executions under way, but for those that have not started."""
        return self.active.executions - self.ready.untouched
