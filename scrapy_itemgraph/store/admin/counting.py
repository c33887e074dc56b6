"""Counting: the one way in which reports count rows, in a time that does not grow with the graph.

Of each group (a task's waiting work, a crawl's items) up to `MOST` rows are counted one by one, by
an index that has them together. Where there are more, the group is estimated: by counting it on
some pages of the table that are drawn at random. No statistics are asked, for they may be missing
or know nothing of a crawl, and they tell nothing of conditions that go together.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from scrapy_itemgraph.model import counts
from scrapy_itemgraph.postgres import engine

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Connection, TextClause

MOST = 100_000  # rows of a group that are counted one by one
PAGES = 1_000  # of a table that a sample has, about

_SIZE = text("""
    SELECT pg_relation_size(CAST(:table AS regclass)) / current_setting('block_size')::int
""")


@dataclass(frozen=True, slots=True)
class Counted:
    """What is counted of a group `t`, of the rows of a table.

    `rows` is a SELECT of the candidates, by an index: at most `MOST + 1` of them are read. Those
    that satisfy `condition` count; it may be left out where all do. On a sample of `table`, whose
    rows belong to the group by `join`, the ones count that satisfy `sampled` and `condition`.
    """

    table: str
    alias: str
    join: str
    rows: str
    sampled: str
    condition: str | None = None

    @property
    def exactly(self) -> str:
        """The number as an expression; null where there are too many candidates."""
        if self.condition is None:
            return f"""(
            SELECT CASE WHEN count(*) <= :most THEN count(*) END
            FROM ({self.rows} LIMIT :most + 1) AS {self.alias})"""  # noqa: S608 - our own text
        return f"""CASE WHEN NOT EXISTS ({self.rows} OFFSET :most) THEN (
            SELECT count(*) FROM ({self.rows}) AS {self.alias}
            WHERE {self.condition}) END"""  # noqa: S608


@dataclass(frozen=True)
class Groups:
    """Groups `t` of rows, with columns of their own, and what is counted of each.

    `key` is the column that tells groups apart.
    """

    columns: str
    source: str
    where: str
    key: str = "id"
    order: str = "1"
    counted: Mapping[str, Counted] = field(default_factory=dict)

    @cached_property
    def exact(self) -> TextClause:
        """Counts all groups, in one snapshot."""
        numbers = "".join(f",\n{one.exactly} AS {name}" for name, one in self.counted.items())
        return text(f"""
            SELECT t.{self.key} AS key, {self.columns}{numbers}
            FROM {self.source} WHERE {self.where} ORDER BY {self.order}
        """)  # noqa: S608 - our own text

    def sampled(self, names: Sequence[str]) -> TextClause:
        """Return what counts some of the numbers, of one table, in a sample of it."""
        one = self.counted[names[0]]
        numbers = ", ".join(f"count(*) FILTER (WHERE {self._matches(n)}) AS {n}" for n in names)
        return text(f"""
            SELECT t.{self.key} AS key, {numbers}
            FROM {one.table} AS {one.alias} TABLESAMPLE SYSTEM (:percent) REPEATABLE (0)
            JOIN {self.source} ON {one.join}
            WHERE {self.where} GROUP BY t.{self.key}
        """)  # noqa: S608 - our own text

    def _matches(self, name: str) -> str:
        one = self.counted[name]
        return one.sampled if one.condition is None else f"{one.sampled} AND {one.condition}"


def count(connection: Connection, groups: Groups, **given: Any) -> list[dict[str, Any]]:
    """Return the groups' columns, and their numbers: estimates where they are too large.

    The transaction's plans do not depend on statistics from here on.
    """
    engine.hot_path(connection)
    rows = connection.execute(groups.exact, {**given, "most": MOST}).all()
    counted = {row.key: row._asdict() for row in rows}
    lacking: dict[str, list[str]] = defaultdict(list)
    for name, one in groups.counted.items():
        if any(row[name] is None for row in counted.values()):
            lacking[one.table].append(name)
    for table, names in lacking.items():
        _estimate(connection, groups, table, names, counted, given)
    return [{k: v for k, v in row.items() if k != "key"} for row in counted.values()]


def _estimate(  # noqa: PLR0917 - what is to be filled in, and of what
    connection: Connection,
    groups: Groups,
    table: str,
    names: Sequence[str],
    counted: dict[Any, dict[str, Any]],
    given: Mapping[str, Any],
) -> None:
    """Fill in what could not be counted to its end."""
    pages = connection.execute(_SIZE, {"table": table}).scalar_one()
    share = min(1.0, PAGES / max(pages, 1))
    sample = groups.sampled(names)
    found = connection.execute(sample, {**_bound(sample, given), "percent": 100 * share})
    in_sample = {row.key: row._asdict() for row in found}
    for key, row in counted.items():
        for name in names:
            if row[name] is None:
                number = in_sample.get(key, {}).get(name, 0) / share
                # All candidates count where there is no condition, and there are more than MOST.
                least = MOST if groups.counted[name].condition is None else 0
                row[name] = counts.rounded(max(number, least))


def _bound(statement: TextClause, given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: given[name] for name in statement._bindparams if name in given}  # noqa: SLF001
