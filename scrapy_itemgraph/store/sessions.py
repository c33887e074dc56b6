"""Sessions: cookie jars and spider state of a crawl, shared by its processes, and who logs in.

All functions take a connection and never commit. The last write wins, per cookie and per key of
the state; what was deleted stays as a row without a value, so that other processes drop it too.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from scrapy_itemgraph.model.types import Cookie
from scrapy_itemgraph.store.liveness_conditions import IS_DEAD

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from datetime import datetime

    from sqlalchemy import Connection, Row

# What a primary key of cookies or states may have: an index of PostgreSQL takes 2,704 bytes a row.
MAX_KEY_BYTES = 2000

_LATEST = 32_503_680_000.0  # the year 3000

_IPV4 = re.compile(r"\.\d+$", re.ASCII)  # as http.cookiejar tells an address from a name

SAVE_COOKIES = text("""
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

SAVE_STATE = text("""
    INSERT INTO states (crawl_id, key, value, changed_at)
    SELECT :crawl, key, CAST(value AS json), clock_timestamp()
    FROM unnest(CAST(:keys AS text[]), CAST(:values AS text[])) AS changed(key, value)
    ON CONFLICT (crawl_id, key)
        DO UPDATE SET value = excluded.value, changed_at = excluded.changed_at
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

# What changed since, and a minute before: who wrote then may have committed later.
STATE = text("""
    SELECT key, CAST(value AS text) AS value, changed_at FROM states
    WHERE crawl_id = :crawl AND (CAST(:since AS timestamptz) IS NULL
        OR changed_at > CAST(:since AS timestamptz) - interval '1 minute')
""")

MAKE_LOGIN = text("""
    INSERT INTO logins (crawl_id, generation) VALUES (:crawl, :generation)
    ON CONFLICT (crawl_id) DO NOTHING
""")

LOCK_LOGIN = text("SELECT generation FROM logins WHERE crawl_id = :crawl FOR NO KEY UPDATE")

# After the lock and in a statement of its own: it must see who else came and who died meanwhile.
BEGIN_LOGIN = text(f"""
    UPDATE logins l SET worker_id = :worker
    WHERE l.crawl_id = :crawl AND (l.worker_id IS NULL OR l.worker_id = :worker OR NOT EXISTS (
        SELECT FROM workers w WHERE w.id = l.worker_id AND NOT {IS_DEAD}))
""")  # noqa: S608 - our own condition

END_LOGIN = text("""
    UPDATE logins
    SET worker_id = NULL,
        generation = generation + CAST(:renewed AS int),
        renewed_at = CASE WHEN :renewed THEN clock_timestamp() ELSE renewed_at END
    WHERE crawl_id = :crawl AND worker_id = :worker
""")

FREE_LOGIN = text(
    "UPDATE logins SET worker_id = NULL WHERE worker_id = ANY (CAST(:workers AS int[]))"
)

# What a worker has to know before it claims.
BEFORE_CLAIM = text("""
    SELECT EXISTS (SELECT FROM cookies c WHERE c.crawl_id = :crawl) AS has_cookies,
        EXISTS (SELECT FROM logins l
            WHERE l.crawl_id = :crawl AND l.worker_id <> :worker) AS others_log_in,
        (SELECT names_freed FROM crawls WHERE id = :crawl) AS names_freed
""")

LOGIN = text("SELECT generation, worker_id FROM logins WHERE crawl_id = :crawl")


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


def save(
    connection: Connection,
    crawl_id: int,
    cookies: Sequence[Cookie],
    state: Mapping[str, str | None],
) -> None:
    """Save changed cookies and keys of the state; None is a key that was deleted.

    The keys are sorted, so that two writers wait for each other and do not deadlock.
    """
    if cookies:
        last = {(one.jar, one.domain, one.path, one.name): one for one in cookies}
        keys = sorted(last)
        connection.execute(
            SAVE_COOKIES,
            {
                "crawl": crawl_id,
                "jars": [jar for jar, *_ in keys],
                "domains": [domain for _, domain, *_ in keys],
                "paths": [path for *_, path, _ in keys],
                "names": [name for *_, name in keys],
                "cookies": [last[key].cookie for key in keys],
                "expires": [_expires(last[key]) for key in keys],
            },
        )
    if state:
        texts = sorted(state)
        given = {"crawl": crawl_id, "keys": texts, "values": [state[key] for key in texts]}
        connection.execute(SAVE_STATE, given)


def _expires(cookie: Cookie) -> float | None:
    """Return when a cookie expires, as far as that is a time at all."""
    return None if cookie.expires is None else min(max(0.0, float(cookie.expires)), _LATEST)


def load_cookies(
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
    rows: list[Row[Any]] = []
    if new:
        rows += connection.execute(COOKIES, _wanted(crawl_id, new))
    if known:
        given = _wanted(crawl_id, known) | {"since": list(known.values())}
        rows += connection.execute(CHANGED_COOKIES, given)
    found = [
        Cookie(jar=row.jar, domain=row.domain, path=row.path, name=row.name, cookie=row.cookie)
        for row in rows
        if row.jar is not None
    ]
    return found, min((row.read_at for row in rows), default=None)


def _wanted(crawl_id: int, pairs: Iterable[tuple[str, str]]) -> dict[str, Any]:
    jars, domains_ = zip(*pairs, strict=True)
    return {
        "crawl": crawl_id,
        "jars": list(jars),
        "domains": list(domains_),
        "most": MOST_COOKIES,
    }


def load_state(
    connection: Connection, crawl_id: int, since: datetime | None = None
) -> tuple[dict[str, str | None], datetime | None]:
    """Return the state that changed since, by key, and when it last did; None was deleted."""
    rows = connection.execute(STATE, {"crawl": crawl_id, "since": since}).all()
    state = {row.key: row.value for row in rows}
    return state, max((row.changed_at for row in rows), default=since)


def before_claim(connection: Connection, crawl_id: int, worker_id: int) -> tuple[bool, bool, int]:
    """Return whether the crawl has cookies, whether another worker logs in just now.

    And how many commits have freed names.
    """
    row = connection.execute(BEFORE_CLAIM, {"crawl": crawl_id, "worker": worker_id}).one()
    return row.has_cookies, row.others_log_in, row.names_freed or 0


def begin_login(
    connection: Connection, crawl_id: int, worker_id: int, generation: int
) -> tuple[bool, int]:
    """Become the one that logs in, if this is the current generation and nobody alive does it.

    Returns whether that is so, and the current generation.
    """
    connection.execute(MAKE_LOGIN, {"crawl": crawl_id, "generation": generation})
    current: int = connection.execute(LOCK_LOGIN, {"crawl": crawl_id}).scalar_one()
    if current != generation:
        return False, current
    taken = connection.execute(BEGIN_LOGIN, {"crawl": crawl_id, "worker": worker_id}).rowcount
    return taken > 0, current


def end_login(connection: Connection, crawl_id: int, worker_id: int, *, renewed: bool) -> int:
    """Let others log in again, and return the current generation: a new one when renewed.

    A worker that was given up for dead meanwhile changes nothing.
    """
    given = {"crawl": crawl_id, "worker": worker_id, "renewed": renewed}
    connection.execute(END_LOGIN, given)
    return login_state(connection, crawl_id)[0]


def free_login(connection: Connection, worker_ids: Collection[int]) -> None:
    """Take the login from workers that died or stopped."""
    if worker_ids:
        connection.execute(FREE_LOGIN, {"workers": list(worker_ids)})


def login_state(connection: Connection, crawl_id: int) -> tuple[int, int | None]:
    """Return the current generation of the login, and the worker that logs in just now."""
    row = connection.execute(LOGIN, {"crawl": crawl_id}).first()
    return (row.generation, row.worker_id) if row else (0, None)
