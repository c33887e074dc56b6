"""What every connection and transaction has set, and one clear line for each way to have none."""

from __future__ import annotations

import asyncio
import socket
import threading
import uuid
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from support import servers
from support.races import claimed

from scrapy_itemgraph import AddTag, CreateItem, task
from scrapy_itemgraph.exceptions import (
    ConfigurationError,
    DatabaseError,
    DatabaseStartingError,
    DatabaseUnavailableError,
)
from scrapy_itemgraph.graph import ItemGraph, WorkerGraph
from scrapy_itemgraph.model.operations import Changeset
from scrapy_itemgraph.model.tasks import discover
from scrapy_itemgraph.model.work import Outcome
from scrapy_itemgraph.postgres import backend_activity, errors, urls
from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.postgres.arrays import number_array, text_array
from scrapy_itemgraph.settings import Settings

pytestmark = pytest.mark.server

SHOW = sa.text(
    "SELECT current_setting('transaction_isolation'), current_setting('synchronous_commit'),"
    " current_setting('TimeZone'), current_setting('application_name'),"
    " current_setting('lock_timeout'), current_setting('statement_timeout'),"
    " current_setting('idle_in_transaction_session_timeout'), current_setting('DateStyle'),"
    " current_setting('IntervalStyle'), current_setting('array_nulls'),"
    " current_setting('extra_float_digits'), current_setting('client_encoding'),"
    " coalesce(current_setting('transaction_timeout', true), '0')"
)
OWN_PROCESS = sa.text("SELECT pg_backend_pid()")
EXPECTED = ("read committed", "on", "UTC", "scrapy-itemgraph", "0", "0", "0")
EXPECTED += ("ISO, MDY", "postgres", "on", "1", "UTF8", "0")
RAISE = "DO $$ BEGIN RAISE EXCEPTION 'raised' USING ERRCODE = '{}'; END $$"


class Books:
    @task(tags=["book"])
    def parse(self, response, item): ...


@asynccontextmanager
async def crawling(url: str, **settings: Any):
    """Open a crawl's graph."""
    given = Settings.of(database_url=url, **settings)
    graph = await WorkerGraph.open(given, crawl="books", spider="spider", tasks=discover(Books))
    try:
        yield graph
    finally:
        await graph.close("finished")


@pytest.fixture(scope="module")
def guarded():
    """Run a server that wants a password."""
    with servers.own_postgres() as server:
        yield server


def refusal(url: str) -> str:
    """Return the error of a connection that must fail."""
    engine = engines.sync_engine(url)
    with (
        pytest.raises(DatabaseUnavailableError) as caught,
        errors.translated(url),
        engine.connect(),
    ):
        pass
    engine.dispose()
    assert caught.value.__suppress_context__
    message = str(caught.value)
    assert "\n" not in message
    assert "sesame" not in message
    return message


@pytest.mark.parametrize(
    "url",
    ["postgresql://u:p@h/d", "postgres://u:p@h/d", "postgresql+psycopg://u:p@h/d"],
)
def test_postgresql_urls_are_taken_in_every_spelling(url):
    """All usual schemes mean the one driver that we use."""
    parsed = urls.normalise_url(url)

    assert parsed.render_as_string(hide_password=False) == "postgresql+psycopg://u:p@h/d"


@pytest.mark.parametrize(
    ("hosts", "host", "port"),
    [
        ("one:5433,two:5434", "one,two", "5433,5434"),
        ("one,two", "one,two", "5432,5432"),
        ("[::1]:5433,two", "::1,two", "5433,5432"),
    ],
)
def test_a_url_may_name_several_hosts(hosts, host, port):
    """As libpq has it, so that a standby that was promoted is found; the error names them all."""
    url = f"postgresql://u:a%2Cb@{hosts}/d?target_session_attrs=read-write"
    engine = engines.sync_engine(url)

    given = engine.dialect.create_connect_args(engine.url)[1]

    assert (given["host"], given["port"]) == (host, port)
    assert (given["password"], given["target_session_attrs"]) == ("a,b", "read-write")
    assert all(one in urls.name(engine.url) for one in (host.split(",")[0], "two:"))


def test_a_connection_to_a_server_that_takes_no_writes_is_given_up(database):
    """The next one is a new connection, which may lead to the server that is the primary now."""
    engine = engines.sync_engine(database)
    processes = []

    def write() -> None:
        with errors.translated(database), engine.begin() as connection:
            processes.append(connection.info[engines.PROCESS])
            connection.exec_driver_sql("SET TRANSACTION READ ONLY")
            connection.exec_driver_sql("CREATE TABLE none ()")

    for _ in range(2):
        with pytest.raises(DatabaseUnavailableError, match="takes no writes"):
            write()
    engine.dispose()

    assert len(set(processes)) == 2


@pytest.mark.parametrize(
    "url",
    [
        "mysql://u:sesame@h/d",
        "sqlite:///x?password=sesame",
        "postgresql+asyncpg://u:sesame@h/d",
        "postgresql//u:sesame@h/d",
        "postgresql://u:sesame@h:port/d",
        "",
    ],
)
def test_other_urls_are_refused_without_showing_the_password(url):
    """The error names what is accepted and never quotes the password."""
    with pytest.raises(ConfigurationError, match="postgresql://user:password@host") as caught:
        urls.normalise_url(url)

    assert "sesame" not in str(caught.value)


def test_every_transaction_sets_what_it_relies_on(database):
    """Other defaults of the database change nothing, and none of ours outlives the transaction."""
    defaults = {
        "synchronous_commit": "off",
        "TimeZone": "Asia/Tokyo",
        "default_transaction_isolation": "serializable",
        "lock_timeout": "200ms",
        "statement_timeout": "5s",
        "idle_in_transaction_session_timeout": "5s",
        "DateStyle": "German",
        "IntervalStyle": "iso_8601",
        "array_nulls": "off",
        "extra_float_digits": "-15",
        "client_encoding": "LATIN1",
    }
    name = urls.normalise_url(database).database
    engine = engines.sync_engine(database)
    with engine.begin() as connection:
        for key, value in defaults.items():
            connection.exec_driver_sql(f"ALTER DATABASE \"{name}\" SET {key} = '{value}'")
    engine.dispose()

    with engine.connect() as connection:
        for _ in range(2):
            with connection.begin():
                assert connection.execute(SHOW).one() == EXPECTED
        raw = connection.connection.dbapi_connection
        assert raw.execute("SHOW synchronous_commit").fetchone() == ("off",)
        raw.rollback()
    engine.dispose()


def test_a_transaction_timeout_of_the_database_ends_no_transaction(database, engine):
    """PostgreSQL has it from 17 on; neither the crawl's transactions nor a command's know it."""
    with engine.begin() as connection:
        if engines.server_version(connection) < 17:
            pytest.skip("PostgreSQL has no transaction_timeout before 17")
        name = urls.normalise_url(database).database
        connection.exec_driver_sql(f"ALTER DATABASE \"{name}\" SET transaction_timeout = '1s'")
    engine.dispose()
    long = sa.text("SELECT count(*) FROM pg_sleep(1.5)")

    async def awaited():
        engine = engines.async_engine(database, pool_size=1)
        async with engine.begin() as connection:
            count = await connection.run_sync(sa.Connection.scalar, long)
        await engine.dispose()
        return count

    with engine.begin() as connection:
        assert connection.scalar(long) == 1
        raw = connection.connection.dbapi_connection
    assert asyncio.run(awaited()) == 1
    with pytest.raises(psycopg.errors.TransactionTimeout):
        raw.execute("SELECT pg_sleep(20)")


def test_a_database_that_is_read_only_by_default_is_named_as_one(database, engine):
    """What somebody made read-only stays so, and the error says where that is set."""
    with engine.begin() as connection:
        name = urls.normalise_url(database).database
        connection.exec_driver_sql(
            f'ALTER DATABASE "{name}" SET default_transaction_read_only = on'
        )
    engine.dispose()

    with (
        pytest.raises(DatabaseUnavailableError, match="default_transaction_read_only is on"),
        errors.translated(database),
        engine.begin() as connection,
    ):
        connection.exec_driver_sql("INSERT INTO crawls (name) VALUES ('none')")


def test_a_start_waits_where_the_url_asks_for_the_primary_and_there_is_none(database, engine):
    """A standby is being promoted; a crawl that is started meanwhile does not end for it."""
    with engine.begin() as connection:
        name = urls.normalise_url(database).database
        connection.exec_driver_sql(
            f'ALTER DATABASE "{name}" SET default_transaction_read_only = on'
        )
    engine.dispose()
    url = urls.normalise_url(database).update_query_dict({"target_session_attrs": "read-write"})

    with (
        pytest.raises(DatabaseUnavailableError, match="takes no writes yet") as refused,
        errors.translated(url),
        engines.sync_engine(url).connect(),
    ):
        pass

    assert engines.Starting(60.0).goes_on(refused.value)


def test_a_server_is_asked_what_it_does_whatever_its_style_of_dates(database, engine):
    """The moment at which a transaction was begun is read, and found again."""
    with engine.begin() as connection:
        name = urls.normalise_url(database).database
        connection.exec_driver_sql(f"ALTER DATABASE \"{name}\" SET DateStyle = 'SQL, DMY'")
    connect = engines.connect_arguments(engine)

    with engine.begin() as connection:
        process = connection.info[engines.PROCESS]
        begun = connection.scalar(sa.text("SELECT now()"))
        found = asyncio.run(backend_activity.look(connect, [process], 10))

    assert found[process].begun_at == begun


def test_the_async_engine_sets_the_same(database):
    """The crawl's connections have it too, and see times in UTC."""

    async def show():
        engine = engines.async_engine(database, pool_size=1)
        async with engine.begin() as connection:
            row = await connection.run_sync(lambda one: one.execute(SHOW).one())
            now = await connection.run_sync(sa.Connection.scalar, engines.NOW)
        await engine.dispose()
        return row, now

    row, now = asyncio.run(show())

    assert row == EXPECTED
    assert now.utcoffset().total_seconds() == 0


@pytest.mark.parametrize("ends", ["an error", "cancelled"])
def test_an_awaited_transaction_that_does_not_end_well_keeps_nothing(database, ends):
    """It is rolled back, and the pool's only connection, or a new one, takes the next one."""
    count = sa.text("SELECT count(*) FROM crawls WHERE name = 'half'")

    def work(connection):
        connection.execute(sa.text("INSERT INTO crawls (name) VALUES ('half')"))
        assert connection.scalar(count) == 1
        if ends == "an error":
            raise ValueError("half done")
        connection.execute(sa.text("SELECT pg_sleep(60)"))

    async def run():
        engine = engines.async_engine(database, pool_size=1)
        with pytest.raises((ValueError, TimeoutError)):
            async with asyncio.timeout(1), engine.begin() as connection:
                await connection.run_sync(work)
        async with engine.begin() as connection:
            found = await connection.run_sync(sa.Connection.scalar, count)
        await engine.dispose()
        return found

    assert asyncio.run(run()) == 0


def test_nothing_is_asked_for_at_start_up(engine):
    """A pooler in transaction mode, which refuses `options`, can stand between."""
    with engine.connect() as connection:
        raw = connection.connection.dbapi_connection

        assert "options" not in raw.info.get_parameters()
        assert raw.prepare_threshold is None


def test_the_hot_path_is_local_to_its_transaction(engine):
    """Its planner settings hold until the commit and no longer."""
    setting = "SELECT current_setting('enable_sort')"

    with engine.connect() as connection:
        engines.hot_path(connection)
        during = connection.exec_driver_sql(setting).scalar_one()
        connection.commit()
        after = connection.exec_driver_sql(setting).scalar_one()

    assert during == "off"
    assert after == "on"


def test_an_old_server_is_refused_and_a_new_one_only_noted(connection, monkeypatch, caplog):
    """Versions 15 to 18 pass in silence, older ones are an error, newer ones a warning."""
    assert engines.check_version(connection) in range(15, 19)
    assert caplog.messages == []

    monkeypatch.setattr(engines, "server_version", lambda _: 19)
    assert engines.check_version(connection) == 19
    assert "PostgreSQL 19" in caplog.messages[0]

    monkeypatch.setattr(engines, "server_version", lambda _: 14)
    with pytest.raises(DatabaseError, match="PostgreSQL 14"):
        engines.check_version(connection)


def test_a_wrong_password_is_one_clear_line(guarded):
    """The line names server and user, and what to check."""
    message = refusal(guarded.url_for(password="not sesame"))

    assert "refuses the password" in message
    assert f"127.0.0.1:{guarded.port}" in message
    assert "'postgres'" in message


def test_a_wrong_password_is_one_clear_line_in_async_code_too(guarded):
    """`errors` suits the body of an `async with`, and works without a URL."""

    async def connect():
        engine = engines.async_engine(guarded.url_for(password="not sesame"))
        with errors.translated():
            async with engine.begin():
                pass

    with pytest.raises(DatabaseUnavailableError, match="refuses the password"):
        asyncio.run(connect())


@pytest.mark.parametrize(
    ("login", "expected"),
    [
        ({"database": "nowhere"}, "no such database"),
        ({"user": "stranger"}, "refuses the password"),  # PostgreSQL does not tell who exists
    ],
)
def test_an_unknown_database_or_user_is_one_clear_line(guarded, login, expected):
    """Each wrong part of the URL is named for what it is."""
    assert expected in refusal(guarded.url_for(**login))


def test_a_full_server_is_one_clear_line(guarded):
    """Too many connections are said to be that."""
    admin = psycopg.connect(guarded.url, autocommit=True)
    admin.execute(f"CREATE ROLE guest LOGIN CONNECTION LIMIT 0 PASSWORD '{servers.PASSWORD}'")

    message = refusal(guarded.url_for(user="guest"))

    admin.execute("DROP ROLE guest")
    admin.close()
    assert "too many connections" in message


def test_a_closed_port_is_one_clear_line():
    """Where nothing listens the line says so."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))

        message = refusal(f"postgresql://u:sesame@127.0.0.1:{probe.getsockname()[1]}/d")

    assert "refuses connections" in message


def test_a_silent_host_is_one_clear_line():
    """A host that takes the connection and never answers is given up."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()

        message = refusal(
            f"postgresql://u:sesame@127.0.0.1:{silent.getsockname()[1]}/d?connect_timeout=2"
        )

    assert "cannot be reached" in message


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://u:sesame@host.invalid/d", "unknown host name"),
        ("postgresql:///d?host=/nonexistent", "cannot be reached"),
    ],
)
def test_a_wrong_host_is_one_clear_line(url, expected):
    """Names that do not resolve and sockets that do not exist are told apart."""
    assert expected in refusal(url)


def test_a_lost_connection_is_one_clear_line(engine, database):
    """A server that ends the connection amid a transaction is an error of ours too."""
    broken = pytest.raises(DatabaseUnavailableError, match="broke the connection")

    with engine.connect() as connection, broken as caught, errors.translated(database):
        connection.exec_driver_sql("SELECT pg_terminate_backend(pg_backend_pid())")

    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("make", [engines.sync_engine, engines.async_engine])
def test_an_idle_connection_that_the_server_closed_is_replaced(database, make):
    """Nobody hears of it; and one that works is not asked first whether it does."""
    engine = make(database)
    pings = pings_of(engine)

    async def process() -> int:
        if isinstance(engine, sa.Engine):
            with engine.begin() as connection:
                return connection.scalar(OWN_PROCESS)
        async with engine.begin() as connection:
            return await connection.run_sync(sa.Connection.scalar, OWN_PROCESS)

    async def in_turn():
        before, again = await process(), await process()
        assert pings == []
        ended = sa.func.pg_terminate_backend(again, 10_000)
        other = engines.sync_engine(database)
        with other.begin() as connection:
            assert connection.scalar(sa.select(ended))
        other.dispose()
        after = await process()
        disposed = engine.dispose()
        if disposed is not None:
            await disposed
        return before, again, after

    before, again, after = asyncio.run(in_turn())

    assert before == again != after


def pings_of(engine) -> list[object]:
    """Return a list of the connections that are asked whether they work."""
    pings: list[object] = []
    ping = engine.dialect.do_ping
    engine.dialect.do_ping = lambda connection: (pings.append(connection), ping(connection))
    return pings


def test_a_server_that_has_no_process_for_a_connection_is_waited_for():
    """It answers with an error before any encryption, of which libpq shows nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answers() -> None:
            with listener.accept()[0] as client:
                client.recv(8)
                client.sendall(b"Ecould not fork\n\0")

        answering = threading.Thread(target=answers)
        answering.start()
        url = f"postgresql://u@127.0.0.1:{listener.getsockname()[1]}/d?gssencmode=disable"
        not_ready = pytest.raises(DatabaseStartingError, match="no connection at this moment")
        with not_ready, errors.translated(url), psycopg.connect(url):
            pass
        answering.join()


def test_errors_of_a_statement_pass_through(engine):
    """What concerns one statement, as a deadlock or a lock, stays the driver's error."""
    waiting = "SET LOCAL lock_timeout = 1; LOCK TABLE items"

    with engine.begin() as holder, engine.begin() as waiter:
        holder.exec_driver_sql("LOCK TABLE items")
        with pytest.raises(sa.exc.OperationalError), errors.translated():
            waiter.exec_driver_sql(waiting)
        waiter.rollback()
    with (
        engine.connect() as connection,
        pytest.raises(sa.exc.ProgrammingError),
        errors.translated(),
    ):
        connection.exec_driver_sql("SELECT nothing")


@pytest.mark.parametrize(
    ("state", "is_unavailable"),
    [
        *((state, True) for state in ("08006", "53100", "53300", "57P01", "57P03", "58030")),
        *((state, False) for state in ("54000", "55P03", "57014", "40001", "42501", "0A000")),
    ],
)
def test_only_states_of_the_server_say_that_it_is_unavailable(connection, state, is_unavailable):
    """A limit of PostgreSQL's that one value exceeds is no reason to wait for a better server."""
    expected = DatabaseUnavailableError if is_unavailable else sa.exc.DBAPIError

    with pytest.raises(expected), errors.translated(), connection.begin_nested():
        connection.exec_driver_sql(RAISE.format(state))


@pytest.mark.parametrize("state", ["57P01", "57P02", "57P03"])
def test_a_start_waits_for_a_server_that_says_that_it_goes_or_comes(connection, state):
    """Only a server that speaks says so, so that its address is right."""
    with (
        pytest.raises(DatabaseUnavailableError) as away,
        errors.translated(),
        connection.begin_nested(),
    ):
        connection.exec_driver_sql(RAISE.format(state))

    assert engines.Starting(60.0).goes_on(away.value)
    assert not engines.Starting(0.0).goes_on(away.value)


def test_a_value_that_an_index_refuses_fails_its_execution_alone(database):
    """What a check let through and PostgreSQL refuses does not hold up the batch it came in."""
    long = "".join(uuid.uuid4().hex for _ in range(150))

    async def run():
        async with crawling(database) as graph:
            await graph.commits.seed([CreateItem(name, tags=["book"]) for name in "ABC"])
            claims = await claimed(graph, 3)
            result = await graph.commits.commit(
                [
                    Changeset(operations=(AddTag(tag),), outcome=Outcome.OK, claim=claim)
                    for claim, tag in zip(claims, ("x", long, "x"), strict=True)
                ]
            )
            return result.applied

    applied = asyncio.run(run())

    assert [one.outcome for one in applied] == ["ok", "failed", "ok"]
    assert "ProgramLimitExceeded" in applied[1].error.message


def test_what_is_in_flight_is_written_with_a_commit_but_not_with_one_that_was_refused(database):
    """The result says whether the database knows what the engine may begin."""
    long = "".join(uuid.uuid4().hex for _ in range(150))

    async def run():
        async with crawling(database) as graph:
            await graph.commits.seed([CreateItem(name, tags=["book"]) for name in "AB"])
            pairs = [(claim.item_id, claim.task_id) for claim in await claimed(graph, 2)]
            seeds = Changeset(operations=(CreateItem("C", tags=[long]),), outcome=Outcome.OK)
            refused = await graph.commits.commit([seeds], in_flight=pairs)
            return refused.is_written, (await graph.commits.commit([], in_flight=pairs)).is_written

    assert asyncio.run(run()) == (False, True)


def test_a_request_whose_slot_is_too_long_fails_its_execution_alone(database):
    """No work can be filed under such a slot, so its claim ends with an error that says so."""

    async def run():
        async with crawling(database) as graph:
            await graph.commits.seed([CreateItem("A", tags=["book"])])
            (claim,) = await claimed(graph, 1)
            return await graph.claims.refile(claim, "x" * 256), await claimed(graph, 1)

    assert asyncio.run(run()) == (True, [])
    engine = engines.sync_engine(database)
    with engine.connect() as connection:
        (error,) = connection.execute(sa.text("SELECT error->>'message' FROM failures")).one()
    engine.dispose()
    assert "slot is no text of up to 255 bytes" in error


@pytest.mark.parametrize("state", ["40P01", "40001", "55P03", "57014"])
def test_what_others_did_to_a_transaction_is_done_again(database, state):
    """Deadlocks, serialisation, timeouts of locks and cancelled statements pass."""
    raised = []

    def fail_once(connection):
        if not raised:
            raised.append(state)
            connection.exec_driver_sql(RAISE.format(state))
        return connection.scalar(sa.text("SELECT 1"))

    async def run():
        async with crawling(database) as graph:
            return await graph.connections.transactions.call(fail_once)

    assert asyncio.run(run()) == 1
    assert raised == [state]


def test_a_role_that_may_not_create_tables_is_told_in_one_line(empty_database):
    """PostgreSQL 15 grants nobody CREATE on the schema public; the error says what to do."""
    role = f"poor_{uuid.uuid4().hex}"
    admin = engines.sync_engine(empty_database)
    with admin.begin() as connection:
        connection.exec_driver_sql(f"CREATE ROLE {role} LOGIN PASSWORD 'sesame'")
    url = urls.normalise_url(empty_database).set(username=role, password="sesame")

    async def run():
        async with crawling(url.render_as_string(hide_password=False), auto_migrate=True):
            pass

    with pytest.raises(DatabaseError, match="permission denied for schema") as caught:
        asyncio.run(run())

    with admin.begin() as connection:
        connection.exec_driver_sql(f"DROP ROLE {role}")
    admin.dispose()
    message = str(caught.value)
    assert "CREATE on the schema" in message
    assert "scrapy itemgraph migrate" in message
    assert "\n" not in message
    assert "sesame" not in message


def test_a_password_with_an_at_sign_is_not_shown():
    """An @ that is not percent-encoded is named, and no part of the password is."""
    with pytest.raises(ConfigurationError) as caught:
        urls.normalise_url("postgresql://crawl:s3cret@word@db.example/crawl")

    assert "%40" in str(caught.value)
    assert "word" not in str(caught.value).replace("password", "")


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
@pytest.mark.parametrize("way", ["a crawl", "a command", "migrate"])
def test_a_database_that_cannot_hold_every_text_is_refused(server_url, encoding, way):
    """A database in another encoding than UTF-8 is refused before anything is stored."""
    name = f"itemgraph_test_{uuid.uuid4().hex}"
    url = urls.normalise_url(server_url)
    admin = sa.create_engine(url, isolation_level="AUTOCOMMIT", poolclass=sa.pool.NullPool)
    with admin.connect() as connection:
        connection.exec_driver_sql(
            f"CREATE DATABASE {name} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0"
        )
    other = url.set(database=name).render_as_string(hide_password=False)

    async def run():
        async with crawling(other, auto_migrate=True):
            pass

    ways = {
        "a crawl": lambda: asyncio.run(run()),
        "a command": lambda: ItemGraph.open(other, "books").__enter__(),
        "migrate": lambda: ItemGraph.migrate(other),
    }
    with pytest.raises(DatabaseError, match=f"encoding is {encoding}, which cannot hold"):
        ways[way]()

    with admin.connect() as connection:
        connection.exec_driver_sql(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.mark.parametrize(
    "given",
    [
        [],
        [""],
        [None],
        ["null", None, "NULL"],
        ['"', "\\", '\\"', "{a,b}", " ", "\n", "é,\U0001f600"],
    ],
)
def test_text_in_an_array_arrives_as_it_was(connection, given):
    """Quotes, backslashes, commas, nulls and what looks like them."""
    found = connection.scalar(
        sa.text("SELECT CAST(:given AS text[])"), {"given": text_array(given)}
    )

    assert found == given


def test_numbers_in_an_array_arrive_as_they_were(connection):
    """Large ones, negative ones, and nulls."""
    given = [0, -(2**63), 2**63 - 1, None]
    found = connection.scalar(
        sa.text("SELECT CAST(:given AS bigint[])"), {"given": number_array(given)}
    )

    assert found == given
