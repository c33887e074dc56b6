"""What a page refers to: links, frames, and files that a browser loads with it."""

from __future__ import annotations

import gzip

import pytest
from scrapy import Request
from scrapy.http import HtmlResponse, Response, TextResponse, XmlResponse

from scrapy_itemgraph.contrib.sites import references
from scrapy_itemgraph.contrib.sites.references import Kind

HOST = "https://a.example"
URL = f"{HOST}/b/c.html"


def found(body, kind=None, url=URL, encoding="utf-8", headers=None):
    """Return the URLs that an HTML page refers to, as far as they are of a kind."""
    data = body if isinstance(body, bytes) else body.encode(encoding)
    response = HtmlResponse(url, body=data, encoding=encoding, headers=headers)
    return [one.url for one in references.of(response) if kind in {None, one.kind}]


@pytest.mark.parametrize(
    ("html", "kind", "urls"),
    [
        ('<a href="d.html">', Kind.LINK, ["https://a.example/b/d.html"]),
        ('<a href=" /x y ">', Kind.LINK, ["https://a.example/x%20y"]),
        ('<a href="\n//cdn.example/x\t">', Kind.LINK, ["https://cdn.example/x"]),
        ('<a href="?q=1#top">', Kind.LINK, ["https://a.example/b/c.html?q=1"]),
        ('<a href="\\d\\e?f=\\g">', Kind.LINK, ["https://a.example/d/e?f=\\g"]),
        ('<a href="HTTPS://B.example/">', Kind.LINK, ["https://b.example/"]),
        ('<map><area href="/m"></map>', Kind.LINK, ["https://a.example/m"]),
        ('<link rel="next" href="/2">', Kind.LINK, ["https://a.example/2"]),
        ('<link rel="dns-prefetch" href="//b.example">', None, []),
        ('<iframe src="/f">', Kind.FRAME, ["https://a.example/f"]),
        ('<frameset><frame src="/f"></frameset>', Kind.FRAME, ["https://a.example/f"]),
        ('<link rel="Shortcut ICON" href="/i">', Kind.REQUISITE, ["https://a.example/i"]),
        ('<img src="/1" srcset="/2 2x,/3 3x">', Kind.REQUISITE, [f"{HOST}/{n}" for n in (2, 3, 1)]),
        ('<video poster="/p"><source src="/v">', Kind.REQUISITE, [f"{HOST}/p", f"{HOST}/v"]),
        ('<svg><image xlink:href="/s"/></svg>', Kind.REQUISITE, ["https://a.example/s"]),
        ('<div style="background:url(/d)">', Kind.REQUISITE, ["https://a.example/d"]),
        ("<style>p{background:url('/e')}</style>", Kind.REQUISITE, ["https://a.example/e"]),
        ('<img data-src="/lazy">', Kind.REQUISITE, ["https://a.example/lazy"]),
        ('<meta http-equiv=Refresh content="0; URL=/r">', Kind.LINK, ["https://a.example/r"]),
        ('<meta http-equiv=refresh content="5;url=\'r\'">', Kind.LINK, ["https://a.example/b/r"]),
        ('<meta http-equiv=refresh content="30">', None, []),
        ('<meta http-equiv=refresh content="YES">', None, []),
        ('<meta http-equiv=refresh content="0 /r">', Kind.LINK, ["https://a.example/r"]),
        ('<iframe srcdoc="<a href=/f><iframe srcdoc=x></iframe>">', Kind.LINK, [f"{HOST}/f"]),
        ('<iframe srcdoc="<base href=/g/><img src=i>">', Kind.REQUISITE, [f"{HOST}/g/i"]),
    ],
)  # fmt: skip
def test_a_page_refers_to_links_frames_and_what_it_needs(html, kind, urls):
    """Each kind of element and attribute is read as browsers read it, and made absolute."""
    assert sorted(found(f"<p>{html}", kind)) == sorted(urls)


@pytest.mark.parametrize(
    ("base", "url", "whole"),
    [
        ("/u//x/", "rel.html", "/u//x/rel.html"),
        ("/", "d//e//f", "/d//e//f"),
        ("/~ann/", "../private/x", "/private/x"),
        ("/~ann/", "%2e%2e/private/x", "/private/x"),
        ("/", "/~ann/./../private/x", "/private/x"),
        ("/", "https://a.example:443/x", "/x"),
        ("/", "https:x", "/x"),
        ("/", "/a\tb\nc", "/abc"),
    ],
)
def test_urls_are_resolved_as_browsers_do(base, url, whole):
    """WHATWG: empty segments stay, dots are resolved, also as %2e, and the usual port goes."""
    assert found(f'<a href="{url}">', url=HOST + base) == [HOST + whole]


@pytest.mark.parametrize(
    "href",
    [
        *("mailto:a@b.example", "javascript:void(0)", "data:image/png;base64,AA", "tel:1"),
        *("#top", "", " ", "http://[", "ftp://a.example/", "x" * 9000, "about:blank"),
    ],
)
def test_what_is_not_of_the_web_is_no_reference(href):
    """Other schemes, fragments, URLs that are none or too long are left out, without an error."""
    assert found(f'<a href="{href}"><img src="{href}">') == []


def test_all_urls_are_relative_to_the_base_of_the_page():
    """The first `<base>` counts, also for what stands before it in the head, as in browsers."""
    html = (
        '<html><head><link rel=icon href="i"><base href="/x/"><base href="/y/"></head>'
        '<body><a href="1">1</a></body></html>'
    )

    assert found(html) == ["https://a.example/x/i", "https://a.example/x/1"]
    assert found('<body><a href="1"></a><base href="http://[">') == ["https://a.example/b/1"]
    for bad in ("http://[", "", "mailto:a@b.example"):
        html = f'<head><base href="{bad}"><base href="/y/"></head><a href="1">'
        assert found(html) == ["https://a.example/b/1"]


@pytest.mark.parametrize("encoding", ["utf-8", "shift_jis", "utf-16", "cp1251", "latin-1"])
def test_links_are_read_in_the_charset_of_their_page(encoding):
    """A charset of the header, or a wrong one, loses no link; text that is none is replaced."""
    html = '<p>caf<a href="/a">a</a><img src="/b.png">'

    assert found(html, encoding=encoding) == ["https://a.example/b.png", "https://a.example/a"]
    broken = b'<meta charset="utf-8">\xff\xfe\0<a href="/\xff">x</a><a href="/b">'
    assert found(broken) == ["https://a.example/%EF%BF%BD", "https://a.example/b"]


@pytest.mark.parametrize("charset", ["undefined", "hex", "idna", "rot13", "punycode", "utf-16"])
def test_a_charset_that_is_none_loses_no_reference(charset):
    """Servers name codecs that are not of text, or not of this one: ASCII is read all the same."""
    mime = {"Content-Type": f"text/html; charset={charset}"}
    page = HtmlResponse(URL, headers=mime, body=b'\xe9<a href="/a?q=\xe9"><img src="/b.png">')
    sheet = {"Content-Type": f"text/css; charset={charset}"}
    css = TextResponse(URL, headers=sheet, body=b"/* \xe9 */ a{b:url(/c.png)}")

    picture, link = references.of(page)
    assert picture == (Kind.REQUISITE, "https://a.example/b.png")
    assert link.url.startswith("https://a.example/a?q=")
    assert [one.url for one in references.of(css)] == ["https://a.example/c.png"]


@pytest.mark.parametrize(
    ("charset", "query"),
    [
        ("shift_jis", "%93%FA%96%7B"),
        ("euc-jp", "%C6%FC%CB%DC"),
        ("utf-8", "%E6%97%A5%E6%9C%AC"),
        ("utf-16", "%E6%97%A5%E6%9C%AC"),
    ],
)
def test_a_query_is_sent_in_the_encoding_of_its_page(charset, query):
    """A query has the page's encoding, as in browsers; a path, and other characters, have UTF-8."""
    page = '<a href="/日?q=日本"><img src="/日">'.encode(charset)

    picture, link = found(page, encoding=charset)

    assert link.endswith(f"?q={query}")
    assert Request(link).url == link
    assert picture == "https://a.example/%E6%97%A5"
    only_in_utf8 = '<a href="/?q=&#26085;">'
    assert found(only_in_utf8, encoding="cp1251") == ["https://a.example/?q=%E6%97%A5"]
    assert found('<a href="http://h:x/?日">', encoding="shift_jis") == []


def test_what_a_page_needs_comes_before_its_links():
    """A picture that is linked and shown becomes one that is needed, for what is first counts."""
    assert found('<a href="/1"><img src="/1"></a><a href="/2">') == [
        *("https://a.example/1", "https://a.example/1", "https://a.example/2"),
    ]
    first, second, _ = references.of(HtmlResponse(URL, body=b"<a href=1><img src=1></a><a href=2>"))
    assert (first.kind, second.kind) == (Kind.REQUISITE, Kind.LINK)


def test_a_page_that_asks_robots_not_to_follow_gives_no_links_but_what_it_needs():
    """`nofollow` of the page counts, in its HTML and its header; that of a link alone does not."""
    html = '<meta name=Robots content="noindex, NOFOLLOW"><a href="/a"></a><img src="/b">'

    assert found(html) == ["https://a.example/b"]
    assert found('<a rel=nofollow href="/a">') == ["https://a.example/a"]


@pytest.mark.parametrize(
    ("values", "forbids"),
    [
        (["noindex"], False),
        (["noindex, NoFollow"], True),
        (["none"], True),
        (["googlebot: nofollow"], False),
        (["Otherbot : noindex, nofollow"], False),
        (["googlebot: nofollow", "nofollow"], True),
        (["max-snippet: 5, nofollow"], True),
        (["unavailable_after: 25 Jun 2030 15:00:00 PST, nofollow"], True),
        (["max-snippets: nofollow"], False),
        (["*: nofollow"], True),
        ([], False),
    ],
)
def test_a_header_for_another_robot_is_not_for_us(values, forbids):
    """A value may begin with the robot that it is for; some directives have a colon as well."""
    response = HtmlResponse(URL, headers={"X-Robots-Tag": values})

    assert references.forbids_links(response) is forbids


@pytest.mark.parametrize(
    ("css", "urls"),
    [
        ("a{b:url(x.png)}", ["x.png"]),
        ("a{b:url( 'x y.png' )}", ["x y.png"]),
        ('@import "a.css"; @import url(b.css) print;', ["a.css", "b.css"]),
        ("/* url(no.png) */ a{b:url(yes.png)}", ["yes.png"]),
        (r'a{b:url("x\"\29 .png")} c{d:url(y\ z)}', ['x").png', "y z"]),
        ("a{b:url()} c{d:url(", []),
        ('@import"a.css";@IMPORT/* */url(b.css);@import /**/ "c.css"', ["a.css", "b.css", "c.css"]),
        ('a{b:image-set("a.png" 1x, url(b.png) 2x type("image/png"))}', ["a.png", "b.png"]),
        ("a{b:-webkit-image-set(url('a.png')1x,\"b)\" 2x)}c{d:url(e)}", ["a.png", "b)", "e"]),
        ("""a{content:"url(x)"} b{content:'@import "y"'} c{d:url(z)}""", ["z"]),
        ('@namespace url(http://x/); @namespace s "http://y/"; a{b:url(z)}', ["z"]),
        ('a{b:"c\nd:url(e)}', ["e"]),
        ("@font-face{src:url(a.woff2) format('woff2'),url(a.woff)}", ["a.woff2", "a.woff"]),
    ],
)
def test_a_style_sheet_refers_to_pictures_fonts_and_other_sheets(css, urls):
    """`url()`, `@import`, `image-set()` with escapes; not comments, strings and namespaces."""
    assert list(references.of_style(css)) == urls


@pytest.mark.parametrize(
    ("text", "urls"),
    [
        ("a.png", ["a.png"]),
        ("a.png 1x, b.png 2x", ["a.png", "b.png"]),
        ("a,b.png 1x,c.png", ["a,b.png", "c.png"]),
        (" , a.png, , b.png 100w", ["a.png", "b.png"]),
        ("a.png (x,y) 1x, b.png", ["a.png", "b.png"]),
        ("data:image/png;base64,AA= 1x, b.png 2x", ["data:image/png;base64,AA=", "b.png"]),
        ("", []),
    ],
)
def test_a_set_of_pictures_is_read_as_browsers_read_it(text, urls):
    """Commas may stand within URLs and within descriptors."""
    assert list(references.of_set(text)) == urls


def test_sheets_sitemaps_and_feeds_are_read_and_nothing_else():
    """A style sheet needs files; `loc`, `link` and `enclosure` of XML are links."""
    sheet = TextResponse(URL, headers={"Content-Type": "text/css"}, body=b"a{b:url(x)}")
    sitemap = XmlResponse(
        URL,
        body=b'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"><url>'
        b"<loc> https://a.example/1 </loc></url></urlset>",
    )
    feed = XmlResponse(
        URL,
        body=b"<rss><item><link>https://a.example/2</link><enclosure url='/3'/></item>"
        b"<entry xmlns='http://www.w3.org/2005/Atom'><link href='4'/></entry><broken>",
    )
    plain = {"Content-Type": "text/plain"}
    text = TextResponse(URL, headers=plain, body=b'<a href="/x">')
    listed = b"\xef\xbb\xbfhttps://a.example/1\r\n\r\n  http://b.example/2#x\n"
    urls = TextResponse(f"{HOST}/sitemap.txt?x=1", headers=plain, body=listed)
    prose = TextResponse(f"{HOST}/a.txt", headers=plain, body=b"https://a.example/1\nis gone")

    assert list(references.of(sheet)) == [(Kind.REQUISITE, "https://a.example/b/x")]
    assert list(references.of(sitemap)) == [(Kind.LINK, "https://a.example/1")]
    assert [one.url for one in references.of(feed)] == [
        *("https://a.example/2", "https://a.example/3", "https://a.example/b/4"),
    ]
    assert list(references.of(text)) == []
    assert [one.url for one in references.of(urls)] == [f"{HOST}/1", "http://b.example/2"]
    assert list(references.of(prose)) == []


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("Link", '</2>; title="a, b; rel=x"; rel="next"', [(Kind.LINK, f"{HOST}/2")]),
        ("Link", "<s.css>;rel=stylesheet;as=style", [(Kind.REQUISITE, f"{HOST}/b/s.css")]),
        ("Link", "</a>;rel=prev, <//b.example/>; REL=License", [
            *((Kind.LINK, f"{HOST}/a"), (Kind.LINK, "https://b.example/")),
        ]),
        ("Link", "</c>; rel=preconnect, </d>, e; rel=next, <", []),
        ("Refresh", "3; url=/r", [(Kind.LINK, f"{HOST}/r")]),
        ("Refresh", "3", []),
    ],
)  # fmt: skip
def test_headers_refer_to_what_they_refer_to_in_html(name, value, expected):
    """`Link` with its relation and `Refresh` count for a response of any kind."""
    for kind in (Response, HtmlResponse):
        assert list(references.of(kind(URL, headers={name: value}, body=b""))) == expected


SITEMAP = b"<urlset><url><loc>https://a.example/1</loc></url></urlset>"


def test_a_packed_sitemap_is_read_like_any_other(monkeypatch):
    """By its name and its content; one that is too large or broken has nothing in it."""
    packed = gzip.compress(SITEMAP)

    def read(url: str, body: bytes) -> list[str]:
        return [one.url for one in references.of(Response(url, body=body))]

    assert read(f"{HOST}/sitemap.xml.gz?x=1", packed) == ["https://a.example/1"]
    assert read(f"{HOST}/sitemap.gz", packed) == []
    assert read(f"{HOST}/sitemap.xml.gz", SITEMAP) == []
    assert read(f"{HOST}/sitemap.xml.gz", packed[:15]) == []
    assert read(f"{HOST}/sitemap.xml.gz", packed[:10] + b"\xff" * 50) == []
    monkeypatch.setattr(references, "_LARGEST_SITEMAP", 50)
    assert read(f"{HOST}/sitemap.xml.gz", packed) == []


def test_a_feed_with_names_that_are_none_is_read():
    """Colons too many, and prefixes that nobody said, lose no link of a feed."""
    body = b"<rss><a:b:c/><media:content url='/0'/><l:link>https://a.example/1</l:link><a:/></rss>"

    assert [one.url for one in references.of(XmlResponse(URL, body=body))] == [
        "https://a.example/1",
    ]


@pytest.mark.parametrize("body", [b"", b"\0\0", b"<", b"<!--", b"<a" * 50_000, b"<p>" * 200_000])
def test_a_hostile_page_is_read_without_an_error(body):
    """Empty, cut off, or nested without end: there is nothing to find, and nothing breaks."""
    assert found(body) == []


class Body(bytes):
    """A body that notes how far it was read."""

    read = 0

    def __getitem__(self, part):
        self.read = max(self.read, part.stop)
        return super().__getitem__(part)


def test_a_page_is_yielded_from_while_it_is_read():
    """Of a page of 1 MB the first link comes before the rest is parsed, so that others go on."""
    body = Body(b"<body>" + b'<a href="/x">x</a><p>' * 50_000)
    links = references.of(HtmlResponse(URL, body=body, encoding="utf-8"))

    next(links)

    assert body.read < len(body) / 5
    assert sum(1 for _ in links) == 49_999


@pytest.mark.parametrize(
    "text",
    [
        *("url(" * 50_000, "/*" * 100_000, '@import "' + "\\" * 99_999, "@import/**/" * 50_000),
        *("image-set(" * 50_000, "image-set(" + "a" * 500_000, "@namespace" * 50_000, '"' * 99_999),
    ],
)
def test_no_style_sheet_is_read_again_and_again(text):
    """What looks like a million beginnings of something has nothing in it, which is soon known."""
    assert list(references.of_style(text)) == []
