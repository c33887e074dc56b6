"""Fingerprints of errors: the same for what is the same error at other items."""

from __future__ import annotations

import hashlib
import json
import re
import uuid

from scrapy_itemgraph.model.work import ErrorRecord

_URL = re.compile(r"[a-z][a-z0-9+.-]*://[^\s'\"<>]+")
_HEX = re.compile(r"\b(?=[0-9a-f-]*\d)[0-9a-f][0-9a-f-]{7,}\b", re.IGNORECASE)
_DIGITS = re.compile(r"\d+")
_MOST = 300  # characters of a message that tell errors apart


def of_error(task_id: int, error: ErrorRecord | None) -> uuid.UUID:
    """Return a digest of an error's task, type, place in the code, and message.

    The item, URLs, long hexadecimal numbers and digits in the message do not count.
    """
    parts = () if error is None else (error.type, error.place or "", shape(error))
    text = "\0".join((str(task_id), *parts))
    return uuid.UUID(bytes=hashlib.sha256(text.encode(errors="replace")).digest()[:16])


def of_stored(task_id: int, error: str) -> uuid.UUID:
    """Return the digest of an error as it is stored, in JSON, whatever that is."""
    stored = json.loads(error)
    if not isinstance(stored, dict) or not stored:
        return of_error(task_id, None)
    texts = {name: str(one) for name, one in stored.items() if one is not None}
    return of_error(task_id, ErrorRecord.read(texts))


def shape(error: ErrorRecord) -> str:
    """Return the beginning of a message without what differs from item to item."""
    message = error.message[: 4 * _MOST]
    if error.item:
        message = message.replace(error.item, "…")
    for pattern in (_URL, _HEX, _DIGITS):
        message = pattern.sub("…", message)
    return message[:_MOST]
