"""Who may what: read, or operate as well."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from fastapi import Depends, Request

from scrapy_itemgraph.web.problems import Problem


class Role(StrEnum):
    """What somebody may do."""

    READ = "read"
    OPERATE = "operate"


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who asks: a token's name, None where there are no tokens, and what it may do."""

    name: str | None
    role: Role

    @property
    def may_operate(self) -> bool:
        """Whether changes are allowed."""
        return self.role is Role.OPERATE


def is_loopback(host: str | None) -> bool:
    """Tell whether an address or a name is this machine's own."""
    if host is None:
        return False
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower().rstrip(".") == "localhost"


def reader(request: Request) -> Visitor:
    """Let in who may read."""
    client = request.client
    if client is None or not is_loopback(client.host):
        raise Problem(403, "only this machine may ask, as long as there are no tokens")
    return Visitor(None, Role.OPERATE)


Reader = Annotated[Visitor, Depends(reader)]


def operator(visitor: Reader) -> Visitor:
    """Let in who may change something."""
    if not visitor.may_operate:
        raise Problem(403, f"the token {visitor.name!r} may read, but change nothing")
    return visitor


Operator = Annotated[Visitor, Depends(operator)]
