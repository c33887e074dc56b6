"""Cookies and `spider.state`: what of them is saved, and taken over from other processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from scrapy import Request

    from scrapy_itemgraph.graph import WorkerGraph
    from scrapy_itemgraph.model.cookies import Cookie
    from scrapy_itemgraph.worker.spider.cookies import Jars, State


class SessionSync:
    """Keeps the cookie jars and the state of this process as the graph has them."""

    def __init__(self, graph: WorkerGraph, jars: Jars, state: State) -> None:
        self._graph = graph
        self._jars = jars
        self._state = state

    def unsaved(
        self, *, is_last: bool = False
    ) -> tuple[Sequence[Cookie], Mapping[str, str | None]]:
        """Return the cookies and the state that a commit has to save; they stay so until `saved`.

        Only with `is_last` a large state is sure to be looked at.
        """
        return self._jars.unsaved(), self._state.changed(is_last=is_last)

    def saved(self, cookies: Sequence[Cookie], state: Mapping[str, str | None]) -> None:
        """Take note that a commit saved these."""
        self._jars.saved(cookies)
        self._state.saved(state)

    async def save(self) -> None:
        """Save cookies and state that no commit has saved yet."""
        cookies, state = self.unsaved(is_last=True)
        if cookies or state:
            await self._graph.commit([], cookies=cookies, state=state)
            self.saved(cookies, state)

    async def refresh_cookies(self, requests: Iterable[Request]) -> None:
        """Take over what other processes have saved of the cookies that requests may send."""
        if not self._graph.has_cookies:
            return
        read = self._jars.wanted(requests)
        if read.pairs:
            found, read_at = await self._graph.sessions.load_cookies(read.pairs)
            self._jars.merge(read, found, read_at)

    async def refresh_state(self) -> None:
        """Take over the state that other processes have saved."""
        read = self._state.reading()
        self._state.merge(read, await self._graph.sessions.load_state())
