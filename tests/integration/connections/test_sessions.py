"""The session of a process: what it hears."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from types import SimpleNamespace

import pytest
import sqlalchemy as sa

from scrapy_itemgraph.connections.session import Session

NOTIFY = sa.text("SELECT pg_notify('itemgraph', 'pages')")


class Keeper:
    """Beats when it is told to, and never by the clock; somebody notifies during each beat."""

    interval = 3600.0
    is_due = False

    def __init__(self, engine: sa.Engine) -> None:
        self.engine = engine

    def begin(self, session: Session) -> None:
        """Listen."""
        with session.transaction() as connection:
            session.listen(connection)

    def beat(self, session: Session) -> None:
        """Notify while a transaction of the session is open."""
        with session.transaction() as connection:
            self.notify(connection)

    def notify(self, own: sa.Connection) -> None:
        """Ask something, and have another connection notify meanwhile."""
        with self.engine.begin() as connection:
            connection.execute(NOTIFY)
        own.execute(sa.text("SELECT 1"))

    def is_lost(self) -> None: ...

    def overslept(self, seconds: float) -> None: ...


@pytest.mark.parametrize("when", ["beat", "question"])
def test_news_that_come_with_an_answer_are_heard_at_once(shared_engine, when):
    """A notification that arrives in a heartbeat, or in what the loop asks, waits for no poll."""

    async def heard() -> bool:
        keeper = Keeper(shared_engine)
        watchdog = SimpleNamespace(watch=lambda _: None, forget=lambda _: None)
        session = Session(
            shared_engine.url, keeper, patience=timedelta(seconds=5), watchdog=watchdog
        )
        await session.start()
        news = session.subscribe("pages")
        await news.wait(0.0)
        try:
            if when == "beat":
                session.hurry()
            else:
                await session.run(keeper.notify)
            return await news.wait(60.0)
        finally:
            await session.close()

    assert asyncio.run(heard())


class HurriedKeeper(Keeper):
    """Is hurried once more while it beats for the first time."""

    beats = 0

    def beat(self, session: Session) -> None:
        """Be hurried, once, and tell the loop of the second beat."""
        self.beats += 1
        if self.beats == 1:
            session.hurry()
        else:
            session.tell(session.subscribe("beats").tell)


def test_a_beat_that_is_wanted_during_a_beat_follows_it(shared_engine):
    """`hurry` in the middle of a heartbeat is not forgotten: the next one begins at once."""

    async def beats() -> int:
        keeper = HurriedKeeper(shared_engine)
        watchdog = SimpleNamespace(watch=lambda _: None, forget=lambda _: None)
        session = Session(
            shared_engine.url, keeper, patience=timedelta(seconds=5), watchdog=watchdog
        )
        await session.start()
        news = session.subscribe("beats")
        await news.wait(0.0)
        try:
            session.hurry()
            await news.wait(60.0)
        finally:
            await session.close()
        return keeper.beats

    assert asyncio.run(beats()) == 2
