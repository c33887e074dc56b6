"""Rows and values as the JSON that programs read, on the command line and over HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from typing import Any


def of(value: Any) -> Any:
    """Return rows as dicts of their columns, and lists of them; other values as they are."""
    if isinstance(value, list | tuple) and not hasattr(value, "_asdict"):
        return [of(one) for one in value] if value and _is_row(value[0]) else list(value)
    if not _is_row(value):
        return value
    named = value._asdict() if hasattr(value, "_asdict") else _attributes(value)
    return {name: of(one) for name, one in named.items()}


def _is_row(value: Any) -> bool:
    return hasattr(value, "_asdict") or (is_dataclass(value) and not isinstance(value, type))


def _attributes(value: Any) -> dict[str, Any]:
    return {one.name: getattr(value, one.name) for one in fields(value)}


def plain(value: Any) -> Any:
    """Return what JSON has for a value of another kind: times as ISO 8601, periods in seconds."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Mapping):
        return dict(value)
    return str(value)
