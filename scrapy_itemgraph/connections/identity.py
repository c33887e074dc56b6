"""Who this process is in its database: the one place where that stands."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scrapy_itemgraph.store.registry.processes import NewProcess


class Identity:
    """The number under which this process is registered; 0 before it is.

    All that works for the process reads the number here when it needs it. It changes where the
    process was given up for dead, and where its database went back to before it registered.
    """

    def __init__(self) -> None:
        self.id = 0
        self.started_at = datetime.min.replace(tzinfo=UTC)  # by the clock of the database

    def take(self, new: NewProcess, *, instead_of: int | None = None) -> bool:
        """Go on under a new number whose registration is committed; return whether that is so.

        With `instead_of` it is not so where the process has another number than that by now: then
        a recovery has registered it meanwhile, in the database as it is now, and that one counts.
        """
        if instead_of not in {None, self.id}:
            return False
        self.started_at, self.id = new.started_at, new.id
        return True
