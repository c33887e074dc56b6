"""Blobs and their contents: what is stored where, which item has it, and what nobody names.

Content is announced by a row before it is written, and marked as stored when it is there. A commit
locks the rows that it names (`hold`), and whoever collects locks a row alone before looking whether
it is named, in a statement of its own: either sees the other. A row that is to go is doomed first;
what stands under its number is deleted then, and never written again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import text

from scrapy_itemgraph.model.blobs import DATABASE, BlobSnapshot
from scrapy_itemgraph.store.columns import columns, typed

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from datetime import timedelta

    from sqlalchemy import Connection

    from scrapy_itemgraph.model.blobs import Content

PRETENDED = "none"  # the store of a simulation
STEP = 1000  # contents that are looked at in a transaction
_KEEP = "(SELECT clock_timestamp()) + interval '1 day'"

KNOWN = text("""
    SELECT found.id, wanted.sha256, found.is_due
    FROM unnest(CAST(:digests AS bytea[])) AS wanted(sha256),
        LATERAL (SELECT c.id,
                c.collect_at < (SELECT clock_timestamp()) + interval '12 hours' AS is_due
            FROM blob_contents c
            WHERE c.sha256 = wanted.sha256 AND c.state = 'stored' AND c.store = :store
            LIMIT 1) AS found
""")

# What nobody has named for a while may be collected soon: it is kept for another day.
KEEP = text(f"""
    UPDATE blob_contents c SET collect_at = {_KEEP}
    FROM (SELECT o.id FROM unnest(CAST(:contents AS bigint[])) AS due(id)
        JOIN blob_contents o ON o.id = due.id ORDER BY o.id FOR NO KEY UPDATE OF o) AS locked
    WHERE c.id = locked.id AND c.state = 'stored'
    RETURNING c.id
""")  # noqa: S608 - our own constants

ANNOUNCE = text(f"""
    INSERT INTO blob_contents (sha256, size, store, collect_at)
    SELECT sha256, size, :store, {_KEEP}
    FROM unnest(CAST(:digests AS bytea[]), CAST(:sizes AS bigint[])) AS new(sha256, size)
    RETURNING id, sha256
""")  # noqa: S608 - likewise

ADD = text(f"""
    INSERT INTO blob_contents (sha256, size, store, state, content, stored_at, collect_at)
    VALUES (:digest, :size, '{DATABASE}', 'stored', :content, clock_timestamp(), {_KEEP})
    RETURNING id
""")  # noqa: S608 - likewise

# Said again when the answer was lost, it is as true.
STORED = text("""
    UPDATE blob_contents SET state = 'stored', stored_at = clock_timestamp()
    WHERE id = ANY (CAST(:contents AS bigint[])) AND state <> 'doomed'
    RETURNING id
""")

# Locked until the commit: whoever collects leaves them alone.
HOLD = text("""
    SELECT c.id FROM unnest(CAST(:contents AS bigint[])) AS wanted(id)
    JOIN blob_contents c ON c.id = wanted.id
    WHERE c.state = 'stored'
    FOR KEY SHARE OF c
""")

OF_ITEMS = text("""
    SELECT b.item_id, b.name, b.content_id, b.mime, b.attached_at
    FROM unnest(CAST(:items AS bigint[])) AS wanted(id)
    JOIN blobs b ON b.item_id = wanted.id
""")

ATTACH = text("""
    INSERT INTO blobs (item_id, name, content_id, mime, attached_at)
    SELECT * FROM unnest(CAST(:items AS bigint[]), CAST(:names AS text[]),
        CAST(:contents AS bigint[]), CAST(:mimes AS text[]), CAST(:attached AS timestamptz[]))
    ON CONFLICT (item_id, name) DO UPDATE SET content_id = excluded.content_id,
        mime = excluded.mime, attached_at = excluded.attached_at
""")

DETACH = text("""
    DELETE FROM blobs b
    USING unnest(CAST(:items AS bigint[]), CAST(:names AS text[])) AS gone(item_id, name)
    WHERE b.item_id = gone.item_id AND b.name = gone.name
""")

MARK_ITEMS = text("""
    UPDATE items i SET has_blobs = true FROM unnest(CAST(:items AS bigint[])) AS marked(id)
    WHERE i.id = marked.id AND i.has_blobs IS NULL
""")

PICTURED = text("""
    SELECT b.item_id, b.name, c.size, b.mime, encode(c.sha256, 'hex') AS sha256
    FROM unnest(CAST(:items AS bigint[])) AS wanted(id)
    JOIN blobs b ON b.item_id = wanted.id
    JOIN blob_contents c ON c.id = b.content_id
    ORDER BY b.name COLLATE "C"
""")

SHOWN = text("""
    SELECT b.name, c.size, b.mime, encode(c.sha256, 'hex') AS sha256, b.attached_at
    FROM blobs b JOIN blob_contents c ON c.id = b.content_id
    WHERE b.item_id = :item ORDER BY b.name COLLATE "C"
""")

PLACE = text("""
    SELECT c.id, c.sha256, c.size, c.store, b.mime
    FROM blobs b JOIN blob_contents c ON c.id = b.content_id
    WHERE b.item_id = :item AND b.name = :name
""")

READ = text("SELECT content FROM blob_contents WHERE id = :content")

LOCK_DUE = text("""
    SELECT id FROM blob_contents
    WHERE collect_at <= clock_timestamp() + CAST(:ahead AS interval)
        AND store = ANY (CAST(:stores AS text[]))
    ORDER BY collect_at LIMIT :limit
    FOR UPDATE SKIP LOCKED
""")

# After the lock and in statements of their own: they must see what was committed meanwhile.
KEEP_NAMED = text("""
    UPDATE blob_contents c SET collect_at = NULL
    WHERE c.id = ANY (CAST(:contents AS bigint[]))
        AND EXISTS (SELECT FROM blobs b WHERE b.content_id = c.id)
""")

DELETE_OWN = text(f"""
    DELETE FROM blob_contents c
    WHERE c.id = ANY (CAST(:contents AS bigint[])) AND c.store = '{DATABASE}'
        AND NOT EXISTS (SELECT FROM blobs b WHERE b.content_id = c.id)
""")  # noqa: S608 - our own constant

DOOM = text("""
    UPDATE blob_contents c SET state = 'doomed'
    WHERE c.id = ANY (CAST(:contents AS bigint[]))
        AND NOT EXISTS (SELECT FROM blobs b WHERE b.content_id = c.id)
    RETURNING c.id, c.sha256, c.size, c.store
""")

DELETE_DOOMED = text("""
    DELETE FROM blob_contents
    WHERE id = ANY (CAST(:contents AS bigint[])) AND state = 'doomed'
""")


class ContentsGoneError(Exception):
    """Contents that a commit names were collected before it; their numbers."""

    def __init__(self, numbers: Collection[int]) -> None:
        super().__init__(f"contents {sorted(numbers)} were collected before they were named")
        self.numbers = set(numbers)


class Place(NamedTuple):
    """Where a content is: its number and digest, its size in bytes, and its store."""

    id: int
    sha256: bytes
    size: int
    store: str


class Collected(NamedTuple):
    """What a step of collection did: how many were looked at and deleted, and what is to go."""

    seen: int
    deleted: int
    doomed: list[Place]


def announce(connection: Connection, contents: Sequence[Content], store: str) -> list[Content]:
    """Give contents rows, or the numbers that the store knows them by; return what is to write.

    Of the same content twice one is returned.
    """
    by_digest: dict[bytes, Content] = {one.digest: one for one in contents}
    given: dict[str, Any] = {"store": store, "digests": list(by_digest)}
    known = connection.execute(KNOWN, given).all()
    due = [row.id for row in known if row.is_due]
    kept = set(connection.execute(KEEP, {"contents": due}).scalars()) if due else set()
    numbers = {bytes(row.sha256): row.id for row in known if not row.is_due or row.id in kept}
    new = {digest: one for digest, one in by_digest.items() if digest not in numbers}
    if store == DATABASE:
        for digest, one in new.items():
            added = {"digest": digest, "size": one.size, "content": one.data}
            numbers[digest] = connection.execute(ADD, added).scalar_one()
        new = {}
    unannounced = [one for one in new.values() if one.announced is None]
    if unannounced:
        digests, sizes = ([getattr(one, of) for one in unannounced] for of in ("digest", "size"))
        given = {"store": store, "digests": digests, "sizes": sizes}
        for row in connection.execute(ANNOUNCE, given).all():
            new[bytes(row.sha256)].announced = row.id
    for one in contents:
        one.number = numbers.get(one.digest)
    return list(new.values())


def pretend(connection: Connection, contents: Sequence[Content]) -> None:
    """Give contents rows as if they were stored, for a transaction that will be undone."""
    digests = [one.digest for one in contents]
    sizes = [one.size for one in contents]
    given = {"store": PRETENDED, "digests": digests, "sizes": sizes}
    rows = connection.execute(ANNOUNCE, given).all()
    numbers = {bytes(row.sha256): row.id for row in rows}
    connection.execute(STORED, {"contents": list(numbers.values())})
    for one in contents:
        one.number = numbers[one.digest]


def mark_stored(
    connection: Connection, written: Sequence[Content], contents: Sequence[Content]
) -> list[Content]:
    """Take note that contents are written; return those that were collected meanwhile.

    The others have their numbers then, and so have `contents` that are the same.
    """
    announced = [one.announced for one in written]
    marked = set(connection.execute(STORED, {"contents": announced}).scalars())
    numbers = {one.digest: one.announced for one in written if one.announced in marked}
    for one in contents:
        one.number = numbers.get(one.digest, one.number)
    return [one for one in written if one.announced not in marked]


def hold(connection: Connection, numbers: Collection[int]) -> None:
    """Lock contents that are about to be named.

    Raises:
        ContentsGoneError: some were collected.

    """
    held = connection.execute(HOLD, {"contents": sorted(numbers)}).scalars()
    gone = set(numbers).difference(held)
    if gone:
        raise ContentsGoneError(gone)


def attach(connection: Connection, rows: Sequence[tuple[Any, ...]]) -> None:
    """Write (item, name, content, mime, attached_at)."""
    given = columns(rows, items=0, names=1, contents=2, mimes=3, attached=4)
    connection.execute(ATTACH, given)
    connection.execute(MARK_ITEMS, {"items": sorted({row[0] for row in rows})})


def detach(connection: Connection, rows: Sequence[tuple[int, str]]) -> None:
    """Delete blobs by (item, name)."""
    connection.execute(DETACH, columns(rows, items=0, names=1))


def of_item(connection: Connection, item_id: int) -> list[BlobSnapshot]:
    """Return an item's blobs, by name."""
    rows = connection.execute(SHOWN, {"item": item_id})
    return [BlobSnapshot(**row._asdict()) for row in rows]


def place(connection: Connection, item_id: int, name: str) -> tuple[Place, str | None] | None:
    """Return where the content of a blob is, and its type; None where the item has no such blob."""
    found = connection.execute(PLACE, {"item": item_id, "name": name}).first()
    if found is None:
        return None
    return Place(found.id, bytes(found.sha256), found.size, found.store), found.mime


def read(connection: Connection, number: int) -> bytes | None:
    """Return content that the database keeps; None where it is gone."""
    found = connection.execute(READ, {"content": number}).scalar()
    return None if found is None else bytes(found)


def collect(
    connection: Connection, stores: Collection[str], *, ahead: timedelta, limit: int = STEP
) -> Collected:
    """Look at a step of contents that are due, or are in the next `ahead`.

    What is named stays; of the rest what the database keeps is deleted, and all else doomed: that
    is to be deleted from its store, and then `forget` to be called.
    """
    given = {"ahead": ahead, "stores": sorted(stores), "limit": limit}
    due = {"contents": list(connection.execute(LOCK_DUE, given).scalars())}
    if not due["contents"]:
        return Collected(0, 0, [])
    connection.execute(KEEP_NAMED, due)
    deleted = connection.execute(DELETE_OWN, due).rowcount
    doomed = typed(connection.execute(DOOM, due), Place)
    places = [one._replace(sha256=bytes(one.sha256)) for one in doomed]
    return Collected(len(due["contents"]), deleted, places)


def forget(connection: Connection, doomed: Sequence[Place]) -> int:
    """Delete the rows of contents that are deleted from their store; return how many."""
    numbers = [one.id for one in doomed]
    return connection.execute(DELETE_DOOMED, {"contents": numbers}).rowcount
