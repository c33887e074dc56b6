"""Why a page is set aside: its tasks are left alone until somebody frees it."""

from __future__ import annotations

from enum import StrEnum


class Hold(StrEnum):
    """Skipped: not wanted, by a person or a rule. Stashed: wanted, but not yet.

    Left: outstanding when the spider closed its run; a link in a later run frees it.
    """

    SKIPPED = "skipped"
    STASHED = "stashed"
    LEFT = "left"
