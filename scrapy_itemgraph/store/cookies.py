"""Cookie jars of a crawl, shared by its processes; the last write of a cookie wins.

What was deleted stays as a row without a value, so that other processes drop it too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from scrapy_itemgraph.model.cookies import Cookie, domains
from scrapy_itemgraph.store.columns import columns

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from sqlalchemy import Connection


_LATEST = 32_503_680_000.0  # the year 3000


SAVE = text("""
    INSERT INTO cookies (crawl_id, jar, domain, path, name, cookie, changed_at, expires_at)
    SELECT :crawl, jar, domain, path, name, CAST(cookie AS json), clock_timestamp(),
        CASE WHEN cookie IS NULL THEN clock_timestamp() ELSE to_timestamp(expires) END
    FROM unnest(CAST(:jars AS text[]), CAST(:domains AS text[]), CAST(:paths AS text[]),
        CAST(:names AS text[]), CAST(:cookies AS text[]), CAST(:expires AS float8[]))
        AS changed(jar, domain, path, name, cookie, expires)
    ON CONFLICT (crawl_id, jar, domain, path, name)
        DO UPDATE SET cookie = excluded.cookie, changed_at = excluded.changed_at,
            expires_at = excluded.expires_at
""")


# More of a domain are not read: no server takes as many in one request. The general ones first.
MOST_COOKIES = 3000
RANKED = "cookie IS NULL, length(path), changed_at DESC"

# What has not expired. There is one row at least, which says when it was read.
COOKIES = text(f"""
    SELECT clock_timestamp() AS read_at, found.jar, found.domain, found.path, found.name,
        CAST(found.cookie AS text) AS cookie
    FROM (SELECT) AS once
    LEFT JOIN (
        SELECT c.* FROM unnest(CAST(:jars AS text[]), CAST(:domains AS text[]))
            AS wanted(jar, domain)
        CROSS JOIN LATERAL (
            SELECT * FROM cookies
            WHERE cookies.crawl_id = :crawl AND cookies.jar = wanted.jar
                AND cookies.domain = wanted.domain
                AND (cookies.cookie IS NULL OR cookies.expires_at IS NULL
                    OR cookies.expires_at > (SELECT clock_timestamp()))
            ORDER BY {RANKED} LIMIT :most) AS c) AS found ON true
""")  # noqa: S608 - our own order

# Of what was read before, what changed since, expired or not; whoever wrote shortly before may have
# committed later.
CHANGED_COOKIES = text("""
    SELECT clock_timestamp() AS read_at, found.jar, found.domain, found.path, found.name,
        CAST(found.cookie AS text) AS cookie
    FROM (SELECT) AS once
    LEFT JOIN (
        SELECT c.* FROM unnest(CAST(:jars AS text[]), CAST(:domains AS text[]),
            CAST(:since AS timestamptz[])) AS wanted(jar, domain, since)
        CROSS JOIN LATERAL (
            SELECT * FROM cookies
            WHERE cookies.crawl_id = :crawl AND cookies.jar = wanted.jar
                AND cookies.domain = wanted.domain
                AND cookies.changed_at > wanted.since - interval '5 minutes'
            ORDER BY cookies.changed_at DESC LIMIT :most) AS c) AS found ON true
""")


def save(connection: Connection, crawl_id: int, cookies: Sequence[Cookie]) -> None:
    """Save changed cookies.

    Their keys are sorted, so that two writers wait for each other and do not deadlock.
    """
    if cookies:
        last = {(one.jar, one.domain, one.path, one.name): one for one in cookies}
        keys = sorted(last)
        given = columns(keys, jars=0, domains=1, paths=2, names=3)
        given["cookies"] = [last[key].cookie for key in keys]
        given["expires"] = [_expires(last[key]) for key in keys]
        connection.execute(SAVE, {"crawl": crawl_id, **given})


def _expires(cookie: Cookie) -> float | None:
    """Return when a cookie expires, as far as that is a time at all."""
    return None if cookie.expires is None else min(max(0.0, float(cookie.expires)), _LATEST)


def load(
    connection: Connection, crawl_id: int, wanted: Mapping[tuple[str, str], datetime | None]
) -> tuple[list[Cookie], datetime | None]:
    """Return the cookies, deleted ones too, that could be sent from a jar to a host, and when.

    Of a host that was read before, given when, only what may have changed since; of one domain at
    most three thousand. Nothing wanted is not read.
    """
    pairs: dict[tuple[str, str], datetime | None] = {}
    for (jar, host), since in wanted.items():
        for domain in domains(host):
            before = pairs.get((jar, domain), since)
            is_known = since is not None and before is not None
            pairs[jar, domain] = min(since, before) if is_known else None  # type: ignore[type-var]
    new = [pair for pair, since in pairs.items() if since is None]
    known = {pair: since for pair, since in pairs.items() if since is not None}
    asked = [(COOKIES, _wanted(crawl_id, new))] if new else []
    if known:
        given = _wanted(crawl_id, known) | {"since": list(known.values())}
        asked.append((CHANGED_COOKIES, given))
    rows = [row for statement, given in asked for row in connection.execute(statement, given)]
    cookies = [
        Cookie(jar=jar, domain=domain, path=path, name=name, cookie=cookie)
        for _, jar, domain, path, name, cookie in rows
        if jar is not None
    ]
    return cookies, min((row.read_at for row in rows), default=None)


def _wanted(crawl_id: int, pairs: Iterable[tuple[str, str]]) -> dict[str, Any]:
    return {"crawl": crawl_id, "most": MOST_COOKIES, **columns(pairs, jars=0, domains=1)}
