"""Locks on files: the kernel frees one when its holders have died."""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_PAUSE = 0.02  # seconds between two looks whether a lock is free
_PROC = Path("/proc")

_held: set[int] = set()


def lock(path: Path, operation: int, *, create: bool = True) -> int:
    """Lock a file as `flock` does, at once; `release` or the process's death unlocks it.

    Raises:
        BlockingIOError: others have it.
        FileNotFoundError: the file, or its directory, is not there to be locked.

    """
    descriptor = opened(path, create=create)
    try:
        fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
    except BaseException:
        release(descriptor)
        raise
    return descriptor


def opened(path: Path, *, create: bool = True) -> int:
    """Open a file to be locked; it raises as `lock` does, and is given up by `release`."""
    made = os.O_CREAT if create else 0
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | made, 0o600)
    _held.add(descriptor)
    return descriptor


def lock_within(descriptor: int, operation: int, seconds: float) -> bool:
    """Lock an open file as `flock` does, and wait for it so long; whether it is locked."""
    deadline = time.monotonic() + seconds
    while True:
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
            return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(_PAUSE)


def holder(path: Path) -> str:
    """Say which process has a file's lock, as far as the kernel tells, and if it is stopped."""
    with suppress(OSError, ValueError, IndexError):
        found = path.stat()
        device, inode = found.st_dev, found.st_ino
        file = f"{os.major(device):02x}:{os.minor(device):02x}:{inode}"
        for line in (_PROC / "locks").read_text().splitlines():
            _, kind, _, _, process, where, *_ = line.split()
            if kind == "FLOCK" and where == file:
                stat = (_PROC / process / "stat").read_text().rpartition(")")[2]
                return f"process {process}" + (
                    ", which is stopped" if stat.split()[0] in "tT" else ""
                )
    return "another process"


def release(descriptor: int) -> None:
    """Give a lock up."""
    _held.discard(descriptor)
    os.close(descriptor)


@contextmanager
def locked(path: Path, seconds: float) -> Iterator[None]:
    """Have a file's lock during a block.

    Raises:
        TimeoutError: others had it for so long.

    """
    descriptor = opened(path)
    try:
        if not lock_within(descriptor, fcntl.LOCK_EX, seconds):
            raise TimeoutError(f"{path} has been locked for {seconds:.0f} s by {holder(path)}")
        yield
    finally:
        release(descriptor)


def is_free(path: Path) -> bool:
    """Tell whether nobody has a file's lock to himself; it must be there."""
    try:
        release(lock(path, fcntl.LOCK_SH, create=False))
    except BlockingIOError:
        return False
    return True


def _forget_all() -> None:
    """Close what a forked child inherited, which would keep its parent's locks."""
    for descriptor in list(_held):
        release(descriptor)


os.register_at_fork(after_in_child=_forget_all)
