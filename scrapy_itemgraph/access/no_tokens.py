"""Who is let in while there are no tokens: this machine, or nobody."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

    from scrapy_itemgraph.model.access_tokens import Keys

MAKE = "scrapy itemgraph token add NAME --role operate"
_MAKE_ONE = f"`{MAKE}` makes one"


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

    def refusal(self, host: str | None, *, is_passed_on: bool) -> str | None:
        """Return why whoever asks from a host is not let in; None: it is.

        `is_passed_on` says that the request shows a proxy.
        """
        if self._has_seen_tokens:
            return (
                f"there were tokens, and none is left, so nobody is let in; {_MAKE_ONE}; started "
                "anew with --no-tokens the server serves this machine without any"
            )
        if self._is_public:
            return f"a server that others reach needs tokens; {_MAKE_ONE}"
        if host is None or not is_loopback(host) or is_passed_on:
            return (
                f"without tokens only this machine is served, and not through a proxy; {_MAKE_ONE}"
            )
        return None


def start_refusal(keys: Keys, *, no_tokens: bool, without: str) -> str | None:
    """Return why a server of this machine alone is not started; None: it is.

    `no_tokens` says that it is told to do without them, and `without` is how that is said.
    """
    if keys.tokens and no_tokens:
        names = ", ".join(sorted(one.name for one in keys.tokens.values()))
        return (
            f"--no-tokens is for a database without tokens, and this one has some: {names}; "
            "leave it out"
        )
    if keys.tokens or keys.last_made_at is None or no_tokens:
        return None
    return (
        "there were tokens, and none is left, so nobody would be let in; make one: "
        f"{MAKE}; or serve this machine without any: {without}"
    )


def is_loopback(host: str) -> bool:
    """Tell whether an address or a name is this machine's own."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        name = host.lower().rstrip(".")
        return name == "localhost" or name.endswith(".localhost")
