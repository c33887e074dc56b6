"""Runs of the benchmark: processes that work side by side, and what they and PostgreSQL took."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ours
import psutil
import psycopg
import sqlalchemy as sa

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
REQUIREMENTS = HERE / "requirements.txt"
PATIENCE = 120.0  # seconds


@dataclass(frozen=True)
class Contestant:
    """Who works, by which script, with which options; `batch` is how much at once."""

    name: str
    script: str
    batch: int
    options: dict[str, Any]
    database: str = "dbname"  # what its driver calls a database

    @property
    def is_ours(self) -> bool:
        return self.script == "ours.py"

    @property
    def command(self) -> list[str | Path]:
        python = Path(sys.executable) if self.is_ours else own_python()
        return [python, HERE / self.script]

    def fill(self, url: str, count: int) -> None:
        """Fill an empty database with items that have work."""
        if self.is_ours:
            ours.fill(url, count=count)
        else:
            self._ask({"what": "fill", "where": where(url, self.database), "count": count})

    def written(self, url: str) -> list[int]:
        """Return how many cycles are in the database, counted by each of what they write."""
        if self.is_ours:
            return [ours.written(url)]
        return json.loads(self._ask({"what": "written", "where": where(url, self.database)}))

    def _ask(self, given: dict[str, Any]) -> str:
        done = subprocess.run(
            [*self.command, json.dumps(given)], check=True, stdout=subprocess.PIPE, text=True
        )
        return done.stdout


CONTESTANTS = (
    Contestant("ours-25", "ours.py", 25, {}),
    Contestant("ours-100", "ours.py", 100, {}),
    Contestant("pgqueuer", "on_pgqueuer.py", 100, {"way": "manager"}, "database"),
    Contestant("pgqueuer-batches", "on_pgqueuer.py", 100, {"way": "batches"}, "database"),
    Contestant("procrastinate", "on_procrastinate.py", 8, {"deletes": "never"}),
)


@dataclass(frozen=True)
class Run:
    """What was measured in a run: cycles a second, and of each cycle milliseconds and bytes."""

    rate: float
    client_cpu: float
    server_cpu: float
    wal: float


def own_python() -> Path:
    """Return the Python of the benchmark's own venv, which is made, or brought up to date."""
    home = ROOT / ".venv-bench"
    python, stamp = home / "bin" / "python", home / ".worklist"
    wanted = REQUIREMENTS.read_text()
    if not stamp.exists() or stamp.read_text() != wanted:
        if not python.exists():
            venv.create(home, with_pip=True)
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "-r", REQUIREMENTS], check=True)
        stamp.write_text(wanted)
    return python


def where(url: str, name: str = "dbname") -> dict[str, Any]:
    """Return what a driver is given to connect to a URL; `name` is what it calls the database."""
    parsed = sa.make_url(url)
    given = {
        "host": parsed.host or parsed.query.get("host"),
        "port": parsed.port or parsed.query.get("port"),
        "user": parsed.username,
        "password": parsed.password,
    }
    kept = {key: one for key, one in given.items() if one is not None}
    return {**kept, "port": int(kept.get("port", 5432)), name: parsed.database}


class Server:
    """A server on this machine, whose CPU and WAL are read."""

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(**where(url), autocommit=True)
        (directory,) = self._one("SHOW data_directory")
        self._postmaster = int((Path(directory) / "postmaster.pid").read_text().split()[0])

    @property
    def version(self) -> str:
        return str(self._one("SHOW server_version")[0])

    def cpu(self) -> float:
        """Return the seconds of CPU of all its processes, those that ended included."""
        postmaster = psutil.Process(self._postmaster)
        used = 0.0
        for process in (postmaster, *postmaster.children()):
            try:
                times = process.cpu_times()
            except psutil.NoSuchProcess:  # the postmaster has its time now
                continue
            used += times.user + times.system
            if process == postmaster:
                used += times.children_user + times.children_system
        return used

    def connections(self, url: str) -> int:
        """Return how many connections clients have to a database now."""
        query = (
            "SELECT count(*) FROM pg_stat_activity "
            f"WHERE datname = '{sa.make_url(url).database}' AND backend_type = 'client backend'"
        )
        return int(self._one(query)[0])

    def wal(self) -> int:
        """Return how many bytes of WAL were ever written."""
        return int(self._one("SELECT pg_current_wal_lsn() - '0/0'")[0])

    def close(self) -> None:
        self._connection.close()

    def _one(self, query: str) -> tuple[Any, ...]:
        row = self._connection.execute(query).fetchone()
        assert row is not None
        return row


def run(
    one: Contestant, server: Server, url: str, *, workers: int, warm: float, seconds: float
) -> Run:
    """Let so many workers work on a filled database, and measure them.

    Raises:
        RuntimeError: when what they say they committed is not what is in the database.

    """
    given = {
        "what": "work",
        "url": url,
        "where": where(url, one.database),
        "batch": one.batch,
        **one.options,
    }
    processes = [
        subprocess.Popen(
            [
                *one.command,
                json.dumps({**given, "worker": number, "warm": warm, "seconds": seconds}),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(workers)
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                raise RuntimeError(f"a worker of {one.name} did not get ready")
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        time.sleep(warm)
        before = server.cpu(), server.wal(), time.perf_counter()
        time.sleep(seconds)
        cpu, wal, passed = (
            now - then
            for now, then in zip(
                (server.cpu(), server.wal(), time.perf_counter()), before, strict=True
            )
        )
        done = [json.loads(process.communicate(timeout=PATIENCE)[0]) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    total = sum(each["total"] for each in done)
    if set(one.written(url)) != {total}:
        raise RuntimeError(f"{one.name}: {total} committed, but {one.written(url)} in the database")
    rate = sum(each["committed"] / each["seconds"] for each in done)
    cycles = rate * passed
    return Run(
        rate=rate,
        client_cpu=sum(each["cpu"] / each["seconds"] for each in done) / rate * 1000,
        server_cpu=cpu / cycles * 1000,
        wal=wal / cycles,
    )


def chosen(names: str) -> Iterator[Contestant]:
    """Yield the contestants that are named, each also by its name before the dash."""
    for one in CONTESTANTS:
        if {one.name, one.name.partition("-")[0], "all"} & set(names.split(",")):
            yield one
