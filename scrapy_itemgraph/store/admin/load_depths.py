"""What a dump says of depths, as rows: depths, links, what is to be worked out, and open sweeps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from scrapy_itemgraph.store.admin.dump_depths import WORKS
from scrapy_itemgraph.store.depths.links import PART, UNREACHED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from sqlalchemy import Connection

    from scrapy_itemgraph.store.admin.load_rows import Rows

DEPTHS = "depths (item_id, crawl_id, depth, via)"
LINKS = "links (parent_id, part, children)"
WORK = "depth_work (crawl_id, kind, depth, item_id, via, part)"

# Each phase does the same again if it begins anew. `settle` looks at what is too deep alone.
ADD_SWEEP = text("""
    INSERT INTO depth_sweeps (crawl_id, phase, low, high, after_depth, after_item)
    SELECT c.id, given.phase, given.low, given.high,
        CASE WHEN given.phase = 'settle' THEN coalesce(c.depth_limit, 2147483647)
            ELSE given.low END,
        CASE WHEN given.phase = 'settle' THEN 9223372036854775807 ELSE 0 END
    FROM crawls c CROSS JOIN (SELECT CAST(:phase AS text) AS phase, CAST(:low AS int) AS low,
        CAST(:high AS int) AS high) AS given
    WHERE c.id = :crawl
""")


def add_sweep(connection: Connection, crawl_id: int, line: Mapping[str, Any]) -> None:
    """Open a sweep, whose phase begins anew; the crawl has its limit already."""
    given = {name: line[name] for name in ("phase", "low", "high")}
    connection.execute(ADD_SWEEP, {"crawl": crawl_id, **given})


def names(lines: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the items that lines name."""
    for line in lines:
        yield line["item"]
        if "via" in line:
            yield line["via"]
        yield from line.get("to", ())


class DepthRows:
    """Makes rows of the lines of one dump, which come in its order."""

    def __init__(self, crawl_id: int) -> None:
        self._crawl = crawl_id
        self._parent = 0  # whose links came last,
        self._parts = 0  # and in how many rows

    def of(self, kind: str, lines: Sequence[Mapping[str, Any]], owners: Mapping[str, int]) -> Rows:
        """Return the rows of lines of a kind; `owners` are the items by their names.

        Raises what a line lacks, or has wrong: KeyError, TypeError, ValueError.
        """
        if kind == "depth":
            return {DEPTHS: [self._depth(one, owners) for one in lines]}
        if kind == "links":
            return {LINKS: [self._links(one, owners) for one in lines]}
        return {WORK: [self._work(one, owners) for one in lines]}

    def _depth(self, line: Mapping[str, Any], owners: Mapping[str, int]) -> tuple[Any, ...]:
        return owners[line["item"]], self._crawl, _depth_of(line), _via(line, owners)

    def _links(self, line: Mapping[str, Any], owners: Mapping[str, int]) -> tuple[Any, ...]:
        parent, children = owners[line["item"]], line["to"]
        if len(children) > PART:
            raise ValueError(f"there are {len(children):,} links; a line has {PART:,} at most")
        if parent != self._parent:
            self._parent, self._parts = parent, 0
        self._parts += 1
        return parent, self._parts - 1, [owners[one] for one in children]

    def _work(self, line: Mapping[str, Any], owners: Mapping[str, int]) -> tuple[Any, ...]:
        kind, item = WORKS.index(line["work"]), owners[line["item"]]
        return self._crawl, kind, _depth_of(line), item, _via(line, owners), line.get("part")


def _depth_of(line: Mapping[str, Any]) -> int:
    """Return a depth; without one no path is known."""
    depth = int(line.get("depth", UNREACHED))
    if depth < 0:
        raise ValueError(f"a depth is 0 or more, and not {depth}")
    return depth


def _via(line: Mapping[str, Any], owners: Mapping[str, int]) -> int | None:
    return owners[line["via"]] if "via" in line else None
