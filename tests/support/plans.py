"""The plans of statements that are really sent, and how many rows they touch."""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from psycopg import sql

from support.filled import BIG_TABLES
from support.statements import name_of

if TYPE_CHECKING:
    from collections.abc import Iterator

BATCH = 25
ROWS_EACH = 80
# How many rows of tables each statement may read for a batch of 25, with those it passes over.
BUDGETS = {
    "apply.END_CLAIMS": 70,
    "attempts.PRUNE_ATTEMPTS": 40,
    "attempts.RECORD_ATTEMPTS": 0,
    "attempts.RECORD_WITH_MORE": 0,
    "items.NEXT_IDS": 0,
    "batch_names.RESOLVE": 320,
    "batch_names.SET_OWNERS": 30,
    "claims.BEFORE_CLAIM": 10,
    "claims.DROP": 40,
    "claims.GIVE_BACK": 20,
    "claims.OPEN_KINDS": 30,
    "claims.TAKE": 140,
    "claims.VALIDATORS": 30,
    "lost_commit_answers.NOTE": 0,
    "lost_commit_answers.TAKE": 10,
    "crawls.SHARE_CRAWL": 10,
    "duties.STILL_UNATTENDED": 20,
    "duties.UNATTENDED": 60,
    "engine.HOT_PATH": 0,
    "engine.BEGIN": 0,
    "failures.HOLD": 5,
    "failures.RECORD": 0,
    "failures.SUPERSEDE": 0,
    "flush.ADD_TAGS": 0,
    "flush.COUNT_FREED": 10,
    "flush.DELETE_ITEMS": 40,
    "flush.DROP_ATTEMPTS": 10,
    "flush.DROP_TAGS": 10,
    "flush.INSERT_ITEMS": 0,
    "flush.MOVE_ATTEMPTS": 10,
    "flush.SET_RESULTS": 0,
    "flush.SET_TAGS": 0,
    "flush.UPDATE_ITEMS": 30,
    "holdings.BLOCK": 70,
    "holdings.HOLD": 70,
    "holdings.HOLDERS": 70,
    "holdings.LET_GO": 70,
    "holdings.LOCK_FREE_LIMITS": 40,
    "holdings.OF_WORKERS": 70,
    "holdings.OUTLIVE": 70,
    "holdings.SLOW_DOWN": 70,
    "holdings.STATES": 290,
    "holdings.STRAYS": 70,
    "holdings.TAKE_FREE": 70,
    "holdings.USED": 40,
    "in_flight.FORGET": 10,
    "in_flight.WRITE": 0,
    "items.DROP_NAMES": 20,
    "items.LOCK_ITEMS": 40,
    "items.SNAPSHOTS": 110,
    "items.TAKE_NAMES": 50,
    "load.LOCK": 110,
    "load.LOCK_UNCLAIMED": 120,
    "load.NAMES": 60,
    "kept_links.KEEP": 0,
    "kept_links.LINKED": 260,
    "load.OF_BEFORE": 60,
    "load.OF_EARLIER_RUNS": 60,
    "load.RESULTS": 60,
    "load.TAGS": 60,
    "load.TASKS": 10,
    "load.WORK": 120,
    "logins.FREE_LOGIN": 0,
    "notify.NOTIFY": 0,
    "notify.TELL": 0,
    "queues.CLOSED_TASKS": 10,
    "queues.FIND_QUEUES": 10,
    "dead_processes.BURY": 10,
    "dead_processes.LOST": 30,
    "queues.FREE": 70,
    "queues.HOLD": 70,
    "queues.HOLD_QUEUES": 40,
    "queues.LOCK": 70,
    "queues.LOCK_EMPTY": 40,
    "queues.MAKE_QUEUES": 0,
    "queues.MOVE_TURNS": 70,
    "queues.OF_SLOTS": 70,
    "queues.OWN_TURNS": 300,
    "queues.PARK": 530,
    "queues.PUT_OFF": 70,
    "queues.SLEEPING_QUEUES": 40,
    "queues.TURNS": 70,
    "queues.UNHELD": 150,
    "queues.WAKE_QUEUES": 10,
    "refresh.INSERT_WORK": 0,
    "refresh.TRACKS_DEPTH": 10,
    "refresh.STANDING": 120,
    "refresh.WANTED": 2_000,
    "refresh.WITHDRAW": 210,
    "runs.REMAINING": 1_500,
    "runs.UNSETTLED": 20,
    "pick_work.FREE_ITEMS": 40,
    "pick_work.HEADS": 40,
    "pick_work.HEADS_BESIDE_CLAIMS": 140,
    "pick_work.SUSPECT": 120,
    "pick_work.STANDING_CLAIMS": 110,
    "slots.FIND_LIMITS": 40,
    "slots.LOCK_LIMITS": 70,
    "slots.MAKE_LIMITS": 0,
    "sql_conditions.LIVES": 10,
    "item_sweeps.ADVANCE_SWEEP": 10,
    "item_sweeps.NEXT_SWEEP": 10,
    "item_sweeps.SWEPT_ITEMS": 40,
    "rule_sweeps.ADVANCE": 10,
    "rule_sweeps.EVER_SKIPPED": 10,
    "rule_sweeps.NEXT_TASK": 10,
    "rule_sweeps.SKIPPED": 60,
    "rule_sweeps.WAITING": 60,
    "rulesets.ONE": 10,
    "set_aside.FREE": 160,
    "set_aside.HOLD": 250,
    "timers.CLEAR_TIMERS": 40,
    "expired_results.DUE_RESULTS": 50,
    "expired_results.STAGE_RESULTS": 40,
    "timers.STAGE_TIMERS": 40,
    "dead_processes.FREE_ORPHANS": 40,
    "dead_processes.ORPHANS": 110,
    "dead_processes.LOOK": 10,
    "dead_processes.WHOSE": 40,
}
EXPLAINED: set[str] = set()  # the statements that tests of this process have explained
JOINS = {"Hash Join", "Merge Join"}
EXPLAIN = "EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON)"
TYPES = {bool: "boolean", float: "float8", datetime: "timestamptz"}
EXPLAINABLE = ("SELECT", "INSERT", "UPDATE", "DELETE", "WITH")


@dataclass
class Explained:
    """A statement and the nodes of its plan."""

    statement: str
    nodes: list[dict[str, Any]]

    @property
    def name(self) -> str:
        """Where the statement stands, such as `claims.TAKE`."""
        return name_of(self.statement)

    @property
    def rows(self) -> int:
        """How many rows of tables it read, those that it passed over among them."""
        return round(sum(touched(node) for node in self.nodes if "Relation Name" in node))

    def faults(self, batch: int) -> list[str]:
        """Return what is wrong with the plan."""
        found = []
        budget = BUDGETS.get(self.name)
        if budget is None:
            found.append(f"{self.name} has no budget")
        elif self.rows > budget * batch / BATCH:
            found.append(f"{self.name} read {self.rows:,} rows; its budget is {budget:,}")
        for node in self.nodes:
            kind, relation = node["Node Type"], node.get("Relation Name")
            if relation in BIG_TABLES and kind in {"Seq Scan", "Bitmap Heap Scan"}:
                found.append(f"{kind} on {relation}")
            if kind in JOINS:
                found.append(kind)
            if touched(node) > ROWS_EACH * batch:
                found.append(f"{kind} touches {touched(node):,.0f} rows of {relation}")
        return found


def prepared(statement: str, given: dict[str, Any]) -> str:
    """Return what prepares a statement under the name `explained`."""
    numbers = {name: number for number, name in enumerate(given, 1)}
    types = ", ".join(type_of(value) for value in given.values())
    body = re.sub(r"%\((\w+)\)s", lambda found: f"${numbers[found[1]]}", statement)
    return f"PREPARE explained{f'({types})' if types else ''} AS {body.replace('%%', '%')}"


def type_of(value: Any) -> str:
    """Return the type that the driver gives a parameter: an integer has the smallest."""
    if type(value) is int:
        bits = value.bit_length()
        return "smallint" if bits < 16 else "integer" if bits < 32 else "bigint"
    return TYPES.get(type(value), "unknown")


def arguments(given: dict[str, Any]) -> str:
    """Return the values of a statement's parameters, as SQL."""
    values = ", ".join(sql.Literal(value).as_string() for value in given.values())
    return f"({values})" if values else ""


def touched(node: dict[str, Any]) -> float:
    """Return how many rows a node looked at."""
    rows = (
        node.get("Actual Rows", 0)
        + node.get("Rows Removed by Filter", 0)
        + node.get("Rows Removed by Join Filter", 0)
        + node.get("Rows Removed by Index Recheck", 0)
    )
    return rows * node.get("Actual Loops", 1)


def nodes_of(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Walk a plan."""
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes_of(child)


@contextmanager
def explaining(connection: sa.Connection, *, is_prepared: bool = True) -> Iterator[list[Explained]]:
    """Explain each statement right before it is executed, and undo the explanation's effects.

    With `is_prepared` each is explained twice: planned for its parameters, and planned for any,
    which is what becomes of a statement that is prepared.
    """
    explained: list[Explained] = []

    def explain(_connection: Any, cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if not statement.lstrip().startswith(EXPLAINABLE):
            return
        given = parameters if isinstance(parameters, dict) else {}
        for_these = [(f"{EXPLAIN} {statement}", parameters)]
        for_any = [
            ("SET LOCAL plan_cache_mode = force_generic_plan", None),
            (prepared(statement, given), None),
            (f"{EXPLAIN} EXECUTE explained{arguments(given)}", None),
        ]
        for explanation in (for_these, for_any) if is_prepared else (for_these,):
            beside = cursor.connection.cursor()
            beside.execute("SAVEPOINT explained")
            for step in explanation:
                beside.execute(*step)
            (found,) = beside.fetchone()
            beside.execute("ROLLBACK TO SAVEPOINT explained")
            beside.execute("DEALLOCATE ALL")
            plan = found if isinstance(found, list) else json.loads(found)
            explained.append(Explained(statement, list(nodes_of(plan[0]["Plan"]))))

    sa.event.listen(connection, "before_cursor_execute", explain)
    try:
        yield explained
    finally:
        sa.event.remove(connection, "before_cursor_execute", explain)


def check(explained: list[Explained], batch: int = BATCH) -> None:
    """Assert that all plans are as they should be, and read no more rows than they may."""
    assert explained
    faults = {one.statement: found for one in explained if (found := one.faults(batch))}
    assert not faults, "\n".join(f"{', '.join(why)}:{what}" for what, why in faults.items())
    EXPLAINED.update(one.name for one in explained)
