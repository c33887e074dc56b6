"""Crawls in the queue of a project's database, and its runners."""

from __future__ import annotations

import signal
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scrapy_itemgraph.model.crawl_states import Change, NewCrawl
from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.store.registry import crawl_queue
from support.projects import until
from support.queue_replay import Replay

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

    import sqlalchemy as sa

    from support.projects import Project

# So small that a test's machine has it, whatever else runs there.
LITTLE = ("--min-memory", "1M", "--min-disk", "1M", "--stop-after", "5s")


@contextmanager
def transaction(url: str) -> Iterator[sa.Connection]:
    """Yield a connection whose transaction is committed."""
    engine = engines.sync_engine(url)
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


def add(project: Project, *names: str, spider: str = "s", **terms: Any) -> None:
    """Put crawls into the queue, by name."""
    terms.setdefault("arguments", {})
    for name in names:
        new = NewCrawl(spider=spider, name=name, project="proj", settings={}, **terms)
        with transaction(project.url) as connection:
            crawl_queue.add(connection, new, by="ann@test")


def change(project: Project, name: str, what: str) -> None:
    """Pause, resume, abort or revive a crawl."""
    with transaction(project.url) as connection:
        crawl_queue.change(connection, name, Change(what), by="ann@test")


def set_terms(project: Project, name: str, **terms: Any) -> None:
    """Change a crawl's terms."""
    with transaction(project.url) as connection:
        crawl_queue.set_terms(connection, name, terms, by="ann@test")


def work(project: Project, *options: str) -> subprocess.Popen:
    """Start a runner."""
    return project.start("itemgraph", "work", *LITTLE, *options)


def running(project: Project) -> dict[str, int]:
    """Return the processes of the crawls that run, one of each."""
    return dict(
        project.rows(
            "SELECT c.name, j.process_id FROM jobs j JOIN crawls c ON c.id = j.crawl_id "
            "WHERE j.ended_at IS NULL AND j.process_id IS NOT NULL"
        )
    )


def jobs(project: Project) -> list[tuple]:
    """Return (crawl, state, attempts) of each job, in order."""
    return project.rows(
        "SELECT c.name, j.state, j.attempts FROM jobs j "
        "JOIN crawls c ON c.id = j.crawl_id ORDER BY j.id"
    )


def until_running(project: Project, *names: str) -> dict[str, int]:
    """Wait until just these crawls run; return their processes."""
    until(lambda: set(running(project)) == set(names), lambda: f"{jobs(project)} {project.log()}")
    return running(project)


def end(project: Project, runner: subprocess.Popen, *, sticks: float = 30) -> str:
    """Tell a runner to end at once; return its log. Places stuck to crawls for so many seconds."""
    runner.send_signal(signal.SIGTERM)
    until(lambda: "Told to end" in project.log(runner) or runner.poll() is not None)
    if runner.poll() is None:
        runner.send_signal(signal.SIGTERM)
    log = project.finish(runner).log
    replayed(project, sticks)
    return log


def replayed(project: Project, sticks: float = 30) -> Replay:
    """Return what happened to the queue, of which a model finds nothing wrong."""
    with transaction(project.url) as connection:
        replay = Replay(sticks).read(connection)
    assert replay.wrongs == []
    return replay


def is_alive(process_id: int) -> bool:
    """Tell whether a process runs still: one that waits to be waited for does not."""
    with suppress(FileNotFoundError, ProcessLookupError):
        stat = Path(f"/proc/{process_id}/stat").read_text()
        return stat.rpartition(")")[2].split()[0] != "Z"
    return False
