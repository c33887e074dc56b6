"""The sites that are crawled, as files that nginx serves."""

from __future__ import annotations

import html
import os
import random
import re
import resource
import subprocess
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, urldefrag, urljoin
from urllib.request import urlopen

from support import servers

if TYPE_CHECKING:
    from collections.abc import Iterator

MANUALS = {
    "python": Path("/usr/share/doc/python3-doc/html"),
    "postgresql": Path("/usr/share/doc/postgresql-doc-15/html"),
}
PAGES = 3000
FILES = 65_536  # that nginx has open at most, if this machine lets it
PART = 20 / 3  # times the pages that are fetched are there
PAGES_OF_HOST = 6
HREF = re.compile(r"""<a\s[^>]*?href\s*=\s*["']([^"']*)""", re.IGNORECASE)
FILLER = "<p>" + "A page has a text, and this is a text that a page has. " * 8 + "</p>"

NGINX = """
daemon off;
worker_processes 1;
worker_rlimit_nofile {files};
pid {directory}/nginx.pid;
error_log {directory}/error.log;
events {{ worker_connections {connections}; }}
http {{
    types {{ text/html html; }}
    charset utf-8;
    access_log off;
    sendfile on;
    keepalive_requests 10000000;
    open_file_cache max={cached} inactive=1h;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
    server {{
        listen 0.0.0.0:{port} backlog=4096;
        allow 127.0.0.0/8;
        deny all;
        root {directory}/sites;
    }}
}}
"""


@dataclass(frozen=True)
class Site:
    """What a crawl begins with, the pages that it fetches, and how often it may fetch more.

    `is_whole` tells whether every page that can be reached is fetched. Where not, the crawl ends
    after `len(pages)`, and which ones it fetches is up to its order.
    """

    name: str
    title: str
    seeds: list[str]
    pages: list[str]
    is_whole: bool = True


def page(title: str, links: list[str]) -> str:
    """Return a page as HTML."""
    items = "".join(f'<li><a href="{link}">The page {link}</a></li>' for link in links)
    return (
        f"<html><head><title>{title}</title></head><body><h1>{title}</h1>{FILLER}"
        f"<ul>{items}</ul><h2>More of it</h2>{FILLER}</body></html>"
    )


def linked(number: int, count: int) -> list[int]:
    """Return the 8 to 10 pages that a page of a site of `count` links to: a tree, and any."""
    rng = random.Random(number)
    tree = [child for child in (2 * number + 1, 2 * number + 2) if child < count]
    found = dict.fromkeys(tree)
    wanted = min(rng.randint(8, 10), count)
    while len(found) < wanted:
        found[rng.randrange(count)] = None
    return list(found)


def _numbered(root: Path, name: str, count: int, origin: str) -> list[str]:
    """Write a site of numbered pages; return their addresses."""
    directory = root / name
    directory.mkdir(parents=True)
    for number in range(count):
        links = [f"p{other}.html" for other in linked(number, count)]
        (directory / f"p{number}.html").write_text(page(f"Page {number}", links))
    return [f"{origin}/{name}/p{number}.html" for number in range(count)]


def deep(root: Path, port: int, pages: int) -> Site:
    """Make a site of so many pages, of which each links to 8 to 10."""
    urls = _numbered(root, "deep", pages, f"http://127.0.0.1:{port}")
    title = f"the deep site: {pages:,} pages with 8 to 10 links each"
    return Site("deep", title, urls[:1], urls)


def part(root: Path, port: int, pages: int) -> Site:
    """Make a larger such site, of which so many pages are fetched: most links are new."""
    count = round(pages * PART)
    urls = _numbered(root, "part", count, f"http://127.0.0.1:{port}")
    title = f"a part of a site: {pages:,} of {count:,} pages with 8 to 10 links each"
    return Site("part", title, urls[:1], urls[:pages], is_whole=False)


def broad(root: Path, port: int, pages: int) -> Site:
    """Make many hosts of 6 pages, which link to each other; every 127.x.y.z is a host."""
    names = ["index.html", *(f"p{number}.html" for number in range(1, PAGES_OF_HOST))]
    (root / "broad").mkdir(parents=True)
    for name in names:
        others = [other for other in names if other != name]
        (root / "broad" / name).write_text(page(name, others))
    count = pages // PAGES_OF_HOST
    hosts = [f"http://127.1.{n // 250}.{n % 250 + 1}:{port}/broad" for n in range(count)]
    return Site(
        "broad",
        f"the broad crawl: {count} hosts with {PAGES_OF_HOST} pages each",
        [f"{host}/index.html" for host in hosts],
        [f"{host}/{name}" for host in hosts for name in names],
    )


def manuals(root: Path, port: int, _pages: int) -> Site:
    """Make a site of Debian's manuals of Python and PostgreSQL, which are links to their files."""
    directory = root / "manuals"
    directory.mkdir(parents=True)
    for name, place in MANUALS.items():
        (directory / name).symlink_to(place.resolve())
    links = [f"{name}/index.html" for name in MANUALS]
    (directory / "index.html").write_text(page("Manuals", links))
    origin = f"http://127.0.0.1:{port}"
    pages = reached(root, origin, f"{origin}/manuals/index.html")
    return Site("manuals", f"the manuals: {len(pages):,} pages", pages[:1], pages)


def reached(root: Path, origin: str, first: str) -> list[str]:
    """Return the pages that a crawl reaches, by the files themselves."""
    seen = {first: None}
    todo = [first]
    while todo:
        url = todo.pop()
        path = root / url.removeprefix(f"{origin}/")
        for href in HREF.findall(path.read_text(errors="replace")):
            link = urldefrag(urljoin(url, html.unescape(href.strip())))[0]
            if link in seen or not (link.startswith(f"{origin}/") and link.endswith(".html")):
                continue
            if (root / link.removeprefix(f"{origin}/")).exists():
                seen[link] = None
                todo.append(link)
    return [quote(url, safe=":/%") for url in seen]


SITES = {"deep": deep, "part": part, "manuals": manuals, "broad": broad}


@contextmanager
def serving(directory: Path) -> Iterator[tuple[int, int]]:
    """Serve `directory/sites` to this machine alone, by one worker; yield port and process."""
    port = servers._free_port()
    (directory / "sites").mkdir()
    account = "user root;\n" if os.geteuid() == 0 else ""  # the files may be root's alone
    configuration = directory / "nginx.conf"
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    files = FILES if most == resource.RLIM_INFINITY else min(FILES, most)
    given = {"files": files, "connections": files // 4, "cached": files // 2}
    configuration.write_text(account + NGINX.format(directory=directory, port=port, **given))
    command = ["nginx", "-p", directory, "-c", configuration, "-e", directory / "error.log"]
    process = subprocess.Popen(command)
    try:
        _wait_for(f"http://127.0.0.1:{port}/", process)
        yield port, process.pid
    finally:
        process.terminate()
        process.wait()


def _wait_for(url: str, process: subprocess.Popen) -> None:
    """Wait until somebody answers, be it with an error."""
    for _ in range(200):
        try:
            urlopen(url).close()
        except OSError as error:
            if getattr(error, "code", None):
                return
            if process.poll() is not None:
                raise SystemExit("nginx did not start") from None
            time.sleep(0.02)
        else:
            return
    raise SystemExit("nginx does not answer")
