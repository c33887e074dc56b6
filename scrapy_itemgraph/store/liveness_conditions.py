"""Whether a worker lives, as conditions for the statements that ask: one answer everywhere.

The worker's row is `w`; who asks is in a transaction, for a lock that is free is taken to see it.
"""

from __future__ import annotations

# Whether nobody holds the worker's lock; whoever holds it has it shared.
LOCK_IS_FREE = "pg_try_advisory_xact_lock(CAST('workers'::regclass::oid AS int), w.id)"

# A free lock counts only if it was taken at all, and since the server started, which frees all.
IS_DEAD = f"""(w.stopped_at IS NOT NULL OR w.lease_until < clock_timestamp()
            OR (coalesce(w.locked_at > pg_postmaster_start_time(), false) AND {LOCK_IS_FREE}))"""
