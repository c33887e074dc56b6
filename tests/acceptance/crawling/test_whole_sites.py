"""The spider `site`, which comes with the package: whole websites are kept, without any code."""

from __future__ import annotations

from collections import Counter
from urllib.parse import urlsplit

import pytest
from support import queued
from support.projects import kill, until
from support.whole_sites import NEEDED, PAGES, PNG, WholeSite

from scrapy_itemgraph.graph import ItemGraph

ELSEWHERE = "-s", "ITEMGRAPH_ALLOWED_HOSTS=localhost"


ODD = {
    "/album": """<a href="/big.png"><img src="/big.png"></a> <a href="/shelf">shelf</a>
        <a href="http://localhost:PORT/far/big.png"><img src="http://localhost:PORT/far/big.png">
        </a> <a href="http://127.0.0.1:99999/">port</a> <a href="http://127.0.0.1:none/">none</a>
        <a href="/lazy.png"><img src="/lazy.png"></a>""",
    "/shelf": f"""<a href="/limit.png"><img src="/limit.png"></a> <a href="/late.png">late</a>
        {" " * 70_000} <a href="/deep">deep</a> <img src="/late.png">""",
    "/lost": '<a href="/behind">behind</a> <img src="/sorry.png"> <a href="//a.example">far</a>',
    "/new/": '<a href="page">page</a> <a href="/shop">shop</a>',
    "/undefined": '<a href="/new/page">page</a>',
    "/u//x/": """<a href="rel.html">1</a> <a href="/~ann/%2e%2e/private/x">2</a>
        <a href="/leads">3</a> <a href="/a/b/a/b/a/b">4</a> <img src="/shop.png">
        <iframe src="http://localhost:PORT/frame2"></iframe>""",
    "/shop.png": "".join(f'<img src="/shop.png?{n}"><a href="/{n}">' for n in range(6)),
    "/frame2": '<img src="in.png">',
}
MOVED = {
    "/leads": "/u//y/../z//\xe9 nd.html",
    "/lazy.png": "/lost",
    "/old/": "/new/",
    "/away/": "http://localhost:PORT/new/",
}


class OddSite(WholeSite):
    """Has pages on which links and files meet, and roots that moved."""

    robots_status: int | None = None  # that robots.txt answers with; None: as others do

    def answer(self, target: str) -> tuple[int, dict[str, str], bytes]:
        """Answer with an odd page, a redirect, a picture, or as the others do."""
        path, port = urlsplit(target).path, str(self.server.server_port)
        if path == "/robots.txt" and self.robots_status is not None:
            return self.robots_status, {}, b"User-agent: *\nAllow: /\n"
        if path in MOVED:
            self.hits[target] += 1
            return 302, {"Location": MOVED[path].replace("PORT", port)}, b""
        if path in ODD:
            self.hits[target] += 1
            mime = "text/html; charset=" + ("undefined" if path == "/undefined" else "utf-8")
            return 200, {"Content-Type": mime}, ODD[path].replace("PORT", port).encode()
        if path.endswith(".png") and path not in PAGES and path not in ODD:
            self.hits[target] += 1
            return 200, {"Content-Type": "image/png"}, PNG
        return super().answer(target)


@pytest.fixture(scope="module")
def site_kind():
    """Have the tests crawl a website as archivists meet them."""
    return OddSite


@pytest.fixture
def empty(project):
    """Return a project without a spider of its own."""
    return project.write("", "ROBOTSTXT_OBEY = True\n")


def kept(project, crawl: str) -> dict[str, tuple[int, bytes]]:
    """Return the status and the content of each page that a crawl keeps, by its path."""
    with ItemGraph.open(project.url, crawl) as graph:
        found = {}
        for item in graph.items():
            for result in graph.results(item.id):
                if "status" in result.metadata:
                    path = urlsplit(item.data["url"]).path
                    body = b"".join(graph.blobs.read(item.id, "body"))
                    found[path] = result.metadata["status"], body
        return found


def test_a_site_is_queued_run_and_kept_without_code(empty, site):
    """MNB-1: `crawls add site` names it, a runner finds it, and `scrapy list` does not grow."""
    listed = empty.scrapy("list")
    mine = ("site", "mine", "-a", f"url={site.url}/", *ELSEWHERE)
    added = empty.scrapy("itemgraph", "crawls", "add", *mine)
    run = empty.finish(queued.work(empty, "--once"))

    assert "site" not in listed.output.split()
    assert added.code == 0, added.log
    assert run.code == 0, run.log
    assert queued.jobs(empty) == [("mine", "completed", 1)]
    found = kept(empty, "mine")
    outside = {"/empty", "/private", "/hidden"}
    assert found.keys() == PAGES.keys() - outside - {"/target"} | {"/moved", "/gone"}
    assert all(found[path] == (200, PAGES[path][1]) for path in NEEDED)
    assert found["/gone"] == (404, b"not here")
    assert not site.hits.keys() & {"/outside", "/hidden", "/private", "/one?replytocom=1"}
    assert {path for path, hits in site.hits.items() if hits > 1} == {"/robots.txt"}


def own(path: str, **given: str) -> str:
    """Return a spider of the project's own, of the package's kind, that begins at a path."""
    return f"""
    from scrapy_itemgraph.contrib.sites import SiteSpider

    class S(SiteSpider):
        name = "s"

        def __init__(self, **kwargs):
            super().__init__(url=SITE + {path!r}, **{given!r}, **kwargs)
    """


def paths(site) -> set[str]:
    """Return what the site was asked for, but robots.txt."""
    return site.hits.keys() - {"/robots.txt"}


@pytest.mark.crawls(own("/"), "DEPTH_LIMIT = 2\nITEMGRAPH_ALLOWED_HOSTS = ['localhost']")
def test_pages_at_the_limit_of_depth_have_all_that_they_need(run, site):
    """MNB-9: what a page needs is no step further; pages behind the limit are not asked for."""
    assert "/docs/two" in paths(site), run.log
    assert paths(site) >= {"/docs/deep.png", *NEEDED}
    assert not paths(site) & {"/docs/three", "/docs/deepest.png"}


@pytest.mark.crawls(own("/elsewhere"), "ITEMGRAPH_ALLOWED_HOSTS = ['localhost']")
def test_a_site_that_moved_is_followed_where_it_is_now(run, project, site):
    """Links of a root that was redirected to another host are followed there."""
    assert paths(site) == {
        *("/elsewhere", "/docs/two", "/docs/three", "/docs/four", "/docs/one"),
        *("/docs/deep.png", "/docs/deepest.png", "/near.png"),
    }, run.log
    ((metadata,),) = project.rows(
        "SELECT r.metadata FROM results r JOIN items i ON i.id = r.item_id "
        "WHERE i.data->>'url' LIKE '%/elsewhere'"
    )
    assert metadata["redirects"] == [[302, f"{site.url}/elsewhere"]]
    assert metadata["final_url"].endswith("/docs/two")
    assert metadata["ip_address"] == "127.0.0.1"
    assert ["X-Made-By", "hand"] in metadata["headers"]
    assert "User-Agent" in {name for name, _ in metadata["request"]["headers"]}
    assert metadata["size"] == len(PAGES["/docs/two"][1])


@pytest.mark.crawls(own("/docs/two", extent="path"))
def test_a_folder_of_a_site_is_kept_with_what_it_needs(run, site):
    """With extent=path nothing above the folder is followed; `localhost` is refused by default."""
    assert paths(site) == {
        *("/docs/two", "/docs/three", "/docs/four", "/docs/one"),
        *("/docs/deep.png", "/docs/deepest.png", "/near.png"),
    }, run.log


@pytest.mark.crawls(
    own("/", extent="page"), "ROBOTSTXT_OBEY = False\nITEMGRAPH_PUBLIC_ONLY = False"
)
def test_single_pages_are_kept_with_what_they_need_and_settings_of_the_project_win(run, site):
    """With extent=page no link is followed; a project that goes past robots.txt does so here."""
    assert paths(site) == {"/", "/frame", *NEEDED}, run.log
    assert "/robots.txt" not in site.hits


@pytest.mark.crawls(own("/target"), "DOWNLOAD_MAXSIZE = 500")
@pytest.mark.tracebacks("larger than download max size")
def test_what_is_larger_than_the_limit_is_a_failure_that_says_so(run, project):
    """A file above DOWNLOAD_MAXSIZE is not read to its end, and no page of it is kept."""
    ((url, message),) = project.errors()

    assert url.endswith("/manual.pdf")
    assert "larger than" in message


ALBUM = {"/album", "/big.png", "/far/big.png", "/lazy.png", "/lost"}


@pytest.mark.crawls(own("/album"), "DEPTH_LIMIT = 1\nITEMGRAPH_ALLOWED_HOSTS = ['localhost']")
def test_pictures_that_are_links_as_well_are_fetched_and_none_leads_past_the_limit(run, site):
    """MNB-13: what is linked and shown is needed, in any order; a page in its place is not read."""
    assert paths(site) == ALBUM | {"/shelf", "/limit.png", "/late.png"}, run.log
    assert run.stats["sites/pages_as_requisites"] == 1


@pytest.mark.crawls(own("/album", extent="page"), "ITEMGRAPH_ALLOWED_HOSTS = ['localhost']")
def test_a_single_page_has_its_pictures_that_are_links_as_well(run, site):
    """MNB-13: with extent=page a picture within a link to itself is fetched."""
    assert paths(site) == ALBUM, run.log
    assert run.stats["sites/pages_as_requisites"] == 1


@pytest.mark.crawls(own("/away/", extent="path"), "ITEMGRAPH_ALLOWED_HOSTS = ['localhost']")
def test_of_the_host_that_a_folder_moved_to_its_folder_is_followed(run, site):
    """MNB-13: with extent=path the host that a root was redirected to is not taken whole."""
    assert paths(site) == {"/away/", "/new/", "/new/page"}, run.log


@pytest.mark.crawls(own("/old/", extent="path"), "")
def test_a_folder_that_moved_on_its_host_is_followed(run, site):
    """MNB-13: with extent=path a root may be redirected to another folder of the same host."""
    assert paths(site) == {"/old/", "/new/", "/new/page"}, run.log


@pytest.mark.crawls(own("/undefined"), "")
def test_a_page_whose_charset_is_none_is_kept_and_followed(run, project, site):
    """MNB-13: a server that names a codec which is not of text loses nothing of its page."""
    assert paths(site) == {"/undefined", "/new/page"}, run.log
    assert project.errors() == []


BROWSED = own("/u//x/"), "ITEMGRAPH_ALLOWED_HOSTS = ['localhost']\nROBOTSTXT_OBEY = True"


@pytest.mark.crawls(*BROWSED)
def test_urls_and_redirects_are_those_that_a_browser_would_ask_for(run, site):
    """Before scope, robots.txt and names: empty segments stay, and dots lead past no Disallow."""
    assert paths(site) == {
        *("/u//x/", "/u//x/rel.html", "/leads", "/u//z//%E9%20nd.html"),
        *("/shop.png", "/frame2", "/in.png"),
    }, run.log
    assert run.stats["robotstxt/forbidden"] == 1
    assert run.stats["sites/noise"] == 1


@pytest.mark.crawls(*BROWSED)
def test_html_in_the_place_of_a_picture_brings_nothing(run, site):
    """wpull#225: one `<img>` answered by HTML made 1,558 requests; a frame has its pictures."""
    assert not [path for path in paths(site) if path.startswith("/shop.png?")], run.log
    assert run.stats["sites/pages_as_requisites"] == 1
    assert "/in.png" in paths(site)


# Scrapy lays what a project says of them over what a spider adds, each time that a crawl begins.
MIDDLEWARES = """
ROBOTSTXT_OBEY = True
DOWNLOADER_MIDDLEWARES = {"scrapy.downloadermiddlewares.stats.DownloaderStats": 850}
"""


def test_a_robots_txt_that_answers_with_an_error_disallows_all(empty, site, monkeypatch):
    """RFC 9309: with 503 no page of the host is fetched, and the log says so; with 404 all are."""
    named, crawl = ("-s", "ITEMGRAPH_CRAWL=mine"), ("--crawl", "mine")
    command = ("crawl", "site", "-a", f"url={site.url}/docs/three", *ELSEWHERE, *named)
    settings = ("-s", "RETRY_TIMES=1")
    empty.write("", MIDDLEWARES)
    monkeypatch.setattr(site, "robots_status", 503)
    run = empty.scrapy(*command, *settings)

    assert paths(site) == set(), run.log
    assert run.stats["robotstxt/forbidden"] == 1
    assert "/robots.txt answered 503: nothing is fetched there" in run.log

    monkeypatch.setattr(site, "robots_status", 404)
    assert empty.scrapy("itemgraph", "handle", "--all", *crawl).code == 0
    empty.scrapy(*command, *settings)
    assert "/docs/three" in paths(site)


def test_rules_make_a_crawl_of_a_site_wider_and_narrower(empty, site):
    """MNB-11: a rule that accepts takes in another host, a rule that does not leaves a part out."""
    named = ("-s", "ITEMGRAPH_CRAWL=mine")
    command = ("crawl", "site", "-a", f"url={site.url}/", *ELSEWHERE, *named)
    crawl = ("--crawl", "mine")
    assert empty.scrapy(*command, "-s", "CLOSESPIDER_PAGECOUNT=1").code == 0
    assert not paths(site) & {"/outside", "/further"}
    for rule in (("^http://localhost:", "--accept"), ("/docs/|near", "--no-accept")):
        added = empty.scrapy("itemgraph", "rules", "add", *rule, *crawl)
        assert added.code == 0, added.log
    empty.scrapy("itemgraph", "expire", f"{site.url}/", *crawl)
    site.hits.clear()

    run = empty.scrapy(*command)

    assert run.stats["reason"] == "finished", run.log
    assert paths(site) >= {"/outside", "/further", "/far.png"}, run.log
    assert not paths(site) & {"/docs/two", "/docs/deep.png"}


def test_a_spider_of_the_project_is_meant_before_ours(project, site):
    """`scrapy crawl site` runs the project's own `site`, if it has one, and warns of nothing."""
    run = project.write(own("/docs/four").replace('"s"', '"site"')).scrapy("crawl", "site")

    assert run.code == 0
    assert paths(site) == {"/docs/four"}
    assert "same name" not in run.log


@pytest.mark.tracebacks("it was not told")
def test_by_hand_it_goes_on_where_it_was_killed(empty, site):
    """A start that was told nothing says so; a killed one is gone on with, by the same command."""
    untold = empty.scrapy("crawl", "site")
    assert "it was not told where to begin; give it -a url=" in untold.log
    assert untold.stats["reason"] == "start_error"
    command = ("crawl", "site", "-a", f"url={site.url}/", *ELSEWHERE)
    first = empty.start(*command, "-s", "DOWNLOAD_DELAY=0.2")
    until(lambda: "/docs/one" in site.hits, empty.log)
    kill(first)
    hits = Counter(site.hits)

    second = empty.scrapy(*command)

    assert second.stats["reason"] == "finished", second.log
    assert PAGES.keys() - {"/empty", "/private", "/hidden"} <= paths(site)
    again = {path for path in paths(site) if site.hits[path] > 1}
    assert all(hits[path] for path in again)
    assert len(again) < 8
