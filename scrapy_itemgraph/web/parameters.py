"""Parameters that several endpoints take, and what any may refuse."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path, Query

from scrapy_itemgraph.web.problems import PROBLEM

MOST = 1000
_INT64 = 2**63
_DAY = 24 * 60

Limit = Annotated[int, Query(ge=1, le=MOST, description="rows at most")]
After = Annotated[str, Query(description="what the page before has as `next`")]
Period = Annotated[int, Query(ge=1, le=_DAY, description="minutes up to now")]
AfterNumber = Annotated[
    int, Query(ge=0, lt=_INT64, description="what the page before has as `next`")
]
OfTask = Annotated[str | None, Query(min_length=1, description="of this task alone")]
OfTag = Annotated[str | None, Query(min_length=1, description="that have this tag")]
PathText = Annotated[str, Path(min_length=1)]

_REFUSALS = {
    400: "The request is no HTTP that makes sense: text that is no UTF-8, a body that is no JSON",
    401: "No token, or one that is not known",
    403: "The token, or the server's role in the database, may not do that; or another site asks",
    404: "There is no such crawl, item, task or failure",
    409: "A name is taken",
    413: "The body is too large",
    415: "The body is not declared as JSON",
    421: "The server is not known by this name",
    422: "A value is none, or an operation cannot be carried out",
    431: "The line and headers have more than 64 kB",
    503: "The database is away; it is asked again with the next request",
}
REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {
        "description": description,
        "content": {PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
    for status, description in _REFUSALS.items()
}
