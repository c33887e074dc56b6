"""What people read of a simulation: the items that it changes, before and after."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from scrapy_itemgraph.commands import printing
from scrapy_itemgraph.commands.printing import ADDED, BOLD, CHANGED, REMOVED
from scrapy_itemgraph.model import counts, item_names, run_standings
from scrapy_itemgraph.model.work import Outcome
from scrapy_itemgraph.tools import wording
from scrapy_itemgraph.worker.executions import error_records

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from datetime import datetime

    from scrapy_itemgraph.model.simulations import (
        BlobPicture,
        Change,
        ItemPicture,
        ResultPicture,
        Simulation,
        WorkPicture,
    )

_MOST_NEW = 20
_MOST_REQUESTS = 20
_MOST_DROPPED = 20
_MOST_SCRAPED = 10
_MOST_OF_COOKIE = 12  # characters of a value, which may be a secret; --json has all
_BODY, _FURTHER = 4, 6
_ABSENT = object()


def lines(
    document: dict[str, Any], simulation: Simulation, categories: Collection[str]
) -> Iterator[str]:
    """Write what a simulation came to."""
    for one in document["warnings"]:
        yield from printing.sentence(f"warning: {one}", style=CHANGED)
    for one in document["requests"]:
        source = "" if one["source"] == "website" else f" ({one['source']})"
        yield from printing.paragraph(f"{one['status']} {one['method']} {one['url']}{source}")
        yield from _cookies(one["cookies"])
    yield from _outcome(document)
    yield from _not_yielded(document)
    now = simulation.now
    requests = {one["item"] for one in document["yielded"]}
    new = [
        one
        for one in simulation.changes
        if one.kind == "new" and one.after is not None and one.after.id not in requests
    ]
    for change in simulation.changes:
        if change.kind != "new":
            yield ""
            yield from _change(change, document, now)
    for change in new[:_MOST_NEW]:
        yield ""
        yield from _change(change, document, now)
    if len(new) > _MOST_NEW:
        yield ""
        yield f"and {counts.many(len(new) - _MOST_NEW, 'more new item')}; --json has all"
    yield from _yielded(document["yielded"])
    yield from _dropped(document["dropped"])
    if document["log"]:
        yield ""
        yield printing.coloured("logged", BOLD)
        yield from printing.log(document["log"], categories)
    yield from _scraped(document["scraped"])
    yield ""
    yield "nothing was changed: this was a simulation"


def _outcome(document: dict[str, Any]) -> Iterator[str]:
    outcome = document["outcome"]
    said = printing.coloured(outcome)
    item = item_names.label_of(document["item"], document["url"], document["method"])
    yield f"{printing.clean(document['task'])} of {printing.clean(item)}: {said}"
    if document["is_made_up"]:
        what = "item" if document["method"] is None else "page"
        yield f"    made up: the graph does not have this {what}"
    yield from printing.error(document["error"])
    where = _last_frame(document["error"])
    if where:
        yield from printing.paragraph(where, indent=_BODY)
    if outcome == Outcome.RETRY:
        seconds = wording.format_period(document["retry_in"] or 0)
        yield f"    a crawl would try again in {seconds}"
    elif outcome == Outcome.RELEASED:
        yield from printing.paragraph(document["released_because"], indent=_BODY)
    elif outcome == Outcome.GONE:
        held = "pair" if document["method"] is None else "page"
        yield f"    the {held} would be held, and there would be no failure"
    elif outcome == Outcome.SKIPPED:
        yield from printing.paragraph(
            "the crawl's rules skip it: it would be set aside, and not asked for; scrapy itemgraph "
            "rules test says by which rule. A saved page (--response) is looked at all the same",
            indent=_BODY,
        )
    elif outcome != Outcome.OK:
        is_kept = document["allow_failure"] and not document["dropped"]
        is_page = document["method"] is not None
        kept = "is not kept" if not is_kept else "is kept" if is_page else "is kept (allow_failure)"
        yield f"    {'the page' if is_page else 'the pair'} would be held; what it yielded {kept}"


def _cookies(cookies: Mapping[str, str]) -> Iterator[str]:
    """Write the cookies of a request."""
    if cookies:
        shown = "; ".join(f"{name}={_beginning(value)}" for name, value in cookies.items())
        yield from printing.paragraph(f"cookies: {shown}", indent=_BODY)


def _beginning(value: str) -> str:
    """Return a cookie's value, or of a longer one as much as tells it from others."""
    is_long = len(value) > _MOST_OF_COOKIE
    return f"{value[:_MOST_OF_COOKIE]}… ({len(value)} characters)" if is_long else value


def _not_yielded(document: dict[str, Any]) -> Iterator[str]:
    """Write that nothing was yielded, and what was made and not yielded."""
    if document["outcome"] == Outcome.OK and not document["has_yielded"]:
        yield from printing.paragraph("nothing was yielded", CHANGED, indent=_BODY)
    for one in document["not_yielded"]:
        times = "" if one["times"] == 1 else f", {one['times']:,} times"
        text = f"made and not yielded{times}: {one['made']}"
        yield from printing.paragraph(text, CHANGED, indent=_BODY)
        yield from printing.paragraph(one["line"], indent=2 * _BODY)


def _last_frame(error: Mapping[str, Any] | None) -> str:
    """Return the project's last line of a traceback; the very last where it has none."""
    frames = [
        line.strip()
        for line in ((error or {}).get("traceback") or "").splitlines()
        if line.lstrip().startswith('File "')
    ]
    own = [one for one in frames if error_records.is_project_file(one.split('"')[1])]
    return (own or frames or [""])[-1]


def _change(change: Change, document: Mapping[str, Any], now: datetime | None) -> Iterator[str]:
    before, after = change.before, change.after
    if before is None:
        assert after is not None
        yield from printing.paragraph(f"+ {_label(after)} (new)", ADDED)
        yield from _new(after)
        return
    if after is None:
        what = change.kind if change.into is None else f"merged into {change.into}"
        yield from printing.paragraph(f"- {_label(before)} ({what})", REMOVED)
        return
    if before.id == after.id:
        yield from printing.paragraph(f"~ {_label(before)}", BOLD)
    else:
        yield from printing.paragraph(f"~ {_label(before)} -> {_label(after)} (renamed)", BOLD)
    names, then = (dict.fromkeys(_names(one)) for one in (before, after))
    yield from _differences("alias", names, then)
    yield from _differences("tag", before.tags, after.tags)
    yield from _differences("data", before.data, after.data, sign=".")
    yield from _blobs(before.blobs, after.blobs)
    task = document["task"]
    again = task if document["is_fetched_again"] else None
    yield from _results(before.results, after.results, now, again)
    yield from _work(before.work, after.work, task)


def _label(item: ItemPicture) -> str:
    return item_names.label(item.id, item.data)


def _names(item: ItemPicture) -> list[str]:
    """Return an item's id, and its aliases without those by which requests are stored."""
    return [item.id, *(one for one in item.aliases if not item_names.is_request(one))]


def _new(item: ItemPicture) -> Iterator[str]:
    for alias in _names(item)[1:]:
        yield from _line("+", f"alias {alias}")
    for name, value in item.tags.items():
        yield from _line("+", _valued("tag", name, value))
    for key, value in item.data.items():
        yield from _line("+", f"data.{key}: {_json(value)}")
    yield from _blobs({}, item.blobs)
    yield from _results({}, item.results, None)
    yield from _work({}, item.work, "")


def _differences(
    what: str, before: Mapping[str, Any], after: Mapping[str, Any], *, sign: str = " "
) -> Iterator[str]:
    """Write what two mappings differ in, key by key."""
    for key in dict.fromkeys([*before, *after]):
        old, new = before.get(key, _ABSENT), after.get(key, _ABSENT)
        name = f"{what}{sign}{key}"
        if old is _ABSENT:
            yield from _line("+", name if new is None and sign == " " else f"{name}: {_json(new)}")
        elif new is _ABSENT:
            yield from _line("-", name if old is None and sign == " " else f"{name}: {_json(old)}")
        elif json.dumps(old) != json.dumps(new):
            yield from _line("~", f"{name}: {_json(old)} -> {_json(new)}")


def _blobs(before: Mapping[str, BlobPicture], after: Mapping[str, BlobPicture]) -> Iterator[str]:
    for name in dict.fromkeys([*before, *after]):
        old, new = before.get(name), after.get(name)
        if old is None and new is not None:
            yield from _line("+", f"blob {name}: {_blob(new)}")
        elif new is None and old is not None:
            yield from _line("-", f"blob {name}: {_blob(old)}")
        elif old is not None and new is not None and old != new:
            yield from _line("~", f"blob {name}: {_blob(old)} -> {_blob(new)}")


def _blob(blob: BlobPicture) -> str:
    mime = "" if blob.mime is None else f", {blob.mime}"
    return f"{blob.size:,} bytes{mime}, {blob.sha256[:8]}"


def _results(
    before: Mapping[str, ResultPicture],
    after: Mapping[str, ResultPicture],
    now: datetime | None,
    again: str | None = None,
) -> Iterator[str]:
    """Write what became of results; `again` is the callback whose page a new run fetches again."""
    for task in dict.fromkeys([*before, *after]):
        old, new = before.get(task), after.get(task)
        if old == new:
            continue
        if new is None:
            yield from _line("-", f"result of {task}")
            continue
        state = new.state if old is None else f"{old.state} -> {new.state}"
        if old is not None and old.state == new.state:
            is_again = old.completed_at != new.completed_at
            state = f"{new.state} again" if is_again else new.state
        is_made_now = old is None or old.completed_at != new.completed_at
        since = new.completed_at if now and is_made_now else now
        is_done_for_good = new.state == "fresh" and new.expires_at is None
        is_fetched_again = is_done_for_good and task == again
        has_end = new.expires_at is not None or (is_done_for_good and not is_fetched_again)
        until = f", expires {_moment(new.expires_at, since)}" if has_end else ""
        yield from _line("~" if old else "+", f"{task}: {state}, version {new.version}{until}")
        if is_fetched_again:
            yield from printing.sentence(run_standings.fetches_again("a new run"), " " * _FURTHER)
        metadata = {} if old is None else old.metadata
        for line in _differences("metadata", metadata or {}, new.metadata or {}, sign="."):
            yield f"  {line}"


def _work(
    before: Mapping[str, WorkPicture], after: Mapping[str, WorkPicture], own: str
) -> Iterator[str]:
    for task in dict.fromkeys([*before, *after]):
        old, new = before.get(task), after.get(task)
        if old == new or (new is None and task == own):
            continue
        if new is None:
            yield from _line("-", f"work for {task}")
            continue
        state = "stale" if new.is_stale else "never run"
        slot = f", slot {new.slot}" if new.slot else ""
        later = "" if new.not_before is None else f", not before {printing.moment(new.not_before)}"
        yield from _line("~" if old else "+", f"work for {task}: {state}{slot}{later}")


def _yielded(requests: list[dict[str, Any]]) -> Iterator[str]:
    """Write the requests that were yielded, those that are new before those that are known."""
    if not requests:
        return
    new = sum(one["is_new"] for one in requests)
    yield ""
    head = f"requests: {new:,} new, {len(requests) - new:,} known"
    yield printing.coloured(head, BOLD)
    for one in sorted(requests, key=lambda one: not one["is_new"])[:_MOST_REQUESTS]:
        page = item_names.page(one["url"], one["method"])
        text = f"{page} -> {one['callback']}"
        if one["is_new"]:
            yield from _line("+", text)
        else:
            yield from printing.paragraph(f"{text} (known)", indent=_BODY)
    if len(requests) > _MOST_REQUESTS:
        yield f"    and {len(requests) - _MOST_REQUESTS:,} more; --json has all"


def _dropped(dropped: list[dict[str, Any]]) -> Iterator[str]:
    if not dropped:
        return
    yield ""
    yield printing.coloured(f"not kept: {len(dropped):,} operations", BOLD)
    for one in dropped[:_MOST_DROPPED]:
        given = ", ".join(f"{name}={_json(value)}" for name, value in one.items() if name != "op")
        yield from printing.paragraph(f"{one['op']} {given}", REMOVED, indent=_BODY)
    if len(dropped) > _MOST_DROPPED:
        yield f"    and {len(dropped) - _MOST_DROPPED:,} more; --json has all"


def _scraped(scraped: list[str]) -> Iterator[str]:
    if not scraped:
        return
    yield ""
    yield printing.coloured(f"scraped: {len(scraped):,}", BOLD)
    for one in scraped[:_MOST_SCRAPED]:
        yield from printing.paragraph(one, indent=_BODY)


def _line(sign: str, text: str) -> Iterator[str]:
    style = {"+": ADDED, "-": REMOVED}.get(sign, CHANGED)
    return printing.paragraph(f"{sign} {text}", style, indent=_BODY)


def _valued(what: str, name: str, value: Any) -> str:
    return f"{what} {name}" if value is None else f"{what} {name}: {_json(value)}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _moment(moment: datetime | None, now: datetime | None) -> str:
    if moment is None:
        return "never"
    if now is None:
        return printing.moment(moment)
    seconds = (moment - now).total_seconds()
    return f"in {wording.format_period(seconds)}" if seconds > 0 else "at once"
