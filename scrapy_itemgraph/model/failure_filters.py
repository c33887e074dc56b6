"""Which failures are meant: by number, task, group, type, text and time, all of them together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

from scrapy_itemgraph.exceptions import OperationError
from scrapy_itemgraph.model import input_checks

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime
    from uuid import UUID

HANDLED_BY = "a person"
"""Who handled a failure that was handled by a command, over HTTP or in the cockpit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureFilter:
    """Which failures of a crawl are meant; what is None leaves all.

    `failures` are numbers, `group` is a fingerprint, `type` an error's type exactly. `text` is part
    of "TYPE: MESSAGE", in capitals or not.
    """

    failures: Collection[int] | None = None
    task: str | None = None
    group: UUID | None = None
    type: str | None = None
    text: str | None = None
    occurred_since: datetime | None = None

    def __post_init__(self) -> None:
        """Refuse texts that no error has.

        Raises:
            OperationError: a text has a NUL character or a lone surrogate.

        """
        for what, text in (("type", self.type), ("text", self.text)):
            if text is not None:
                input_checks.check_text(text, what, OperationError)

    @property
    def is_search(self) -> bool:
        """Whether failures have to be looked at one by one: no index has them together."""
        return (self.type, self.text, self.occurred_since) != (None, None, None)


EVERY = FailureFilter()


class FailureFilters(TypedDict, total=False):
    """The fields of a `FailureFilter`, as keywords of a call."""

    failures: Collection[int] | None
    task: str | None
    group: UUID | None
    type: str | None
    text: str | None
    occurred_since: datetime | None
