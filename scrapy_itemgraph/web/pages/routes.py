"""How a page answers: errors as pages, and who has to log in is sent there."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import parse_qs

from fastapi import Depends, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.responses import RedirectResponse

from scrapy_itemgraph.exceptions import (
    DatabaseError,
    ItemGraphError,
    MissingRightError,
    OperationError,
)
from scrapy_itemgraph.web import problems
from scrapy_itemgraph.web.pages import links, messages
from scrapy_itemgraph.web.pages.rendering import page
from scrapy_itemgraph.web.raw_paths import path_below_root

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from starlette.responses import Response

_MOST_OF_FORM = 256 * 1024  # bytes


class PageRoute(APIRoute):
    """A route whose refusals are pages."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of requests."""
        handle = super().get_route_handler()

        async def handled(request: Request) -> Response:
            try:
                return await handle(request)
            except ItemGraphError as error:
                return _of_error(request, error)
            except problems.Problem as problem:
                return refusal(request, problem)
            except RequestValidationError:
                wrong = problems.Problem(400, "the address lacks something, or has it twice")
                return refusal(request, wrong)

        return handled


def _of_error(request: Request, error: ItemGraphError) -> Response:
    crawl = request.path_params.get("crawl")
    is_answered = isinstance(error, OperationError | MissingRightError)
    if request.method == "POST" and is_answered:
        # Back to where the button was; two people may have pressed it.
        back = back_to(request, links.of_crawl(crawl) if crawl else "/")
        return messages.say(request, back, str(error), kind="bad")
    away = isinstance(error, DatabaseError) and not isinstance(error, MissingRightError)
    return refusal(request, problems.of_error(error), away=away)


def wants_page(request: Request) -> bool:
    """Tell whether a browser looks for a page, and no program for a document."""
    path = path_below_root(request.scope)
    return "text/html" in request.headers.get("accept", "") and not path.startswith("/api/")


def refused(request: Request, problem: problems.Problem) -> Response:
    """Return what is wrong: as a page to a browser that looks for one, else as a document."""
    return refusal(request, problem) if wants_page(request) else problems.answer(problem)


def refusal(request: Request, problem: problems.Problem, *, away: bool = False) -> Response:
    """Return the page that says what is wrong; to whoever has to log in, the form."""
    root = request.scope.get("root_path", "").rstrip("/")
    if problem.status is HTTPStatus.UNAUTHORIZED:
        query = f"?{request.url.query}" if request.url.query else ""
        here = request.scope["path"] + query if request.method == "GET" else f"{root}/"
        return RedirectResponse(f"{root}/login{links.query(then=here)}", status_code=303)
    return page(
        request,
        "error.html",
        visitor=None,
        near_crawl=request.path_params.get("crawl") if problem.did_you_mean else None,
        status=problem.status,
        headers=problem.headers,
        problem=problem,
        away=away,
    )


class Form:
    """The fields of a form, as texts; one that is missing is empty."""

    def __init__(self, fields: dict[str, list[str]]) -> None:
        self._fields = fields

    def __getitem__(self, name: str) -> str:
        return self._fields.get(name, [""])[-1].strip()

    def all(self, name: str) -> list[str]:
        """Return all values of a field, such as those of boxes that are ticked."""
        return [one.strip() for one in self._fields.get(name, []) if one.strip()]

    def exact(self, name: str) -> str:
        """Return a field with the spaces around it, for names may have them."""
        return self._fields.get(name, [""])[-1]


async def _form(request: Request) -> Form:
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MOST_OF_FORM:
            raise problems.Problem(413, "the form is too large")
    try:
        found = Form(parse_qs(body.decode("utf-8"), keep_blank_values=True, max_num_fields=200))
    except ValueError:
        raise problems.Problem(400, "this is no form") from None
    request.state.form = found
    return found


Fields = Annotated[Form, Depends(_form)]
# An id or an alias, in a query: there slashes, and 8 kB of it, are safe.
ItemName = Annotated[str, Query(alias="id")]


def back_to(request: Request, default: str) -> str:
    """Return the page that a form says it stands on, if it is one of ours."""
    form: Form | None = getattr(request.state, "form", None)
    root = request.scope.get("root_path", "").rstrip("/")
    return links.local(form["back"] if form else "", root + default)
