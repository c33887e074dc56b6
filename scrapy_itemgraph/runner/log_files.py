"""Files of what processes write: one of each job, rotated, compressed, and in all not too many."""

from __future__ import annotations

import fcntl
import gzip
import os
import re
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING, BinaryIO

from scrapy_itemgraph.tools import locks
from scrapy_itemgraph.tools.path_parts import log_folder

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

PART = 50_000_000  # bytes, after which a file is rotated
PARTS = 3  # that are kept of a job, the one that is written among them
TAIL = 64_000  # bytes of the end that are kept in memory, and at last in the database
_OURS = re.compile(r"[0-9]+\.log(\.[0-9]+\.gz)?")  # names that are written here


class JobLog:
    """The log of a job: what its process writes goes to a file, and the end stays in memory.

    Where the file cannot be opened there is the end alone; `error` says why. `lines` is how many
    lines were written and ended. A file that is written has a shared lock, which ends with the
    process: so no runner that shares the folder deletes it, or begins it anew.
    """

    def __init__(self, folder: Path, crawl: str, job: int) -> None:
        self.path = folder / log_folder(crawl) / f"{job}.log"
        self.error: OSError | None = None
        self._clear()
        self._file = self._opened()
        self._size = 0 if self._file is None else self._file.tell()
        self._tail = bytearray()
        self.lines = 0

    @property
    def is_full(self) -> bool:
        """Whether the file is to be rotated before more is written."""
        return self._size >= PART

    @property
    def tail(self) -> str:
        """The end of the output, from the beginning of a line on."""
        end = bytes(self._tail[-TAIL:])
        if self._size > TAIL:
            end = end[end.find(b"\n") + 1 :]
        return end.decode("utf-8", "replace").replace("\0", "\N{REPLACEMENT CHARACTER}")

    def _clear(self) -> None:
        """Delete what another job of this number left: that of a database which is gone, say."""
        for path in (self.path, *map(self._part, range(1, PARTS))):
            if path.is_file() and not _delete(path):
                return

    def _opened(self) -> BinaryIO | None:
        try:
            self.path.parent.mkdir(0o700, parents=True, exist_ok=True)
            file = open(self.path, "a+b", opener=_own)  # noqa: SIM115 - it takes an opener
        except OSError as error:
            self.error = error
            return None
        with suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return file

    def write(self, data: bytes) -> None:
        """Write what a process wrote; where the disk is full, say, `error` is set.

        What cannot be written is dropped; the end of it stays in memory all the same.
        """
        self._size += len(data)
        self.lines += data.count(b"\n")
        self._tail += data
        if len(self._tail) > 2 * TAIL:
            del self._tail[:-TAIL]
        if self._file is None:
            return
        try:
            self._file.write(data)
            self._file.flush()
        except OSError as error:
            self.error = error

    def rotate(self) -> None:
        """Compress what is written, and begin a new file; slow, so it is run in a thread.

        Whoever reads the file goes on to its end, and finds another one at its path.
        """
        with suppress(OSError):
            for number in range(PARTS - 1, 1, -1):
                newer = self._part(number - 1)
                if newer.exists():
                    newer.replace(self._part(number))
            self._compress()
        with suppress(OSError):
            self.path.unlink()
        before, self._file = self._file, self._opened()
        _close(before)
        self._size = TAIL + 1  # so that `tail` still cuts its first line

    def _compress(self) -> None:
        with (
            self.path.open("rb") as plain,
            open(self._part(1), "wb", opener=_own) as part,
            gzip.open(part, "wb", compresslevel=1) as file,
        ):
            shutil.copyfileobj(plain, file)

    def _part(self, number: int) -> Path:
        return self.path.with_suffix(f".log.{number}.gz")

    def close(self) -> None:
        """End the file."""
        _close(self._file)


def _own(path: str, flags: int) -> int:
    """Open a file; a new one is its owner's alone."""
    return os.open(path, flags, 0o600)


def _close(file: BinaryIO | None) -> None:
    with suppress(OSError):
        if file is not None:
            file.close()


def prune(folder: Path, most: int, running: Collection[Path]) -> int:
    """Delete the oldest logs of jobs that have ended until the rest has `most` bytes at most.

    `running` are logs of this process, which are not even looked at. Returns how many files were
    deleted.
    """
    found = []
    for path in folder.glob("*/*.log*"):
        if _OURS.fullmatch(path.name):
            with suppress(OSError):
                stat = path.stat()
                found.append((stat.st_mtime, stat.st_size, path))
    total = sum(size for _, size, _ in found)
    deleted = 0
    for _, size, path in sorted(found):
        if total <= most:
            break
        if path not in running and _delete(path):
            total, deleted = total - size, deleted + 1
    return deleted


def _delete(path: Path) -> bool:
    """Delete a file, unless a process writes it; tell whether it is gone."""
    with suppress(OSError):
        held = locks.lock(path, fcntl.LOCK_EX, create=False)
        try:
            path.unlink()
        finally:
            locks.release(held)
        return True
    return False
