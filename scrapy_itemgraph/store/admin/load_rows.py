"""The rows of a dump's items: which columns of which tables they are, in the order of COPY."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from scrapy_itemgraph.model import input_checks, item_names
from scrapy_itemgraph.store.admin import dump_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from scrapy_itemgraph.store.admin.load_contents import LoadedContents

    Limit = tuple[str, str]  # kind and name
    Rows = dict[str, list[tuple[Any, ...]]]  # by table

_NOTHING: dict[str, Any] = {}

ITEMS = """items (id, crawl_id, slot_id, name, data, created_by, nice, not_before, created_at,
    updated_at, has_blobs, is_from_outside, in_frontier)"""
BLOBS = "blobs (item_id, name, content_id, mime, attached_at)"
ALIASES = "aliases (crawl_id, key, name, item_id)"
TAGS = "tags (item_id, tag_name, crawl_id, value)"
RESULTS = """results (item_id, task_id, task_version, metadata, is_successful, is_held, created_at,
    completed_at, invalidated_at, expires_at, due_at, ttl_overridden, run, hold, led_to)"""
ATTEMPTS = """attempts (item_id, task_id, token, task_version, number, outcome, error, log,
    started_at, ended_at, scraped, ruleset_id, page)"""
WORK = """work (item_id, task_id, crawl_id, queue_id, kind_id, is_stale, nice, seq, tries, deaths,
    stalls, alone_deaths, alone_stalls, is_refiled, not_before, request)"""
FAILURES = """failures (item_id, task_id, is_refusal, error, occurred_at, handled_at, handled_by,
    fingerprint)"""
QUEUES = """frontier_queues (queue_id, crawl_id, delay, blocked_until, last_served, crawl_limit,
    completed, is_deleting)"""
JOURNAL = "journal (crawl_id, item_id, task_id, item_class, fields, created_at)"

OF_ITEMS = (ITEMS, ALIASES, TAGS, BLOBS, RESULTS, ATTEMPTS, WORK)


class Numbers(NamedTuple):
    """The numbers of slots and queues by the slot's name, and of kinds by task and limits."""

    slots: dict[str, int]
    queues: dict[str, int]
    kinds: dict[tuple[str, tuple[Limit, ...]], int]


@dataclass(frozen=True, slots=True)
class ItemRows:
    """Makes rows of the items of one crawl.

    `tasks` are the numbers of its tasks, `rulesets` those of its rulesets by theirs in the crawl,
    `before` what is added to the place of its work.
    """

    crawl_id: int
    before: int
    tasks: Mapping[str, int]
    contents: LoadedContents
    rulesets: Mapping[int, int]

    def add(self, rows: Rows, line: dict[str, Any], number: int, of: Numbers) -> None:
        """Add the rows of an item, which gets this number.

        Raises what the line lacks, or has wrong: KeyError, TypeError, ValueError, ItemGraphError.
        """
        crawl, get = self.crawl_id, line.get
        name, slot = item_id(line["id"]), line["slot"]
        rows[ITEMS].append(
            (
                number,
                crawl,
                of.slots[slot],
                name,
                dump_lines.object_text(line, "data"),
                get("created_by"),
                get("nice"),
                get("not_before"),
                line["created_at"],
                line["updated_at"],
                True if "blobs" in line else None,
                True if get("is_from_outside") else None,
                True if get("in_frontier") else None,
            )
        )
        for alias in (name, *get("aliases", ())):
            rows[ALIASES].append((crawl, item_names.hex_key(alias), item_id(alias), number))
        for tag, value in get("tags", _NOTHING).items():
            input_checks.check_tag(tag)
            rows[TAGS].append(
                (number, tag, crawl, None if value is None else dump_lines.text(value))
            )
        for one in get("blobs", ()):
            content = self.contents.number(one["sha256"])
            blob = input_checks.check_tag(one["name"], "name")
            rows[BLOBS].append((number, blob, content, one.get("mime"), one["attached_at"]))
        for one in get("results", ()):
            rows[RESULTS].append(self._result(one, number))
        for one in get("attempts", ()):
            rows[ATTEMPTS].append(self._attempt(one, number))
        for one in get("work", ()):
            limits = one.get("limits")
            kind = of.kinds[one["task"], pairs(limits) if limits else ()]
            rows[WORK].append(self._work(one, number, of.queues[one.get("slot", slot)], kind))

    def _result(self, one: dict[str, Any], number: int) -> tuple[Any, ...]:
        get = one.get
        _check_expiry(one)
        return (
            number,
            self.tasks[one["task"]],
            one["version"],
            dump_lines.object_text_of(one, "metadata") or "{}",
            one["is_successful"],
            get("is_held", False),
            one["created_at"],
            get("completed_at"),
            get("invalidated_at"),
            get("expires_at"),
            get("due_at"),
            get("ttl_overridden", False),
            get("run"),
            get("hold"),
            get("led_to"),
        )

    def _attempt(self, one: dict[str, Any], number: int) -> tuple[Any, ...]:
        return (
            number,
            self.tasks[one["task"]],
            one["token"],
            one["version"],
            one["number"],
            one["outcome"],
            dump_lines.object_text_of(one, "error"),
            dump_lines.text_of(one, "log"),
            one.get("started_at"),
            one["ended_at"],
            one.get("scraped"),
            self.rulesets[int(one["ruleset"])] if "ruleset" in one else None,
            dump_lines.object_text_of(one, "page"),
        )

    def _work(self, one: dict[str, Any], number: int, queue: int, kind: int) -> tuple[Any, ...]:
        get = one.get
        return (
            number,
            self.tasks[one["task"]],
            self.crawl_id,
            queue,
            kind,
            get("is_stale", False),
            get("nice", 0),
            self.before + int(one["order"]),
            get("tries", 0),
            get("deaths", 0),
            get("stalls", 0),
            get("alone_deaths", 0),
            get("alone_stalls", 0),
            get("is_refiled", False),
            get("not_before"),
            dump_lines.object_text_of(one, "request"),
        )


def _check_expiry(one: Mapping[str, Any]) -> None:
    """Refuse a result that was stale when it was made: its page would be fetched for ever."""
    completed, expires = one.get("completed_at"), one.get("expires_at")
    if completed is None or expires is None:
        return
    if not _moment(completed) < _moment(expires):
        raise ValueError(
            f"a result of the task {one['task']!r} expires at {expires}, which is not after its "
            f"completion at {completed}"
        )


def _moment(given: Any) -> datetime:
    """Return a moment, to be compared."""
    try:
        moment = datetime.fromisoformat(given)
    except (ValueError, TypeError):
        raise ValueError(f"{given!r:.80} is no moment as ISO 8601 has it") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def item_id(name: Any) -> str:
    """Return an id, if it can be one."""
    return input_checks.check_id(name)


def pairs(limits: Iterable[Sequence[str]]) -> tuple[Limit, ...]:
    """Return limits as kinds and names."""
    return tuple((kind, name) for kind, name in limits)
