"""URLs of databases: checked, with our driver, and told to people without their password."""

from __future__ import annotations

import re

import sqlalchemy as sa

from scrapy_itemgraph import exceptions
from scrapy_itemgraph.postgres.embedded_server import EmbeddedServer, serving
from scrapy_itemgraph.tools import url_secrets

DRIVER = "postgresql+psycopg"

SCHEMES = ("postgresql", "postgres", DRIVER)


def normalise_url(url: str) -> sa.URL:
    """Return the URL with our driver, or raise a ConfigurationError if it is not PostgreSQL's."""
    accepted = "postgresql://user:password@host:5432/database"
    try:
        parsed = sa.make_url(_with_hosts_apart(url))
    except (sa.exc.ArgumentError, ValueError, TypeError):
        # Not quoted: it may hold a password.
        raise exceptions.ConfigurationError(
            f"ITEMGRAPH_DATABASE_URL is no URL; give it as {accepted} (special characters in the "
            "password percent-encoded)."
        ) from None
    if url.partition("://")[2].partition("?")[0].count("@") > 1:
        # Not quoted: what stands there is a part of the password.
        raise exceptions.ConfigurationError(
            "ITEMGRAPH_DATABASE_URL has more than one @; write %40 for one in the password."
        )
    if parsed.drivername not in SCHEMES:
        raise exceptions.ConfigurationError(
            f"ITEMGRAPH_DATABASE_URL begins with {parsed.drivername!r}; only PostgreSQL is "
            f"supported: {accepted} (also postgres:// and {DRIVER}://)."
        )
    return _with_password_in_place(parsed.set(drivername=DRIVER))


def location(url: sa.URL, *, is_embedded: bool) -> str:
    """Return where a database is, for people: its URL, or the embedded server's directory."""
    if is_embedded and (server := embedded_server(url)):
        return str(server.cluster.directory)
    plain = url.set(drivername=SCHEMES[0])
    return url_secrets.shown(plain.render_as_string(hide_password=True))


def embedded_server(url: sa.URL) -> EmbeddedServer | None:
    """Return the embedded server that this process started or joined at a URL."""
    host = url.query.get("host")
    return serving(host) if isinstance(host, str) else None


def normalised(url: str | sa.URL) -> sa.URL:
    """Return a URL, given as text or parsed, with the driver that we use."""
    return normalise_url(url if isinstance(url, str) else url.render_as_string(hide_password=False))


# Several hosts, as libpq has them: host1:5432,host2:5433.
_HOSTS = re.compile(
    r"(?P<head>[^:/?#]+://(?:[^/?#]*@)?)(?P<hosts>[^@/?#]*,[^@/?#]*)(?P<tail>([/?].*)?)"
)
_HOST = re.compile(r"(\[.*\]|[^:]*):?(\d*)")


def _with_hosts_apart(url: str) -> str:
    """Return a URL of several hosts as SQLAlchemy takes it: with hosts and ports as options."""
    found = _HOSTS.fullmatch(url)
    parts = [_HOST.fullmatch(one) for one in found["hosts"].split(",")] if found else []
    if found is None or not all(parts):
        return url
    hosts = ",".join(one[1].strip("[]") for one in parts if one)
    ports = ",".join(one[2] or "5432" for one in parts if one)
    path, _, options = found["tail"].partition("?")
    return f"{found['head']}{path or '/'}?host={hosts}&port={ports}" + f"&{options}" * bool(options)


def _with_password_in_place(url: sa.URL) -> sa.URL:
    """Move a password given as an option to where everybody hides it; libpq prefers the option."""
    if (given := url.query.get("password")) is None:
        return url
    password = given if isinstance(given, str) else given[-1]
    return url.difference_update_query(["password"]).set(password=password)


def name(url: sa.URL) -> str:
    """Name the server of a URL to people: where it is, or that it is ours."""
    server = embedded_server(url)
    if server is not None:
        return f"The embedded PostgreSQL in {server.cluster.directory}"
    return f"The PostgreSQL server at {_place(url)}"


def _place(url: sa.URL) -> str:
    """Name the server, database and user of a URL."""
    host = url.query.get("host", url.host)
    named = host if isinstance(host, str) else ",".join(host) if host else "the default host"
    ports = url.query.get("port")
    if isinstance(ports, str) and "," in ports:
        hosts = zip(named.split(","), ports.split(","), strict=False)
        named = " or ".join(map(":".join, hosts))
    port = f":{url.port}" if url.port else ""
    user = f", user {url.username!r}" if url.username else ""
    return url_secrets.hidden(f"{named}{port} (database {url.database or 'default'!r}{user})")
