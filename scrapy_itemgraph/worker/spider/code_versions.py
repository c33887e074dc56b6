"""The version of a spider's code, for people: whether two processes run the same."""

from __future__ import annotations

import inspect
import os
from pathlib import Path

from scrapy_itemgraph.tools import code_files


def of_spider(spider_class: type) -> str | None:
    """Return the version of its Scrapyd egg, or eight digits of a digest of the spider's file."""
    path = file_of(spider_class)
    return os.environ.get("SCRAPYD_EGG_VERSION") or (
        None if path is None else code_files.digest(path)
    )


def file_of(spider_class: type) -> str | None:
    """Return the path of the spider's file; None of an egg, and where there is none."""
    if os.environ.get("SCRAPYD_EGG_VERSION"):
        return None
    try:
        return str(Path(inspect.getfile(spider_class)).absolute())
    except (OSError, TypeError):
        return None
