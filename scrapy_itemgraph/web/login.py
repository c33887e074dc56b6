"""Logging in with a browser: a token, once, for a cookie."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import parse_qs

from fastapi import APIRouter, Query, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse

from scrapy_itemgraph.web.access import COOKIE, Access
from scrapy_itemgraph.web.pages import links
from scrapy_itemgraph.web.pages.rendering import page
from scrapy_itemgraph.web.pages.routes import PageRoute
from scrapy_itemgraph.web.problems import Problem

KEPT = 30 * 24 * 3600  # seconds that a browser keeps the cookie
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
    """Take a token, and give a cookie."""
    try:
        given = parse_qs((await request.body()).decode(), max_num_fields=10)
    except ValueError:
        raise Problem(400, "this is no form") from None
    secret = given.get("token", [""])[-1].strip()
    target = links.local(given.get("then", [""])[-1], f"{_root(request)}/")
    access: Access = request.app.state.access
    if await run_in_threadpool(access.of_secret, secret) is None:
        return _form(request, target, "This token is not known.", 401)
    answer = RedirectResponse(target, 303)
    answer.set_cookie(
        COOKIE,
        secret,
        max_age=KEPT,
        path=_root(request) or "/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )
    return answer


@router.post("/logout")
def log_out(request: Request) -> Response:
    """Take the cookie back."""
    answer = RedirectResponse(f"{_root(request)}/login", 303)
    answer.delete_cookie(COOKIE, path=_root(request) or "/", httponly=True, samesite="strict")
    return answer
