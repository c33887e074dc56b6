"""What rules cost: a link under 300 of them, and a trap of half a million pages taken out at once.

Run it by `make bench-parts`, or alone; `--pages` is how large the trap is. The absolute figures are
this machine's; `re`, one pattern after the other, stands beside them.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import sqlalchemy as sa

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.races import Crawl

from scrapy_itemgraph import task
from scrapy_itemgraph.graph import ItemGraph
from scrapy_itemgraph.model.rule_matching import CompiledRules
from scrapy_itemgraph.model.rules import PageRule, Ruleset
from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.postgres import migrate

RULES, LINKS, ROUNDS = 300, 20_000, 5
MOST = 3.0  # microseconds a link
PAGES, OTHERS = 500_000, 500_000


class Pages:
    """One task, of which each item has work."""

    @task(tags=["page"])
    def parse(self, response, item): ...


FILL = (
    "INSERT INTO limits (name) VALUES ('one.example')",
    """
    INSERT INTO queues (crawl_id, slot_id, is_live) SELECT :crawl, id, true
    FROM limits WHERE name = 'one.example'
    """,
    """
    INSERT INTO items (crawl_id, slot_id, name, data)
    SELECT :crawl, s.id, part || n, json_build_object('url', 'https://one.example' || part || n)
    FROM limits s, (SELECT '/calendar/' AS part, generate_series(1, CAST(:pages AS int)) AS n
        UNION ALL SELECT '/page/', generate_series(1, CAST(:others AS int))) AS made
    WHERE s.name = 'one.example' ORDER BY md5(part || n)
    """,
    "INSERT INTO tags (item_id, tag_name, crawl_id) SELECT id, 'page', :crawl FROM items",
    "INSERT INTO kinds (task_id) SELECT id FROM tasks ON CONFLICT DO NOTHING",
    """
    INSERT INTO work (item_id, task_id, crawl_id, queue_id, kind_id, is_stale, nice)
    SELECT i.id, k.task_id, :crawl, q.id, k.id, false, 0
    FROM kinds k, items i, queues q WHERE q.crawl_id = :crawl ORDER BY i.id
    """,
)


def ignores() -> Ruleset:
    """Return rules as archivists have them: paths of traps, and hosts of advertisers."""
    half = RULES // 2
    patterns = [rf"/(calendar|archive)/\d{{4}}/{n}(\?|$)" for n in range(half)]
    patterns += [rf"^https?://(www\.)?ads{n}\.example/.*\.(js|png)$" for n in range(RULES - half)]
    return Ruleset(rules=tuple(PageRule(match=one, accept=False) for one in patterns))


def links() -> list[str]:
    """Return URLs of usual lengths, of which some are refused."""
    return [
        f"https://www.museum{n % 200}.example/collection/{n}/calendar/2024/{n % 900}?page={n}"
        for n in range(LINKS)
    ]


def of_links() -> float:
    """Return the microseconds of CPU that a link takes under the rules."""
    ruleset, urls = ignores(), links()
    began = time.process_time()
    rules = CompiledRules(ruleset)
    compiled = time.process_time() - began
    refused = {url for url in urls if not rules.accepts(url)}  # its states are made meanwhile
    took = []
    for _ in range(ROUNDS):
        began = time.process_time()
        for url in urls:
            rules.accepts(url)
        took.append((time.process_time() - began) / len(urls) * 1e6)
    one_by_one = [re.compile(one.match) for one in ruleset.rules]
    few = urls[: LINKS // 40]
    began = time.process_time()
    same = {url for url in few if any(one.search(url) for one in one_by_one)}
    beside = (time.process_time() - began) / len(few) * 1e6
    assert same == refused & set(few)
    found = statistics.median(took)
    print(
        f"{RULES} rules: {found:.2f} µs a link ({len(refused) / len(urls):.0%} refused), compiled "
        f"in {compiled * 1000:.0f} ms; re one by one {beside:.0f} µs"
    )
    return found


def of_trap(url: str, pages: int, others: int) -> None:
    """Set a trap aside among as many other pages, and take it back; say how long steps take."""
    engine = engines.sync_engine(url)
    with engine.begin() as connection:
        migrate.ensure(connection, auto=True)
    crawl = Crawl(engine, Pages)
    with engine.begin() as connection:
        connection.exec_driver_sql("SET LOCAL session_replication_role = replica")
        given = {"crawl": crawl.id, "pages": pages, "others": others}
        for statement in FILL:
            text = sa.text(statement)
            connection.execute(text, {key: given[key] for key in text._bindparams})
    engine.dispose()
    with ItemGraph.open(url, "books") as graph:
        graph.rules.add(PageRule(match="/calendar/", skip=True), by="bench")
        _applied(graph, f"{pages:,} pages set aside among {others:,} others")
        assert graph.status()["tasks"][0]["skipped"] >= min(pages, 100_000)
        graph.rules.remove(1, by="bench")
        _applied(graph, f"{pages:,} pages taken back")


def _applied(graph: ItemGraph, what: str) -> None:
    graph.rules.apply()
    steps = []
    is_on = True
    while is_on:
        began = time.perf_counter()
        is_on = graph.rules.apply_step()
        steps.append(time.perf_counter() - began)
    took = sorted(one * 1000 for one in steps)
    late = f"p99 {took[int(len(took) * 0.99)]:.0f}, the slowest {took[-1]:.0f}"
    print(
        f"{what}: {sum(steps):.1f} s in {len(steps):,} transactions; median "
        f"{statistics.median(took):.0f} ms, {late}",
        flush=True,
    )


def main() -> int:
    """Measure, and print; the exit code tells whether a link is cheap enough."""
    from conftest import new_database
    from support import servers

    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--pages", type=int, default=PAGES)
    given.add_argument("--others", type=int, default=OTHERS)
    wanted = given.parse_args()
    found = of_links()
    with ExitStack() as stack:
        server = stack.enter_context(servers.server())
        of_trap(stack.enter_context(new_database(server)), wanted.pages, wanted.others)
    return 0 if found <= MOST else 1


if __name__ == "__main__":
    sys.exit(main())
