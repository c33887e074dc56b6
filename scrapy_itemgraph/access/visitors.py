"""Who asks, and what it may do."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scrapy_itemgraph.model.access_tokens import Role

if TYPE_CHECKING:
    from scrapy_itemgraph.model.access_tokens import Keys

# Seconds that tokens are remembered, and so how long one that was removed still lets in.
REMEMBERED = 2.0
# Seconds after which they are read again for one that is not known: it may be new.
FRESH = 0.25


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who asks: a token's name, None where there is no token, and what it may do."""

    name: str | None
    role: Role

    @property
    def may_operate(self) -> bool:
        """Whether all changes are allowed."""
        return self.role is Role.OPERATE

    @property
    def may_steer(self) -> bool:
        """Whether crawls of the queue, their jobs, rules and schedules may be changed."""
        return self.role in {Role.QUEUE, Role.OPERATE}

    @property
    def by(self) -> str:
        """Who it is, for the history: the token's name, or the machine that is served alone."""
        return self.name or f"http@{socket.gethostname()}"


def bearer_of(keys: Keys, digest: bytes | None) -> Visitor | None:
    """Return who bears the token of a digest; None: nobody."""
    found = keys.tokens.get(digest or b"")
    return None if found is None else Visitor(found.name, found.role)


def bearer_secret(authorization: str) -> str | None:
    """Return the token that credentials are; None: they are no token, but a proxy's or none."""
    scheme, _, secret = authorization.partition(" ")
    return secret.strip() if scheme.lower() == "bearer" else None
