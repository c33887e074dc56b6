"""Errors as problem documents (RFC 9457), with the same sentence as the command line's."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from scrapy_itemgraph import exceptions
from scrapy_itemgraph.tools import logs
from scrapy_itemgraph.web.documents import written

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fastapi import FastAPI, Request
    from starlette.types import Scope

logger = logs.logger(__name__)

PROBLEM = "application/problem+json"
# The first that fits; what is none of these is about what was sent.
STATUSES: dict[type[exceptions.ItemGraphError], HTTPStatus] = {
    exceptions.NotFoundError: HTTPStatus.NOT_FOUND,
    exceptions.ItemNotFoundError: HTTPStatus.NOT_FOUND,
    exceptions.NameTakenError: HTTPStatus.CONFLICT,
    exceptions.MissingRightError: HTTPStatus.FORBIDDEN,
    exceptions.DatabaseError: HTTPStatus.SERVICE_UNAVAILABLE,
    exceptions.BlobStoreError: HTTPStatus.SERVICE_UNAVAILABLE,
}
_JSON = re.compile(r"application/([\w.-]+\+)?json")
RETRY_AFTER = {"Retry-After": "5"}  # seconds


class Problem(Exception):  # noqa: N818 - the name that RFC 9457 gives it
    """A refusal, with its status and a sentence that says why and what to do."""

    def __init__(
        self,
        status: int,
        detail: str,
        headers: Mapping[str, str] | None = None,
        errors: list[dict[str, Any]] | None = None,
        did_you_mean: Sequence[str] = (),
    ) -> None:
        super().__init__(detail)
        self.status = HTTPStatus(status)
        self.detail = detail
        self.headers = dict(headers or {})
        self.errors = errors or []
        self.did_you_mean = list(did_you_mean)


def answer(problem: Problem) -> Response:
    """Return the answer that says what is wrong."""
    document: dict[str, Any] = {
        "type": "about:blank",
        "title": problem.status.phrase,
        "status": int(problem.status),
        "detail": problem.detail,
    }
    if problem.errors:
        document["errors"] = problem.errors
    if problem.did_you_mean:
        document["did_you_mean"] = problem.did_you_mean
    return Response(written(document), problem.status, problem.headers, PROBLEM)


def before_body(answer: Response, scope: Scope) -> Response:
    """Return an answer that is given before the body is read: it is the connection's last one."""
    if scope["http_version"].startswith("1"):
        answer.headers["Connection"] = "close"
    return answer


def of_error(error: exceptions.ItemGraphError) -> Problem:
    """Return the problem that an error of this package is."""
    status = next(
        (status for kind, status in STATUSES.items() if isinstance(error, kind)),
        HTTPStatus.UNPROCESSABLE_ENTITY,
    )
    is_away = status is HTTPStatus.SERVICE_UNAVAILABLE
    near = error.did_you_mean if isinstance(error, exceptions.NotFoundError) else ()
    headers = RETRY_AFTER if is_away else {}
    return Problem(status, str(error), headers, did_you_mean=near)


def handle(app: FastAPI) -> None:
    """Have an application answer with problem documents."""

    async def refused(_: Request, error: Exception) -> Response:
        assert isinstance(error, Problem)
        return answer(error)

    async def failed(_: Request, error: Exception) -> Response:
        assert isinstance(error, exceptions.ItemGraphError)
        return answer(of_error(error))

    async def unknown(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return answer(of_http(request, error))

    async def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        declared = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if isinstance(error.body, bytes) and not _JSON.fullmatch(declared):
            return answer(Problem(415, "send JSON, with the header content-type: application/json"))
        return answer(of_validation(error))

    async def broken(_: Request, error: Exception) -> Response:
        logger.error("An answer failed", exc_info=error)
        return answer(Problem(500, "an error of the server; its log says more"))

    app.add_exception_handler(Problem, refused)
    app.add_exception_handler(exceptions.ItemGraphError, failed)
    app.add_exception_handler(HTTPException, unknown)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(Exception, broken)


def of_http(request: Request, error: HTTPException) -> Problem:
    """Return the problem of a path that leads nowhere, or that has no such method."""
    detail = str(error.detail)
    if error.status_code == HTTPStatus.NOT_FOUND:
        detail = f"there is nothing at {request.url.path[:200]}; /api/v1/openapi.json lists it"
    return Problem(error.status_code, detail, error.headers)


def of_validation(error: RequestValidationError) -> Problem:
    """Return what is said of values that do not fit: where each is, and why; not what it was."""
    errors = [
        {"at": ".".join(map(str, one["loc"])), "why": str(one["msg"])} for one in error.errors()
    ]
    first = f"{errors[0]['at']}: {errors[0]['why']}" if errors else "a value does not fit"
    is_json = all(one["type"] != "json_invalid" for one in error.errors())
    status = HTTPStatus.UNPROCESSABLE_ENTITY if is_json else HTTPStatus.BAD_REQUEST
    return Problem(status, first, errors=errors[:20])
