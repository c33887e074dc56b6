"""`graph.database`: what concerns the database as a whole, and no crawl."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_itemgraph.exceptions import OperationError
from scrapy_itemgraph.model.roles import RoleKind
from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.postgres import grants as role_grants
from scrapy_itemgraph.postgres import ssscrape_views

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from sqlalchemy import Connection

    from scrapy_itemgraph.connections.transactions import BlockingTransactions
    from scrapy_itemgraph.model.roles import Grants


class Database:
    """Tells the database's time, whether it answers, and gives rights to roles."""

    def __init__(self, transactions: BlockingTransactions) -> None:
        self._transactions = transactions

    def now(self) -> datetime:
        """Return the present moment by the database's clock."""
        moment: datetime = self._transactions.call(lambda c: c.scalar(engines.NOW))
        return moment

    def ping(self) -> None:
        """Ask the database something that costs nothing.

        Raises:
            DatabaseError: it does not answer.

        """
        self._transactions.call(lambda connection: connection.execute(engines.NOW))

    def grants(self, kind: str, role: str, *, apply: bool = False) -> Grants:
        """Return what gives a role the rights of a kind of role; carry it out if `apply`.

        Raises:
            NotFoundError: there is no such role.
            OperationError: there is no such kind, or somebody else owns the tables.

        """
        known = _kind(kind)

        def given(connection: Connection) -> Grants:
            found = role_grants.of_kind(connection, known, role)
            if apply:
                role_grants.apply(connection, found.statements, roles=[role])
            return found

        return self._transactions.call(given)

    def views(
        self,
        name: str,
        *,
        roles: Mapping[str, str] | None = None,
        drop: bool = False,
        apply: bool = False,
    ) -> tuple[str, ...]:
        """Return the statements that make views for other programs; carry them out if `apply`.

        `name` is "ssscrape". `roles` are names of the server's roles by kind: each gets the rights
        of its kind to the views, and none to the tables. With `drop` the views are dropped.

        Raises:
            NotFoundError: there is no such role.
            OperationError: there are no such views or kinds, or somebody else owns the tables.

        """
        if name != ssscrape_views.SCHEMA:
            raise OperationError(f"there are no views {name!r}; there are: {ssscrape_views.SCHEMA}")
        kinds = {_kind(kind): role for kind, role in (roles or {}).items()}

        def given(connection: Connection) -> tuple[str, ...]:
            schema = role_grants.schema(connection)
            found = ssscrape_views.drop() if drop else ssscrape_views.make(schema, kinds)
            if apply:
                role_grants.apply(connection, found, roles=list(kinds.values()))
            return found

        return self._transactions.call(given)


def _kind(given: str) -> RoleKind:
    """Return a kind of role.

    Raises:
        OperationError: there is no such kind.

    """
    if given not in set(RoleKind):
        kinds = ", ".join(RoleKind)
        raise OperationError(f"there is no kind of role {given!r}; the kinds are {kinds}")
    return RoleKind(given)
