"""Proxies: what tells that a request came through one.

Nothing proves that it did not: a proxy may add nothing. So this is a second line behind tokens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

# Headers that proxies, balancers, tunnels and content delivery networks add, and no browser does.
_NAMES = {
    "cdn-loop",
    "client-ip",
    "forwarded",
    "forwarded-for",
    "front-end-https",
    "remote-user",
    "true-client-ip",
    "via",
    "wl-proxy-client-ip",
    "x-arr-ssl",
    "x-client-ip",
    "x-cloud-trace-context",
    "x-cluster-client-ip",
    "x-host",
    "x-http-host-override",
    "x-originating-ip",
    "x-real-ip",
    "x-remote-addr",
    "x-remote-ip",
    "x-remote-user",
    "x-rewrite-url",
    "x-scheme",
    "x-url-scheme",
    "x-varnish",
}
_BEGINNINGS = (
    "cf-",  # Cloudflare
    "cloudfront-",
    "fastly-",
    "fly-",
    "tailscale-",
    "x-amz-cf-",
    "x-amzn-",
    "x-appengine-",
    "x-arr-",
    "x-auth-request-",  # OAuth2 Proxy
    "x-azure-",
    "x-envoy-",
    "x-forwarded",  # X-Forwarded, -By, -For, -Host, -Port, -Prefix, -Proto, -Scheme, -Server, …
    "x-original-",
    "x-proxy",
    "x-vercel-",
)


def show_proxy(headers: Iterable[str]) -> bool:
    """Tell whether one of the names of a request's headers, in lower case, is a proxy's."""
    return any(name in _NAMES or name.startswith(_BEGINNINGS) for name in headers)
