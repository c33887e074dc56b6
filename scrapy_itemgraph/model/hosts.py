"""Hosts: which addresses are not of the public Internet, and which hosts are exempt from that."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import TYPE_CHECKING, Any

from scrapy_itemgraph.model import slots
from scrapy_itemgraph.model.schemes import WEB

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_NAME = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*", re.IGNORECASE)
# What resolvers read as the number of an address, and not as a name.
_NUMERIC = re.compile(r"(0x[0-9a-f]*|\d+)(\.(0x[0-9a-f]*|\d+))*", re.IGNORECASE)
_MOST_PORTS = 65_535

_IPV4 = 4
_KINDS = {
    name: tuple(map(ip_network, networks))
    for name, networks in {
        "private": ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7", "fec0::/10"),
        "shared": ("100.64.0.0/10",),
        "reserved": ("192.0.0.0/24",),  # of which some versions of Python take most for global
    }.items()
}
_GLOBAL = IPv6Network("2000::/3")
_NAT64 = IPv6Network("64:ff9b::/96")
_COMPATIBLE = IPv6Network("::/96")


def address_of(host: str) -> Address | None:
    """Return the address that a host is written as; None for a name.

    Spellings that only resolvers know, such as `2130706433` or `0x7f.1`, are names here.
    """
    try:
        return ip_address(host.removeprefix("[").removesuffix("]").removesuffix("."))
    except ValueError:
        return None


def is_plain_name(host: str) -> bool:
    """Tell whether a host is written as names are: letters, digits, dots, `-` and `_`."""
    return _NAME.fullmatch(host.removesuffix(".")) is not None


def kind_of(address: Address) -> str | None:
    """Return what an address is that is not of the public Internet, such as "loopback"; or None.

    An IPv6 address that carries one of IPv4 (mapped, 6to4, Teredo, NAT64) is what that is.
    """
    for name in ("unspecified", "loopback", "link_local", "multicast"):
        if getattr(address, f"is_{name}"):
            return name.replace("_", "-")
    if isinstance(address, IPv6Address):
        carried = list(_carried(address))
        if carried:
            return next(filter(None, map(kind_of, carried)), None)
    for name, networks in _KINDS.items():
        if any(address.version == one.version and address in one for one in networks):
            return name
    is_public = address.is_global and not address.is_reserved
    return None if is_public and (address.version == _IPV4 or address in _GLOBAL) else "reserved"


def _carried(address: IPv6Address) -> Iterator[IPv4Address]:
    """Yield the IPv4 addresses to which a packet for an IPv6 address may go."""
    if address.ipv4_mapped is not None:
        yield address.ipv4_mapped
    elif address.sixtofour is not None:
        yield address.sixtofour
    elif address.teredo is not None:
        yield from address.teredo
    elif address in _NAT64 or address in _COMPATIBLE:
        yield IPv4Address(int(address) & 0xFFFFFFFF)


@dataclass(frozen=True, slots=True)
class HostRule:
    """A host, or several, to which requests may lead; of any port if `port` is None.

    `name` is a host's name, or with `is_suffix` what the names of several end with, `network` has
    their addresses. `scheme` is another one than http and https, whose hosts are not looked up.
    """

    name: str = ""
    is_suffix: bool = False
    network: Network | None = None
    port: int | None = None
    scheme: str | None = None

    @classmethod
    def read(cls, given: str) -> HostRule:
        """Read a rule as settings have it.

        Raises:
            ValueError: saying what is wrong, and what to write.

        """
        text = given.lower()
        scheme, separator, rest = text.partition("://")
        if separator:
            if scheme in WEB:
                raise ValueError(f"{given!r}: write the host alone, as {rest.split('/')[0]!r}")
            return cls(scheme=scheme, name=rest.removesuffix("/"))
        if "/" in text:
            return cls(network=_network(text))
        if (address := address_of(text)) is not None:
            return cls(network=ip_network(address))
        host, separator, number = text.rpartition(":")
        port = _port(given, number) if separator else None
        host = host if separator else text
        if (address := address_of(host)) is not None:
            return cls(network=ip_network(address), port=port)
        name = slots.normal_host(host.removeprefix("*.")).removesuffix(".")
        if not is_plain_name(name) or _NUMERIC.fullmatch(name):
            raise ValueError(
                f"{given!r} is no host; write a name, *.example for all names that end with "
                ".example, an address, a network such as 10.0.0.0/8, or one of them but a network "
                "with a port, such as api.example:8080"
            )
        return cls(name=name, is_suffix=host.startswith("*."), port=port)

    def has_name(self, host: str, port: int | None) -> bool:
        """Tell whether this is a rule for a host of this name, in small letters."""
        if not self.name or self.scheme is not None or self.port not in (None, port):
            return False
        return host.endswith(f".{self.name}") if self.is_suffix else host == self.name

    def has_address(self, address: Address, port: int | None) -> bool:
        """Tell whether this is a rule for an address, or for one of IPv4 that it carries."""
        if self.network is None or self.port not in (None, port):
            return False
        forms = [address, *(_carried(address) if isinstance(address, IPv6Address) else ())]
        return any(one.version == self.network.version and one in self.network for one in forms)

    def has_place(self, scheme: str, host: str) -> bool:
        """Tell whether this is a rule for a host of another scheme than http and https."""
        return self.scheme == scheme and self.name == host


def _network(text: str) -> Network:
    try:
        return ip_network(text)
    except ValueError as error:
        raise ValueError(f"{error}; write a network such as 10.0.0.0/8") from None


def _port(given: str, number: str) -> int:
    if not (number.isascii() and number.isdecimal() and 0 < int(number) <= _MOST_PORTS):
        raise ValueError(f"{given!r}: {number!r} is no port; write a number from 1 to 65535")
    return int(number)


def read_rules(value: Any) -> tuple[HostRule, ...]:
    """Read hosts from a list, or from text with commas between them.

    Raises:
        ValueError: naming the one that is wrong.

    """
    given: Iterable[Any] = value.split(",") if isinstance(value, str) else value
    rules: list[HostRule] = []
    for one in given:
        if not isinstance(one, str):
            raise ValueError(f"write hosts as texts, not {one!r}")  # noqa: TRY004 - as all here
        if one.strip():
            rules.append(HostRule.read(one.strip()))
    return tuple(rules)
