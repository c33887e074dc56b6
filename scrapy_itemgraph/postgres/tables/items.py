"""Items, their names and tags, and what tasks made of them.

Names, tags and results, and blobs, have no foreign key to their items: its check of each row took
two fifths of what PostgreSQL does for a new item. Who writes them holds the item's lock or has just
made it, and a trigger deletes them with their items, by one statement each.
"""

from __future__ import annotations

from sqlalchemy import (
    ARRAY,
    DDL,
    JSON,
    BigInteger,
    Boolean,
    Column,
    Computed,
    DateTime,
    ForeignKeyConstraint,
    Identity,
    Index,
    Integer,
    PrimaryKeyConstraint,
    Table,
    Text,
    Uuid,
    event,
    text,
)

from scrapy_itemgraph.postgres.tables.base import metadata, moment

# What PostgreSQL cannot read, a NUL or half a surrogate, has no key, and is stored all the same.
_URL_KEY = r"""CASE
    WHEN strpos(CAST(data AS text), '\u') = 0 OR CAST(data AS text) !~ '\\u(0000|[dD][89a-fA-F])'
        THEN hashtext(CAST(data -> 'url' AS text)) END"""

items = Table(
    "items",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("crawl_id", Integer, nullable=False),
    Column("slot_id", Integer, nullable=False),
    Column("name", Text, nullable=False, comment="the canonical id"),
    Column("data", JSON, nullable=False),
    Column("created_by", Text, comment="an item's id, through an alias; may be broken"),
    Column("nice", Integer, comment="null: the task's"),
    moment("not_before"),
    moment("created_at", now=True),
    moment("updated_at", now=True),
    Column("has_blobs", Boolean, comment="true: it has or had blobs; null: it never had"),
    Column(
        "is_from_outside",
        Boolean,
        comment="true: made or changed over HTTP; null: by the project or its people alone",
    ),
    Column(
        "url_key",
        Integer,
        Computed(_URL_KEY, persisted=True),
        comment="a hash of the URL in the data; null: there is none",
    ),
    Column(
        "in_frontier",
        Boolean,
        comment="true: a URL of a frontier, with the tag `url`; null: it is none",
    ),
    Index("items_crawl_id_id_idx", "crawl_id", "id"),
    Index(
        "items_frontier_idx",
        "crawl_id",
        "slot_id",
        "id",
        postgresql_where=text("in_frontier"),
    ),
    Index("items_url_key_idx", "url_key", postgresql_where=text("url_key IS NOT NULL")),
)

DELETE_ROWS = """
    CREATE FUNCTION delete_rows_of_items() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        DELETE FROM results r USING gone WHERE r.item_id = gone.id;
        DELETE FROM tags g USING gone WHERE g.item_id = gone.id;
        DELETE FROM aliases a USING gone WHERE a.item_id = gone.id;
        DELETE FROM page_links p USING gone WHERE p.item_id = gone.id;
        IF EXISTS (SELECT FROM gone WHERE gone.has_blobs) THEN
            DELETE FROM blobs b USING gone WHERE b.item_id = gone.id;
        END IF;
        RETURN NULL;
    END $$
"""

AFTER_DELETE = """
    CREATE TRIGGER delete_rows_of_items AFTER DELETE ON items
    REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION delete_rows_of_items()
"""

for statement in (DELETE_ROWS, AFTER_DELETE):
    event.listen(items, "after_create", DDL(statement))  # type: ignore[no-untyped-call]


aliases = Table(
    "aliases",
    metadata,
    Column("crawl_id", Integer, nullable=False),
    Column("key", Uuid, nullable=False, comment="the first 16 bytes of the name's SHA-256"),
    Column("name", Text, nullable=False),
    Column("item_id", BigInteger, comment="null: the item was deleted and its name stays taken"),
    PrimaryKeyConstraint("crawl_id", "key"),
    Index("aliases_item_id_idx", "item_id"),
)


tags = Table(
    "tags",
    metadata,
    Column("item_id", BigInteger, nullable=False),
    Column("tag_name", Text, nullable=False),
    Column("crawl_id", Integer, nullable=False),
    Column("value", JSON(none_as_null=True)),
    PrimaryKeyConstraint("item_id", "tag_name"),
    Index("tags_crawl_id_tag_name_item_id_idx", "crawl_id", "tag_name", "item_id"),
)


results = Table(
    "results",
    metadata,
    Column("item_id", BigInteger, nullable=False),
    Column("task_id", Integer, nullable=False),
    Column("task_version", Text, nullable=False),
    Column("metadata", JSON, nullable=False, server_default=text("'{}'")),
    Column("is_successful", Boolean, nullable=False),
    Column("is_held", Boolean, nullable=False, server_default=text("false")),
    moment("created_at", now=True),
    moment("completed_at"),
    moment("invalidated_at"),
    moment("expires_at"),
    Column(
        "due_at",
        DateTime(timezone=True),
        comment="expires_at until the expiry is staged, then null",
    ),
    Column("ttl_overridden", Boolean, nullable=False, server_default=text("false")),
    Column("run", Integer, comment="the run of its crawl that it is of; null: the first"),
    Column("hold", Text, comment="skipped, stashed or left: set aside"),
    Column("led_to", Uuid, comment="the key of the known page's name that its redirect led to"),
    Column(
        "validators",
        JSON,
        comment="of the response that it was made from, where its task asks for changes alone",
    ),
    PrimaryKeyConstraint("item_id", "task_id"),
    Index("results_due_idx", "task_id", "due_at", postgresql_where=text("due_at IS NOT NULL")),
    # A complete result is in one of these three, so that a task's are counted where they stand.
    Index(
        "results_lasting_idx",
        "task_id",
        "task_version",
        postgresql_where=text(
            "completed_at IS NOT NULL AND expires_at IS NULL AND invalidated_at IS NULL "
            "AND NOT is_held"
        ),
    ),
    Index(
        "results_lapsed_idx",
        "task_id",
        postgresql_where=text(
            "completed_at IS NOT NULL AND due_at IS NULL "
            "AND (expires_at IS NOT NULL OR invalidated_at IS NOT NULL OR is_held)"
        ),
    ),
    Index(
        "results_held_idx",
        "task_id",
        "item_id",
        postgresql_where=text("is_held AND NOT is_successful"),
    ),
    Index(
        "results_gone_idx",
        "task_id",
        "item_id",
        postgresql_where=text("is_held AND is_successful"),
    ),
    Index(
        "results_hold_idx",
        "task_id",
        "hold",
        "item_id",
        postgresql_where=text("hold IS NOT NULL"),
    ),
    Index(
        "results_led_to_idx",
        "task_id",
        "led_to",
        "item_id",
        postgresql_where=text("led_to IS NOT NULL"),
    ),
)


page_links = Table(
    "page_links",
    metadata,
    Column("item_id", BigInteger, nullable=False),
    Column("task_id", Integer, nullable=False),
    Column(
        "keys",
        ARRAY(Uuid),
        nullable=False,
        comment="of the names in aliases of what it links to",
    ),
    PrimaryKeyConstraint("item_id", "task_id"),
)


failures = Table(
    "failures",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("item_id", BigInteger, nullable=False),
    Column("task_id", Integer, nullable=False),
    Column("is_refusal", Boolean, nullable=False, server_default=text("false")),
    Column("error", JSON, nullable=False),
    moment("occurred_at", now=True),
    moment("handled_at"),
    Column("handled_by", Text),
    Column("fingerprint", Uuid, nullable=False, comment="failures that are alike have the same"),
    ForeignKeyConstraint(
        ["item_id", "task_id"],
        ["results.item_id", "results.task_id"],
        name="failures_result_fkey",
        ondelete="CASCADE",
    ),
    Index("failures_item_id_task_id_idx", "item_id", "task_id"),
    Index("failures_handled_at_idx", "handled_at", postgresql_where=text("handled_at IS NOT NULL")),
    Index(
        "failures_open_idx",
        "task_id",
        "is_refusal",
        "id",
        postgresql_where=text("handled_at IS NULL"),
    ),
    Index(
        "failures_fingerprint_idx",
        "fingerprint",
        "id",
        postgresql_where=text("handled_at IS NULL"),
    ),
)
