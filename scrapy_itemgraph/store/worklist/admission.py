"""Admission: which work a worker may claim now, by the limits that the work keeps to.

Nothing is claimed that could not start at once or shortly, so that it neither waits in a worker's
memory nor hides what may go.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from scrapy_itemgraph.model.limits import SlotTerms, Terms, Use, starts_within, worth_holding
from scrapy_itemgraph.store import queues
from scrapy_itemgraph.store.limits import holdings

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from sqlalchemy import Connection

    from scrapy_itemgraph.model.limits import Grant

_LATER = 1.0
_SOON = 0.1
_ROUNDS = 4


Window: TypeAlias = tuple[int, int]  # a queue and a kind


class WorkRow(NamedTuple):
    """Work that may be claimed, locked."""

    item_id: int
    task_id: int
    queue_id: int
    kind_id: int
    is_stale: bool
    nice: int
    seq: int
    tries: int
    is_suspect: bool


@dataclass(frozen=True, slots=True)
class _Candidate:
    """Work that might be claimed, its slot, and what it keeps to beside that."""

    row: WorkRow
    slot: int
    limits: tuple[int, ...]


class Beside:
    """What may run beside other work of its item: an `exclusive` task wants its items for itself.

    `claimed` says of the items that have claims whether one of these is exclusive; about items
    that are `locked` somebody else decides just now.
    """

    def __init__(
        self,
        exclusive: Collection[int] = (),
        claimed: Mapping[int, bool] | None = None,
        locked: Collection[int] = (),
    ) -> None:
        self._exclusive = exclusive
        self._claimed = dict(claimed or {})
        self.locked = locked

    @property
    def decides(self) -> bool:
        """Whether there may be work that is not let run."""
        return bool(self._exclusive or self._claimed or self.locked)

    def copy(self) -> Beside:
        """Return one of its own to add to."""
        return Beside(self._exclusive, self._claimed, self.locked)

    def lets(self, row: WorkRow) -> bool:
        """Whether a row may run beside what is claimed, and what is to be."""
        if row.item_id in self.locked:
            return False
        others = self._claimed.get(row.item_id)
        return others is None or not (others or row.task_id in self._exclusive)

    def add(self, row: WorkRow) -> None:
        """Take note that a row is to be claimed."""
        self._claimed[row.item_id] = row.task_id in self._exclusive


class _Unseen:
    """Work that was not found, for it lies behind all of its kind that was found in its queue."""

    def __init__(self, windows: Mapping[Window, int]) -> None:
        self._left = dict(windows)
        self._queues: set[int] = set()

    def passed(self, row: WorkRow) -> None:
        """Take note that a row is to be claimed, or may not be beside others of its item."""
        window = row.queue_id, row.kind_id
        if window in self._left:
            self._left[window] -= 1
            if not self._left[window]:
                self._queues.add(row.queue_id)

    def may_go_before(self, row: WorkRow) -> bool:
        """Whether something that was not found may be due before a row of its queue."""
        return row.queue_id in self._queues


@dataclass(slots=True, kw_only=True)
class Admission:
    """What a worker has in hand as it claims, and what the claim adds to it.

    `rooms` says how many more pieces of work each limit that is held has use for, `shared` which of
    these are had in units; `limits_of` gives the limits of a task, `terms` how each is kept, and
    `slot_terms` how slots are.
    """

    rooms: dict[int, int] = field(default_factory=dict)
    shared: Collection[int] = ()
    limits_of: Mapping[int, Sequence[int]] = field(default_factory=dict)
    terms: Mapping[int, Terms] = field(default_factory=dict)
    slot_terms: SlotTerms = SlotTerms()  # noqa: RUF009 - frozen
    learns: bool = True
    grants: dict[int, Grant] = field(default_factory=dict)
    again_in: float | None = None
    put_off: set[int] = field(default_factory=set)  # queues
    _slots: dict[int, Terms] = field(default_factory=dict)  # by their numbers
    _refused: set[int] = field(default_factory=set)

    def meet(self, slots: Mapping[int, str]) -> None:
        """Take note of the names of slots."""
        for number, name in slots.items():
            if number not in self._slots:
                self._slots[number] = self.slot_terms.of(name)

    @property
    def own(self) -> list[int]:
        """The limits that this worker has for itself, and that have use for more work."""
        return [
            limit
            for limit, room in self.rooms.items()
            if room > 0 and limit not in self.shared and not self._is_granted_in_units(limit)
        ]

    def _is_granted_in_units(self, limit: int) -> bool:
        grant = self.grants.get(limit)
        return grant is not None and not grant.in_force.is_exclusive

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
        found: Sequence[WorkRow],
        *,
        beside: Beside,
        tag_limits: Mapping[int, Sequence[int]],
        queue_slots: Mapping[int, int],
        windows: Mapping[Window, int],
        most: int,
    ) -> list[WorkRow]:
        """Return the work that may be claimed, `most` pieces, and take the limits it keeps to.

        `beside` says what may run beside other work of its item, `tag_limits` are by kind,
        `queue_slots` the slots of the queues. `windows` says of which queue and kind there may be
        more work than was found, and how much was: once all of that is taken, or may not run
        beside other work, what comes next in the queue is not known.
        """
        unseen = _Unseen(windows)
        work = [
            _Candidate(
                row,
                queue_slots[row.queue_id],
                self._named(row.task_id, tag_limits[row.kind_id]),
            )
            for row in found
        ]
        admitted: list[_Candidate] = []
        for _ in range(_ROUNDS):
            refused = len(self._refused)
            # Slots only of what the other limits let go: nobody has one without a use for it.
            self._acquire(connection, worker_id, self._wanted(work, beside))
            picked, work = self._picked(work, most - len(admitted), unseen, beside)
            self._acquire(connection, worker_id, Counter(one.slot for one in picked))
            admitted += self._taken(picked)
            is_over = not picked and len(self._refused) == refused
            if not work or is_over or len(admitted) >= most:
                break
        if beside.locked:
            self.look_again(_SOON)
        self._settle_queues(
            connection, worker_id, {one.row.queue_id for one in admitted}, queue_slots
        )
        return [one.row for one in admitted]

    def _wanted(self, work: Sequence[_Candidate], beside: Beside) -> Counter[int]:
        """Return how often work that may be claimed keeps to each limit other than slots."""
        if beside.decides:
            beside = beside.copy()
            work = [one for one in work if self._might_go(one, beside)]
        return Counter(limit for one in work for limit in one.limits)

    def _might_go(self, one: _Candidate, beside: Beside) -> bool:
        """Whether work would be claimed if all limits were to be had that are not known."""
        needs = self._needs(one)
        is_let = beside.lets(one.row) and not any(
            limit in self._refused or self.rooms.get(limit, 1) <= 0 for limit in needs
        )
        if is_let:
            beside.add(one.row)
        return is_let

    def _picked(
        self, work: Sequence[_Candidate], most: int, unseen: _Unseen, beside: Beside
    ) -> tuple[list[_Candidate], list[_Candidate]]:
        """Return what the limits in hand let go, were the slots to be had that are not.

        And what may go later in this claim.
        """
        rooms = dict(self.rooms)
        picked: list[_Candidate] = []
        left: list[_Candidate] = []
        for place, one in enumerate(work):
            if len(picked) == most:
                left += work[place:]
                break
            if unseen.may_go_before(one.row):
                left.append(one)
                continue
            if not beside.lets(one.row):
                unseen.passed(one.row)
                continue
            needs = self._needs(one)
            is_unknown = one.slot not in rooms and one.slot not in self._refused
            if all(
                rooms.get(limit, 0) > 0 or (limit == one.slot and is_unknown) for limit in needs
            ):
                picked.append(one)
                unseen.passed(one.row)
                beside.add(one.row)
                for limit in needs:
                    if limit in rooms:
                        rooms[limit] -= 1
            else:
                left.append(one)
        return picked, left

    def _taken(self, picked: Sequence[_Candidate]) -> list[_Candidate]:
        """Return what has room under all its limits, and take it."""
        taken = []
        for one in picked:
            needs = self._needs(one)
            if all(self.rooms.get(limit, 0) > 0 for limit in needs):
                taken.append(one)
                for limit in needs:
                    self.rooms[limit] -= 1
        return taken

    def _needs(self, work: _Candidate) -> list[int]:
        return [limit for limit in (*work.limits, work.slot) if self._terms(limit).binds]

    def _named(self, task: int, tag_limits: Sequence[int]) -> tuple[int, ...]:
        return (*self.limits_of.get(task, ()), *tag_limits)

    def _terms(self, limit: int) -> Terms:
        return self._slots.get(limit) or self.terms.get(limit) or Terms()

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
                declared=terms,
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
                self.rooms[limit] = _room(grant)
            else:
                self.look_again(grant.again_in)
        refused = set(new) - self.rooms.keys()
        if refused - self.grants.keys():  # somebody decides about them just now
            self.look_again(_SOON)
        self._refused |= refused

    def _settle_queues(
        self,
        connection: Connection,
        worker_id: int,
        used: Collection[int],
        queue_slots: Mapping[int, int],
    ) -> None:
        """Keep the queues of slots taken here for this worker; put off those that were refused."""
        taken, later = [], {}
        for queue, slot in queue_slots.items():
            grant = self.grants.get(slot)
            if grant is None:
                continue
            if not grant.units and (grant.in_force.is_exclusive or grant.blocked_in):
                later[queue] = grant.again_in or _LATER
            elif grant.units and grant.in_force.is_exclusive and queue in used:
                taken.append(queue)
        queues.hold(connection, taken, worker_id)
        queues.put_off(connection, later)
        self.put_off |= later.keys()

    def look_again(self, seconds: float | None) -> None:
        """Take note that looking again after a while may find something."""
        if seconds is not None:
            known = self.again_in
            self.again_in = seconds if known is None else min(known, seconds)


def _room(grant: Grant) -> int:
    """Return how many pieces of work a limit that was granted has use for."""
    if not grant.in_force.is_exclusive:
        return worth_holding(grant.units)
    return starts_within(grant.in_force.gap, grant.due_in)
