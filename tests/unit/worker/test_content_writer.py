"""The content writer, alone: what waits for a store, what does not, and in which order."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from uuid import uuid4

import pytest

from scrapy_itemgraph.exceptions import BlobStoreError, OperationError
from scrapy_itemgraph.model.blobs import Content
from scrapy_itemgraph.model.operations import AddTag, AttachBlob, Changeset
from scrapy_itemgraph.model.work import Outcome
from scrapy_itemgraph.worker import content_writer
from scrapy_itemgraph.worker.content_writer import ContentWriter
from scrapy_itemgraph.worker.executions.outbox import Entry, Outbox


class Contents:
    """A store that refuses some contents, and can be slow."""

    def __init__(self) -> None:
        self.refused: set[bytes] = set()
        self.wrong: set[bytes] = set()
        self.slow: dict[bytes, asyncio.Event] = {}
        self.stored: list[bytes] = []

    async def measure(self, contents):
        if any(one.data in self.wrong for one in contents):
            raise OperationError("it cannot be read")

    async def store(self, contents):
        error = None
        for one in contents:
            if one.number is not None:
                continue
            if one.data in self.slow:
                await self.slow[one.data].wait()
            if one.data in self.refused:
                error = BlobStoreError("the store is away")
            else:
                self.stored.append(one.data)
                one.number = len(self.stored)
        if error is not None:
            raise error


class Setup:
    """A writer with its outbox."""

    def __init__(self, patience: float = 60.0) -> None:
        self.contents = Contents()
        self.outbox = Outbox(100)
        self.errors: list[str] = []
        self.writer = ContentWriter(
            SimpleNamespace(contents=self.contents),
            self.outbox,
            SimpleNamespace(under_way=()),
            self.start_task,
            patience,
        )

    def start_task(self, duty) -> asyncio.Task[None]:
        """Start a coroutine, and keep the error that would end the crawl."""

        async def guarded() -> None:
            try:
                await duty
            except BlobStoreError as error:
                self.errors.append(str(error))

        return asyncio.ensure_future(guarded())

    def put(self, *data: bytes, claimed: bool = True) -> None:
        """Put a changeset that attaches these."""
        attached = tuple(AttachBlob(repr(one), Content(data=one), id="A") for one in data)
        changeset = Changeset(
            operations=attached or (AddTag("a", id="A"),),
            outcome=Outcome.OK,
            claim=SimpleNamespace(token=uuid4()) if claimed else None,
            attached=attached,
        )
        execution = SimpleNamespace() if claimed else None
        self.outbox.put(Entry(changeset, repr(data), execution), is_last=False)

    async def settle(self) -> list[tuple[str, Outcome]]:
        """Let the writer do what it can; return what may be committed, with its outcome."""
        running = asyncio.ensure_future(self.writer.run())
        for _ in range(50):
            await asyncio.sleep(0)
        running.cancel()
        self.taken = self.outbox.take()
        return [(one.where, one.changeset.outcome) for one in self.taken]


def test_what_a_store_refuses_waits_alone():
    """Others of the same group, and those without contents, are committed at once."""

    async def run() -> None:
        setup = Setup()
        setup.contents.refused = {b"7"}
        for data in (b"6", b"7", b"8"):
            setup.put(data)
        setup.put()
        done = await setup.settle()
        assert sorted(where for where, _ in done) == ["()", "(b'6',)", "(b'8',)"]
        assert setup.outbox.pending == 3 + 1  # three are taken, one waits

        setup.outbox.settle(back=[])
        setup.contents.refused = set()
        await setup.writer.finish()
        assert [one.where for one in setup.outbox.take()] == ["(b'7',)"]

    asyncio.run(run())


def test_work_that_the_store_refuses_at_the_end_is_given_back():
    """When the crawl closes, nothing waits for a store that is away; it was never started."""

    async def run() -> None:
        setup = Setup()
        setup.contents.refused = {b"7"}
        setup.put(b"7")
        await setup.writer.finish()
        (entry,) = setup.outbox.take()
        assert (entry.changeset.outcome, entry.changeset.operations) == (Outcome.RELEASED, ())

    asyncio.run(run())


def test_a_content_that_cannot_be_had_fails_its_work_alone():
    """The error is that of the operation; what came with it is committed."""

    async def run() -> None:
        setup = Setup()
        setup.contents.wrong = {b"2"}
        setup.put(b"1")
        setup.put(b"2")
        done = dict(await setup.settle())
        assert done == {"(b'1',)": Outcome.OK, "(b'2',)": Outcome.FAILED}

    asyncio.run(run())


def test_a_slow_content_holds_up_no_other_group():
    """While one is written, what comes later is stored and committed."""

    async def run() -> None:
        setup = Setup()
        setup.contents.slow = {b"1": asyncio.Event()}
        setup.put(b"1")
        await setup.settle()
        setup.put(b"2")
        assert [where for where, _ in await setup.settle()] == ["(b'2',)"]
        setup.contents.slow[b"1"].set()
        assert [where for where, _ in await setup.settle()] == ["(b'1',)"]

    asyncio.run(run())


def test_what_belongs_to_no_execution_keeps_its_order():
    """An operation of `start()` is not committed before one that was yielded before it."""

    async def run() -> None:
        setup = Setup()
        setup.contents.slow = {b"1": asyncio.Event()}
        setup.put(b"1", claimed=False)
        setup.put(claimed=False)
        setup.put()
        assert [where for where, _ in await setup.settle()] == ["()"]
        assert setup.outbox.pending == 3
        setup.contents.slow[b"1"].set()
        assert [where for where, _ in await setup.settle()] == ["(b'1',)", "()"]

    asyncio.run(run())


def test_beyond_the_patience_work_is_tried_again_later():
    """It is no failure: the pair has another attempt, after a delay."""

    async def run() -> None:
        setup = Setup(patience=0.0)
        setup.contents.refused = {b"1"}
        setup.put(b"1")
        assert await setup.settle() == [("(b'1',)", Outcome.RETRY)]

    asyncio.run(run())


def test_beyond_the_patience_what_belongs_to_no_execution_ends_the_crawl():
    """Nothing would try it again: an error says so, and neither it nor what it held up is left."""

    async def run() -> None:
        setup = Setup(patience=0.0)
        setup.contents.refused = {b"1"}
        setup.put(b"1", claimed=False)
        setup.put(claimed=False)
        await setup.settle()

        assert setup.errors == [
            "(b'1',): the store is away. It was waited for 0s (ITEMGRAPH_PATIENCE)"
        ]
        assert [one.changeset.operations for one in setup.taken] == [(), ()]

    asyncio.run(run())


def test_whoever_needs_the_store_at_once_waits_for_it(monkeypatch):
    """It is tried again while it is away; beyond the patience an error says how long that was."""
    monkeypatch.setattr(content_writer, "_FIRST_PAUSE", 0.0)
    tries = []

    async def away() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise BlobStoreError("the store is away")
        return "stored"

    async def gone() -> str:
        raise BlobStoreError("the store is away")

    async def run() -> None:
        assert await Setup().writer.patiently(away) == "stored"
        with pytest.raises(BlobStoreError, match=r"is away\. It was waited for"):
            await Setup(patience=0.0).writer.patiently(gone)

    asyncio.run(run())
    assert len(tries) == 3
