"""A process that has imported what Scrapy's processes import, and becomes one by forking.

`processes` starts it: `python fork_server.py SOCKET PYTHONPATH`. Over the socket it gets commands
of Python with their directory, environment and files. To the last of these, a pipe, it answers:
first the new process's number, or 0 where a fork would not do what a start does; once that process
has ended its status, as `os.waitpid` gives it.

It has read no settings, and has no reactor, no event loop, no connection and no second thread.
"""

from __future__ import annotations

import builtins
import contextlib
import gc
import importlib
import io
import os
import pickle
import pkgutil
import runpy
import select
import signal
import socket
import struct
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Set as AbstractSet

NUMBER = struct.Struct("i")
MOST_BYTES = 100_000  # of a request; Linux sends about twice as many as one message
REFUSED = 0
ON_INTERRUPT = signal.getsignal(signal.SIGINT)  # what a process that is started here does
# What is read of the environment as Python, libc and libraries are loaded.
READ_AT_START = ("HOME", "LANG", "LC_", "LD_", "MALLOC_", "OPENSSL_", "PSYCOPG_", "PYTHON", "XDG_")
RUN_AT_START = ("sitecustomize", "usercustomize")  # modules that Python runs as it starts
READ_LATER = {"PYTHONPATH", "PYTHONUNBUFFERED"}
# What Scrapy and SQLAlchemy load by name, or when first used.
BY_NAME = (
    "scrapy.core.downloader.contextfactory",
    "scrapy.cmdline",
    "scrapy.crawler",
    "scrapy.spiders",
    "sqlalchemy.dialects.postgresql.psycopg",
    "sqlalchemy.ext.asyncio",
    "twisted.internet.asyncioreactor",
)
PACKAGES = ("scrapy.commands", "scrapy_itemgraph")
# What opens ports of its own is loaded by those who have it alone, and takes a tenth of a start.
LEFT = ("scrapy.extensions.remote_control", "scrapy.extensions.telnet")


@dataclass(frozen=True)
class Command:
    """A command of Python: what follows the interpreter, its directory and its environment."""

    arguments: list[str]
    directory: str
    environment: dict[str, str]

    @property
    def first_path(self) -> str:
        """Where Python looks for modules first."""
        kind = self.arguments[0]
        if kind == "-m":
            return self.directory
        return "" if kind == "-c" else str((Path(self.directory) / kind).resolve().parent)

    @property
    def paths(self) -> list[str]:
        """The absolute paths of PYTHONPATH."""
        given = self.environment.get("PYTHONPATH", "")
        return [str(Path(self.directory, path)) for path in given.split(os.pathsep) if given]


@dataclass
class Server:
    """Forks for who asks over a socket, and tells how its children end."""

    requests: socket.socket
    site_paths: list[str]  # where modules are, but for those of a command's own
    statuses: dict[int, tuple[int, int]] = field(default_factory=dict)  # pidfd -> pid, its file

    def serve(self) -> Command | None:
        """Serve until nobody can ask any more; in a child, return what it is to run."""
        while True:
            for ready in self._ready():
                if ready in self.statuses:
                    self._tell(ready)
                elif (asked := _received(self.requests)) is None:
                    return None
                elif (command := self._start(*asked)) is not None:
                    return command

    def _ready(self) -> list[int]:
        waiting = select.poll()
        for descriptor in (self.requests.fileno(), *self.statuses):
            waiting.register(descriptor, select.POLLIN)
        return [descriptor for descriptor, _ in waiting.poll()]

    def _tell(self, process: int) -> None:
        pid, file = self.statuses.pop(process)
        _, status = os.waitpid(pid, 0)
        os.close(process)
        _answer(file, status)
        os.close(file)

    def _start(self, command: Command, files: list[int]) -> Command | None:
        """Fork; return the command in the child, and None here."""
        pid = REFUSED
        if is_like_a_start(command):
            pid = os.fork()
            if not pid:
                become(command, files, self.site_paths)
                return command
            self.statuses[os.pidfd_open(pid)] = pid, os.dup(files[-1])
        _answer(files[-1], pid)
        for file in files:
            os.close(file)
        return None


def _answer(file: int, number: int) -> None:
    with contextlib.suppress(BrokenPipeError):  # who asked has gone, or was interrupted
        os.write(file, NUMBER.pack(number))


def _received(requests: socket.socket) -> tuple[Command, list[int]] | None:
    """Read one request; None: there will be none."""
    message, files, _, _ = socket.recv_fds(requests, MOST_BYTES, 4)
    return (Command(*pickle.loads(message)), files) if message else None


def is_like_a_start(command: Command) -> bool:
    """Tell whether a fork of this process runs a command as a new process would."""
    names = {name for name in {*command.environment, *os.environ} if name.startswith(READ_AT_START)}
    return (
        all(command.environment.get(name) == os.environ.get(name) for name in names - READ_LATER)
        and Path(command.directory).is_dir()
        and not any(map(_shadows, [command.first_path or command.directory, *command.paths]))
    )


def _shadows(directory: str) -> bool:
    """Tell whether a directory has another module of a name that is loaded here, or at a start."""
    real = Path(directory).resolve()
    return any(
        name in RUN_AT_START or real not in _places(sys.modules[name])
        for name in _importable(directory, {*RUN_AT_START, *sys.modules})
    )


def _importable(directory: str, names: AbstractSet[str]) -> Iterator[str]:
    """Go over those of these names that modules and packages in a directory have."""
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            name, dot, suffix = entry.name.partition(".")
            if name in names and (
                suffix.endswith(("py", "so")) if dot else Path(entry.path, "__init__.py").exists()
            ):
                yield name


def _places(module: ModuleType) -> set[Path]:
    """Return the directories where a module or package was found."""
    files = [*getattr(module, "__path__", ()), getattr(module, "__file__", None)]
    return {Path(file).resolve().parent for file in files if file}


def become(command: Command, files: list[int], site_paths: list[str]) -> None:
    """Make this process, a fork, what a new one would be before it runs a command."""
    gc.enable()
    for number, file in enumerate(files[:3]):
        os.dup2(file, number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    signal.signal(signal.SIGINT, ON_INTERRUPT)
    os.chdir(command.directory)
    os.environ.clear()
    os.environ.update(command.environment)
    time.tzset()
    _open_streams(is_unbuffered=bool(command.environment.get("PYTHONUNBUFFERED")))
    own = list(dict.fromkeys(command.paths))
    sys.path[:] = [command.first_path, *own, *(path for path in site_paths if path not in own)]
    sys.argv = command.arguments[1:] if command.arguments[0] == "-m" else command.arguments
    sys.orig_argv = [sys.executable, *command.arguments]
    importlib.invalidate_caches()


def _open_streams(*, is_unbuffered: bool) -> None:
    """Make standard input and output anew, as Python does; standard error has no buffer."""
    text = {"encoding": sys.stdout.encoding, "errors": sys.stdout.errors, "newline": "\n"}
    sys.stdin = sys.__stdin__ = os.fdopen(0, closefd=False, **text)
    raw = os.fdopen(1, "wb", 0 if is_unbuffered else -1, closefd=False)
    sys.stdout = sys.__stdout__ = io.TextIOWrapper(
        raw,
        line_buffering=os.isatty(1) and not is_unbuffered,
        write_through=is_unbuffered,
        **text,
    )
    sys.stdout.mode = "w"


def run(command: Command) -> None:
    """Run a command in a `__main__` of its own."""
    main = ModuleType("__main__")
    main.__builtins__ = builtins
    sys.modules["__main__"] = main
    kind, *rest = command.arguments
    if kind == "-m":
        runpy._run_module_as_main(rest[0])
    elif kind == "-c":
        sys.argv = [kind, *rest[1:]]
        _execute(rest[0], "<string>", main)
    else:
        main.__file__ = kind
        _execute(Path(kind).read_bytes(), kind, main)


def _execute(text: str | bytes, name: str, main: ModuleType) -> None:
    exec(compile(text, name, "exec", dont_inherit=True), main.__dict__)


def load() -> None:
    """Import what processes of Scrapy import; what is not installed is left out."""
    for name in (*BY_NAME, *_stock_components(), *_modules(*PACKAGES)):
        if name not in LEFT and not name.endswith("__main__"):
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
    assert "twisted.internet.reactor" not in sys.modules, "a module installs a reactor"
    assert len(list(Path("/proc/self/task").iterdir())) == 1, "a module starts a thread"


def _stock_components() -> Iterator[str]:
    """Go over the modules of Scrapy's own classes, which its settings name."""
    defaults = importlib.import_module("scrapy.settings.default_settings")
    for value in vars(defaults).values():
        texts = [*value, *value.values()] if isinstance(value, dict) else [value]
        for text in texts:
            if isinstance(text, str) and text.startswith("scrapy."):
                yield text.rpartition(".")[0]


def _modules(*packages: str) -> Iterator[str]:
    for package in packages:
        path = importlib.import_module(package).__path__
        for found in pkgutil.walk_packages(path, f"{package}.", onerror=lambda _: None):
            yield found.name


def main() -> None:
    """Get ready, and serve; in a fork, run what it was started for."""
    requests = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a person's Ctrl-C is the tests'
    gc.disable()
    site_paths = sys.path[1:]
    sys.path[:] = [*filter(None, sys.argv[2].split(os.pathsep)), *site_paths]
    load()
    gc.freeze()
    command = Server(requests, site_paths).serve()
    if command is None:
        os._exit(0)
    requests.detach()
    run(command)


if __name__ == "__main__":
    main()
