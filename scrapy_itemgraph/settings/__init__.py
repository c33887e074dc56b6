"""The `ITEMGRAPH_*` settings: in sections of plain values, read once.

It imports `model`, `tools` and `exceptions`. `contents`, `connections`, `graph`, `worker` and all
above import it.
"""

from __future__ import annotations

from scrapy_itemgraph.settings.project import (
    blob_store,
    project_directory,
    read_project,
    warn_of_unknown,
)
from scrapy_itemgraph.settings.sections import NAMES, Settings

__all__ = [
    "NAMES",
    "Settings",
    "blob_store",
    "project_directory",
    "read_project",
    "warn_of_unknown",
]
