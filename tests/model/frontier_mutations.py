"""Mutations of a URL frontier: names, files of the package, texts, and what replaces these."""

from __future__ import annotations

FRONTIER = (
    (
        "a queue is served in the last second of its delay, or of its block",
        "store/frontier/turns.py",
        "if least >= self.now:",
        "if least > self.now:",
    ),
    (
        "a queue at its limit is served",
        "store/frontier/turns.py",
        "return self.is_full or self.is_deleting",
        "return self.is_deleting",
    ),
    (
        "URLs that wait for their dates count as held",
        "store/frontier/turns.py",
        "AND w.tries > 0 AND w.kind_id",
        "AND w.kind_id",
    ),
    (
        "a queue that was served comes two seconds late",
        "store/frontier/turns.py",
        "min(one.now + one.delay + 1,",
        "min(one.now + one.delay + 3,",
    ),
    (
        "queues take no turns",
        "store/frontier/turns.py",
        "AND q.next_at <= :began\n    ORDER BY q.next_at LIMIT",
        "AND q.next_at <= :began\n    ORDER BY q.id LIMIT",
    ),
    (
        "a completed URL that may be fetched again stays completed",
        "store/frontier/puts.py",
        "        if again:\n",
        "        if False:\n",
    ),
    (
        "what becomes known is held on",
        "store/frontier/puts.py",
        "nice = excluded.nice, not_before = excluded.not_before, tries = 0,",
        "nice = excluded.nice, not_before = excluded.not_before,",
    ),
    (
        "completed URLs are counted twice that are told to be so again",
        "store/frontier/puts.py",
        "(one.date == 0) - was_done",
        "(one.date == 0)",
    ),
    (
        "a queue that is made again waits for what it waited for",
        "store/frontier/deletions.py",
        "WHERE q.id = gone.queue_id AND q.next_at >",
        "WHERE false AND q.next_at >",
    ),
    (
        "deleted URLs stay counted as completed",
        "store/frontier/deletions.py",
        "queue: -number",
        "queue: 0 * number",
    ),
    (
        "this second's URLs are purged as well",
        "store/frontier/deletions.py",
        "i.created_at < to_timestamp",
        "i.created_at < 1.0 * interval '1 s' + to_timestamp",
    ),
    (
        "a queue below its limit again is passed over",
        "store/urls/completions.py",
        "if count < 0",
        "if count > 0",
    ),
    (
        "servers that were paused by themselves stay so",
        "store/frontier/controls.py",
        "    if is_active:\n        connection.execute(END_PAUSES)",
        "    if not is_active:\n        connection.execute(END_PAUSES)",
    ),
    (
        "a new default delay lets queues wait as before",
        "graph/frontier_controls.py",
        "for crawl_id in found:",
        "for crawl_id in found[:0]:",
    ),
    (
        "a queue is active in the last second of its block",
        "store/frontier/listings.py",
        "f.blocked_until < (SELECT",
        "f.blocked_until <= (SELECT",
    ),
    (
        "turns do not age",
        "store/admin/crawl_changes.py",
        "(AGE_QUEUES, AGE_TURNS)",
        "(AGE_QUEUES,)",
    ),
)
