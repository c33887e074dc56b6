"""The database itself: making it, bringing its schema up to date, and who may do what."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from scrapy.settings import SETTINGS_PRIORITIES

from scrapy_itemgraph.commands.command import Argument, command
from scrapy_itemgraph.model.roles import RoleKind
from scrapy_itemgraph.tools import url_secrets

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy.settings import BaseSettings

    from scrapy_itemgraph.commands.call import Call
    from scrapy_itemgraph.connections.connect import Migrated

ADDON = "scrapy_itemgraph.Addon"
ADDON_LINE = f'ADDONS = {{"{ADDON}": 500}}'


@command()
def init(call: Call) -> None:
    """Make the database ready, and say where it is.

    Run again, it changes nothing. It says what settings.py lacks.
    """
    made = _migrate(call)
    missing = _missing_settings(call.scrapy_settings)
    call.write({**_document(made), "missing_settings": missing}, _init_lines(made, missing))


@command(Argument("--force", action="store_true", help="also while workers run: they will fail"))
def migrate(call: Call) -> None:
    """Bring the database's schema up to date.

    Stop the crawls first: older code does not work with a newer schema.
    """
    made = _migrate(call, force=call.given.force)
    call.write(_document(made), _lines(made))


@command(
    Argument(
        "kind", choices=[str(kind) for kind in RoleKind], metavar="KIND", help=", ".join(RoleKind)
    ),
    Argument("role", help="a role of the server, which is there already"),
    Argument("--apply", action="store_true", help="carry them out, as the owner of the tables"),
)
def grants(call: Call) -> None:
    """Print what gives a role of the server the rights of a kind of role.

    A manager migrates and may do everything; a worker crawls, and does all that commands do but
    migrate; a scheduler adds and changes items, and says what is to be done; read-only looks. What
    the role could do with the tables before is revoked.
    """
    with call.graph() as graph:
        given = graph.database.grants(call.given.kind, call.given.role, apply=call.given.apply)
    document = {"kind": given.kind, "role": given.role, "statements": given.statements}
    lines = [f"{statement};" for statement in given.statements]
    if call.given.apply:
        lines = [f"{given.role} has the rights of a {given.kind} role"]
    call.write({**document, "applied": call.given.apply}, lines)


@command(
    Argument("name", choices=["ssscrape"], metavar="NAME", help="in whose shape: ssscrape"),
    *(
        Argument(f"--{kind}", metavar="ROLE", help=f"a role of the server that is a {kind} there")
        for kind in RoleKind
    ),
    Argument("--drop", action="store_true", help="drop them; nothing of what they show is lost"),
    Argument("--apply", action="store_true", help="carry them out, as the owner of the tables"),
)
def views(call: Call) -> None:
    """Print what makes views of jobs and schedules in the shape of Ssscrape's tables.

    They stand in a schema of their own. Roles get rights to the views alone: a manager and a worker
    add jobs, and change their messages, a scheduler adds jobs, read-only looks.
    """
    given = {str(kind): getattr(call.given, kind.replace("-", "_")) for kind in RoleKind}
    roles = {kind: role for kind, role in given.items() if role is not None}
    with call.graph() as graph:
        statements = graph.database.views(
            call.given.name, roles=roles, drop=call.given.drop, apply=call.given.apply
        )
    lines = [f"{statement.strip()};" for statement in statements]
    if call.given.apply:
        lines = [f"the views {call.given.name}.* {'are gone' if call.given.drop else 'are there'}"]
    document = {"name": call.given.name, "statements": statements, "applied": call.given.apply}
    call.write(document, lines)


def _migrate(call: Call, *, force: bool = False) -> Migrated:
    # SQLAlchemy, which runs need not.
    from scrapy_itemgraph.graph import ItemGraph, Patience  # noqa: PLC0415

    with call.progress("migrate", "versions") as progress:
        return ItemGraph.migrate(
            call.settings.database.database_url,
            data_dir=call.settings.database.data_dir,
            postgres_bin=call.settings.database.postgres_bin,
            patience=Patience(call.note),
            reached=lambda done, total: progress.reach(done, total=total),
            force=force,
        )


def _document(made: Migrated) -> dict[str, Any]:
    return {
        "location": made.location,
        "is_embedded": made.is_embedded,
        "schema": made.after,
        "previous_schema": made.before,
    }


def _lines(made: Migrated) -> Iterator[str]:
    what = "the embedded PostgreSQL in " if made.is_embedded else ""
    yield f"The item graph is in {what}{made.location}"
    if made.before is None:
        yield f"Its schema was made: version {made.after}"
    elif made.before != made.after:
        yield f"Its schema was brought from version {made.before} to {made.after}"
    else:
        yield f"Its schema is up to date: version {made.after}"


def _init_lines(made: Migrated, missing: list[str]) -> Iterator[str]:
    yield from _lines(made)
    if missing:
        yield ""
        yield "Put into settings.py (into ADDONS, where there is one):"
        yield ""
        yield from (f"    {line}" for line in missing)
        if any(url_secrets.HIDDEN in line for line in missing):
            yield ""
            yield f"with the password for {url_secrets.HIDDEN}; left out, ~/.pgpass is asked for it"


def _missing_settings(settings: BaseSettings) -> list[str]:
    """Return the lines that a crawl of the project needs in its settings to come here."""
    addon = [] if _has_addon(settings) else [ADDON_LINE]
    return addon + [
        f"{name} = {json.dumps(url_secrets.shown(str(settings[name])), ensure_ascii=False)}"
        for name in ("ITEMGRAPH_DATABASE_URL", "ITEMGRAPH_DATA_DIR")
        if settings.getpriority(name) == SETTINGS_PRIORITIES["cmdline"]
    ]


def _has_addon(settings: BaseSettings) -> bool:
    """Tell whether ADDONS has ours, as a path or as the class."""
    return any(
        key in {ADDON, "scrapy_itemgraph.addon.Addon"}
        or getattr(key, "__module__", None) == "scrapy_itemgraph.addon"
        for key, order in settings.getdict("ADDONS").items()
        if order is not None
    )
