"""Which pages are of a site: by the URLs that a crawl begins with, and as far as they say."""

from __future__ import annotations

import os
import re
import stat
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import ada_url
from w3lib.url import canonicalize_url, safe_url_string

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_PORTS = {"http": ":80", "https": ":443"}
LARGEST_FILE = 64 * 1024**2  # bytes of a file of URLs
_MOST_SAID = 80  # characters of what was given that an error repeats

# Links that lead from page to page for ever, or to what no visitor reads; one pattern each.
NOISE: tuple[str, ...] = (
    r"[?&](?:replytocom|like_comment|openidserver|share|moderation-hash)=",
    r"[?&;]C=[NMSD];O=[AD]$",  # orders of a directory that Apache lists
    r"/(?:wp-login|xmlrpc)\.php(?:$|\?)",
    r"/wp-json/oembed/",
    r"/(?:%22|%27|'|%5C(?:%22|%27|'))",  # quotation marks of a script that was taken for a link
    r"(?P<one>/[^/?]+)(?P=one){3}",  # a segment four times in a row: a relative link gone wrong
    r"(?P<many>(?:/[^/?]+){2,16})(?P=many){2}(?![^/?])",  # several segments three times in a row
    r"amp;amp;",  # escaped again by each page
)


class Extent(StrEnum):
    """How much of a site a crawl is to have."""

    HOST = "host"  # all that is on the hosts it begins at
    PATH = "path"  # what is in the folders it begins in, and below
    PAGE = "page"  # the pages it begins with alone

    @classmethod
    def named(cls, text: str) -> Extent:
        """Return the extent of a name.

        Raises:
            ValueError: there is none; it says which there are.

        """
        try:
            return cls(text)
        except ValueError:
            known = ", ".join(cls)
            raise ValueError(f"-a extent={text[:_MOST_SAID]} is none of {known}") from None


@dataclass(frozen=True)
class Scope:
    """The pages of the sites that a crawl begins at.

    `folders` are paths by place, a host with its port; `www.` before a host makes no difference,
    nor does http or https.
    """

    extent: Extent
    folders: Mapping[str, frozenset[str]]

    @classmethod
    def of(cls, roots: Iterable[str], extent: Extent) -> Scope:
        """Return the scope of a crawl that begins with these URLs."""
        folders: dict[str, set[str]] = {}
        for one in roots:
            folders.setdefault(place_of(one), set()).add(_folder(one))
        return cls(extent, {place: frozenset(some) for place, some in folders.items()})

    def has(self, url: str, home: str | None = None) -> bool:
        """Tell whether a page is of the sites, or of `home`: where a root moved to.

        That is a place and a folder, `a.example/docs/`; one without a slash is all of the host.
        """
        if self.extent is Extent.PAGE:
            return False
        try:
            place = place_of(url)
            folders = set(self.folders.get(place, ()))
            moved_to, slash, folder = (home or "").partition("/")
            if home is not None and place == moved_to:
                folders.add(slash + folder)
            if self.extent is Extent.HOST or not folders:
                return bool(folders)
            path = _path(url)
        except ValueError:
            return False
        return any(path.startswith(one) for one in folders)

    def home_of(self, url: str) -> str | None:
        """Return where a root moved to, which led to a URL; None if no more is of the site by that.

        A folder above the one that was asked for is more than was asked for.
        """
        place, folder = place_of(url), _folder(url)
        known = self.folders.get(place, frozenset())
        if self.has(url) or any(one.startswith(folder) for one in known):
            return None
        return place + folder


def place_of(url: str) -> str:
    """Return the host of a URL with its port, without `www.` and without the usual port."""
    parts = urlsplit(url)
    netloc = parts.netloc.rpartition("@")[2].lower()
    if not netloc.isascii():
        netloc = urlsplit(safe_url_string(f"http://{netloc}/")).netloc
    host, colon, port = netloc.partition(":") if "[" not in netloc else (netloc, "", "")
    host = host.removesuffix(".").removeprefix("www.")
    usual = colon + port == _PORTS.get(parts.scheme) or not port
    return host if usual else f"{host}:{port}"


def _path(url: str) -> str:
    """Return the path of a URL with one spelling for each character: `%7E` is `~`."""
    return urlsplit(canonicalize_url(url)).path or "/"


def _folder(url: str) -> str:
    return _path(url).rpartition("/")[0] + "/"


def is_noise(url: str) -> bool:
    """Tell whether a link leads to what no archive wants."""
    return _NOISE(url) is not None or _repeats_parameters(url)


_NOISE = re.compile("|".join(f"(?:{one})" for one in NOISE).replace(r"\1", "%s")).search


def _repeats_parameters(url: str) -> bool:
    """Tell whether a query has a parameter without a value twice, or another one three times."""
    query = url.partition("?")[2]
    if query.count("&") == 0:
        return False
    times = Counter(one for one in query.split("&") if one)
    return any(times[one] >= (2 if one.endswith("=") else 3) for one in times)


# What a crawl begins with


def roots_of(url: str, urls: str | None) -> list[str]:
    """Return the URLs that a crawl begins with: those of `url`, by blanks, and of a file's lines.

    Lines that are empty or begin with # are left out.

    Raises:
        ValueError: one is no URL of the web; or the file is none of text, or too large.
        OSError: the file cannot be read.

    """
    found = [_checked(one, f"-a url={one[:_MOST_SAID]}") for one in url.split()]
    if urls is not None:
        # What a line has is not repeated: it may be any file.
        lines = _text_of(Path(urls)).splitlines()
        found += [
            _checked(line.strip(), f"line {number} of {urls}")
            for number, line in enumerate(lines, 1)
            if line.strip() and not line.startswith("#")
        ]
    return list(dict.fromkeys(found))


def _text_of(path: Path) -> str:
    """Read a file; it neither waits for a writer nor reads without end.

    Raises:
        ValueError: it is no regular file, too large, or no UTF-8.
        OSError: it cannot be read.

    """
    with open(path, "rb", opener=_without_waiting) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError(f"-a urls={path} is no regular file; write the URLs into one")
        content = file.read(LARGEST_FILE + 1)
    if len(content) > LARGEST_FILE:
        raise ValueError(
            f"-a urls={path} has more than {LARGEST_FILE // 1024**2} MiB; split it, and make a "
            "crawl of each part"
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(f"-a urls={path} is no UTF-8") from None


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def _checked(text: str, where: str) -> str:
    try:
        url: str = ada_url.normalize_url(text).partition("#")[0]
    except ValueError:
        url = ""
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"{where} is no URL of a page; write one such as https://example.com/")
    return url
