"""Writes what a batch changed, with a number of statements that does not grow with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from scrapy_itemgraph.changesets import batch_names
from scrapy_itemgraph.model import input_checks
from scrapy_itemgraph.model.operations import tag_values
from scrapy_itemgraph.postgres.arrays import number_array, text_array
from scrapy_itemgraph.postgres.event_loop import chunks, gradually
from scrapy_itemgraph.store import blobs as stored_blobs
from scrapy_itemgraph.store import failures, notify
from scrapy_itemgraph.store import slots as stored_slots
from scrapy_itemgraph.store.columns import columns

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from sqlalchemy import Connection

    from scrapy_itemgraph.changesets.state import Item, Result, State

    # number, slot, id, created_by, nice, not_before, data as JSON, turn of its latest update
    Row = tuple[int, str, str, str | None, int | None, datetime | None, str, int]
    TagRow = tuple[int, str, str | None]  # number of the item, name, value as JSON

INSERT_ITEMS = text("""
    INSERT INTO items (id, crawl_id, slot_id, name, data, created_by, nice, not_before,
        created_at, updated_at, is_from_outside)
    SELECT id, :crawl, slot_id, name, data, created_by, nice, not_before, :now,
        CAST(:now AS timestamptz) + turn * interval '1 microsecond', CAST(:outside AS bool)
    FROM ROWS FROM (
        unnest(CAST(:items AS bigint[]), CAST(:slots AS int[]), CAST(:names AS text[]),
            CAST(:created_by AS text[]), CAST(:nice AS int[]), CAST(:not_before AS timestamptz[]),
            CAST(:turns AS int[])),
        json_array_elements(CAST(:data AS json)))
        AS new(id, slot_id, name, created_by, nice, not_before, turn, data)
""")

UPDATE_ITEMS = text("""
    UPDATE items i
    SET slot_id = new.slot_id, name = new.name, data = CAST(new.data AS json),
        updated_at = new.updated_at
    FROM unnest(CAST(:items AS bigint[]), CAST(:slots AS int[]), CAST(:names AS text[]),
        CAST(:data AS text[]), CAST(:updated AS timestamptz[]))
        AS new(id, slot_id, name, data, updated_at)
    WHERE i.id = new.id
""")

MARK_ITEMS = text("""
    UPDATE items i SET is_from_outside = true
    FROM unnest(CAST(:items AS bigint[])) AS marked(id) WHERE i.id = marked.id
""")

DELETE_ITEMS = text("""
    DELETE FROM items i USING unnest(CAST(:items AS bigint[])) AS gone(id) WHERE i.id = gone.id
""")

COUNT_FREED = text("UPDATE crawls SET names_freed = names_freed + 1 WHERE id = :crawl")

SET_TAGS = text("""
    INSERT INTO tags (item_id, tag_name, crawl_id, value)
    SELECT item_id, tag_name, :crawl, CAST(value AS json)
    FROM unnest(CAST(:items AS bigint[]), CAST(:tags AS text[]), CAST(:values AS text[]))
        AS new(item_id, tag_name, value)
    ON CONFLICT (item_id, tag_name) DO UPDATE SET value = excluded.value
""")

# Of items that this transaction made, each tag once.
ADD_TAGS = text("""
    INSERT INTO tags (item_id, tag_name, crawl_id, value)
    SELECT item_id, tag_name, :crawl, CAST(value AS json)
    FROM unnest(CAST(:items AS bigint[]), CAST(:tags AS text[]), CAST(:values AS text[]))
        AS new(item_id, tag_name, value)
""")

DROP_TAGS = text("""
    DELETE FROM tags g
    USING unnest(CAST(:items AS bigint[]), CAST(:tags AS text[])) AS dropped(item_id, tag_name)
    WHERE g.item_id = dropped.item_id AND g.tag_name = dropped.tag_name
""")

SET_RESULTS = text("""
    INSERT INTO results (item_id, task_id, task_version, metadata, is_successful, is_held,
        created_at, completed_at, invalidated_at, expires_at, due_at, ttl_overridden, run, led_to,
        validators)
    SELECT item_id, task_id, task_version, CAST(metadata AS json), is_successful, is_held,
        :now, completed_at, invalidated_at, expires_at, due_at, ttl_overridden, run, led_to,
        CAST(validators AS json)
    FROM unnest(CAST(:items AS bigint[]), CAST(:tasks AS int[]), CAST(:versions AS text[]),
        CAST(:metadata AS text[]), CAST(:successful AS bool[]), CAST(:held AS bool[]),
        CAST(:completed AS timestamptz[]), CAST(:invalidated AS timestamptz[]),
        CAST(:expires AS timestamptz[]), CAST(:due AS timestamptz[]),
        CAST(:overridden AS bool[]), CAST(:runs AS int[]), CAST(:led_to AS uuid[]),
        CAST(:validators AS text[]))
        AS new(item_id, task_id, task_version, metadata, is_successful, is_held, completed_at,
            invalidated_at, expires_at, due_at, ttl_overridden, run, led_to, validators)
    ON CONFLICT (item_id, task_id) DO UPDATE SET task_version = excluded.task_version,
        metadata = excluded.metadata, is_successful = excluded.is_successful,
        is_held = excluded.is_held, completed_at = excluded.completed_at,
        invalidated_at = excluded.invalidated_at, expires_at = excluded.expires_at,
        due_at = excluded.due_at, ttl_overridden = excluded.ttl_overridden,
        run = excluded.run, led_to = excluded.led_to, validators = excluded.validators
""")

DROP_ATTEMPTS = text("""
    DELETE FROM attempts a USING unnest(CAST(:items AS bigint[])) AS gone(id)
    WHERE a.item_id = gone.id
""")

MOVE_ATTEMPTS = text("""
    UPDATE attempts a SET item_id = moved.into_id
    FROM unnest(CAST(:items AS bigint[]), CAST(:into AS bigint[])) AS moved(item_id, into_id)
    WHERE a.item_id = moved.item_id
""")


FREE_LEFT = text("""
    UPDATE results r SET hold = NULL
    FROM unnest(CAST(:items AS bigint[]), CAST(:tasks AS int[])) AS freed(item_id, task_id)
    WHERE r.item_id = freed.item_id AND r.task_id = freed.task_id AND r.hold = 'left'
""")


def flush(connection: Connection, state: State) -> bool:
    """Write everything that the batch's changesets changed; tell whether names are free again."""
    living: list[Item] = []
    gone: list[Item] = []
    changed: list[Item] = []
    for item in gradually(connection, state.items.values()):
        (gone if item.is_deleted else living).append(item)
        if item.is_changed and not item.is_deleted:
            changed.append(item)
    slot_ids = slot_numbers(connection, state, changed)
    for items in chunks(connection, changed):
        _write_items(connection, state, slot_ids, items)
    write_new(connection, state, slot_ids)
    frees_names = batch_names.write(connection, state)
    for items in chunks(connection, living):
        _mark_items(connection, state, items)
        _write_tags(connection, state, items)
        _write_results(connection, state, items)
        _write_blobs(connection, items)
    _write_failures(connection, state)
    for part in chunks(connection, state.effects.items_moved):
        merged = [(old, state.survivor(old)) for old in part]
        moved = [(old, item.id) for old, item in merged if item is not None]
        if moved:
            connection.execute(MOVE_ATTEMPTS, columns(moved, items=0, into=1))
    for items in chunks(connection, [item for item in gone if not item.is_new]):
        stored = [item.id for item in items]
        connection.execute(DROP_ATTEMPTS, {"items": stored})
        connection.execute(DELETE_ITEMS, {"items": stored})
    return frees_names


def tell_freed(connection: Connection, crawl_id: int) -> None:
    """Tell the crawl's workers that names which they know as taken are free again.

    Called last, for all who free names wait for each other from here on.
    """
    connection.execute(COUNT_FREED, {"crawl": crawl_id})
    notify.notify(connection, crawl_id)


def _write_failures(connection: Connection, state: State) -> None:
    handled, moved = state.effects.settled_failures()
    stored = [(pair, by) for pair, by in handled.items() if isinstance(pair, tuple)]
    for by in sorted({by for _, by in stored}):
        for some in chunks(connection, [pair for pair, who in stored if who == by]):
            failures.supersede(connection, some, by=by)
    went = [
        (*pair, into)
        for pair, into in moved.items()
        if isinstance(pair, tuple) and not state.items[into].is_deleted
    ]
    for part in chunks(connection, went):
        failures.repoint(connection, part)


def slot_numbers(
    connection: Connection, state: State, changed: Sequence[Item] = ()
) -> dict[str, int]:
    """Return the numbers of the slots of what is written, by name."""
    slots = {item.slot for item in gradually(connection, changed)}
    slots.update(new.slot for new in gradually(connection, state.new.values()))
    return stored_slots.intern_slots(connection, slots, state.sent_slots)


def _write_items(
    connection: Connection, state: State, slot_ids: dict[str, int], changed: Sequence[Item]
) -> None:
    rows = [
        (item.id, item.slot, item.name, item.created_by, item.nice, item.not_before, text, turn)
        for item in changed
        if item.is_new
        for text, turn in [(_json(item.data), state.turn_of(item.updated_at))]
    ]
    if rows:
        insert_items(connection, rows, state, slot_ids)
    old = [item for item in changed if not item.is_new]
    if old:
        given = columns(old, items="id", names="name", updated="updated_at")
        given["slots"] = [slot_ids[item.slot] for item in old]
        given["data"] = [_json(item.data) for item in old]
        connection.execute(UPDATE_ITEMS, given)


def _mark_items(connection: Connection, state: State, living: Sequence[Item]) -> None:
    """Mark the items in which somebody outside the project's code had a hand just now."""
    marked = [
        item.id for item in living if item.is_marked and not (item.is_new and state.is_from_outside)
    ]
    if marked:
        connection.execute(MARK_ITEMS, {"items": number_array(marked)})


def write_new(connection: Connection, state: State, slot_ids: dict[str, int]) -> None:
    """Write the items that were created and not looked at since, with their tags."""
    for part in chunks(connection, state.new.items()):
        rows = [
            (number, new.slot, op.id, new.created_by, op.nice, new.not_before, new.text, new.turn)
            for number, new in part
            for op in [new.operation]
        ]
        insert_items(connection, rows, state, slot_ids)
        tags = [
            (number, tag, None if value is None else _json(value))
            for number, new in part
            for tag, value in sorted(tag_values(new.operation.tags).items())
        ]
        add_tags(connection, tags, state)


def insert_items(
    connection: Connection, rows: Sequence[Row], state: State, slot_ids: dict[str, int]
) -> None:
    """Write new items."""
    numbers, slots, names, created_by, nice, not_before, texts, turns = zip(*rows, strict=True)
    given = {
        "crawl": state.crawl_id,
        "now": state.now,
        "items": number_array(numbers),
        "slots": number_array([slot_ids[slot] for slot in slots]),
        "names": text_array(names),
        "created_by": text_array(created_by),
        "nice": number_array(nice),
        "not_before": list(not_before),
        "turns": number_array(turns),
        "outside": state.is_from_outside or None,
        # One document: quotes in the elements of an array would each be escaped once more.
        "data": f"[{','.join(texts)}]",
    }
    connection.execute(INSERT_ITEMS, given)


def _write_tags(connection: Connection, state: State, living: Sequence[Item]) -> None:
    dropped = [(item.id, tag) for item in living for tag in item.dropped_tags]
    if dropped:
        connection.execute(DROP_TAGS, columns(dropped, items=0, tags=1))
    rows = [
        (item.id, tag, None if value is None else _json(value))
        for item in living
        for tag in sorted(item.set_tags)
        for value in [item.tags[tag]]
    ]
    if rows:
        connection.execute(SET_TAGS, _tags(state, rows))


def add_tags(connection: Connection, rows: Sequence[TagRow], state: State) -> None:
    """Write tags of new items."""
    if rows:
        connection.execute(ADD_TAGS, _tags(state, rows))


def _tags(state: State, rows: Sequence[TagRow]) -> dict[str, Any]:
    """Return what SET_TAGS and ADD_TAGS are given."""
    return {
        "crawl": state.crawl_id,
        "items": number_array([item_id for item_id, _, _ in rows]),
        "tags": text_array([tag for _, tag, _ in rows]),
        "values": text_array([value for *_, value in rows]),
    }


def _write_results(connection: Connection, state: State, living: Sequence[Item]) -> None:
    rows: list[tuple[int, int, Result]] = [
        (item.id, task_id, result)
        for item in living
        for task_id, result in item.results.items()
        if result.is_changed
    ]
    if rows:
        given = columns(rows, items=0, tasks=1) | columns(
            [result for *_, result in rows],
            versions="version",
            successful="is_successful",
            held="is_held",
            completed="completed_at",
            invalidated="invalidated_at",
            expires="expires_at",
            due="due_at",
            overridden="ttl_overridden",
            runs="run",
            led_to="led_to",
            validators="validators",
        )
        given["metadata"] = [_json(result.metadata) for *_, result in rows]
        connection.execute(SET_RESULTS, {"now": state.now, **given})
    if freed := [(item, task) for item, task, result in rows if result.is_freed]:
        connection.execute(FREE_LEFT, columns(freed, items=0, tasks=1))


def _write_blobs(connection: Connection, living: Sequence[Item]) -> None:
    written = [(item, item.written_blobs) for item in living if item.written_blobs]
    if not written:
        return
    rows = [(item.id, name, blob) for item, blobs in written for name, blob in blobs.items()]
    detached = [(item_id, name) for item_id, name, blob in rows if blob is None]
    attached = [(item_id, name, *blob) for item_id, name, blob in rows if blob is not None]
    if detached:
        stored_blobs.detach(connection, detached)
    if attached:
        stored_blobs.hold(connection, {row[2] for row in attached})
        stored_blobs.attach(connection, attached)


def _json(value: Any) -> str:
    if isinstance(value, input_checks.Unreadable):
        return value  # as it was
    return input_checks.write_json(value)
