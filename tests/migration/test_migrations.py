"""The migrations make what `postgres.tables` declares, and guard the database's version."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from support import races

from scrapy_itemgraph.exceptions import DatabaseError, OperationError, SchemaVersionError
from scrapy_itemgraph.graph import ItemGraph
from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.postgres import migrate, tables

pytestmark = pytest.mark.server

OLDEST = "0045"  # databases of it are upgraded, earlier ones are refused

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


def dump(connection: sa.Connection, catalog: dict[str, str] = CATALOG) -> dict[str, list[str]]:
    """Return what the catalogs say of our tables, apart from the version table."""
    return {
        name: sorted(
            repr(row)
            for row in connection.exec_driver_sql(query)
            if not str(row[0]).startswith(migrate.VERSION_TABLE)
        )
        for name, query in CATALOG.items()
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


@pytest.mark.parametrize("version", ["0001", "0044"])
def test_a_schema_of_before_the_oldest_migration_is_refused(empty_engine, empty_database, version):
    """The error names the commit that upgrades it, and the database stays as it is."""
    with empty_engine.begin() as connection:
        connection.exec_driver_sql(f"CREATE TABLE {migrate.VERSION_TABLE} (version_num text)")
        connection.exec_driver_sql(f"INSERT INTO {migrate.VERSION_TABLE} VALUES ('{version}')")

    early = rf"early scrapy-itemgraph \(schema {version}, .*{OLDEST}.*commit 5a66684a"
    for auto in (True, False, None):
        with (
            pytest.raises(SchemaVersionError, match=early),
            ItemGraph.open(empty_database, "books", auto_migrate=auto),
        ):
            pass
    for force in (True, False):
        with pytest.raises(SchemaVersionError, match=early):
            ItemGraph.migrate(empty_database, force=force)
    with empty_engine.connect() as connection:
        assert migrate.current(connection) == version
        assert sa.inspect(connection).get_table_names() == [migrate.VERSION_TABLE]


def test_a_database_with_other_tables_is_not_taken_unasked(empty_engine):
    """Somebody's database gets our tables only on request."""
    with empty_engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE customers ()")

        with pytest.raises(SchemaVersionError, match="scrapy itemgraph migrate"):
            migrate.ensure(connection, auto=False)
        migrate.upgrade(connection)

        assert migrate.current(connection) == migrate.head()


def test_a_schema_is_not_migrated_under_workers_that_live(empty_engine, empty_database):
    """`migrate` names the worker that would fail; with `force`, or after its end, it goes on."""
    with empty_engine.begin() as connection:
        command.upgrade(migrate.config(connection), OLDEST)
        connection.exec_driver_sql("INSERT INTO crawls (name) VALUES ('books')")
        connection.exec_driver_sql(
            "INSERT INTO processes (kind, crawl_id, host, process_id, lease_until) "
            "SELECT 'worker', id, 'here', 7, now() + interval '1 minute' FROM crawls"
        )

    with pytest.raises(OperationError, match=r"process 7 on here.*--force"):
        ItemGraph.migrate(empty_database)
    with (
        pytest.raises(OperationError, match=r"process 7 on here.*--force"),
        ItemGraph.open(empty_database, "books", auto_migrate=True),
    ):
        pass
    assert ItemGraph.migrate(empty_database, force=True).before == OLDEST
    assert ItemGraph.migrate(empty_database).before == migrate.head()
    with ItemGraph.open(empty_database, "books") as graph:
        assert graph.crawls.names() == ["books"]


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
