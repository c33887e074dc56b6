"""The database of all runs of a process: an embedded PostgreSQL for tests alone."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from scrapy_itemgraph.postgres.embedded_server import EmbeddedServer

if TYPE_CHECKING:
    from pathlib import Path

    from scrapy_itemgraph.settings import Settings

_lock = threading.Lock()
_servers: dict[Path, EmbeddedServer] = {}


def url(settings: Settings) -> str:
    """Return where the database is; its server runs from the first call to the end of the process.

    It stands beside the project's own, which is not touched, and processes share it.
    """
    own = settings.database.data_dir
    directory = own.with_name(f"{own.name}-testing")
    with _lock:
        if directory not in _servers:
            _servers[directory] = EmbeddedServer.start(directory, settings.database.postgres_bin)
        return _servers[directory].url
