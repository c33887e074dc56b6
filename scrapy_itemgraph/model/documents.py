"""Rows and values as the JSON that programs read, on the command line and over HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from typing import Any


def of(value: Any) -> Any:
    """Return rows as dicts of their columns, and lists of them; other values as they are."""
    if isinstance(value, list):
        return [of(one) for one in value]
    if hasattr(value, "_asdict"):
        return value._asdict()
    if is_dataclass(value):
        return {one.name: _field(getattr(value, one.name)) for one in fields(value)}
    return value


def _field(value: Any) -> Any:
    if isinstance(value, tuple):
        return [of(one) for one in value]
    return of(value) if is_dataclass(value) else value


def plain(value: Any) -> Any:
    """Return what JSON has for a value of another kind: times as ISO 8601, periods in seconds."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Mapping):
        return dict(value)
    return str(value)
