"""A crawl whose items go to feeds, and a kill -9 when its last page does not answer."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

from support.projects import kill, until

if TYPE_CHECKING:
    from support.projects import Project
    from support.sites import Site

PAGES = 60


def spider(parts: str = "") -> str:
    """Return a spider of sixty pages, each with an item for each of the parts, or with one."""
    return f"""
class S(scrapy.Spider):
    name = "s"

    def seeds(self):
        for number in range({PAGES}):
            path = "/gate" if number == 30 else f"/page/{{number}}"
            yield seed(f"PAGE:{{number}}", path, number=number)

    @task(tags=["page"])
    def parse(self, response, item):
        for part in {tuple(parts) or ("",)}:
            yield {{"name": f"{{item.data['number']}}{{part}}", "text": 'one "word"\\nand more'}}
"""


def done(project: Project) -> set[str]:
    """Return the numbers of the pages that are done; of another spider the names of its items."""
    rows = project.rows(
        "SELECT i.name FROM results r JOIN items i ON i.id = r.item_id WHERE r.is_successful"
    )
    return {name.removeprefix("PAGE:") for (name,) in rows}


def kill_at_gate(project: Project, site: Site, *arguments: str) -> None:
    """Crawl until one page is left that does not answer, and kill -9."""
    process = project.start("crawl", "s", *arguments)
    assert site.arrived.wait(60), project.log()
    until(lambda: len(done(project)) == PAGES - 1, project.log)
    kill(process)
    site.may_answer.set()


def names_in_csv(text: str) -> list[str]:
    """Return the names in a feed of kind CSV."""
    return [row["name"] for row in csv.DictReader(text.splitlines(keepends=True))]
