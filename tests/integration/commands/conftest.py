"""A crawl, and functions that run `scrapy itemgraph` on its database."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace

import pytest
from scrapy import cmdline
from scrapy.settings import Settings
from support.commands_run import NOWHERE, TASKS, Ran
from support.graphs import Crawl


@pytest.fixture
def crawl(engine):
    """Yield a crawl with two tasks, on a connection that `scrapy` commits before each command."""
    with engine.connect() as connection:
        crawl = Crawl.of(connection, **TASKS)
        connection.commit()
        yield crawl


@pytest.fixture
def scrapy(capsys, monkeypatch, tmp_path, request):
    """Return a function that runs `scrapy itemgraph` in this process, outside a project.

    A test that asks for no database has none that answers.
    """
    monkeypatch.chdir(tmp_path)
    database = NOWHERE
    if "database" in request.fixturenames:
        database = request.getfixturevalue("database")

    def run(*arguments, stdin="", **settings) -> Ran:
        if "crawl" in request.fixturenames:
            request.getfixturevalue("crawl").connection.commit()
        given = stdin.encode() if isinstance(stdin, str) else stdin
        read = io.BytesIO(given) if isinstance(given, bytes) else given
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=read))
        given = Settings({"ITEMGRAPH_DATABASE_URL": database, **settings}, priority="project")
        capsys.readouterr()
        with pytest.raises(SystemExit) as exited:
            cmdline.execute(["scrapy", "itemgraph", *arguments], given)
        written = capsys.readouterr()
        return Ran(exited.value.code, written.out, written.err)

    return run
