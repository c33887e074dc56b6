"""Locks on files: the kernel frees one when its holders have died."""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_held: set[int] = set()


def lock(path: Path, operation: int, *, create: bool = True) -> int:
    """Lock a file as `flock` does; `release` or the process's death unlocks the descriptor.

    Raises:
        BlockingIOError: others have it, and the operation was not to wait.
        FileNotFoundError: the file, or its directory, is not there to be locked.

    """
    made = os.O_CREAT if create else 0
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | made, 0o600)
    _held.add(descriptor)
    try:
        fcntl.flock(descriptor, operation)
    except BaseException:
        release(descriptor)
        raise
    return descriptor


def release(descriptor: int) -> None:
    """Give a lock up."""
    _held.discard(descriptor)
    os.close(descriptor)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Have a file's lock, waiting for it, during a block."""
    descriptor = lock(path, fcntl.LOCK_EX)
    try:
        yield
    finally:
        release(descriptor)


def is_free(path: Path) -> bool:
    """Tell whether nobody has a file's lock to himself; it must be there."""
    try:
        release(lock(path, fcntl.LOCK_SH | fcntl.LOCK_NB, create=False))
    except BlockingIOError:
        return False
    return True


def _forget_all() -> None:
    """Close what a forked child inherited, which would keep its parent's locks."""
    for descriptor in list(_held):
        release(descriptor)


os.register_at_fork(after_in_child=_forget_all)
