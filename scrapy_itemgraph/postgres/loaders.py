"""Loaders: moments and periods that PostgreSQL can hold and Python cannot say are clamped.

psycopg raises an error for them while it reads a row, so that one odd row ends whoever reads many.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.adapt import Loader
from psycopg.postgres import types

from scrapy_itemgraph.model.moments import EARLIEST, LATEST

if TYPE_CHECKING:
    from psycopg.abc import AdaptContext, Buffer

# Periods whose days psycopg's loader in C counts wrong, because they do not fit 32 bits.
_LONG = re.compile(rb"\d{5,} years?|\d{9,} days?")


class _ClampingLoader(Loader):
    """Loads by psycopg's own loader; what that cannot say becomes the nearest value there is.

    Each transaction sets the styles of moments and periods. The server reports them to psycopg at
    the first Sync, after the first rows of a pipeline, so that loader gets no connection to ask:
    without one it expects these styles.
    """

    kind: str
    least: Any
    most: Any

    def __init__(self, oid: int, context: AdaptContext | None = None) -> None:
        super().__init__(oid, context)
        own = psycopg.adapters.get_loader(oid, self.format)
        assert own is not None
        self._load = own(oid).load

    def load(self, data: Buffer) -> Any:
        """Return the value of a text of PostgreSQL's."""
        text = bytes(data)
        if self._is_long(text):
            return self._nearest(text)
        try:
            value = self._load(text)
        except (psycopg.DataError, OverflowError):
            return self._nearest(text)
        return min(max(value, self.least), self.most)

    def _nearest(self, text: bytes) -> Any:
        return self.least if text.startswith(b"-") or text.endswith(b"BC") else self.most

    def _is_long(self, _: bytes) -> bool:
        """Whether psycopg would return a wrong value."""
        return False


class MomentLoader(_ClampingLoader):
    """Loads a `timestamptz`."""

    kind = "timestamptz"
    least, most = EARLIEST, LATEST


class PeriodLoader(_ClampingLoader):
    """Loads an `interval`."""

    kind = "interval"
    least, most = timedelta.min, timedelta.max

    def _is_long(self, text: bytes) -> bool:
        return _LONG.search(text) is not None


def register(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    """Have a connection clamp what it reads."""
    for loader in (MomentLoader, PeriodLoader):
        connection.adapters.register_loader(types[loader.kind].oid, loader)
