"""The spider whose crawl is disturbed, and what its graph must be in the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

GROUPS = 7
SPIDER = """
import time

LIMIT = int(os.environ["PAGES"])


class S(scrapy.Spider):
    name = "s"

    def seeds(self):
        yield seed("PAGE:0", "/page/0", number=0)

    @task(tags=["page"])
    def parse(self, response, item):
        if os.path.exists("block"):
            seconds = float(open("block").read())
            os.rename("block", f"blocked-{os.getpid()}")
            time.sleep(seconds)
        number = item.data["number"]
        for child in (2 * number + 1, 2 * number + 2):
            if child < LIMIT:
                yield seed(f"PAGE:{child}", f"/page/{child}", number=child)
        group = f"GROUP:{number % 7}"
        yield CreateItem(group, tags=["group"], data={})
        key = f"page {number}"
        yield UpdateData(lambda old: {**old, key: old.get(key, 0) + 1}, id=group)
        yield UpdateMetadata({"kind": response.css("title::text").get().split("/")[1]})
        if number % 5 == 4:
            # Which of two comes first must not show, so that graphs can be compared.
            larger = lambda *two: max(two, key=lambda data: data["number"])
            yield RenameItem(to=f"FIVES:{number // 10}", if_taken="merge", merge=larger)

    @task(tags=["page"], depends_on=["parse"], download=False)
    async def digest(self, response, item):
        metadata = await item.get_metadata("parse")
        yield UpdateMetadata({"length": len(metadata["kind"])})
"""
SETTINGS = """
LOG_LEVEL = "INFO"
DOWNLOAD_DELAY = 0.01
CONCURRENT_REQUESTS_PER_DOMAIN = 4
ITEMGRAPH_LEASE = 5
"""


def faults_of(items: Iterable[Any], pages: int) -> list[str]:
    """Return what is wrong with items: pages that are missing, or were committed twice."""
    found = {item.id: item for item in items}
    wrong = []
    for number in range(pages):
        group = found.get(f"GROUP:{number % GROUPS}")
        times = group.data.get(f"page {number}", 0) if group else 0
        if times != 1:
            wrong.append(f"page {number} was committed {times} times")
        name = f"PAGE:{number}"
        if not any(name == one.id or name in one.aliases for one in found.values()):
            wrong.append(f"{name} is missing")
    return wrong
