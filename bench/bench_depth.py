"""How long a shorter path takes to a million pages, and what it costs a crawl to track depths.

python bench/bench_depth.py [--pages 1000000] [--pairs 5]

The pages hang on a chain of thirty, ten links each, and are all too deep; then a link leads from
the first page to the first of them. Meanwhile somebody claims other work of the same crawl. The
second part runs a plain spider whose pages have up to 15 links, most of them known, with and
without ITEMGRAPH_LEAST_DEPTH, interleaved, by the CPU of its process and of the server.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import bench_pairs
import sqlalchemy as sa
from end_to_end import backends
from support import graphs, servers, sites

from scrapy_itemgraph import CreateItem
from scrapy_itemgraph.changesets import apply
from scrapy_itemgraph.graph import ItemGraph
from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.store.registry import crawl_depths, crawls, duties
from scrapy_itemgraph.store.worklist import claims, refresh

if TYPE_CHECKING:
    from collections.abc import Iterator

LIMIT, CHAIN, LINKS, CLAIMABLE = 12, 30, 10, 20_000
ROOT = Path(__file__).parents[1]

FILL = """
    INSERT INTO items (id, crawl_id, slot_id, name, data)
    SELECT n, {crawl}, {slot}, 'P' || n, '{{}}' FROM generate_series({first}, {last}) AS of(n);
    INSERT INTO tags (item_id, tag_name, crawl_id)
    SELECT n, 'page', {crawl} FROM generate_series({first}, {last}) AS of(n)
"""
# Page k of the last ones links to ten others, in a graph that is seven deep.
FILL_LINKS = """
    INSERT INTO links (parent_id, part, children)
    SELECT {first} + n, 0, ARRAY(
        SELECT {first} + (n * {links} + k) % {pages} FROM generate_series(1, {links}) AS of(k))
    FROM generate_series(0, {pages} - 1) AS of(n)
"""
CHAIN_LINKS = """
    INSERT INTO links (parent_id, part, children)
    SELECT {first} + n, 0, ARRAY[{first} + n + 1]
    FROM generate_series(0, {chain} - 1) AS of(n)
"""


def main() -> None:
    """Run both parts, and print what they took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=1_000_000)
    parser.add_argument("--pairs", type=int, default=5)
    given = parser.parse_args()
    if given.pages:
        with servers.own_postgres() as server:
            relax(server.url, given.pages)
    if given.pairs:
        compare(given.pairs)


def relax(url: str, pages: int) -> None:
    """Print how long it takes to pass a shortcut on, and what others see of it."""
    with ItemGraph.open(url, crawl="books", auto_migrate=True):
        pass
    engine = engines.sync_engine(url)
    with engine.begin() as connection:
        crawl = graphs.Crawl.of(connection)
        fill(connection, crawl, pages)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(sa.text("VACUUM ANALYZE"))
    stop = threading.Event()
    quiet = claim_until(engine, crawl, stop, seconds=10)
    with engine.begin() as connection:
        begin = time.perf_counter()
        shortcut(connection, crawl.id)
    found: list[float] = []
    claimer = threading.Thread(target=lambda: found.extend(claim_until(engine, crawl, stop)))
    claimer.start()
    longest, freed, relaxed = 0.0, None, None
    for seconds, is_freed, is_relaxed in steps(engine, crawl.id):
        longest = max(longest, seconds)
        now = time.perf_counter() - begin
        freed = now if freed is None and is_freed else freed
        relaxed = now if relaxed is None and is_relaxed else relaxed
    done = time.perf_counter() - begin
    stop.set()
    claimer.join()
    check(engine, pages)
    print(f"{pages:,} pages with {LINKS} links each, {CHAIN - 1} nearer than before")
    tell("relaxed", relaxed or done, 90)
    tell("the first freed page is claimable", freed or done, 1)
    tell("all are claimable", done, None)
    tell("the longest transaction", longest, 0.5)
    before, during = p99(quiet), p99(found)
    print(
        f"a claim and its end, p99: {before:.1f} ms before, {during:.1f} ms meanwhile: "
        f"{during / before:.2f} times as long (aim 2)"
    )
    engine.dispose()


def fill(connection: sa.Connection, crawl: graphs.Crawl, pages: int) -> None:
    """Make the pages with their links and depths; all but the first few are too deep."""
    crawl.do(CreateItem("ROOT", ["page"]))
    slot = crawl.rows("SELECT slot_id FROM items LIMIT 1")[0][0]
    root = crawl.item_id("ROOT")
    crawl.done("ROOT")
    here = {"crawl": crawl.id, "slot": slot, "links": LINKS, "chain": CHAIN, "pages": pages}
    first = 1000
    run(connection, FILL, **here, first=first, last=first + CHAIN + pages)
    run(connection, CHAIN_LINKS, **here, first=first)
    run(connection, FILL_LINKS, **here, first=first + CHAIN)
    connection.execute(sa.text("SELECT setval(pg_get_serial_sequence('items', 'id'), 5000000)"))
    run(connection, "INSERT INTO links VALUES ({root}, 0, ARRAY[{first}])", root=root, first=first)
    depths = {root: 0} | {first + n: n + 1 for n in range(CHAIN)}
    depths |= far(pages, first + CHAIN, CHAIN + 1)
    given = {"items": list(depths), "depths": list(depths.values()), "crawl": crawl.id}
    connection.execute(
        sa.text(
            "INSERT INTO depths (item_id, crawl_id, depth) SELECT n, :crawl, d "
            "FROM unnest(CAST(:items AS bigint[]), CAST(:depths AS int[])) AS of(n, d)"
        ),
        given,
    )
    crawl_depths.set_limit(connection, crawl.id, LIMIT, by="a benchmark")
    connection.execute(sa.text("DELETE FROM depth_sweeps"))
    run(connection, FILL, **here, first=6_000_000, last=6_000_000 + CLAIMABLE - 1)
    for begin in range(6_000_000, 6_000_000 + CLAIMABLE, 5000):
        refresh.refresh(connection, range(begin, begin + 5000))


def far(pages: int, first: int, depth: int) -> dict[int, int]:
    """Return the depths of the pages, whose first has a depth."""
    found, front = {first: depth}, [0]
    while front:
        depth += 1
        following = []
        for page in front:
            for k in range(1, LINKS + 1):
                child = (page * LINKS + k) % pages
                if first + child not in found:
                    found[first + child] = depth
                    following.append(child)
        front = following
    return found


def run(connection: sa.Connection, statements: str, **given: object) -> None:
    """Run statements, with numbers put in."""
    for one in statements.format(**given).split(";"):
        connection.execute(sa.text(one))


def shortcut(connection: sa.Connection, crawl_id: int) -> None:
    """Link the first page to the first of the many, as a commit does."""
    connection.exec_driver_sql(
        "INSERT INTO depth_work (crawl_id, kind, depth, item_id) "
        f"VALUES ({crawl_id}, 1, 1, {1000 + CHAIN})"
    )


def steps(engine: sa.Engine, crawl_id: int) -> Iterator[tuple[float, bool, bool]]:
    """Do what a worker does, until nothing is left; yield each transaction's seconds.

    And whether some pages are freed by then, and whether no shorter path is left to pass on.
    """
    left: object = True
    has_freed = False
    while left:
        left = False
        for duty in duties.OF_DEPTHS:
            began = time.perf_counter()
            with engine.begin() as connection:
                engines.hot_path(connection)
                crawls.share_crawl(connection, crawl_id)
                did = duty.do(connection, duties.Round(crawl_id=crawl_id))
            left = left or did
            has_freed = has_freed or (did and duty.name == "free pages")
            is_relaxed = duty.name == "relax depths" and not did
            yield time.perf_counter() - began, has_freed, is_relaxed


def claim_until(
    engine: sa.Engine, crawl: graphs.Crawl, stop: threading.Event, seconds: float = 3600
) -> list[float]:
    """Claim ten pages and end them, again and again; return the milliseconds of each."""
    times: list[float] = []
    until = time.monotonic() + seconds
    while not stop.is_set() and time.monotonic() < until:
        began = time.perf_counter()
        with engine.begin() as connection:
            engines.hot_path(connection)
            taken = claims.claim(
                connection,
                crawl_id=crawl.id,
                worker_id=crawl.worker,
                tasks=crawl.registration.tasks,
                limit=10,
            )
        with engine.begin() as connection:
            engines.hot_path(connection)
            shared = crawls.share_crawl(connection, crawl.id)
            ends = [graphs.changeset(one) for one in taken]
            apply.apply(connection, ends, crawl=shared, worker_id=crawl.worker)
        times.append((time.perf_counter() - began) * 1000)
        time.sleep(0.02)
    return times


def check(engine: sa.Engine, pages: int) -> None:
    """Compare all depths with those of a search."""
    with engine.connect() as connection:
        rows = connection.exec_driver_sql(
            f"SELECT item_id, depth FROM depths WHERE item_id >= {1000 + CHAIN} "
            f"AND item_id < {1000 + CHAIN + pages}"
        )
        found = {row.item_id: row.depth for row in rows}
    if found != far(pages, 1000 + CHAIN, 1):
        raise SystemExit("some depths are not the least")


def p99(times: list[float]) -> float:
    """Return the time that one of a hundred takes longer than."""
    return sorted(times)[int(len(times) * 0.99)]


def tell(what: str, seconds: float, aim: float | None) -> None:
    """Print how long something took, beside its aim."""
    print(f"{what}: {seconds:.2f} s" + ("" if aim is None else f" (aim {aim} s)"))


def compare(pairs: int) -> None:
    """Print what a page costs with depths tracked, in the place of one without."""
    ratios = []
    with (
        servers.open_directory() as directory,
        backends.postgres(directory) as server,
        sites.site() as site,
    ):
        for _ in range(pairs):
            totals = []
            for settings in ({}, {"ITEMGRAPH_LEAST_DEPTH": True}):
                os.environ["CRAWL_SETTINGS"] = json.dumps(settings)
                spent = bench_pairs.crawl(ROOT, server, site.url, 2500, "drop-in")
                totals.append(spent.total)
            ratios.append(totals[0] / totals[1])
            print(f"untracked {totals[0]:.0f}, tracked {totals[1]:.0f} µs a page", flush=True)
    print(f"tracked is {statistics.median(ratios):.3f} times as fast as untracked (aim 0.85)")


if __name__ == "__main__":
    main()
