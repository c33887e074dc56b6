"""A project on a database of its own, and a site for it to crawl."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from conftest import new_database
from support import in_turn, logs, manuals, sites
from support.projects import Project

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.projects import Run


@pytest.fixture(scope="module")
def site_kind() -> type[sites.Site]:
    """Return what kind of site the tests of the module crawl."""
    return sites.Site


@pytest.fixture(scope="module")
def _crawled(request, server_url, template, site_kind) -> Iterator[dict[str, in_turn.Crawled]]:
    """Crawl what the module's tests are marked with, in one process; yield it by the test's id."""
    wanted = {
        item.nodeid: texts
        for item in request.session.items
        if item.module is request.module and (texts := in_turn.written(item))
    }
    with in_turn.crawled(wanted, site_kind, lambda: new_database(server_url, template)) as found:
        yield found


@pytest.fixture
def crawled(request, _crawled) -> in_turn.Crawled:
    """Return the crawl that the test is marked with: `@pytest.mark.crawls(SPIDER, SETTINGS)`."""
    one = _crawled[request.node.nodeid]
    logs.take(one.run.log)
    return one


@pytest.fixture
def run(crawled) -> Run:
    """Return the run of the crawl that the test is marked with."""
    return crawled.run


@pytest.fixture
def site(request, site_kind) -> Iterator[sites.Site]:
    """Serve a site of the test's own; after its crawl, where the test is marked with one."""
    if request.node.get_closest_marker("crawls"):
        yield request.getfixturevalue("crawled").site
        return
    with sites.site(site_kind) as one:
        yield one


@pytest.fixture
def project(request, site) -> Iterator[Project]:
    """Return a project on the test's own database; what it started ends with the test.

    It is empty, or that of the crawl that the test is marked with.
    """
    if request.node.get_closest_marker("crawls"):
        yield request.getfixturevalue("crawled").project
        return
    given = request.getfixturevalue
    one = Project(given("tmp_path"), given("database"), site.url)
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
