"""Turns at the files of an embedded server: each wait has a limit, and says for whom it waits.

Whoever has a turn works with limits of its own, but may be stopped, or wait for a dead disk.
"""

from __future__ import annotations

import fcntl
from contextlib import contextmanager
from typing import TYPE_CHECKING

from scrapy_itemgraph import exceptions
from scrapy_itemgraph.tools import locks, logs, wording

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

logger = logs.logger(__name__)

SAY_AFTER = 10.0  # seconds of waiting
WITHIN = 600.0  # seconds, as long as PostgreSQL's slowest program has


@contextmanager
def turn(path: Path, *, waits: bool = True) -> Iterator[None]:
    """Have a file's lock to oneself during a block.

    Raises:
        EmbeddedServerError: others had it all the time.
        BlockingIOError: others have it, and nobody waits.

    """
    descriptor = locks.opened(path)
    try:
        if waits:
            wait(path, descriptor, fcntl.LOCK_EX)
        else:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        locks.release(descriptor)


def wait(path: Path, descriptor: int, operation: int) -> None:
    """Lock an open file as `flock` does, once its turn comes; it raises as `turn` does."""
    if locks.lock_within(descriptor, operation, SAY_AFTER):
        return
    logger.warning(
        "%s is locked by %s; this process waits for it",
        path,
        locks.holder(path),
        extra={"action": "embedded_waits"},
    )
    if not locks.lock_within(descriptor, operation, WITHIN - SAY_AFTER):
        raise exceptions.EmbeddedServerError(
            f"{path} has been locked for {wording.format_period(WITHIN)}, by "
            f"{locks.holder(path)}. Let that process go on (`kill -CONT`), or end it, then try "
            "again."
        )
