"""The references of a page: links that a person may click, and files that a browser loads with it.

URLs are resolved as browsers do (WHATWG), by ada-url. Scripts are not read: a page that scripts
build has to be opened in a browser.
"""

from __future__ import annotations

import codecs
import re
import zlib
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import ada_url
from lxml import etree  # type: ignore[import-untyped]
from scrapy.http import HtmlResponse, TextResponse, XmlResponse
from scrapy.utils.gz import gunzip
from w3lib.url import safe_url_string

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from scrapy.http import Response

_CHUNK = 65_536  # bytes of a page that are read before what they refer to is yielded
_LONGEST_STYLE = 8_000_000  # characters of a style sheet that are looked through
_LONGEST_URL = 8_000  # characters
_LARGEST_SITEMAP = 64 * 1024 * 1024  # bytes of a packed one, once it is unpacked
_WEB = ("http://", "https://")


class Kind(Enum):
    """What a page refers to something as."""

    LINK = "link"
    FRAME = "frame"  # a page that is shown within the page
    REQUISITE = "requisite"  # a file that the page needs: a picture, a style sheet, a script


class Reference(NamedTuple):
    """Something that a page refers to, by its absolute URL without a fragment."""

    kind: Kind
    url: str


_LINK, _FRAME, _REQUISITE = Kind.LINK, Kind.FRAME, Kind.REQUISITE
_ATTRIBUTES: dict[str, tuple[tuple[str, Kind], ...]] = {
    "a": (("href", _LINK),),
    "area": (("href", _LINK),),
    "iframe": (("src", _FRAME),),
    "frame": (("src", _FRAME),),
    "img": (("src", _REQUISITE), ("lowsrc", _REQUISITE), ("longdesc", _LINK)),
    "image": (("href", _REQUISITE), ("xlink:href", _REQUISITE)),
    "use": (("href", _REQUISITE), ("xlink:href", _REQUISITE)),
    "input": (("src", _REQUISITE),),
    "script": (("src", _REQUISITE),),
    "source": (("src", _REQUISITE),),
    "track": (("src", _REQUISITE),),
    "audio": (("src", _REQUISITE),),
    "video": (("src", _REQUISITE), ("poster", _REQUISITE)),
    "embed": (("src", _REQUISITE),),
    "object": (("data", _REQUISITE),),
    "bgsound": (("src", _REQUISITE),),
    "body": (("background", _REQUISITE),),
    "table": (("background", _REQUISITE),),
    "td": (("background", _REQUISITE),),
    "th": (("background", _REQUISITE),),
}
# Where pages keep what their scripts load once it is scrolled to.
_LAZY = ("data-src", "data-original", "data-lazy-src", "data-bg", "data-background-image")
_SETS = ("srcset", "imagesrcset", "data-srcset", "data-lazy-srcset")
_NEEDED = frozenset(
    {
        *("stylesheet", "icon", "apple-touch-icon", "apple-touch-icon-precomposed"),
        *("mask-icon", "fluid-icon", "image_src", "manifest", "preload", "modulepreload"),
    }
)
_RELATED = frozenset(
    {
        *("alternate", "amphtml", "archives", "author", "canonical", "contents", "first", "help"),
        *("index", "last", "license", "next", "prev", "previous", "search", "shortlink", "up"),
    }
)
# A time comes first, as in HTML's own rules: `YES` is no URL.
_REFRESH = re.compile(
    r"""\s*(?:\d[\d.]*|\.[\d.]*)(?:\s*[;,]|\s)\s*(?:url\s*=\s*)?(?:"([^"]*)|'([^']*)|(.*))""",
    re.IGNORECASE | re.DOTALL,
)


def of(response: Response) -> Iterator[Reference]:
    """Yield the references of a response, in its headers and in its body, as it is read.

    Bodies are those of HTML, feeds, sitemaps (XML, packed, or a text of URLs) and style sheets.
    """
    yield from _absolute(response.url, _of_headers(response))
    if _is_packed_sitemap(response):
        yield from _of_feed(response.url, _unpacked(response.body))
    elif isinstance(response, HtmlResponse):
        yield from _of_page(response)
    elif isinstance(response, XmlResponse):
        yield from _of_feed(response.url, response.body)
    elif isinstance(response, TextResponse) and _is_style(response):
        text = "".join(_texts(response.body, _text_encoding(response)))[:_LONGEST_STYLE]
        yield from _absolute(response.url, ((_REQUISITE, one) for one in of_style(text)))
    elif isinstance(response, TextResponse) and urlsplit(response.url).path.endswith(".txt"):
        yield from _absolute(response.url, _of_list(response))


def forbids_links(response: Response) -> bool:
    """Tell whether a page's header asks robots not to follow its links; its HTML may as well."""
    found = [one.decode("latin-1").lower() for one in response.headers.getlist("X-Robots-Tag")]
    return any(_is_nofollow(one) for one in found if _OF_ONE_ROBOT.match(one) is None)


# "googlebot: nofollow" is for that robot alone; some directives have a colon as well.
_OF_ONE_ROBOT = re.compile(
    r"\s*(?!(?:unavailable_after|max-snippet|max-image-preview|max-video-preview)\s*:)[\w.-]+\s*:"
)


def _is_nofollow(text: str) -> bool:
    return not {"nofollow", "none"}.isdisjoint(re.split(r"[\s,:]+", text.lower()))


def _is_packed_sitemap(response: Response) -> bool:
    path = urlsplit(response.url).path
    return path.endswith(".xml.gz") and response.body[:2] == b"\x1f\x8b"


def _unpacked(body: bytes) -> bytes:
    try:
        return gunzip(body, max_size=_LARGEST_SITEMAP)
    except (EOFError, OSError, ValueError, zlib.error):  # it is too large, or broken
        return b""


def _is_style(response: Response) -> bool:
    mime = (response.headers.get("Content-Type") or b"").lower()
    path = response.url.partition("?")[0]
    return b"css" in mime or (b"html" not in mime and path.endswith(".css"))


def _of_list(response: TextResponse) -> Iterator[tuple[Kind, str]]:
    """Yield the lines of a text sitemap; a text with any other line is none."""
    text = response.body.decode("utf-8-sig", "replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if all(line.startswith(_WEB) for line in lines):
        yield from ((_LINK, line) for line in lines)


# Headers

_LINK_VALUE = re.compile(r"""<([^>]*)>((?:\s*;\s*[\w*-]+(?:\s*=\s*(?:"[^"]*"|[^\s",;]*))?)*)""")
_PARAMETER = re.compile(r""";\s*([\w*-]+)\s*=\s*"?((?<=")[^"]*|[^\s",;]*)""")


def _of_headers(response: Response) -> Iterator[tuple[Kind, str]]:
    """Yield the URLs of `Link` and `Refresh`, which mean the same as in HTML."""
    for value in response.headers.getlist("Link"):
        for url, parameters in _LINK_VALUE.findall(value.decode("latin-1")):
            named = {name.lower(): value for name, value in _PARAMETER.findall(parameters)}
            kind = _kind_of_relation(named.get("rel", ""))
            if kind is not None:
                yield kind, url
    for value in response.headers.getlist("Refresh"):
        url = _refreshed(value.decode("latin-1"))
        if url:
            yield _LINK, url


def _kind_of_relation(text: str) -> Kind | None:
    """Return the kind of what a `rel` names; None if it is no page and no file of the page."""
    relations = text.lower().split()
    if not _NEEDED.isdisjoint(relations):
        return _REQUISITE
    return None if _RELATED.isdisjoint(relations) else _LINK


def _refreshed(text: str) -> str:
    """Return the URL of a refresh, `5; url=/next`; an empty one if it has none."""
    found = _REFRESH.match(text)
    return next((one for one in found.groups() if one), "").strip() if found else ""


# Text

_FALLBACK = "latin-1"  # which can read anything


def _text_encoding(response: TextResponse) -> str:
    """Return the encoding of a response; servers also name what is none of text, such as `hex`."""
    name = response.encoding
    try:
        b"a".decode(name, "replace")
        codecs.getincrementaldecoder(name)
    except (LookupError, ValueError):
        return _FALLBACK
    return name


def _texts(body: bytes, encoding: str) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    for begin in range(0, len(body), _CHUNK):
        part = body[begin : begin + _CHUNK]
        try:
            yield decoder.decode(part)
        except ValueError:  # UTF-16 that does not begin as it has to, say
            decoder = codecs.getincrementaldecoder(_FALLBACK)("replace")
            yield decoder.decode(part)


# Pages


class _Page:
    """Takes the elements of a page as they are parsed; no tree of them is made."""

    def __init__(self, url: str, encoding: str, *, is_frame: bool = False) -> None:
        self.forbids_links = False
        self._is_frame = is_frame  # it is the `srcdoc` of a frame
        self._url = url
        self._encoding = encoding
        self._base: str | None = None
        self._is_head = True  # `<base>` may be still to come
        self._style: list[str] | None = None  # the text of a style element
        self._found: list[tuple[Kind, str]] = []

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        if tag == "base":
            if self._base is None and "href" in attributes:  # a later one counts never
                self._base = _joined(self._url, attributes["href"]) or self._url
        elif tag == "link":
            self._link(attributes)
        elif tag == "meta":
            self._meta(attributes)
        elif tag == "style":
            self._style = []
        elif tag == "iframe" and "srcdoc" in attributes:
            self._take_frame(attributes["srcdoc"])
        for name, kind in _ATTRIBUTES.get(tag, ()):
            self._take(kind, attributes.get(name))
        if tag == "body":
            self._is_head = False
        self._take_any(attributes)

    def end(self, tag: str) -> None:
        if tag == "style" and self._style is not None:
            self._take_style("".join(self._style))
            self._style = None

    def data(self, text: str) -> None:
        if self._style is not None:
            self._style.append(text)

    def close(self) -> None:
        self._is_head = False

    def drain(self) -> Iterator[Reference]:
        """Yield what was found since, once it is known what it is relative to; links at the end.

        A picture within a link to itself is so one that is needed, first of all.
        """
        if self._is_head and self._base is None:
            return
        found, self._found = self._found, []
        found.sort(key=lambda one: one[0] is _LINK)
        yield from _absolute(self._base or self._url, found, self._encoding)

    def _take(self, kind: Kind, url: str | None) -> None:
        if url:
            self._found.append((kind, url))

    def _take_style(self, text: str) -> None:
        self._found.extend((_REQUISITE, one) for one in of_style(text[:_LONGEST_STYLE]))

    def _take_frame(self, markup: str) -> None:
        """Take the references of a frame that stands in the page; of frames within it none."""
        if self._is_frame:
            return
        frame = _Page(self._url, self._encoding, is_frame=True)
        parser = etree.HTMLParser(target=frame, huge_tree=True)
        parser.feed(markup)
        _close(parser, frame)
        base = frame._base
        self._found += [
            (kind, (base and _joined(base, url)) or url)
            for kind, url in frame._found
            if not (frame.forbids_links and kind is _LINK)
        ]

    def _take_any(self, attributes: Mapping[str, str]) -> None:
        """Take what any element may have: sets of pictures, styles, and what scripts load."""
        for name in attributes:
            if name == "style":
                if "(" in attributes[name]:
                    self._take_style(attributes[name])
            elif name in _SETS:
                self._found.extend((_REQUISITE, one) for one in of_set(attributes[name]))
            elif name in _LAZY:
                self._take(_REQUISITE, attributes[name])

    def _link(self, attributes: Mapping[str, str]) -> None:
        kind = _kind_of_relation(attributes.get("rel", ""))
        if kind is not None:
            self._take(kind, attributes.get("href"))

    def _meta(self, attributes: Mapping[str, str]) -> None:
        content = attributes.get("content", "")
        if attributes.get("http-equiv", "").lower() == "refresh":
            self._take(_LINK, _refreshed(content))
        elif attributes.get("name", "").lower() == "robots" and _is_nofollow(content):
            self.forbids_links = True


def _of_page(response: TextResponse) -> Iterator[Reference]:
    encoding = _text_encoding(response)
    page = _Page(response.url, encoding)
    parser = etree.HTMLParser(target=page, huge_tree=True)
    for text in _texts(response.body, encoding):
        markup = text.replace("\0", "")
        if markup:
            parser.feed(markup)
        yield from _allowed(page)
    _close(parser, page)
    yield from _allowed(page)


def _close(parser: Any, page: _Page) -> None:
    try:
        parser.close()
    except etree.LxmlError:  # there is no element in it
        page.close()


def _allowed(page: _Page) -> Iterator[Reference]:
    for one in page.drain():
        if not (page.forbids_links and one.kind is _LINK):
            yield one


# Feeds and sitemaps


class _Feed:
    """Takes the links of a sitemap, of RSS or of Atom as it is parsed."""

    def __init__(self) -> None:
        self.found: list[tuple[Kind, str]] = []
        self._text: list[str] | None = None

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        name = tag.rpartition("}")[2].rpartition(":")[2]
        self._text = [] if name in {"loc", "link", "guid"} else None
        if name in {"link", "enclosure"}:
            url = attributes.get("href") or attributes.get("url")
            if url:
                self.found.append((_LINK, url))

    def end(self, _tag: str) -> None:
        text = "".join(self._text or ()).strip()
        if text.startswith(_WEB):
            self.found.append((_LINK, text))
        self._text = None

    def data(self, text: str) -> None:
        if self._text is not None:
            self._text.append(text)

    def close(self) -> None:
        pass


def _of_feed(url: str, body: bytes) -> Iterator[Reference]:
    feed = _Feed()
    parser = etree.XMLParser(target=feed, recover=True, resolve_entities=False, no_network=True)
    try:
        for begin in range(0, len(body), _CHUNK):
            parser.feed(body[begin : begin + _CHUNK])
            found, feed.found = feed.found, []
            yield from _absolute(url, found)
        parser.close()
    except etree.LxmlError:  # what is left of it is no XML
        pass
    yield from _absolute(url, feed.found)


# Style sheets and sets of pictures

_QUOTED = r""""((?:[^"\\\n]|\\.)*)"|'((?:[^'\\\n]|\\.)*)'"""
_URL = rf"""url\(\s*(?:{_QUOTED}|((?:[^\s"'()\\]|\\.)+))\s*\)"""
_SKIPPED = r"(?>/\*.*?(?:\*/|\Z))"  # a comment
_PLAIN_QUOTED = _QUOTED.replace("((?:", "(?:(?:")  # without groups
# Comments, other strings and `@namespace` match without a group, so that no URL is found in them.
_URLS = re.compile(
    rf"{_SKIPPED}|{_URL}|@import(?:\s|{_SKIPPED})*+(?:{_QUOTED})"
    rf"|image-set\(((?:[^()\"']|{_PLAIN_QUOTED}|\((?:[^()\"']|{_PLAIN_QUOTED})*\))*)\)"
    rf"|@namespace(?:[^;{{\"']|{_PLAIN_QUOTED})*|{_PLAIN_QUOTED}",
    re.IGNORECASE | re.DOTALL,
)
_OF_SET = re.compile(rf"type\([^)]*\)|{_URL}|{_QUOTED}", re.IGNORECASE | re.DOTALL)
_SET = 6  # the group of the inside of an `image-set()`
_ESCAPE = re.compile(r"\\(?:([0-9a-fA-F]{1,6})\s?|(.))", re.DOTALL)
_HIGHEST = 0x10FFFF


def of_style(text: str) -> Iterator[str]:
    """Yield the URLs of a style sheet, as written: of `url()`, `@import` and `image-set()`."""
    for found in _URLS.finditer(text):
        if found[_SET]:
            for one in _OF_SET.finditer(found[_SET]):
                yield from _urls_of(one)
        else:
            yield from _urls_of(found)


def _urls_of(found: re.Match[str]) -> Iterator[str]:
    url = next((one for one in found.groups() if one), None)
    if url is not None:
        yield _ESCAPE.sub(_unescaped, url) if "\\" in url else url


def _unescaped(found: re.Match[str]) -> str:
    if found[1] is None:
        return found[2]
    number = int(found[1], 16)
    return chr(number) if 0 < number <= _HIGHEST else "\ufffd"


def of_set(text: str) -> Iterator[str]:
    """Yield the URLs of a `srcset`, as browsers read it."""
    place, end = 0, len(text)
    while place < end:
        while place < end and (text[place].isspace() or text[place] == ","):
            place += 1
        begin = place
        while place < end and not text[place].isspace():
            place += 1
        url = text[begin:place]
        if url.endswith(","):
            url = url.rstrip(",")
        else:
            place = _end_of_descriptors(text, place)
        if url:
            yield url


def _end_of_descriptors(text: str, place: int) -> int:
    depth = 0
    while place < len(text):
        char = text[place]
        if char == "," and depth == 0:
            break
        depth += (char == "(") - (char == ")" and depth > 0)
        place += 1
    return place


# URLs


def _absolute(
    base: str, found: Iterable[tuple[Kind, str]], encoding: str = "utf-8"
) -> Iterator[Reference]:
    is_sent_in_utf8 = encoding == _FALLBACK or encoding.startswith("utf")
    for kind, url in found:
        is_plain = is_sent_in_utf8 or url.isascii()
        whole = _joined(base, url if is_plain else _with_query_in(encoding, url))
        if whole is not None:
            yield Reference(kind, whole)


def _with_query_in(encoding: str, url: str) -> str:
    """Return a URL with its query in the encoding of its page, as browsers send it."""
    before, mark, query = url.partition("#")[0].partition("?")
    try:
        return before + safe_url_string(mark + query, encoding)
    except ValueError:  # a character that is not in the encoding: it is sent in UTF-8
        return url


def _joined(base: str, url: str) -> str | None:
    """Return the absolute URL without its fragment; None if it is none of the web."""
    if not url.strip() or url.lstrip().startswith("#") or len(url) > _LONGEST_URL:
        return None
    try:
        whole: str = ada_url.join_url(base, url).partition("#")[0]
    except ValueError:  # "http://[", say
        return None
    return whole if whole.startswith(_WEB) else None
