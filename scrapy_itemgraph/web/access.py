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
from scrapy_itemgraph.model.tokens import Keys, Role
from scrapy_itemgraph.web.problems import RETRY_AFTER, Problem
from scrapy_itemgraph.web.proxies import is_passed_on

if TYPE_CHECKING:
    from datetime import datetime

    from scrapy_itemgraph.web.graphs import Graphs

COOKIE = "itemgraph_token"
# Seconds that tokens are remembered, and so how long one that was removed still lets in.
REMEMBERED = 2.0
PATIENCE = 10.0  # seconds that requests wait for one of them to read the tokens
_CHALLENGE = {"WWW-Authenticate": "Bearer"}
_MAKE_ONE = "`scrapy itemgraph token add NAME --role operate` makes one"
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

    def __init__(
        self, graphs: Graphs, *, is_public: bool = False, without_tokens: bool = False
    ) -> None:
        """Take the graphs; `is_public` and `without_tokens` as `NoTokens` has them."""
        self._graphs = graphs
        self._lock = threading.Lock()
        made_before = graphs.database.web_keys().last_made_at if without_tokens else None
        self._no_tokens = NoTokens(is_public=is_public, made_before=made_before)
        self._keys = Keys({}, None)
        self._read_at = self._asked_at = -REMEMBERED

    def keys(self) -> Keys:
        """Return what lets in, as it was in the last moments.

        Raises:
            Problem: the database has not answered for a while.

        """
        now = time.monotonic()
        if now - self._read_at < REMEMBERED:
            return self._keys
        # One thread reads. Where the database hangs the others do not wait for it all together.
        left = self._asked_at + PATIENCE - now if self._lock.locked() else PATIENCE
        if not self._lock.acquire(timeout=max(0.0, left)):
            raise Problem(503, "the database does not answer", RETRY_AFTER)
        try:
            if time.monotonic() - self._read_at >= REMEMBERED:
                self._asked_at = time.monotonic()
                keys = self._graphs.database.web_keys()
                self._no_tokens.note(keys)
                self._keys = keys
                self._read_at = time.monotonic()
            return self._keys
        finally:
            self._lock.release()

    def of_secret(self, secret: str) -> Visitor | None:
        """Return who bears a token; None: nobody."""
        found = self.keys().tokens.get(tokens.digest(secret))
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
        if not self.keys().tokens:
            return self._no_tokens.visitor(request)
        found = self.of_secret(request.cookies.get(COOKIE, ""))
        if found is None:
            raise Problem(
                401,
                "send a token, as `Authorization: Bearer TOKEN`, or log in at /login; "
                "`scrapy itemgraph token add` makes one",
                _CHALLENGE,
            )
        return found


class NoTokens:
    """Says who is let in while there are no tokens: this machine's users, or nobody.

    Nobody where others reach the server (`is_public`): it listens beyond this machine, or has names
    besides this machine's. And nobody where there ever was a token, for a proxy or a port that was
    opened for those who had one is still there; those that were made until `made_before` do not
    count.
    """

    def __init__(self, *, is_public: bool, made_before: datetime | None) -> None:
        self._is_public = is_public
        self._made_before = made_before
        self._has_seen_tokens = False

    def note(self, keys: Keys) -> None:
        """Note whether there was a token, which holds as long as the server runs."""
        was_made = keys.last_made_at not in {None, self._made_before}
        self._has_seen_tokens |= was_made or bool(keys.tokens)

    def visitor(self, request: Request) -> Visitor:
        """Return who sends a request.

        Raises:
            Problem: nobody is let in, or who asks is not on this machine.

        """
        if self._has_seen_tokens:
            raise Problem(
                403,
                f"there were tokens, and none is left, so nobody is let in; {_MAKE_ONE}; started "
                "anew with --no-tokens the server serves this machine without any",
            )
        if self._is_public:
            raise Problem(403, f"a server that others reach needs tokens; {_MAKE_ONE}")
        is_near = request.client is not None and is_loopback(request.client.host)
        if not is_near or is_passed_on(request):
            raise Problem(
                403,
                f"without tokens only this machine is served, and not through a proxy; {_MAKE_ONE}",
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
