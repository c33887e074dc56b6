"""What tables share: the metadata, columns of moments and of HTTP statuses, and a check."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import DDL, JSON, CheckConstraint, Column, DateTime, MetaData, event, func, text

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Table


metadata = MetaData(
    naming_convention={
        "pk": "%(table_name)s_pkey",
        "fk": "%(table_name)s_%(column_0_name)s_fkey",
        "uq": "%(table_name)s_%(column_0_N_name)s_key",
        "ck": "%(table_name)s_%(constraint_name)s_check",
    }
)


def moment(name: str, *, null: bool = True, now: bool = False) -> Column[datetime]:
    """Declare a column of a moment, with its time zone; with `now` that of the insertion."""
    default = func.now() if now else None
    return Column(name, DateTime(timezone=True), nullable=null and not now, server_default=default)


def statuses() -> Column[Any]:
    """Declare a column that counts requests by their HTTP status."""
    said = "how many requests by their HTTP status; none: they were not answered"
    empty = text("'{}'")
    return Column("statuses", JSON, nullable=False, server_default=empty, comment=said)


def stored(table: Table, **parameters: str) -> None:
    """Give a table storage parameters of PostgreSQL; SQLAlchemy 2.0 has no word for them."""
    given = ", ".join(f"{name} = {value}" for name, value in parameters.items())
    statement: Any = DDL  # it has no types
    event.listen(table, "after_create", statement(f"ALTER TABLE {table.name} SET ({given})"))


def sayable(*names: str) -> CheckConstraint:
    """Declare that moments are some that Python can say; see `postgres.loaders`."""
    within = "{0} BETWEEN '0001-01-02 00:00:00+00' AND '9999-12-30 00:00:00+00'"
    return CheckConstraint(" AND ".join(map(within.format, names)), name="moments")
