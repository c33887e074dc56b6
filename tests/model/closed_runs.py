"""Runs that their spider closes, what they leave, and how they go on: on both."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa
from support import graphs

from scrapy_itemgraph.postgres import engine
from scrapy_itemgraph.store.registry import crawl_ends, crawls, left_sweeps, runs

if TYPE_CHECKING:
    from model.both import Both

    from scrapy_itemgraph.model import operations as ops

STATE = sa.text("""
    SELECT c.state, r.is_finished, r.is_closed, r.continued_at IS NOT NULL AS was_continued,
        EXISTS (SELECT FROM work w WHERE w.crawl_id = c.id) AS has_work
    FROM crawls c JOIN runs r ON r.crawl_id = c.id AND r.number = c.run WHERE c.id = :crawl
""")


def close(both: Both) -> None:
    """Let the spider close the run, as its worker does."""
    tasks = both.model.tasks.items()
    kept = [name for name, task in tasks if task.is_callback and task.ttl is not None]
    with graphs.committed(both.connection):
        assert crawl_ends.close(
            both.connection, both.ours.id, both.run, "enough", worker_id=1, incremental=kept
        )
    both.model.close_run()


def hold_left(both: Both) -> None:
    """Hold what the run has left, as the last of its processes does."""
    is_open = True
    while is_open:
        with graphs.committed(both.connection):
            engine.hot_path(both.connection)
            crawls.share_crawl(both.connection, both.ours.id)
            is_open = left_sweeps.do_step(both.connection, both.ours.id, before=both.run + 1)
    both.model.leave(both.run)


def act(both: Both, given: tuple[ops.Operation, ...]) -> None:
    """Act from outside on a crawl at its end: new work, and that alone, has it go on."""
    before = set(both.model.work)
    both.apply(*given)
    stored = both.connection.execute(STATE, {"crawl": both.ours.id}).one()
    is_awake = stored.state == "active"
    assert is_awake == (not stored.is_finished), stored
    assert stored.was_continued or not is_awake, stored
    new = {pair for pair in both.model.work.keys() - before if pair in both.model.claimable()}
    assert is_awake or not new, f"not awake, though there is {[*map(both.shown, new)]}"
    assert given or not is_awake, "awake, though nothing happened"
    if is_awake:
        both.model.awaken()


def start(both: Both, *, continues: bool) -> None:
    """Start a process by hand: one that continues, where there is something, or begins a run."""
    if not continues or _start(both, continues=True):
        _start(both, continues=False)


def _start(both: Both, *, continues: bool) -> bool:
    with graphs.committed(both.connection):
        run = runs.join(both.connection, both.ours.id, continues=continues)
    stored = both.connection.execute(STATE, {"crawl": both.ours.id}).one()
    is_over = both.model.start_run(continues=continues)
    both.run = run.number
    assert run.number == both.model.run
    assert run.is_continued == both.model.is_continued
    if is_over == stored.has_work:  # of an item that is gone somebody has a claim
        assert not both.model.work
    else:
        assert run.is_over == is_over == stored.is_finished
    return is_over
