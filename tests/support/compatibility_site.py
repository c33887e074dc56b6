"""A bookshop's web site, which keeps a record of all that it was asked."""

from __future__ import annotations

import gzip
import json
from html import escape
from http.cookies import SimpleCookie
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, parse_qsl, urlsplit

from support import sites

if TYPE_CHECKING:
    from email.message import Message
    from typing import Any

VOLATILE_HEADERS = {"Host", "Connection", "Content-Length", "If-Modified-Since"}

URLSET = """<?xml version="1.0" encoding="UTF-8"?>
<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{}</urlset>"""
SITEMAPS = """<?xml version="1.0" encoding="UTF-8"?>
<sitemapindex xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">
<sitemap><loc>{0}/sitemap-books.xml</loc></sitemap>
<sitemap><loc>{0}/sitemap-authors.xml.gz</loc></sitemap>
</sitemapindex>"""
FEED = """<?xml version="1.0"?><feed>
<book id="1"><title>One</title><link>/page/1</link></book>
<book id="2"><title>Two</title><link>/page/2</link></book>
</feed>"""
LOGIN = """<form action="/login" method="post"><input type="hidden" name="csrf" value="c5rf">
<input name="user"><input name="pass" type="password"><select name="shop"><option value="a">
<option value="b" selected></select><input type="submit" name="go" value="in"></form>"""


class Shop(sites.Site):
    """Pages of many kinds by the first part of their path; `asked` says what, a list a chapter."""

    def __init__(self) -> None:
        super().__init__()
        self.robots = f"User-agent: *\nDisallow: /private\nSitemap: {self.url}/sitemap.xml\n"
        self.asked: dict[str, list[dict[str, Any]]] = {}
        self._chapter = self.asked.setdefault("", [])

    def respond(
        self, method: str, target: str, headers: Message, body: bytes
    ) -> tuple[int, dict[str, Any], bytes]:
        """Note what was asked, and answer it; /chapter/… begins anew."""
        if target.startswith("/chapter/"):
            self.hits.clear()
            self._chapter = self.asked.setdefault(target.removeprefix("/chapter/"), [])
        cookies = {
            name: morsel.value for name, morsel in SimpleCookie(headers.get("Cookie", "")).items()
        }
        self._chapter.append(
            {
                "kind": "asked",
                "name": f"{method} {target}",
                "body": repr(body),
                "cookies": sorted(cookies.items()),
                "headers": sorted(
                    f"{name}: {value}"
                    for name, value in headers.items()
                    if name.title() not in {*VOLATILE_HEADERS, "Cookie"}
                ),
            }
        )
        parts = urlsplit(target)
        kind, _, rest = parts.path.strip("/").partition("/")
        page = getattr(self, "page_" + kind.replace("-", "_").replace(".", "_"), None)
        if page is None:
            return self.answer(target)
        self.hits[target] += 1
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        status, given, content = page(rest, query, cookies=cookies, method=method, body=body)
        if isinstance(content, str):
            content = content.encode()
        return status, {"Content-Type": "text/html; charset=utf-8", **given}, content

    def page_tree(self, rest, query, **_) -> tuple:
        """Link to three pages below, and back to the root and its neighbours."""
        depth = len(rest.split("/")) if rest else 0
        below = [f"/tree/{rest}/{n}".replace("//", "/") for n in (1, 2, 3)] if depth < 2 else []
        return 200, {}, links(*below, "/tree", "/tree/1", "/tree/2", title=f"tree {rest}")

    def page_links(self, rest, query, **_) -> tuple:
        """Link to what the query's `to` says, separated by blanks."""
        return 200, {}, links(*query["to"].split(), title="links")

    def page_echo(self, rest, query, *, cookies, method, body) -> tuple:
        """Say what was sent."""
        said = {"method": method, "body": body.decode("latin-1"), "cookies": cookies}
        return 200, {"Content-Type": "application/json"}, json.dumps(said, sort_keys=True)

    def page_login(self, rest, query, *, cookies, method, body) -> tuple:
        """Give a form, and a cookie for the right answer."""
        if method != "POST":
            return 200, {"Set-Cookie": ["visitor=1; Path=/"]}, LOGIN
        form = dict(parse_qsl(body.decode()))
        if (form.get("csrf"), form.get("pass"), cookies.get("visitor")) != ("c5rf", "pw", "1"):
            return 403, {}, "no"
        cookie = f"user={form['user']}; Path=/"
        return 302, {"Location": "/account", "Set-Cookie": [cookie, "shop=b; Path=/"]}, ""

    def page_account(self, rest, query, *, cookies, **_) -> tuple:
        """Say who is logged in."""
        return 200, {}, links("/account/orders", title=f"account of {cookies.get('user')}")

    def page_cookie(self, rest, query, **_) -> tuple:
        """Set a cookie."""
        return 200, {"Set-Cookie": [f"{k}={v}; Path=/" for k, v in query.items()]}, "a cookie"

    def page_wall(self, rest, query, *, cookies, **_) -> tuple:
        """Send who has no cookie back to this page with one."""
        if "wall" in cookies:
            return 200, {}, "behind the wall"
        return 302, {"Location": f"/wall/{rest}", "Set-Cookie": "wall=1; Path=/"}, ""

    def page_moved(self, rest, query, **_) -> tuple:
        """Redirect with the status that the path says."""
        return int(rest), {"Location": query["to"]}, ""

    def page_refresh(self, rest, query, **_) -> tuple:
        """Redirect by a meta refresh."""
        to = escape(query["to"])
        return 200, {}, f'<meta http-equiv="refresh" content="0; url={to}"><body>wait</body>'

    def page_empty(self, rest, query, **_) -> tuple:
        """Give an empty page as many times as the path says, then a full one."""
        times = sum(count for target, count in self.hits.items() if target == f"/empty/{rest}")
        return 200, {}, "" if times <= int(rest) else "full"

    def page_encoded(self, rest, query, **_) -> tuple:
        """Link to words in Russian or Japanese, in the page's own encoding."""
        word = "книга" if rest == "cp1251" else "日本"
        page = links(f"/echo/{word}", f"/echo?q={word}", title=word)
        given = f"text/html; charset={rest}"
        return 200, {"Content-Type": given}, page.encode(rest)

    def page_zipped(self, rest, query, **_) -> tuple:
        """Give a page in gzip."""
        return 200, {"Content-Encoding": "gzip"}, gzip.compress(links("/page/1").encode(), mtime=0)

    def page_sitemap_xml(self, rest, query, **_) -> tuple:
        """Name the sitemaps."""
        return 200, {"Content-Type": "text/xml"}, SITEMAPS.format(self.url)

    def page_sitemap_books_xml(self, rest, query, **_) -> tuple:
        """Name the books."""
        return 200, {"Content-Type": "text/xml"}, urlset(self.url, "/book/1", "/book/2", "/book/1")

    def page_sitemap_authors_xml_gz(self, rest, query, **_) -> tuple:
        """Name the authors, compressed."""
        content = gzip.compress(urlset(self.url, "/author/1", "/other/1").encode(), mtime=0)
        return 200, {"Content-Type": "application/x-gzip"}, content

    def page_feed_xml(self, rest, query, **_) -> tuple:
        """Give a feed in XML."""
        return 200, {"Content-Type": "text/xml"}, FEED

    def page_books_csv(self, rest, query, **_) -> tuple:
        """Give a table."""
        return 200, {"Content-Type": "text/csv"}, "id;title\n1;'One; or not'\n2;Two\nbroken\n"

    def page_file(self, rest, query, **_) -> tuple:
        """Give a file."""
        return 200, {"Content-Type": "application/octet-stream"}, f"file {rest}".encode()


def links(*to: str, title: str = "links") -> str:
    """Return a page that links to addresses."""
    anchors = "".join(f'<a href="{escape(each)}">{escape(each)}</a>' for each in to)
    return f"<html><title>{title}</title><body><h1>{title}</h1>{anchors}</body></html>"


def urlset(site: str, *paths: str) -> str:
    """Return a sitemap of pages."""
    return URLSET.format("".join(f"<url><loc>{site}{path}</loc></url>" for path in paths))
