"""Notices: what people are to be told of crawls, written by what makes it true."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from scrapy_itemgraph.model import input_checks

if TYPE_CHECKING:
    from sqlalchemy import Connection

WRITE = text("""
    INSERT INTO notices (crawl_id, what, body) VALUES (:crawl, :what, CAST(:body AS json))
""")


def write(connection: Connection, crawl_id: int | None, what: str, **body: Any) -> None:
    """Have people told of something, once this transaction is committed."""
    given = {"crawl": crawl_id, "what": what, "body": input_checks.write_json(body)}
    connection.execute(WRITE, given)
