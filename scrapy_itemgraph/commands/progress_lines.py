"""How far a run is, for people: where its work stands, how fast it goes, what sites answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy_itemgraph.model import counts
from scrapy_itemgraph.model.run_standings import left_out, standing
from scrapy_itemgraph.tools import wording

if TYPE_CHECKING:
    from collections.abc import Iterator

_ALWAYS = ("waiting", "running", "later", "failed", "gone")
_IF_ANY = {
    "refused": "refused",
    "given_up": "given up",
    "earlier": "done by earlier runs",
}

_NUMBERS = ("known", "done", "led_to_known", *_ALWAYS, *_IF_ANY)


def fields(found: dict[str, Any]) -> Iterator[tuple[str, str | None]]:
    """Return names and values about the run of a `status`; values are None of what there is not."""
    run = found["run"]
    yield "run", None if run is None else _run(run)
    yield "progress", progress(found["progress"]) if found["progress"]["known"] else None
    yield "pace", pace(found["progress"])
    if run is not None:
        yield "scraped", f"{run['items']:,} items in this run"
        yield "answers", _answers(run["statuses"], run["bytes"])
        yield "links", left_out(run["long_links"], run["url_limit"])


def progress(found: dict[str, Any]) -> str:
    """Say where what is known stands: `812 of 905 done (90%): 60 waiting, …`."""
    numbers = {name: number(found, name) for name in _NUMBERS}
    of_run = counts.less(numbers["known"], numbers["earlier"])
    share = "" if found["share"] is None else f" ({_percent(found['share'])})"
    parts = [f"{counts.shown(numbers[name])} {name}" for name in _ALWAYS]
    parts += [
        f"{counts.shown(numbers[name])} {said}" for name, said in _IF_ANY.items() if numbers[name]
    ]
    done = f"{counts.shown(numbers['done'])} of {counts.shown(of_run)} done{share}"
    led = numbers["led_to_known"]
    of_them = f", {counts.shown(led)} of them led to a known page" if led else ""
    return f"{done}{of_them}: {', '.join(parts)}"


def number(found: dict[str, Any], name: str) -> int:
    """Return a number of a progress, as an estimate where it is one."""
    return counts.Estimate(found[name]) if name in found["estimated"] else int(found[name])


def earlier(task: dict[str, Any]) -> int:
    """Return how many pieces of a task's work earlier runs did that are good still."""
    return counts.less(counts.total([task["fresh"], task["due"]]), task["done"])


def _percent(share: float) -> str:
    """Write a share: what is not all is not 100%."""
    return f"{min(99, int(share * 100)) if share < 1 else 100}%"


def pace(found: dict[str, Any]) -> str | None:
    """Say how fast it goes, and how long it takes still; None where nothing runs."""
    if found["pages_per_minute"] is None:
        return None
    pages, scraped = found["pages_per_minute"], found["scraped_per_minute"]
    said = f"{pages:,.0f} pages and {scraped:,.0f} scraped items a minute"
    if found["seconds_left"] is None:
        return said
    return f"{said}; about {wording.format_period(found['seconds_left'])} left"


def _answers(statuses: dict[str, int], size: int) -> str | None:
    """Say how often each HTTP status came, and how much that was."""
    if not statuses:
        return None
    known = sorted(status for status in statuses if status != "none")
    parts = [f"{status}: {statuses[status]:,}" for status in known]
    if "none" in statuses:
        parts.append(f"no answer: {statuses['none']:,}")
    return f"{', '.join(parts)}; {wording.format_size(size)}"


def _run(run: dict[str, Any]) -> str:
    how = standing(run["state"], run["started_at"], run["ended_at"], run["reason"])
    return f"{run['number']}, {how}"
