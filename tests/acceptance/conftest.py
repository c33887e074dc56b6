"""A project on a database of its own, and a site for it to crawl."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import manuals
import pytest
import sites
from conftest import new_database
from projects import Project

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def site() -> Iterator[sites.Site]:
    """Serve a site of the test's own."""
    with sites.site() as one:
        yield one


@pytest.fixture
def project(tmp_path, database, site) -> Iterator[Project]:
    """Return an empty project on the test's own database; what it started ends with the test."""
    one = Project(tmp_path, database, site.url)
    yield one
    for process in one.started:
        process.kill()
        process.wait()


@pytest.fixture
def other(project, tmp_path) -> Project:
    """Return a second directory of the same project, for another process with a log of its own."""
    directory = tmp_path / "other"
    directory.mkdir()
    return Project(directory, project.url, project.site_url)


@pytest.fixture
def debian(tmp_path) -> Iterator[manuals.Manuals]:
    """Serve Debian's manuals."""
    with manuals.site(tmp_path) as one:
        yield one


@pytest.fixture
def settings(database) -> tuple[str, ...]:
    """Point a crawl at the test's own database."""
    return (f"ITEMGRAPH_DATABASE_URL={database}",)


@pytest.fixture
def new_clone(server_url, template) -> Iterator[Callable[[], str]]:
    """Return a maker of further databases, dropped at the end."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(new_database(server_url, template))
