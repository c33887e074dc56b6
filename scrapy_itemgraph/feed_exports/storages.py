"""Local files of feeds: put where they belong when they are whole, or gone on with line by line."""

from __future__ import annotations

import asyncio
import io
import os
import shutil
from typing import IO, TYPE_CHECKING, Any

from scrapy.extensions import feedexport

from scrapy_itemgraph.feed_exports import line_files

if TYPE_CHECKING:
    from pathlib import Path

    from scrapy import Spider


class Lines(io.BytesIO):
    """Lines that wait to be appended to their file."""

    def taken(self) -> bytes:
        """Return what is there, and keep it no longer."""
        lines = self.getvalue()
        self.seek(0)
        self.truncate()
        return lines


class FileFeedStorage(feedexport.FileFeedStorage):
    """Scrapy's, which can be told what to open, and what becomes of it in the end."""

    def __init__(self, uri: str, *, feed_options: dict[str, Any] | None = None) -> None:
        super().__init__(uri, feed_options=feed_options)
        self._file: IO[bytes] | None = None
        self._becomes: Path | None = None

    def gather(self) -> Lines:
        """Have `open` return lines that its caller appends to the file."""
        self._file = lines = Lines()
        return lines

    async def begin_whole(self, path: Path, kept: int) -> None:
        """Have `open` return a file that takes the place of another when it is stored.

        The first `kept` bytes of that other one stand in it already.
        """
        self._becomes = path
        self._file = await asyncio.to_thread(_begun, path, kept)

    async def discard(self) -> None:
        """Give up a file that was begun."""
        if self._becomes is not None and self._file is not None:
            self._file.close()
            await asyncio.to_thread(_part(self._becomes).unlink, missing_ok=True)

    def open(self, spider: Spider) -> IO[bytes]:
        """Return the file to write to."""
        return super().open(spider) if self._file is None else self._file

    def store(self, file: IO[bytes]) -> Any:
        """Close the file; one that was begun whole takes its place once it is on the disk."""
        if self._becomes is not None:
            return asyncio.to_thread(_put, file, self._becomes)
        file.close()
        return None


def _part(path: Path) -> Path:
    return path.with_name(f".{path.name}.part")


def _begun(path: Path, kept: int) -> IO[bytes]:
    path.parent.mkdir(parents=True, exist_ok=True)
    file = _part(path).open("wb")
    if kept:
        with path.open("rb") as before:
            while kept > 0 and (block := before.read(min(kept, 1 << 20))):
                file.write(block)
                kept -= len(block)
    return file


def _put(file: IO[bytes], path: Path) -> None:
    file.flush()
    os.fsync(file.fileno())
    file.close()
    if path.exists():
        shutil.copymode(path, _part(path))
    _part(path).replace(path)
    line_files.sync_directory(path)
