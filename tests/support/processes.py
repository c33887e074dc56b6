"""The one door through which tests start processes of Python.

What a process of Scrapy imports takes more than a second of CPU, and tests start many hundreds. So
pytest's process keeps one that has imported it, the fork server, and a start is a fork of that: a
process like any other, which alone has not been executed. What a fork would not prove is executed,
and so is everything outside of pytest, or with `ITEMGRAPH_TEST_EXEC=1` in the environment.
"""

from __future__ import annotations

import inspect
import os
import pickle
import select
import socket
import subprocess
import sys
import threading
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from support.fork_server import MOST_BYTES, NUMBER, READ_LATER, REFUSED, Command

if TYPE_CHECKING:
    from collections.abc import Mapping

HAS_ENDED = "the fork server has ended: how is on standard error, unless a signal ended it"
SERVER = Path(__file__).with_name("fork_server.py")
# What `Popen` may be told beside directory, environment and files.
_PLAIN = {
    "executable": None,
    "preexec_fn": None,
    "close_fds": True,
    "pass_fds": (),
    "shell": False,
    "restore_signals": True,
    "gid": None,
    "gids": None,
    "uid": None,
    "umask": -1,
    "start_new_session": False,
    "process_group": -1,
}
_START = inspect.signature(subprocess.Popen._execute_child)


@dataclass
class ForkServer:
    """A fork server that runs, and the way to it."""

    process: subprocess.Popen[bytes]
    way: socket.socket

    @classmethod
    def start(cls, environment: Mapping[str, str]) -> ForkServer:
        """Start one in an environment; it is ready once it answers."""
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        kept = {name: value for name, value in environment.items() if name not in READ_LATER}
        with there:
            process = subprocess.Popen(
                [sys.executable, SERVER, str(there.fileno()), environment.get("PYTHONPATH", "")],
                cwd="/",
                env=kept,
                stdin=subprocess.DEVNULL,
                pass_fds=[there.fileno()],
            )
        return cls(process, here)

    def fork(self, command: Command, files: list[int]) -> tuple[int, int] | None:
        """Run a command with these as its files 0 to 2.

        Return its process's number, and a file from which its status can be read once it has
        ended; None if this is none for a fork. Raises RuntimeError if the server has ended.
        """
        request = pickle.dumps(astuple(command))
        if len(request) > MOST_BYTES:
            return None
        answers, writer = os.pipe()
        pid = REFUSED
        try:
            self._send(request, [*files, writer])
            pid = _number(answers)
        finally:
            if pid == REFUSED:
                os.close(answers)
        return None if pid == REFUSED else (pid, answers)

    def _send(self, request: bytes, files: list[int]) -> None:
        try:
            socket.send_fds(self.way, [request], files)
        except ConnectionError as error:
            raise RuntimeError(HAS_ENDED) from error
        finally:
            os.close(files[-1])

    def close(self) -> None:
        """Have it end."""
        self.way.close()
        self.process.wait()


def _number(answers: int) -> int:
    """Wait for one answer of the fork server."""
    answer = os.read(answers, NUMBER.size)
    if not answer:
        raise RuntimeError(HAS_ENDED)
    return int(*NUMBER.unpack(answer))


@dataclass
class Forks:
    """Whether processes are forked, and the server that does it, once there is one."""

    environment: dict[str, str] | None = None  # of the server; None: no process is forked
    server: ForkServer | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def fork(self, command: Command, files: list[int]) -> tuple[int, int] | None:
        """As `ForkServer.fork`, which is started where it is the first."""
        with self._lock:
            self.server = self.server or ForkServer.start(self.environment)
        return self.server.fork(command, files)

    def close(self) -> None:
        """Execute all processes from now on, and end the fork server."""
        self.environment = None
        if self.server is not None:
            self.server.close()
            self.server = None


forks = Forks()


def fork_from_now_on() -> None:
    """Have processes forked where that is like a start."""
    if os.environ.get("ITEMGRAPH_TEST_EXEC") != "1":
        forks.environment = dict(os.environ)


class Popen(subprocess.Popen):
    """A process, forked where that is like a start: `python -m scrapy`, scripts, `python -c`."""

    is_forked = False
    _answers: int | None = None  # the file from which the status of a fork is read, until it is

    def _execute_child(self, *given: Any) -> None:
        asked = _START.bind(self, *given).arguments
        can_be = forks.environment is not None and _can_be_forked(asked)
        forked = self._fork(asked) if can_be else None
        if forked is None:
            super()._execute_child(*given)
            return
        self.pid, self._answers = forked
        self._child_created = self.is_forked = True
        names = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(asked[name] for name in names))

    def _fork(self, asked: dict[str, Any]) -> tuple[int, int] | None:
        _, *arguments = map(os.fspath, asked["args"])
        directory = str(Path(asked["cwd"] or ".").resolve())
        given = os.environ if asked["env"] is None else asked["env"]
        environment = {os.fsdecode(name): os.fsdecode(value) for name, value in given.items()}
        files = [asked["p2cread"], asked["c2pwrite"], asked["errwrite"]]
        return forks.fork(
            Command(arguments, directory, environment),
            [number if file == -1 else file for number, file in enumerate(files)],
        )

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        if not self.is_forked:
            return super()._try_wait(wait_flags)
        assert self._answers is not None, "its status is read once"
        answered = select.poll()
        answered.register(self._answers, select.POLLIN)
        if not answered.poll(0 if wait_flags & os.WNOHANG else None):
            return 0, 0
        status = _number(self._answers)
        os.close(self._answers)
        self._answers = None
        return self.pid, status

    def _internal_poll(self, _deadstate: int | None = None, *others: Any) -> int | None:
        if not self.is_forked:
            return super()._internal_poll(_deadstate, *others)
        if self._waitpid_lock.acquire(blocking=False):
            try:
                if self.returncode is None:
                    pid, status = self._try_wait(os.WNOHANG)
                    if pid == self.pid:
                        self._handle_exitstatus(status)
            finally:
                self._waitpid_lock.release()
        return self.returncode


def _can_be_forked(asked: dict[str, Any]) -> bool:
    """Tell whether it is this Python, with what the fork server can run, and nothing unusual."""
    args = asked["args"]
    if not isinstance(args, list) or args[0] != sys.executable or len(args) == 1:
        return False
    kind = os.fspath(args[1])
    is_known = kind == "-c" or not kind.startswith("-") or args[1:3] == ["-m", "scrapy"]
    return is_known and all(asked[name] == value for name, value in _PLAIN.items())


def run(
    args: list[Any],
    *,
    input: Any = None,  # noqa: A002 - as `subprocess.run` names it
    capture_output: bool = False,
    timeout: float | None = None,
    check: bool = False,
    **options: Any,
) -> subprocess.CompletedProcess[Any]:
    """As `subprocess.run`."""
    if input is not None:
        options["stdin"] = subprocess.PIPE
    if capture_output:
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with Popen(args, **options) as process:
        try:
            output, errors = process.communicate(input, timeout=timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(process.args, process.returncode, output, errors)
    if check:
        done.check_returncode()
    return done
