"""Tables of medians with their spread, a picture of them, and their place in the docs."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING

from end_to_end.contestants import BASE, CEILING, CONTESTANTS, REDIS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from end_to_end.crawls import Cost

BEGIN, END = "<!-- begin: written by make bench -->", "<!-- end: written by make bench -->"
HEADER = (
    ("contestant", ":---"),
    ("pages/s", "---:"),
    ("to memory", "---:"),
    ("to the list", "---:"),
    ("to scrapy-redis", "---:"),
    ("crawl CPU, ms a page", "---:"),
    ("server CPU, ms a page", "---:"),
    ("peak memory, MB", "---:"),
    ("WAL, bytes a page", "---:"),
)
NONE = "-"

WIDTH, LABEL, BAR, GAP = 760, 190, 18, 6  # pixels of the picture
COLOURS = {"ours": "#2563a8", "base": "#555555", "other": "#a9b1ba"}


@dataclass
class Contest:
    """The runs of one site with one set of settings: by contestant, one for each round."""

    title: str
    costs: dict[str, list[Cost]] = field(default_factory=dict)

    def of(self, name: str, figure: Callable[[Cost], float]) -> list[float]:
        """Return a figure of each round."""
        return [figure(cost) for cost in self.costs[name]]

    def ratios(self, name: str, other: str) -> list[float]:
        """Return the rate of a contestant to another's of the same round, if there is one."""
        if other not in self.costs or name == other:
            return []
        both = zip(self.costs[name], self.costs[other], strict=False)  # one may have run less
        return [mine.rate / its.rate for mine, its in both]


def shown(figures: Sequence[float], digits: int) -> str:
    """Return a median, and the least and the most in brackets where there are several."""
    if not figures:
        return NONE
    text = f"{statistics.median(figures):,.{digits}f}"
    if len(figures) > 1:
        text += f" ({min(figures):,.{digits}f} to {max(figures):,.{digits}f})"
    return text


def table(contest: Contest) -> str:
    """Return a Markdown table with a row for each contestant."""
    rows = [[title for title, _ in HEADER], [alignment for _, alignment in HEADER]]
    for name in contest.costs:
        server = CONTESTANTS[name].server
        cpu = contest.of(name, lambda cost: cost.server_cpu_of_page)
        wal = contest.of(name, lambda cost: cost.wal_of_page)
        rows.append(
            [
                CONTESTANTS[name].title,
                shown(contest.of(name, lambda cost: cost.rate), 0),
                shown(contest.ratios(name, BASE), 2),
                shown(contest.ratios(name, CEILING), 2),
                shown(contest.ratios(name, REDIS), 2),
                shown(contest.of(name, lambda cost: cost.cpu_of_page), 2),
                shown(cpu if server else [], 2),
                shown(contest.of(name, lambda cost: cost.megabytes), 0),
                shown(wal if server == "postgresql" else [], 0),
            ]
        )
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def foreign(contests: Sequence[Contest]) -> str:
    """Return a line on what else the machine did during the runs."""
    cores = [cost.foreign for one in contests for costs in one.costs.values() for cost in costs]
    return (
        f"Everything else on the machine kept {statistics.median(cores):.2f} cores busy "
        f"(median of all runs; at most {max(cores):.2f})."
    )


def section(contest: Contest) -> str:
    """Return a heading, and below it the table."""
    rounds = len(next(iter(contest.costs.values())))
    of = f"The median of {rounds} rounds, and the least and the most." if rounds > 1 else "A run."
    return f"### {contest.title[0].upper()}{contest.title[1:]}\n\n{of}\n\n{table(contest)}\n"


def picture(contests: Sequence[Contest]) -> str:
    """Return an SVG with a bar for each contestant's median rate, and a line for its spread."""
    parts: list[str] = []
    y = 10
    for contest in contests:
        y += 24
        parts.append(_text(10, y, f"Pages a second on {contest.title}", 'font-weight="bold"'))
        y += 10
        rates = {name: contest.of(name, lambda cost: cost.rate) for name in contest.costs}
        scale = (WIDTH - LABEL - 70) / max(max(figures) for figures in rates.values())
        for name, figures in rates.items():
            parts += _bar(y, name, figures, scale)
            y += BAR + GAP
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y + 10}" '
        f'viewBox="0 0 {WIDTH} {y + 10}" font-family="sans-serif" font-size="13">'
        '<rect width="100%" height="100%" fill="white"/>'
    )
    return "\n".join([head, *parts, "</svg>\n"])


def _bar(y: int, name: str, figures: list[float], scale: float) -> list[str]:
    """Draw a contestant's bar, its spread and its median."""
    kind = "ours" if CONTESTANTS[name].server == "postgresql" else "other"
    colour = COLOURS["base" if name == BASE else kind]
    median, middle = statistics.median(figures), y + BAR / 2
    least, most = (LABEL + scale * figure for figure in (min(figures), max(figures)))
    return [
        _text(LABEL - 8, y + 14, CONTESTANTS[name].title, 'text-anchor="end"'),
        f'<rect x="{LABEL}" y="{y}" width="{scale * median:.1f}" height="{BAR}" fill="{colour}"/>',
        f'<line x1="{least:.1f}" x2="{most:.1f}" y1="{middle}" y2="{middle}" stroke="black"/>',
        _text(round(most) + 6, y + 14, f"{median:,.0f}"),
    ]


def _text(x: float, y: float, words: str, attributes: str = "") -> str:
    return f'<text x="{x}" y="{y}" {attributes}>{escape(words)}</text>'


def placed(page: str, text: str) -> str:
    """Return a page with the text between the two markers; ValueError if it lacks them."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    if not rest or END not in rest:
        raise ValueError(f"no {BEGIN} … {END} in the page")
    return f"{before}{BEGIN}\n\n{text.strip()}\n\n{END}{after}"


def write(docs: Path, lines: Sequence[str], contests: Sequence[Contest]) -> None:
    """Write tables and picture to the docs; contests of the settings as they come are drawn."""
    drawn = [contest for contest in contests if "`" not in contest.title]
    (docs / "benchmarks.svg").write_text(picture(drawn))
    parts = ["\n".join(f"- {line}" for line in lines)]
    parts += ["![Pages a second of each contestant, as in the tables](benchmarks.svg)"]
    parts += [section(contest).strip() for contest in contests]
    page = docs / "benchmarks.md"
    page.write_text(placed(page.read_text(), "\n\n".join(parts)))
