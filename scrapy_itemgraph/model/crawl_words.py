"""Events of crawls that people steer, and their settings, in words."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_ORDER = {"queued_at", "next_at"}  # what the order follows from alone


def details(detail: Mapping[str, Any]) -> str:
    """Return what an event's row does not say by its name: the reason, then what is not usual."""
    usual = {"nice": 0, "concurrency": 1, "state": detail.get("state")}
    shown = {
        name: value
        for name, value in detail.items()
        if value is not None and name not in _ORDER and value != usual.get(name)
    }
    reason = shown.pop("reason", None)
    listed = [f"{name.replace('_', ' ')} {said(value)}" for name, value in shown.items()]
    return ", ".join(([str(reason)] if reason else []) + listed)


def said(value: Any) -> str:
    """Return a value of a setting, or of an event, as people are shown it."""
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return value if isinstance(value, str) else json.dumps(value)
