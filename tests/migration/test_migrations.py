"""The migrations make what `postgres.tables` declares, and guard the database's version."""

from __future__ import annotations

import runpy
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from support import odd_rows, races

from scrapy_itemgraph.exceptions import DatabaseError, OperationError, SchemaVersionError
from scrapy_itemgraph.graph import ItemGraph
from scrapy_itemgraph.model import tallies
from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.postgres import migrate, tables
from scrapy_itemgraph.store import tallies as stored_tallies
from scrapy_itemgraph.store.admin import activity, run_lists
from scrapy_itemgraph.store.registry import runs

pytestmark = pytest.mark.server

ROOT = Path(__file__).resolve().parents[2]

CATALOG = {
    "relations": """
        SELECT relname, relkind, relpersistence, reloptions, obj_description(oid, 'pg_class')
        FROM pg_class WHERE relnamespace = 'public'::regnamespace""",
    "columns": """
        SELECT relname, attname, format_type(atttypid, atttypmod), attnotnull, attidentity,
            attgenerated, attstorage, attcollation::regcollation::text,
            pg_get_expr(adbin, adrelid), col_description(attrelid, attnum)
        FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
            LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
        WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND attnum > 0
            AND NOT attisdropped""",
    "constraints": """
        SELECT conrelid::regclass::text, conname, contype, condeferrable, condeferred,
            convalidated, pg_get_constraintdef(oid)
        FROM pg_constraint WHERE connamespace = 'public'::regnamespace""",
    "indexes": """
        SELECT indrelid::regclass::text, pg_get_indexdef(indexrelid), indisunique, indisvalid
        FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
        WHERE relnamespace = 'public'::regnamespace""",
    "triggers": """
        SELECT tgrelid::regclass::text, pg_get_triggerdef(tgs.oid), prosrc
        FROM pg_trigger tgs JOIN pg_proc ON pg_proc.oid = tgfoid WHERE NOT tgisinternal""",
    "sequences": """
        SELECT sequencename, data_type::text, start_value, min_value, max_value, increment_by,
            cycle, cache_size
        FROM pg_sequences WHERE schemaname = 'public'""",
}


# What the declaration need not have: the columns' order, and all that stands around the tables.
MORE_OF_THE_CATALOG = {
    "order of columns": """
        SELECT relname, attname, row_number() OVER (PARTITION BY attrelid ORDER BY attnum)
        FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
        WHERE relnamespace = 'public'::regnamespace AND attnum > 0 AND NOT attisdropped""",
    "columns' options": """
        SELECT relname, attname, attcompression, attstattarget, attoptions, attacl
        FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
        WHERE relnamespace = 'public'::regnamespace AND attnum > 0 AND NOT attisdropped""",
    "rights": """
        SELECT relname, relkind, relacl, relrowsecurity, relreplident, relam
        FROM pg_class WHERE relnamespace = 'public'::regnamespace""",
    "names of indexes of constraints": """
        SELECT conname, conindid::regclass::text, confupdtype, confdeltype, confmatchtype
        FROM pg_constraint WHERE connamespace = 'public'::regnamespace""",
    "functions": """
        SELECT proname, pg_get_functiondef(oid), proacl, obj_description(oid, 'pg_proc')
        FROM pg_proc WHERE pronamespace = 'public'::regnamespace""",
    "triggers' names": """
        SELECT tgname, tgrelid::regclass::text, tgenabled, tgtype,
            obj_description(oid, 'pg_trigger')
        FROM pg_trigger WHERE NOT tgisinternal""",
    "owners of sequences": """
        SELECT objid::regclass::text, refobjid::regclass::text, refobjsubid - (
            SELECT count(*) FROM pg_attribute
            WHERE attrelid = refobjid AND attisdropped AND attnum < refobjsubid), deptype
        FROM pg_depend WHERE classid = 'pg_class'::regclass AND deptype IN ('a', 'i')
            AND objid IN (SELECT oid FROM pg_class WHERE relkind = 'S')""",
    "types": """
        SELECT typname, typtype, typacl FROM pg_type
        WHERE typnamespace = 'public'::regnamespace
            AND ltrim(typname, '_') <> 'itemgraph_version'""",
    "views": "SELECT viewname, definition FROM pg_views WHERE schemaname = 'public'",
    "extensions": "SELECT extname, extversion FROM pg_extension",
    "comments": """
        SELECT classoid::regclass::text, objoid::regclass::text, count(*) FROM pg_description
        WHERE objoid >= 16384 GROUP BY 1, 2""",
    "statistics": "SELECT stxname FROM pg_statistic_ext",
    "policies": "SELECT policyname FROM pg_policies",
}


BEFORE_TOTALS = (
    "INSERT INTO crawls (name, run) VALUES ('books', 2)",
    (
        "INSERT INTO runs (crawl_id, number, started_at, pages, items, failures) "
        "VALUES (1, 2, now(), 5, 4, 1)"
    ),
    (
        "INSERT INTO task_minutes (crawl_id, minute, task_id, done, items) "
        "VALUES (1, date_trunc('minute', now()), 0, 5, 7)"
    ),
    (
        "INSERT INTO processes (kind, crawl_id, host, process_id, code, lease_until) "
        "VALUES ('worker', 1, 'h', 1, 'digest', now() + interval '1 hour')"
    ),
    "INSERT INTO workers (id, spider, job) VALUES (1, 's', 'job')",
)


def dump(connection: sa.Connection, catalog: dict[str, str] = CATALOG) -> dict[str, list[str]]:
    """Return what the catalogs say of our tables, apart from the version table."""
    return {
        name: sorted(
            repr(row)
            for row in connection.exec_driver_sql(query)
            if not str(row[0]).startswith(migrate.VERSION_TABLE)
        )
        for name, query in catalog.items()
    }


@pytest.fixture
def empty_engine(empty_database):
    """Yield an engine on a database without our schema."""
    engine = engines.sync_engine(empty_database)
    yield engine
    engine.dispose()


def test_migrations_make_what_the_metadata_declares(connection, empty_engine):
    """A migrated database and one made from the metadata have the same catalogs."""
    with empty_engine.begin() as other:
        tables.metadata.create_all(other)
        declared = dump(other)

    migrated = dump(connection)

    for name in CATALOG:
        assert migrated[name] == declared[name], name
    assert declared["relations"]


def test_one_module_makes_what_the_migrations_up_to_0045_made(empty_engine):
    """The catalogs and the rows of a new database are the same by both ways."""
    squashed = runpy.run_path(str(ROOT / "migrations" / "0045_schema.py"))
    found = []
    for make in (
        lambda connection: command.upgrade(migrate.config(connection), "0045"),
        lambda connection: run_alone(connection, squashed["upgrade"]),
    ):
        with empty_engine.connect() as connection, connection.begin() as transaction:
            make(connection)
            rows = {
                table: connection.exec_driver_sql(f"SELECT count(*) FROM {table}").scalar_one()
                for table in sa.inspect(connection).get_table_names()
                if table != migrate.VERSION_TABLE
            }
            found.append({**dump(connection, CATALOG | MORE_OF_THE_CATALOG), "rows": rows})
            transaction.rollback()

    for name in found[0]:
        assert found[1][name] == found[0][name], name
    assert {name: count for name, count in rows.items() if count} == {"frontier": 1, "salts": 1}
    assert len(rows) == 54


def run_alone(connection, upgrade):
    """Run a migration's function on a connection, outside of the chain of versions."""
    with Operations.context(MigrationContext.configure(connection)):
        upgrade()


def test_alembic_finds_no_difference(connection):
    """Alembic's own comparison has nothing to add either."""
    options = {"version_table": migrate.VERSION_TABLE}
    context = MigrationContext.configure(connection, opts=options)

    assert compare_metadata(context, tables.metadata) == []


def test_the_caller_owns_the_transaction(empty_engine):
    """Rolling back an upgrade leaves the database empty."""
    with empty_engine.connect() as connection:
        migrate.upgrade(connection)
        assert migrate.current(connection) == migrate.head()
        connection.rollback()

        assert migrate.current(connection) is None
        assert sa.inspect(connection).get_table_names() == []


def test_an_empty_database_is_migrated_unasked(empty_engine):
    """Without `auto` too, an empty database gets the schema, and the next start finds it."""
    for _ in range(2):
        with empty_engine.begin() as connection:
            migrate.ensure(connection, auto=False)

    with empty_engine.connect() as connection:
        assert migrate.current(connection) == migrate.head()


def test_it_runs_inside_an_async_connection(empty_database):
    """The same function serves the crawl through `run_sync`."""
    import asyncio

    async def ensure():
        engine = engines.async_engine(empty_database)
        async with engine.begin() as connection:
            await connection.run_sync(lambda c: migrate.ensure(c, auto=True))
            found = await connection.run_sync(migrate.current)
        await engine.dispose()
        return found

    assert asyncio.run(ensure()) == migrate.head()


def test_two_upgrades_at_once_are_safe(empty_engine):
    """The second start waits for the first one's commit, and then finds nothing left to do."""
    failures = []

    def start():
        try:
            with empty_engine.begin() as connection:
                migrate.ensure(connection, auto=True)
        except Exception as error:
            failures.append(error)

    with empty_engine.begin() as first:
        migrate.ensure(first, auto=True)
        second = threading.Thread(target=start)
        second.start()
        # Wait until the second one stands before the lock, which the first still holds.
        waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        while second.is_alive() and not first.exec_driver_sql(waiting).scalar_one():
            pass
        assert second.is_alive()
    second.join()

    assert failures == []
    with empty_engine.connect() as connection:
        assert migrate.current(connection) == migrate.head()


def test_who_saw_no_version_sees_the_one_that_others_committed_since(empty_engine):
    """Within one transaction too, a start that found no schema finds the one of another start."""
    with races.actors(empty_engine, 1) as (late,):
        assert late.run(migrate.current) is None
        with empty_engine.begin() as early:
            early.exec_driver_sql(f"CREATE TABLE {migrate.VERSION_TABLE} (version_num text)")
            early.exec_driver_sql(f"INSERT INTO {migrate.VERSION_TABLE} VALUES ('0001')")

        assert late.run(migrate.current) == "0001"


def test_thirty_first_starts_at_once_make_one_schema(empty_database):
    """Thirty starts on an empty database: one of them migrates it, and none of them fails."""
    engine = engines.sync_engine(empty_database, connections=30)
    ready = threading.Barrier(30)

    def start(_: int) -> str | None:
        with engine.connect() as connection:
            connection.rollback()
            ready.wait(60)
            with connection.begin():
                migrate.ensure(connection, auto=False)
            return migrate.current(connection)

    with ThreadPoolExecutor(30) as threads:
        found = list(threads.map(start, range(30)))
    engine.dispose()

    assert found == [migrate.head()] * 30


def test_an_older_schema_is_refused_with_the_line_to_run(engine, monkeypatch):
    """Without `auto` an older schema stays as it is, and the error names the command."""
    monkeypatch.setattr(migrate, "head", lambda: "9999")

    with engine.begin() as connection, pytest.raises(SchemaVersionError) as caught:
        migrate.ensure(connection, auto=False)

    assert "scrapy itemgraph migrate" in str(caught.value)


@pytest.mark.parametrize("auto", [True, False])
def test_a_newer_schema_is_refused(engine, auto):
    """A schema that this code does not know is left alone, and the error says to upgrade."""
    with engine.begin() as connection:
        connection.exec_driver_sql(f"UPDATE {migrate.VERSION_TABLE} SET version_num = '9999'")

        with pytest.raises(SchemaVersionError, match=r"newer scrapy-itemgraph.*upgrade"):
            migrate.ensure(connection, auto=auto)
        with pytest.raises(SchemaVersionError, match="newer"):
            migrate.upgrade(connection)


def test_a_database_with_other_tables_is_not_taken_unasked(empty_engine):
    """Somebody's database gets our tables only on request."""
    with empty_engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE customers ()")

        with pytest.raises(SchemaVersionError, match="scrapy itemgraph migrate"):
            migrate.ensure(connection, auto=False)
        migrate.upgrade(connection)

        assert migrate.current(connection) == migrate.head()


def test_when_cookies_expire_is_read_from_those_that_are_there(empty_engine):
    """Cookies of an older database get their expiry, whatever a site sent as one."""
    cookies = {
        "deleted": None,
        "session": "{}",
        "past": '{"expires": -1}',
        "due": '{"expires": 1772323200}',
        "far": '{"expires": 99999999999999}',
        "odd": '{"expires": "soon"}',
    }
    with empty_engine.begin() as connection:
        command.upgrade(migrate.config(connection), "0005")
        for name, cookie in cookies.items():
            connection.execute(
                sa.text(
                    "INSERT INTO cookies (crawl_id, jar, domain, path, name, cookie) "
                    "VALUES (1, 'null', 'a', '/', :name, CAST(:cookie AS json))"
                ),
                {"name": name, "cookie": cookie},
            )
        migrate.upgrade(connection)

        rows = connection.exec_driver_sql(
            "SELECT name, extract(epoch FROM expires_at), expires_at = changed_at FROM cookies"
        )
        found = {name: "then" if is_now else at for name, at, is_now in rows}
    assert found == {
        "deleted": "then",
        "session": None,
        "past": 0,
        "due": 1772323200,
        "far": 32503680000,
        "odd": None,
    }


def test_where_the_present_run_began_in_the_journal_is_read_from_its_times(empty_engine):
    """A feed that takes part in a run of before goes on with what that run kept."""
    with empty_engine.begin() as connection:
        command.upgrade(migrate.config(connection), "0016")
        connection.exec_driver_sql(
            "INSERT INTO crawls (name, run_started_at) VALUES ('new', NULL), ('a', now())"
        )
        for since in ("-2 hours", "-1 hours", "1 hours"):
            connection.exec_driver_sql(
                "INSERT INTO journal (crawl_id, item_class, fields, created_at) "
                f"VALUES (2, 'dict', '{{}}', now() + interval '{since}')"
            )
        migrate.upgrade(connection)

        rows = connection.exec_driver_sql("SELECT name, run_journal_id FROM crawls")
        assert dict(map(tuple, rows)) == {"new": 0, "a": 2}


def test_the_run_of_before_is_a_row(empty_engine):
    """One that finished, one that was stopped, one whose worker lives; no row for no run."""
    with empty_engine.begin() as connection:
        command.upgrade(migrate.config(connection), "0024")
        connection.exec_driver_sql(
            "INSERT INTO crawls (name, run, spider, run_started_at, run_finished_at) VALUES "
            "('finished', 3, 's', '2026-01-01', '2026-01-02'), "
            "('stopped', 2, 's', '2026-01-01', NULL), "
            "('runs', 1, 's', '2026-01-01', NULL), ('new', 0, NULL, NULL, NULL)"
        )
        connection.exec_driver_sql(
            "WITH given AS (SELECT c.id, v.* FROM (VALUES "
            "('finished', 'a', timestamptz '2025-01-01', timestamptz '2025-01-02', 'died'), "
            "('stopped', 'b', '2026-01-01', '2026-01-03', 'shutdown'), "
            "('stopped', 'c', '2026-01-02', '2026-01-02', 'finished'), "
            "('runs', 'd', '2026-01-01', NULL, NULL)) AS v(crawl, job, started, stopped, reason) "
            "JOIN crawls c ON c.name = v.crawl), made AS ("
            "INSERT INTO processes (kind, crawl_id, host, process_id, code, started_at, "
            "stopped_at, reason, lease_until) SELECT 'worker', id, 'here', 1, job, started, "
            "stopped, reason, started FROM given ORDER BY job RETURNING id, code) "
            "INSERT INTO workers (id, spider, job) SELECT id, 's', code FROM made"
        )
        connection.exec_driver_sql(
            "INSERT INTO feeds (crawl_id, name, run_started_at) "
            "SELECT id, name, run_started_at FROM crawls UNION ALL "
            "SELECT id, 'before', timestamptz '2025-01-01' FROM crawls WHERE name = 'finished'"
        )
        migrate.upgrade(connection)

        found = connection.exec_driver_sql(
            "SELECT c.name, r.number, r.ended_at::date::text, r.is_finished, r.job, r.reason "
            "FROM runs r JOIN crawls c ON c.id = r.crawl_id ORDER BY 1"
        ).all()
        feeds = connection.exec_driver_sql("SELECT name, run FROM feeds ORDER BY 1").all()
    assert found == [
        ("finished", 3, "2026-01-02", True, None, "finished"),
        ("runs", 1, None, False, "d", None),
        ("stopped", 2, "2026-01-03", False, "b", "shutdown"),
    ]
    assert feeds == [("before", None), ("finished", 3), ("new", None), ("runs", 1), ("stopped", 2)]


def test_renamed_tables_keep_what_is_in_them(empty_engine):
    """Tokens of commits and `spider.state` of the version before are found where they are now."""
    with empty_engine.begin() as connection:
        command.upgrade(migrate.config(connection), "0008")
        connection.exec_driver_sql("INSERT INTO crawls (name) VALUES ('books')")
        connection.exec_driver_sql("INSERT INTO answers (token) VALUES (gen_random_uuid())")
        connection.exec_driver_sql(
            "INSERT INTO states (crawl_id, key, value) SELECT id, '\"page\"', '7' FROM crawls"
        )
        migrate.upgrade(connection)

        tokens = connection.exec_driver_sql("SELECT count(*) FROM commit_tokens").scalar_one()
        rows = connection.exec_driver_sql("SELECT key, value FROM spider_state").all()
    assert tokens == 1
    assert rows == [('"page"', 7)]


def test_workers_of_before_are_processes_and_no_number_is_given_again(empty_engine):
    """What was known of a worker is in one of two tables; its claims and its engine's work stay."""
    with empty_engine.begin() as connection:
        command.upgrade(migrate.config(connection), "0023")
        connection.exec_driver_sql("INSERT INTO crawls (name) VALUES ('books')")
        connection.exec_driver_sql(
            "INSERT INTO workers (crawl_id, spider, host, process_id, job, code, memory, "
            "has_started, locked_at, lease_until, stopped_at, reason, sources) "
            "SELECT id, 's', 'far', 7, 'job', 'egg', 5, true, now(), now(), stopped.at, "
            """stopped.reason, '{"t": "1"}' FROM crawls, """
            "(VALUES (now(), 'finished'), (NULL, NULL), (NULL, NULL)) AS stopped (at, reason)"
        )
        connection.exec_driver_sql("DELETE FROM workers WHERE id = 3")
        connection.exec_driver_sql("INSERT INTO handed VALUES (2, '{1}', '{1}')")
        migrate.upgrade(connection)

        found = connection.exec_driver_sql(
            "SELECT id, kind, crawl_id, host, process_id, code, memory, reason, spider, job, "
            "has_started, sources ->> 't', locked_at FROM processes JOIN workers USING (id)"
        ).all()
        ids = connection.exec_driver_sql(
            "INSERT INTO processes (kind, host, process_id, lease_until) "
            "VALUES ('server', 'h', 1, now()) RETURNING id"
        ).scalar_one()
        connection.exec_driver_sql("DELETE FROM crawls")
        left = connection.exec_driver_sql(
            "SELECT p.id, (SELECT count(*) FROM workers), (SELECT count(*) FROM handed) "
            "FROM processes p"
        ).all()
    same = ("worker", 1, "far", 7, "egg", 5)
    assert found == [
        (1, *same, "finished", "s", "job", True, "1", None),
        (2, *same, None, "s", "job", True, "1", None),
    ]
    assert ids == 4
    assert left == [(4, 0, 0)]


def odd_rows_of(connection):
    """Fill the tables whose numbers the database checks from 0017 on with odd ones."""
    moments, floats = odd_rows.MOMENTS, odd_rows.FLOATS
    for n in range(max(len(moments), len(floats))):
        given = {
            "n": n,
            "moment": moments[n % len(moments)],
            "float": floats[n % len(floats)],
            "period": odd_rows.PERIODS[n % len(odd_rows.PERIODS)],
            "number": -n,
        }
        for statement in (
            (
                "INSERT INTO crawls (name, created_at, run_started_at, run_finished_at) "
                "VALUES (:n, :moment, :moment, :moment)"
            ),
            (
                "INSERT INTO limits (name, gap, delay, set_gap, crawl_delay, throttle, latency, "
                "concurrency, set_concurrency, last_at, blocked_until) VALUES "
                "(:n, :float, :float, :float, :float, :float, :float, :number, :number, "
                ":moment, :moment)"
            ),
            (
                "INSERT INTO tasks (crawl_id, name, spider, version, ttl, definition) "
                "SELECT id, 't', 's', '1', CAST(:period AS interval), gen_random_uuid() "
                "FROM crawls WHERE name = CAST(:n AS text)"
            ),
            (
                "INSERT INTO workers (crawl_id, spider, host, process_id, started_at, locked_at, "
                "lease_until, stopped_at, seen_at) "
                "SELECT id, 's', 'h', 1, :moment, :moment, :moment, :moment, :moment FROM crawls "
                "WHERE name = CAST(:n AS text)"
            ),
            (
                "INSERT INTO queues (crawl_id, slot_id, next_at) SELECT c.id, l.id, :moment "
                "FROM crawls c JOIN limits l ON l.name = c.name WHERE c.name = CAST(:n AS text)"
            ),
            (
                "INSERT INTO holdings (limit_id, worker_id, units, is_exclusive, since, asked_at, "
                "until) SELECT l.id, 1, :number, false, :moment, :moment, :moment "
                "FROM limits l WHERE l.name = CAST(:n AS text)"
            ),
        ):
            text = statement.replace(":moment", "CAST(:moment AS timestamptz)")
            text = text.replace(":float", "CAST(:float AS float8)").replace(
                "(:n,", "(CAST(:n AS text),"
            )
            connection.execute(sa.text(text.replace("VALUES :n", "VALUES CAST(:n AS text)")), given)


def test_rows_with_odd_numbers_are_mended_before_the_database_refuses_them(empty_engine):
    """No row keeps a database from being migrated; what is left can be kept by and read."""
    with empty_engine.begin() as connection:
        command.upgrade(migrate.config(connection), "0016")
        odd_rows_of(connection)
        count = connection.exec_driver_sql("SELECT count(*) FROM limits").scalar_one()

        migrate.upgrade(connection)

        delays = connection.exec_driver_sql(
            "SELECT min(set_gap), max(set_gap), min(crawl_delay), max(crawl_delay), count(*) "
            "FROM limits"
        ).one()
        assert delays == (86_400.0, 86_400.0, 60.0, 60.0, count)
        ttls = connection.exec_driver_sql("SELECT DISTINCT ttl FROM tasks ORDER BY 1").scalars()
        assert set(ttls) == {None, timedelta(microseconds=1), timedelta(days=36525)}
        for table in ("crawls", "limits", "workers", "queues", "holdings"):
            connection.exec_driver_sql(f"SELECT * FROM {table}").all()
    with empty_engine.connect() as connection, pytest.raises(sa.exc.IntegrityError):
        connection.exec_driver_sql("UPDATE limits SET crawl_delay = 1e-320")


@pytest.mark.parametrize("names", [[], ["anna", "grafana"]])
def test_a_database_that_has_tokens_remembers_it(empty_engine, names):
    """Where the version before made tokens it is known that there were some, else not."""
    with empty_engine.begin() as connection:
        command.upgrade(migrate.config(connection), "0016")
        for name in names:
            connection.exec_driver_sql(
                f"INSERT INTO tokens (name, digest, role) VALUES ('{name}', '{name}', 'read')"
            )
        migrate.upgrade(connection)

        made = connection.exec_driver_sql("SELECT last_at FROM tokens_made").all()
        created = connection.exec_driver_sql("SELECT max(created_at) FROM tokens").all()
    assert made == (created if names else [])


def test_what_was_held_before_pages_could_be_gone_is_held_by_a_failure(empty_engine):
    """Whatever its row said of success; what succeeded and is not held stays as it is."""
    with empty_engine.begin() as connection:
        command.upgrade(migrate.config(connection), "0027")
        for item, is_held in ((1, True), (2, False)):
            connection.exec_driver_sql(
                "INSERT INTO results (item_id, task_id, task_version, is_successful, is_held) "
                f"VALUES ({item}, 1, '1', true, {is_held})"
            )
        migrate.upgrade(connection)

        rows = connection.exec_driver_sql(
            "SELECT is_held, is_successful FROM results ORDER BY item_id"
        ).all()
    assert rows == [(True, False), (False, True)]


def test_what_was_counted_before_totals_and_last_errors_goes_on(empty_engine):
    """Runs, minutes and workers of before keep what they had, and what is new begins at nothing."""
    with empty_engine.begin() as connection:
        command.upgrade(migrate.config(connection), "0026")
        for statement in BEFORE_TOTALS:
            connection.exec_driver_sql(statement)
        migrate.upgrade(connection)

        (run,) = run_lists.runs(connection, 1)
        (minute,) = activity.minutes(connection, 1, timedelta(hours=1))
        (worker,) = activity.workers(connection, 1, stopped=0)
        told = tallies.Tallies({0: tallies.TaskTally(gone=1, statuses=Counter({"404": 1}))})
        stored_tallies.add(connection, 1, told)
        runs.count(connection, 1, 2, [told])
        (after,) = run_lists.runs(connection, 1)
        totals = connection.exec_driver_sql("SELECT done, gone, statuses FROM totals").all()
        connection.exec_driver_sql("DELETE FROM crawls")
        left = connection.exec_driver_sql("SELECT count(*) FROM totals").scalar_one()

    assert (run.pages, run.items, run.failures) == (5, 4, 1)
    assert (run.retried, run.refused, run.gone, run.bytes, run.statuses) == (0, 0, 0, 0, {})
    assert (minute.done, minute.items, minute.gone, minute.scraped) == (5, 7, 0, 0)
    assert (worker.job, worker.code) == ("job", "digest")
    assert (worker.code_file, worker.error, worker.error_at) == (None, None, None)
    assert (after.pages, after.gone, after.statuses) == (5, 1, {"404": 1})
    assert totals == [(0, 1, {"404": 1})]
    assert left == 0


def test_requests_of_before_for_files_are_known_as_the_spiders(empty_engine):
    """A stored request of another scheme than http and https is marked; all else stays."""
    kept = {
        "web": '{"url": "https://a.example/", "request": {}}',
        "upper": '{"url": "HTTPS://a.example/", "request": {}}',
        "item": '{"url": "file:///x"}',
        "list": "[1]",
        "odd": '{"url": "file:///\\u0000", "request": {}}',
        "none": '{"request": {}}',
        "text": '{"url": "file:///x", "request": "no"}',
    }
    marked = {
        "file": (
            '{"n": 1.50, "url": "file:///x", "request": {}, "z": 1}',
            '{"n": 1.50, "url": "file:///x", "request": {"scheme": "file"}, "z": 1}',
        ),
        "s3": (
            '{"url": "S3://b/x", "request": { "meta": {"a": 1e2}}}',
            '{"url": "S3://b/x", "request": {"scheme": "s3",  "meta": {"a": 1e2}}}',
        ),
    }
    given = {**kept, **{name: before for name, (before, _) in marked.items()}}
    with empty_engine.begin() as connection:
        command.upgrade(migrate.config(connection), "0016")
        for name, data in given.items():
            connection.execute(
                sa.text(
                    "INSERT INTO items (crawl_id, slot_id, name, data) "
                    "VALUES (1, 1, :name, CAST(:data AS json))"
                ),
                {"name": name, "data": data},
            )
        for item, request in enumerate(['{"url": "file:///y"}', '{"url": "http://y/"}', None]):
            connection.execute(
                sa.text(
                    "INSERT INTO work (item_id, task_id, crawl_id, queue_id, kind_id, is_stale, "
                    "nice, request) VALUES (:item, 1, 1, 1, 1, false, 0, CAST(:request AS json))"
                ),
                {"item": item, "request": request},
            )
        migrate.upgrade(connection)

        found = dict(connection.exec_driver_sql("SELECT name, data::text FROM items").all())
        work = connection.exec_driver_sql("SELECT request::text FROM work ORDER BY item_id")
        requests = list(work.scalars())
    assert found == {**kept, **{name: after for name, (_, after) in marked.items()}}
    assert requests == ['{"scheme": "file", "url": "file:///y"}', '{"url": "http://y/"}', None]


def test_a_schema_is_not_migrated_under_workers_that_live(empty_engine, empty_database):
    """`migrate` names the worker that would fail; with `force`, or after its end, it goes on."""
    with empty_engine.begin() as connection:
        command.upgrade(migrate.config(connection), "0008")
        connection.exec_driver_sql("INSERT INTO crawls (name) VALUES ('books')")
        connection.exec_driver_sql(
            "INSERT INTO workers (crawl_id, spider, host, process_id, lease_until) "
            "SELECT id, 'books', 'here', 7, now() + interval '1 minute' FROM crawls"
        )

    with pytest.raises(OperationError, match=r"process 7 on here.*--force"):
        ItemGraph.migrate(empty_database)
    with (
        pytest.raises(OperationError, match=r"process 7 on here.*--force"),
        ItemGraph.open(empty_database, "books", auto_migrate=True),
    ):
        pass
    assert ItemGraph.migrate(empty_database, force=True).before == "0008"
    assert ItemGraph.migrate(empty_database).before == migrate.head()


def test_tasks_of_before_have_no_schedule(empty_engine):
    """Tasks of before 0034 keep their time to live, and no schedule."""
    with empty_engine.begin() as connection:
        command.upgrade(migrate.config(connection), "0033")
        connection.exec_driver_sql("INSERT INTO crawls (name) VALUES ('books')")
        connection.exec_driver_sql(
            "INSERT INTO tasks (crawl_id, name, spider, version, ttl, definition) "
            "SELECT id, 'fetch', 's', '1', '1 day', gen_random_uuid() FROM crawls"
        )
        migrate.upgrade(connection)

        found = connection.exec_driver_sql(
            "SELECT t.ttl, s.schedule FROM tasks t LEFT JOIN task_schedules s ON s.task_id = t.id"
        ).one()
    assert tuple(found) == (timedelta(days=1), None)


def test_notices_of_before_are_not_sent_late(empty_engine):
    """Notices of before 0036 stay, with the project that they are of, and are due to nobody."""
    with empty_engine.begin() as connection:
        command.upgrade(migrate.config(connection), "0035")
        connection.exec_driver_sql("INSERT INTO crawls (name, project) VALUES ('books', 'shop')")
        connection.exec_driver_sql(
            "INSERT INTO notices (crawl_id, what, body) SELECT id, 'finished', '{}' FROM crawls"
        )
        migrate.upgrade(connection)

        found = connection.exec_driver_sql("SELECT project, next_at, answers FROM notices").one()
    assert tuple(found) == ("shop", None, {})


def test_tables_of_other_origin_are_named(empty_engine):
    """A table of our name that is not ours is an error that says what to do."""
    with empty_engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE items ()")

        with pytest.raises(DatabaseError, match=r"items.*a database of its own"):
            migrate.upgrade(connection)


def test_the_newest_migration_is_alembics_head():
    """What starts compare without Alembic is what Alembic would say."""
    script = ScriptDirectory.from_config(migrate.config())

    assert migrate.head() == script.get_current_head()
    assert migrate._revisions() == {one.revision for one in script.walk_revisions()}


def test_crawls_of_before_are_managed_by_nobody(empty_engine):
    """A crawl of before 0032 has no state, and one process at once."""
    with empty_engine.begin() as connection:
        command.upgrade(migrate.config(connection), "0031")
        connection.exec_driver_sql("INSERT INTO crawls (name) VALUES ('books')")
        migrate.upgrade(connection)

        found = connection.exec_driver_sql(
            "SELECT state, nice, concurrency, keeps_fresh, crashes FROM crawls"
        ).one()
    assert tuple(found) == (None, 0, 1, False, 0)


def test_crawls_with_a_frontier_of_before_are_known_as_such_and_swept(empty_engine):
    """What spiders had made in them is looked through; other crawls have no frontier (UF-13)."""
    with empty_engine.begin() as connection:
        command.upgrade(migrate.config(connection), "0043")
        for statement in (
            "INSERT INTO crawls (name) VALUES ('DEFAULT'), ('books')",
            "INSERT INTO limits (kind, name) VALUES ('slot', 'a.example')",
            "INSERT INTO queues (crawl_id, slot_id) SELECT 1, id FROM limits WHERE kind = 'slot'",
            "INSERT INTO frontier_queues (queue_id, crawl_id) SELECT id, 1 FROM queues",
        ):
            connection.exec_driver_sql(statement)
        migrate.upgrade(connection)
        crawls = connection.exec_driver_sql("SELECT name, frontier FROM crawls ORDER BY id")
        sweeps = connection.exec_driver_sql("SELECT crawl_id, task_id, tags FROM sweeps")

        assert crawls.all() == [("DEFAULT", 2), ("books", None)]
        assert sweeps.all() == [(1, None, ["url"])]
