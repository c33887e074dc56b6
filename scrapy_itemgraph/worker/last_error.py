"""The last error that a worker's process logged, kept for people who look at its workers."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scrapy_itemgraph.tools.hiding import hidden
from scrapy_itemgraph.tools.wording import one_line
from scrapy_itemgraph.worker.executions.error_records import type_name

if TYPE_CHECKING:
    from scrapy import Spider

    from scrapy_itemgraph.model.tallies import Tallies

MOST = 1000  # characters that are kept


class LastError(logging.Handler):
    """Notes each record of level ERROR and above in the tallies, whoever logs it; the last stays.

    What another spider of the process logs about itself is left out.
    """

    def __init__(self, spider: Spider, tallies: Tallies) -> None:
        super().__init__(logging.ERROR)
        self._spider = spider
        self._tallies = tallies

    def begin(self) -> None:
        """Hear what is logged from now on."""
        logging.getLogger().addHandler(self)

    def end(self) -> None:
        """Hear nothing any more."""
        logging.getLogger().removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Note a record: its message, and the error that it is about, in one line."""
        if getattr(record, "spider", self._spider) is not self._spider:
            return
        try:
            said = record.getMessage()
            if record.exc_info and record.exc_info[1] is not None:
                said = f"{said}: {type_name(record.exc_info[1])}: {record.exc_info[1]}"
        except Exception:  # noqa: BLE001 - of a message, or an error, that cannot be written
            return
        self._tallies.error = one_line(hidden(said))[:MOST]
