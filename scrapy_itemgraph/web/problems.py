"""Errors as problem documents (RFC 9457), with the same sentence as the command line's."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse

from scrapy_itemgraph import exceptions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fastapi import FastAPI, Request

PROBLEM = "application/problem+json"
# The first that fits.
STATUSES: dict[type[exceptions.ItemGraphError], HTTPStatus] = {
    exceptions.NotFoundError: HTTPStatus.NOT_FOUND,
    exceptions.ItemNotFoundError: HTTPStatus.NOT_FOUND,
    exceptions.NameTakenError: HTTPStatus.CONFLICT,
    exceptions.OperationError: HTTPStatus.UNPROCESSABLE_ENTITY,
    exceptions.DatabaseError: HTTPStatus.SERVICE_UNAVAILABLE,
}


class Problem(Exception):  # noqa: N818 - the name that RFC 9457 gives it
    """A refusal, with its status and a sentence that says why and what to do."""

    def __init__(self, status: int, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status = HTTPStatus(status)
        self.detail = detail
        self.headers = dict(headers or {})


def answer(problem: Problem, **more: Any) -> JSONResponse:
    """Return the answer that says what is wrong."""
    document = {
        "type": "about:blank",
        "title": problem.status.phrase,
        "status": int(problem.status),
        "detail": problem.detail,
        **more,
    }
    return JSONResponse(
        document, status_code=problem.status, headers=problem.headers, media_type=PROBLEM
    )


def of_error(error: exceptions.ItemGraphError) -> Problem:
    """Return the problem that an error of this package is."""
    status = next(
        (status for kind, status in STATUSES.items() if isinstance(error, kind)),
        HTTPStatus.UNPROCESSABLE_ENTITY,
    )
    headers = {"Retry-After": "5"} if status is HTTPStatus.SERVICE_UNAVAILABLE else {}
    return Problem(status, str(error), headers)


def handle(app: FastAPI) -> None:
    """Have an application answer with problem documents."""

    async def refused(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, Problem)
        return answer(error)

    async def failed(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, exceptions.ItemGraphError)
        return answer(of_error(error))

    app.add_exception_handler(Problem, refused)
    app.add_exception_handler(exceptions.ItemGraphError, failed)
