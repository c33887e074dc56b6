"""Binary data of items, and the contents that it has, wherever they are kept.

A content is there before a blob names it, and for a day after none does: `collect_at` says from
when on somebody looks whether one does. Of many items with the same content each names the same.
"""

from __future__ import annotations

from sqlalchemy import (
    DDL,
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    Identity,
    Index,
    LargeBinary,
    PrimaryKeyConstraint,
    Table,
    Text,
    event,
    text,
)

from scrapy_itemgraph.postgres.tables.base import metadata, moment

blob_contents = Table(
    "blob_contents",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("sha256", LargeBinary, nullable=False),
    Column("size", BigInteger, nullable=False, comment="bytes"),
    Column("store", Text, nullable=False, comment="'database', or the URL of another store"),
    Column(
        "state",
        Text,
        nullable=False,
        server_default=text("'pending'"),
        comment="'pending' while it is written, 'stored', 'doomed' before it is deleted",
    ),
    Column("content", LargeBinary, comment="null: it is in another store"),
    moment("announced_at", now=True),
    moment("stored_at"),
    moment("collect_at"),
    CheckConstraint("state IN ('pending', 'stored', 'doomed')", name="state"),
    Index("blob_contents_sha256_idx", "sha256"),
    Index(
        "blob_contents_collect_at_idx",
        "collect_at",
        postgresql_where=text("collect_at IS NOT NULL"),
    ),
)


blobs = Table(
    "blobs",
    metadata,
    Column("item_id", BigInteger, nullable=False),
    Column("name", Text, nullable=False),
    Column("content_id", BigInteger, ForeignKey("blob_contents.id"), nullable=False),
    Column("mime", Text),
    moment("attached_at", null=False),
    PrimaryKeyConstraint("item_id", "name"),
    Index("blobs_content_id_idx", "content_id"),
)

LEAVE_CONTENTS = """
    CREATE FUNCTION leave_contents_of_blobs() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        UPDATE blob_contents c SET collect_at = clock_timestamp() + interval '1 day'
        WHERE c.id IN (
            SELECT o.id FROM blob_contents o
            WHERE o.id IN (SELECT gone.content_id FROM gone)
            ORDER BY o.id FOR NO KEY UPDATE);
        RETURN NULL;
    END $$
"""

AFTER = """
    CREATE TRIGGER leave_contents_after_{what} AFTER {what} ON blobs
    REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION leave_contents_of_blobs()
"""

for statement in (LEAVE_CONTENTS, AFTER.format(what="delete"), AFTER.format(what="update")):
    event.listen(blobs, "after_create", DDL(statement))  # type: ignore[no-untyped-call]
