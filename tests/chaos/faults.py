"""Faults: what strikes a field, each until it is over."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chaos.field import LEASE, until
from scrapy_itemgraph.graph import ItemGraph

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from chaos.field import Field

FAULTS: dict[str, Callable[[Field, Strike], None]] = {}


@dataclass(slots=True)
class Strike:
    """How a fault is carried out: its choices, and how many seconds what lasts may last."""

    choice: random.Random
    longest: float

    def victim(self, field: Field) -> subprocess.Popen:
        """Choose a worker that runs."""
        running = [worker for worker in field.workers if worker.poll() is None]
        worker = self.choice.choice(running or field.workers)
        field.wait_until_it_crawls(worker)
        return worker


def fault(strike: Callable[[Field, Strike], None]) -> Callable[[Field, Strike], None]:
    """Make a function a fault of its name."""
    FAULTS[strike.__name__.replace("_", " ")] = strike
    return strike


@fault
def kill_a_worker(field: Field, strike: Strike) -> None:
    """Kill -9."""
    victim = strike.victim(field)
    victim.kill()
    field.replace(victim)


@fault
def kill_all_workers(field: Field, strike: Strike) -> None:
    """Kill -9 of all at once."""
    victims = list(field.workers)
    strike.victim(field)
    for victim in victims:
        victim.kill()
    field.replace(*victims)


@fault
def freeze_a_worker(field: Field, strike: Strike) -> None:
    """Stop it past its lease, then let it go on: others have its work."""
    victim = strike.victim(field)
    victim.send_signal(signal.SIGSTOP)
    time.sleep(LEASE + strike.choice.uniform(1, 3))
    victim.send_signal(signal.SIGCONT)


@fault
def interrupt_a_worker(field: Field, strike: Strike) -> None:
    """Send SIGINT: it ends by itself."""
    victim = strike.victim(field)
    victim.send_signal(signal.SIGINT)
    field.replace(victim)


@fault
def interrupt_a_worker_twice(field: Field, strike: Strike) -> None:
    """Send SIGINT, and again before it has ended."""
    victim = strike.victim(field)
    victim.send_signal(signal.SIGINT)
    time.sleep(strike.choice.uniform(0, 0.3))
    victim.send_signal(signal.SIGINT)
    field.replace(victim)


@fault
def block_a_loop(field: Field, strike: Strike) -> None:
    """Have a callback block the event loop past the lease."""
    seconds = LEASE + strike.choice.uniform(0.5, 2)
    block = field.directory / "block"
    block.write_text(str(seconds))
    until(lambda: not block.exists() or field.is_over)  # a worker that has the website's slot
    time.sleep(seconds)


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
    field.done()


@fault
def stop_postgres_at_once(field: Field, _: Strike) -> None:
    """Shut down immediately, so that the next start recovers."""
    field.signal_postgres(signal.SIGQUIT)
    field.done()


@fault
def restart_postgres(field: Field, _: Strike) -> None:
    """Shut down fast, which ends all transactions, and start."""
    field.signal_postgres(signal.SIGINT)
    field.done()


@fault
def cut_connections(field: Field, _: Strike) -> None:
    """Close all connections, as a network may."""
    field.proxy.cut()


@fault
def freeze_the_network(field: Field, strike: Strike) -> None:
    """Pass nothing on for a while, and tell nobody."""
    field.proxy.freeze()
    time.sleep(strike.choice.uniform(1, strike.longest))
    field.proxy.thaw()


@fault
def swallow_answers(field: Field, _: Strike) -> None:
    """Pass nothing on any more on present connections, not even that a commit is done."""
    field.proxy.forget()


@fault
def lock_tables(field: Field, strike: Strike) -> None:
    """Lock the tables that each claim and commit needs."""
    with field.connection() as connection, connection.transaction():
        connection.execute("LOCK TABLE items, work, results IN ACCESS EXCLUSIVE MODE")
        time.sleep(strike.choice.uniform(1, strike.longest))


@fault
def disable_tasks(field: Field, strike: Strike) -> None:
    """Disable a task, and enable it again, as a person may."""
    with ItemGraph.open(field.url, crawl="s") as graph:
        task = strike.choice.choice(["parse", "digest"])
        graph.disable(task)
        time.sleep(strike.choice.uniform(0.5, 3))
        graph.enable(task)
    # Where nothing else was left to do, crawls have finished.
    field.replace(*(worker for worker in field.workers if worker.poll() is not None))


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
