"""Debian's manual of PostgreSQL, 80 pages of which are not as the others, and who crawls it.

The spider is an unmodified CrawlSpider that is not ready for 75 of them.
"""

from __future__ import annotations

import os
import pty
import re
import shlex
import sys
import termios
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from support import processes, sites
from support.projects import PACKAGE

if TYPE_CHECKING:
    import subprocess
    from email.message import Message
    from typing import Any

    from support.projects import Project

MANUAL = Path("/usr/share/doc/postgresql-doc-15/html")
CHAPTERS = ("sql-commands", "reference-client", "reference-server")
FLAWS = {"heading": 60, "dash": 15, "missing": 5}
DIGEST = re.compile(r"\b(?:REQ|START):|\b(?=\d*[a-f])[0-9a-f]{16,}\b")
CRAWL = "scrapy crawl manual -s ITEMGRAPH_KEEP_ITEMS=True"
# Of what is fetched again, only what is new and what failed (`docs/howto/existing-project.md`).
CRAWL_NEW = f"{CRAWL} -s ITEMGRAPH_CONTINUE=True"

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


def write(project: Project) -> None:
    """Write the project, with the spider as it is before it is mended."""
    project.package = "manual"
    project.write("", "LOG_LEVEL = 'INFO'", **{"spiders/reference": SPIDER})


def mend(project: Project, wrong: str, right: str) -> None:
    """Mend the spider."""
    spider = project.directory / "manual" / "spiders" / "reference.py"
    text = spider.read_text()
    assert wrong in text
    spider.write_text(text.replace(wrong, right))
