"""What looks like a secret in a request, hidden where people read what tells requests apart."""

from __future__ import annotations

import re
from typing import Any

from scrapy_itemgraph.model.crawl_arguments import is_secret
from scrapy_itemgraph.tools import url_secrets

HIDDEN = "…"

# What a header or a cookie is named that tells who asks, beside names that arguments may have.
_TELLS_WHO = re.compile(r"authoriz|cookies?$|session|sid$", re.IGNORECASE)
# Kinds of stored values that nobody can read, or whose parts have no names.
_KIND, _UNREADABLE = "$", {"str", "bytes", "bytearray", "dict"}
_NAME = re.compile(r"""(?<![\w.%\[\]-])([\w.%\[\]-]+)["']?\s*[=:]\s*""")  # in a form, or in JSON
_VALUE = re.compile(r""""(?:[^"\\]|\\.)*"?|'(?:[^'\\]|\\.)*'?|[^&\n"'}]*""", re.DOTALL)


def is_hidden(name: str) -> bool:
    """Tell whether the name of a header, a cookie or a value looks like that of a secret."""
    plain = name.replace("-", "_")
    return is_secret(plain) or _TELLS_WHO.search(plain) is not None


def is_unreadable(value: dict[str, Any]) -> bool:
    """Tell whether a stored value is bytes, or another whose parts cannot be judged by names."""
    return value.get(_KIND) in _UNREADABLE


def without(value: Any) -> Any:
    """Return a value as it is stored, three dots in the place of what looks like a secret in it."""
    if isinstance(value, str):
        return _without(url_secrets.hidden(value))
    if isinstance(value, list):
        return [without(one) for one in value]
    if not isinstance(value, dict):
        return value
    if is_unreadable(value):
        return HIDDEN
    return {name: HIDDEN if is_hidden(name) else without(one) for name, one in value.items()}


def _without(text: str) -> str:
    kept, at = [], 0
    for found in _NAME.finditer(text):
        value = _VALUE.match(text, found.end())
        if found.start() >= at and is_hidden(found[1]) and value is not None:
            kept += [text[at : found.end()], HIDDEN]
            at = value.end()
    return "".join([*kept, text[at:]])
