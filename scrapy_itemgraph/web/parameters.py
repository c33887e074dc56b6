"""Parameters that several endpoints take."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

MOST = 1000
_INT64 = 2**63

Limit = Annotated[int, Query(ge=1, le=MOST, description="rows at most")]
AfterNumber = Annotated[
    int, Query(ge=0, lt=_INT64, description="what the page before has as `next`")
]
