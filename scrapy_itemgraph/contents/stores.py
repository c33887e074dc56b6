"""Stores of contents outside the database: a folder, or what fsspec knows by a URL.

A content is under its hash and the number of its row, which no other ever has: nothing that is
written or deleted late meets a content of somebody else. Nothing here is called on an event loop.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote, urlsplit

from scrapy_itemgraph.exceptions import BlobStoreError, ConfigurationError, OperationError
from scrapy_itemgraph.model.blobs import CHUNK, DATABASE, MOST_IN_DATABASE, too_large
from scrapy_itemgraph.tools import url_secrets

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy_itemgraph.model.blobs import Content

_FILE = "file://"
_UPLOAD = 8 * 1024 * 1024  # bytes of a part; of buckets the largest content has 10,000 of them


class ContentStore(Protocol):
    """Where contents are kept; `location` is what their rows call it."""

    location: str

    def write(self, content: Content) -> None:
        """Write a content that was announced; it is there as a whole, or not."""

    def read(self, digest: bytes, number: int, start: int = 0) -> Iterator[bytes]:
        """Yield a content from a byte on, some at a time."""

    def delete(self, digest: bytes, number: int) -> None:
        """Delete a content, or what was written of it; nothing if there is none."""


def opened(url: str) -> ContentStore | None:
    """Return the store at a URL; None for the database.

    Raises:
        ConfigurationError: what it takes is not installed.

    """
    if url == DATABASE:
        return None
    if url.startswith(_FILE):
        return Folder(Path(unquote(urlsplit(url).path)))
    return Remote(url)


def measure(content: Content, *, is_kept: bool) -> None:
    """Find out digest and size of a content; where it `is_kept` a file's bytes as well.

    Raises:
        OperationError: the file cannot be read, or the database is to keep it and it is too large.

    """
    if content.digest:
        return
    if is_kept and content.path is not None:
        content.data = _small(content.path)
    if is_kept and content.data is not None and len(content.data) > MOST_IN_DATABASE:
        raise OperationError(too_large(len(content.data)))
    digest, size = hashlib.sha256(), 0
    for part in parts(content):
        digest.update(part)
        size += len(part)
    content.size, content.digest = size, digest.digest()


def _small(path: Path) -> bytes:
    with _readable(path), path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > MOST_IN_DATABASE:
            raise OperationError(too_large(size))
        return file.read(MOST_IN_DATABASE + 1)


def parts(content: Content) -> Iterator[bytes | memoryview]:
    """Yield a content, a megabyte at a time.

    Raises:
        OperationError: its file cannot be read.

    """
    if content.data is not None:
        view = memoryview(content.data)
        for at in range(0, len(view), CHUNK):
            yield view[at : at + CHUNK]
        return
    assert content.path is not None
    with _readable(content.path):
        file = content.path.open("rb", buffering=0)
    with file:
        while True:
            with _readable(content.path):
                part = file.read(CHUNK)
            if not part:
                return
            yield part


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OperationError(f"content: {path} cannot be read: {error.strerror}") from None


def _unchanged(content: Content) -> Iterator[bytes | memoryview]:
    """Yield a content, and raise an OperationError at the end if its file is not what it was."""
    if content.path is None:
        yield from parts(content)
        return
    digest = hashlib.sha256()
    for part in parts(content):
        digest.update(part)
        yield part
    if digest.digest() != content.digest:
        raise OperationError(
            f"content: {content.path} was changed while it was stored; it has to stay as it is "
            "until the execution is committed"
        )


class Folder:
    """A folder: files are written under another name, brought to the disk, and renamed."""

    def __init__(self, folder: Path) -> None:
        self.location = folder.as_uri()
        self._folder = folder

    def write(self, content: Content) -> None:
        """Write a content."""
        assert content.announced is not None
        target = self._path(content.digest, content.announced)
        part = target.with_name(f"{target.name}.part")
        with self._named("written"):
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                with part.open("wb", buffering=0) as file:
                    for some in _unchanged(content):
                        _write_all(file.fileno(), some)
                    os.fsync(file.fileno())
                part.replace(target)
                _sync_folder(target.parent)
            except BaseException:
                with suppress(OSError):
                    part.unlink()
                raise

    def read(self, digest: bytes, number: int, start: int = 0) -> Iterator[bytes]:
        """Yield a content."""
        with self._named("read"), self._path(digest, number).open("rb", buffering=0) as file:
            file.seek(start)
            while part := file.read(CHUNK):
                yield part

    def delete(self, digest: bytes, number: int) -> None:
        """Delete a content."""
        target = self._path(digest, number)
        with self._named("written"):
            target.with_name(f"{target.name}.part").unlink(missing_ok=True)
            target.unlink(missing_ok=True)
            with suppress(OSError):  # others are in it
                target.parent.rmdir()

    def _path(self, digest: bytes, number: int) -> Path:
        return self._folder.joinpath(*_name(digest, number))

    @contextmanager
    def _named(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise BlobStoreError(
                f"the blob store {self._folder} cannot be {what}: {error.strerror}"
            ) from None


class Remote:
    """A store that fsspec knows; its credentials are its own business, from the environment."""

    def __init__(self, url: str) -> None:
        try:
            fsspec = import_module("fsspec.core")  # an extra
        except ImportError:
            raise ConfigurationError(
                "ITEMGRAPH_BLOBS is a URL, which needs fsspec: "
                'pip install "scrapy-itemgraph[blobs]", and what it says for the protocol'
            ) from None
        self.location = url_secrets.hidden(url)
        try:
            self._files, root = fsspec.url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise ConfigurationError(f"ITEMGRAPH_BLOBS: {error}") from None
        self._root = root.rstrip("/")

    def write(self, content: Content) -> None:
        """Write a content, which nobody reads before its row says that it is whole."""
        assert content.announced is not None
        path = self._path(content.digest, content.announced)
        with self._named("written"):
            if not self._is_flat:
                self._files.makedirs(path.rpartition("/")[0], exist_ok=True)
            with self._files.open(path, "wb", block_size=_UPLOAD) as file:
                for some in _unchanged(content):
                    file.write(bytes(some))

    def read(self, digest: bytes, number: int, start: int = 0) -> Iterator[bytes]:
        """Yield a content; nothing beyond its end is asked for, which some servers refuse."""
        path = self._path(digest, number)
        with (
            self._named("read"),
            self._files.open(path, "rb", block_size=CHUNK, cache_type="readahead") as file,
        ):
            file.seek(start)
            while part := file.read(CHUNK):
                yield part

    def delete(self, digest: bytes, number: int) -> None:
        """Delete a content."""
        with self._named("written"), suppress(FileNotFoundError):
            self._files.rm_file(self._path(digest, number))

    @property
    def _is_flat(self) -> bool:
        """Whether folders need not be made: a bucket would be, for each content."""
        protocol = self._files.protocol
        names = {protocol} if isinstance(protocol, str) else set(protocol)
        return bool(names & {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "oci", "oss"})

    def _path(self, digest: bytes, number: int) -> str:
        return "/".join((self._root, *_name(digest, number)))

    @contextmanager
    def _named(self, what: str) -> Iterator[None]:
        try:
            yield
        except (BlobStoreError, OperationError):
            raise
        except Exception as error:  # each protocol has errors of its own
            said = url_secrets.hidden(str(error) or type(error).__name__)
            raise BlobStoreError(
                f"the blob store {self.location} cannot be {what}: {said}"
            ) from error


def whole(given: Iterator[bytes], digest: bytes, name: str) -> Iterator[bytes]:
    """Yield a content, and raise an error at its end if it is not what was attached."""
    seen = hashlib.sha256()
    for part in given:
        seen.update(part)
        yield part
    if seen.digest() != digest:
        raise BlobStoreError(f"the content of {name!r} is not what was attached: it is damaged")


def _name(digest: bytes, number: int) -> tuple[str, str]:
    hexadecimal = digest.hex()
    return hexadecimal[:2], f"{hexadecimal}-{number}"


def _write_all(descriptor: int, part: Any) -> None:
    view = memoryview(part)
    while view:
        view = view[os.write(descriptor, view) :]


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
