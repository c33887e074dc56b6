"""`scrapy itemgraph frontier` in a process of its own, and a client of it."""

from __future__ import annotations

import itertools
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import grpc

from scrapy_itemgraph.urlfrontier import v2
from support import processes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from scrapy_itemgraph.urlfrontier.descriptors import Method

SCRAPY = [sys.executable, "-m", "scrapy", "itemgraph"]
PATIENCE = 120.0  # seconds; a busy machine takes half a minute to start a process

M = v2.API.messages


class Stream:
    """A stream that a client keeps open: it sends what it is given, and reads acks."""

    def __init__(self, call: Any) -> None:
        self._given: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.acks = call(iter(self._given.get, None))

    def send(self, *items: Any) -> None:
        """Send items."""
        for one in items:
            self._given.put(one)

    def read(self, count: int) -> list[tuple[str, str]]:
        """Wait for so many acks of PutURLs; return their names and statuses."""
        return [(one.ID, status(one.status)) for one in itertools.islice(self.acks, count)]

    def end(self) -> None:
        """Send nothing more."""
        self._given.put(None)


class Client:
    """Calls of the API over one channel: each takes the fields of its request."""

    def __init__(
        self, address: str, *options: tuple[str, Any], token: str = "", credentials: Any = None
    ) -> None:
        """Call as who bears a token; with `credentials` by TLS."""
        if credentials is None:
            self.channel = grpc.insecure_channel(address, options)
        else:
            self.channel = grpc.secure_channel(address, credentials, options)
        self.metadata = [("authorization", f"Bearer {token}")] if token else []

    def call(self, name: str) -> Any:
        """Return a call as gRPC has it, of messages of version 2.6."""
        method = v2.API.methods[name]
        return self.called(
            v2.API.service, method, method.takes.SerializeToString, method.gives.FromString
        )

    def called(
        self,
        service: str,
        method: Method,
        written: Callable[[Any], bytes],
        read: Callable[[bytes], Any],
    ) -> Any:
        """Return a call of a service whose messages are written and read like that."""
        kinds = {
            (False, False): self.channel.unary_unary,
            (False, True): self.channel.unary_stream,
            (True, True): self.channel.stream_stream,
        }
        made = kinds[method.takes_stream, method.gives_stream](
            f"/{service}/{method.name}",
            request_serializer=written,
            response_deserializer=read,
        )
        return partial(made, metadata=self.metadata)

    def ask(self, method: str, **fields: Any) -> Any:
        """Return the one answer to a request, or the list of a stream of them."""
        described = v2.API.methods[method]
        given = self.call(method)(described.takes(**fields), timeout=PATIENCE)
        return list(given) if described.gives_stream else given

    def put(self, *items: Any) -> list[tuple[str, str]]:
        """Put items in one stream; return names and statuses of the acks, as they come."""
        acks = self.call("PutURLs")(iter(items), timeout=PATIENCE)
        return [(one.ID, status(one.status)) for one in acks]

    def put_batches(self, *batches: Any) -> list[tuple[str, list[str]]]:
        """Put batches in one stream; return their acks."""
        acks = self.call("PutDiscovered")(iter(batches), timeout=PATIENCE)
        return [(one.ID, [status(each) for each in one.statuses]) for one in acks]

    def opened(self, method: str, **options: Any) -> Stream:
        """Open a stream of PutURLs or PutDiscovered that stays open."""
        return Stream(partial(self.call(method), **options))

    def get(self, **fields: Any) -> list[str]:
        """Return the URLs that a call gets."""
        return [one.url for one in self.ask("GetURLs", **fields)]

    def close(self) -> None:
        """Close the channel."""
        self.channel.close()

    def __enter__(self) -> Self:
        """Close it at the end of a block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()


@dataclass(frozen=True)
class Frontier:
    """A server that runs, and a client of it."""

    address: str
    said: dict[str, Any]
    process: subprocess.Popen[str]
    client: Client

    def stop(self, how: int = signal.SIGTERM) -> tuple[int, str]:
        """End the server, and return its exit code and what it wrote to standard error."""
        self.process.send_signal(how)
        _, errors = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, errors


@contextmanager
def serving(
    database: str | None, *arguments: str, folder: Path | None = None
) -> Iterator[Frontier]:
    """Serve a database on a free port; None: the embedded one of a folder."""
    named = [] if database is None else ["-s", f"ITEMGRAPH_DATABASE_URL={database}"]
    process = processes.Popen(
        [*SCRAPY, "frontier", "--port", "0", "--json", *arguments, *named],
        cwd=folder or tempfile.gettempdir(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=dict(os.environ),
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line, process.communicate(timeout=PATIENCE)
        said = json.loads(line)
        client = Client(said["address"])
        try:
            yield Frontier(said["address"], said, process, client)
        finally:
            client.close()
    finally:
        if process.poll() is None:
            process.terminate()
        if not process.stdout.closed:
            process.communicate(timeout=PATIENCE)


def refusal(database: str | None, *arguments: str) -> str:
    """Return what the command says as it refuses to start; None: it does not get that far."""
    named = [] if database is None else ["-s", f"ITEMGRAPH_DATABASE_URL={database}"]
    done = processes.run(
        [*SCRAPY, "frontier", "--port", "0", *arguments, *named],
        cwd=tempfile.gettempdir(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode, done
    return str(done.stderr)


def status(number: int) -> str:
    """Return the name of a status."""
    return str(M["AckMessage"].Status.Name(number))


def info(
    url: str, *, key: str = "", crawl: str = "", metadata: Mapping[str, Iterable[str]] | None = None
) -> Any:
    """Return a URL as messages have it."""
    lists = {name: M["StringList"](values=values) for name, values in (metadata or {}).items()}
    return M["URLInfo"](url=url, key=key, crawlID=crawl, metadata=lists)


def discovered(url: str, *, name: str = "", **fields: Any) -> Any:
    """Return an item that is discovered; `name` is its ID."""
    return M["URLItem"](discovered=M["DiscoveredURLItem"](info=info(url, **fields)), ID=name)


def known(url: str, date: int = 0, *, name: str = "", **fields: Any) -> Any:
    """Return an item that is known, and may be fetched from a date on; 0: never again."""
    part = M["KnownURLItem"](info=info(url, **fields), refetchable_from_date=date)
    return M["URLItem"](known=part, ID=name)


def batch(name: str, *urls: str, **fields: Any) -> Any:
    """Return a batch of discovered URLs."""
    return M["DiscoveredBatch"](ID=name, items=[info(url, **fields) for url in urls])
