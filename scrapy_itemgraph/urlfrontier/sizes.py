"""How large a message may be that a server takes, and one that it sends."""

from __future__ import annotations

from typing import Any

MOST_TAKEN = 16 * 2**20  # bytes
# A client of gRPC takes 4 MiB unless it is told otherwise. A stored URL comes back with a few
# fields more, for which there is room.
MOST_SENT = 4 * 2**20 - 2**16  # bytes


def fits(message: Any) -> bool:
    """Tell whether each client takes a message."""
    return bool(message.ByteSize() <= MOST_SENT)
