"""Soak: one crawl for an hour with faults, and what grows in the meantime.

    python bench/soak.py --minutes 60 --picture docs/soak.svg

Every ten seconds are read: the memory of a worker that no fault ends, connections, the size of
`work` and of all tables for each item, and how long claims and commits took. `make soak` runs it.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import psutil
import psycopg
from chaos.drive import WORKERS, Report, allowed, disturb
from chaos.faults import FAULTS, NEEDS, Strike
from chaos.field import Field, open_field
from support import servers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

EVERY = 10.0  # seconds
# The worker that is measured keeps its code, and does not end when there is nothing to do.
WITHOUT = {"raise a version", "disable tasks"}
READ = """
    SELECT (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend') - 1,
        pg_total_relation_size('work') / 1e6,
        (SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c
            WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace)
            / 1e3 / greatest(1, (SELECT count(*) FROM items)),
        (SELECT count(*) FROM items)
"""
PANELS = {
    "memory": "memory of a worker, MB",
    "connections": "connections",
    "work": "work with its indexes, MB",
    "item": "all tables and indexes, KB for each item",
    "claim": "a claim, ms (median of ten seconds)",
    "commit": "a commit, ms (median of ten seconds)",
}
WIDTH, HEIGHT, LEFT = 760, 110, 60


@dataclass
class Samples:
    """What was read, by panel, each with its minute; and the minutes of the faults."""

    minutes: float = 0.0
    items: int = 0
    rows: dict[str, list[tuple[float, float]]] = field(
        default_factory=lambda: {panel: [] for panel in PANELS}
    )
    faults: list[float] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        """Return what each was in the first, the second and the last third: a median."""
        yield f"| {'median of a third':<42} | first | second | last |\n|---|---|---|---|"
        for panel, title in PANELS.items():
            thirds: list[list[float]] = [[], [], []]
            for minute, value in self.rows[panel]:
                thirds[min(2, int(3 * minute / self.minutes))].append(value)
            cells = (f"{statistics.median(third):,.1f}" if third else "" for third in thirds)
            yield f"| {title:<42} | {' | '.join(cells)} |"


class Recorder(threading.Thread):
    """Reads what grows, every ten seconds, until it is closed."""

    def __init__(self, one: Field, elder: int) -> None:
        super().__init__(daemon=True)
        self.samples = Samples()
        self._field = one
        self._elder = psutil.Process(elder)
        self._began = time.monotonic()
        self._read = 0  # bytes of the times
        self._over = threading.Event()
        self.start()

    @property
    def minute(self) -> float:
        """How many minutes it has been reading."""
        return (time.monotonic() - self._began) / 60

    def run(self) -> None:
        """Read again and again."""
        while not self._over.wait(EVERY):
            with suppress(psycopg.Error, psutil.Error):
                self._sample()

    def close(self) -> Samples:
        """Stop, and return what was read."""
        self._over.set()
        self.join()
        self.samples.minutes = self.minute
        return self.samples

    def _sample(self) -> None:
        self._add("memory", self._elder.memory_info().rss / 1e6)
        for name, times in self._times().items():
            if times:
                self._add(name, 1e3 * statistics.median(times))
        with self._field.connect() as connection:
            row = connection.execute(READ).fetchone()
        assert row is not None
        for panel, value in zip(("connections", "work", "item"), row, strict=False):
            self._add(panel, float(value))
        self.samples.items = row[3]

    def _times(self) -> dict[str, list[float]]:
        times: dict[str, list[float]] = {"claim": [], "commit": []}
        path = self._field.directory / "times.txt"
        with path.open() as file:
            file.seek(self._read)
            text = file.read()
        whole = text[: text.rfind("\n") + 1]
        self._read += len(whole)
        for line in whole.splitlines():
            name, seconds = line.split()
            times[name].append(float(seconds))
        return times

    def _add(self, panel: str, value: float) -> None:
        self.samples.rows[panel].append((self.minute, value))


def soak(minutes: float, seed: int, names: Sequence[str], longest: float) -> tuple[Samples, Report]:
    """Crawl for so many minutes with faults; return what was read, and the driver's report."""
    choice = random.Random(seed)
    needs = frozenset(NEEDS[name] for name in names if name in NEEDS)
    settings = '\nEXTENSIONS = {"proj.timing.Timing": 0}\n'
    with (
        servers.open_directory() as directory,
        open_field(directory, WORKERS, needs, is_local=False, settings=settings) as one,
    ):
        elder = one.workers[-1].pid
        recorder = Recorder(one, elder)

        def faults() -> Iterator[str]:
            while recorder.minute < minutes:
                recorder.samples.faults.append(recorder.minute)
                yield choice.choice(names)
            recorder.close()

        report = disturb(one, faults(), partial(Strike, choice, longest, frozenset({elder})))
        return recorder.close(), report


def picture(samples: Samples) -> str:
    """Return an SVG with a panel for each of what was read; grey lines are faults."""
    parts, y = [], 8
    for panel, title in PANELS.items():
        parts += _panel(y, title, samples.rows[panel], samples)
        y += HEIGHT + 34
    parts.append(_text(LEFT, y + 2, f"0 to {samples.minutes:.0f} minutes; grey lines are faults"))
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y + 14}" '
        f'viewBox="0 0 {WIDTH} {y + 14}" font-family="sans-serif" font-size="12">'
        '<rect width="100%" height="100%" fill="white"/>'
    )
    return "\n".join([head, *parts, "</svg>\n"])


def _panel(
    y: int, title: str, rows: Sequence[tuple[float, float]], samples: Samples
) -> Iterator[str]:
    """Draw a line from zero up to the 98th percentile, for some samples fell into an outage."""
    values = sorted(value for _, value in rows)
    most = 1.15 * values[int(0.98 * (len(values) - 1))] if values else 1.0
    across = (WIDTH - LEFT - 10) / samples.minutes
    top, bottom = y + 18, y + 18 + HEIGHT
    yield _text(LEFT, y + 12, title, 'font-weight="bold"')
    for minute in samples.faults:
        x = LEFT + across * minute
        yield f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{bottom}" stroke="#e4e4e4"/>'
    for share in (0.0, 0.5, 1.0):
        height = bottom - HEIGHT * share
        yield _text(LEFT - 6, height + 4, f"{most * share:,.3g}", 'text-anchor="end"')
        yield f'<line x1="{LEFT}" x2="{WIDTH - 10}" y1="{height}" y2="{height}" stroke="#ccc"/>'
    points = (
        f"{LEFT + across * minute:.1f},{bottom - HEIGHT * min(1.0, value / most):.1f}"
        for minute, value in rows
    )
    yield f'<polyline points="{" ".join(points)}" fill="none" stroke="#1f6fb2" stroke-width="1.3"/>'


def _text(x: float, y: float, words: str, attributes: str = "") -> str:
    return f'<text x="{x}" y="{y}" {attributes}>{escape(words)}</text>'


def main() -> int:
    """Read the options, soak, and print; 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--longest", type=float, default=40.0, help="seconds of what lasts")
    parser.add_argument("--picture", type=Path, help="where to write it, as SVG")
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    names = allowed([name for name in FAULTS if name not in WITHOUT])
    samples, report = soak(given.minutes, given.seed, names, given.longest)
    print(*report.lines(), sep="\n")
    print(f"{samples.minutes:.0f} minutes, {samples.items:,} items", *samples.lines(), sep="\n")
    if given.picture is not None:
        given.picture.write_text(picture(samples))
    return 1 if report.wrongs else 0


if __name__ == "__main__":
    sys.exit(main())
