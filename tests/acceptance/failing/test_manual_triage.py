"""Debian's manual of PostgreSQL, crawled by an unmodified CrawlSpider that breaks on 80 pages."""

from __future__ import annotations

import csv
import os
import pty
import re
import shlex
import sys
import termios
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support import logs, processes, sites
from support.projects import PACKAGE

if TYPE_CHECKING:
    import subprocess
    from email.message import Message
    from typing import Any

    from support.projects import Project

MANUAL = Path("/usr/share/doc/postgresql-doc-15/html")
CHAPTERS = ("sql-commands", "reference-client", "reference-server")
FLAWS = {"heading": 60, "dash": 15, "missing": 5}
NOTHING = dict.fromkeys(("done", "waiting", "running", "later", "failed", "gone"), 0)
DIGEST = re.compile(r"\b(?:REQ|START):|\b(?=\d*[a-f])[0-9a-f]{16,}\b")
CRAWL = "scrapy crawl manual -s ITEMGRAPH_KEEP_ITEMS=True"
# Of what is fetched again, only what is new and what failed (`docs/howto/existing-project.md`).
CRAWL_NEW = f"{CRAWL} -s ITEMGRAPH_DEFAULT_TTL=never"

SPIDER = """
import os

from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule


class ManualSpider(CrawlSpider):
    name = "manual"
    start_urls = [os.environ["SITE"] + "/reference.html"]
    rules = [
        Rule(LinkExtractor(allow=r"/(sql-commands|reference-\\w+)\\.html", restrict_css=".toc")),
        Rule(LinkExtractor(restrict_css=".toc"), callback="parse_command"),
    ]

    def parse_command(self, response):
        name, purpose = response.css(".refnamediv p").xpath("string()").get().split(" — ", 1)
        synopsis = response.xpath("//h2[.='Synopsis']/following-sibling::*")[0]
        yield {
            "name": name,
            "purpose": purpose,
            "synopsis": synopsis.xpath("string()").get().strip(),
            "url": response.url,
        }
"""
# How the spider is mended: what stands in it, and what should.
MENDED_HEADING = ("//h2[.='Synopsis']/", "//h2[.='Synopsis' or .='Usage']/")
MENDED_DASH = ('.split(" — ", 1)', '.replace(": ", " — ", 1).split(" — ", 1)')

pytestmark = [
    pytest.mark.docs_crawl,
    pytest.mark.skipif(
        not (MANUAL / "reference.html").exists(),
        reason="Debian's postgresql-doc-15 is not installed; .ci/run does it",
    ),
    pytest.mark.tracebacks("IndexError: list index", "ValueError: not enough values to unpack"),
]


class Reference(sites.Site):
    """The reference pages of the manual, of which 80 are not as the others."""

    is_restored = False

    def __init__(self, port: int = 0, host: str = "127.0.0.1") -> None:
        super().__init__(port, host)
        contents = (MANUAL / "reference.html").read_text()
        _, _, toc = contents.partition('class="toc"')
        links = sorted(set(re.findall(r'href="([\w-]+\.html)"', toc.partition("navfooter")[0])))
        self.commands = [f"/{link}" for link in links if link[:-5] not in CHAPTERS]
        kinds = [kind for kind, number in FLAWS.items() for _ in range(number)]
        # They lie all over the manual: 77 and 216, the number of pages, have no common divisor.
        self.flaws = {
            self.commands[index * 77 % len(self.commands)]: kind for index, kind in enumerate(kinds)
        }

    def failing(self, *kinds: str) -> set[str]:
        """Return the paths of the pages with these flaws."""
        return {path for path, kind in self.flaws.items() if kind in kinds}

    def respond(
        self, method: str, target: str, headers: Message, body: bytes
    ) -> tuple[int, dict[str, Any], bytes]:
        with self._lock:
            self.hits[target] += 1
        flaw = self.flaws.get(target, "")
        if not (MANUAL / target[1:]).is_file() or (flaw == "missing" and not self.is_restored):
            return 404, {"Content-Type": "text/html"}, b"<h1>Not Found</h1>"
        text = (MANUAL / target[1:]).read_text()
        if flaw == "heading":
            text = text.replace("<h2>Synopsis</h2>", "<h2>Usage</h2>")
        if flaw == "dash":
            text = text.replace(" — ", ": ")
        return 200, {"Content-Type": "text/html; charset=utf-8"}, text.encode()


@dataclass
class Terminal:
    """A terminal in a project's directory, and what was ever on its screen."""

    project: Project
    screens: list[str] = field(default_factory=list)

    def type(self, line: str) -> str:
        """Run a command as a person types it; return what it shows once it ended well."""
        program, *arguments = shlex.split(line)
        assert program == "scrapy"
        process, screen = self._start(arguments)
        shown = _read(screen).replace("\r\n", "\n")
        self.screens.append(shown)
        assert process.wait() == 0, f"{line}\n{shown}"
        return shown

    def _start(self, arguments: list[str]) -> tuple[subprocess.Popen, int]:
        shown, screen = pty.openpty()
        termios.tcsetwinsize(screen, (24, 100))
        environment = os.environ | {
            "SITE": self.project.site_url,
            "PYTHONPATH": str(PACKAGE),
            "NO_COLOR": "1",
            "TERM": "xterm",
        }
        environment.pop("COLUMNS", None)
        process = processes.Popen(
            [sys.executable, "-m", "scrapy", *arguments],
            cwd=self.project.directory,
            env=environment,
            stdin=screen,
            stdout=screen,
            stderr=screen,
        )
        os.close(screen)
        self.project.started.append(process)
        return process, shown


def _read(screen: int) -> str:
    """Read a screen until nobody writes to it any more."""
    read = b""
    with os.fdopen(screen, "rb", buffering=0) as reader:
        try:
            while chunk := reader.read(65536):
                read += chunk
        except OSError:  # so Linux says that the other end is closed
            pass
    return read.decode()


def command(shown: str, start: str) -> str:
    """Return the command that a screen shows first and that begins so, as it stands there."""
    return re.search(rf"scrapy itemgraph {start} \S+(?: https?:\S+)?", shown)[0]


def progress(shown: str) -> dict[str, int]:
    """Return the numbers that `status` shows of a run, all but the share, by their names."""
    line = re.search(r"^progress +(.+)$", shown, re.MULTILINE)[1]
    known = re.sub(r"of [\d,]+ done \(\d+%\):", "done,", line)
    return {name: int(number) for number, name in re.findall(r"(\d+) ([a-z ]+)", known)}


def mend(project: Project, wrong: str, right: str) -> None:
    """Mend the spider."""
    spider = project.directory / "manual" / "spiders" / "reference.py"
    text = spider.read_text()
    assert wrong in text
    spider.write_text(text.replace(wrong, right))


@pytest.fixture(scope="module")
def site_kind() -> type[sites.Site]:
    """Return the manual's reference pages as the site."""
    return Reference


@pytest.fixture
def terminal(project) -> Terminal:
    """Return a terminal in a project whose spider is not ready for 75 of the pages."""
    project.package = "manual"
    project.write("", "LOG_LEVEL = 'INFO'", **{"spiders/reference": SPIDER})
    return Terminal(project)


def test_a_manual_is_triaged_on_the_terminal_alone(project, site, terminal):
    """80 pages fail in three ways: they are found, mended and fetched again, and no page besides.

    Commands work as they are shown, and no page is called by anything but its URL.
    """
    type_ = terminal.type

    # What is wrong?
    logs.take(type_(CRAWL))
    assert (site.hits.total(), len(site.hits)) == (220, 220)
    failed = type_("scrapy itemgraph status")
    listed = type_("scrapy itemgraph failures")
    groups = type_("scrapy itemgraph failures --groups --sort count")
    assert progress(failed) == {**NOTHING, "done": 140, "failed": 80}
    assert re.search(r"^parse_command +136 .* 80 ", failed, re.MULTILINE)
    assert len(re.findall(r"^ *\d+ .* parse_command .*\.html$", listed, re.MULTILINE)) == 80
    found = re.findall(r"^ *(\d+) +(\d+) .* parse_command +(\w+)", groups, re.MULTILINE)
    group = {kind: int(number) for number, _, kind in found}
    counts = {kind: int(count) for _, count, kind in found}
    assert counts == {"IndexError": 60, "ValueError": 15, "http": 5}

    # The headings: most of what failed, seen in one example, mended, and run again together.
    one = type_(command(groups, "failures"))
    url = re.search(r"^page +(\S+)$", one, re.MULTILINE)[1]
    explained = type_(f"scrapy itemgraph explain {url}")
    assert url.removeprefix(site.url) in site.failing("heading")
    assert "in parse_command\n      synopsis = response.xpath(" in one
    assert f"\n  scrapy itemgraph handle {group['IndexError']}\n" in one
    assert command(explained, "handle") == f"scrapy itemgraph handle {group['IndexError']}"
    assert command(one, "handle --group") == command(groups, "handle --group")
    mend(project, *MENDED_HEADING)
    before = site.hits.copy()
    tried = type_(command(one, "simulate"))
    assert f"\nparse_command of {url}: ok\n" in tried
    assert "nothing was changed: this was a simulation" in tried
    assert site.hits - before == Counter([url.removeprefix(site.url)])
    assert "60 handled" in type_(command(one, "handle --group"))
    before = site.hits.copy()
    type_(CRAWL_NEW)
    assert site.hits - before == Counter(["/reference.html", *site.failing("heading")])

    # The rest: a page by the command that is shown, the others by their errors.
    one = type_(f"scrapy itemgraph failures {group['ValueError']}")
    assert "in parse_command\n      name, purpose = response.css(" in one
    mend(project, *MENDED_DASH)
    site.is_restored = True
    assert "1 handled" in type_(command(one, "handle"))
    assert "14 handled" in type_("scrapy itemgraph handle --error 'not enough values'")
    assert "5 handled" in type_("scrapy itemgraph handle --error 'http 404'")
    before = site.hits.copy()
    type_(CRAWL_NEW)
    assert site.hits - before == Counter(["/reference.html", *site.failing("dash", "missing")])

    # Nothing is left, and the data is whole.
    mended = type_("scrapy itemgraph status")
    assert "no failure is open" in type_("scrapy itemgraph failures")
    assert progress(mended) == {**NOTHING, "done": 21, "done by earlier runs": 199}
    assert "216 items to manual.csv" in type_("scrapy itemgraph export -O manual.csv")
    with (project.directory / "manual.csv").open(newline="") as file:
        urls = [row["url"] for row in csv.DictReader(file)]
    assert sorted(urls) == [site.url + path for path in site.commands]
    assert not DIGEST.search("".join(terminal.screens))
