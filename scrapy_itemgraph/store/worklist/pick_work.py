"""The search: which work is to be claimed next, of the queues whose turn it is.

What is found is locked.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from sqlalchemy import text

from scrapy_itemgraph.store import queues
from scrapy_itemgraph.store.columns import typed
from scrapy_itemgraph.store.queues import MOVE_TURNS, OWN_TURNS, TURNS, Turn, park
from scrapy_itemgraph.store.sql_conditions import IS_READY_ALONE, IS_READY_BESIDE_OTHERS
from scrapy_itemgraph.store.worklist.admission import Beside, WorkRow

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Connection, CursorResult

    from scrapy_itemgraph.store.worklist.admission import Admission, Window

SentTurns: TypeAlias = "Sequence[CursorResult[*tuple[Any, ...]]]"

_ROUNDS = 10
_SUSPECTS = 10


class OpenKind(NamedTuple):
    """A kind of work that the worker may claim now, and its task."""

    id: int
    task_id: int
    limit_ids: list[int]
    any_exclusive: bool
    is_item_exclusive: bool


# The first work of each (queue, kind), locked.
HEADS = text(f"""
    SELECT w.item_id, w.task_id, w.queue_id, w.kind_id, w.is_stale, w.nice, w.seq, w.tries,
        w.is_suspect
    FROM unnest(CAST(:queues AS int[]), CAST(:shares AS int[])) AS turn(queue_id, share)
    CROSS JOIN unnest(CAST(:kinds AS int[])) AS open(kind_id)
    CROSS JOIN LATERAL (
        SELECT * FROM work w
        WHERE w.queue_id = turn.queue_id AND w.kind_id = open.kind_id
            AND {IS_READY_BESIDE_OTHERS}
        ORDER BY w.is_stale, w.nice, w.seq
        LIMIT turn.share
        FOR UPDATE SKIP LOCKED) AS w
""")  # noqa: S608 - our own conditions

# The same where a task wants its items for itself: passes over what may not run beside claims that
# stand, so that it does not fill the limit. Whether that is so is decided later, after locks.
HEADS_BESIDE_CLAIMS = text(f"""
    SELECT w.item_id, w.task_id, w.queue_id, w.kind_id, w.is_stale, w.nice, w.seq, w.tries,
        w.is_suspect
    FROM unnest(CAST(:queues AS int[]), CAST(:shares AS int[])) AS turn(queue_id, share)
    CROSS JOIN unnest(CAST(:kinds AS int[]), CAST(:alone AS bool[])) AS open(kind_id, wants_alone)
    CROSS JOIN LATERAL (
        SELECT * FROM work w
        WHERE w.queue_id = turn.queue_id AND w.kind_id = open.kind_id
            AND {IS_READY_BESIDE_OTHERS}
            AND NOT EXISTS (
                SELECT FROM work c JOIN tasks t ON t.id = c.task_id
                WHERE c.item_id = w.item_id AND c.token IS NOT NULL
                    AND (open.wants_alone OR t.is_item_exclusive))
        ORDER BY w.is_stale, w.nice, w.seq
        LIMIT turn.share
        FOR UPDATE SKIP LOCKED) AS w
""")  # noqa: S608 - our own conditions

# The first work that two workers died on, or stalled on.
SUSPECT = text(f"""
    SELECT w.item_id, w.task_id, w.queue_id, w.kind_id, w.is_stale, w.nice, w.seq, w.tries,
        w.is_suspect, q.slot_id, l.name AS slot
    FROM work w JOIN queues q ON q.id = w.queue_id JOIN limits l ON l.id = q.slot_id
    WHERE w.crawl_id = :crawl AND w.kind_id = ANY (CAST(:kinds AS int[]))
        AND {IS_READY_ALONE}
    ORDER BY w.is_stale, w.nice, w.seq
    LIMIT :limit
    FOR UPDATE OF w SKIP LOCKED
""")  # noqa: S608 - our own conditions

# Items that nobody else is deciding about, for tasks that want an item for themselves.
FREE_ITEMS = text("""
    SELECT i.id FROM unnest(CAST(:items AS bigint[])) AS wanted(id)
    JOIN items i ON i.id = wanted.id
    FOR NO KEY UPDATE OF i SKIP LOCKED
""")

# Claims that stand on these items; read after FREE_ITEMS, in a statement of its own.
STANDING_CLAIMS = text("""
    SELECT w.item_id, bool_or(t.is_item_exclusive) AS is_exclusive
    FROM unnest(CAST(:items AS bigint[])) AS wanted(id)
    JOIN work w ON w.item_id = wanted.id AND w.token IS NOT NULL
    JOIN tasks t ON t.id = w.task_id
    GROUP BY w.item_id
""")


@dataclass(frozen=True, slots=True)
class WorkSearch:
    """A search for work that may be claimed, round robin over the queues."""

    connection: Connection
    crawl_id: int
    worker_id: int
    admission: Admission
    kinds: Sequence[OpenKind] = ()

    def find(self, limit: int, sent: SentTurns | None = None) -> list[WorkRow]:
        """Return locked candidates in the order in which they should start.

        `sent` is what `send_turns` has asked for already.
        """
        looked_for = _looked_for(limit)
        for _ in range(_ROUNDS):
            live, sent = self._turns(looked_for, sent or self.send_turns(limit)), None
            if not live:
                self.admission.look_again(queues.next_turn(self.connection, self.crawl_id))
                return []
            turns = live[:limit]
            slots = {turn.id: turn.slot_id for turn in turns}
            shares = self._shares(turns, limit)
            first = self._first(shares)
            found = self._admitted(first, slots, limit, self._windows(first, shares))
            self._pass_on(turns, {row.queue_id for row in found}, is_single=len(live) == 1)
            if found or len(live) < looked_for:
                return found
        self.admission.look_again(0.0)
        return []

    def suspect(self) -> list[WorkRow]:
        """Return the first work that two workers died on, locked."""
        kinds = [kind.id for kind in self.kinds]
        given = {"crawl": self.crawl_id, "kinds": kinds, "limit": _SUSPECTS}
        rows = self.connection.execute(SUSPECT, given).all()
        self.admission.meet({row.slot_id: row.slot for row in rows})
        slots = {row.queue_id: row.slot_id for row in rows}
        return self._admitted([WorkRow(*work) for *work, _, _ in rows], slots, 1, {})

    def send_turns(self, limit: int) -> SentTurns:
        """Ask for the queues whose turn it is; no kinds are needed for that."""
        admission = self.admission
        given = {"crawl": self.crawl_id, "limit": _looked_for(limit)}
        statements = [(TURNS, {**given, "passed_over": admission.passed_over})]
        if slots := admission.own:
            statements.insert(0, (OWN_TURNS, {**given, "own": slots, "worker": self.worker_id}))
        return [self.connection.execute(*statement) for statement in statements]

    def _turns(self, limit: int, sent: SentTurns) -> list[Turn]:
        """Return queues, those first that were not looked into for the longest."""
        found = [row for answer in sent for row in typed(answer, Turn)]
        live = sorted(found, key=lambda row: row.next_at)[:limit]
        self.admission.meet({row.slot_id: row.slot for row in live})
        return live

    def _shares(self, turns: Sequence[Turn], limit: int) -> dict[int, int]:
        """Return how much work of each kind is worth looking at, by queue, in their order."""
        most = -(-limit // len(turns))
        return {turn.id: self.admission.share(turn.slot_id, most) for turn in turns}

    def _first(self, shares: Mapping[int, int]) -> list[WorkRow]:
        """Return the first work of each queue and kind, locked, in the order of its turn."""
        numbers = list(shares)
        given: dict[str, Any] = {
            "queues": numbers,
            "shares": list(shares.values()),
            "kinds": [kind.id for kind in self.kinds],
        }
        statement = HEADS
        if self._any_exclusive:
            statement = HEADS_BESIDE_CLAIMS
            given["alone"] = [kind.is_item_exclusive for kind in self.kinds]
        heads = typed(self.connection.execute(statement, given), WorkRow)
        return _round_robin(heads, numbers)

    def _windows(self, found: Sequence[WorkRow], shares: Mapping[int, int]) -> dict[Window, int]:
        """Return of which queues and kinds there may be more than was found, and how much was."""
        if len(self.kinds) == 1:
            return {}
        counts = Counter((row.queue_id, row.kind_id) for row in found)
        return {window: count for window, count in counts.items() if count >= shares[window[0]]}

    def _admitted(
        self,
        found: Sequence[WorkRow],
        queue_slots: Mapping[int, int],
        limit: int,
        windows: Mapping[Window, int],
    ) -> list[WorkRow]:
        """Keep what the limits, and tasks that want their items for themselves, let run now."""
        beside = self._beside(found) if self._any_exclusive else Beside()
        return self.admission.admit(
            self.connection,
            self.worker_id,
            found,
            beside=beside,
            tag_limits={kind.id: kind.limit_ids for kind in self.kinds},
            queue_slots=queue_slots,
            windows=windows,
            most=limit,
        )

    def _pass_on(self, turns: Sequence[Turn], used: set[int], *, is_single: bool) -> None:
        """Let the next claim begin with other queues, and not look into those without work."""
        idle = [turn.id for turn in turns if turn.id not in used]
        if idle:
            park(self.connection, self.crawl_id, idle)
        if not is_single:
            moved = [turn.id for turn in turns if turn.id not in self.admission.put_off]
            self.connection.execute(MOVE_TURNS, {"queues": moved})

    @property
    def _any_exclusive(self) -> bool:
        return any(kind.any_exclusive for kind in self.kinds)

    def _beside(self, found: Sequence[WorkRow]) -> Beside:
        """Lock the items of this work that nobody else decides about; return what they let run."""
        items = sorted({row.item_id for row in found})
        free = set(self.connection.execute(FREE_ITEMS, {"items": items}).scalars())
        standing = self.connection.execute(STANDING_CLAIMS, {"items": items}).all()
        return Beside(
            {kind.task_id for kind in self.kinds if kind.is_item_exclusive},
            {row.item_id: row.is_exclusive for row in standing},
            set(items) - free,
        )


def _looked_for(limit: int) -> int:
    """Return how many queues to look for: a single one is told from the first of several."""
    return max(limit, 2)


def _round_robin(heads: Sequence[WorkRow], queues: Sequence[int]) -> list[WorkRow]:
    """Order candidates: each queue's first, then each queue's second, and so on."""
    by_queue: dict[int, list[WorkRow]] = {queue: [] for queue in queues}
    for row in sorted(heads, key=lambda row: (row.is_stale, row.nice, row.seq)):
        by_queue[row.queue_id].append(row)
    return [row for turn in zip_longest(*by_queue.values()) for row in turn if row is not None]
