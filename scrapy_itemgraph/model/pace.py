"""Pace: how far ahead of its start work is taken, so that it neither waits long nor starts late."""

from __future__ import annotations

# Work is claimed, and a limit taken, so long before the next start is due, in seconds.
LOOKAHEAD = 0.3
# The least delay that is told from none, in seconds.
LEAST = 0.001
MANY = 10_000


def worth_holding(units: int) -> int:
    """Return how many requests are worth having in hand for so many that run at once."""
    return 3 * units + 2


def starts_within(gap: float, due_in: float) -> int:
    """Return how many starts fall within the time that is looked ahead; many without a gap."""
    if gap <= 0:
        return MANY
    if due_in > LOOKAHEAD:
        return 0
    return int((LOOKAHEAD - due_in) / gap) + 1
