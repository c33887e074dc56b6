"""A role that may no more than a worker does, and whose rights can be taken away and given back."""

from __future__ import annotations

import uuid
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scrapy_itemgraph.model.roles import RoleKind
from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.postgres import grants, urls

if TYPE_CHECKING:
    from collections.abc import Iterator

    import sqlalchemy as sa

PASSWORD = "sesame"


@dataclass
class LittleRole:
    """A role, and the login by which it reaches the database."""

    name: str
    url: str
    _owner: sa.Engine

    def give(self) -> None:
        """Give it the rights of a worker."""
        with self._owner.begin() as connection:
            for statement in grants.of_kind(connection, RoleKind.WORKER, self.name).statements:
                connection.exec_driver_sql(statement)

    def take(self) -> None:
        """Take its rights to all tables away."""
        with self._owner.begin() as connection:
            connection.exec_driver_sql(
                f"REVOKE ALL ON ALL TABLES IN SCHEMA public FROM {self.name}"
            )


@contextmanager
def little_role(url: str) -> Iterator[LittleRole]:
    """Make a role of a database that has our schema, with a worker's rights."""
    engine = engines.sync_engine(url)
    name = f"little_{uuid.uuid4().hex[:8]}"
    with engine.begin() as connection:
        connection.exec_driver_sql(f"CREATE ROLE {name} LOGIN PASSWORD '{PASSWORD}'")
    its = urls.normalise_url(url).set(username=name, password=PASSWORD)
    one = LittleRole(name, its.render_as_string(hide_password=False), engine)
    try:
        one.give()
        yield one
    finally:
        with engine.begin() as connection:
            connection.exec_driver_sql(f"DROP OWNED BY {name}")
            connection.exec_driver_sql(f"DROP ROLE {name}")
        engine.dispose()
