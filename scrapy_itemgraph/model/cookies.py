"""Cookies of a jar as they are stored, and which of them could be sent to a host."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

# What a primary key of cookies or spider_state may have: an index takes 2,704 bytes a row.
MAX_KEY_BYTES = 2000

_IPV4 = re.compile(r"\.\d+$", re.ASCII)  # as http.cookiejar tells an address from a name


@dataclass(frozen=True, slots=True, kw_only=True)
class Cookie:
    """A cookie of a jar, both as JSON; `cookie` is None when it was deleted."""

    jar: str
    domain: str
    path: str
    name: str
    cookie: str | None
    expires: float | None = None  # in seconds since 1970; None: never


@lru_cache(maxsize=4096)
def domains(host: str) -> tuple[str, ...]:
    """Return the domains under which a jar keeps the cookies that could be sent to a host."""
    host = host.lower()
    names = [host]
    if not _IPV4.search(host):
        labels = host.split(".")
        names += [".".join(labels[n:]) for n in range(1, len(labels) - 1)]
        if len(labels) == 1:
            names.append(f"{host}.local")
    return (*names, *(f".{name}" for name in names))
