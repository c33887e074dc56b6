"""Who may call what: who bears a token or has a certificate, and without either this machine."""

from __future__ import annotations

import asyncio
import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

import grpc

from scrapy_itemgraph.access import proxies
from scrapy_itemgraph.access.no_tokens import MAKE, NoTokens, start_refusal
from scrapy_itemgraph.access.visitors import FRESH, Visitor, bearer_of, bearer_secret
from scrapy_itemgraph.exceptions import DatabaseUnavailableError, OperationError
from scrapy_itemgraph.model import access_tokens
from scrapy_itemgraph.model.access_tokens import Keys, Role
from scrapy_itemgraph.tools.async_tools import either

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping

WITHOUT = "scrapy itemgraph frontier --no-tokens"
# What a token may call that only reads: the rest changes something, and GetURLs takes URLs.
SCRAPING = "metrics"  # over HTTP
READING = frozenset(
    {
        "CountURLs",
        "GetActive",
        "GetStats",
        "GetURLStatus",
        "ListCrawls",
        "ListNodes",
        "ListQueues",
        "ListURLs",
        SCRAPING,
    }
)
_EVERYBODY = Visitor(None, Role.OPERATE)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessTerms:
    """Who is let in.

    `is_open`: whoever reaches the port, and nobody is asked for a token. `has_client_ca`: the
    connection has checked a certificate of each client, which may do everything unless it sends a
    token. `is_public`: others than this machine reach the port. `without_tokens`: it may serve this
    machine although there were tokens once.
    """

    is_open: bool = False
    has_client_ca: bool = False
    is_public: bool = False
    without_tokens: bool = False


NOBODY_ELSE = AccessTerms()  # this machine, or those who have a token


class Refusal(NamedTuple):
    """Why a call is not answered."""

    code: grpc.StatusCode
    why: str


_AWAY = Refusal(
    grpc.StatusCode.UNAVAILABLE,
    "the database does not answer, so that it is not known whether the caller may do that",
)


class Caller(NamedTuple):
    """What a call shows of who makes it: a token's digest, an address, and whether by a proxy."""

    digest: bytes | None
    host: str | None
    is_passed_on: bool


class Access:
    """Knows the tokens of the database as they were a moment ago, and whom they let in."""

    def __init__(self, read: Callable[[], Awaitable[Keys]], terms: AccessTerms) -> None:
        """Take what reads the tokens; they are known after `begin`."""
        self._read = read
        self._terms = terms
        self._keys = Keys({}, {}, None)
        self._no_tokens = NoTokens(is_public=terms.is_public, made_before=None)
        self._read_at = -math.inf
        self._reading = asyncio.Lock()
        self._streams: dict[asyncio.Event, tuple[str, Caller]] = {}

    @property
    def has_tokens(self) -> bool:
        """Whether there is a token."""
        return bool(self._keys.tokens)

    async def begin(self, host: str) -> None:
        """Read the tokens, before a server that listens at `host` answers.

        Raises:
            OperationError: without a token nobody, or anybody, would be let in.

        """
        keys = await self._read()
        terms = self._terms
        if not (terms.is_open or terms.has_client_ca):
            if terms.is_public and not keys.tokens:
                raise OperationError(
                    f"without tokens only this machine is served, and {host} is reached by others; "
                    f"make a token first: {MAKE}; or have clients show certificates: "
                    "--tls-client-ca; or, as in a network of containers, let in whoever reaches "
                    "the port: --open-to-all"
                )
            why = start_refusal(keys, no_tokens=terms.without_tokens, without=WITHOUT)
            if why is not None:
                raise OperationError(why)
        made_before = keys.last_made_at if terms.without_tokens else None
        self._no_tokens = NoTokens(is_public=terms.is_public, made_before=made_before)
        self._note(keys)

    async def look(self) -> None:
        """Read the tokens again, and end the streams of those who may not have them any more.

        Raises:
            DatabaseUnavailableError: the database is away; what was read last counts until it is
                back, for nothing can be done without it.

        """
        self._note(await self._read())
        for gone, (method, caller) in self._streams.items():
            if self._refusal(method, caller) is not None:
                gone.set()

    async def check(self, method: str, context: Any) -> None:
        """Refuse a call whose caller may not make it.

        Raises:
            grpc.aio.AbortError: it is refused.

        """
        if not self._terms.is_open:
            await self._checked(method, context)

    async def during(
        self, method: str, context: Any, work: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        """Do the work of a stream, for as long as its caller may have it.

        It raises what `check` does, and what the work does.
        """
        if self._terms.is_open:
            return await work()
        caller = await self._checked(method, context)
        gone = asyncio.Event()
        self._streams[gone] = method, caller
        try:
            done = await either(gone, work())
        finally:
            del self._streams[gone]
        if done.cancelled():
            await context.abort(*(self._refusal(method, caller) or _gone()))
        return done.result()

    async def refusal(self, method: str, caller: Caller) -> Refusal | None:
        """Return why a caller may not make a call; None: it may."""
        refusal = self._refusal(method, caller)
        if refusal is None:
            return None
        async with self._reading:  # what is not known may be new
            if time.monotonic() - self._read_at >= FRESH:
                try:
                    self._note(await self._read())
                except DatabaseUnavailableError:  # its address is not for strangers
                    return _AWAY
        return self._refusal(method, caller)

    async def _checked(self, method: str, context: Any) -> Caller:
        headers = {str(name): value for name, value in context.invocation_metadata()}
        caller = caller_of(headers, host_of(context.peer()))
        refusal = await self.refusal(method, caller)
        if refusal is not None:
            await context.abort(*refusal)
        return caller

    def _note(self, keys: Keys) -> None:
        self._no_tokens.note(keys)
        self._keys = keys
        self._read_at = time.monotonic()

    def _refusal(self, method: str, caller: Caller) -> Refusal | None:
        """Return why a caller may not make a call, by the tokens that were read last."""
        visitor: Visitor | None = _EVERYBODY
        if self._terms.is_open:
            return None
        if caller.digest is not None:
            visitor = bearer_of(self._keys, caller.digest)
        elif self._terms.has_client_ca:
            pass
        elif self._keys.tokens:
            visitor = None
        else:
            why = self._no_tokens.refusal(caller.host, is_passed_on=caller.is_passed_on)
            if why is not None:
                return Refusal(grpc.StatusCode.PERMISSION_DENIED, why)
        if visitor is None:
            return _unknown(caller)
        if method in READING or visitor.may_operate:
            return None
        return Refusal(
            grpc.StatusCode.PERMISSION_DENIED,
            f"the token {visitor.name!r} may read, and neither take URLs nor change anything; one "
            "made with --role operate may",
        )


def _unknown(caller: Caller) -> Refusal:
    why = (
        "send a token, as the metadata `authorization: Bearer TOKEN`"
        if caller.digest is None
        else "this token is not known"
    )
    return Refusal(grpc.StatusCode.UNAUTHENTICATED, f"{why}; `{MAKE}` makes one")


def _gone() -> Refusal:
    return Refusal(grpc.StatusCode.UNAUTHENTICATED, "the token was removed meanwhile; call again")


def caller_of(headers: Mapping[str, Any], host: str | None) -> Caller:
    """Return who makes a call, by its headers, whose names are in lower case, and its address."""
    secret = bearer_secret(str(headers.get("authorization", "")))
    return Caller(
        None if secret is None else access_tokens.digest(secret),
        host,
        proxies.show_proxy(headers) or (secret is None and "authorization" in headers),
    )


def host_of(peer: str) -> str | None:
    """Return the address that gRPC calls a peer, as `ipv6:%5B::1%5D:4321`; None: it has none."""
    kind, _, address = unquote(peer).partition(":")
    return address.rpartition(":")[0] if kind in {"ipv4", "ipv6"} else None
