"""The cluster of an embedded server: made, started, found and stopped with PostgreSQL's programs.

Two lock files stand in its directory. `start.lock` lets one process at a time look whether the
server runs, and start it. `server.lock` is inherited by PostgreSQL's own processes: while one of
them lives nobody else gets it, whatever `postmaster.pid` says.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

from scrapy_itemgraph import exceptions
from scrapy_itemgraph.postgres import data_directory, file_turns, programs, server_log, system_user
from scrapy_itemgraph.tools import locks, logs, memory

if TYPE_CHECKING:
    import pwd

    from scrapy_itemgraph.postgres.programs import Installation

logger = logs.logger(__name__)

DATABASE = "itemgraph"
ROLE = "postgres"
PORT = 5432
START_TIMEOUT = 300  # seconds; recovery after a hard stop reads up to max_wal_size
_ENDS_WITHIN = 2 * START_TIMEOUT  # seconds that one of PostgreSQL's programs has
KILLED_PAUSE = 0.5  # seconds until a server that was killed as it started is started again
SILENCE_TIMEOUT = 60
STOP_TIMEOUT = 120
SOCKET_PATH_LIMIT = 103  # bytes, the least of the systems we know
LOG_LIMIT = 10_000_000
# Of a large graph's indexes, which are written at random, what does not fit is read and written
# for each new item. What a small graph does not need is never touched, and takes no memory.
SHARED_BUFFERS = 256, 2048  # MB at least, and at most; an eighth of the memory between them
BUILTIN_SINCE = 17  # the version that has a locale of its own, whatever the system's libraries say
BUILTIN_LOCALE = ("--locale-provider=builtin", "--builtin-locale=C.UTF-8")

CONFIGURATION = """\
# Written by scrapy-itemgraph whenever it starts this server.
# Settings of your own belong in cluster/postgresql.conf, below the line that includes this file.
listen_addresses = ''
port = {port}
unix_socket_directories = '{socket_directory}'
unix_socket_permissions = 0700
max_connections = 200
shared_buffers = {shared_buffers}MB
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
_SOCKET_DIRECTORY = re.compile(r"^unix_socket_directories = '(.+)'$", re.MULTILINE)


@dataclass(frozen=True)
class Postmaster:
    """What a running server says of itself in `postmaster.pid`."""

    pid: int
    port: str
    socket_directory: str

    @property
    def url(self) -> str:
        """Where the database is."""
        host = quote(self.socket_directory)
        return f"postgresql+psycopg://{ROLE}@/{DATABASE}?host={host}&port={self.port}"


@dataclass(frozen=True)
class Cluster:
    """The directory of a cluster, and PostgreSQL's programs to work on it."""

    directory: Path
    installed: Installation  # PostgreSQL's programs
    account: pwd.struct_passwd | None  # None: PostgreSQL runs as we do

    @classmethod
    def at(cls, data_dir: Path, postgres_bin: Path | None = None) -> Self:
        """Prepare the directory: made if missing, ours, and open to PostgreSQL's account.

        `postgres_bin` is a folder of PostgreSQL's programs; by default they are looked for.

        Raises:
            ConfigurationError: no PostgreSQL of the cluster's version is installed.

        """
        home = data_dir.expanduser().resolve()
        if not home.is_dir():
            programs.find(postgres_bin)  # nothing is made where there is no PostgreSQL
        account = system_user.system_account() if os.geteuid() == 0 else None
        try:
            if not home.is_dir():
                home.mkdir(mode=0o700, parents=True, exist_ok=True)
                home.chmod(0o711 if account else 0o700)
            system_user.check_owner(home, os.geteuid())
            place = data_directory.choose(home, account)
            cluster = cls(place, programs.find(postgres_bin, _version(place)), account)
            if cluster.data.exists():
                system_user.check_owner(cluster.data, cluster.owner)
        except OSError as error:
            raise exceptions.EmbeddedServerError(
                f"The data directory {home} cannot be used: {error}. Make it writable, or set "
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

    @property
    def is_dead(self) -> bool:
        """Whether no process of the server lives; unknown, and so not, where its files are gone."""
        try:
            return locks.is_free(self.directory / "server.lock")
        except FileNotFoundError:
            return False

    def ensure_running(
        self, *, again: bool = False, quietly: bool = False, patience: float = 0.0
    ) -> tuple[Postmaster, bool]:
        """Return the running server, and whether it was started for that.

        A server that is killed as it starts is started again, for `patience` seconds.

        It is created when need be; `again` starts one that died, and creates nothing: where another
        process is about to, that is a BlockingIOError. `quietly` does not say that it died. It
        raises EmbeddedServerError if the server does not start in time.
        """
        with file_turns.turn(self.directory / "start.lock", waits=not again):
            if not self.data.exists():
                if again:
                    raise exceptions.EmbeddedServerError(f"{self.data} is gone.")
                self._create()
            deadline = time.monotonic() + SILENCE_TIMEOUT
            killed_until = time.monotonic() + patience
            is_started = False
            while (postmaster := self._answering()) is None:
                if (server_lock := self._try_server_lock()) is None:
                    self._wait(deadline)
                    continue
                try:
                    if again and not quietly:
                        logger.warning(
                            "The embedded PostgreSQL in %s is dead, and is started again; its log "
                            "is %s",
                            self.directory,
                            self.log,
                            extra={"action": "embedded_died"},
                        )
                    self._launch(server_lock)
                    is_started = True
                except exceptions.EmbeddedServerKilledError as error:
                    if time.monotonic() > killed_until:
                        raise
                    logger.warning("%s", error, extra={"action": "embedded_killed"})
                    time.sleep(KILLED_PAUSE)
                    deadline = time.monotonic() + SILENCE_TIMEOUT
                finally:
                    locks.release(server_lock)
        return postmaster, is_started

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
        locks.release(server_lock)
        if postmaster and postmaster.socket_directory != str(self.data):
            with suppress(OSError):
                Path(postmaster.socket_directory).rmdir()

    def _try_server_lock(self) -> int | None:
        """Lock `server.lock`, unless a process of PostgreSQL lives."""
        try:
            return locks.lock(self.directory / "server.lock", fcntl.LOCK_EX)
        except BlockingIOError:
            return None

    def _create(self) -> None:
        """Make the cluster and its database under another name, so that a kill leaves no half."""
        logger.info(
            "Setting up PostgreSQL in %s: once, for some seconds",
            self.directory,
            extra={"action": "embedded_create"},
        )
        new = self.directory / "cluster.new"
        shutil.rmtree(new, ignore_errors=True)
        self._make_private(new)
        usable = self._usable_programs()
        self._check_run(
            usable / "initdb",
            *("-D", ".", "-U", ROLE, "--auth-local=trust", "--auth-host=reject"),
            *("--encoding=UTF8", "--locale=C"),
            *(BUILTIN_LOCALE if self.installed.version >= BUILTIN_SINCE else ()),
            directory=new,
        )
        with (new / "postgresql.conf").open("a") as file:
            file.write("\ninclude '../itemgraph.conf'\n")
        self._configure(Path())  # no sockets yet
        output = self._check_run(
            usable / "postgres",
            *("--single", "-D", ".", ROLE),
            directory=new,
            input_text=f"CREATE DATABASE {DATABASE}\n",
        )
        if "ERROR" in output:
            raise exceptions.EmbeddedServerError(f"PostgreSQL made no database: {output.strip()}")
        new.rename(self.data)

    def _configure(self, socket_directory: Path) -> None:
        path = self.directory / "itemgraph.conf"
        least, most = SHARED_BUFFERS
        text = CONFIGURATION.format(
            port=PORT,
            socket_directory=socket_directory,
            shared_buffers=min(max(memory.total() // 8 >> 20, least), most),
        )
        new = path.with_suffix(".new")
        new.write_text(text)
        new.chmod(0o644 if self.account else 0o600)
        new.replace(path)

    def _usable_programs(self) -> Path:
        try:
            return programs.usable(self.installed.programs, self.account, self.directory)
        except OSError as error:
            raise exceptions.EmbeddedServerError(
                f"PostgreSQL's programs cannot be copied to {self.directory}: {error}. Install "
                "them where all may use them, or set ITEMGRAPH_DATA_DIR."
            ) from error

    def _launch(self, server_lock: int) -> None:
        """Start the server; it inherits the lock, which says that no other process of it lives."""
        usable = self._usable_programs()
        socket_directory = self._socket_directory()
        # Process ids are used again, and PostgreSQL would take a stranger for itself.
        (self.data / "postmaster.pid").unlink(missing_ok=True)
        (socket_directory / f".s.PGSQL.{PORT}.lock").unlink(missing_ok=True)
        self._configure(socket_directory)
        if self.log.exists() and self.log.stat().st_size > LOG_LIMIT:
            self.log.replace(self.log.with_suffix(".log.1"))
        before = self.log.stat().st_size if self.log.exists() else 0
        # pg_ctl puts the server into a session of its own, out of reach of a terminal's Ctrl-C.
        # Relative paths, because it hands them to a shell.
        code, output = self._run(
            usable / "pg_ctl",
            *("-D", ".", "-l", self.log.name, "-w", "-t", str(START_TIMEOUT), "start"),
            directory=self.data,
            inherit=(server_lock,),
        )
        if code:
            raise self._no_start(output, before)
        logger.info(
            "PostgreSQL started in %s", self.directory, extra={"action": "embedded_started"}
        )

    def _no_start(self, output: str, before: int) -> exceptions.EmbeddedServerError:
        """Say why the server did not start, by its log from a byte on, else by pg_ctl's output."""
        log = ""
        with suppress(OSError):
            log = self.log.read_bytes()[before:].decode(errors="replace")
        if server_log.was_killed(log, output):
            return exceptions.EmbeddedServerKilledError(
                f"PostgreSQL in {self.directory} was killed as it started. Look who kills it, as "
                f"for memory, then try again. Its log is {self.log}."
            )
        said = server_log.last_words(log) or output.strip()
        return exceptions.EmbeddedServerError(
            f"PostgreSQL in {self.directory} does not start: {said}. "
            f"{server_log.advice(said, self.directory)} Its whole log is {self.log}."
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

    def _answering(self) -> Postmaster | None:
        if not (postmaster := self._postmaster()):
            return None
        host = ("-h", postmaster.socket_directory, "-p", postmaster.port, "-t", "3")
        login = ("-U", ROLE, "-d", DATABASE)
        # As we are: the programs that are installed may be closed to the account.
        program = self.installed.programs / "pg_isready"
        code, _ = self._run(program, *host, *login, directory=Path("/"), as_account=False)
        return None if code else postmaster

    def _postmaster(self) -> Postmaster | None:
        """Read `postmaster.pid`, unless it was copied here together with the directory."""
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
            pid, data, _, port, socket_directory = (line.strip() for line in lines[:5])
        except (FileNotFoundError, ValueError):  # none, or not written to its end
            return None
        if os.path.realpath(data) != str(self.data):
            return None
        return Postmaster(int(pid), port, socket_directory)

    def _socket_directory(self) -> Path:
        """Return the cluster itself, or a short private directory where its path will not do."""
        # A comma separates directories for PostgreSQL and hosts for its clients.
        if _fits_socket(self.data) and not re.search(r"[,\"'\\\n]", str(self.data)):
            return self.data
        # A copy of this cluster has another.
        prefix = f"itemgraph-{hashlib.sha256(os.fsencode(self.data)).hexdigest()[:8]}"
        if (kept := self._kept_socket_directory(prefix)) is not None:
            return kept
        parents = [Path(tempfile.gettempdir()).resolve(), Path("/tmp").resolve()]  # noqa: S108
        for parent in parents:
            if _fits_socket(parent / f"{prefix}-{'x' * 8}") and (
                self.account is None or system_user.can_pass(self.account, parent)
            ):
                # Of a name that nobody knows before, so that nobody can have made it.
                made = Path(tempfile.mkdtemp(prefix=f"{prefix}-", dir=parent))
                self._hand_over(made)
                return made
        raise exceptions.EmbeddedServerError(
            f"PostgreSQL can have no socket in {self.data}, for the path is too long or too odd, "
            f"nor in {' or '.join(map(str, parents))}. Set ITEMGRAPH_DATA_DIR to a shorter path."
        )

    def _kept_socket_directory(self, prefix: str) -> Path | None:
        """Return the last one, where those who use a server that died look for it, if it is ours.

        It is made again where somebody has cleaned up.
        """
        with suppress(FileNotFoundError):
            found = _SOCKET_DIRECTORY.search((self.directory / "itemgraph.conf").read_text())
            if found is None or not (path := Path(found[1])).name.startswith(prefix):
                return None
            with suppress(OSError):
                self._make_private(path)
            status = path.lstat()
            is_private = stat.S_ISDIR(status.st_mode) and not status.st_mode & 0o077
            return path if is_private and status.st_uid == self.owner else None
        return None

    def _make_private(self, path: Path) -> None:
        path.mkdir(mode=0o700)
        self._hand_over(path)

    def _hand_over(self, path: Path) -> None:
        if self.account:
            os.chown(path, self.account.pw_uid, self.account.pw_gid)

    def _check_run(self, program: Path, *arguments: str, **options: Any) -> str:
        code, output = self._run(program, *arguments, **options)
        if code:
            raise exceptions.EmbeddedServerError(f"{program.name} failed: {output.strip()}")
        return output

    def _run(
        self,
        program: Path,
        *arguments: str,
        directory: Path,
        input_text: str = "",
        inherit: tuple[int, ...] = (),
        as_account: bool = True,
    ) -> tuple[int, str]:
        """Run one of PostgreSQL's programs in a directory, as its account."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PG")}
        # Files, not pipes: a pipe stays open as long as the server that inherits it.
        with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as source:
            source.write(input_text)
            source.seek(0)
            try:
                code = subprocess.run(  # noqa: S603
                    [program, *arguments],
                    **system_user.run_as(self.account if as_account else None),
                    cwd=directory,
                    env=environment | {"LC_ALL": "C"},
                    stdin=source,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    pass_fds=inherit,
                    start_new_session=True,
                    check=False,
                    timeout=_ENDS_WITHIN,
                ).returncode
            except (OSError, subprocess.TimeoutExpired) as error:
                return 1, f"{program.name}: {error}"
            output.seek(0)
            return code, output.read()


def _version(place: Path) -> int | None:
    """Return the version of PostgreSQL that made the cluster at a place; None: there is none."""
    try:
        return int((place / data_directory.CLUSTER / "PG_VERSION").read_text())
    except (FileNotFoundError, ValueError):
        return None


def _fits_socket(directory: Path) -> bool:
    return len(os.fsencode(directory / f".s.PGSQL.{PORT}")) <= SOCKET_PATH_LIMIT
