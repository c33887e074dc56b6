"""Where requests may lead that the project's own code did not choose: to the public web alone.

That is so for what came over HTTP, and with ITEMGRAPH_PUBLIC_ONLY for all that is downloaded. A
request is checked twice: before any other middleware sees it, so that not even a robots.txt is
asked for, and next to the download handler, so that little time is between the look-up of its
host and the connection. With Scrapy's default resolver both have the address from one cache.
"""

from __future__ import annotations

import asyncio
import sys
from contextvars import ContextVar
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

from scrapy.exceptions import IgnoreRequest
from scrapy.utils.httpobj import urlparse_cached

from scrapy_itemgraph.model import hosts, schemes, slots
from scrapy_itemgraph.worker import scrapy_internals
from scrapy_itemgraph.worker.downloads import site_feedback
from scrapy_itemgraph.worker.downloads.request_slots import NO_DOWNLOAD
from scrapy_itemgraph.worker.executions.execution import Leg, leg_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from scrapy import Request
    from scrapy.http import Response

    from scrapy_itemgraph.model.hosts import Address, HostRule

_MOST_STARTS = 10_000  # hosts that are remembered
_LONGEST_START = 10.0  # seconds at most that a request to be refused waits for the end of `start()`
_NOWHERE = "data"  # the scheme of URLs that lead nowhere
_PORTS = {"http": 80, "https": 443}

_guarded: ContextVar[Leg | None] = ContextVar("itemgraph_guarded", default=None)


class RefusedAddressError(IgnoreRequest):
    """A request leads where it may not: its work ends as refused."""


@dataclass(slots=True, eq=False, repr=False)
class Egress:
    """Checks where requests lead; the hosts of the crawl's own start, and allowed ones, are exempt.

    `start_ended` is set when `start()` has nothing more.
    """

    allowed: Sequence[HostRule]
    is_public_only: bool
    start_ended: asyncio.Event
    _names: set[str] = field(default_factory=set)
    _addresses: set[Address] = field(default_factory=set)
    _schemes: set[str] = field(default_factory=set)

    # The crawl's own start

    def starts_at(self, url: Any) -> None:
        """Take note of a URL with which the project's own code begins."""
        if not isinstance(url, str):
            return
        if not schemes.is_web(url):
            self._schemes.add(schemes.scheme_of(url))
        host = slots.of_url(url).removesuffix(".")
        if not host or host in self._names or len(self._names) >= _MOST_STARTS:
            return
        self._names.add(host)
        address = hosts.address_of(host)
        if address is not None:
            self._addresses.add(address)

    def start_at_all(self, urls: Any) -> None:
        """Take note of a spider's `start_urls`, unless reading them would use them up."""
        if isinstance(urls, str):
            urls = [urls]
        if isinstance(urls, list | tuple | set | frozenset):
            for url in urls:
                self.starts_at(url)

    # What is checked

    def stand_before(self, downloader: Any) -> None:
        """Check requests once more next to a downloader's handlers."""
        scrapy_internals.around_downloads(downloader, self._checked)

    async def _checked(self, download: Callable[[Request], Any], request: Request) -> Response:
        if self.guards(request):
            await self.check(request, is_last=True)
        response: Response = await download(request)
        return response

    def guards(self, request: Request) -> bool:
        """Tell whether a request is checked.

        It came over HTTP, it is for the robots.txt that is read for one that did, or all are.
        """
        leg = leg_of(request)
        if leg is not None:
            is_outside = _is_from_outside(leg)
            if is_outside or _guarded.get() is not None:
                _guarded.set(leg if is_outside else None)
            return (is_outside or self.is_public_only) and NO_DOWNLOAD not in request.meta
        return self.is_public_only or (site_feedback.is_robots(request) and _is_for_guarded())

    async def check(self, request: Request, *, is_last: bool = False) -> None:
        """Check where a request leads; before a proxy is known, a host may have no address here.

        Raises:
            RefusedAddressError: saying where it leads, and which setting would allow that.
            OSError: the host has no address; it is tried again as any such download.

        """
        parts = urlparse_cached(request)
        scheme = parts.scheme.lower()
        if scheme not in schemes.WEB:
            self._check_other(request, scheme, parts.netloc.lower())
            return
        try:
            host, port = (parts.hostname or "").removesuffix("."), parts.port or _PORTS[scheme]
        except ValueError as error:
            raise RefusedAddressError(f"{request.url:.200}: {error}") from None
        if self._has_name(host, port):
            return
        if (address := hosts.address_of(host)) is not None:
            found = {address}
        elif "\\" in parts.netloc or not hosts.is_plain_name(host):
            self._refuse(request, f"{host!r:.100}, which is not written as hosts are")
        else:
            found = await addresses_of(_host_as_sent(parts.netloc))
            if not found and is_last and not request.meta.get("proxy"):
                raise OSError(f"the host {host!r} has no address")
        if (self._private(found, port) is not None) and not self.start_ended.is_set():
            await self._wait_for_start()
            if self._has_name(host, port):
                return
        self._check_addresses(request, found, port)

    def check_answer(self, request: Request, response: Response) -> None:
        """Check which address a response came from, where a handler looked its host up by itself.

        Raises:
            RefusedAddressError: it came from where the request may not lead.

        """
        if response.ip_address is None or request.meta.get("proxy"):
            return
        parts = urlparse_cached(request)
        host, port = (
            (parts.hostname or "").removesuffix("."),
            parts.port or _PORTS.get(parts.scheme),
        )
        if not self._has_name(host, port):
            self._check_addresses(request, [ip_address(str(response.ip_address))], port)

    def _check_other(self, request: Request, scheme: str, place: str) -> None:
        """Check a request of another scheme than http and https."""
        if scheme == _NOWHERE or any(one.has_place(scheme, place) for one in self.allowed):
            return
        leg = leg_of(request)
        if scheme in self._schemes and not (leg is not None and _is_from_outside(leg)):
            return
        self._refuse(request, f"the scheme {scheme!r}", f"{scheme}://{place}")

    def _has_name(self, host: str, port: int | None) -> bool:
        return host in self._names or any(one.has_name(host, port) for one in self.allowed)

    def _private(self, found: Iterable[Address], port: int | None) -> Address | None:
        """Return an address that is not of the public Internet, and not exempt."""
        for address in found:
            if hosts.kind_of(address) is None or address in self._addresses:
                continue
            if not any(one.has_address(address, port) for one in self.allowed):
                return address
        return None

    def _check_addresses(
        self, request: Request, found: Iterable[Address], port: int | None
    ) -> None:
        address = self._private(found, port)
        if address is not None:
            what = f"{address}, which is {hosts.kind_of(address)}"
            self._refuse(request, what, urlparse_cached(request).hostname or str(address))

    async def _wait_for_start(self) -> None:
        """Wait for the end of `start()`, which may yet name the host."""
        try:
            await asyncio.wait_for(self.start_ended.wait(), _LONGEST_START)
        except TimeoutError:
            return

    def _refuse(self, request: Request, where: str, allowing: str = "") -> None:
        leg = leg_of(request)
        if self.is_public_only and (leg is None or not _is_from_outside(leg)):
            why = "ITEMGRAPH_PUBLIC_ONLY keeps this crawl to the public web"
        else:
            why = "its item was made or changed over HTTP, and may lead to the public web alone"
        hint = f"; if it is meant, add {allowing!r:.200} to ITEMGRAPH_ALLOWED_HOSTS"
        raise RefusedAddressError(
            f"{request.url:.200} leads to {where}: {why}{hint if allowing else ''}"
        )


def _is_from_outside(leg: Leg) -> bool:
    """Tell whether a leg's request, or where it was redirected from, came over HTTP."""
    claim = leg.execution.claim
    return leg.is_own and claim is not None and claim.item.is_from_outside


def _is_for_guarded() -> bool:
    """Tell whether what runs here serves the fetch of a request that is checked."""
    leg = _guarded.get()
    return leg is not None and leg.fetch is not None and not leg.fetch.done()


def _host_as_sent(netloc: str) -> str:
    """Return the host of a URL as it is written there, which is how the handlers look it up."""
    return netloc.rpartition("@")[2].partition(":")[0]


# Looking hosts up


async def addresses_of(host: str) -> set[Address]:
    """Return all addresses of a host: what Twisted's resolver has, and the system's; or none."""
    found = await _of_reactor(host) if "twisted.internet.reactor" in sys.modules else set()
    loop = asyncio.get_running_loop()
    try:
        answers = await loop.getaddrinfo(host, None)
    except (OSError, UnicodeError):
        return found
    return found | {ip_address(str(answer[4][0]).partition("%")[0]) for answer in answers}


async def _of_reactor(host: str) -> set[Address]:
    """Return what Twisted's resolver has, from whose cache a download has it again."""
    from twisted.internet import reactor  # noqa: PLC0415 - an import installs it

    receiver = _Receiver()
    resolver: Any = reactor
    resolver.nameResolver.resolveHostName(receiver, host)
    await receiver.complete.wait()
    return receiver.found


class _Receiver:
    """Takes the addresses that Twisted's resolver finds."""

    def __init__(self) -> None:
        self.found: set[Address] = set()
        self.complete = asyncio.Event()

    def resolutionBegan(self, resolution: Any) -> None:  # noqa: N802 - Twisted's name
        """Do nothing."""

    def addressResolved(self, address: Any) -> None:  # noqa: N802 - Twisted's name
        """Take an address."""
        self.found.add(ip_address(address.host.partition("%")[0]))

    def resolutionComplete(self) -> None:  # noqa: N802 - Twisted's name
        """Take note that these are all."""
        self.complete.set()
