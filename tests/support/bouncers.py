"""PgBouncer in front of a test's database."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE = 60.0
CONFIGURATION = """\
[databases]
{database} = host={host} port={port} user={user}{secret}
[pgbouncer]
listen_addr =
unix_socket_dir = {directory}
listen_port = 6432
auth_type = any
auth_file = {directory}/users
pool_mode = {mode}
default_pool_size = {pool_size}
query_wait_timeout = {query_wait_timeout}
max_client_conn = 1000
"""


@contextmanager
def bouncer(
    engine: sa.Engine, mode: str, *, pool_size: int = 20, query_wait_timeout: int = 120
) -> Iterator[str]:
    """Run PgBouncer in a mode; yield the URL of the engine's database through it."""
    program = shutil.which("pgbouncer") or "/usr/sbin/pgbouncer"
    if not Path(program).exists():
        pytest.skip("PgBouncer is not installed (apt-get install pgbouncer)")
    with engine.connect() as probe:
        info = probe.connection.driver_connection.info
        upstream = {"host": info.host, "port": info.port, "user": info.user}
        secret = f" password='{info.password}'" if info.password else ""
    with tempfile.TemporaryDirectory(prefix="itemgraph-") as name:
        directory = Path(name)
        directory.chmod(0o777)
        (directory / "users").write_text(f'"{upstream["user"]}" ""\n')
        (directory / "ini").write_text(
            CONFIGURATION.format(
                database=engine.url.database,
                directory=directory,
                secret=secret,
                mode=mode,
                pool_size=pool_size,
                query_wait_timeout=query_wait_timeout,
                **upstream,
            )
        )
        running = subprocess.Popen(
            [program, "-q", directory / "ini"], stderr=subprocess.DEVNULL, **_unprivileged()
        )
        try:
            _until_it_listens(running, directory / ".s.PGSQL.6432")
            yield sa.URL.create(
                "postgresql",
                username=upstream["user"],
                database=engine.url.database,
                query={"host": name, "port": "6432"},
            ).render_as_string(hide_password=False)
        finally:
            running.terminate()
            running.wait()


def _until_it_listens(running: subprocess.Popen, socket: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while not socket.exists():
        assert running.poll() is None, "PgBouncer did not start"
        assert time.monotonic() < deadline
        time.sleep(0.005)  # looking again is all the waiting there is


def _unprivileged() -> dict:
    """Run it as whoever PostgreSQL runs as, since it refuses root."""
    if os.geteuid() != 0:
        return {}
    accounts = {entry.pw_name: entry for entry in pwd.getpwall()}
    entry = next(accounts[name] for name in ("pgserver", "postgres") if name in accounts)
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
