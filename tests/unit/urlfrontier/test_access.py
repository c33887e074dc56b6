"""Who may call what, by what a call shows and what the tokens are."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import grpc
import pytest

from scrapy_itemgraph.exceptions import OperationError
from scrapy_itemgraph.model import access_tokens
from scrapy_itemgraph.model.access_tokens import Keys, Role, Token
from scrapy_itemgraph.urlfrontier.access import Access, AccessTerms, caller_of, host_of

MADE_AT = datetime(2026, 11, 1, tzinfo=UTC)
DENIED = grpc.StatusCode.PERMISSION_DENIED
UNAUTHENTICATED = grpc.StatusCode.UNAUTHENTICATED


def keys(**roles: str) -> Keys:
    """Return tokens whose secrets are their names."""
    tokens = {
        access_tokens.digest(name): Token(name, Role(role), MADE_AT) for name, role in roles.items()
    }
    return Keys(tokens, {}, MADE_AT if roles else None)


def refusal(terms, found, method, headers, host="127.0.0.1"):
    """Return the code with which a call is refused; None: it is answered."""

    async def asked():
        async def read() -> Keys:
            return found

        access = Access(read, terms)
        await access.begin("there")
        return await access.refusal(method, caller_of(headers, host))

    said = asyncio.run(asked())
    return said and said.code


@pytest.mark.parametrize(
    ("host", "headers", "code"),
    [
        ("127.0.0.1", {}, None),
        ("127.8.9.1", {}, None),
        ("[::1]", {}, None),
        ("192.0.2.1", {}, DENIED),
        ("[2001:db8::1]", {}, DENIED),
        (None, {}, DENIED),
        ("127.0.0.1", {"via": "1.1 proxy"}, DENIED),
        ("127.0.0.1", {"x-forwarded-for": "192.0.2.1"}, DENIED),
        ("127.0.0.1", {"authorization": "Basic YTpi"}, DENIED),
        ("127.0.0.1", {"authorization": "Bearer x"}, UNAUTHENTICATED),
    ],
)
def test_without_tokens_this_machine_alone_is_served(host, headers, code):
    """UF-1: another address, and what looks as if a proxy passed it on, is refused."""
    assert refusal(AccessTerms(), keys(), "PutURLs", headers, host) is code


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER "])
def test_a_token_counts_wherever_it_comes_from(scheme):
    """UF-1: who bears a token may what its role says, from any address and by a proxy, too."""
    headers = {"authorization": f"{scheme} anna", "via": "1.1 proxy"}
    terms = AccessTerms(is_public=True)

    assert refusal(terms, keys(anna="operate"), "PutURLs", headers, "192.0.2.1") is None
    assert refusal(terms, keys(anna="read"), "PutURLs", headers, "192.0.2.1") is DENIED
    assert refusal(terms, keys(anna="read"), "GetStats", headers, "192.0.2.1") is None
    assert refusal(terms, keys(eve="read"), "GetStats", headers, "192.0.2.1") is UNAUTHENTICATED


def test_a_certificate_stands_for_a_token():
    """UF-1: where clients show certificates none needs a token, and one that is sent counts."""
    terms = AccessTerms(is_public=True, has_client_ca=True)

    assert refusal(terms, keys(), "PutURLs", {}, "192.0.2.1") is None
    assert refusal(terms, keys(anna="read"), "PutURLs", {}, "192.0.2.1") is None
    bearer = {"authorization": "Bearer anna"}
    assert refusal(terms, keys(anna="read"), "PutURLs", bearer, "192.0.2.1") is DENIED


@pytest.mark.parametrize(
    ("terms", "found", "said"),
    [
        (AccessTerms(is_public=True), keys(), "there is reached by others"),
        (AccessTerms(), Keys({}, {}, MADE_AT), "none is left"),
        (AccessTerms(without_tokens=True), keys(anna="read"), "anna"),
    ],
)
def test_a_server_is_not_started_for_nobody_or_anybody(terms, found, said):
    """UF-1: a start is refused that would let in strangers, or nobody, with what to do."""
    with pytest.raises(OperationError, match=said):
        refusal(terms, found, "GetStats", {})


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("ipv4:127.0.0.1:4321", "127.0.0.1"),
        ("ipv6:%5B::1%5D:4321", "[::1]"),
        ("ipv6:[::1]:4321", "[::1]"),
        ("unix:/tmp/socket", None),
        ("", None),
    ],
)
def test_the_address_of_a_peer(peer, host):
    """UF-1: a caller's address is read from what gRPC calls it."""
    assert host_of(peer) == host
