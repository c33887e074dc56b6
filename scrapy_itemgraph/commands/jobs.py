"""Jobs: processes of crawls that people queue, with their logs."""

from __future__ import annotations

import gzip
import os
import socket
import stat
import sys
import time
from contextlib import suppress
from dataclasses import asdict
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy_itemgraph.commands import parsing, printing
from scrapy_itemgraph.commands.command import Argument, Group
from scrapy_itemgraph.exceptions import NotFoundError, OperationError
from scrapy_itemgraph.model import next_commands
from scrapy_itemgraph.tools.path_parts import log_folder
from scrapy_itemgraph.tools.wording import format_size

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO, TextIO

    from scrapy_itemgraph.commands.call import Call
    from scrapy_itemgraph.graph import ItemGraph
    from scrapy_itemgraph.store.admin.job_reports import JobLine

_JOB = Argument("job", type=parsing.count, help="the job's number")
_JOBS = Group("jobs", "Processes of crawls of the queue, with their logs")
_PAUSE = 1.0  # seconds between two looks at a log
_ANSWER_WITHIN = 3.0  # seconds in which a runner writes down what its process wrote

_COLUMNS: printing.Columns = {
    "JOB": "id",
    "CRAWL": "crawl",
    "STATE": "state",
    "BY": lambda one: ":".join(str(part) for part in (one.runner, one.place) if part) or one.origin,
    "TRY": lambda one: one.attempts if one.attempts > 1 else None,
    "STARTED": "started_at",
    "ENDED": "ended_at",
    "WHY": lambda one: (
        one.reason or (f"told to stop: {one.stop_wanted}" if one.stop_wanted else "")
    ),
}


@_JOBS.command(
    "list",
    Argument("--open", action="store_true", help="those that are not over"),
    Argument("--limit", type=parsing.count, metavar="N", default=50, help="of them (50)"),
)
def list_jobs(call: Call) -> None:
    """List jobs, the newest first; with --crawl NAME those of a crawl.

    A job is one process of a crawl, whoever started it; BY says who, of a runner with its place.
    TRY is there from 2 on: 1, and how many before it in a row ended abnormally.
    """
    given = call.given
    with call.graph() as graph:
        lines = graph.jobs.list(crawl=call.crawl, is_open=given.open, limit=given.limit)
    shown = printing.table(lines, _COLUMNS)
    none = printing.clean(_none(call))
    call.write([asdict(one) for one in lines], printing.first(lines, shown, given.limit, none))


def _none(call: Call) -> str:
    """Say that there are no jobs such as are asked for, and what makes one."""
    of = f" of the crawl {call.crawl}" if call.crawl else ""
    if call.given.open:
        return f"no job{of} is open"
    if call.crawl:
        explain = next_commands.command("crawls", "explain", call.crawl)
        return f"the crawl {call.crawl} has no job yet; why: {explain}"
    return (
        "there is no job yet: it is a process of a crawl of the queue; `scrapy itemgraph crawls "
        "add SPIDER` puts crawls there, and `scrapy itemgraph work` runs them"
    )


@_JOBS.command("show", _JOB)
def show(call: Call) -> None:
    """Show a job: its process, how it ended, and where its log is."""
    with call.graph() as graph:
        one = graph.jobs.get(call.given.job)
    fields = asdict(one)
    fields["memory"] = "" if one.memory is None else format_size(one.memory)
    moments = ("created_at", "not_before", "started_at", "ended_at", "due_at")
    fields |= {name: printing.moment(fields[name]) for name in moments}
    call.write(asdict(one), printing.fields((n.replace("_", " "), v) for n, v in fields.items()))


@_JOBS.command("log", _JOB, Argument("-f", "--follow", action="store_true", help="go on with it"))
def log(call: Call) -> None:
    """Print what a job's process wrote; with -f what it writes until it ends.

    On the runner's host the file is read, elsewhere the end of it, 64 kB at most, which the
    database has.
    """
    number, follow = call.given.job, call.given.follow
    with call.graph() as graph:
        one = graph.jobs.get(number)
        parts = _of_file(graph, one, follow=follow)
        if parts is None:
            parts = _of_database(graph, one, follow=follow)
        if call.as_json:
            written = "".join(parts)
            _check_is_here(one, is_empty=not written)
            call.write({"job": number, "log": written}, [])
            return
        is_empty = True
        for part in parts:
            is_empty = is_empty and not part
            _print(part)
        _check_is_here(one, is_empty=is_empty)


def _check_is_here(one: JobLine, *, is_empty: bool) -> None:
    """Refuse the log of a job that is over if nothing of it is here; say where to look for it."""
    if is_empty and one.ended_at is not None and one.log is not None:
        raise NotFoundError(
            f"nothing that the job {one.id} wrote is here or in the database, where its runner "
            f"notes the end of it; what there is of it is on {one.host or 'its host'}, in {one.log}"
        )


def _print(text: str) -> None:
    """Write lines of a log as they may stand on a terminal."""
    lines = text.splitlines()
    printing.write_lines(sys.stdout, map(printing.clean, lines))
    sys.stdout.flush()


def _of_file(graph: ItemGraph, one: JobLine, *, follow: bool) -> Iterator[str] | None:
    """Return parts of a log's file, whole lines; None where the file is not here.

    Raises:
        OperationError: what the row names is no log that a runner writes.

    """
    if one.log is None or one.host != socket.gethostname() or not os.path.lexists(one.log):
        return None
    path = Path(one.log)
    if path.name != f"{one.id}.log" or path.parent.name != log_folder(one.crawl):
        raise OperationError(
            f"the log of the job {one.id} is {one.log}, which is none that a runner writes, and so "
            "is not printed; its end is in the database: scrapy itemgraph jobs show says more"
        )
    return _parts_of_file(graph, one, path, follow=follow)


def _opened(path: Path) -> BinaryIO:
    """Open a file that a runner wrote: a regular one, and no link to another.

    Raises:
        OperationError: it is something else.

    """
    try:
        file = open(path, "rb", opener=_without_waiting)  # noqa: SIM115 - it takes an opener
    except OSError as error:
        raise OperationError(f"{path} cannot be read: {error.strerror}") from None
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OperationError(f"{path} is no regular file, and so no log that a runner writes")
    return file


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def _parts_of_file(graph: ItemGraph, one: JobLine, path: Path, *, follow: bool) -> Iterator[str]:
    for number in range(9, 0, -1):
        older = path.with_suffix(f".log.{number}.gz")
        if os.path.lexists(older):
            with (
                _opened(older) as packed,
                gzip.open(packed, "rt", encoding="utf-8", errors="replace") as file,
            ):
                yield from file
    is_over = one.ended_at is not None
    while True:
        with TextIOWrapper(_opened(path), encoding="utf-8", errors="replace") as file:
            yield from iter(file.readline, "")
            while not _is_rotated(path, file):
                if is_over or not follow:
                    return
                is_over = graph.jobs.get(one.id).ended_at is not None
                if not is_over:
                    time.sleep(_PAUSE)
                yield from iter(file.readline, "")
            yield from iter(file.readline, "")  # what came since, and before it was rotated


def _is_rotated(path: Path, file: TextIO) -> bool:
    """Tell whether a log that was read to its end goes on in another file, or from its beginning.

    An earlier version's runner begins the same file anew.
    """
    with suppress(FileNotFoundError):
        now = path.stat()
        is_same = os.path.samestat(now, os.fstat(file.fileno()))
        return not is_same or now.st_size < file.buffer.tell()
    return False


def _of_database(graph: ItemGraph, one: JobLine, *, follow: bool) -> Iterator[str]:
    """Yield the end of a log from the database, and what is new of it each second."""
    if one.started_at is None:
        raise NotFoundError(f"the job {one.id} has not begun, so it has no log yet")
    said = _asked(graph, one)
    yield said
    while follow and graph.jobs.get(one.id).ended_at is None:
        time.sleep(_PAUSE)
        now = graph.jobs.output(one.id)
        yield _new(said, now)
        said = now
    if follow:
        yield _new(said, graph.jobs.output(one.id))


def _asked(graph: ItemGraph, one: JobLine) -> str:
    """Return the end of a log; of a job that runs, as its runner answers."""
    before = said = graph.jobs.output(one.id)
    until = time.monotonic() + (_ANSWER_WITHIN if one.ended_at is None else 0.0)
    while said == before and time.monotonic() < until:
        time.sleep(_PAUSE / 5)
        said = graph.jobs.output(one.id)
    return said


def _new(before: str, now: str) -> str:
    """Return what of a log's end was not there before."""
    if now.startswith(before):
        return now[len(before) :]
    last = before[-200:]
    _, found, rest = now.rpartition(last) if last else ("", "", now)
    return rest if found else now


@_JOBS.command("cancel", _JOB)
def cancel(call: Call) -> None:
    """Cancel a job that waits, or have its process end in order.

    The crawl stays active, so another process of it is started; `crawls pause` keeps it from that.
    """
    number = call.given.job
    with call.graph() as graph:
        crawl = graph.jobs.cancel(number, by=call.by)
    line = f"the job {number} of the crawl {crawl} ends; to keep the crawl from going on: "
    line += f"scrapy itemgraph crawls pause {crawl}"
    call.write({"job": number, "crawl": crawl}, [printing.clean(line)])


@_JOBS.command("retry", _JOB)
def retry(call: Call) -> None:
    """Have another process do what a job did; its crawl becomes active."""
    number = call.given.job
    with call.graph() as graph:
        made, crawl = graph.jobs.retry(number, by=call.by)
    line = f"the job {made} of the crawl {crawl} waits for a place"
    call.write({"job": made, "crawl": crawl, "instead_of": number}, [printing.clean(line)])
