"""Saved pages, and the responses that are made of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from scrapy import Request
from scrapy.http import HtmlResponse, Response, TextResponse
from w3lib.url import canonicalize_url

from scrapy_itemgraph.exceptions import NotFoundError
from scrapy_itemgraph.worker.simulation import SAVED, saved_response

if TYPE_CHECKING:
    from collections.abc import Mapping

Page: TypeAlias = str | Path | bytes | Response
"""A file, its content, or a whole response."""


class SavedPages:
    """The page of a run's own request, and those of others by their URLs."""

    def __init__(self, own: Page | None, others: Mapping[str, Page] | None) -> None:
        """Take the pages.

        Raises:
            NotFoundError: one of them is no file.

        """
        self._own = None if own is None else _checked(own)
        self._others = {_key(url): _checked(page) for url, page in (others or {}).items()}

    @property
    def has_own(self) -> bool:
        """Whether the own request has a page."""
        return self._own is not None

    @property
    def url(self) -> str | None:
        """The URL that the own page says it is of."""
        return self._own.url if isinstance(self._own, Response) else None

    def has(self, request: Request) -> bool:
        """Tell whether there is a page for a request other than the own one."""
        return _key(request.url) in self._others

    def own_response(self, request: Request) -> Response | None:
        """Return the response of the run's own request."""
        return None if self._own is None else _response(self._own, request)

    def response(self, request: Request) -> Response | None:
        """Return the response of another request, if there is a page for it."""
        page = self._others.get(_key(request.url))
        return None if page is None else _response(page, request)


def _key(url: str) -> str:
    return canonicalize_url(Request(url).url)


def _checked(page: Page) -> Page:
    if isinstance(page, bytes | Response):
        return page
    path = Path(page)
    if not path.is_file():
        raise NotFoundError(
            f"there is no page {str(page)!r} (looked for {path.absolute()}); save one with "
            f"`scrapy fetch --nolog URL > {path.name}`, or give its content as bytes"
        )
    return path


def _response(page: Page, request: Request) -> Response:
    if isinstance(page, Response):
        return page.replace(url=request.url, request=request, flags=[*page.flags, SAVED])
    if isinstance(page, bytes):
        made = saved_response(request, page)
        # Nothing but its content says what it is, and a part of a page begins like any text.
        return made.replace(cls=HtmlResponse) if type(made) is TextResponse else made
    path = Path(page)
    return saved_response(request, path.read_bytes(), path.name)
