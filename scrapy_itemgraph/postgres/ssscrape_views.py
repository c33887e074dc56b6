"""Views in the shape of Ssscrape's control tables, for programs that read and fill those.

They stand in a schema of their own, `ssscrape`, and nothing here needs them: `job`, `job_log`,
`task` and `resource` show jobs, schedules and resources under the names that Ssscrape's notes have.
Roles get rights to the views alone: what these do in the tables is done as their owner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_itemgraph.model.roles import RoleKind
from scrapy_itemgraph.postgres import grants

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SCHEMA = "ssscrape"

_JOBS = """
CREATE VIEW {views}.{name} AS
SELECT j.id, c.project AS type, c.spider AS program, CAST(c.start_arguments AS text) AS args,
    j.state, j.message, j.output, j.host AS hostname, j.process_id, j.exit_code,
    j.state = 'completed' AS completed,
    coalesce(j.not_before, j.due_at, j.created_at) AS scheduled, j.started_at AS start,
    j.ended_at AS "end", j.updated_at AS last_update, j.attempts, j.schedule_id AS task_id,
    c.resource_id
FROM {tables}.jobs j JOIN {tables}.crawls c ON c.id = j.crawl_id
WHERE j.state IN ({states})"""

_WAITING = "'pending', 'running', 'temporary-error'"
_OVER = "'completed', 'permanent-error', 'cancelled'"

_TASK = """
CREATE VIEW {views}.task AS
SELECT s.id, c.project AS type, c.spider AS program, CAST(c.start_arguments AS text) AS args,
    CASE WHEN s.is_enabled THEN 'enabled' ELSE 'disabled' END AS state, c.tag AS hostname,
    CASE WHEN s.kind = 'every' THEN s.spec END AS periodicity,
    CAST(NULL AS interval) AS autoperiodicity,
    CASE WHEN s.kind = 'at' AND s.spec ~ '^\\d\\d:\\d\\d' THEN CAST(left(s.spec, 2) AS int)
        END AS hour,
    CASE WHEN s.kind = 'at' AND s.spec ~ '^\\d\\d:\\d\\d' THEN CAST(substr(s.spec, 4, 2) AS int)
        END AS minute,
    s.last_at AS latest_run, c.resource_id,
    json_build_object('crawl', c.name, 'kind', s.kind, 'spec', s.spec, 'time_zone', s.time_zone,
        'catch_up', s.catch_up, 'overlap', s.overlap, 'next', s.next_at) AS data
FROM {tables}.schedules s JOIN {tables}.crawls c ON c.id = s.crawl_id"""

_RESOURCE = """
CREATE VIEW {views}.resource AS
SELECT l.id, l.name, l.last_at AS latest_run,
    make_interval(secs => coalesce(l.set_gap, l.gap, 0)) AS "interval"
FROM {tables}.limits l WHERE l.kind = 'resource'"""

# It does what `crawls revive` does to a crawl at its end, and what `jobs retry` does then.
_ADD_JOB = """
CREATE FUNCTION {views}.add_job() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = {tables}, pg_temp AS $body$
DECLARE
    crawl record;
BEGIN
    PERFORM pg_advisory_xact_lock(CAST('places'::regclass::oid AS int), 0);
    SELECT c.id, c.name, c.state, c.nice, c.concurrency, c.tag, l.name AS resource,
            count(*) OVER (PARTITION BY c.name = NEW.program) - 1 AS others
        INTO crawl
        FROM crawls c LEFT JOIN limits l ON l.id = c.resource_id
        WHERE c.state IS NOT NULL AND (NEW.type IS NULL OR c.project = NEW.type)
            AND NEW.program IN (c.name, c.spider)
            AND (coalesce(NEW.args, '') = ''
                OR CAST(c.start_arguments AS jsonb) = CAST(NEW.args AS jsonb))
        ORDER BY c.name = NEW.program DESC, c.id LIMIT 1;
    IF crawl IS NULL THEN
        RAISE EXCEPTION 'the queue has no crawl % of the project % with the arguments %',
            NEW.program, coalesce(NEW.type, '(any)'), coalesce(NEW.args, '(any)')
            USING HINT = 'scrapy itemgraph crawls add puts one there';
    ELSIF crawl.others > 0 THEN
        RAISE EXCEPTION '% crawls are meant by %', crawl.others + 1, NEW.program
            USING HINT = 'say which by args, or give the name of a crawl as program';
    ELSIF crawl.state IN ('paused', 'aborted') THEN
        RAISE EXCEPTION 'the crawl % is %', crawl.name, crawl.state
            USING HINT = 'scrapy itemgraph crawls resume, or revive, has it go on';
    ELSIF crawl.state = 'finished' THEN
        UPDATE crawls SET state = 'active', state_reason = NULL, crashes = 0,
                crashed_at_pages = NULL, queued_at = clock_timestamp(), next_at = NEW.scheduled
            WHERE id = crawl.id;
        INSERT INTO crawl_events (crawl_id, at, by, what, detail)
            SELECT c.id, clock_timestamp(), session_user, 'revived', json_build_object(
                'state', c.state, 'reason', NULL, 'nice', c.nice, 'concurrency', c.concurrency,
                'tag', c.tag, 'queued_at', CAST(c.queued_at AS text),
                'next_at', CAST(c.next_at AS text), 'resource', crawl.resource)
            FROM crawls c WHERE c.id = crawl.id;
    END IF;
    INSERT INTO jobs (crawl_id, origin, not_before, message)
        VALUES (crawl.id, 'runner', NEW.scheduled, NEW.message) RETURNING id INTO NEW.id;
    PERFORM pg_notify('itemgraph', 'runners');
    RETURN NEW;
END $body$"""

_SAY = """
CREATE FUNCTION {views}.say() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = {tables}, pg_temp AS $body$
BEGIN
    IF to_jsonb(NEW) - 'message' IS DISTINCT FROM to_jsonb(OLD) - 'message' THEN
        RAISE EXCEPTION 'of a job only its message can be changed here'
            USING HINT = 'scrapy itemgraph jobs cancel, retry, and crawls change the rest';
    END IF;
    UPDATE jobs SET message = NEW.message, updated_at = clock_timestamp() WHERE id = OLD.id;
    RETURN NEW;
END $body$"""

_ADDS = """
CREATE TRIGGER add_job INSTEAD OF INSERT ON {views}.job
FOR EACH ROW EXECUTE FUNCTION {views}.add_job()"""

_SAYS = """
CREATE TRIGGER say INSTEAD OF UPDATE ON {views}.job
FOR EACH ROW EXECUTE FUNCTION {views}.say()"""

_RIGHTS = {
    RoleKind.MANAGER: "SELECT, INSERT, UPDATE",
    RoleKind.WORKER: "SELECT, INSERT, UPDATE (message)",
    RoleKind.SCHEDULER: "SELECT, INSERT",
    RoleKind.READ_ONLY: "SELECT",
}


def drop() -> tuple[str, ...]:
    """Return the statements that drop the views, and nothing of what they show."""
    return (f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE",)


def make(tables: str, roles: Mapping[RoleKind, str]) -> tuple[str, ...]:
    """Return the statements that make the views anew, on the tables of a schema.

    `roles` are names of roles, by what each does: they get rights to the views alone.
    """
    return (*drop(), *_statements({"views": SCHEMA, "tables": grants.quote(tables)}, roles))


def _statements(names: Mapping[str, str], roles: Mapping[RoleKind, str]) -> Iterator[str]:
    yield f"CREATE SCHEMA {SCHEMA}"
    yield _JOBS.format(**names, name="job", states=_WAITING)
    yield _JOBS.format(**names, name="job_log", states=_OVER)
    for statement in (_TASK, _RESOURCE, _ADD_JOB, _SAY, _ADDS, _SAYS):
        yield statement.format(**names)
    for kind, role in roles.items():
        to = grants.quote(role)
        yield f"GRANT USAGE ON SCHEMA {SCHEMA} TO {to}"
        yield f"GRANT SELECT ON ALL TABLES IN SCHEMA {SCHEMA} TO {to}"
        yield f"GRANT {_RIGHTS[kind]} ON {SCHEMA}.job TO {to}"
