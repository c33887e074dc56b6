"""Who may what: tokens, sessions of browsers, and what is allowed without any."""

from __future__ import annotations

import math
import threading
import time
from typing import TYPE_CHECKING, Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from scrapy_itemgraph.access import proxies
from scrapy_itemgraph.access.no_tokens import NoTokens
from scrapy_itemgraph.access.visitors import (
    FRESH,
    REMEMBERED,
    Visitor,
    bearer_of,
    bearer_secret,
)
from scrapy_itemgraph.exceptions import MissingRightError
from scrapy_itemgraph.model import access_tokens
from scrapy_itemgraph.model.access_tokens import Keys, Role
from scrapy_itemgraph.web import cookies
from scrapy_itemgraph.web.problems import RETRY_AFTER, Problem

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy_itemgraph.web.graphs import Graphs

SESSION = "session"  # the cookie
PATIENCE = 10.0  # seconds that requests wait for one of them to read the tokens
_CHALLENGE = {"WWW-Authenticate": "Bearer"}
_bearer = HTTPBearer(auto_error=False, description="made by `scrapy itemgraph token add`")


class Access:
    """Knows the tokens and sessions of the database, and who bears one."""

    def __init__(
        self, graphs: Graphs, *, is_public: bool = False, without_tokens: bool = False
    ) -> None:
        """Take the graphs; `is_public` and `without_tokens` as `NoTokens` has them."""
        self._graphs = graphs
        self._lock = threading.Lock()
        made_before = graphs.served.tokens.keys().last_made_at if without_tokens else None
        self._no_tokens = NoTokens(is_public=is_public, made_before=made_before)
        self._keys = Keys({}, {}, None)
        self._read_at = self._asked_at = -math.inf
        self._changes = 0
        self._own = OwnSessions()

    def keys(self, remembered: float | None = None) -> Keys:
        """Return what lets in, as it was in the last seconds.

        Raises:
            Problem: the database has not answered for a while.

        """
        remembered = REMEMBERED if remembered is None else remembered
        now = time.monotonic()
        if now - self._read_at < remembered:
            return self._keys
        # One thread reads. Where the database hangs the others do not wait for it all together.
        left = self._asked_at + PATIENCE - now if self._lock.locked() else PATIENCE
        if not self._lock.acquire(timeout=max(0.0, left)):
            raise Problem(503, "the database does not answer", RETRY_AFTER)
        try:
            if time.monotonic() - self._read_at >= remembered:
                self._asked_at = time.monotonic()
                changes = self._changes
                keys = self._graphs.served.tokens.keys()
                self._no_tokens.note(keys)
                self._keys = keys
                # What was changed meanwhile may not be among what was read.
                self._read_at = time.monotonic() if changes == self._changes else -math.inf
            return self._keys
        finally:
            self._lock.release()

    def of_secret(self, secret: str) -> Visitor | None:
        """Return who bears a token; None: nobody."""
        return self._known(lambda _: access_tokens.digest(secret))

    def of_session(self, secret: str) -> Visitor | None:
        """Return whose session it is; None: nobody's, or it has ended."""
        digest = access_tokens.digest(secret)
        return self._known(lambda keys: keys.sessions.get(digest) or self._own.token(digest))

    def _known(self, token: Callable[[Keys], bytes | None]) -> Visitor | None:
        """Return the visitor of a token by its digest; what is not known may be new."""
        for remembered in (None, min(FRESH, REMEMBERED)):
            keys = self.keys(remembered)
            found = bearer_of(keys, token(keys))
            if found is not None:
                return found
        return None

    def log_in(self, secret: str) -> str | None:
        """Make a session for a token, and return its secret; None: the token is not known."""
        if self.of_secret(secret) is None:
            return None
        try:
            session = self._graphs.served.tokens.add_session(secret)
        except MissingRightError:
            session = self._own.add(access_tokens.digest(secret))
        self._note_change()
        return session

    def log_out(self, secret: str) -> None:
        """End a session, if it is one."""
        if (
            not self._own.remove(access_tokens.digest(secret))
            and self.of_session(secret) is not None
        ):
            self._graphs.served.tokens.remove_session(secret)
            self._note_change()

    def _note_change(self) -> None:
        self._changes += 1
        self._read_at = -math.inf

    def visitor(self, request: Request) -> Visitor:
        """Return who sends a request.

        A token counts before a cookie. Other credentials are a proxy's before us, and not for us.

        Raises:
            Problem: nobody that is known; or, without tokens, somebody elsewhere.

        """
        secret = bearer_secret(request.headers.get("authorization", ""))
        if secret is not None:
            found = self.of_secret(secret)
            if found is None:
                raise Problem(401, "this token is not known", _CHALLENGE)
            return found
        if not self.keys().tokens:
            host = request.client.host if request.client else None
            why = self._no_tokens.refusal(host, is_passed_on=is_passed_on(request))
            if why is not None:
                raise Problem(403, why)
            return Visitor(None, Role.OPERATE)
        for session in cookies.values(request, SESSION):
            found = self.of_session(session)
            if found is not None:
                return found
        raise Problem(
            401,
            "send a token, as `Authorization: Bearer TOKEN`, or log in at /login; "
            "`scrapy itemgraph token add` makes one",
            _CHALLENGE,
        )


class OwnSessions:
    """Sessions of this process alone, where its role of the database may not write any."""

    MOST = 100

    def __init__(self) -> None:
        self._sessions: dict[bytes, tuple[bytes, float]] = {}

    def add(self, token: bytes) -> str:
        """Make a session for a token, by its digest, and return its secret."""
        secret = access_tokens.new_session()
        ends = time.monotonic() + access_tokens.SESSION.total_seconds()
        self._sessions[access_tokens.digest(secret)] = token, ends
        for digest in list(self._sessions)[: -self.MOST]:
            self._sessions.pop(digest, None)
        return secret

    def token(self, digest: bytes) -> bytes | None:
        """Return the digest of a session's token; None: there is no such session any more."""
        token, ends = self._sessions.get(digest, (None, 0.0))
        return token if time.monotonic() < ends else None

    def remove(self, digest: bytes) -> bool:
        """Forget a session, and return whether it was one of these."""
        return self._sessions.pop(digest, None) is not None


def is_passed_on(request: Request) -> bool:
    """Tell whether it shows that a request came through a proxy.

    Besides headers of proxies, that is: HTTP/1.0, which nginx speaks unless it is told otherwise;
    credentials, which nobody asked for here; a page with TLS, where we speak none.
    """
    headers = request.headers
    return (
        proxies.show_proxy(headers)
        or request.scope["http_version"] == "1.0"
        or "authorization" in headers
        or (request.scope["scheme"] == "http" and headers.get("origin", "").startswith("https:"))
    )


def reader(
    request: Request,
    _: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)],
) -> Visitor:
    """Let in who may read."""
    access: Access = request.app.state.access
    return access.visitor(request)


Reader = Annotated[Visitor, Depends(reader)]


def steerer(visitor: Reader) -> Visitor:
    """Let in who may change crawls of the queue."""
    if not visitor.may_steer:
        raise Problem(
            403,
            f"the token {visitor.name!r} may read, and change nothing; "
            "one made with --role operate may",
        )
    return visitor


Steerer = Annotated[Visitor, Depends(steerer)]


def operator(visitor: Steerer) -> Visitor:
    """Let in who may change anything."""
    if not visitor.may_operate:
        raise Problem(
            403,
            f"the token {visitor.name!r} may read, and steer crawls of the queue, their jobs and "
            "schedules, and no more; one made with --role operate may",
        )
    return visitor


Operator = Annotated[Visitor, Depends(operator)]
