"""Where a crawl may be led by what came over HTTP, from a dump, or from a link."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa
from support import web_servers
from support.sites import Site

from scrapy_itemgraph.model.tasks import callback_tag
from scrapy_itemgraph.postgres import engine as engines

if TYPE_CHECKING:
    from collections.abc import Iterator

SPIDER = """
class S(scrapy.Spider):
    name = "s"

    def start_requests_of(self):
        return getattr(self, "first", SITE + "/page/start")

    async def start(self):
        yield scrapy.Request(self.start_requests_of())

    def parse(self, response):
        yield UpdateData({"title": response.css("h1::text").get()})

    @task(tags=["page"])
    def t_page(self, response, item):
        yield UpdateData({"title": response.css("h1::text").get()})

    @task(tags=["built"], request="build")
    def t_built(self, response, item):
        yield UpdateData({"title": response.css("h1::text").get()})

    def build(self, item):
        return scrapy.Request(item.data.get("to") or next(iter(item.aliases)))
"""


class _Everywhere(Site):
    """A site on all addresses of this machine; what came in is counted by the host asked for."""

    def __init__(self) -> None:
        super().__init__(host="0.0.0.0")
        self.port = self.server.server_port
        self.url = f"http://127.0.0.2:{self.port}"
        self.asked: list[str] = []

    def respond(self, method, target, headers, body):
        """Answer a request, and note its host and path."""
        self.asked.append(headers["Host"].partition(":")[0] + target)
        if target.startswith("/refresh"):
            to = target.partition("=")[2]
            page = f'<meta http-equiv="refresh" content="0; url={to}"><h1>x</h1>'
            return 200, {"Content-Type": "text/html"}, page.encode()
        return super().respond(method, target, headers, body)

    def inside(self) -> list[str]:
        """Return what was asked for at other hosts than the one on which the crawl starts."""
        return [one for one in self.asked if not one.startswith("127.0.0.2/")]


@contextmanager
def everywhere() -> Iterator[_Everywhere]:
    """Serve it for as long as the block lasts."""
    one = _Everywhere()
    thread = threading.Thread(target=one.server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield one
    finally:
        one.server.shutdown()
        thread.join()
        one.server.server_close()


@pytest.fixture
def site() -> Iterator[_Everywhere]:
    """Serve a site on all addresses; the crawl starts at 127.0.0.2."""
    with everywhere() as one:
        yield one


def stored(url: str, /, **request) -> dict:
    """Return an operation that adds the request of a plain callback."""
    data = {"url": url, "request": request}
    return {"op": "createItem", "id": url, "tags": [callback_tag("parse")], "data": data}


def page(name: str, url: str) -> dict:
    """Return an operation that adds an item with a URL."""
    return {"op": "createItem", "id": name, "tags": ["page"], "data": {"url": url}}


def send(url: str, *operations: dict) -> None:
    """Apply operations over HTTP, by the real server."""
    with web_servers.serving(url, "--crawl", "s") as web:
        answer = web.ask("POST", "/api/v1/crawls/s/operations", {"operations": list(operations)})
        assert answer.status_code == 200, answer.text


def failures(project) -> dict[str, tuple[str, bool]]:
    """Return (message, is it a refusal) of each open failure, by item."""
    found = project.rows(
        "SELECT i.name, f.error->>'message', f.is_refusal FROM failures f "
        "JOIN items i ON i.id = f.item_id WHERE f.handled_at IS NULL"
    )
    return {name: (message, is_refusal) for name, message, is_refusal in found}


def titles(project) -> dict[str, str]:
    """Return the title of each page that was read, by item."""
    return {name: data["title"] for name, data in project.data().items() if "title" in data}


def execute(url: str, statement: str) -> None:
    """Change the database behind our back."""
    engine = engines.sync_engine(url)
    with engine.begin() as connection:
        connection.execute(sa.text(statement))
    engine.dispose()


def test_what_came_over_http_leads_to_no_private_address(project, site):
    """An item or stored request of HTTP is refused where it leads inside, however that is spelt."""
    project.write(SPIDER, "ROBOTSTXT_OBEY = True\nITEMGRAPH_CLAIM_BATCH = 1")
    assert project.crawl().code == 0
    at = f":{site.port}"
    spellings = ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "[::ffff:127.0.0.1]", "0.0.0.0"]
    inside = {f"ITEM:{host}": f"http://{host}{at}/page/x" for host in spellings}
    redirect = f"{site.url}/redirect?to=http://127.0.0.1{at}/page/secret"
    refresh = f"{site.url}/refresh?to=http://127.0.0.1{at}/page/secret"

    send(
        project.url,
        *(page(name, url) for name, url in inside.items()),
        stored(f"http://127.0.0.1{at}/page/stored"),
        stored(f"{site.url}/page/proxied", meta={"proxy": f"http://127.0.0.1{at}"}),
        page("REDIRECT", redirect),
        stored(redirect),
        page("REFRESH", refresh),
        page("ftp", "ftp://127.0.0.1/x"),
        {"op": "createItem", "id": "built", "tags": ["built"], "data": {"to": "file:///etc/hosts"}},
        {
            "op": "createItem",
            "id": "named",
            "tags": ["built"],
            "aliases": [f"http://127.0.0.1{at}/page/alias"],
        },
        page("OUT", f"{site.url}/page/out"),
        stored(f"{site.url}/page/out"),
    )
    run = project.crawl()

    refused = failures(project)
    assert refused.keys() == {
        *inside,
        f"http://127.0.0.1{at}/page/stored",
        f"{site.url}/page/proxied",
        "REDIRECT",
        redirect,
        "REFRESH",
        "ftp",
        "built",
        "named",
    }, run.log
    assert all(is_refusal for _, is_refusal in refused.values()), refused
    assert "ITEMGRAPH_ALLOWED_HOSTS" in refused["ITEM:127.0.0.1"][0]
    assert "loopback" in refused["ITEM:localhost"][0]
    assert site.inside() == []
    assert {"OUT", f"{site.url}/page/out"} <= titles(project).keys()
    assert "over HTTP" in project.scrapy("itemgraph", "explain", "ITEM:localhost").output


def test_a_change_over_http_puts_an_item_under_the_rule(project, site):
    """An own item is, whose data, names or tags were changed, or which was merged with another."""
    url = f"http://127.0.0.1:{site.port}/page"
    project.write(SPIDER)
    assert project.crawl().code == 0
    lines = [page(name, f"{url}/{name}") for name in ("data", "alias", "tag", "into", "left")]
    (project.directory / "lines").write_text("\n".join(map(json.dumps, lines)))
    assert project.scrapy("itemgraph", "apply", "lines", "--crawl", "s").code == 0

    send(
        project.url,
        {"op": "updateData", "id": "data", "merge": {"seen": True}},
        {"op": "createAlias", "alias": "other", "to": "alias"},
        {"op": "addTag", "tag": "odd", "id": "tag"},
        page("gone", f"{url}/gone"),
        {"op": "expire", "id": "left"},
    )
    merge = json.dumps({"op": "mergeItem", "into": "into", "id": "gone"})
    (project.directory / "lines").write_text(merge)
    assert project.scrapy("itemgraph", "apply", "lines", "--crawl", "s").code == 0
    project.crawl()

    assert failures(project).keys() == {"data", "alias", "tag", "into"}
    assert "left" in titles(project)
    with web_servers.serving(project.url, "--crawl", "s") as web:
        assert web.get("/items/data")["is_from_outside"] is True
        assert web.get("/items/left")["is_from_outside"] is False


def test_hosts_that_are_named_may_be_led_to(project, site):
    """ITEMGRAPH_ALLOWED_HOSTS names hosts, networks and ports; a redirect elsewhere is refused."""
    url = f"http://127.0.0.1:{site.port}"
    allowed = f'["127.0.0.1:{site.port}", "127.0.1.0/24"]'
    project.write(SPIDER, f"ITEMGRAPH_ALLOWED_HOSTS = {allowed}")
    assert project.crawl().code == 0

    send(
        project.url,
        page("address", f"{url}/page/1"),
        page("name", f"http://localhost:{site.port}/page/1"),
        page("network", f"http://127.0.1.9:{site.port}/page/1"),
        page("redirect", f"{url}/redirect?to=http://127.0.0.3:{site.port}/page/secret"),
        page("port", "http://127.0.0.1:9/"),
    )
    project.crawl()

    assert failures(project).keys() == {"redirect", "port"}
    assert {"address", "name", "network"} <= titles(project).keys()
    assert not any(one.startswith("127.0.0.3") for one in site.asked)


def test_a_wrong_host_is_refused_at_the_start(project, site):
    """An entry of ITEMGRAPH_ALLOWED_HOSTS that is no host ends the start in one clear line."""
    project.write(SPIDER, 'ITEMGRAPH_ALLOWED_HOSTS = "intern.example, http://api.example/"')

    run = project.crawl()

    assert run.code == 1
    assert "ITEMGRAPH_ALLOWED_HOSTS: 'http://api.example/': write the host alone" in run.log
    assert site.asked == []


FOLLOWS = """
class S(scrapy.Spider):
    name = "s"
    start_urls = [SITE + "/page/start"]

    def parse(self, response):
        if "start" in response.url:
            for host in ("127.0.0.1", "localhost"):
                yield response.follow(SITE.replace("127.0.0.2", host) + "/page/link")
            yield response.follow("file:///etc/hostname")
            yield response.follow("data:text/plain,hello")
            yield response.follow("/page/own")
        yield UpdateData({"title": "read"})
"""


@pytest.mark.parametrize("is_public_only", [False, True])
def test_what_spiders_follow_is_checked_if_the_project_says_so(project, site, is_public_only):
    """Links lead anywhere; with ITEMGRAPH_PUBLIC_ONLY to the web and the crawl's own start."""
    project.write(FOLLOWS, f"ITEMGRAPH_PUBLIC_ONLY = {is_public_only}\nROBOTSTXT_OBEY = True")

    run = project.crawl()

    outcomes = project.request_outcomes()
    inner = "refused" if is_public_only else "ok"
    at = f":{site.port}/page/link"
    assert outcomes == {
        "/page/start": ["ok"],
        "/page/own": ["ok"],
        "data:text/plain,hello": ["ok"],
        f"http://127.0.0.1{at}": [inner],
        f"http://localhost{at}": [inner],
        "file:///etc/hostname": [inner],
    }, run.log
    if is_public_only:
        assert site.inside() == []
        assert all("ITEMGRAPH_PUBLIC_ONLY" in message for _, message in project.errors())


def test_only_the_spider_has_files_read(project, site):
    """A request for a file is taken from the spider alone; doors and worker refuse others."""
    secret = project.directory / "secret.html"
    secret.write_text("<h1>secret</h1>")
    own = project.directory / "own.html"
    own.write_text("<h1>own</h1>")
    project.write(SPIDER)
    assert project.crawl("-a", f"first={own.as_uri()}").code == 0
    assert "own" in titles(project).values()
    given = stored(secret.as_uri())

    with web_servers.serving(project.url, "--crawl", "s") as web:
        for one in (
            given,
            stored("http://a.example/", url=secret.as_uri()),
            stored(secret.as_uri(), scheme="file"),
            {"op": "updateData", "id": "x", "upsert": True, "merge": given["data"]},
        ):
            answer = web.ask("POST", "/api/v1/crawls/s/operations", {"operations": [one]})
            assert answer.status_code == 422, answer.text
            assert "data['request']" in answer.text
        changes = [
            {"op": "updateData", "id": "x", "upsert": True, "merge": {"request": {}}},
            {"op": "updateData", "id": "x", "merge": {"url": secret.as_uri()}},
            {"op": "addTag", "id": "x", "tag": callback_tag("parse")},
            {"op": "updateData", "id": start(project), "merge": {"url": secret.as_uri()}},
            {"op": "expire", "id": start(project)},
        ]
        answer = web.ask("POST", "/api/v1/crawls/s/operations", {"operations": changes})
        assert answer.status_code == 200, answer.text
    (project.directory / "lines").write_text(json.dumps(given))
    applied = project.scrapy("itemgraph", "apply", "lines", "--crawl", "s")
    assert applied.code == 1
    assert "line 1: CreateItem: data['request'] is for" in applied.log + applied.output
    (project.directory / "lines").write_text(json.dumps(stored(f"{site.url}/page/forged")))
    assert project.scrapy("itemgraph", "apply", "lines", "--crawl", "s").code == 0
    forged = f"{site.url}/page/forged"
    execute(
        project.url,
        f"UPDATE items SET data = replace(data::text, '{forged}', '{secret.as_uri()}')::json "
        f"WHERE name = '{forged}'",
    )

    project.crawl()

    refused = failures(project)
    assert refused.keys() == {"x", forged, start(project)}
    assert all("http and https" in message for message, _ in refused.values())
    assert all(is_refusal for _, is_refusal in refused.values())
    assert "secret" not in titles(project).values()


def start(project) -> str:
    """Return the name of the item that the first start's request became."""
    return project.rows("SELECT name FROM items ORDER BY id LIMIT 1")[0][0]


def test_a_dump_keeps_who_had_a_hand_in_an_item(project, new_clone, site):
    """A loaded crawl reads its spider's files, no others, and refuses what HTTP brought."""
    own = project.directory / "own.html"
    own.write_text("<h1>own</h1>")
    secret = project.directory / "secret.html"
    secret.write_text("<h1>secret</h1>")
    project.write(SPIDER, 'ITEMGRAPH_DATABASE_URL = __import__("os").environ["GRAPH"]')
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("GRAPH", project.url)
        assert project.crawl("-a", f"first={own.as_uri()}").code == 0
        assert project.crawl().code == 0
        send(project.url, page("inside", f"http://127.0.0.1:{site.port}/page/1"))
        dump = project.directory / "dump"
        assert project.scrapy("itemgraph", "dump", "s", "-o", str(dump)).code == 0
        dump.write_text(dump.read_text().replace(f"{site.url}/page/start", secret.as_uri()))
        project.url = new_clone()
        environment.setenv("GRAPH", project.url)
        assert project.scrapy("itemgraph", "load", str(dump)).code == 0
        names = [name for (name,) in project.rows("SELECT name FROM items WHERE name <> 'inside'")]
        lines = [{"op": "expire", "id": name} for name in names]
        (project.directory / "lines").write_text("\n".join(map(json.dumps, lines)))
        assert project.scrapy("itemgraph", "apply", "lines", "--crawl", "s").code == 0
        project.crawl("-a", f"first={site.url}/page/again")

    refused = failures(project)
    assert len(refused) == 2
    assert "over HTTP" in refused["inside"][0]
    assert "secret" not in titles(project).values()
    assert "own" in titles(project).values()
    last = {url: outcome[-1] for url, outcome in project.request_outcomes().items()}
    assert last[own.as_uri()] == "ok"
    assert last[secret.as_uri()] == "refused"
