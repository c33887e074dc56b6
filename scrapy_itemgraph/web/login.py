"""Logging in with a browser: a token, once, for a session of its own."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import parse_qs

from fastapi import APIRouter, Query, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse

from scrapy_itemgraph.model import access_tokens
from scrapy_itemgraph.web import cookies
from scrapy_itemgraph.web.access import SESSION, Access
from scrapy_itemgraph.web.pages import links
from scrapy_itemgraph.web.pages.rendering import page
from scrapy_itemgraph.web.pages.routes import PageRoute
from scrapy_itemgraph.web.problems import Problem

KEPT = int(access_tokens.SESSION.total_seconds())
router = APIRouter(include_in_schema=False, route_class=PageRoute)


def _root(request: Request) -> str:
    return str(request.scope.get("root_path", "")).rstrip("/")


def _form(request: Request, then: str, problem: str = "", status: int = 200) -> Response:
    return page(request, "login.html", visitor=None, status=status, problem=problem, then=then)


@router.get("/login", name="login")
def show(request: Request, then: Annotated[str, Query()] = "", again: str = "") -> Response:
    """Show the form, unless the browser is logged in: then it goes where it wanted."""
    target = links.local(then, f"{_root(request)}/")
    access: Access = request.app.state.access
    try:
        access.visitor(request)
    except Problem:
        answer = _form(request, target)
        if request.headers.get("sec-fetch-site") == "cross-site" and not again:
            # By a link on another site: with the next request, which is ours, the cookie is sent.
            query = links.query(again="1", then=target)
            answer.headers["Refresh"] = f"0; url={_root(request)}/login{query}"
        return answer
    return RedirectResponse(target, 303)


@router.post("/login")
async def log_in(request: Request) -> Response:
    """Take a token, and give a cookie; a session that the browser had ends."""
    try:
        given = parse_qs((await request.body()).decode(), max_num_fields=10)
    except ValueError:
        raise Problem(400, "this is no form") from None
    secret = given.get("token", [""])[-1].strip()
    target = links.local(given.get("then", [""])[-1], f"{_root(request)}/")
    access: Access = request.app.state.access
    session = await run_in_threadpool(access.log_in, secret)
    if session is None:
        return _form(request, target, "This token is not known.", 401)
    await run_in_threadpool(_end, request)
    answer = RedirectResponse(target, 303)
    cookies.give(request, answer, SESSION, session, KEPT)
    return answer


@router.post("/logout")
def log_out(request: Request) -> Response:
    """End the session, and take the cookie back."""
    _end(request)
    answer = RedirectResponse(f"{_root(request)}/login", 303)
    cookies.take_back(request, answer, SESSION)
    return answer


def _end(request: Request) -> None:
    access: Access = request.app.state.access
    for session in cookies.values(request, SESSION):
        access.log_out(session)
