"""The event loop of all runs of a process, in a thread of its own.

Twisted's reactor cannot be started twice, so it runs for as long as the process does.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from scrapy.utils.reactor import install_reactor, is_asyncio_reactor_installed, is_reactor_installed
from twisted.python import threadable

from scrapy_itemgraph.exceptions import ConfigurationError, ItemGraphError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from scrapy.settings import BaseSettings

T = TypeVar("T")

_REACTOR = "twisted.internet.asyncioreactor.AsyncioSelectorReactor"
_TO_END = 15.0  # seconds that a run has to end after it was told to
_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None


def run(coroutine: Callable[[], Coroutine[Any, Any, T]], settings: BaseSettings, limit: float) -> T:
    """Run what a function returns to its end, on the loop, and return what that returns.

    `settings` say whether there is to be a reactor, and which loop. `limit` is how many seconds it
    has given itself; an ItemGraphError says that it keeps the loop from turning for longer.
    """
    loop = _running(settings)
    future = asyncio.run_coroutine_threadsafe(coroutine(), loop)
    try:
        return future.result(limit + _TO_END)
    except concurrent.futures.TimeoutError:
        if future.done():
            raise
        future.cancel()
        raise ItemGraphError(
            f"the run has kept the event loop from turning for more than {limit:g} seconds; a "
            "callback that blocks, or does not end? No other run can be started in this process"
        ) from None
    except BaseException:  # Ctrl-C
        future.cancel()
        raise


def _running(settings: BaseSettings) -> asyncio.AbstractEventLoop:
    """Return the loop, which is started once."""
    global _loop  # noqa: PLW0603 - there is one reactor in a process
    with _lock:
        if _loop is None:
            _loop = _started(settings)
        return _loop


def _started(settings: BaseSettings) -> asyncio.AbstractEventLoop:
    found: concurrent.futures.Future[asyncio.AbstractEventLoop] = concurrent.futures.Future()
    if not is_reactor_installed() and not settings.getbool("TWISTED_REACTOR_ENABLED", True):
        _in_thread(found, _run_loop)
    elif not is_reactor_installed() or not _is_reactor_running():
        _in_thread(found, partial(_run_reactor, settings["ASYNCIO_EVENT_LOOP"]))
    else:
        _reactor().callFromThread(_tell, found)
    return found.result()


def _is_reactor_running() -> bool:
    """Tell whether somebody else runs the reactor.

    Raises:
        ConfigurationError: it cannot be used.

    """
    if not is_asyncio_reactor_installed():
        raise ConfigurationError(
            f"something has installed the reactor {type(_reactor()).__name__} in this process, and "
            "Scrapy on asyncio cannot run beside it; of pytest-twisted that is the default: run "
            "`pytest -p no:twisted`, or `pytest --reactor=asyncio`"
        )
    is_running: bool = _reactor().running
    if is_running and _is_in_reactor():
        raise ConfigurationError(
            "Twisted's reactor runs in this thread, which a run would keep from turning; call it "
            "from another one: `ran = await asyncio.to_thread(run_task, …)`"
        )
    return is_running


def _is_in_reactor() -> bool:
    io_thread: Any = threadable
    return bool(io_thread.isInIOThread())


def _reactor() -> Any:
    from twisted.internet import reactor  # noqa: PLC0415 - importing it installs one

    return reactor


def _in_thread(
    found: concurrent.futures.Future[asyncio.AbstractEventLoop], run_loop: Callable[[Any], None]
) -> None:
    def main() -> None:
        try:
            run_loop(found)
        except BaseException as error:
            if found.done():
                raise
            found.set_exception(error)

    threading.Thread(target=main, name="itemgraph-testing", daemon=True).start()


def _run_loop(found: concurrent.futures.Future[asyncio.AbstractEventLoop]) -> None:
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    loop.call_soon(_tell, found)
    loop.run_forever()


def _run_reactor(
    event_loop: str | None, found: concurrent.futures.Future[asyncio.AbstractEventLoop]
) -> None:
    if not is_reactor_installed():
        install_reactor(_REACTOR, event_loop)
    reactor = _reactor()
    # The process is not to wait at its end for threads that wait for work.
    reactor.getThreadPool().threadFactory = partial(threading.Thread, daemon=True)
    reactor.callFromThread(_tell, found)
    reactor.run(installSignalHandlers=False)


def _tell(found: concurrent.futures.Future[asyncio.AbstractEventLoop]) -> None:
    found.set_result(asyncio.get_running_loop())
