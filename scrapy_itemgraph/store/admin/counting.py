"""Counting: the one way in which reports count rows, in a time that does not grow with the graph.

Of each group (a task's waiting work, a crawl's items) up to `MOST` rows are counted one by one, by
an index that has them together. Where there are more, the group is estimated: by counting it on
some pages of the table that are drawn at random. No statistics are asked, for they may be missing
or know nothing of a crawl, and they tell nothing of conditions that go together.

A report of many groups, or of rows that are dear to look at, counts one by one what is cheap of it,
and estimates the rest: it reads about `IN_ALL` rows.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import text

from scrapy_itemgraph.model import counts
from scrapy_itemgraph.postgres import engine

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Connection, TextClause

MOST = 100_000  # rows of a group that are counted one by one,
AT_FIRST = 100_000  # of all groups together, before it is known how large each is,
IN_ALL = 500_000  # and then
LEAST = 100  # of each group
PAGES = 500  # of a table that a sample has, about; of dear rows fewer:
DEAR = 4  # of what weighs twice as much half of them

_SIZE = text("""
    SELECT pg_relation_size(CAST(:table AS regclass)) / current_setting('block_size')::int
""")


@dataclass(frozen=True, slots=True)
class Counted:
    """What is counted of a group `t`, of the rows of a table.

    `rows` is a SELECT of the candidates, by an index: at most `MOST + 1` of them are read. Those
    that satisfy `condition` count; it may be left out where all do. On a sample of `table`, whose
    rows belong to the group by `join`, the ones count that satisfy `sampled` and `condition`. To
    look at a candidate takes as long as to read `weight` entries of an index.
    """

    table: str
    alias: str
    join: str
    rows: str
    sampled: str
    condition: str | None = None
    weight: int = 1

    def exactly(self, most: str) -> str:
        """Return the number as an expression; null where there are more candidates than `most`."""
        if self.condition is None:
            return f"""(
            SELECT CASE WHEN count(*) <= {most} THEN count(*) END
            FROM ({self.rows} LIMIT {most} + 1) AS {self.alias})"""  # noqa: S608 - our own text
        return f"""CASE WHEN NOT EXISTS ({self.rows} OFFSET {most}) THEN (
            SELECT count(*) FROM ({self.rows}) AS {self.alias}
            WHERE {self.condition}) END"""  # noqa: S608


@dataclass(frozen=True)
class Groups:
    """Groups `t` of rows, with columns of their own, and what is counted of each.

    `key` is the column that tells groups apart, of the type `key_type`.
    """

    columns: str
    source: str
    where: str
    key: str = "id"
    key_type: str = "int"
    order: str = "1"
    counted: Mapping[str, Counted] = field(default_factory=dict)

    @cached_property
    def number(self) -> TextClause:
        """Counts the groups."""
        return text(f"SELECT count(*) FROM {self.source} WHERE {self.where}")  # noqa: S608 - ours

    @cached_property
    def exact(self) -> TextClause:
        """Counts all groups, in one snapshot, but those whose keys are in `but_NAME`."""
        numbers = "".join(f",\n{self._exactly(name)} AS {name}" for name in self.counted)
        return text(f"""
            SELECT t.{self.key} AS key, {self.columns}{numbers}
            FROM {self.source} WHERE {self.where} ORDER BY {self.order}
        """)  # noqa: S608 - our own text

    def _exactly(self, name: str) -> str:
        is_left_out = f"t.{self.key} = ANY (CAST(:but_{name} AS {self.key_type}[]))"
        return f"CASE WHEN NOT {is_left_out} THEN {self.counted[name].exactly(f':most_{name}')} END"

    def sampled(self, names: Sequence[str]) -> TextClause:
        """Return what counts some of the numbers, of one table, and their candidates in a sample.

        Those of NAME are `of_NAME`. The sample is read once, and each row's group looked up then:
        a planner that thinks of one group would read it for each.
        """
        one = self.counted[names[0]]
        numbers = ", ".join(
            f"count(*) FILTER (WHERE {self.counted[name].sampled}) AS of_{name}, "
            f"count(*) FILTER (WHERE {self._matches(name)}) AS {name}"
            for name in names
        )
        return text(f"""
            WITH groups AS MATERIALIZED (SELECT t.* FROM {self.source} WHERE {self.where})
            SELECT t.{self.key} AS key, {numbers}
            FROM (
                SELECT * FROM {one.table} TABLESAMPLE SYSTEM (:percent) REPEATABLE (0)
                OFFSET 0) AS {one.alias}
            CROSS JOIN LATERAL (SELECT t.* FROM groups t WHERE {one.join} OFFSET 0) AS t
            GROUP BY t.{self.key}
        """)  # noqa: S608 - our own text

    def _matches(self, name: str) -> str:
        one = self.counted[name]
        return one.sampled if one.condition is None else f"{one.sampled} AND {one.condition}"


class _Number(NamedTuple):
    """One of the numbers: the key of its group, and its name."""

    key: Any
    name: str


class _Sampled(NamedTuple):
    """A number, and that of its candidates, as a sample has them."""

    number: float
    candidates: float


_NOTHING = _Sampled(0.0, 0.0)


def count(connection: Connection, groups: Groups, **given: Any) -> list[dict[str, Any]]:
    """Return the groups' columns, and their numbers: estimates where they are too large.

    The transaction's plans do not depend on statistics from here on.
    """
    engine.hot_path(connection)
    limits = _first_limits(connection, groups, given)
    counted = _exactly(connection, groups, given, limits)
    estimates: dict[_Number, _Sampled] = {}
    if any(limits[one.name] < MOST for one in _lacking(groups, counted)):
        # A small table is counted sooner than a sample of it is.
        estimates = _estimates(connection, groups, _lacking(groups, counted), given, are_large=True)
        every = dict.fromkeys(limits, MOST)
        counted = _exactly(connection, groups, given, every, _dear(groups, estimates))
    unknown = [one for one in _lacking(groups, counted) if one not in estimates]
    estimates |= _estimates(connection, groups, unknown, given, are_large=False)
    for one in _lacking(groups, counted):
        # All candidates count where there is no condition, and there are more than these.
        least = limits[one.name] if groups.counted[one.name].condition is None else 0
        counted[one.key][one.name] = counts.rounded(max(estimates[one].number, least))
    return [{k: v for k, v in row.items() if k != "key"} for row in counted.values()]


def sampled_share(connection: Connection, table: str, weight: int = 1) -> float:
    """Return which share of a table's pages a sample has, of rows of a weight: 1 of a small one."""
    pages: int = connection.execute(_SIZE, {"table": table}).scalar_one()
    return min(1.0, PAGES / max(weight / DEAR, 1) / max(pages, 1))


def _first_limits(
    connection: Connection, groups: Groups, given: Mapping[str, Any]
) -> dict[str, int]:
    """Return how many candidates of each number are counted before anything is known of them."""
    number = connection.execute(groups.number, _bound(groups.number, given)).scalar_one()
    each = AT_FIRST // max(number * len(groups.counted), 1)
    return {name: min(MOST, max(LEAST, each // one.weight)) for name, one in groups.counted.items()}


def _exactly(
    connection: Connection,
    groups: Groups,
    given: Mapping[str, Any],
    limits: Mapping[str, int],
    left_out: Mapping[str, Sequence[Any]] = MappingProxyType({}),
) -> dict[Any, dict[str, Any]]:
    """Return the groups by their keys; a number is None that is left out, or above its limit."""
    bounds: dict[str, Any] = {f"most_{name}": limit for name, limit in limits.items()}
    bounds |= {f"but_{name}": list(left_out.get(name, ())) for name in limits}
    # What candidates are found by may stop there as well.
    bounds["most"] = max(limits.values(), default=0)
    rows = connection.execute(groups.exact, _bound(groups.exact, {**given, **bounds}))
    return {row.key: row._asdict() for row in rows}


def _lacking(groups: Groups, counted: Mapping[Any, Mapping[str, Any]]) -> list[_Number]:
    """Return which numbers were not counted to their end."""
    return [
        _Number(key, name)
        for key, row in counted.items()
        for name in groups.counted
        if row[name] is None
    ]


def _estimates(
    connection: Connection,
    groups: Groups,
    lacking: Sequence[_Number],
    given: Mapping[str, Any],
    *,
    are_large: bool,
) -> dict[_Number, _Sampled]:
    """Return what samples tell of some numbers: of each table one, or of each that is large."""
    wanted: dict[str, list[str]] = defaultdict(list)
    for name in dict.fromkeys(one.name for one in lacking):
        wanted[groups.counted[name].table].append(name)
    known: dict[_Number, _Sampled] = {}
    for table, names in wanted.items():
        share = sampled_share(connection, table, min(groups.counted[one].weight for one in names))
        if share == 1.0 and are_large:
            continue
        found: dict[_Number, _Sampled] = {}
        sample = groups.sampled(names)
        rows = connection.execute(sample, {**_bound(sample, given), "percent": 100 * share})
        for row in (one._asdict() for one in rows):
            for name in names:
                sampled = _Sampled(row[name] / share, row[f"of_{name}"] / share)
                found[_Number(row["key"], name)] = sampled
        known |= {one: found.get(one, _NOTHING) for one in lacking if one.name in names}
    return known


def _dear(groups: Groups, estimates: Mapping[_Number, _Sampled]) -> dict[str, list[Any]]:
    """Return the keys of what is not counted one by one, by its name: the dearest of it, or all.

    What is more than twice `MOST` is an estimate in any case.
    """
    costs = {
        one: min(MOST, sampled.candidates) * groups.counted[one.name].weight
        for one, sampled in estimates.items()
    }
    left = float(IN_ALL)
    dear: dict[str, list[Any]] = defaultdict(list)
    for one in sorted(costs, key=lambda one: costs[one]):
        if estimates[one].candidates > 2 * MOST or costs[one] > left:
            dear[one.name].append(one.key)
        else:
            left -= costs[one]
    return dear


def _bound(statement: TextClause, given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: given[name] for name in statement._bindparams if name in given}  # noqa: SLF001
