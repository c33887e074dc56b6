"""PostgreSQL servers for tests."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from scrapy_itemgraph.postgres.embedded_server import EmbeddedServer
from scrapy_itemgraph.postgres.urls import normalise_url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# The folder of PostgreSQL's programs: Debian's of version 15, or another's.
PROGRAMS = Path(os.environ.get("ITEMGRAPH_TEST_SERVER") or "/usr/lib/postgresql/15/bin")
PASSWORD = "open sesame"
END_SESSIONS = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s"
PATIENCE = 60.0  # seconds
# Tests do not survive a power cut, and what is undone then may take little room.
UNSAFE = {
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "max_wal_size": "256MB",
}
_MEMORY = "/dev/shm"
_ROOM = 4 << 30  # bytes: some servers at once, each with some databases


@dataclass(frozen=True)
class Server:
    """A server that listens on TCP, where it wants the password."""

    port: int
    directory: Path
    run: Callable[..., None]

    def start(self) -> None:
        """Start it, and wait until it answers."""
        log = self.directory / "data" / "log"
        self.run("pg_ctl", "-w", "-l", log, "start", stdout=subprocess.DEVNULL)

    def promote(self) -> None:
        """Make a standby the primary, and wait until it is."""
        self.run("pg_ctl", "promote", "-w", stdout=subprocess.DEVNULL)

    def fall_behind(self) -> None:
        """Have a standby get nothing more of its primary."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET primary_conninfo = ''")
            connection.execute("SELECT pg_reload_conf()")
            deadline = time.monotonic() + PATIENCE
            while connection.execute("SELECT FROM pg_stat_wal_receiver").fetchone() is not None:
                assert time.monotonic() < deadline, "the standby goes on receiving"
                time.sleep(0.02)  # looking again is all the waiting there is

    def kill(self) -> None:
        """End it as a machine ends that loses its power: no process of it does anything more."""
        postmaster = int((self.directory / "data" / "postmaster.pid").read_text().split()[0])
        children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
        for process in (postmaster, *map(int, children)):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    def stop(self, *, check: bool = True) -> None:
        """Stop it at once, as a crash would."""
        self.run("pg_ctl", "-w", "-m", "immediate", "stop", stdout=subprocess.DEVNULL, check=check)

    @property
    def url(self) -> str:
        return self.url_for()

    def url_for(self, *, user="postgres", password=PASSWORD, database="postgres") -> str:
        """Return the URL of a login and database of this server."""
        quoted = password.replace(" ", "%20")
        return f"postgresql://{user}:{quoted}@127.0.0.1:{self.port}/{database}"


@contextmanager
def own_postgres(parent: Path | None = None) -> Iterator[Server]:
    """Run a PostgreSQL on a free port: Debian's 15, or what ITEMGRAPH_TEST_SERVER names.

    Its files are in a directory of its own, under `parent` if that is given. Where its programs
    are not installed, the test is skipped.
    """
    if not (PROGRAMS / "postgres").exists():
        pytest.skip(f"PostgreSQL is not installed in {PROGRAMS}")
    with tempfile.TemporaryDirectory(prefix="itemgraph-server-", dir=parent or _place()) as name:
        directory = Path(name)
        (directory / "password").write_text(PASSWORD)
        account = _account(directory)

        run = _runner(directory, account)
        quiet = {"stdout": subprocess.DEVNULL}
        run(
            "initdb",
            *("-U", "postgres", "-E", "UTF8", "--no-locale", "--no-sync"),
            *("--auth-local=trust", "--auth-host=scram-sha-256"),
            f"--pwfile={directory / 'password'}",
            **quiet,
        )
        port = _free_port()
        settings = {
            "port": port,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": directory,
            "max_connections": 100,
            **UNSAFE,
        }
        with (directory / "data" / "postgresql.conf").open("a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in settings.items())
        one = Server(port, directory, run)
        one.start()
        try:
            yield one
        finally:
            one.stop(check=False)


@contextmanager
def standby(primary: Server, *, is_synchronous: bool = True) -> Iterator[Server]:
    """Run a standby of a server on a port of its own; each commit waits until it has it, too.

    One that is not synchronous has it a moment later. The test is skipped where PostgreSQL comes
    without the program that copies a cluster.
    """
    if not (PROGRAMS / "pg_basebackup").exists():
        pytest.skip(f"there is no pg_basebackup in {PROGRAMS}")
    with _copy(primary, _free_port(), "--write-recovery-conf") as one:
        one.start()
        try:
            if not is_synchronous:
                yield one
                return
            with psycopg.connect(primary.url, autocommit=True) as connection:
                connection.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
                connection.execute("SELECT pg_reload_conf()")
                synchronous = "SELECT FROM pg_stat_replication WHERE sync_state = 'sync'"
                deadline = time.monotonic() + PATIENCE
                while connection.execute(synchronous).fetchone() is None:
                    assert time.monotonic() < deadline, "the standby does not follow"
                    time.sleep(0.02)  # looking again is all the waiting there is
            yield one
        finally:
            one.stop(check=False)


@contextmanager
def backup(primary: Server) -> Iterator[Server]:
    """Copy a server as it is now; started, which is the caller's, the copy takes its place."""
    with _copy(primary, primary.port) as one:
        try:
            yield one
        finally:
            one.stop(check=False)


@contextmanager
def _copy(primary: Server, port: int, *options: str) -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix="itemgraph-standby-", dir=_place()) as name:
        directory = Path(name)
        run = _runner(directory, _account(directory))
        run(
            "pg_basebackup",
            *("-h", "127.0.0.1", "-p", str(primary.port), "-U", "postgres"),
            *(*options, "--checkpoint=fast", "--no-sync", "--no-manifest"),
            env=os.environ | {"PGPASSWORD": PASSWORD},
        )
        with (directory / "data" / "postgresql.auto.conf").open("a") as file:
            file.write(f"port = {port}\nunix_socket_directories = '{directory}'\n")
        yield Server(port, directory, run)


def alone(url: str, database: str, statement: str) -> None:
    """Run a statement for which nobody may be connected to a database, on the server of a URL."""
    admin_url = normalise_url(url).set(drivername="postgresql", database="postgres")
    where = admin_url.render_as_string(hide_password=False)
    with psycopg.connect(where, autocommit=True) as admin:
        while True:
            admin.execute(END_SESSIONS, [database])
            try:
                admin.execute(statement)
            except psycopg.errors.ObjectInUse:
                admin.rollback()
            else:
                return


@contextmanager
def small_disk(megabytes: int) -> Iterator[Path]:
    """Yield a directory with so much space, or skip the test where it cannot be mounted."""
    with tempfile.TemporaryDirectory(prefix="itemgraph-disk-") as name:
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=755", "tmpfs", name],
            check=False,
            capture_output=True,
        )
        if mounted.returncode:
            pytest.skip("only root can mount a small disk, and not in every container")
        try:
            yield Path(name)
        finally:
            subprocess.run(["umount", "-l", name], check=True)


@contextmanager
def open_directory() -> Iterator[Path]:
    """Yield a new directory that PostgreSQL's account can pass to, as it cannot to pytest's own.

    Without it the server of a test that root runs would have its files in /var/lib.
    """
    with tempfile.TemporaryDirectory(
        prefix="itemgraph-", dir=_place(), ignore_cleanup_errors=True
    ) as name:
        Path(name).chmod(0o711)
        yield Path(name)


def _place() -> str | None:
    """Return where files of tests go: memory where it has room, else where Python has them.

    A new database is 300 files, and making them on a disk costs several times the CPU.
    """
    has_room = Path(_MEMORY).is_dir() and shutil.disk_usage(_MEMORY).free > _ROOM
    return _MEMORY if has_room and os.access(_MEMORY, os.W_OK) else None


@contextmanager
def embedded_postgres(**settings: str) -> Iterator[str]:
    """Run our embedded server with settings in a directory of its own, and yield its URL."""
    with open_directory() as directory:
        server = EmbeddedServer.start(directory)
        plain = server.url.replace("+psycopg", "")
        with psycopg.connect(plain, autocommit=True) as connection:
            for name, value in {**UNSAFE, **settings}.items():
                connection.execute(f"ALTER SYSTEM SET {name} = '{value}'")
        server.close()
        server = EmbeddedServer.start(directory)
        try:
            yield server.url
        finally:
            server.close()


@contextmanager
def durable_postgres() -> Iterator[str]:
    """Run our embedded server on disk, which syncs each commit there as users have it."""
    with tempfile.TemporaryDirectory(prefix="itemgraph-durable-") as name:
        Path(name).chmod(0o711)
        server = EmbeddedServer.start(Path(name))
        try:
            yield server.url
        finally:
            server.close()


@contextmanager
def unwatched(directory: Path) -> Iterator[EmbeddedServer]:
    """Run our embedded server so that nobody starts it again: for a crawl, somebody else's."""
    server = EmbeddedServer.start(directory)
    server._restarts.end()
    try:
        yield server
    finally:
        server.close()


@contextmanager
def server(**settings: str) -> Iterator[str]:
    """Yield the URL of the server that the environment asks for.

    By default it is the embedded one, with `settings`.
    """
    if url := os.environ.get("ITEMGRAPH_TEST_DATABASE_URL"):
        yield url
    elif os.environ.get("ITEMGRAPH_TEST_SERVER"):
        with own_postgres() as one:
            yield one.url
    elif "PGHOST" in os.environ or "PGSERVICE" in os.environ:
        yield f"postgresql:///{os.environ.get('PGDATABASE', 'postgres')}"
    else:
        with embedded_postgres(**settings) as url:
            yield url


def _runner(directory: Path, account: dict) -> Callable[..., None]:
    """Return what runs one of PostgreSQL's programs on the cluster of a directory."""

    def run(program, *arguments, check=True, **options):
        command = [PROGRAMS / program, "-D", directory / "data", *arguments]
        subprocess.run(command, check=check, cwd=directory, **account, **options)

    return run


def _account(directory: Path) -> dict:
    """Give the directory to an unprivileged user when we are root, which PostgreSQL refuses."""
    if os.geteuid() != 0:
        return {}
    try:
        entry = pwd.getpwnam("postgres")
    except KeyError:  # that account comes with Debian's package
        entry = pwd.getpwnam("nobody")
    for path in (directory, *directory.iterdir()):
        os.chown(path, entry.pw_uid, entry.pw_gid)
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
