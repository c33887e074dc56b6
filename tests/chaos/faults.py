"""Faults: what strikes a field, each until it is over."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from functools import wraps
from typing import TYPE_CHECKING

import psycopg
from support import moved_clocks

from chaos.field import CLOCK, DISK, HOSTS, LEASE, PROXIED, Watch, until
from scrapy_itemgraph.graph import ItemGraph
from scrapy_itemgraph.model.rules import PageRule
from scrapy_itemgraph.postgres.migrate import VERSION_TABLE
from scrapy_itemgraph.tools import locks

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from chaos.field import Field

FAULTS: dict[str, Callable[[Field, Strike], None]] = {}
CALM = 0.8  # of the faults; others may strike while a worker starts, or is not over the last one
# In seconds; after these it is struck all the same.
RECOVERS, GETS_WORK = 20.0, 5.0
# What takes space; where there is none for the second one, PostgreSQL ends.
NEW_ROWS = "CREATE TABLE chaos AS SELECT repeat('.', 1000) FROM generate_series(1, 1000)"
NEW_LOG = "SELECT pg_logical_emit_message(false, 'chaos', repeat('.', 1 << 22))"
JUMPS = 0.3, 1.5  # seconds that the clock jumps; aims hold for less than two beyond the lease
LOST = 10  # commits that a restore loses, if there are so many in a while
NEEDS: dict[str, str] = {}  # by the fault: what not every machine allows


@dataclass(slots=True)
class Strike:
    """How a fault is carried out: its choices, and how many seconds what lasts may last."""

    choice: random.Random
    longest: float
    spared: frozenset[int] = frozenset()  # processes that no fault ends
    watches: list[Watch] = field(default_factory=list)

    def lasts(self) -> float:
        """Choose how many seconds something lasts: one in five may last as long as allowed."""
        share = 1.0 if self.choice.random() < 0.2 else 0.2
        return self.choice.uniform(1, max(2, self.longest * share))

    def victim(self, field: Field) -> subprocess.Popen:
        """Choose a worker that crawls; mostly one that has work, while the others work as well."""
        worker = self.choice.choice(field.workers)
        field.wait_until_it_crawls(worker)
        if self.choice.random() < CALM:
            field.wait_until_all_crawl()
            with suppress(TimeoutError):
                until(field.all_have_committed, RECOVERS)
                until(lambda: field.claims_of(worker), GETS_WORK)
        return worker

    def mortal(self, field: Field) -> subprocess.Popen:
        """Choose a worker that may be ended."""
        while (worker := self.victim(field)).pid in self.spared:
            pass
        return worker

    def watch(self, field: Field, *victims: subprocess.Popen) -> None:
        """Look from now on when the claims of workers are others', if others can take them."""
        others = [worker for worker in field.workers if worker not in victims]
        if not others or any(field.crawls(worker) for worker in others):
            self.watches.append(Watch(field, *(victim.pid for victim in victims)))


def fault(
    strike: Callable[[Field, Strike], None], needs: str = ""
) -> Callable[[Field, Strike], None]:
    """Make a function a fault of its name."""
    name = strike.__name__.replace("_", " ")
    FAULTS[name] = strike
    if needs:
        NEEDS[name] = needs
    return strike


def long_fault(
    strike: Callable[[Field, Strike], None], needs: str = ""
) -> Callable[[Field, Strike], None]:
    """Make a function a fault that strikes when all crawl: no start goes on without a database."""

    @wraps(strike)
    def strikes(field: Field, how: Strike) -> None:
        field.wait_until_all_crawl()
        strike(field, how)

    return fault(strikes, needs)


@fault
def kill_a_worker(field: Field, strike: Strike) -> None:
    """Kill -9."""
    victim = strike.mortal(field)
    victim.kill()
    strike.watch(field, victim)
    field.replace(victim)


@fault
def kill_all_workers(field: Field, strike: Strike) -> None:
    """Kill -9 of all at once."""
    strike.mortal(field)
    victims = [worker for worker in field.workers if worker.pid not in strike.spared]
    for victim in victims:
        victim.kill()
    strike.watch(field, *victims)
    field.replace(*victims)


@fault
def freeze_a_worker(field: Field, strike: Strike) -> None:
    """Stop it past its lease, then let it go on: others have its work."""
    victim = strike.victim(field)
    victim.send_signal(signal.SIGSTOP)
    strike.watch(field, victim)
    time.sleep(LEASE + strike.choice.uniform(1, 3))
    victim.send_signal(signal.SIGCONT)


@fault
def interrupt_a_worker(field: Field, strike: Strike) -> None:
    """Send SIGINT: it ends by itself."""
    victim = strike.mortal(field)
    victim.send_signal(signal.SIGINT)
    strike.watch(field, victim)
    field.replace(victim)


@fault
def interrupt_a_worker_twice(field: Field, strike: Strike) -> None:
    """Send SIGINT, and again before it has ended."""
    victim = strike.mortal(field)
    victim.send_signal(signal.SIGINT)
    strike.watch(field, victim)
    time.sleep(strike.choice.uniform(0, 0.3))
    victim.send_signal(signal.SIGINT)
    field.replace(victim)


@fault
def block_a_loop(field: Field, strike: Strike) -> None:
    """Have a callback block the event loop past the lease."""
    seconds = LEASE + strike.choice.uniform(0.5, 2)
    block = field.directory / "block"
    block.write_text(str(seconds))
    until(lambda: not block.exists() or field.is_over)
    for worker in field.workers:
        if (field.directory / f"blocked-{worker.pid}").exists():
            strike.watch(field, worker)
    time.sleep(seconds)
    for blocked in field.directory.glob("blocked-*"):
        blocked.unlink()


@fault
def terminate_backends(field: Field, _: Strike) -> None:
    """Terminate every connection to the database."""
    field.ask(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )


@fault
def kill_postgres(field: Field, _: Strike) -> None:
    """Kill -9 of the postmaster."""
    field.signal_postgres(signal.SIGKILL)
    field.progress()  # it answers again


@fault
def kill_postgres_as_it_starts(field: Field, strike: Strike) -> None:
    """Kill -9 of the postmaster, and of those that are started in its place, at once."""
    for _ in range(strike.choice.randint(2, 4)):
        before = field.postmaster()
        field.signal_postgres(signal.SIGKILL, pause=0.0)
        until(lambda before=before: field.postmaster() not in {None, before})  # type: ignore[misc]
    field.progress()  # it answers again


@fault
def stop_postgres_at_once(field: Field, _: Strike) -> None:
    """Shut down immediately, so that the next start recovers."""
    field.signal_postgres(signal.SIGQUIT)
    field.progress()  # it answers again


@fault
def restart_postgres(field: Field, _: Strike) -> None:
    """Shut down fast, which ends all transactions, and start."""
    field.signal_postgres(signal.SIGINT)
    field.progress()  # it answers again


@fault
def cut_connections(field: Field, _: Strike) -> None:
    """Close all connections, as a network may."""
    field.proxy.cut()


@long_fault
def freeze_the_network(field: Field, strike: Strike) -> None:
    """Pass nothing on for a while, and tell nobody."""
    field.proxy.freeze()
    time.sleep(strike.lasts())
    field.proxy.thaw()


@fault
def swallow_answers(field: Field, _: Strike) -> None:
    """Pass nothing on any more on present connections, not even that a commit is done."""
    field.proxy.forget()


@fault
def lock_tables(field: Field, strike: Strike) -> None:
    """Lock the tables that each claim and commit needs."""
    seconds = strike.lasts()
    with field.connect() as connection:
        while True:
            try:
                with connection.transaction():
                    connection.execute("LOCK TABLE items, work, results IN ACCESS EXCLUSIVE MODE")
                    time.sleep(seconds)
            except psycopg.errors.DeadlockDetected:  # it got some of them, and a worker others
                continue
            return


@fault
def disable_tasks(field: Field, strike: Strike) -> None:
    """Disable a task, and enable it again, as a person may."""
    with ItemGraph.open(field.url, crawl="s") as graph:
        task = strike.choice.choice(["parse", "digest"])
        graph.tasks.disable(task)
        time.sleep(strike.choice.uniform(0.5, 3))
        graph.tasks.enable(task)
    # Where nothing else was left to do, crawls have finished, or are about to.
    time.sleep(1)
    field.replace(
        *(worker for worker in field.workers if "Closing spider" in field.project.log(worker))
    )


@fault
def change_rules(field: Field, strike: Strike) -> None:
    """Change rules and apply them, again and again; they are about no page of the crawl."""
    with ItemGraph.open(field.url, crawl="s") as graph:
        for number in range(strike.choice.randint(2, 8)):
            match = f"/nowhere/{number}"
            graph.rules.add(PageRule(match=match, skip=True), by="chaos")
            graph.rules.apply()
            time.sleep(strike.choice.uniform(0, 0.5))
            graph.rules.remove(match, by="chaos")


@long_fault
def have_a_newer_schema(field: Field, strike: Strike) -> None:
    """Have workers go on under a newer schema: tables get a column more, and lose it again."""
    version = field.ask(f"SELECT version_num::int FROM {VERSION_TABLE}")
    for change, number in (
        ("ADD COLUMN chaos int", "9999"),
        ("DROP COLUMN chaos", f"{version:04}"),
    ):
        for table in ("work", "items", "results", "attempts"):
            with field.connect() as connection:
                connection.execute(f"ALTER TABLE {table} {change}")
        with field.connect() as connection:
            connection.execute(f"UPDATE {VERSION_TABLE} SET version_num = %s", [number])
        before = field.progress()
        time.sleep(strike.lasts())
        until(lambda before=before: field.progress() > before)  # type: ignore[misc]


@fault
def stop_who_starts_postgres(field: Field, strike: Strike) -> None:
    """Kill -9 of the postmaster while a process is stopped that has the turn to start it."""
    with locks.locked(field.directory / ".scrapy/itemgraph/start.lock", RECOVERS):
        field.signal_postgres(signal.SIGKILL)
        time.sleep(strike.lasts())
    field.progress()  # it answers again


@fault
def migrate_twice(field: Field, _: Strike) -> None:
    """Migrate twice at once while workers run; the schema is up to date already."""
    command = [sys.executable, "-m", "scrapy", "itemgraph", "migrate", "--force"]
    both = [
        threading.Thread(target=subprocess.run, args=(command,), kwargs={"cwd": field.directory})
        for _ in range(2)
    ]
    for one in both:
        one.start()
    for one in both:
        one.join()


@fault
def raise_a_version(field: Field, strike: Strike) -> None:
    """Deploy code with a higher version of a task to one worker; others go on with the old one."""
    field.wait_until_all_crawl()  # of two that start, nobody knows which comes last
    victim = strike.mortal(field)
    field.raise_version(strike.choice.choice(["parse", "count", "count", "count"]))
    victim.send_signal(signal.SIGINT)
    strike.watch(field, victim)
    field.replace(victim)


def cut_off_a_host(field: Field, strike: Strike) -> None:
    """Cut a host off its database and its sites past the lease of its worker, and bring it back."""
    assert field.host is not None
    field.host.cut_off(at_its_end=strike.choice.random() < 0.5)
    strike.watch(field, field.workers[0])
    time.sleep(LEASE + strike.lasts())
    field.host.bring_back()


def fill_the_disk(field: Field, strike: Strike) -> None:
    """Leave the database no space on its disk for a while, for rows or for its log of changes."""
    assert field.disk is not None
    statement = strike.choice.choice([NEW_ROWS, NEW_LOG])
    with field.disk.full():
        until(lambda: _is_refused(field, statement))
        time.sleep(strike.lasts())
    field.progress()  # the server may have to be started


def move_the_clock(field: Field, strike: Strike) -> None:
    """Have the database's clock jump ahead or back, and after a while the other way."""
    seconds = strike.choice.choice([-1, 1]) * strike.choice.uniform(*JUMPS)
    moved_clocks.move(field.url, seconds)
    time.sleep(strike.lasts())
    moved_clocks.move(field.url, -seconds)


def restore_a_backup(field: Field, strike: Strike) -> None:
    """Put a backup of before the last commits in the place of the database, under workers.

    What is missing then is what is missing after a standby was promoted that was behind.
    """
    backup = field.backup()
    before = field.progress()
    with suppress(TimeoutError):
        until(lambda: field.progress() > before + LOST, GETS_WORK)
    field.proxy.freeze()
    if strike.choice.random() < 0.5:
        field.signal_postgres(signal.SIGINT)
        field.progress()  # it answers again
    field.restore(backup)
    field.proxy.thaw()
    field.proxy.cut()


def _is_refused(field: Field, statement: str) -> bool:
    """Tell whether PostgreSQL says that its disk is full, or even ends for that."""
    try:
        with field.connect() as connection, connection.transaction(force_rollback=True):
            connection.execute(statement)
    except psycopg.OperationalError:
        return True
    return False


long_fault(cut_off_a_host, HOSTS)
long_fault(fill_the_disk, DISK)
long_fault(move_the_clock, CLOCK)
long_fault(restore_a_backup, PROXIED)
