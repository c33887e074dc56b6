"""Pages that are made to do harm cost nothing but themselves."""

from __future__ import annotations

import gzip

import pytest
from support.raw_sites import page, raw_site

# What Scrapy and Twisted say of such pages.
pytestmark = pytest.mark.tracebacks(
    *("DownloadCancelledError", "DownloadFailedError", "ResponseDataLossError"),
    *("CancelledError: Cancelling", "ResponseFailed", "ResponseNeverReceived"),  # before 2.15
    "surrogates not allowed",  # without a reactor
    "Invalid IPv6 URL",
    "zlib.error",
)

HTML = b"Content-Type: text/html; charset=utf-8"
GOOD = [f"/good/{number}" for number in range(20)]
LINKS = 300
LEVELS = 20_000


def hostile(site: str) -> dict[str, bytes]:
    """Return what the hostile pages answer, by their paths."""
    title = b"<title>A page</title>"
    return {
        "/truncated": page(title + b"x" * 5000, HTML)[:1000],
        "/nothing": b"",
        "/no-http": b"\x16\x03\x01\x02\x00" * 200,
        "/status": page(title, HTML, status=b"999 Whatever"),
        "/endless-head": b"HTTP/1.1 200 OK\r\n" + b"X-A: b\r\n" * 50_000,
        "/long-header": page(title, HTML, b"X-Long: " + b"a" * 1_000_000),
        "/bomb": page(gzip.compress(bytes(50_000_000), 1), HTML, b"Content-Encoding: gzip"),
        "/broken-gzip": page(b"\x1f\x8b\x08" + bytes(500), HTML, b"Content-Encoding: gzip"),
        "/huge": page(bytes(3_000_000), HTML),
        "/links": page(
            title + b"".join(b'<a href="/end/%d">x</a>' % number for number in range(LINKS)), HTML
        ),
        "/levels": page(title + b"<div>" * LEVELS + b"</div>" * LEVELS, HTML),
        "/charset": page(title, b"Content-Type: text/html; charset=no-such\xff"),
        "/no-codec": page(title, b"Content-Type: text/html; charset=undefined"),
        "/no-text": page(title, b"Content-Type: text/html; charset=hex"),
        "/bytes": page(b"<title>" + bytes(range(128, 256)) * 50 + b"</title>", HTML),
        "/controls": page(b"<title>a\0b\x1b[2Jc&#xD800;&#0;\xe2\x80\xae</title>", HTML),
        "/location": page(b"", b"Location: http://[", status=b"302 Found"),
        "/elsewhere": page(b"", b"Location: gopher://\xff/", status=b"302 Found"),
        "/loop": page(b"", b"Location: /loop", status=b"302 Found"),
        "/refresh": page(title + b'<meta http-equiv="refresh" content="0; url=http://[">', HTML),
        "/cookies": page(
            title,
            HTML,
            *(
                b"Set-Cookie: c%d=%s; Domain=.\xff; Expires=never" % (n, b"v" * 3000)
                for n in range(200)
            ),
        ),
        "/bad-links": page(
            title
            + b"".join(
                b'<a href="%s">x</a>' % link
                for link in (
                    b"http://[",
                    b"//",
                    b"http://\xff\xfe/",
                    b"javascript:x",
                    b"file:///etc/passwd",
                    b"http:///x",
                    b"?" + b"q" * 5000,
                    b"&#xD800;",
                    b"http://a:99999/",
                    b"\x00",
                )
            ),
            HTML,
        ),
        "/retry-after": page(b"", b"Retry-After: " + b"9" * 400, status=b"404 Not Found"),
        **{path: page(b"<title>good</title>", HTML) for path in GOOD},
    }


SETTINGS = """
DOWNLOAD_MAXSIZE = 1_000_000
DOWNLOAD_TIMEOUT = 10
RETRY_TIMES = 1
REDIRECT_MAX_TIMES = 3
LOG_LEVEL = "INFO"
CONCURRENT_REQUESTS_PER_DOMAIN = 8
ITEMGRAPH_KEEP_ITEMS = True
"""
PLAIN = """
class S(scrapy.Spider):
    name = "s"
    paths = {paths!r}

    async def start(self):
        for path in self.paths:
            yield scrapy.Request(SITE + path)

    def parse(self, response):
        yield {{"path": response.url, "title": response.css("title::text").get()}}
        for link in response.css("a::attr(href)").getall():
            yield response.follow(link, self.end)

    def end(self, response):
        pass
"""
TASKS = """
class S(scrapy.Spider):
    name = "s"
    paths = {paths!r}

    def seeds(self):
        for path in self.paths:
            yield seed(path, path)

    @task(tags=["page"])
    def parse(self, response, item):
        yield UpdateData({{"title": response.css("title::text").get()}})
        for link in response.css("a::attr(href)").getall():
            url = response.urljoin(link)
            yield CreateItem(url, tags=["end"], data={{"url": url}})

    @task(tags=["end"])
    def end(self, response, item):
        pass
"""
OUTCOMES = """
    SELECT split_part(i.data->>'url', :port, 2), (array_agg(a.outcome ORDER BY a.id DESC))[1]
    FROM items i LEFT JOIN attempts a ON a.item_id = i.id GROUP BY i.id
"""
LEFT = """
    SELECT count(*) FROM work w JOIN items i ON i.id = w.item_id WHERE w.token IS NOT NULL
"""


@pytest.mark.tracebacks("UnicodeError: undefined encoding", "LookupError: 'hex' is not a text")
@pytest.mark.parametrize("spider", [PLAIN, TASKS], ids=["drop-in", "tasks"])
def test_a_hostile_page_costs_nothing_but_itself(project, spider):
    """Each good page is scraped, each hostile one has an outcome, and the crawl ends as usual."""
    with raw_site(answers := {}) as url:
        project.site_url = url
        answers.update(hostile(url))
        project.write(spider.format(paths=list(answers)), SETTINGS)
        run = project.crawl()

        assert run.stats["reason"] == "finished"
        port = url.rpartition(":")[2]
        outcomes = dict(project.rows(OUTCOMES.replace(":port", f"'{port}'")))
    assert {outcomes[path] for path in GOOD} == {"ok"}
    assert all(outcomes[path] is not None for path in answers), outcomes
    assert outcomes["/no-codec"] == outcomes["/no-text"] == "failed"
    assert outcomes["/links"] == outcomes["/levels"] == "ok"
    assert sum(path.startswith("/end/") for path in outcomes) == LINKS
    assert project.rows(LEFT) == [(0,)]
