"""What a frontier of ten thousand and of ten million URLs costs, over gRPC, side by side.

Once with ten URLs in each queue, and once with all in one. A fourth of the URLs is completed, and
an eighth waits for its date. URLs are got of both sizes in turns: the ratio is what matters. Then
come numbers, lists, URLs that are put, a purge, and the deletion of a queue. PostgreSQL is on disk,
and syncs. Run it by `make bench-frontier-scale`; ten million URLs need 15 GB there, and hours.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import grpc
import sqlalchemy as sa
from conftest import new_database
from support import frontier, servers
from support.filled import emptied, loading, settle
from support.frontier import M

from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.postgres import migrate
from scrapy_itemgraph.urlfrontier import v2

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SMALL = 10_000
LARGE = 10_000_000
EACH = 10  # URLs of a queue, where there are many
BATCH = 250
OLD = 5  # a fifth of the URLs is older than a day, at the beginning of each queue
AIMS = {"GetURLs p99": 50, "GetStats": 300}  # milliseconds
RATIO = 1.2
KEY = "h1"

FILL = (
    "INSERT INTO limits (kind, name) SELECT 'slot', 'h' || n FROM generate_series(1, :queues) AS n",
    """INSERT INTO queues (crawl_id, slot_id, is_live, next_at)
    SELECT c.id, l.id, true, now() - interval '1 day' FROM crawls c, limits l
    WHERE l.name ~ '^h[0-9]+$' ORDER BY l.id""",
    "DELETE FROM frontier_queues",
    """INSERT INTO frontier_queues (queue_id, crawl_id)
    SELECT q.id, q.crawl_id FROM queues q JOIN limits l ON l.id = q.slot_id
    WHERE l.name ~ '^h[0-9]+$'""",
    """INSERT INTO items (crawl_id, slot_id, name, data, in_frontier, nice, created_at)
    SELECT c.id, l.id, url.name, json_build_object('url', substr(url.name, 5), 'metadata',
        json_build_object('depth', json_build_array('3'))), true, 1,
        now() - CASE WHEN n % (:count / :queues) < (:count / :queues) / :old
            THEN interval '2 days' ELSE interval '1 hour' END
    FROM generate_series(0, :count - 1) AS n
    CROSS JOIN crawls c
    JOIN limits l ON l.kind = 'slot' AND l.name = 'h' || 1 + n / (:count / :queues)
    CROSS JOIN LATERAL (
        SELECT 'URL:http://' || l.name || '/a/page/of/usual/length/' || n || '.html' AS name) AS url
    ORDER BY n""",
    """INSERT INTO aliases (crawl_id, key, name, item_id)
    SELECT crawl_id, encode(substr(sha256(convert_to(name, 'UTF8')), 1, 16), 'hex')::uuid AS key,
        name, id FROM items ORDER BY key""",
    "INSERT INTO tags (item_id, tag_name, crawl_id) SELECT id, 'url', crawl_id FROM items",
    """INSERT INTO results (item_id, task_id, task_version, is_successful, completed_at)
    SELECT i.id, t.id, '1', true, now() FROM items i, tasks t WHERE i.id % 4 = 0""",
    """INSERT INTO work (item_id, task_id, crawl_id, queue_id, kind_id, is_stale, nice, not_before)
    SELECT i.id, k.task_id, i.crawl_id, q.id, k.id, false, 1,
        CASE WHEN i.id % 8 = 1 THEN now() + interval '1 day' END
    FROM items i JOIN queues q ON q.crawl_id = i.crawl_id AND q.slot_id = i.slot_id, kinds k
    WHERE i.id % 4 <> 0 ORDER BY i.id""",
)

# So that one queue can be asked again and again, and not once a second.
RESET = (
    "UPDATE frontier_queues SET last_served = 0",
    "UPDATE queues q SET next_at = now() FROM frontier_queues f WHERE q.id = f.queue_id",
)
COUNT = "SELECT count(*) FROM items WHERE in_frontier"


@dataclass
class Scale:
    """A frontier of a size, its server, and what was measured on it."""

    count: int
    queues: int
    engine: sa.Engine
    served: frontier.Frontier
    url: str

    def __post_init__(self) -> None:
        self.waits: list[float] = []
        self._made = 0

    def run(self, statement: str, **given: Any) -> Any:
        """Run a statement; return its first value, if it has one."""
        with self.engine.begin() as connection:
            done = connection.execute(sa.text(statement), given)
            return done.scalar() if done.returns_rows else None

    def get(self) -> None:
        """Get ten URLs of ten queues, and say of each that it may be fetched again."""
        began = time.perf_counter()
        got = self.served.client.ask(
            "GetURLs", max_urls_per_queue=10, max_queues=10, delay_requestable=300
        )
        self.waits.append(time.perf_counter() - began)
        assert got
        put = self.served.client.put(*(frontier.known(one.url, 1, key=one.key) for one in got))
        assert {status for _, status in put} == {"OK"}
        if self.queues == 1:
            for statement in RESET:
                self.run(statement)

    def put(self, number: int) -> float:
        """Put so many URLs that are new into the queues; return how many a second."""
        first, self._made = self._made, self._made + number

        def batches() -> Iterator[Any]:
            for at in range(first, first + number, BATCH):
                infos = [
                    frontier.info(f"http://h{1 + 7919 * one % self.queues}/new/page/{one}.html")
                    for one in range(at, at + BATCH)
                ]
                yield M["DiscoveredBatch"](ID=str(at), items=infos)

        began = time.perf_counter()
        for ack in self.served.client.call("PutDiscovered")(batches()):
            assert not any(ack.statuses)
        return number / (time.perf_counter() - began)

    def memory(self) -> float:
        """Return how many MB of memory the server has."""
        status = Path(f"/proc/{self.served.process.pid}/status").read_text()
        line = next(one for one in status.splitlines() if one.startswith("VmRSS"))
        return int(line.split()[1]) / 1024

    def timed(self, method: str, *, times: int = 5, **fields: Any) -> float:
        """Return the milliseconds of a call, in the median of some."""

        def call() -> float:
            began = time.perf_counter()
            asked = _takes(method)(**fields)
            given = self.served.client.call(method)(asked)
            if method == "ListURLs":
                assert list(given)
            return 1000 * (time.perf_counter() - began)

        return statistics.median(call() for _ in range(times))

    def removed(self, method: str, seconds: float, **fields: Any) -> tuple[int, float]:
        """Have URLs deleted for so long at most; return how many were, and in which time."""
        before, began = self.run(COUNT), time.perf_counter()
        try:
            self.served.client.call(method)(_takes(method)(**fields), timeout=seconds)
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
                raise
        took = time.perf_counter() - began
        return before - self.run(COUNT), took


def _takes(method: str) -> Any:
    """Return the class of a method's requests."""
    return v2.API.methods[method].takes


def fill(engine: sa.Engine, count: int, queues: int) -> None:
    """Fill an empty frontier, and leave it as one that stands for long."""
    with loading(engine) as connection, emptied(connection):
        given = {"count": count, "queues": queues, "old": OLD}
        for statement in FILL:
            text = sa.text(statement)
            connection.execute(text, {name: given[name] for name in text._bindparams})
    settle(engine)


@contextmanager
def scale(server: str, count: int, queues: int) -> Iterator[Scale]:
    """Yield a frontier of so many URLs in a database of its own."""
    with ExitStack() as stack:
        url = stack.enter_context(new_database(server))
        engine = engines.sync_engine(url)
        stack.callback(engine.dispose)
        with engine.begin() as connection:
            migrate.ensure(connection, auto=True)
        with frontier.serving(url) as one:  # makes the crawl, and its task
            one.client.put(frontier.discovered("http://first.example/"))
        began = time.perf_counter()
        fill(engine, count, queues)
        took = time.perf_counter() - began
        print(f"{count:,} URLs in {queues:,} queues, filled in {took:.0f} s", flush=True)
        served = stack.enter_context(frontier.serving(url))
        served.client.ask("SetDelay", delay_requestable=0)
        yield Scale(count, queues, engine, served, url)


def tell(what: str, value: str) -> None:
    """Print a figure."""
    print(f"  {what:<44} {value}", flush=True)


def p99(waits: list[float]) -> float:
    """Return the milliseconds that one of a hundred takes."""
    return 1000 * sorted(waits)[math.ceil(0.99 * len(waits)) - 1]


def hand_outs(small: Scale, large: Scale, rounds: int) -> None:
    """Get URLs of both, in turns."""
    for number in range(rounds + 10):
        for one in (small, large):
            one.get()
            if number < 10:  # to warm up
                one.waits.clear()
    medians = [1000 * statistics.median(one.waits) for one in (small, large)]
    for one, median in zip((small, large), medians, strict=True):
        tell(
            f"GetURLs 10 x 10 of {one.count:,}",
            f"median {median:.1f} ms, p99 {p99(one.waits):.1f} ms (aim {AIMS['GetURLs p99']})",
        )
    tell("ratio of medians", f"{medians[1] / medians[0]:.2f} (aim {RATIO})")


def asked(one: Scale) -> None:
    """Ask for numbers and lists."""
    far, far_queue = int(one.count * 0.9), int(one.queues * 0.9)
    asks: dict[str, Callable[[], float]] = {
        "GetStats of the crawl": lambda: one.timed("GetStats"),
        "GetStats of a queue": lambda: one.timed("GetStats", key=KEY),
        f"ListURLs, 100 from {far:,} on": lambda: one.timed("ListURLs", start=far, size=100),
        f"ListQueues, 100 from {far_queue:,} on": lambda: one.timed(
            "ListQueues", start=far_queue, size=100
        ),
        "CountURLs": lambda: one.timed("CountURLs", times=2),
        "CountURLs with a filter": lambda: one.timed("CountURLs", times=1, filter="/length/99"),
    }
    for what, ask in asks.items():
        aim = f" (aim {AIMS['GetStats']})" if what.startswith("GetStats") else ""
        tell(f"{what}, of {one.count:,}", f"{ask():,.0f} ms{aim}")


def changed(one: Scale, puts: int, longest: float) -> None:
    """Put URLs, and have others deleted."""
    before = one.memory()
    tell("new URLs a second, by the 250", f"{one.put(puts):,.0f}")
    tell(f"memory of the server after {puts:,} of them", f"{before:.0f} -> {one.memory():.0f} MB")
    number, took = one.removed("PurgeURLs", longest, days=1)
    looked = "" if took >= longest else f", {1000 * took / one.count * 1000:.1f} ms a thousand seen"
    tell(
        f"PurgeURLs took {number:,} URLs",
        f"{1e6 * took / max(1, number):.0f} ms a thousand{looked}",
    )
    number, took = one.removed("DeleteQueue", longest, key=KEY)
    tell(f"DeleteQueue took {number:,} URLs", f"{1e6 * took / max(1, number):.0f} ms a thousand")


def measure(server: str, count: int, queues: tuple[int, int], given: argparse.Namespace) -> None:
    """Measure a small frontier and a large one, in turns."""
    with scale(server, SMALL, queues[0]) as small, scale(server, count, queues[1]) as large:
        hand_outs(small, large, given.rounds)
        for one in (small, large):
            asked(one)
        changed(large, given.puts, given.longest)


def main() -> None:
    """Read the options, and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--urls", type=int, default=LARGE)
    parser.add_argument("--shapes", nargs="*", default=["many", "one"], choices=["many", "one"])
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--puts", type=int, default=1_000_000)
    parser.add_argument(
        "--longest", type=float, default=300.0, help="seconds that URLs are deleted"
    )
    given = parser.parse_args()
    with servers.durable_postgres() as server:
        for shape in given.shapes:
            queues = (SMALL // EACH, given.urls // EACH) if shape == "many" else (1, 1)
            measure(server, given.urls, queues, given)


if __name__ == "__main__":
    main()
