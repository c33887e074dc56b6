"""Run by root, PostgreSQL has its files where its account can go, and no other mode changes."""

from __future__ import annotations

import fcntl
import hashlib
import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from support import servers

from scrapy_itemgraph.exceptions import EmbeddedServerError
from scrapy_itemgraph.postgres import data_directory, programs, system_user
from scrapy_itemgraph.postgres.cluster import Cluster
from scrapy_itemgraph.postgres.embedded_server import EmbeddedServer

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root has PostgreSQL run as another account"
)


@pytest.fixture
def apart(tmp_path, monkeypatch) -> Path:
    """Have places apart made below a directory of the test's own."""
    path = tmp_path / "apart"
    monkeypatch.setattr(data_directory, "APART", path)
    return path


@pytest.fixture
def private(tmp_path) -> Path:
    """Return a directory that only root can enter."""
    path = tmp_path / "private"
    path.mkdir(mode=0o700)
    return path


@pytest.fixture(scope="module")
def made():
    """Make one cluster with a table in it, for the tests that begin with one."""
    with servers.open_directory() as base:
        data_dir = base / "data"
        server = EmbeddedServer.start(data_dir)
        query(server, "CREATE TABLE kept AS SELECT 42 AS value")
        server.close()
        yield data_dir


def copy(made: Path, to: Path) -> Path:
    """Copy a stopped cluster with its owners, as `cp -a` does."""
    subprocess.run(["cp", "-a", made, to], check=True)
    return to


def query(server: EmbeddedServer, statement: str) -> list[tuple]:
    """Return what a statement answers."""
    with psycopg.connect(server.url.replace("+psycopg", ""), autocommit=True) as connection:
        cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []


def use(data_dir: Path) -> tuple[Path, bool]:
    """Start and stop the server of a directory; where its files are, and whether it is the made."""
    server = EmbeddedServer.start(data_dir)
    ((table,),) = query(server, "SELECT to_regclass('kept')")
    server.close()
    return server.cluster.directory, table is not None


def find(data_dir: Path) -> tuple[Path, bool]:
    """Return the same without starting anything."""
    directory = Cluster.at(data_dir).directory
    return directory, (directory / "cluster").exists()


def modes(*paths: Path) -> dict[Path, int]:
    """Return the modes of directories and of all on the way to them."""
    return {
        one: stat.S_IMODE(one.stat().st_mode) for path in paths for one in (path, *path.parents)
    }


def test_a_directory_that_the_account_cannot_reach_is_left_closed(private, apart, caplog):
    """The cluster stands apart, one line says so, and the next start finds it by the pointer."""
    caplog.set_level("INFO")
    data_dir = private / "project" / "data"
    data_dir.mkdir(parents=True)
    before = modes(data_dir)

    server = EmbeddedServer.start(data_dir)
    query(server, "CREATE TABLE kept ()")
    server.close()
    again = use(data_dir)

    assert modes(data_dir) == before
    assert again == (server.cluster.directory, True)
    assert server.cluster.directory.parent == apart
    assert (data_dir / "place").read_text() == f"{server.cluster.directory}\n"
    assert not (data_dir / "cluster").exists()
    (said,) = [line for line in caplog.messages if "so its files are in" in line]
    assert str(data_dir) in said
    assert str(server.cluster.directory) in said


def test_a_directory_of_its_own_is_opened_where_all_parents_are(made, tmp_path):
    """Its own mode may change: where the account can pass to the parents nothing is set apart."""
    data_dir = copy(made, tmp_path / "data")
    data_dir.chmod(0o700)

    assert find(data_dir) == (data_dir, True)
    assert stat.S_IMODE(data_dir.stat().st_mode) == 0o701


def test_a_cluster_whose_parents_are_closed_again_moves(made, private, apart):
    """Who takes back what older versions opened keeps the graph."""
    data_dir = copy(made, private / "data")

    directory, is_the_made = use(data_dir)

    assert directory.parent == apart
    assert is_the_made
    assert not (data_dir / "cluster").exists()
    assert find(data_dir) == (directory, True)


def test_a_cluster_moves_to_another_file_system(made, private, monkeypatch):
    """Where it cannot be renamed it is copied, with its owner, and then removed."""
    with servers.small_disk(400) as disk:
        monkeypatch.setattr(data_directory, "APART", disk / "apart")
        data_dir = copy(made, private / "data")

        directory, is_the_made = use(data_dir)

        assert directory.parent == disk / "apart"
        assert is_the_made
        assert not (data_dir / "cluster").exists()


def test_a_cluster_in_use_does_not_move(made, private, apart, tmp_path):
    """A server that runs is joined where it is; one whose users live without it is left alone."""
    home = tmp_path / "opened"
    home.mkdir(mode=0o711)
    data_dir = copy(made, home / "data")
    with servers.unwatched(data_dir) as server:
        home.chmod(0o700)

        assert use(data_dir) == (data_dir, True)

        server.cluster.stop()
        with pytest.raises(EmbeddedServerError, match="is in use"):
            EmbeddedServer.start(data_dir)
    assert find(data_dir)[1]


def test_a_move_that_was_killed_is_finished(made, private, apart):
    """The pointer stands first, so a graph is never taken for an empty one."""
    data_dir = copy(made, private / "data")
    account = system_user.system_account()
    place = data_directory._set_apart(data_dir, account)

    assert find(data_dir) == (place, True)
    assert not (data_dir / "cluster").exists()


def test_without_a_place_the_start_is_refused(private, tmp_path, monkeypatch):
    """Where no place will do the error names ITEMGRAPH_DATA_DIR, and nothing is left behind."""
    monkeypatch.setattr(data_directory, "APART", private / "apart")
    data_dir = private / "data"
    before = modes(private)

    with pytest.raises(EmbeddedServerError, match="Set ITEMGRAPH_DATA_DIR") as caught:
        EmbeddedServer.start(data_dir)

    assert system_user.SYSTEM_USER in str(caught.value)
    assert str(data_dir) in str(caught.value)
    assert modes(private) == before
    assert not (data_dir / "place").exists()
    assert list((private / "apart").iterdir()) == []


def test_two_projects_have_a_place_each(private, apart):
    """Neither sees the other's graph."""
    first, second = (find(private / name)[0] for name in ("first", "second"))

    assert first != second
    assert {path.parent for path in (first, second)} == {apart}


def test_a_project_that_moved_keeps_its_graph(made, private, apart, caplog):
    """The pointer goes with it, and a line says that the place follows."""
    caplog.set_level("INFO")
    before, _ = find(copy(made, private / "data"))
    moved = (private / "data").rename(private / "moved")

    assert find(moved) == (before, True)
    assert f"is now that of {moved}" in caplog.text
    assert find(moved) == (before, True)
    assert caplog.text.count("is now that of") == 1


def test_a_copy_does_not_share_the_graph_of_the_original(made, private, apart):
    """It is refused, with both ways out; without its pointer it begins anew."""
    original = copy(made, private / "data")
    place, _ = find(original)
    duplicate = copy(original, private / "copy")

    with pytest.raises(EmbeddedServerError, match="is a copy of") as caught:
        Cluster.at(duplicate)

    assert str(duplicate / "place") in str(caught.value)
    assert f"ITEMGRAPH_DATA_DIR to {original}" in str(caught.value)
    (duplicate / "place").unlink()
    other, is_the_made = find(duplicate)
    assert other != place
    assert not is_the_made
    assert find(original) == (place, True)


def test_a_graph_that_is_gone_is_not_begun_anew_in_silence(made, private, apart):
    """A pointer to nothing is an error until somebody removes it."""
    data_dir = copy(made, private / "data")
    place, _ = find(data_dir)
    place.rename(place.with_name("elsewhere"))

    with pytest.raises(EmbeddedServerError, match="is gone"):
        Cluster.at(data_dir)

    (data_dir / "place").unlink()
    assert not find(data_dir)[1]


def test_a_pointer_to_a_strange_directory_is_refused(private, apart):
    """What a project brings along cannot have root write into any directory."""
    data_dir, strange = private / "data", private / "strange"
    for path in (data_dir, strange):
        path.mkdir()
    (data_dir / "place").write_text(f"{strange}\n")

    with pytest.raises(EmbeddedServerError, match="was not made for an item graph"):
        Cluster.at(data_dir)

    assert list(strange.iterdir()) == []


def test_the_graph_of_a_removed_project_is_named(made, private, apart, caplog):
    """It stays, for its disk may only be away; whoever sets a place apart later tells of it."""
    data_dir = copy(made, private / "data")
    place, _ = find(data_dir)
    shutil.rmtree(data_dir)

    find(private / "other")

    (said,) = [line for line in caplog.messages if "which is gone" in line]
    assert f"rm -r {place}" in said
    assert (place / "cluster").exists()


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_programs_that_the_account_cannot_reach_are_taken_along(
    made, private, tmp_path, monkeypatch, umask
):
    """From root's own virtual environment they are linked, or copied where only root may read."""
    site = private / "site-packages"
    installed = programs.find().programs
    package = installed.parent.parent
    for path in (package, package.with_name(f"{programs.PACKAGE}.libs")):
        shutil.copytree(path, site / path.name, ignore=shutil.ignore_patterns("include"))
    subprocess.run(["chmod", "-R", f"u=rwX,go={'' if umask == 0o077 else 'rX'}", site], check=True)
    theirs = site / package.name / installed.parent.name / "bin"
    before = {path: path.stat().st_mode for path in (private, *private.rglob("*"))}
    wheel = programs.Installation(theirs, programs.find().version)
    monkeypatch.setattr(programs, "_of_wheel", lambda: wheel)
    data_dir = copy(made, tmp_path / "data")

    assert use(data_dir) == (data_dir, True)
    copied = next((data_dir / "programs").rglob("postgres"))
    inode = copied.stat().st_ino
    assert use(data_dir) == (data_dir, True)

    assert {path: path.stat().st_mode for path in (private, *private.rglob("*"))} == before
    assert ((theirs / "postgres").stat().st_ino == inode) is (umask == 0o022)
    assert copied.stat().st_ino == inode  # made once
    os.utime(theirs / "postgres", (0, 0))
    (data_dir / "programs" / "old").touch()
    programs.usable(theirs, system_user.system_account(), data_dir)
    assert not (data_dir / "programs" / "old").exists()  # made anew for another installation


def test_the_account_that_is_made_is_told(monkeypatch, caplog):
    """The one thing that is made outside our directories is said in a line."""
    caplog.set_level("INFO")
    name = f"itemgraph-test-{os.getpid()}"
    monkeypatch.setattr(system_user, "SYSTEM_USER", name)
    try:
        assert system_user.system_account().pw_name == name
        assert system_user.system_account().pw_name == name
    finally:
        subprocess.run(["userdel", name], check=True)

    assert [name in message for message in caplog.messages] == [True]


def test_processes_that_make_the_account_at_once_make_one(tmp_path):
    """Its number stays what the first of them was told: what it gave away stays readable."""
    name = f"itemgraph-test-{os.getpid()}"
    script = (
        "from scrapy_itemgraph.postgres import system_user\n"
        f"system_user.SYSTEM_USER = {name!r}\n"
        "input(print(flush=True) or '')\n"
        "print(system_user.system_account().pw_uid)\n"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    started = [subprocess.Popen([sys.executable, "-c", script], **pipes) for _ in range(6)]
    try:
        for process in started:
            process.stdout.readline()
        for process in started:
            process.stdin.write("\n")
            process.stdin.flush()
        numbers = {process.communicate()[0] for process in started}
        assert numbers == {f"{pwd.getpwnam(name).pw_uid}\n"}
    finally:
        subprocess.run(["userdel", name], check=True)


def test_nobody_else_can_hold_up_the_making_of_the_account(monkeypatch):
    """Everybody may lock /etc/passwd; what root locks here nobody else can open."""
    name = f"itemgraph-test-{os.getpid()}"
    monkeypatch.setattr(system_user, "SYSTEM_USER", name)
    with Path("/etc/passwd").open() as accounts:
        fcntl.flock(accounts, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            assert system_user.system_account().pw_name == name
        finally:
            subprocess.run(["userdel", name], check=False)

    stranger = pwd.getpwnam("nobody")
    assert not system_user.can(stranger, 'exec 3<"$1"', system_user._LOCK)
    assert not system_user.can(stranger, 'exec 3>"$1/other"', system_user._LOCK.parent)


def test_nobody_else_can_make_the_directory_of_a_socket_first(made, tmp_path):
    """Its name is not known before; who has made one where the last one was is passed by."""
    long = copy(made, tmp_path / ("long" * 30))
    stranger = pwd.getpwnam("nobody")
    name = hashlib.sha256(os.fsencode(long / "cluster")).hexdigest()
    foreign = [Path("/tmp") / f"itemgraph-{name[:16]}"]
    try:
        server = EmbeddedServer.start(long)
        first = Path(server.cluster._postmaster().socket_directory)
        assert query(server, "SELECT 1") == [(1,)]
        server.close()
        assert not first.exists()
        foreign.append(first)
        for path in foreign:
            path.mkdir(mode=0o777)
            os.chown(path, stranger.pw_uid, stranger.pw_gid)

        server = EmbeddedServer.start(long)
        second = Path(server.cluster._postmaster().socket_directory)
        assert query(server, "SELECT 1") == [(1,)]
        server.close()
    finally:
        for path in foreign:
            path.rmdir()

    assert second not in foreign


def test_a_server_that_died_has_its_socket_where_it_was(made, tmp_path):
    """Those who use it look there; also when somebody has cleaned up meanwhile."""
    long = copy(made, tmp_path / ("long" * 30))
    before = EmbeddedServer.start(long)
    died = before.cluster._postmaster()
    os.kill(died.pid, signal.SIGKILL)

    after = EmbeddedServer.start(long)

    assert after.url == before.url
    assert query(before, "SELECT 1") == [(1,)]
    before.close()
    after.close()


def test_a_new_cluster_takes_no_connections_over_tcp(made):
    """Whatever somebody has it listen on, it refuses until pg_hba.conf says otherwise."""
    rules = [
        line.split()
        for line in (made / "cluster" / "pg_hba.conf").read_text().splitlines()
        if line.strip() and not line.startswith("#")
    ]

    assert {rule[-1] for rule in rules if rule[0] == "host"} == {"reject"}
    assert {rule[-1] for rule in rules if rule[0] == "local"} == {"trust"}


def test_a_socket_is_where_the_account_can_go(made, tmp_path, private, monkeypatch):
    """A private TMPDIR is passed over, not opened."""
    monkeypatch.setattr("tempfile.tempdir", str(private))
    long = tmp_path / ("long" * 30)
    copy(made, long)

    server = EmbeddedServer.start(long)

    assert query(server, "SELECT 1") == [(1,)]
    assert "host=/tmp/itemgraph-" in server.url
    server.close()
    assert list(private.iterdir()) == []
    assert stat.S_IMODE(private.stat().st_mode) == 0o700
