"""A process of a crawl: started, its output taken, stopped step by step, and seen to end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scrapy_itemgraph.tools import hiding, logs
from scrapy_itemgraph.tools.async_tools import happens
from scrapy_itemgraph.tools.hiding import FROM_ENVIRONMENT, Hiding, HidingStream

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta

    from scrapy_itemgraph.model.runners import Assigned
    from scrapy_itemgraph.runner.log_files import JobLog
    from scrapy_itemgraph.runner.options import Options

logger = logs.logger(__name__)

_LAUNCH = Path(__file__).with_name("launch.py")
_WITH_SECRETS = Path(__file__).with_name("with_secrets.py")
_READ = 65536  # bytes that are read of a process's output at a time
_OBEYS_WITHIN = 3.0  # seconds in which a worker that was told so begins to end by itself
_KILL_AFTER = 10.0  # seconds from the second SIGINT on


def command(job: Assigned, options: Options) -> list[str]:
    """Return the command of a job's process: `python -m scrapy crawl SPIDER -a … -s …`."""
    arguments, settings = _given(job, options)
    given = [part for one in arguments for part in ("-a", one)]
    given += [part for one in settings for part in ("-s", one)]
    scrapy = [str(_WITH_SECRETS)] if variables(job, options) else ["-m", "scrapy"]
    return [sys.executable, *scrapy, "crawl", job.spider, *given]


def variables(job: Assigned, options: Options) -> list[str]:
    """Return the variables of the environment that a job's arguments and settings name."""
    values = [one.partition("=")[2] for some in _given(job, options) for one in some]
    named = [one for one in values if one.startswith(FROM_ENVIRONMENT)]
    return [one.removeprefix(FROM_ENVIRONMENT) for one in dict.fromkeys(named)]


def _given(job: Assigned, options: Options) -> tuple[list[str], list[str]]:
    """Return arguments and settings as NAME=VALUE; the last of a name counts, the crawl's own."""
    own = _texts(job.settings)
    return [*map("=".join, job.arguments.items())], [
        *options.arguments,
        *map("=".join, own.items()),
    ]


def environment(job: Assigned, options: Options) -> dict[str, str]:
    """Return the environment of a job's process."""
    ours = {**options.environment, "ITEMGRAPH_CRAWL": job.crawl}
    own = {
        "ITEMGRAPH_JOB": str(job.job),
        "ITEMGRAPH_FROM_RUNNER": ",".join(ours),
        hiding.VARIABLES: ",".join(variables(job, options)),
    }
    if job.schedule is not None:
        own["ITEMGRAPH_SCHEDULE"] = str(job.schedule)
    if job.due_at is not None:
        own["ITEMGRAPH_DUE_AT"] = job.due_at
    return {**os.environ, "PYTHONUNBUFFERED": "1", **ours, **own}


def _texts(settings: Mapping[str, Any]) -> dict[str, str]:
    return {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in settings.items()
    }


@dataclass(frozen=True, slots=True)
class Exit:
    """How a process ended: its exit code, negative for a signal, and its most bytes of memory."""

    code: int
    memory: int


class Child:
    """A running process of a job; its own session and process group.

    Whoever starts it awaits `ended`.
    """

    def __init__(self, job: Assigned, log: JobLog, stop_after: timedelta) -> None:
        self.job = job
        self.log = log
        self.pid = 0
        self.has_worker = False  # it registered, and so is told by others that it is to stop
        self.outlives_kill = False  # nobody can end it, and a runner that ends leaves it
        self._stop_after = stop_after.total_seconds()
        self._loop = asyncio.get_running_loop()
        self._over = asyncio.Event()
        self._exit = Exit(0, 0)
        self._hiding: HidingStream | None = None  # where it has secrets
        self._output = -1
        self._pidfd = -1
        self._rotating: asyncio.Task[None] | None = None
        self._stopping: asyncio.Task[None] | None = None

    @classmethod
    def start(cls, job: Assigned, log: JobLog, options: Options) -> Child:
        """Start the process of a job.

        Raises:
            OSError: it cannot be started: the project's folder is not there, say.

        """
        child = cls(job, log, options.stop_after)
        reading, writing = os.pipe()
        try:
            child._begin(job, options, writing)
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        os.set_blocking(reading, False)
        child._output = reading
        child._loop.add_reader(reading, child._read)
        return child

    def _begin(self, job: Assigned, options: Options, output: int) -> None:
        given = environment(job, options)
        self._hide(Hiding.of(given, variables(job, options)))
        launch = [sys.executable, "-I", "-S", str(_LAUNCH), str(os.getpid())]
        popen = subprocess.Popen(  # noqa: S603 - the command of a crawl that was queued
            [*launch, *command(job, options)],
            cwd=options.directory,
            env=given,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        popen.returncode = 0  # we wait for it ourselves
        self.pid = popen.pid
        self._pidfd = os.pidfd_open(self.pid)
        self._loop.add_reader(self._pidfd, self._reap)

    def _hide(self, secrets: Hiding) -> None:
        """Have secrets hidden in the log; say there which of them cannot be."""
        if secrets.is_empty:
            return
        self._hiding = HidingStream(secrets)
        for name in secrets.too_short:
            line = (
                f"scrapy-itemgraph: the value of {name} is not hidden in this log, for it has "
                f"less than {hiding.SHORTEST} characters\n"
            )
            self.log.write(line.encode())

    async def ended(self) -> Exit:
        """Wait until the process has ended, and its output is written."""
        await self._over.wait()
        if self._stopping is not None:
            self._stopping.cancel()
        await self._finish_rotating()
        while self._read_some():
            if self.log.is_full:
                await asyncio.to_thread(self.log.rotate)
        self._close_output()
        if self._hiding is not None:
            self.log.write(self._hiding.rest())
        self.log.close()
        return self._exit

    @property
    def is_stopping(self) -> bool:
        """Whether it was told to end."""
        return self._stopping is not None

    def stop(self) -> None:
        """Begin to stop the process, unless that is begun; it ends within the ladder's steps."""
        if not self.is_stopping:
            self._stopping = self._loop.create_task(self._descend(), name=f"stop {self.job.job}")

    def kill(self) -> None:
        """Kill the process and all of its group at once."""
        self._signal_group(signal.SIGKILL)

    async def _descend(self) -> None:
        """Ask it to end, ask again, and kill it.

        SIGINT goes to the process alone: browsers of its group would die first, and make failures.
        """
        if self.has_worker and await happens(self._over, _OBEYS_WITHIN):
            return
        self._signal(signal.SIGINT)
        if await happens(self._over, self._stop_after):
            return
        logger.warning("Job %d has not ended; it gets a second SIGINT", self.job.job)
        self._signal(signal.SIGINT)
        if not await happens(self._over, _KILL_AFTER):
            logger.warning("Job %d has not ended; it is killed", self.job.job)
            self.kill()
            if not await happens(self._over, _KILL_AFTER):
                self.outlives_kill = True
                logger.error(
                    "Job %d has not ended though it was killed: its process %d waits for "
                    "something in the kernel, such as a disk that is gone",
                    self.job.job,
                    self.pid,
                    extra={"action": "job_outlives_kill", "job": self.job.job},
                )

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, number)

    def _signal_group(self, number: signal.Signals) -> None:
        if not self._over.is_set():
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    def _reap(self) -> None:
        """Take note of the end; what it left in its process group ends with it."""
        self._loop.remove_reader(self._pidfd)
        self._signal_group(signal.SIGKILL)  # before it is waited for: its number is its own
        _, status, used = os.wait4(self.pid, 0)
        os.close(self._pidfd)
        self._exit = Exit(os.waitstatus_to_exitcode(status), used.ru_maxrss * 1024)
        self._over.set()

    # Its output

    def _read(self) -> None:
        if not self._read_some():
            return
        if self.log.is_full and self._rotating is None:
            self._loop.remove_reader(self._output)  # the process waits meanwhile
            self._rotating = self._loop.create_task(self._rotate())

    def _read_some(self) -> bool:
        """Write some of what waits in the pipe; tell whether there may be more."""
        if self._output < 0:
            return False
        try:
            data = os.read(self._output, _READ)
        except BlockingIOError:
            return False
        if not data:
            self._close_output()
            return False
        was_well = self.log.error is None
        self.log.write(data if self._hiding is None else self._hiding.take(data))
        if was_well and self.log.error is not None:
            logger.warning("The log %s cannot be written: %s", self.log.path, self.log.error)
        return True

    async def _rotate(self) -> None:
        await asyncio.to_thread(self.log.rotate)
        self._rotating = None
        if self._output >= 0 and not self._over.is_set():
            self._loop.add_reader(self._output, self._read)

    async def _finish_rotating(self) -> None:
        if self._rotating is not None:
            await self._rotating

    def _close_output(self) -> None:
        if self._output >= 0:
            self._loop.remove_reader(self._output)
            os.close(self._output)
            self._output = -1
