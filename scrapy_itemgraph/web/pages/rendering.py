"""From what the graph says to HTML: templates, and the words and numbers in them.

Everything is escaped by Jinja; besides, what websites sent is shown with its invisible and
steering characters escaped (`plain`, `lines`), and is a link only as `page_link` allows.
"""

from __future__ import annotations

import json
import shlex
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from importlib import metadata
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from scrapy_itemgraph.model import (
    counts,
    crawl_arguments,
    crawl_words,
    due_times,
    item_names,
    page_records,
)
from scrapy_itemgraph.tools.wording import format_period, format_size, one_line
from scrapy_itemgraph.web.pages import links, messages, tracebacks, trees

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fastapi import Request

    from scrapy_itemgraph.access.visitors import Visitor

_SHORT_ID = 120  # characters of a name that a table shows; the title has more
NOTHING = "\N{EN DASH}"
_SHORT_PERIOD = 10.0  # seconds that are told with a decimal
_TITLE = 1000  # characters of a title

# The sign of a state: its class, whose mark stands before the word. Red is what needs a person.
# What a person wanted, and what goes on by itself, has no colour.
SIGNS = {
    "well": "good quiet",
    "needs a look": "warn",
    "broken": "bad",
    **dict.fromkeys(("fresh", "ok", "unchanged", "sent", "no open failure", "done"), "good"),
    **dict.fromkeys(("runs", "running", "sweeping"), "live"),
    **dict.fromkeys(("paused", "aborted", "cancelled", "stopped", "ended", "disabled"), "held"),
    **dict.fromkeys(("gone", "refused", "skipped", "stashed", "left"), "held"),
    **dict.fromkeys(("low", "interrupted", "late", "blocked", "temporary-error"), "warn"),
    **dict.fromkeys(("died", "stalled"), "warn"),
    **dict.fromkeys(("failed", "stopped by failures", "permanent-error", "given up"), "bad"),
    "held": "bad held",
}


def plain(value: Any) -> str:
    """Return text as one line without characters that steer or hide."""
    return one_line(value)


def short(value: Any, most: int = _SHORT_ID) -> str:
    """Return text as one line, cut in its middle where it is long."""
    text = str(value)
    if len(text) > most:
        half = most // 2
        text = f"{text[:half]}…{text[-half:]}"
    return one_line(text)


def title(value: Any) -> str:
    """Return what the title of a cut text says."""
    text = str(value)
    return one_line(text if len(text) <= _TITLE else f"{text[:_TITLE]}…")


def number(value: int | None) -> Markup:
    """Return a number, marked where it is an estimate."""
    if value is None:
        return Markup('<span class="soft">{}</span>').format(NOTHING)
    if isinstance(value, counts.Estimate):
        return Markup('<span title="an estimate, from a sample">{}</span>').format(
            counts.shown(value)
        )
    return Markup("{}").format(counts.shown(value))


def when(value: datetime | None, nothing: str = "never") -> Markup:
    """Return a moment as the time from now, with the exact one in its title."""
    if value is None:
        return Markup('<span class="soft">{}</span>').format(nothing)
    seconds = (datetime.now(UTC) - value).total_seconds()
    text = f"{format_period(seconds)} ago" if seconds >= 0 else f"in {format_period(-seconds)}"
    return Markup('<time datetime="{}" title="{}" data-relative class="nowrap">{}</time>').format(
        value.astimezone(UTC).isoformat(), exact(value), text
    )


def exact(value: datetime) -> str:
    """Return a moment to the second."""
    return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def period(value: timedelta | float | None, nothing: str = NOTHING) -> str:
    """Return a period: `3d 4h`, `0.25s`."""
    if value is None:
        return nothing
    seconds = value.total_seconds() if isinstance(value, timedelta) else float(value)
    return f"{seconds:.2g}s" if 0 < seconds < _SHORT_PERIOD else format_period(seconds)


def schedule(stored: Mapping[str, Any]) -> str:
    """Return when results of a task expire: `at 03:00 Europe/Berlin`."""
    return str(due_times.read_expiry(stored))


def size(value: int | None) -> str:
    """Return a number of bytes: `12 kB`."""
    return NOTHING if value is None else format_size(value)


def sign(word: str) -> Markup:
    """Return a state as a word with a mark."""
    return Markup('<span class="sign {}">{}</span>').format(SIGNS.get(word, ""), word)


def json_text(value: Any) -> str:
    """Return a value in one line of JSON."""
    return one_line(json.dumps(value, ensure_ascii=False, default=str))


def _merged(given: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    return {**given, **more}


def _shell(value: Any) -> str:
    return shlex.quote(one_line(value))


def error(value: Any) -> dict[str, str]:
    """Return the type and the message of a recorded error, which may lack either."""
    found = value if isinstance(value, dict) else {}
    return {name: str(found.get(name) or "") for name in ("type", "message")}


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(str(files("scrapy_itemgraph.web") / "templates")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters = (
        plain,
        short,
        title,
        number,
        counts.many,
        when,
        exact,
        period,
        schedule,
        size,
        sign,
        json_text,
    )
    environment.filters |= {one.__name__: one for one in filters}
    environment.filters |= {"lines": trees.lines, "tree": trees.tree, "page_link": links.page_link}
    environment.filters |= {
        "shown": counts.shown,
        "answer": page_records.shown,
        "label": item_names.label_of,
        "options": crawl_arguments.as_options,
        "said": crawl_words.said,
        "segment": links.segment,
    }
    environment.filters |= {"traceback": tracebacks.of_error}
    environment.filters |= {"merged": _merged, "shell": _shell, "error": error}
    environment.globals["version"] = metadata.version("scrapy-itemgraph")
    return environment


ENVIRONMENT = _environment()


def part(template: str, **given: Any) -> str:
    """Render a part of a page."""
    text: str = ENVIRONMENT.get_template(template).render(given)
    return text


def page(
    request: Request,
    template: str,
    *,
    visitor: Visitor | None,
    crawl: str | None = None,
    tab: str = "",
    live_at: str | None = None,
    status: int = HTTPStatus.OK,
    headers: dict[str, str] | None = None,
    **given: Any,
) -> HTMLResponse:
    """Render a page, with the messages that an action before it left."""
    root: str = request.scope.get("root_path", "").rstrip("/")
    said = messages.taken(request)

    def to(name: str, of: str | None = crawl, **filters: Any) -> str:
        path = links.of_crawl(of, name, **filters) if of else f"/{name}{links.query(**filters)}"
        return root + path

    here = str(request.scope["path"]) + (f"?{request.url.query}" if request.url.query else "")
    text = part(
        template,
        root=root,
        to=to,
        here=here,
        crawl=crawl,
        tab=tab,
        visitor=visitor,
        may_operate=visitor is not None and visitor.may_operate,
        may_steer=visitor is not None and visitor.may_steer,
        has_queue=visitor is not None and request.app.state.has_queue(),
        live_at=live_at or (to("live") if crawl else None),
        said=said,
        now=datetime.now(UTC),
        **given,
    )
    answer = HTMLResponse(text, status, {"Cache-Control": "no-store", **(headers or {})})
    if said:
        messages.forget(request, answer)
    return answer
