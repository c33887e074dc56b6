"""Delivery of notices by a process that has channels: claimed, sent beside the loop, and noted."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeVar

from scrapy_itemgraph.channels import sending
from scrapy_itemgraph.exceptions import ItemGraphError
from scrapy_itemgraph.model.notices import Arrival
from scrapy_itemgraph.store.registry import duties, notice_watch
from scrapy_itemgraph.store.registry import notices as stored
from scrapy_itemgraph.tools import logs
from scrapy_itemgraph.tools.async_tools import cancelled

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sqlalchemy import Connection

    from scrapy_itemgraph.channels.channel import Channels
    from scrapy_itemgraph.connections.transactions import Transactions
    from scrapy_itemgraph.model.notices import Answer, Notice

logger = logs.logger(__name__)

T = TypeVar("T")

_EVERY = 2.0  # seconds between two looks of one process; of many processes each looks as rarely
_FEW = 4
_WATCH_EVERY = 60.0  # seconds between two looks of one process at what lasts; likewise
_LAST_WITHIN = 10.0  # seconds that the last notices of a process have


class Timing:
    """When a process looks what is due, and what lasts; many look as often as a few."""

    def __init__(self) -> None:
        self.next_at = self.watch_at = 0.0
        self._others = 1.0

    def watches(self, channels: Channels) -> bool:
        """Tell whether it is time to look at what lasts, and put the next look off."""
        if not channels.watch or time.monotonic() < self.watch_at:
            return False
        self.watch_at = time.monotonic() + _WATCH_EVERY * self._others
        return True

    def put_off(self) -> None:
        """Look again after the usual time."""
        self.next_at = time.monotonic() + _EVERY * self._others

    def looked(self, processes: int, *, found: bool) -> None:
        """Note how many processes live; where there was something to send, look again at once."""
        self._others = max(1.0, processes / _FEW)
        self.put_off()
        if found:
            self.next_at = 0.0

    @property
    def pause(self) -> float:
        """In how many seconds to look again."""
        return max(0.0, self.next_at - time.monotonic())


def look(
    connection: Connection, channels: Channels, *, watches: bool, own: int = 0
) -> tuple[list[Notice], int]:
    """Write what lasts, if `watches`, and claim what is due; return it, and how many live.

    `own` is the crawl of a worker.
    """
    if watches:
        notice_watch.watch(connection, channels.watch, channels.project, own)
    found: list[Notice] = []
    if channels:
        found = stored.claim(
            connection,
            channels.project,
            kinds=channels.kinds,
            lease=sending.LEASE,
            limit=sending.AT_ONCE,
        )
    return found, connection.execute(duties.PROCESSES).scalar_one()


def note(
    connection: Connection, notices: Sequence[Notice], answers: Mapping[int, Sequence[Answer]]
) -> list[Notice]:
    """Note what was answered; return the notices that are given up."""
    return [one for one in notices if stored.answered(connection, one, answers[one.id])]


def tell(
    notices: Sequence[Notice],
    answers: Mapping[int, Sequence[Answer]],
    given_up: Sequence[Notice],
) -> None:
    """Log what did not arrive: a warning where it is given up."""
    for one in notices:
        failed = [each for each in answers[one.id] if each.arrival is not Arrival.SENT]
        said = "; ".join(f"{each.channel}: {each.said.strip()[-300:]}" for each in failed)
        if one in given_up:
            logger.warning("A notice is given up (%s): %s", one.text, said, extra=_EXTRA)
        elif failed:
            logger.info("A notice did not arrive, and is tried again (%s): %s", one.text, said)


_EXTRA = {"action": "notice_given_up"}


class NoticeDelivery:
    """Sends notices beside the loop of a process; with nobody to be told it does nothing.

    A worker is of the crawl `own`.
    """

    def __init__(self, transactions: Transactions, channels: Channels, own: int = 0) -> None:
        self._call = transactions.call
        self._channels = channels
        self._own = own
        self._timing = Timing()
        self._task: asyncio.Task[None] | None = None

    @property
    def _is_wanted(self) -> bool:
        return bool(self._channels or self._channels.watch)

    def begin_if_due(self) -> None:
        """Have what is due sent, unless that is under way, or a look is not due."""
        if not self._is_wanted or self._timing.pause:
            return
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._patiently())

    async def _patiently(self) -> None:
        try:
            while await self._deliver():
                pass
        except ItemGraphError as error:  # the database is away; who claims them sends them later
            logger.debug("Notices are put off: %s", error, extra={"action": "notices_put_off"})
        except Exception:  # the crawl, or the runner, must not suffer of it
            logger.exception("Notices are put off")

    async def _deliver(self) -> bool:
        """Send some notices; False: there was none."""
        self._timing.put_off()  # where the database is away, too
        watches = self._timing.watches(self._channels)
        claimed, processes = await self._call(
            partial(look, channels=self._channels, watches=watches, own=self._own)
        )
        self._timing.looked(processes, found=bool(claimed))
        if not claimed:
            return False
        answers = await _in_thread(partial(sending.send, self._channels, claimed))
        tell(claimed, answers, await self._call(note, claimed, answers))
        return True

    async def end(self) -> None:
        """Send what this process wrote at its end, and end, within ten seconds.

        What is not sent by then is sent by others, or by the next process.
        """
        if not self._is_wanted:
            return
        task = asyncio.ensure_future(self._last())
        await asyncio.wait({task}, timeout=_LAST_WITHIN)
        await cancelled([task])

    async def _last(self) -> None:
        if self._task is not None:
            await self._task
        self._timing.watch_at = 0.0
        await self._patiently()


async def _in_thread(function: Callable[[], T]) -> T:
    """Run a function in a thread that nobody waits for as the process ends."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(result: Any, error: BaseException | None) -> None:
        if done.done():  # nobody waits for it any more
            return
        if error is None:
            done.set_result(result)
        else:
            done.set_exception(error)

    def run() -> None:
        result, error = None, None
        try:
            result = function()
        except BaseException as raised:  # noqa: BLE001 - raised where it is awaited
            error = raised
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, result, error)

    Thread(target=run, name="notices", daemon=True).start()
    return await done
