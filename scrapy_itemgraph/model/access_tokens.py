"""Tokens of the HTTP door: who may read, who may steer crawls, and who may change anything."""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

from scrapy_itemgraph.exceptions import OperationError

if TYPE_CHECKING:
    from datetime import datetime

_PREFIX = "itemgraph_"  # so that who finds one in a file knows what it is
_RANDOM_BYTES = 32
SESSION = timedelta(days=30)  # that a browser is logged in at most
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,99}")


class Role(StrEnum):
    """What the bearer of a token may do: look; steer crawls of the queue as well; all of it."""

    READ = "read"
    QUEUE = "queue"
    OPERATE = "operate"


@dataclass(frozen=True, slots=True)
class Token:
    """A token as it is known after it was made: without its secret."""

    name: str
    role: Role
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Keys:
    """What lets in: tokens by the digests of their secrets, and sessions of browsers.

    `sessions` has the digest of the token for the digest of each session. `last_made_at` is when
    the last token was made, also if it is removed; None: there never was one.
    """

    tokens: dict[bytes, Token]
    sessions: dict[bytes, bytes]
    last_made_at: datetime | None


def new_secret() -> str:
    """Draw a secret of 256 random bits."""
    return _PREFIX + secrets.token_urlsafe(_RANDOM_BYTES)


def new_session() -> str:
    """Draw the secret of a browser's session; it is no token, and nobody takes it for one."""
    return secrets.token_urlsafe(_RANDOM_BYTES)


def digest(secret: str) -> bytes:
    """Return what is stored of a secret: its SHA-256.

    A slow hash protects passwords, which can be guessed; 256 random bits cannot.
    """
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


def check_name(name: str) -> str:
    """Return a token's name if it is one.

    Raises:
        OperationError: it is not.

    """
    if not _NAME.fullmatch(name):
        raise OperationError(
            f"{name!r:.80} cannot name a token: up to 100 letters, digits, and . _ @ - in between"
        )
    return name
