"""Admission: which work a worker may claim now, by the limits that the work keeps to.

Nothing is claimed that could not start at once or shortly, so that it neither waits in a worker's
memory nor hides what may go. No function here commits.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from scrapy_itemgraph import holdings, queues
from scrapy_itemgraph.pace import starts_within
from scrapy_itemgraph.types import Terms, Use

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sqlalchemy import Connection, Row

    from scrapy_itemgraph.types import Grant

_LATER = 1.0


@dataclass(slots=True, kw_only=True)
class Admission:
    """What a worker has in hand as it claims, and what the claim adds to it.

    `rooms` says how many more pieces of work each limit that is held has use for; `limits_of` gives
    the limits of a task, `terms` how each is kept, and `slot_terms` how a slot is, by its name.
    """

    rooms: dict[int, int] = field(default_factory=dict)
    limits_of: Mapping[int, Sequence[int]] = field(default_factory=dict)
    terms: Mapping[int, Terms] = field(default_factory=dict)
    slot_terms: Callable[[str], Terms] = lambda _: Terms()
    learns: bool = True
    grants: dict[int, Grant] = field(default_factory=dict)
    again_in: float | None = None
    _slots: dict[int, Terms] = field(default_factory=dict)  # by their numbers
    _refused: set[int] = field(default_factory=set)

    def meet(self, slots: Mapping[int, str]) -> None:
        """Take note of the names of slots."""
        for number, name in slots.items():
            if number not in self._slots:
                self._slots[number] = self.slot_terms(name) if name else Terms()

    @property
    def held(self) -> list[int]:
        """The limits in hand that have use for more work."""
        return [limit for limit, room in self.rooms.items() if room > 0]

    @property
    def passed_over(self) -> list[int]:
        """Slots that are not to be looked into: without room here, or refused a moment ago."""
        return [*self._refused, *(limit for limit, room in self.rooms.items() if room <= 0)]

    def share(self, slot: int, most: int) -> int:
        """Return how many pieces of work of a slot are worth looking at."""
        if slot in self.rooms:
            return max(0, min(most, self.rooms[slot]))
        return min(most, starts_within(self._slots[slot].gap, 0.0))

    def is_open(self, task: int, tag_limits: Sequence[int]) -> bool:
        """Whether work of a task might be admitted, as far as limits in hand say."""
        return all(self.rooms.get(limit, 1) > 0 for limit in self._named(task, tag_limits))

    def admit(
        self,
        connection: Connection,
        worker_id: int,
        found: Sequence[Row[Any]],
        tag_limits: Mapping[int, Sequence[int]],
        queue_slots: Mapping[int, int],
    ) -> list[Row[Any]]:
        """Return the work that may be claimed, and take the limits that it keeps to.

        `tag_limits` are by kind, `queue_slots` the slots of the queues.
        """
        named: dict[int, dict[int, tuple[int, ...]]] = {kind: {} for kind in tag_limits}
        for row in found:
            of_task = named[row.kind_id]
            if row.task_id not in of_task:
                of_task[row.task_id] = self._named(row.task_id, tag_limits[row.kind_id])
        # Slots only of what the other limits let go: nobody is to have a slot without a use for it.
        wanted = Counter(limit for row in found for limit in named[row.kind_id][row.task_id])
        self._acquire(connection, worker_id, wanted)
        found = [row for row in found if self._have_room(named[row.kind_id][row.task_id])]
        slots = Counter(queue_slots[row.queue_id] for row in found)
        self._acquire(connection, worker_id, slots)
        admitted = []
        for row in found:
            limits = (queue_slots[row.queue_id], *named[row.kind_id][row.task_id])
            if self._have_room(limits):
                admitted.append(row)
                for limit in limits:
                    if limit in self.rooms:
                        self.rooms[limit] -= 1
        self._settle_queues(connection, worker_id, admitted, queue_slots)
        return admitted

    def _named(self, task: int, tag_limits: Sequence[int]) -> tuple[int, ...]:
        return (*self.limits_of.get(task, ()), *tag_limits)

    def _terms(self, limit: int) -> Terms:
        return self._slots.get(limit) or self.terms.get(limit) or Terms()

    def _have_room(self, limits: Sequence[int]) -> bool:
        return all(self.rooms.get(one, 0) > 0 for one in limits if self._terms(one).binds)

    def _acquire(self, connection: Connection, worker_id: int, wanted: Mapping[int, int]) -> None:
        """Take limits that are not in hand, each in units for so many pieces of work."""
        new = sorted(
            limit
            for limit in wanted.keys() - self.rooms.keys() - self._refused
            if self._terms(limit).binds
        )
        uses = [
            Use(
                limit_id=limit,
                terms=terms,
                wants=min(wanted[limit], terms.concurrency or 1),
                looking=True,
            )
            for limit in new
            for terms in [self._terms(limit)]
        ]
        for limit, grant in holdings.acquire(
            connection, worker_id, uses, learns=self.learns
        ).items():
            self.grants[limit] = grant
            if grant.units:
                self.rooms[limit] = starts_within(grant.terms.gap, grant.due_in)
            else:
                self.look_again(grant.again_in)
        self._refused.update(set(new) - self.rooms.keys())

    def _settle_queues(
        self,
        connection: Connection,
        worker_id: int,
        admitted: Sequence[Row[Any]],
        queue_slots: Mapping[int, int],
    ) -> None:
        """Keep the queues of slots taken here for this worker; put off those that were refused."""
        used = {row.queue_id for row in admitted}
        taken, later = [], {}
        for queue, slot in queue_slots.items():
            grant = self.grants.get(slot)
            if grant is None:
                continue
            if not grant.units and (grant.terms.is_exclusive or grant.blocked_in):
                later[queue] = grant.again_in or _LATER
            elif grant.units and grant.terms.is_exclusive and queue in used:
                taken.append(queue)
        queues.hold(connection, taken, worker_id)
        queues.put_off(connection, later)

    def look_again(self, seconds: float | None) -> None:
        """Take note that looking again after a while may find something."""
        if seconds is not None:
            known = self.again_in
            self.again_in = seconds if known is None else min(known, seconds)
