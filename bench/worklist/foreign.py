"""Items and results as a user of a job queue would keep them: what a cycle writes, besides its job.

It is made as cheap as it gets: all that a cycle writes is one statement, of one round trip.
"""

from __future__ import annotations

import json

TASK = "parse"

TABLES = """
CREATE TABLE items (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE,
    data jsonb NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE results (
    item_id bigint NOT NULL,
    task text NOT NULL,
    metadata jsonb NOT NULL,
    completed_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (item_id, task)
);
"""

# Takes how many items there are to be.
FILL = """
    INSERT INTO items (name, data)
    SELECT 'i' || n, jsonb_build_object('url', 'http://site.example/page/' || n)
    FROM generate_series(1, {count}) n
"""

# Takes arrays of items, of the names of new items and of the data of these; one of each a cycle.
WRITE = """
    WITH cycles AS (
        SELECT * FROM unnest({items}::bigint[], {names}::text[], {data}::text[])
            AS cycle(item_id, name, data)
    ), updated AS (
        UPDATE items SET data = items.data || '{{"title": "A page"}}', updated_at = now()
        FROM cycles WHERE items.id = cycles.item_id
    ), completed AS (
        INSERT INTO results (item_id, task, metadata)
        SELECT item_id, 'parse', '{{"links": 10}}' FROM cycles ORDER BY item_id
        ON CONFLICT (item_id, task)
        DO UPDATE SET metadata = excluded.metadata, completed_at = excluded.completed_at
    )
    INSERT INTO items (name, data) SELECT name, data::jsonb FROM cycles ORDER BY name
    ON CONFLICT (name) DO NOTHING RETURNING id
"""

# How many cycles are in the database, by each of what they write.
WRITTEN = """
    SELECT (SELECT count(*) FROM results), (SELECT count(*) FROM items WHERE name NOT LIKE 'i%'),
        (SELECT count(*) FROM items WHERE data ? 'title')
"""


def new_item(worker: int, number: int) -> tuple[str, str]:
    """Return the name and the data of a new item."""
    name = f"n{worker}-{number}"
    return name, json.dumps({"url": f"http://site.example/page/{name}"})
