"""COPY of rows that are many, which costs the server less than an INSERT of them.

Their text is what COPY reads: columns between tabs, a row a line, a null as the constant `NULL`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
from sqlalchemy.exc import DBAPIError

if TYPE_CHECKING:
    from sqlalchemy import Connection

NULL = r"\N"


def field(text: str | None) -> str:
    """Return text as it stands in a row."""
    if text is None:
        return NULL
    if "\\" in text:
        text = text.replace("\\", r"\\")
    if text.isprintable():  # most is, and has none of the others
        return text
    return text.replace("\t", r"\t").replace("\n", r"\n").replace("\r", r"\r")


def copy(connection: Connection, target: str, rows: str) -> None:
    """Write rows to a table; `target` is its name with the columns, such as `tags (item_id)`.

    Raises:
        DBAPIError: as of a statement.

    """
    if not rows:
        return
    driver: Any = connection.connection.driver_connection
    statement = f"COPY {target} FROM STDIN"
    try:
        with driver.cursor() as cursor, cursor.copy(statement) as writer:
            writer.write(rows)
    except psycopg.Error as error:
        raise DBAPIError.instance(statement, None, error, psycopg.Error) from error
