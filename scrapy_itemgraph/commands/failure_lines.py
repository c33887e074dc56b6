"""Failures as people read them: one line each, one line for a group, or all of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy_itemgraph.commands import printing
from scrapy_itemgraph.model import error_fingerprints, item_names, next_commands, page_records
from scrapy_itemgraph.model.work import ErrorRecord
from scrapy_itemgraph.tools import wording

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from datetime import datetime

    from scrapy_itemgraph.store.admin.failure_groups import FailureGroup
    from scrapy_itemgraph.store.failures import OpenFailure
    from scrapy_itemgraph.store.open_failures import FailureDetails

_MOST_RUNS = 5  # that a line has


def table(rows: Sequence[OpenFailure], now: datetime) -> Iterator[str]:
    """Write failures, a line each: number, age, task, the error's beginning, the page."""
    columns: printing.Columns = {
        "FAILURE": "id",
        "AGE": lambda row: _age(row.occurred_at, now),
        "TASK": "task",
        "ERROR": lambda row: _said(row.error, is_refusal=row.is_refusal),
        "PAGE": lambda row: item_names.page(row.url, row.method) or row.item,
    }
    return printing.table(rows, columns, in_lines=True)


def groups(found: Sequence[FailureGroup], now: datetime) -> Iterator[str]:
    """Write groups, a line each, beginning with the number of an example, the last of them."""
    columns: printing.Columns = {
        "GROUP": lambda one: one.example.id,
        "FAILURES": "count",
        "NO": lambda one: None if one.number is None else f"#{one.number}",
        "ALL": lambda one: one.times if one.times > one.count else None,
        "BY RUN": _by_run,
        "FIRST": lambda one: _age(one.first_seen, now),
        "LAST": lambda one: _age(one.last_at, now),
        "TASK": "task",
        "ERROR": _shape,
        "RAISED IN": lambda one: _function(_record(one.example.error).place),
    }
    return printing.table(found, columns, in_lines=True)


def details(found: FailureDetails, simulates: str, categories: Collection[str]) -> Iterator[str]:
    """Write all of a failure, and the commands that come next: `simulates`, and its handling."""
    failure, error = found.failure, _record(found.failure.error)
    page = item_names.page(failure.url, failure.method)
    is_known_by_page = item_names.label_of(failure.item, failure.url, failure.method) == page
    yield _state(found)
    yield from printing.fields(
        [
            ("error", _one_line(error)),
            ("raised in", error.place),
            ("page", page),
            ("status", error.status),
            ("answered by", error.url if error.url not in {failure.url, ""} else None),
            ("answer", page_records.shown(failure.page, failure.url) if failure.page else None),
            ("item", None if page and is_known_by_page else failure.item),
            ("callback" if found.is_callback else "task", failure.task),
            ("when", printing.moment(failure.occurred_at)),
            ("attempt", found.attempt),
        ]
    )
    yield from _block("traceback", error.traceback)
    if failure.log:
        yield from ("", "logged")
        yield from printing.log(failure.log, categories)
    yield from _block("the page that it saw", error.snippet)
    yield from ("", "next")
    verb = "handle" if found.handled_at is None else "unhandle"
    yield f"  {printing.clean(simulates)}"
    yield f"  {next_commands.command(verb, failure.id)}"


def _state(found: FailureDetails) -> str:
    kind = "refusal" if found.failure.is_refusal else "failure"
    if found.handled_at is None:
        return f"{kind} {found.failure.id}: {printing.coloured('open', printing.REMOVED)}"
    by = f", {printing.clean(found.handled_by)}" if found.handled_by else ""
    return f"{kind} {found.failure.id}: handled {printing.moment(found.handled_at)}{by}"


def _block(head: str, said: Any) -> Iterator[str]:
    """Write a text of several lines under its head; nothing where there is none."""
    if said:
        yield from ("", head)
        yield from (f"  {printing.clean(line)}" for line in str(said).rstrip().splitlines())


def _record(error: Any) -> ErrorRecord:
    return ErrorRecord.read(error if isinstance(error, dict) else {})


def _one_line(error: ErrorRecord) -> str:
    return " ".join(str(error).split()).rstrip(": ")


def _said(error: Any, *, is_refusal: bool) -> str:
    return f"{'refused: ' if is_refusal else ''}{_one_line(_record(error))}"


def _shape(group: FailureGroup) -> str:
    """Return what the errors of a group have in common: the type, and the message's shape."""
    error = _record(group.example.error)
    shape = ErrorRecord(type=error.type, message=error_fingerprints.shape(error))
    return f"{'refused: ' if group.is_refusal else ''}{_one_line(shape)}"


def _by_run(group: FailureGroup) -> str:
    """Return how often the last runs had failures of a group, unless it is one run's alone."""
    last = group.runs[-_MOST_RUNS:] if len(group.runs) > 1 else []
    return " ".join(f"{one.times:,}" for one in last)


def _function(place: str | None) -> str:
    """Return a function as it is called in its module: `BookSpider.parse`."""
    return ".".join(str(place or "").split(".")[-2:])


def _age(moment: datetime, now: datetime) -> str:
    return wording.format_period(max((now - moment).total_seconds(), 0))
