"""Files of lines: where one ends, and lines that are written there and reach the disk."""

from __future__ import annotations

import fcntl
import hashlib
import os
import socket
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from scrapy_itemgraph.tools import locks

if TYPE_CHECKING:
    from pathlib import Path

_KNOWN_BY = 1 << 12  # bytes before a place, by which its file is known
_TURN_WITHIN = 60.0  # seconds that others have to write some lines


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a file: so many bytes from its beginning, and what it is known by.

    `mark` tells the file from another one of that name: it is a digest of what stands before the
    place, or, where nothing does, of the file's number.
    """

    mark: int | None
    size: int


def name_of(path: Path) -> str:
    """Return the host and the path of a file, by which other hosts know that it is not theirs."""
    return f"{socket.gethostname()}:{path}"


def end_of(path: Path) -> Place:
    """Return where a file ends; one that is not there is made."""
    is_new = not path.exists()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:
        place = _place(file)
    if is_new:
        sync_directory(path)
    return place


def cut(path: Path, place: Place) -> bool:
    """Take off what comes after a place; False if the file is another one, or shorter."""
    if not path.exists():
        return False
    with path.open("r+b") as file:
        if not _has(file, place):
            return False
        file.truncate(place.size)
        return True


def clear(path: Path) -> None:
    """Empty a file, if it is there."""
    if path.exists():
        os.truncate(path, 0)


def append(path: Path, lines: bytes, place: Place) -> tuple[bool, Place | None]:
    """Write lines to the disk if the file ends at `place`; whether it did, and where it ends now.

    Nowhere, if it is another file. After an OSError some of them may be there.
    """
    with path.open("a+b") as file:
        if not locks.lock_within(file.fileno(), fcntl.LOCK_EX, _TURN_WITHIN):  # ends with the file
            raise TimeoutError(f"it has been locked for a minute by {locks.holder(path)}")
        if not _has(file, place):
            return False, None
        found = _place(file)
        if found != place:
            return False, found
        file.write(lines)
        file.flush()
        os.fsync(file.fileno())
        return True, _place(file)


def sync_directory(path: Path) -> None:
    """Have the name of a file on the disk."""
    number = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _place(file: IO[bytes]) -> Place:
    size = file.seek(0, os.SEEK_END)
    return Place(_mark(file, size), size)


def _has(file: IO[bytes], place: Place) -> bool:
    return os.fstat(file.fileno()).st_size >= place.size and _mark(file, place.size) == place.mark


def _mark(file: IO[bytes], size: int) -> int:
    """Return a digest of what stands before a place: enough of it to know the file by."""
    if size == 0:
        before = str(os.fstat(file.fileno()).st_ino).encode()
    else:
        file.seek(max(0, size - _KNOWN_BY))
        before = file.read(min(size, _KNOWN_BY))
    digest = hashlib.blake2b(before, digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
