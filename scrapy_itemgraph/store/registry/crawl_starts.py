"""Which crawl a start belongs to: that of its spider and arguments, or one that it joins."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import text

from scrapy_itemgraph.exceptions import ConfigurationError, OperationError
from scrapy_itemgraph.model import crawl_arguments, input_checks
from scrapy_itemgraph.store.registry.crawls import HAS_WORK, find_crawl, make_crawl
from scrapy_itemgraph.store.registry.runs import OTHERS_LIVE
from scrapy_itemgraph.store.sql_conditions import IS_DEAD

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import Connection

    from scrapy_itemgraph.model.crawl_arguments import CrawlStart
    from scrapy_itemgraph.store.registry.jobs import RunnersJob

MANY = 100  # crawls of a spider, from which on a start says how there will be fewer

SALT = text("SELECT salt FROM salts")

# Crawls are made one after the other: of two equal starts at once the second finds the first's.
MAKE_ALONE = text("SELECT FROM salts FOR UPDATE")

BY_IDENTITY = text("SELECT id, name, state FROM crawls WHERE identity = :identity")

LOCK = text("""
    SELECT id, spider, given, arguments, identity, state FROM crawls WHERE name = :name FOR UPDATE
""")

SET_GIVEN = text("""
    UPDATE crawls SET spider = :spider, given = CAST(:given AS json),
        identity = coalesce(identity, CAST(:identity AS text))
    WHERE id = :crawl
""")

UNCOUNTED_OF_OTHERS = text(f"""
    SELECT w.spider, w.uncounted FROM processes p JOIN workers w ON w.id = p.id
    WHERE p.crawl_id = :crawl AND p.stopped_at IS NULL AND w.uncounted <> '{{}}' AND NOT {IS_DEAD}
    ORDER BY p.id LIMIT 1
""")  # noqa: S608 - our own condition

COUNT = text("SELECT count(*) FROM crawls WHERE spider = :spider")


class Started(NamedTuple):
    """The crawl of a start, its name, and what a person should know of it.

    `state` is that of `model.crawl_states`, None where nobody steers the crawl.
    """

    crawl_id: int
    name: str
    warnings: tuple[str, ...] = ()
    state: str | None = None


def look(connection: Connection, start: CrawlStart) -> tuple[int | None, str]:
    """Return the number of a start's crawl, None where there is none yet, and its name."""
    if start.name is not None:
        return find_crawl(connection, start.name), start.name
    arguments = _arguments(connection, start)
    known = connection.execute(BY_IDENTITY, {"identity": _identity(start, arguments)}).first()
    if known is not None:
        return known.id, known.name
    name = crawl_arguments.label(start.spider, arguments)
    return find_crawl(connection, name), name


def find_or_make(connection: Connection, start: CrawlStart) -> Started:
    """Return the crawl of a start, which is made where there is none.

    Raises:
        ConfigurationError: it would join work of other arguments.
        InvalidIdError: its name cannot be a new crawl's.

    """
    arguments = _arguments(connection, start)
    if start.name is not None:
        return _join(connection, start, arguments)
    identity = _identity(start, arguments)
    known = connection.execute(BY_IDENTITY, {"identity": identity}).first()
    if known is not None:
        return Started(known.id, known.name, state=known.state)
    return _make_own(connection, start, arguments)


def of_job(connection: Connection, job: RunnersJob, start: CrawlStart) -> Started:
    """Return the crawl of a runner's job, and keep what its process was started with."""
    arguments = _arguments(connection, start)
    _set_given(connection, job.crawl_id, start, arguments, identity=None)
    return Started(job.crawl_id, job.crawl, state=job.state)


def make(connection: Connection, start: CrawlStart) -> Started:
    """Return the crawl that a start is to be queued as: a new one, or that of before.

    Two named crawls may have the same spider and arguments; a start by hand joins the first one.

    Raises:
        OperationError: the name is that of a crawl with another spider, or other arguments.
        InvalidIdError: it cannot be a crawl's name.

    """
    if start.name is None:
        return find_or_make(connection, start)
    arguments = _arguments(connection, start)
    identity = _identity(start, arguments)
    crawl_id = make_crawl(connection, start.name)
    row = connection.execute(LOCK, {"name": start.name}).one()
    known = row.spider is not None and row.given is not None
    if known and (row.spider, _of(row.given)) != (start.spider, arguments):
        raise OperationError(
            f"the name {start.name!r} is that of a crawl of the spider {row.spider}, with other "
            f"arguments ({crawl_arguments.as_options(_of(row.given))}); choose another name"
        )
    connection.execute(MAKE_ALONE)
    first = connection.execute(BY_IDENTITY, {"identity": identity}).first()
    free = first is None or first.id == crawl_id
    _set_given(connection, crawl_id, start, arguments, identity=identity if free else None)
    return Started(crawl_id, start.name)


def refuse_beside_others(connection: Connection, crawl_id: int, start: CrawlStart) -> None:
    """Refuse a start while another one works on its crawl, if arguments of either do not count.

    The caller has locked the crawl's row, and registers the worker after this.

    Raises:
        ConfigurationError: another one does.

    """
    here = {"crawl": crawl_id}
    spider, which, names = start.spider, "this one", start.uncounted
    if not names:
        other = connection.execute(UNCOUNTED_OF_OTHERS, here).first()
        if other is None:
            return
        spider, which, names = other.spider, "that one", other.uncounted
    elif not connection.scalar(OTHERS_LIVE, here):
        return
    raise ConfigurationError(
        f"another start of the spider {spider} runs in the same crawl, because {which} differs in "
        f"arguments that do not count: {', '.join(names)}. Each would take pages of the other. Let "
        "the other one end first; or give their values as text, numbers, dates, lists, dicts or "
        "dataclasses; or give each start a crawl by ITEMGRAPH_CRAWL; or, if they do not change "
        f"which pages are crawled, set ITEMGRAPH_IGNORED_ARGUMENTS = {','.join(names)!r}"
    )


def _arguments(connection: Connection, start: CrawlStart) -> dict[str, str]:
    """Return arguments as they are stored; the salt is asked for where there are some."""
    salt = str(connection.execute(SALT).scalar_one()) if start.given else ""
    return crawl_arguments.shown(start.given, salt)


def _identity(start: CrawlStart, arguments: Mapping[str, str]) -> str:
    return crawl_arguments.identity(start.spider, arguments)


def _join(connection: Connection, start: CrawlStart, arguments: dict[str, str]) -> Started:
    """Join the crawl that ITEMGRAPH_CRAWL names, unless others' work waits there."""
    assert start.name is not None
    crawl_id = make_crawl(connection, start.name)
    row = connection.execute(LOCK, {"name": start.name}).one()
    warnings = []
    if _differs(row, start, arguments):
        is_known = row.given is not None
        before = crawl_arguments.as_options(_of(row.given)) if is_known else "not known"
        if _is_at_work(connection, crawl_id):
            typed = f"{shlex.quote(start.spider)} {before if _of(row.given) else ''}".rstrip()
            first = f": scrapy crawl {typed}" if is_known else ", with the arguments of before"
            raise ConfigurationError(
                f"the crawl {start.name!r}, which ITEMGRAPH_CRAWL joins, has work of a start with "
                f"other arguments ({before}). Let that end first{first}; or drop it: scrapy "
                f"itemgraph restart {shlex.quote(start.name)} --yes; or leave ITEMGRAPH_CRAWL "
                "out, and each arguments' work is a crawl of its own"
            )
        now = crawl_arguments.as_options(arguments)
        warnings.append(
            f"The crawl {start.name!r} goes on with other arguments ({now}) than its last run "
            f"({before}), for ITEMGRAPH_CRAWL joins them"
        )
    _set_given(connection, crawl_id, start, arguments, identity=None)
    return Started(crawl_id, start.name, tuple(warnings), row.state)


def _differs(row: Any, start: CrawlStart, arguments: Mapping[str, str]) -> bool:
    """Tell whether a crawl's last start had other arguments.

    Of a crawl of before there are digests of attributes alone: an argument tells by its own one.
    """
    if row.given is not None:
        return bool(row.spider == start.spider and row.given != arguments)
    old = _of(row.arguments)
    now = {**start.old_digests, **crawl_arguments.old_digests(start.given)}
    return any(old.get(name, now[name]) != now[name] for name in start.given if name in now)


def _typed(start: CrawlStart, arguments: Mapping[str, str]) -> str:
    """Return a spider with its arguments, as `scrapy crawl` takes them."""
    options = crawl_arguments.as_options(arguments) if arguments else ""
    return f"{shlex.quote(start.spider)} {options}".rstrip()


def _is_at_work(connection: Connection, crawl_id: int) -> bool:
    here = {"crawl": crawl_id}
    return bool(connection.scalar(HAS_WORK, here) or connection.scalar(OTHERS_LIVE, here))


def _make_own(connection: Connection, start: CrawlStart, arguments: dict[str, str]) -> Started:
    """Make the crawl of a spider's arguments, or adopt the one that an earlier version made."""
    warnings = []
    connection.execute(MAKE_ALONE)
    made = connection.execute(BY_IDENTITY, {"identity": _identity(start, arguments)}).first()
    if made is not None:
        return Started(made.id, made.name, state=made.state)
    old = connection.execute(LOCK, {"name": start.spider}).first()
    if old is not None and old.given is None:
        if _was_made_by(old.arguments, start):
            _set_given(connection, old.id, start, arguments, identity=_identity(start, arguments))
            return Started(old.id, start.spider, state=old.state)
        warnings.append(
            f"The crawl {start.spider!r}, which was there before, is not known to be of these "
            "arguments, so this start has a crawl of its own; to join the other one: scrapy crawl "
            f"{_typed(start, arguments)} -s ITEMGRAPH_CRAWL={shlex.quote(start.spider)}"
        )
    name = _free_name(connection, start, arguments)
    crawl_id = make_crawl(connection, name)
    row = connection.execute(LOCK, {"name": name}).one()
    if row.identity not in {None, _identity(start, arguments)}:
        raise ConfigurationError(
            f"the name {name!r} is that of another spider's crawl; give this spider a crawl with "
            "ITEMGRAPH_CRAWL"
        )
    _set_given(connection, crawl_id, start, arguments, identity=_identity(start, arguments))
    count = connection.execute(COUNT, {"spider": start.spider}).scalar_one()
    if count > MANY and start.given:
        warnings.append(
            f"The spider {start.spider} has {count:,} crawls, one for each of its arguments "
            f"({', '.join(start.given)}). ITEMGRAPH_IGNORED_ARGUMENTS names those that make none; "
            "scrapy itemgraph crawls delete removes old ones"
        )
    return Started(crawl_id, name, tuple(warnings), row.state)


def _free_name(connection: Connection, start: CrawlStart, arguments: dict[str, str]) -> str:
    """Return the name of a new crawl; without arguments the spider's may be an old crawl's."""
    name = crawl_arguments.label(start.spider, arguments)
    row = connection.execute(LOCK, {"name": name}).first()
    if row is None or (row.identity is None and row.given == arguments):
        return name
    return f"{name}:own" if not arguments else f"{name}-own"


def _was_made_by(stored: Any, start: CrawlStart) -> bool:
    """Tell whether an earlier version would have kept this of such a start."""
    digests = _of(stored)
    given = crawl_arguments.old_digests(start.given)
    return digests in (given, dict(start.old_digests))


def _of(stored: Any) -> dict[str, str]:
    """Return stored arguments; nothing where somebody has put something else in their place."""
    return stored if isinstance(stored, dict) else {}


def _set_given(
    connection: Connection,
    crawl_id: int,
    start: CrawlStart,
    arguments: Mapping[str, str],
    *,
    identity: str | None,
) -> None:
    given = {"crawl": crawl_id, "spider": start.spider, "identity": identity}
    connection.execute(SET_GIVEN, {**given, "given": input_checks.write_json(dict(arguments))})
