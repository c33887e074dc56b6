"""The plans of statements that are really sent, and how many rows they touch."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from benchmarks.bench_hot_path import BIG_TABLES

if TYPE_CHECKING:
    from collections.abc import Iterator

BATCH = 25
ROWS_EACH = 50
JOINS = {"Hash Join", "Merge Join"}
EXPLAINABLE = ("SELECT", "INSERT", "UPDATE", "DELETE", "WITH")


@dataclass
class Explained:
    """A statement and the nodes of its plan."""

    statement: str
    nodes: list[dict[str, Any]]

    def faults(self, batch: int) -> list[str]:
        """Return what is wrong with the plan."""
        found = []
        for node in self.nodes:
            kind, relation = node["Node Type"], node.get("Relation Name")
            if relation in BIG_TABLES and kind in {"Seq Scan", "Bitmap Heap Scan"}:
                found.append(f"{kind} on {relation}")
            if kind in JOINS:
                found.append(kind)
            if touched(node) > ROWS_EACH * batch:
                found.append(f"{kind} touches {touched(node):,.0f} rows of {relation}")
        return found


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
def explaining(connection: sa.Connection) -> Iterator[list[Explained]]:
    """Explain each statement right before it is executed, and undo the explanation's effects."""
    explained: list[Explained] = []

    def explain(_connection: Any, cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if not statement.lstrip().startswith(EXPLAINABLE):
            return
        beside = cursor.connection.cursor()
        beside.execute("SAVEPOINT explained")
        beside.execute(f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {statement}", parameters)
        (found,) = beside.fetchone()
        beside.execute("ROLLBACK TO SAVEPOINT explained")
        plan = found if isinstance(found, list) else json.loads(found)
        explained.append(Explained(statement, list(nodes_of(plan[0]["Plan"]))))

    sa.event.listen(connection, "before_cursor_execute", explain)
    try:
        yield explained
    finally:
        sa.event.remove(connection, "before_cursor_execute", explain)


def check(explained: list[Explained], batch: int = BATCH) -> None:
    """Assert that all plans are as they should be."""
    assert explained
    faults = {one.statement: found for one in explained if (found := one.faults(batch))}
    assert not faults, "\n".join(f"{', '.join(why)}:{what}" for what, why in faults.items())
