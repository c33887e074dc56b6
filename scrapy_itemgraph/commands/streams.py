"""Streams: operations as they are read, applied some thousand at a time, and how far that is."""

from __future__ import annotations

import gzip
import os
import stat
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from scrapy_itemgraph.commands import printing
from scrapy_itemgraph.exceptions import (
    DatabaseUnavailableError,
    ItemGraphError,
    NotFoundError,
    OperationError,
)
from scrapy_itemgraph.model.operations import Checked
from scrapy_itemgraph.tools import bulk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from typing import IO, BinaryIO

    from scrapy_itemgraph.commands.call import Call
    from scrapy_itemgraph.graph import ItemGraph
    from scrapy_itemgraph.graph.prepared import Prepared
    from scrapy_itemgraph.model.operations import Operation
    from scrapy_itemgraph.model.work import Note

# A transaction has so many operations, or fewer where their lines are long. More of them cost less
# each, and hold their locks for longer: of those that only create items it may be more.
STEP = 1000
STEP_OF_ADDITIONS = 10_000
STEP_BYTES = 8_000_000
LINE_BYTES = 64_000_000


def opened(file: str) -> AbstractContextManager[BinaryIO]:
    """Open a file, or standard input (`-`), to be read, or raise a NotFoundError."""
    if file == "-":
        return nullcontext(sys.stdin.buffer)
    try:
        return Path(file).open("rb")
    except OSError as error:
        raise NotFoundError(f"{file} cannot be read: {error.strerror}") from None


@contextmanager
def written(
    name: str, *, is_compressed: bool = False, is_private: bool = False
) -> Iterator[IO[bytes]]:
    """Open a file that stands under its name only when it is whole.

    Nobody but its owner may read one that is private.
    """
    if name == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    target = Path(name)
    part = target if target.exists() and not target.is_file() else Path(f"{name}.part")  # a pipe
    try:
        if is_private and part != target:
            part.unlink(missing_ok=True)  # which may be wider open
        opener = _open_private if is_private else None
        with open(part, "wb", opener=opener) as plain, _packed(plain, is_compressed) as file:
            yield file
            file.flush()
            if part != target:
                os.fsync(file.fileno())
        if part != target:
            part.replace(target)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OperationError(f"{name} cannot be written: {error.strerror}") from None
    finally:
        if part != target:
            part.unlink(missing_ok=True)


def _packed(file: IO[bytes], is_compressed: bool) -> AbstractContextManager[IO[bytes]]:
    """Return a file to write to, which compresses what goes to `file`, if it is."""
    if not is_compressed:
        return nullcontext(file)
    return cast("AbstractContextManager[IO[bytes]]", gzip.GzipFile(fileobj=file, mode="wb"))


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def lines_of(file: IO[bytes]) -> Iterator[bytes]:
    """Go through the lines of a file.

    Raises:
        OperationError: naming a line that is longer than any that is read.

    """
    number = 0
    while line := file.readline(LINE_BYTES + 1):
        number += 1
        if len(line) > LINE_BYTES:
            raise OperationError(f"line {number}: it has more than {LINE_BYTES:,} bytes")
        yield line


@dataclass(frozen=True, slots=True)
class Chunk:
    """The operations of one transaction, and where they were read."""

    prepared: Prepared
    first: int  # line
    last: int
    seen: int  # bytes up to its end


class Stream:
    """Applies operations that are read from lines, in transactions of `step`.

    `read` makes a checked operation of a line; it is told the line's name for errors. `what` is
    the command's name. Of a file the next transaction's lines are read while one is applied.
    """

    def __init__(
        self,
        call: Call,
        given: BinaryIO,
        read: Callable[[str, bytes], Operation],
        what: str,
        step: int | None = None,  # STEP
    ) -> None:
        self._call = call
        self._given = given
        self._read = read
        self._what = what
        self._step = STEP if step is None else step
        self._answer = _JsonAnswer() if call.as_json else _LinesAnswer()
        self._size = size_of(given)
        self._seen = 0  # bytes
        self._first = 1  # line of what is not yet applied
        self._is_sent = False
        self.count = 0

    def run(self, graph: ItemGraph) -> None:
        """Apply all.

        An ItemGraphError names the line, what was applied before it, and how to go on.
        """
        with bulk.bulk_work():
            self._run(graph)

    def _run(self, graph: ItemGraph) -> None:
        is_new = graph.crawl not in graph.crawls.names()
        try:
            with self._call.progress(self._what, "operations") as progress:
                for chunk in self._ahead():
                    notes = self._apply(graph, chunk)
                    graph.activity.announce(self._what, self.count)
                    with progress.aside():
                        self._write(self._answer.add, notes)
                    progress.reach(
                        self.count, share=chunk.seen / self._size if self._size else None
                    )
        except ItemGraphError as error:
            maybe = self._is_sent and isinstance(error, DatabaseUnavailableError)
            if self.count or maybe:
                self._write(self._answer.end, self.count)
                raise type(error)(f"{str(error).rstrip('.')}; {self._so_far(maybe)}") from None
            raise
        except KeyboardInterrupt:
            self._write(self._answer.end, self.count)
            self._call.note(f"scrapy itemgraph: stopped; {self._so_far(self._is_sent)}")
            raise
        self._write(self._answer.end, self.count)
        if is_new:
            self._call.note(f"scrapy itemgraph: made the crawl {printing.clean(graph.crawl)!r}")

    def _ahead(self) -> Iterator[Chunk]:
        """Yield the chunks; of a file, whose reader never waits, each is read ahead by a thread."""
        if self._size is None:
            yield from self._chunks()
            return
        chunks = self._chunks()
        with ThreadPoolExecutor(1, "itemgraph-reader") as reader:
            coming = reader.submit(next, chunks, None)
            while (chunk := coming.result()) is not None:
                coming = reader.submit(next, chunks, None)
                yield chunk

    def _chunks(self) -> Iterator[Chunk]:
        from scrapy_itemgraph.graph.prepared import prepare  # noqa: PLC0415 - SQLAlchemy

        read: list[Operation] = []
        names: list[str] = []
        first = last = size = 0
        for number, line in self._lines():
            first, last = first or number, number
            where = f"line {number}"
            read.append(self._read(where, line))
            names.append(where)
            size += len(line)
            if len(read) == self._step or size >= STEP_BYTES:
                yield Chunk(prepare(Checked(read), names), first, last, self._seen)
                read, names, first, size = [], [], 0, 0
        if read or not last:  # an empty stream makes its crawl, too
            yield Chunk(prepare(Checked(read), names), first or 1, last, self._seen)

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        for number, line in enumerate(lines_of(self._given), 1):
            self._seen += len(line)
            if number >= self._call.given.first and line.strip():
                yield number, line

    def _apply(self, graph: ItemGraph, chunk: Chunk) -> list[Note]:
        self._first = chunk.first
        self._is_sent = True
        notes = graph.apply(chunk.prepared)
        self._is_sent = False
        self.count += len(chunk.prepared.operations)
        self._first = chunk.last + 1
        return notes

    def _write(self, write: Callable[..., None], given: Any) -> None:
        """Write a part of the answer; the operations go on when nobody reads it any more."""
        try:
            write(given)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    def _so_far(self, maybe: bool) -> str:
        perhaps = f", perhaps also the next {self._step:,}" if maybe else ""
        return (
            f"the {self.count:,} operations before line {self._first} are applied{perhaps}; to go "
            f"on, mend what is wrong and add --from {self._first}"
        )


def size_of(stream: BinaryIO) -> int | None:
    """Return how many bytes there are; None where nobody can tell, as of a pipe."""
    try:
        status = os.fstat(stream.fileno())
    except OSError:
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


class _LinesAnswer:
    """What people read: a line for each note, and the number of operations."""

    def add(self, notes: Sequence[Note]) -> None:
        printing.write_lines(
            sys.stdout, [f"[{note.label}] {printing.clean(note.shown)}" for note in notes]
        )

    def end(self, count: int) -> None:
        printing.write(sys.stdout, f"{count:,} operations applied")


class _JsonAnswer:
    """One JSON document, written as it grows: `{"notes": […], "operations": 3}`."""

    def __init__(self) -> None:
        self._before = '{\n  "notes": [\n'

    def add(self, notes: Sequence[Note]) -> None:
        for note in notes:
            dumped = textwrap.indent(printing.dump(note._asdict(), sys.stdout), "    ")
            sys.stdout.write(self._before + dumped)
            self._before = ",\n"

    def end(self, count: int) -> None:
        notes = "\n  ]" if self._before == ",\n" else '{\n  "notes": []'
        printing.write(sys.stdout, f'{notes},\n  "operations": {count}\n}}')
