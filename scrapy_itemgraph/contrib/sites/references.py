"""What a page refers to: links that a person may click, and files that a browser loads with it.

Nothing is taken from scripts: a page that scripts build has to be opened in a browser.
"""

from __future__ import annotations

import codecs
import re
import zlib
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urljoin, urlsplit

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
_REFRESH = re.compile(r"\s*[\d.]*\s*[;,]?\s*(?:url\s*=\s*)?[\"']?([^\"']*)", re.IGNORECASE)


def of(response: Response) -> Iterator[Reference]:
    """Yield what a response refers to, as it is read; of what is no page, feed or sheet nothing."""
    if _is_packed_sitemap(response):
        yield from _of_feed(response.url, _unpacked(response.body))
    elif isinstance(response, HtmlResponse):
        yield from _of_page(response)
    elif isinstance(response, XmlResponse):
        yield from _of_feed(response.url, response.body)
    elif isinstance(response, TextResponse) and _is_style(response):
        text = "".join(_texts(response.body, _text_encoding(response)))[:_LONGEST_STYLE]
        yield from _absolute(response.url, ((_REQUISITE, one) for one in of_style(text)))


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

    def __init__(self, url: str, encoding: str) -> None:
        self.forbids_links = False
        self._url = url
        self._encoding = encoding
        self._base: str | None = None
        self._is_head = True  # `<base>` may be still to come
        self._style: list[str] | None = None  # the text of a style element
        self._found: list[tuple[Kind, str]] = []

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        if tag == "base":
            if self._base is None and attributes.get("href"):
                self._base = _joined(self._url, attributes["href"])
        elif tag == "link":
            self._link(attributes)
        elif tag == "meta":
            self._meta(attributes)
        elif tag == "style":
            self._style = []
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
        relations = attributes.get("rel", "").lower().split()
        if not _NEEDED.isdisjoint(relations):
            self._take(_REQUISITE, attributes.get("href"))
        elif not _RELATED.isdisjoint(relations):
            self._take(_LINK, attributes.get("href"))

    def _meta(self, attributes: Mapping[str, str]) -> None:
        content = attributes.get("content", "")
        if attributes.get("http-equiv", "").lower() == "refresh":
            refresh = _REFRESH.match(content)
            self._take(_LINK, refresh[1] if refresh else None)
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

_COMMENT = re.compile(r"/\*.*?(?:\*/|\Z)", re.DOTALL)
_URLS = re.compile(
    r"""url\(\s*(?:"((?:[^"\\\n]|\\.)*)"|'((?:[^'\\\n]|\\.)*)'|((?:[^\s"'()\\]|\\.)+))\s*\)"""
    r"""|@import\s+(?:"((?:[^"\\\n]|\\.)*)"|'((?:[^'\\\n]|\\.)*)')""",
    re.IGNORECASE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:([0-9a-fA-F]{1,6})\s?|(.))", re.DOTALL)
_HIGHEST = 0x10FFFF


def of_style(text: str) -> Iterator[str]:
    """Yield the URLs of a style sheet as they stand there: of `url()` and of `@import`."""
    for found in _URLS.finditer(_COMMENT.sub(" ", text)):
        url = next((one for one in found.groups() if one), "")
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

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:")


def _absolute(
    base: str, found: Iterable[tuple[Kind, str]], encoding: str = "utf-8"
) -> Iterator[Reference]:
    # What is not encoded here a request encodes in UTF-8.
    is_sent_in_utf8 = encoding == _FALLBACK or encoding.startswith("utf")
    for kind, url in found:
        whole = _joined(base, url)
        if whole is not None:
            is_plain = is_sent_in_utf8 or whole.isascii()
            yield Reference(kind, whole if is_plain else _encoded(whole, encoding))


def _encoded(url: str, encoding: str) -> str:
    """Return a URL with its query in the encoding of its page, as browsers send it."""
    try:
        return safe_url_string(url, encoding)
    except ValueError:  # a character that is not in the encoding, or it is no URL
        return url


def _joined(base: str, url: str) -> str | None:
    """Return the absolute URL, as browsers make it; None of what is not of the web."""
    url = _CONTROL.sub("", url.strip()).partition("#")[0]
    if not url or len(url) > _LONGEST_URL:
        return None
    if _SCHEME.match(url) is None or url[:5].lower() in {"http:", "https"}:
        before, mark, query = url.partition("?")
        url = before.replace("\\", "/") + mark + query
        try:
            url = urljoin(base, url)
        except ValueError:  # "http://[", say
            return None
    return url if url[:8].lower().startswith(_WEB) else None
