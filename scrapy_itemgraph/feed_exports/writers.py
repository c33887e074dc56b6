"""Writers: what brings one feed from the journal to where it goes, while this worker writes it.

Lines are appended, synced, and marked as written with the size that the file has then; whoever
writes on cuts the file to that size first. What cannot be gone on with is made whole from the
journal, put where it belongs, and marked then.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from scrapy.extensions import feedexport

from scrapy_itemgraph.feed_exports import line_files, scraped
from scrapy_itemgraph.feed_exports.exporter import adopt, has_lines, mended
from scrapy_itemgraph.feed_exports.line_files import Place
from scrapy_itemgraph.feed_exports.storages import FileFeedStorage, Lines
from scrapy_itemgraph.feed_exports.torn_lines import Mended
from scrapy_itemgraph.tools import logs
from scrapy_itemgraph.tools.url_secrets import without_login

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scrapy.extensions.feedexport import FeedSlot

    from scrapy_itemgraph.graph.worker_feed_exports import WorkerFeeds
    from scrapy_itemgraph.model.feed_exports import FeedItem, FeedState

logger = logs.logger(__name__)

_STEP = 100


class Exporter(Protocol):
    """What a writer asks of the exporter."""

    def uri(self, template: str, batch: int) -> str:
        """Return the URI of a batch."""

    def new_slot(self, template: str, batch: int, uri: str, options: dict[str, Any]) -> FeedSlot:
        """Return a slot for a batch."""

    async def close_slot(self, slot: FeedSlot) -> bool:
        """Store what a slot has; whether that could be done."""


def goes_on(slot: FeedSlot) -> bool:
    """Tell whether a feed is written line by line, and another process can go on with it."""
    kinds = (FileFeedStorage, feedexport.StdoutFeedStorage)
    return isinstance(slot.storage, kinds) and has_lines(slot)


class Writer(ABC):
    """Writes one feed."""

    def __init__(
        self, exporter: Exporter, graph: WorkerFeeds, feed_id: int, slot: FeedSlot
    ) -> None:
        self.id = feed_id
        self.has_failed = False
        self.is_broken = False
        self._exporter = exporter
        self._graph = graph
        self._template = slot.uri_template
        self._options = slot.feed_options
        self._size: int = self._options["batch_item_count"]
        self._uris = {1: slot.uri}
        self._appends = _appends(slot)
        self._state: FeedState | None = None

    async def lead(self) -> bool:
        """Become the one that writes the feed, if nobody does; whether we are."""
        if self._state is None:
            self._state = await self._graph.lead(self.id)
        return self._state is not None

    def lose(self) -> None:
        """Write no more, for another one may."""
        self._state = None

    @abstractmethod
    async def step(self) -> bool:
        """Write some of what is there; whether there may be more."""

    @abstractmethod
    async def finish(self) -> None:
        """Write the rest, for this process ends."""

    @property
    def state(self) -> FeedState:
        """How far the feed has come; there while we lead."""
        assert self._state is not None
        return self._state

    async def _advance(
        self, state: FeedState, written: Sequence[int] = (), *, whole: bool = False
    ) -> None:
        self._state = state
        if not await self._graph.advance(state, written, whole=whole):
            self.lose()

    def _is_elsewhere(self, path: Path) -> bool:
        """Tell whether the feed is in a file of another host, or of another folder, until now."""
        return self.state.file not in {None, line_files.name_of(path)}

    def _say_moved(self, path: Path) -> None:
        logger.warning(
            "The feed %s was written to %s until now; %s",
            without_login(self._template),
            self.state.file,
            "batches that are full stay there, and this process goes on with the next one"
            if self._size
            else f"all of this run is written to {path} now, and that file is left as it is",
            extra={"action": "feed_moved"},
        )

    def _new_slot(self, batch: int, uri: str) -> FeedSlot:
        return self._exporter.new_slot(self._template, batch, uri, self._options)

    def _uri(self, batch: int) -> str:
        """Return the URI of a batch, the same whenever it is asked for."""
        if batch not in self._uris:
            self._uris = {batch: self._exporter.uri(self._template, batch)}
        return self._uris[batch]

    def _export(self, slot: FeedSlot, row: FeedItem) -> bool:
        """Give an item to the exporter, if the feed wants it; whether it was exported."""
        try:
            item = scraped.item_of(row.item_class, row.fields)
            if not _accepts(slot, row.item_class, item):
                return False
        except Exception:  # a filter of the user's
            logger.exception(
                "%s: an item of %s is left out", without_login(slot.uri), row.item_class
            )
            return False
        slot.start_exporting()
        assert slot.exporter is not None
        try:
            slot.exporter.export_item(item)
        except OSError:
            raise
        except Exception:  # a serializer of the user's
            logger.exception(
                "%s: an item of %s is left out", without_login(slot.uri), row.item_class
            )
            return False
        slot.itemcount += 1
        return True

    def _say(self, error: OSError) -> None:
        if not self.has_failed:
            self.has_failed = True
            logger.error(
                "The feed %s cannot be written: %s. Its items are kept; this crawl tries again, "
                "and so does the next start",
                without_login(self._uri(self.state.batch)),
                error,
                extra={"action": "feed_failed"},
            )


class LineWriter(Writer):
    """Writes a feed of lines, to a local file or to standard output."""

    _slot: FeedSlot | None = None
    _path: Path | None = None

    def lose(self) -> None:
        """Write no more, for another one may."""
        super().lose()
        self._slot = None

    async def step(self) -> bool:
        """Append some of what is there; whether there may be more."""
        rows = await self._graph.read(self.id, limit=_STEP)
        if not rows:
            return False
        try:
            if self._slot is None:  # what is to be written may be another thing then
                await self._open()
                return self._state is not None
            slot = self._slot
            written = []
            for row in rows:
                written.append(row.journal_id)
                self._export(slot, row)
                if self._is_full(slot):
                    break
            if not await self._append(slot):
                self._slot = None
                return True
        except OSError as error:
            self._say(error)
            self._slot = None
            return False
        self.has_failed = False
        state = replace(self.state, count=slot.itemcount)
        if self._is_full(slot):
            state = replace(state, uri=None, batch=state.batch + 1, count=0, size=None, mark=None)
            self._slot = None
        await self._advance(state, written)
        if self._slot is None and self._state is not None:
            await self._exporter.close_slot(slot)
        return self._state is not None

    async def finish(self) -> None:
        """Close the file; an empty one is made where Scrapy would."""
        try:
            is_begun = self.state.batch > 1 or self.state.uri is not None
            if self._slot is None and not is_begun and self._options["store_empty"]:
                await self._open()
            if self._slot is not None:
                self._slot.start_exporting()
                await self._exporter.close_slot(self._slot)
                self._slot = None
        except OSError as error:
            self._say(error)

    def _is_full(self, slot: FeedSlot) -> bool:
        return bool(self._size) and slot.itemcount >= self._size

    async def _open(self) -> FeedSlot:
        """Go on with the file, or begin one."""
        state = self.state
        is_of_other_uri = state.uri != without_login(self._uri(state.batch))
        if state.size is not None and is_of_other_uri and _is_on_this_host(state):
            assert state.uri is not None
            place = Place(state.mark, state.size)
            path = _path_of(state.uri)
            if path is not None:
                await asyncio.to_thread(line_files.cut, path, place)
            batch = state.batch + 1 if state.count else state.batch
            state = replace(state, uri=None, batch=batch, count=0, size=None, mark=None)
        slot = self._new_slot(state.batch, self._uri(state.batch))
        slot.itemcount = state.count
        self._path = _regular(slot)
        if self._path is not None:
            state = await self._prepared(slot, self._path, state)
        self._slot = slot
        await self._advance(replace(state, uri=without_login(slot.uri)))
        return slot

    async def _prepared(self, slot: FeedSlot, path: Path, state: FeedState) -> FeedState:
        """Have the file end where it is gone on with, and the exporter gather lines for it."""
        overwrites = bool(slot.feed_options.get("overwrite"))
        rewrites = overwrites and not self._size
        found = Mended()
        file = line_files.name_of(path)
        if state.size is not None:
            place = Place(state.mark, state.size)
            is_elsewhere = self._is_elsewhere(path)
            # Of an empty file nothing but its number is known, which another host's may have.
            is_cut = (state.size > 0 or not is_elsewhere) and await asyncio.to_thread(
                line_files.cut, path, place
            )
            if is_cut and is_elsewhere:
                state = _under(state, file)
            elif is_elsewhere:
                state = await self._moved(path, state)
                slot.itemcount = 0
            elif not is_cut:
                logger.warning(
                    "%s is not as it was left; %s",
                    path,
                    "what this run has scraped is written to it again"
                    if rewrites
                    else "the feed goes on at its end (scrapy itemgraph export writes all that is "
                    "kept)",
                    extra={"action": "feed_changed"},
                )
                if rewrites:
                    await self._graph.mark_run(self.id)
                state = replace(state, size=None, count=0)
                slot.itemcount = 0
        if state.size is None and overwrites:
            await asyncio.to_thread(line_files.clear, path)
        else:
            found = await asyncio.to_thread(mended, slot, path)
        place = await asyncio.to_thread(line_files.end_of, path)
        adopt(slot, path, found)
        assert isinstance(slot.storage, FileFeedStorage)
        slot.storage.gather()
        begins = state.begins if self._size else {file: (place.size, place.mark), **state.begins}
        return replace(state, size=place.size, mark=place.mark, file=file, begins=begins)

    async def _moved(self, path: Path, state: FeedState) -> FeedState:
        """Have all of the run written to a file here, after what it had before the run."""
        self._say_moved(path)
        begin = state.begins.get(line_files.name_of(path))
        if begin is not None:
            size, mark = begin
            await asyncio.to_thread(line_files.cut, path, Place(mark, size))
        if not self._size:
            await self._graph.mark_run(self.id)
        return replace(state, size=None, mark=None, count=0)

    async def _append(self, slot: FeedSlot) -> bool:
        """Have what was exported on the disk; False if somebody has put another file there."""
        if slot.file is None:
            return True
        if self._path is None:
            await asyncio.to_thread(slot.file.flush)
            return True
        assert isinstance(slot.file, Lines)
        lines = slot.file.taken()
        while lines:
            known = Place(self.state.mark, self.state.size or 0)
            is_done, place = await asyncio.to_thread(line_files.append, self._path, lines, known)
            if place is None:
                return False
            # Where others append, too, it is known before we write what a crash leaves as ours.
            self._state = replace(self.state, size=place.size, mark=place.mark)
            if is_done:
                break
            await self._advance(self.state)
            if self._state is None:
                return False
        return True


class WholeWriter(Writer):
    """Writes a feed that is one piece: of another format, post-processed, or stored elsewhere."""

    async def step(self) -> bool:
        """Store a batch that is full; whether there may be more."""
        if not self._size or self.has_failed:
            return False
        if await self._graph.count(self.id, self._size) < self._size:
            return False
        return await self._write(is_full=True)

    async def finish(self) -> None:
        """Store what there is."""
        is_begun = self.state.batch > 1 or self.state.uri is not None
        wants_empty = self._options["store_empty"] and not is_begun and not self._has_before()
        if wants_empty or await self._graph.count(self.id, 1):
            await self._write(is_full=False)

    def _has_before(self) -> bool:
        """Tell whether something is there that an empty document would only spoil."""
        if self._options.get("overwrite"):
            return False
        path = _regular(self._new_slot(1, self._uri(1)))
        return path is not None and path.exists() and path.stat().st_size > 0

    async def _write(self, *, is_full: bool) -> bool:
        try:
            return await self._written(is_full=is_full)
        except OSError as error:
            self._say(error)
            return False

    async def _written(self, *, is_full: bool) -> bool:
        """Make the feed from the journal, store it, and mark what is in it."""
        state = self.state
        uri = self._uri(state.batch)
        is_retry = state.uri is not None and not state.count and without_login(uri) == uri
        if is_retry and state.uri is not None:
            uri = state.uri  # a process has died as it stored just this
        is_same = state.uri == without_login(uri) and not self._size and not self._appends
        slot = self._new_slot(state.batch, uri)
        path = _regular(slot)
        if path is not None and isinstance(slot.storage, FileFeedStorage):
            is_known = is_same or is_retry
            state, is_moved = await asyncio.to_thread(self._based, slot, path, state, is_known)
            is_same |= is_moved and not self._size
            await slot.storage.begin_whole(path, state.size or 0)
        await self._advance(
            replace(state, uri=without_login(uri), count=state.count if is_same else 0)
        )
        if self._state is None:
            return False
        written, others = await self._export_all(slot, with_written=is_same)
        if is_full and slot.itemcount < self._size:
            if isinstance(slot.storage, FileFeedStorage):
                await slot.storage.discard()
            await self._advance(self.state, others, whole=True)
            return False
        if not await self._exporter.close_slot(slot):
            self.has_failed = True
            logger.error(
                "The feed %s was not stored. Its items are kept; it is tried again at the end, and "
                "by the next start",
                without_login(uri),
                extra={"action": "feed_failed"},
            )
            return False
        self.has_failed = False
        state = replace(self.state, count=slot.itemcount)
        if path is not None and path.exists():
            place = await asyncio.to_thread(line_files.end_of, path)
            state = replace(state, mark=place.mark)
        if self._size:
            state = replace(state, uri=None, batch=state.batch + 1, count=0, size=None)
        await self._advance(state, written, whole=True)
        return self._state is not None

    def _based(
        self, slot: FeedSlot, path: Path, state: FeedState, is_known: bool
    ) -> tuple[FeedState, bool]:
        """Return the state with what the file keeps, and whether the feed was elsewhere till now.

        `is_known` tells that the state has the size of what this file keeps.
        """
        file = line_files.name_of(path)
        is_moved = False
        if self._is_elsewhere(path):
            end = line_files.end_of(path) if path.exists() else None
            is_moved = end is None or end.mark != state.mark
            if is_moved:
                self._say_moved(path)
                state = replace(state, size=None)
            else:
                state = _under(state, file)
        if state.size is None or not (is_known or is_moved):
            overwrites = bool(slot.feed_options.get("overwrite"))
            size = 0 if overwrites or not path.exists() else path.stat().st_size
            begins = state.begins if self._size else {file: (size, None), **state.begins}
            state = replace(state, size=begins.get(file, (size,))[0], begins=begins)
        return replace(state, file=file), is_moved

    async def _export_all(
        self, slot: FeedSlot, *, with_written: bool
    ) -> tuple[list[int], list[int]]:
        """Give what is kept to the exporter, up to a full batch.

        Return what of it was not written before, and of that what is not for this feed.
        """
        after, written, others = 0, [], []
        while rows := await self._graph.read(
            self.id, after_id=after, limit=_STEP, with_written=with_written
        ):
            for row in rows:
                after = row.journal_id
                is_for_us = self._export(slot, row)
                if not row.is_written:
                    written.append(after)
                    others += [] if is_for_us else [after]
                if self._size and slot.itemcount >= self._size:
                    return written, others
        return written, others


def _regular(slot: FeedSlot) -> Path | None:
    """Return the file of a local feed; None for a pipe, a device, or another kind of storage."""
    if not isinstance(slot.storage, FileFeedStorage):
        return None
    return _path_of(slot.storage.path)


def _path_of(uri: str) -> Path | None:
    path = Path(feedexport.FileFeedStorage(uri).path).resolve()
    return path if path.is_file() or not path.exists() else None


def _under(state: FeedState, file: str) -> FeedState:
    """Return the state of a feed whose file is known by another name: a folder of several hosts."""
    begin = state.begins.get(state.file or "")
    known = {} if begin is None else {file: begin}
    return replace(state, file=file, begins={**state.begins, **known})


def _is_on_this_host(state: FeedState) -> bool:
    return state.file is None or state.file.startswith(line_files.name_of(Path("/")))


def _appends(slot: FeedSlot) -> bool:
    """Tell whether what is stored comes after what was stored there before, out of our sight."""
    scheme = slot.uri.partition("://")[0]
    if isinstance(slot.storage, FileFeedStorage):
        return _regular(slot) is None
    return scheme == "stdout" or (
        scheme not in {"s3", "gs"} and slot.feed_options.get("overwrite") is False
    )


def _accepts(slot: FeedSlot, item_class: str, item: Any) -> bool:
    """Tell whether the feed's filter wants an item."""
    chosen = slot.filter
    if type(chosen).accepts is not feedexport.ItemFilter.accepts or not chosen.item_classes:
        return bool(chosen.accepts(item))
    cls = scraped.class_of(item_class)
    if cls is None:
        raise LookupError(f"no module that is loaded has the class {item_class}")
    return issubclass(cls, chosen.item_classes)
