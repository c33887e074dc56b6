"""Makes the package's long description of the README, as an index of packages can show it.

There a link to a file of the repository leads nowhere. A page of the documentation is named as
`scrapy itemgraph docs` takes it, which has the same pages; of other files the text alone stays.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_PICTURE = re.compile(r"!\[[^\]]*\]\((?!\w+:)[^)]*\)\n+")
_LINK = re.compile(r"\[([^\]]+)\]\((?!\w+:)([^)#]*)[^)]*\)")
_PAGE = re.compile(
    r"docs/((?:explanation|howto|reference)/[\w-]+|glossary|index|tutorial)\.md"
)  # what the wheel has


class LongDescription(MetadataHookInterface):
    """Gives the metadata its `readme`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the README as an index shows it."""
        text = published(Path(self.root, "README.md").read_text(encoding="utf-8"))
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


def published(readme: str) -> str:
    """Return the README without links to files of the repository, and without pictures."""
    return _LINK.sub(_named, _PICTURE.sub("", readme))


def _named(link: re.Match[str]) -> str:
    page = _PAGE.fullmatch(link[2])
    return f"{link[1]} (`{page[1]}`)" if page else link[1]
