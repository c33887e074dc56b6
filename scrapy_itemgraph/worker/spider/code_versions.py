"""The version of a spider's code, for people: whether two processes run the same."""

from __future__ import annotations

import hashlib
import inspect
import os
from contextlib import suppress
from pathlib import Path


def of_spider(spider_class: type) -> str | None:
    """Return the version of its Scrapyd egg, or eight digits of a digest of the spider's file."""
    version = os.environ.get("SCRAPYD_EGG_VERSION")
    if version:
        return version
    with suppress(OSError, TypeError):
        source = Path(inspect.getfile(spider_class)).read_bytes()
        return hashlib.sha256(source).hexdigest()[:8]
    return None
