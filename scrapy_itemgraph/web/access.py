"""Who may what: tokens, and what is allowed without any."""

from __future__ import annotations

import ipaddress
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from scrapy_itemgraph.model import tokens
from scrapy_itemgraph.model.tokens import Role, Token
from scrapy_itemgraph.web.problems import RETRY_AFTER, Problem

if TYPE_CHECKING:
    from scrapy_itemgraph.web.graphs import Graphs

COOKIE = "itemgraph_token"
# Seconds that tokens are remembered, and so how long one that was removed still lets in.
REMEMBERED = 2.0
PATIENCE = 10.0  # seconds that requests wait for one of them to read the tokens
_CHALLENGE = {"WWW-Authenticate": "Bearer"}
# What proxies add: who is behind one is not on this machine, though the proxy may be.
_OF_PROXIES = ("forwarded", "x-forwarded-for", "x-real-ip", "via")
_bearer = HTTPBearer(auto_error=False, description="made by `scrapy itemgraph token add`")


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who asks: a token's name, None where there are no tokens, and what it may do."""

    name: str | None
    role: Role

    @property
    def may_operate(self) -> bool:
        """Whether changes are allowed."""
        return self.role is Role.OPERATE


class Access:
    """Knows the tokens of the database, and who bears one."""

    def __init__(self, graphs: Graphs) -> None:
        self._graphs = graphs
        self._lock = threading.Lock()
        self._tokens: dict[bytes, Token] = {}
        self._read_at = self._asked_at = -REMEMBERED

    def tokens(self) -> dict[bytes, Token]:
        """Return the tokens of the last moments, by digest.

        Raises:
            Problem: the database has not answered for a while.

        """
        now = time.monotonic()
        if now - self._read_at < REMEMBERED:
            return self._tokens
        # One thread reads. Where the database hangs the others do not wait for it all together.
        left = self._asked_at + PATIENCE - now if self._lock.locked() else PATIENCE
        if not self._lock.acquire(timeout=max(0.0, left)):
            raise Problem(503, "the database does not answer", RETRY_AFTER)
        try:
            if time.monotonic() - self._read_at >= REMEMBERED:
                self._asked_at = time.monotonic()
                self._tokens = self._graphs.database.tokens_by_digest()
                self._read_at = time.monotonic()
            return self._tokens
        finally:
            self._lock.release()

    def of_secret(self, secret: str) -> Visitor | None:
        """Return who bears a token; None: nobody."""
        found = self.tokens().get(tokens.digest(secret))
        return None if found is None else Visitor(found.name, found.role)

    def visitor(self, request: Request) -> Visitor:
        """Return who sends a request.

        Raises:
            Problem: nobody that is known; or, without tokens, somebody elsewhere.

        """
        scheme, _, secret = request.headers.get("authorization", "").partition(" ")
        if scheme:
            found = self.of_secret(secret.strip()) if scheme.lower() == "bearer" else None
            if found is None:
                raise Problem(401, "this token is not known", _CHALLENGE)
            return found
        if not self.tokens():
            return _local(request)
        found = self.of_secret(request.cookies.get(COOKIE, ""))
        if found is None:
            raise Problem(
                401,
                "send a token, as `Authorization: Bearer TOKEN`, or log in at /login; "
                "`scrapy itemgraph token add` makes one",
                _CHALLENGE,
            )
        return found


def _local(request: Request) -> Visitor:
    """Let in this machine's users, as long as there are no tokens."""
    is_near = request.client is not None and is_loopback(request.client.host)
    if not is_near or any(name in request.headers for name in _OF_PROXIES):
        raise Problem(
            403,
            "without tokens only this machine is served, and not through a proxy; "
            "`scrapy itemgraph token add` makes a token",
        )
    return Visitor(None, Role.OPERATE)


def is_loopback(host: str) -> bool:
    """Tell whether an address or a name is this machine's own."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        name = host.lower().rstrip(".")
        return name == "localhost" or name.endswith(".localhost")


def reader(
    request: Request,
    _: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)],
) -> Visitor:
    """Let in who may read."""
    access: Access = request.app.state.access
    return access.visitor(request)


Reader = Annotated[Visitor, Depends(reader)]


def operator(visitor: Reader) -> Visitor:
    """Let in who may change something."""
    if not visitor.may_operate:
        raise Problem(
            403,
            f"the token {visitor.name!r} may read, and change nothing; "
            "one made with --role operate may",
        )
    return visitor


Operator = Annotated[Visitor, Depends(operator)]
