"""The exception of a callback that wants its page again later."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_itemgraph.model.periods import parse_period

if TYPE_CHECKING:
    from datetime import timedelta

KIND = "try again"
"""The type of its error in the record of the attempt."""


class TryAgain(Exception):  # noqa: N818 - no error: Scrapy's CloseSpider is named so, too
    """The page is not ready: a callback or a request method wants another attempt later.

    It is no failure. Nothing that the attempt yielded is stored, and it does not count as one of
    `max_attempts`. `after` is a timedelta, a number of seconds or text such as "10m"; `reason` is
    logged and stands in the attempt.

    Raises:
        ValueError: `after` is no period above zero.

    """

    def __init__(self, *, after: timedelta | float | str, reason: str = "") -> None:
        super().__init__(reason)
        self.after = parse_period(after, "TryAgain(after=…)")
