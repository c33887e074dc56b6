"""What an action says on the page after it: in a cookie, for the next page alone."""

from __future__ import annotations

import base64
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from fastapi.responses import RedirectResponse

from scrapy_itemgraph.web import cookies

if TYPE_CHECKING:
    from fastapi import Request
    from starlette.responses import Response

_SAID = "said"
_MOST = 600  # characters of a message
_MOST_AGE = 60  # seconds


@dataclass(frozen=True, slots=True)
class Message:
    """A sentence, whether it is good, bad or a warning, and what would undo it."""

    text: str
    kind: str = "good"
    undo: str = ""
    undo_of: str = ""


def say(
    request: Request, path: str, text: str, *, kind: str = "good", undo: str = "", undo_of: str = ""
) -> RedirectResponse:
    """Go to a page, which says a sentence; `undo` is the path that a button would post to."""
    answer = RedirectResponse(path, status_code=303)
    said = Message(text[:_MOST], kind, undo, undo_of)
    document = json.dumps(asdict(said), ensure_ascii=False)  # a cookie has 4 kB
    value = base64.urlsafe_b64encode(document.encode(errors="replace")).decode()
    cookies.give(request, answer, _SAID, value, _MOST_AGE)
    return answer


def taken(request: Request) -> Message | None:
    """Return what the action before said; what is no message of ours is dropped."""
    values = cookies.values(request, _SAID)
    if not values:
        return None
    try:
        found = json.loads(base64.urlsafe_b64decode(values[0]))
        said = Message(**{str(name): str(text) for name, text in found.items()})
    except (ValueError, TypeError, AttributeError):
        return None
    return said if said.kind in {"good", "bad", "warn"} else None


def forget(request: Request, answer: Response) -> None:
    """Take the message back, once it is shown."""
    cookies.take_back(request, answer, _SAID)
