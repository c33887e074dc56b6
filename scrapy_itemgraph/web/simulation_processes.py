"""Simulations: one task of one item run by a process of its own, which changes nothing."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scrapy_itemgraph.tools import logs
from scrapy_itemgraph.tools.async_tools import cancelled
from scrapy_itemgraph.web.problems import RETRY_AFTER, Problem

if TYPE_CHECKING:
    from collections.abc import Sequence

logger = logs.logger(__name__)

AT_ONCE = 2
SECONDS = 300.0  # that one may take
_MOST = 1_000_000  # bytes of what it says that are read
_COLUMNS = 110
_LOOK_EVERY = 0.05  # seconds between two looks whether it has ended
_READ_WITHIN = 2.0  # seconds in which its output ends with it, unless it left a process behind


@dataclass(frozen=True, slots=True)
class Simulated:
    """What `scrapy itemgraph simulate` said: its lines, its complaints, and its exit code."""

    code: int
    lines: list[str]
    complaints: list[str]

    @property
    def has_run(self) -> bool:
        """Whether the task was run, be it with a failure; else the complaints say why not."""
        return bool(self.lines)


class Simulations:
    """Runs simulations in the project's directory, two at a time."""

    def __init__(self, command: Sequence[str], stopping: asyncio.Event) -> None:
        """Take the command up to its arguments; when `stopping` is set, those that run end."""
        self._command = list(command)
        self._stopping = stopping
        self._running = 0

    async def run(self, *, crawl: str, spider: str, task: str, item: str) -> Simulated:
        """Simulate a task of an item, with the project's code as it is now.

        Raises:
            Problem: too many run just now, it takes too long, or the server ends.

        """
        if self._running >= AT_ONCE:
            raise Problem(
                503, f"{AT_ONCE} simulations run already; try again in a while", RETRY_AFTER
            )
        self._running += 1
        try:
            return await self._run("--crawl", crawl, "--", spider, task, item)
        finally:
            self._running -= 1

    async def _run(self, *arguments: str) -> Simulated:
        environment = {**os.environ, "COLUMNS": str(_COLUMNS), "NO_COLOR": "1"}
        process = await asyncio.create_subprocess_exec(
            *self._command,
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**environment, "PYTHONIOENCODING": "utf-8:replace"},
            start_new_session=True,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        said, complaints = bytearray(), bytearray()
        reading = asyncio.gather(_read(process.stdout, said), _read(process.stderr, complaints))
        ended = asyncio.ensure_future(_ended(process))
        ending = asyncio.ensure_future(self._stopping.wait())
        both: set[asyncio.Future[Any]] = {ended, ending}
        try:
            await asyncio.wait(both, timeout=SECONDS, return_when=asyncio.FIRST_COMPLETED)
        finally:
            has_ended = ended.done()
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            left: set[asyncio.Future[Any]] = {reading, ended}
            await asyncio.wait(left, timeout=_READ_WITHIN)
            if not reading.done():
                logger.warning("A simulation left a process behind that has its output still")
            await cancelled([reading, ended, ending])
            # asyncio keeps the pipes open while a process that was left behind has them.
            process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001
        if has_ended:
            return Simulated(ended.result(), _lines(said), _lines(complaints))
        if self._stopping.is_set():
            raise Problem(503, "the server ends")
        raise Problem(504, f"the simulation took more than {SECONDS:.0f} seconds and was stopped")


async def _ended(process: asyncio.subprocess.Process) -> int:
    """Wait for the end of a process; `Process.wait` waits for the ends of its pipes as well."""
    while process.returncode is None:  # noqa: ASYNC110 - asyncio has no event of it
        await asyncio.sleep(_LOOK_EVERY)
    return process.returncode


async def _read(stream: asyncio.StreamReader, kept: bytearray) -> None:
    """Read all of a stream; keep its first million bytes."""
    while chunk := await stream.read(65536):
        kept += chunk[: _MOST - len(kept)]


def _lines(kept: bytearray) -> list[str]:
    lines = kept.decode("utf-8", errors="replace").splitlines()
    return [*lines, "… and more"] if len(kept) == _MOST else lines
