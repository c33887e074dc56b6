"""URLs in and out of a frontier over gRPC, beside the same client at a server that does nothing.

Server, PostgreSQL and client share the machine. Each round fills a database of its own. RocksDB,
which upstream's server has, acks what its log was given without an fsync; here PostgreSQL
is on disk and an ack is a commit with one. `--no-sync` shows what that costs: a server in memory
that syncs nothing, as tests have it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections import deque
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import grpc
from conftest import new_database
from support import frontier, servers
from support.frontier import Client, M

from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.postgres import migrate
from scrapy_itemgraph.urlfrontier import ports, v2

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

BATCH = 256
GETS = 300
IN_BATCHES = {"batches", "known"}
IN_FLIGHT = 10_000  # URLs of a stream whose acks the client waits for

AIMS = {"batches": 12_000, "known": 30_000, "stream": 5_000}
FIRST = {"batches": 0, "known": 0, "stream": 1}  # known are those of the batches, put again
PACE = 2000  # URLs a second of a stream whose acks are timed: what waits longer waits for others


class Round(NamedTuple):
    """What one round measured: URLs a second, and seconds of acks and of calls that get URLs."""

    rate: float
    ack_p99: float


def address_of(number: int, hosts: int) -> str:
    """Return a URL as long as they usually are."""
    return f"http://host{number % hosts}.example/some/path/of/a/page/{number}.html"


def items(first: int, count: int, hosts: int) -> list[Any]:
    """Return discovered URLs as messages, made before the clock runs."""
    metadata = {"depth": ["3"], "parent": ["http://host0.example/"]}
    return [
        frontier.discovered(address_of(number, hosts), metadata=metadata)
        for number in range(first, first + count)
    ]


def batches(first: int, count: int, hosts: int) -> list[Any]:
    """Return the same in batches."""
    infos = [one.discovered.info for one in items(first, count, hosts)]
    return [
        M["DiscoveredBatch"](ID=str(at), items=infos[at : at + BATCH])
        for at in range(0, count, BATCH)
    ]


def measured(client: Client, kind: str, given: list[Any], count: int) -> Round:
    """Put all in one stream; `IN_FLIGHT` URLs at most wait for their acks."""
    each = BATCH if kind in IN_BATCHES else 1
    sent: deque[float] = deque()
    waits: list[float] = []

    def send() -> Iterator[Any]:
        for at, one in enumerate(given):
            while len(sent) - len(waits) > IN_FLIGHT // each:
                time.sleep(0.0005)
            while kind == "paced" and time.perf_counter() - began < at / PACE:
                time.sleep(0.0005)
            sent.append(time.perf_counter())
            yield one

    began = time.perf_counter()
    call = "PutDiscovered" if kind in IN_BATCHES else "PutURLs"
    for _ in client.call(call)(send()):
        waits.append(time.perf_counter() - sent[len(waits)])
    rate = count / (time.perf_counter() - began)
    return Round(rate, sorted(waits)[len(waits) * 99 // 100])


def run_client(address: str, kind: str, first: int, count: int, hosts: int) -> None:
    """Do a round as a process of its own, and print what it measured."""
    make = batches if kind in IN_BATCHES else items
    given = make(first, count, hosts)
    client = Client(address)
    print(json.dumps(measured(client, kind, given, count)))
    client.close()


async def run_idle() -> None:
    """Ack at once what is put, and store nothing."""

    async def put(given: AsyncIterator[Any], context: Any) -> None:
        async for one in given:
            await context.write(v2.CODEC.ack(one.discovered.info.url, 0))

    async def put_batches(given: AsyncIterator[Any], context: Any) -> None:
        async for one in given:
            await context.write(v2.CODEC.batch_ack(one.ID, [0] * len(one.items)))

    server = grpc.aio.server(options=ports.OPTIONS)
    port = server.add_insecure_port("127.0.0.1:0")
    methods = v2.API.methods
    handlers = {
        name: grpc.stream_stream_rpc_method_handler(
            call,
            request_deserializer=methods[name].takes.FromString,
            response_serializer=methods[name].gives.SerializeToString,
        )
        for name, call in {"PutURLs": put, "PutDiscovered": put_batches}.items()
    }
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(v2.API.service, handlers),)
    )
    await server.start()
    print(f"127.0.0.1:{port}", flush=True)
    await server.wait_for_termination()


@contextmanager
def idle() -> Iterator[str]:
    """Yield the address of a server that does nothing."""
    process = subprocess.Popen(
        [sys.executable, __file__, "--idle"], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()


def put(address: str, kind: str, first: int, count: int, hosts: int) -> Round:
    """Do a round with a client of its own."""
    said = subprocess.run(
        [
            *(sys.executable, __file__, "--client", address, "--kind", kind),
            *("--first", str(first), "--urls", str(count), "--hosts", str(hosts)),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    return Round(*json.loads(said.stdout))


def gets(client: Client) -> list[float]:
    """Get URLs as StormCrawler's spout does, 10 of each of 10 queues; return the seconds.

    Each answer is whole: all that was got before is done with, and queues have no delay.
    """
    client.ask("SetDelay", delay_requestable=0)
    waits: list[float] = []
    for _ in range(GETS):
        began = time.perf_counter()
        got = client.ask("GetURLs", max_urls_per_queue=10, max_queues=10, delay_requestable=300)
        waits.append(time.perf_counter() - began)
        assert len(got) == 100
        client.put(*(frontier.known(one.url, key=one.key) for one in got))
    return waits


def report(what: str, rounds: list[Round], beside: list[Round], aim: int) -> None:
    """Print medians."""
    rate = statistics.median(one.rate for one in rounds)
    least = statistics.median(one.rate for one in beside)
    print(
        f"{what}: {rate:,.0f} URLs/s (aim {aim:,}), {rate / least:.2f} of a server that does "
        f"nothing ({least:,.0f}/s)",
        flush=True,
    )


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--urls", type=int, default=100_000)
    parser.add_argument("--hosts", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-sync", action="store_true")
    parser.add_argument("--idle", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--client", help=argparse.SUPPRESS)
    parser.add_argument("--kind", help=argparse.SUPPRESS)
    parser.add_argument("--first", type=int, default=0, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.idle:
        asyncio.run(run_idle())
    elif given.client:
        run_client(given.client, given.kind, given.first, given.urls, given.hosts)
    else:
        measure(given)


def measure(given: argparse.Namespace) -> None:
    """Measure each kind, `rounds` times, and what it takes to get URLs of what is there then."""
    kinds: dict[str, tuple[list[Round], list[Round]]] = {kind: ([], []) for kind in AIMS}
    postgres = servers.embedded_postgres if given.no_sync else servers.durable_postgres
    with postgres() as server, idle() as beside:
        for number in range(given.rounds):
            with new_database(server) as url:
                made(url)
                with frontier.serving(url) as one:
                    for kind, (rounds, idles) in kinds.items():
                        terms = (kind, FIRST[kind] * given.urls, given.urls, given.hosts)
                        rounds.append(put(one.address, *terms))
                        idles.append(put(beside, *terms))
                    first = 2 * given.urls
                    paced = put(one.address, "paced", first, 4 * PACE, given.hosts)
                    print(
                        f"round {number + 1}: an ack's p99 at {PACE:,} URLs/s "
                        f"{1e3 * paced.ack_p99:.0f} ms (aim 250)",
                        flush=True,
                    )
                    waits = sorted(gets(one.client))
                    print(
                        f"round {number + 1}: GetURLs 10 x 10 of {2 * given.urls:,} URLs: median "
                        f"{1e3 * statistics.median(waits):.1f} ms, "
                        f"p99 {1e3 * waits[GETS * 99 // 100]:.1f} ms (aim 50)",
                        flush=True,
                    )
        for kind, (rounds, idles) in kinds.items():
            report(kind, rounds, idles, AIMS[kind])


def made(url: str) -> None:
    """Make the schema in an empty database."""
    engine = engines.sync_engine(url)
    with engine.begin() as connection:
        migrate.ensure(connection, auto=True)
    engine.dispose()


if __name__ == "__main__":
    main()
