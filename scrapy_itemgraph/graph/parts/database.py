"""`graph.database`: what concerns the database as a whole, and no crawl."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_itemgraph.exceptions import OperationError
from scrapy_itemgraph.model.roles import RoleKind
from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.postgres import grants as role_grants

if TYPE_CHECKING:
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
        if kind not in set(RoleKind):
            kinds = ", ".join(RoleKind)
            raise OperationError(f"there is no kind of role {kind!r}; the kinds are {kinds}")

        def given(connection: Connection) -> Grants:
            found = role_grants.of_kind(connection, RoleKind(kind), role)
            if apply:
                role_grants.apply(connection, found)
            return found

        return self._transactions.call(given)
