"""Processes of jobs whose runner was killed: found on this host, waited for, and ended."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy_itemgraph.tools import logs
from scrapy_itemgraph.tools.async_tools import happens

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy_itemgraph.model.runners import LeftJob

logger = logs.logger(__name__)

_KILL_AFTER = 10.0  # seconds from the SIGTERM on
_PROC = Path("/proc")
_RUNNER = b"scrapy_itemgraph.runner"  # in the command of a runner


class LeftProcess:
    """A process of this host that a runner started for a job, and that has no runner any more.

    A file descriptor of the kernel names it, so that no process is hit that gets its number later.
    """

    def __init__(self, pid: int, pidfd: int) -> None:
        self.pid = pid
        self._pidfd = pidfd

    @classmethod
    def find(cls, left: LeftJob) -> LeftProcess | None:
        """Return the process of a job; None: it is not here, or has ended, or its runner lives.

        Where its runner was killed before it noted the process, that is looked for.
        """
        if left.host != socket.gethostname():
            return None
        if left.process_id is not None:
            return cls._of(left, left.process_id)
        return next(filter(None, (cls._of(left, pid) for pid in _leaders())), None)

    @classmethod
    def _of(cls, left: LeftJob, pid: int) -> LeftProcess | None:
        try:
            pidfd = os.pidfd_open(pid)
        except OSError:
            return None
        if _is_of(left, pid) and not _has_runner(pid):
            return cls(pid, pidfd)
        os.close(pidfd)
        return None

    async def end(self, seconds: float) -> None:
        """Wait until the process has ended; after `seconds` tell it to, and then kill it.

        The kernel sent it a SIGTERM as its runner died; a second one at once would cut short what
        it ends in order.
        """
        over, loop = asyncio.Event(), asyncio.get_running_loop()
        loop.add_reader(self._pidfd, over.set)
        try:
            if await happens(over, seconds):
                return
            logger.warning("Process %d has not ended; it gets a SIGTERM", self.pid)
            with suppress(ProcessLookupError, PermissionError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGTERM)
            if not await happens(over, _KILL_AFTER):
                logger.warning("Process %d has not ended; it is killed", self.pid)
                self._kill()
                await happens(over, _KILL_AFTER)
        finally:
            loop.remove_reader(self._pidfd)
            os.close(self._pidfd)

    def _kill(self) -> None:
        """Kill it with its process group, which keeps its number while it is there."""
        with suppress(ProcessLookupError, PermissionError):
            if os.getpgid(self.pid) == self.pid:
                os.killpg(self.pid, signal.SIGKILL)
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)


def _leaders() -> Iterator[int]:
    """Yield the processes that lead a session, as each does that a runner starts."""
    for one in _PROC.iterdir():
        with suppress(ValueError, OSError):
            if os.getsid(pid := int(one.name)) == pid:
                yield pid


def _is_of(left: LeftJob, pid: int) -> bool:
    """Tell whether a process was started for a job, by its environment; a zombie has none."""
    try:
        environment = (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return False
    wanted = {f"ITEMGRAPH_JOB={left.job}".encode(), f"ITEMGRAPH_CRAWL={left.crawl}".encode()}
    return wanted <= set(environment)


def _has_runner(pid: int) -> bool:
    """Tell whether the parent of a process is a runner, which was given up for dead and lives."""
    try:
        # Behind the name, which may have any character: the state, and the parent.
        parent = (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()[1].decode()
        return _RUNNER in (_PROC / parent / "cmdline").read_bytes()
    except OSError:
        return False
