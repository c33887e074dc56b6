"""A process that has no file descriptor left: its downloads fail, and no page is to blame."""

from __future__ import annotations

import errno
import os
import time
from typing import TYPE_CHECKING

from scrapy.exceptions import IgnoreRequest
from scrapy.spidermiddlewares.httperror import HttpError

from scrapy_itemgraph.tools import logs

if TYPE_CHECKING:
    from collections.abc import Iterator

logger = logs.logger(__name__)

REST = 2.0  # seconds in which no download starts, after one that got no descriptor
_SAID_EVERY = 60.0  # seconds
_NONE_LEFT = {errno.EMFILE, errno.ENFILE}


class Descriptors:
    """Tells whether a download failed because this process could open no socket or file."""

    def __init__(self) -> None:
        self._said_at: float | None = None

    def are_used_up(self, error: BaseException) -> bool:
        """Tell whether that is why a download failed, and say it once a minute.

        Resolvers do not say why they found no address, so the process looks itself, too.
        """
        if isinstance(error, HttpError | IgnoreRequest):
            return False
        if not (any(_number(one) in _NONE_LEFT for one in _causes(error)) or _are_none_left()):
            return False
        now = time.monotonic()
        if self._said_at is None or now - self._said_at >= _SAID_EVERY:
            self._said_at = now
            logger.warning(
                "This process has no file descriptor left, so nothing can be downloaded; the work "
                "is given back and no page has failed. Raise the limit (`ulimit -n`), or lower "
                "CONCURRENT_REQUESTS",
                extra={"action": "no_descriptors"},
            )
        return True


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Go through an error, what it came of, and what Twisted has packed into it."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        waiting += [one.__cause__, one.__context__]
        reasons = getattr(one, "reasons", None)  # Failures
        if isinstance(reasons, list):
            waiting += [getattr(reason, "value", None) for reason in reasons]


def _number(error: BaseException) -> int | None:
    """Return an error's number as the system has it; Twisted keeps it as `osError`."""
    number = error.errno if isinstance(error, OSError) else getattr(error, "osError", None)
    return number if isinstance(number, int) else None


def _are_none_left() -> bool:
    try:
        os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return error.errno in _NONE_LEFT
    return False
