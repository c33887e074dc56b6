"""The first half of the README, played as a reader would, on a copy of its website."""

from __future__ import annotations

import csv
import re
import shlex
from pathlib import Path

import pytest
from support import sites

README = (Path(__file__).parents[3] / "README.md").read_text().partition("\n## Items and tasks")[0]
SITE = "https://quotes.toscrape.com"
LINE, SPIDER, *_ = re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
(MISTAKE, MENDED), *_ = re.findall(r"^```diff\n-(.*\n)\+(.*\n)^```$", README, re.MULTILINE)
CONSOLE = "".join(re.findall(r"^```console\n(.*?)^```$", README, re.MULTILINE | re.DOTALL))
SAID = [
    (command.partition(" #")[0].strip(), output)
    for command, output in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", CONSOLE, re.MULTILINE)
]
VARYING = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ|\b\d+s\b")  # times, and ages
pytestmark = pytest.mark.tracebacks("KeyError: 'href'")


class Quotes(sites.Site):
    """Ten pages of ten quotes, the last without a next one, and fifty authors."""

    def answer(self, target: str) -> tuple[int, dict[str, str], bytes]:
        """Answer as the website of the README does."""
        if target.startswith("/robots.txt"):
            return 404, {"Content-Type": "text/plain"}, b""
        self.hits[target] += 1
        kind, _, rest = target.strip("/").partition("/")
        if kind == "author":
            body = f'<h3 class="author-title">Author {rest}</h3>'
        else:
            body = self.page(int(rest or 1))
        return 200, {"Content-Type": "text/html"}, body.encode()

    @staticmethod
    def page(number: int) -> str:
        """Return a page of quotes."""
        quotes = "".join(
            f'<div class="quote"><span class="text">{number}.{n}</span><span>by '
            f'<small class="author">A</small> <a href="/author/{(number * 7 + n) % 50}">?</a>'
            "</span></div>"
            for n in range(10)
        )
        following = f'<li class="next"><a href="/page/{number + 1}/">Next</a></li>'
        return quotes + (following if number < 10 else "")


@pytest.fixture
def site():
    """Serve quotes in the place of the tests' own site."""
    with sites.site(Quotes) as one:
        yield one


def plain(text: str) -> str:
    """Return a text with one blank between words, and all times and ages alike."""
    lines = (" ".join(VARYING.sub("TIME", line).split()) for line in text.splitlines())
    return "".join(f"{line}\n" for line in lines)


def pattern(said: str) -> re.Pattern[str]:
    """Return what matches the beginning of a plain output: `...` is any number of lines."""
    return re.compile(r"(?:.*\n)*?".join(map(re.escape, plain(said).split("...\n"))))


def read(path: Path) -> list[str]:
    """Return the texts of a feed."""
    with path.open(newline="") as file:
        return [row["text"] for row in csv.DictReader(file)]


def test_the_first_half_of_the_readme_happens_as_it_says(project, site):
    """Each command prints what stands below it; the mended run fetches one page of sixty."""
    assert SPIDER.count(MISTAKE) == 1
    own = SPIDER.replace(SITE, site.url)
    project.package = "quotes"
    project.write("", LINE + "ROBOTSTXT_OBEY = True\n")
    spiders = project.directory / "quotes" / "spiders"
    (spiders / "s.py").unlink()
    spider = spiders / "quotes.py"
    spider.write_text(own)
    told = [one for one in SAID if one[0].startswith("scrapy") and "startproject" not in one[0]]
    assert len(told) == 11

    for command, said in told:
        before = site.hits.copy()
        if "simulate" in command:  # here the reader has mended the parser
            spider.write_text(own.replace(MISTAKE, MENDED))
        _, *arguments = shlex.split(command.replace(SITE, site.url))
        run = project.scrapy(*arguments)

        assert run.code == 0, (command, run.log)
        output = run.output.replace(site.url, SITE)
        assert pattern(said).match(plain(output)), (command, said, output)
        if "mended.csv" in command:
            assert dict(+(site.hits - before)) == {"/page/10/": 1}

    first = read(project.directory / "quotes.csv")
    mended = read(project.directory / "mended.csv")
    assert len(set(first)) == 140
    assert {text for text in mended if text not in first} == {f"10.{n}" for n in range(10)}
