"""How far a run is, for people: where its work stands, how fast it goes, what sites answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy_itemgraph.model import counts
from scrapy_itemgraph.model.run_standings import left_out, standing
from scrapy_itemgraph.tools import wording

if TYPE_CHECKING:
    from collections.abc import Iterator

_ALWAYS = ("waiting", "running", "later", "failed", "gone")
_IF_ANY = {"refused": "refused", "given_up": "given up"}


def fields(found: dict[str, Any]) -> Iterator[tuple[str, str | None]]:
    """Return names and values about the run of a `status`; values are None of what there is not."""
    run = found["run"]
    yield "run", None if run is None else _run(run)
    has_any = found["progress"]["known"] > 0
    yield "progress", progress(found["progress"], has_run=run is not None) if has_any else None
    yield "pace", pace(found["progress"])
    if run is not None:
        at_least = "at least " if run["at_least"] else ""
        yield "scraped", f"{at_least}{run['items']:,} items in this run"
        yield "answers", _answers(run["statuses"], run["bytes"], at_least)
        yield "links", left_out(run["long_links"], run["url_limit"])


def progress(found: dict[str, Any], *, has_run: bool) -> str:
    """Say how much of what the run has to do is done: `812 of 905 in this run (89%): 60 waiting`.

    Crawlers that share a crawl over gRPC have no run.
    """
    done, to_do, earlier, led = (
        number(found, name) for name in ("done", "to_do", "earlier", "led_to_known")
    )
    unit = "in this run" if has_run else "done"
    share = "" if found["share"] is None else f" ({_percent(found['share'])})"
    of = f"{counts.shown(done)} of {counts.shown(to_do)} {unit}{share}"
    heads = [of if to_do else f"nothing to do {unit}"]
    heads += [f"{counts.shown(led)} of them led to a known page"] if led else []
    heads += [f"{counts.shown(earlier)} fresh before"] if earlier else []
    parts = [f"{counts.shown(number(found, name))} {name}" for name in _ALWAYS]
    others = {said: number(found, name) for name, said in _IF_ANY.items()}
    parts += [f"{counts.shown(many)} {said}" for said, many in others.items() if many]
    return f"{', '.join(heads)}: {', '.join(parts)}"


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


def _answers(statuses: dict[str, int], size: int, at_least: str) -> str | None:
    """Say how often each HTTP status came, and how much that was."""
    if not statuses:
        return None
    known = sorted(status for status in statuses if status != "none")
    parts = [f"{status}: {statuses[status]:,}" for status in known]
    if "none" in statuses:
        parts.append(f"no answer: {statuses['none']:,}")
    return f"{at_least}{', '.join(parts)}; {wording.format_size(size)}"


def _run(run: dict[str, Any]) -> str:
    how = standing(run["state"], run["started_at"], run["ended_at"], run["reason"])
    return f"{run['number']}, {how}"
