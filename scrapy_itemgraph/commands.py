"""The command line: `scrapy itemgraph COMMAND`."""

from __future__ import annotations

from scrapy.commands import ScrapyCommand


class ItemGraphCommand(ScrapyCommand):
    """Placeholder until the real one lands within the hour."""

    def short_desc(self) -> str:
        """Say what it is."""
        return "Look into and change the item graph"

    def run(self, args: list[str], opts: object) -> None:
        """Do nothing yet."""
