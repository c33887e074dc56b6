"""A task is simulated from the cockpit: by a process of its own, with the code as it is now."""

from __future__ import annotations

import contextlib
import html
import re
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

import pytest
from support import web_servers

from scrapy_itemgraph.graph import ItemGraph

SPIDER = """
class S(scrapy.Spider):
    name = "s"

    def seeds(self):
        yield seed("-A/1", "/page")

    @task(tags=["page"])
    def parse(self, response, item):
        yield UpdateData({"price": response.no_price})
"""
PLAIN = """
class S(scrapy.Spider):
    name = "s"

    async def start(self):
        yield scrapy.Request(SITE + "/page/list?a=1&b=2")

    def parse(self, response):
        yield {"price": response.no_price}
"""
SLOW = """
        import time
        time.sleep(600)
"""


@pytest.fixture
def served(project, monkeypatch):
    """Yield a project whose crawl has a failure, and the address of its cockpit."""
    project.write(SPIDER)
    assert project.crawl().code == 0
    monkeypatch.setenv("SITE", project.site_url)
    with web_servers.serving(project.url, "--crawl", "s", cwd=project.directory) as server:
        yield project, server.url.rstrip("/")


def simulate(address, item="-A/1", task="parse", crawl="s"):
    """Press the button; return the status, and the page as text."""
    form = urllib.parse.urlencode({"id": item, "task": task}).encode()
    request = urllib.request.Request(
        f"{address}/crawls/{crawl}/simulate", data=form, headers={"Origin": address}
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            status, page = answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        status, page = error.code, error.read().decode()
    return status, html.unescape(re.sub("<[^>]*>", "", page))


@pytest.mark.tracebacks("no_price")
def test_a_mend_is_simulated_before_the_failure_is_handled(served):
    """SRAP-36: the first shows the error; after a mend of the code the next shows the change."""
    project, address = served
    with ItemGraph.open(project.url, "s") as graph:
        (ended_at,) = (one.stopped_at for one in graph.crawls.overview())

    status, page = simulate(address)
    assert status == 200
    assert "It would not succeed" in page
    assert "no_price" in page

    project.write(SPIDER.replace("response.no_price", "12"))
    status, page = simulate(address)
    assert "It would succeed" in page
    assert "+ data.price: 12" in page
    with ItemGraph.open(project.url, "s") as graph:  # neither has ended a run
        assert [one.stopped_at for one in graph.crawls.overview()] == [ended_at]
        assert [one.reason for one in graph.activity.workers()] == ["finished"]
    assert project.rows("SELECT data->>'price', count(*) FROM items GROUP BY 1") == [(None, 1)]
    assert project.rows("SELECT count(*) FROM failures WHERE handled_at IS NULL") == [(1,)]


@pytest.mark.tracebacks("no_price")
def test_the_page_of_a_plain_callback_is_simulated_too(project, monkeypatch):
    """The button works for its failure, and the command beside it can be pasted into a shell."""
    project.write(PLAIN)
    assert project.crawl().code == 0
    monkeypatch.setenv("SITE", project.site_url)
    project.write(PLAIN.replace("response.no_price", "12"))
    ((item,),) = project.rows("SELECT name FROM items")
    with web_servers.serving(project.url, "--crawl", "s", cwd=project.directory) as server:
        address = server.url.rstrip("/")
        status, page = simulate(address, item=item)
        with urllib.request.urlopen(f"{address}/crawls/s/failures", timeout=60) as answer:
            listed = html.unescape(answer.read().decode())

    assert (status, "It would succeed" in page) == (200, True), page
    assert "{'price': 12}" in page
    url = f"{project.site_url}/page/list?a=1&b=2"
    assert f"scrapy itemgraph simulate s '{url}'" in listed
    assert project.rows("SELECT count(*) FROM failures WHERE handled_at IS NULL") == [(1,)]


@pytest.mark.tracebacks("no_price")
def test_what_cannot_be_simulated_is_said(served):
    """An unknown task, an item that does not exist and code that cannot be loaded are named."""
    project, address = served

    status, page = simulate(address, task="pars")
    assert (status, "did you mean 'parse'" in page) == (404, True)
    for name in ("", "A\0B", "x" * 200_000):
        status, page = simulate(address, item=name)
        assert status < 500, page
        assert "It would" not in page
    _, page = simulate(address, item="B")
    assert "It could not be simulated" in page
    assert "'B'" in page
    project.write(SPIDER + "\n    def broken(:\n")
    _, page = simulate(address)
    assert "It could not be simulated" in page


@pytest.mark.tracebacks("no_price")
def test_two_run_at_once_and_end_with_the_server(project, monkeypatch):
    """A third is asked to wait, and no process outlives the server."""
    project.write(SPIDER)
    assert project.crawl().code == 0
    monkeypatch.setenv("SITE", project.site_url)
    project.write(SPIDER.replace("        yield UpdateData", f"{SLOW}        yield UpdateData"))
    with web_servers.serving(project.url, "--crawl", "s", cwd=project.directory) as server:
        address = server.url.rstrip("/")
        for _ in range(2):
            threading.Thread(target=_ignored, args=(address,), daemon=True).start()
        deadline = time.monotonic() + 30
        status = 200
        while status != 503 and time.monotonic() < deadline:
            time.sleep(0.5)
            if len(_simulations(project)) == 2:
                status, _ = simulate(address)
        assert status == 503
    deadline = time.monotonic() + 20
    while _simulations(project) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert _simulations(project) == []


def _ignored(address):
    with contextlib.suppress(OSError):
        simulate(address)


def _simulations(project):
    """Return the processes that simulate in the project."""
    import psutil

    found = []
    for one in psutil.process_iter():
        try:
            if "simulate" in one.cmdline() and one.cwd() == str(project.directory.resolve()):
                found.append(one.pid)
        except psutil.Error:
            continue
    return found
