"""What tells pages apart that have one URL, method and callback: what their requests carry."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from scrapy_itemgraph.model import request_secrets
from scrapy_itemgraph.tools.wording import one_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_MOST_SHOWN = 3  # of what differs
_LONGEST = 60  # characters of a value


def differences(data: Sequence[Any]) -> list[str]:
    """Return for each page, by its item's data, what differs: `body "q=tea", meta rank 7`.

    In the place of what looks like a secret stand three dots. Pages that carry the same have an
    empty text.
    """
    carried = [_carried(one) for one in data]
    names = dict.fromkeys(name for one in carried for name in one)
    apart = [name for name in names if len({_of(name, one) for one in carried}) > 1]
    return [", ".join(_said(name, one) for name in apart[:_MOST_SHOWN]) for one in carried]


def _of(name: str, carried: Mapping[str, Any]) -> str | None:
    return _text(carried[name]) if name in carried else None


def _said(name: str, carried: Mapping[str, Any]) -> str:
    if name not in carried:
        return f"no {name}"
    section, _, key = name.partition(" ")
    if request_secrets.is_hidden(key) or request_secrets.is_hidden(section):
        return f"{name} {request_secrets.HIDDEN}"
    value = one_line(_text(request_secrets.without(carried[name])))
    return f"{name} {value[:_LONGEST]}…" if len(value) > _LONGEST else f"{name} {value}"


def _carried(data: Any) -> dict[str, Any]:
    """Return what a request has, values of meta and the like each by its name."""
    request = data.get("request") if isinstance(data, dict) else None
    carried: dict[str, Any] = {}
    for name, value in (request if isinstance(request, dict) else {}).items():
        if isinstance(value, dict) and not request_secrets.is_unreadable(value):
            carried |= {f"{name} {key}": one for key, one in value.items()}
        else:
            carried[name] = value
    return carried


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)
