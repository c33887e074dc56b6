"""Starts of crawls by their schedules: when, how often, and what becomes of late ones (SS-6)."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
import sqlalchemy as sa
from support.plans import explaining

from scrapy_itemgraph.exceptions import OperationError
from scrapy_itemgraph.model.crawl_states import Change, NewCrawl
from scrapy_itemgraph.model.schedule_terms import NewSchedule
from scrapy_itemgraph.model.schedules import CatchUp, Overlap, Rule
from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.store import awakening
from scrapy_itemgraph.store.admin import crawl_changes
from scrapy_itemgraph.store.registry import crawl_queue, runs, schedule_starts, schedules

pytestmark = pytest.mark.server

EVERY_SIX_HOURS = Rule.read({"every": "6h"})


class Scheduled:
    """Crawls with schedules; time passes by moving all times of a crawl."""

    def __init__(self, connection) -> None:
        self.connection = connection

    def add(self, name="books", **terms) -> int:
        """Add a crawl at its end, and a schedule of it; return the schedule's number."""
        new = NewCrawl(
            spider=name, name=name, project="p", arguments={}, settings={}, is_scheduled=True
        )
        if not self.run("SELECT FROM crawls WHERE name = :name", name=name):
            crawl_queue.add(self.connection, new, by="ann")
        given = NewSchedule(rule=terms.pop("rule", EVERY_SIX_HOURS), **terms)
        return schedules.add(self.connection, name, given, by="ann")

    def run(self, statement, **given) -> list:
        """Run a statement, and return its rows."""
        done = self.connection.execute(sa.text(statement), given)
        return [tuple(row) for row in done] if done.returns_rows else []

    def pass_by(self, name="books", **period) -> None:
        """Let time pass for a crawl."""
        ((crawl,),) = self.run("SELECT id FROM crawls WHERE name = :name", name=name)
        crawl_changes.age(self.connection, crawl, timedelta(**period))

    def start(self) -> int:
        """Start what is due; return how many steps that took."""
        steps = 0
        while done := schedule_starts.start_due(self.connection):
            steps += done
        assert not schedule_starts.is_anything_due(self.connection)
        return steps

    def jobs(self) -> list:
        """Return the jobs: their states, and why they ended."""
        return self.run("SELECT state, reason FROM jobs ORDER BY id")

    def state(self, name="books") -> str:
        """Return a crawl's state."""
        ((state,),) = self.run("SELECT state FROM crawls WHERE name = :name", name=name)
        return state

    def finish(self, name="books") -> None:
        """Have a crawl come to its end, and its jobs with it."""
        self.run("UPDATE jobs SET state = 'completed', ended_at = now() WHERE ended_at IS NULL")
        self.run("UPDATE crawls SET state = 'finished' WHERE name = :name", name=name)


@pytest.fixture
def scheduled(connection) -> Scheduled:
    """Return an empty database of crawls with schedules."""
    return Scheduled(connection)


def test_a_crawl_at_its_end_begins_another_run_when_it_is_due(scheduled):
    """SS-6: not before, once, behind all who wait, and its history says which schedule it was."""
    number = scheduled.add()
    before = scheduled.start()
    scheduled.pass_by(hours=6)
    first = scheduled.start()
    again = scheduled.start()

    assert (before, first, again) == (0, 2, 0)
    assert scheduled.jobs() == [("pending", None)]
    assert scheduled.state() == "active"
    by = scheduled.run("SELECT by FROM crawl_events WHERE what = 'scheduled'")
    assert by == [(f"schedule {number}",)]
    found = schedules.schedule(scheduled.connection, number)
    assert found.next_at - found.last_at == timedelta(hours=6)
    assert found.missed == 0


def test_a_process_of_a_finished_crawl_that_has_not_exited_skips_no_start(scheduled):
    """The crawl is at its end, and its last process takes a while to exit: the next run waits."""
    scheduled.add()
    scheduled.pass_by(hours=6)
    scheduled.start()
    scheduled.run("UPDATE jobs SET state = 'running', started_at = now()")
    scheduled.run("UPDATE crawls SET state = 'finished'")
    scheduled.pass_by(hours=6)

    scheduled.start()

    assert scheduled.jobs() == [("running", None), ("pending", None)]
    assert scheduled.state() == "active"


@pytest.mark.parametrize(
    ("catch_up", "runs", "missed"),
    [(CatchUp.ONE, 1, 11), (CatchUp.NONE, 0, 12), (CatchUp.ALL, 12, 0)],
)
def test_three_days_without_a_runner(scheduled, catch_up, runs, missed):
    """SS-6: of twelve due times one is made up for, none, or all, one after the other."""
    number = scheduled.add(catch_up=catch_up)
    scheduled.pass_by(days=3, minutes=30)

    begun = 0
    for _ in range(20):
        scheduled.start()
        if scheduled.state() == "active":
            begun += 1
            scheduled.finish()

    assert begun == runs
    assert scheduled.jobs() == [("completed", None)] * runs
    found = schedules.schedule(scheduled.connection, number)
    assert found.missed == missed
    notices = scheduled.run("SELECT what, body->>'missed' FROM notices")
    assert notices == ([("schedule missed", str(missed))] if missed else [])


def test_a_late_start_within_its_grace_is_made_all_the_same(scheduled):
    """SS-6: with catch_up none, a start that is noticed within the grace is not missed."""
    scheduled.add(catch_up=CatchUp.NONE, grace=timedelta(minutes=40))
    scheduled.pass_by(hours=6, minutes=30)
    scheduled.start()

    assert (scheduled.state(), scheduled.jobs()) == ("active", [("pending", None)])


@pytest.mark.parametrize("overlap", list(Overlap))
def test_a_crawl_that_is_active_when_it_is_due(scheduled, overlap):
    """SS-4: its start is recorded as cancelled, or waits until the crawl is at its end."""
    scheduled.add(overlap=overlap)
    scheduled.pass_by(hours=6)
    scheduled.start()
    scheduled.pass_by(hours=12)
    scheduled.start()
    while_active = scheduled.jobs()
    scheduled.finish()
    scheduled.start()

    said = "the crawl was still active when it was due"
    skips = overlap is Overlap.SKIP
    assert while_active == [("pending", None)] + [("cancelled", said)] * skips
    assert scheduled.state() == ("finished" if skips else "active")
    assert len(scheduled.jobs()) == 2


@pytest.mark.parametrize("change", [Change.PAUSE, Change.ABORT])
def test_a_crawl_that_a_person_stopped_is_not_started(scheduled, change):
    """SS-6: the job of that due time says so, and the next one comes as ever."""
    number = scheduled.add()
    crawl_queue.change(scheduled.connection, "books", Change.REVIVE, by="ann")
    crawl_queue.change(scheduled.connection, "books", change, by="ann")
    state = scheduled.state()
    scheduled.pass_by(hours=6)
    scheduled.start()

    assert scheduled.state() == state
    assert scheduled.jobs() == [("cancelled", f"the crawl was {state} when it was due")]
    assert schedules.schedule(scheduled.connection, number).last_at is not None


def test_starts_are_spread_over_their_jitter(scheduled):
    """SS-6: a job waits up to the jitter, the same each time it is asked; then its crawl begins."""
    scheduled.add(jitter=timedelta(hours=2))
    scheduled.pass_by(hours=6)
    scheduled.start()
    ((waits, state),) = scheduled.run(
        "SELECT j.not_before - j.due_at, c.state FROM jobs j JOIN crawls c ON c.id = j.crawl_id"
    )
    scheduled.pass_by(hours=2)
    scheduled.start()

    assert timedelta() < waits < timedelta(hours=2)
    assert (state, scheduled.state()) == ("finished", "active")


@pytest.mark.parametrize("is_removed", [False, True])
def test_a_start_that_waits_ends_with_its_schedule(scheduled, is_removed):
    """SS-6: disabled or removed before its jitter is over, it starts nothing; its crawl rests."""
    number = scheduled.add(jitter=timedelta(hours=2))
    scheduled.add("begun")
    for name in ("books", "begun"):
        scheduled.pass_by(name, hours=6)
    scheduled.start()
    assert scheduled.state() == "finished"
    for one in (number, number + 1):
        if is_removed:
            schedules.remove(scheduled.connection, one, by="ann")
        else:
            schedules.change(scheduled.connection, one, {"is_enabled": False}, by="ann")
    scheduled.pass_by(hours=3)

    assert scheduled.start() == 0
    said = f"its schedule was {'removed' if is_removed else 'disabled'}"
    assert sorted(scheduled.jobs()) == [("cancelled", said), ("pending", None)]
    assert scheduled.state("begun") == "active"


def test_two_schedules_of_a_crawl_start_it_one_after_the_other(scheduled):
    """SS-4: due at once, one of them starts it; the other is skipped, or waits for its end."""
    scheduled.add()
    scheduled.add(overlap=Overlap.QUEUE)
    scheduled.pass_by(hours=6)
    scheduled.start()
    first = scheduled.jobs()
    scheduled.finish()
    scheduled.start()

    assert first == [("pending", None)]
    assert (scheduled.state(), len(scheduled.jobs())) == ("active", 2)


def test_what_is_said_of_a_schedule_is_changed(scheduled):
    """SS-6: another rule is due from now on; disabled it starts nothing, enabled it begins anew."""
    connection, number = scheduled.connection, scheduled.add()
    nightly = Rule.read({"at": "03:00"}, time_zone="Asia/Kathmandu")
    changed = schedules.change(connection, number, {"rule": nightly}, by="bob")
    schedules.change(connection, number, {"is_enabled": False}, by="bob")
    scheduled.pass_by(days=2)
    scheduled.start()
    disabled = scheduled.jobs()
    enabled = schedules.change(connection, number, {"is_enabled": True}, by="bob")
    schedules.remove(connection, number, by="bob")

    assert (str(changed.rule), changed.is_enabled) == ("at 03:00 Asia/Kathmandu", True)
    assert disabled == []
    assert enabled.missed == 0
    assert enabled.next_at == nightly.next_after(enabled.next_at - timedelta(minutes=1))
    assert schedules.schedules(connection) == []
    told = scheduled.run("SELECT count(*) FROM crawl_events WHERE what = 'schedule set'")
    assert told == [(5,)]


def test_due_times_follow_the_time_zones_of_now(scheduled):
    """SS-6: where the rules of a zone are others than before, what is due next is computed anew."""
    number = scheduled.add(rule=Rule.read({"at": "03:00"}, time_zone="Europe/Berlin"))
    right = schedules.schedule(scheduled.connection, number).next_at
    scheduled.run("UPDATE schedules SET next_at = next_at + interval '1 hour'")

    (renewed,) = schedules.renew(scheduled.connection)

    assert (renewed.id, renewed.next_at) == (number, right)
    assert schedules.renew(scheduled.connection) == []


def test_a_schedule_that_cannot_be_read_stops_no_other(scheduled):
    """SS-4: a rule that a statement wrote unchecked is disabled when due, and people are told."""
    connection = scheduled.connection
    ours = [scheduled.add(f"crawl {n}") for n in range(3)]
    scheduled.run("UPDATE schedules SET kind = 'at', spec = '3 am' WHERE id = :id", id=ours[0])
    on_mars = "kind = 'cron', spec = '0 3 * * *', time_zone = 'Mars/Gale'"
    scheduled.run(f"UPDATE schedules SET {on_mars} WHERE id = :id", id=ours[1])
    assert schedules.renew(connection) == []
    scheduled.run("UPDATE schedules SET next_at = clock_timestamp()")
    scheduled.start()

    assert [scheduled.state(f"crawl {n}") for n in range(3)] == ["finished", "finished", "active"]
    found = schedules.schedules(connection)
    assert [(one.is_enabled, one.missed) for one in found] == [(False, 1), (False, 1), (True, 0)]
    (first, second) = scheduled.run("SELECT body->>'reason' FROM notices ORDER BY id")
    assert "is disabled: at='3 am' is no time of the day; write \"03:00\"" in first[0]
    assert "there is no time zone 'Mars/Gale'" in second[0]
    with pytest.raises(OperationError, match="gives it another rule"):
        schedules.change(connection, ours[0], {"is_enabled": True}, by="ann")
    schedules.change(connection, ours[0], {"grace": timedelta(hours=1)}, by="ann")
    mended = {"rule": Rule.read({"at": "3:00"}), "is_enabled": True}
    assert schedules.change(connection, ours[0], mended, by="ann").next_at is not None


def test_due_times_of_a_paused_crawl_are_counted(scheduled):
    """SS-6: of those that nobody noticed one is recorded as not started, and the rest counted."""
    number = scheduled.add(catch_up=CatchUp.ALL)
    crawl_queue.change(scheduled.connection, "books", Change.REVIVE, by="ann")
    crawl_queue.change(scheduled.connection, "books", Change.PAUSE, by="ann")
    scheduled.pass_by(days=3, minutes=30)
    scheduled.start()

    assert scheduled.jobs() == [("cancelled", "the crawl was paused when it was due")]
    assert schedules.schedule(scheduled.connection, number).missed == 11


# The connections of some statements are ended at their end: of jobs, schedules, crawls and events.
DEADLY = (
    "CREATE SEQUENCE statements",
    """CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
        IF nextval('statements') IN (1, 4, 5, 9, 12, 19) THEN
            PERFORM pg_terminate_backend(pg_backend_pid());
        END IF;
        RETURN NULL; END$$""",
    *(
        f"CREATE TRIGGER die AFTER {what} ON {table} EXECUTE FUNCTION die()"
        for what, table in (
            ("INSERT", "jobs"),
            ("UPDATE", "schedules"),
            ("UPDATE", "crawls"),
            ("INSERT", "crawl_events"),
        )
    ),
)


def test_each_due_time_is_started_once_by_several_of_whom_some_die(engine):
    """SS-4: four runners see a hundred due times: a hundred jobs come of it, and as many runs."""
    with engine.begin() as connection:
        scheduled = Scheduled(connection)
        for number in range(100):
            scheduled.add(f"crawl {number}")
        scheduled.run("UPDATE schedules SET next_at = now() - interval '1 minute'")
        for statement in DEADLY:
            scheduled.run(statement)
    deaths = []

    def start() -> None:
        done = 1
        while done:
            try:
                with engine.begin() as connection:
                    done = schedule_starts.start_due(connection)
            except sa.exc.DBAPIError:
                deaths.append(done)

    runners = [threading.Thread(target=start) for _ in range(4)]
    for one in runners:
        one.start()
    for one in runners:
        one.join()

    with engine.connect() as connection:
        scheduled = Scheduled(connection)
        assert scheduled.run("SELECT count(*), count(DISTINCT crawl_id) FROM jobs") == [(100, 100)]
        assert scheduled.run("SELECT count(*) FROM crawls WHERE state = 'active'") == [(100,)]
        begun = scheduled.run("SELECT count(*) FROM crawl_events WHERE what = 'scheduled'")
        assert begun == [(100,)]
    assert len(deaths) == 6


@pytest.mark.parametrize("is_known", [False, True])
def test_looking_for_what_is_due_reads_few_rows(scheduled, is_known):
    """SS-6: of thousands of schedules and jobs, known to the statistics or not, few are read."""
    if not is_known:
        scheduled.run("ANALYZE crawls, schedules, jobs")
    scheduled.run(
        "INSERT INTO crawls (name, state, spider, project, start_arguments, queued_at) "
        "SELECT 'crawl ' || n, 'finished', 's', 'p', '{}', now() FROM generate_series(1, 20000) n"
    )
    scheduled.run(
        "INSERT INTO schedules (crawl_id, kind, spec, starts_at, next_at) "
        "SELECT id, 'every', '1h', now(), now() + interval '1 hour' FROM crawls"
    )
    scheduled.run(
        "INSERT INTO jobs (crawl_id, origin, state, started_at, ended_at) "
        "SELECT id, 'runner', 'completed', now(), now() FROM crawls"
    )
    scheduled.run("UPDATE schedules SET next_at = now() WHERE id % 5000 = 0")
    if is_known:
        scheduled.run("ANALYZE crawls, schedules, jobs")

    engines.hot_path(scheduled.connection)
    with explaining(scheduled.connection) as explained:
        assert schedule_starts.is_anything_due(scheduled.connection)
        assert schedule_starts.start_due(scheduled.connection)

    most = {one.name: one.rows for one in explained if one.rows > 60}
    assert most == {}


@pytest.mark.parametrize("overlap", list(Overlap))
def test_a_start_that_is_due_beside_a_continued_run_waits_for_its_end(scheduled, overlap):
    """Work has opened the last run again: whatever its overlap, the schedule is not skipped."""
    number = scheduled.add(overlap=overlap)
    ((crawl,),) = scheduled.run("SELECT id FROM crawls")
    scheduled.connection.execute(runs.BEGIN, {"crawl": crawl})
    scheduled.run("UPDATE runs SET is_finished = true, ended_at = now()")
    awakening.awaken(scheduled.connection, [crawl])
    scheduled.pass_by(hours=6)

    beside, waiting, before = scheduled.start(), scheduled.jobs(), scheduled.state()
    scheduled.run("UPDATE runs SET is_finished = true, ended_at = now()")
    scheduled.finish()
    after = scheduled.start()
    run = runs.join(scheduled.connection, crawl, for_queue=True)

    assert (beside, waiting, before) == (0, [], "active")
    assert after == 2
    assert scheduled.jobs() == [("pending", None)]
    assert schedules.schedule(scheduled.connection, number).missed == 0
    assert (run.number, run.is_continued) == (2, False)
