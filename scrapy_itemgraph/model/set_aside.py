"""Why a page is set aside: its tasks are left alone until somebody frees it."""

from __future__ import annotations

from enum import StrEnum


class Hold(StrEnum):
    """Skipped: not wanted, by a person or a rule. Stashed: wanted, but not yet."""

    SKIPPED = "skipped"
    STASHED = "stashed"
