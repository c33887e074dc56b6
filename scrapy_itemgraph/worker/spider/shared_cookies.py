"""Cookies and `spider.state`: what of them is saved, and taken over from other processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from scrapy import Request

    from scrapy_itemgraph.graph import WorkerGraph
    from scrapy_itemgraph.model.cookies import Cookie
    from scrapy_itemgraph.worker.spider.cookies import Jars, State


@dataclass(slots=True, eq=False, repr=False)
class SessionSync:
    """Keeps the cookie jars and the state of this process as the graph has them."""

    graph: WorkerGraph
    jars: Jars
    state: State

    def unsaved(
        self, *, is_last: bool = False
    ) -> tuple[Sequence[Cookie], Mapping[str, str | None]]:
        """Return the cookies and the state that a commit has to save; they stay so until `saved`.

        Only with `is_last` a large state is sure to be looked at.
        """
        return self.jars.unsaved(), self.state.changed(is_last=is_last)

    def saved(self, cookies: Sequence[Cookie], state: Mapping[str, str | None]) -> None:
        """Take note that a commit saved these."""
        self.jars.saved(cookies)
        self.state.saved(state)

    async def save(self) -> None:
        """Save cookies and state that no commit has saved yet."""
        cookies, state = self.unsaved(is_last=True)
        if cookies or state:
            await self.graph.commits.commit([], cookies=cookies, state=state)
            self.saved(cookies, state)

    def save_again(self) -> None:
        """Have all saved and read again: the database lacks what was saved."""
        self.jars.save_again()
        self.state.save_again()
        self.graph.sessions.forget_state()

    async def refresh_cookies(self, requests: Iterable[Request]) -> None:
        """Take over what other processes have saved of the cookies that requests may send."""
        if not self.graph.claims.has_cookies:
            return
        read = self.jars.wanted(requests)
        if read.pairs:
            found, read_at = await self.graph.sessions.load_cookies(read.pairs)
            self.jars.merge(read, found, read_at)

    async def refresh_state(self) -> None:
        """Take over the state that other processes have saved."""
        read = self.state.reading()
        self.state.merge(read, await self.graph.sessions.load_state())
