"""Progress: how far long work is; a bar on a terminal, elsewhere a line now and then.

It goes to a log or to standard error, never to standard output. Short work says nothing.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from scrapy_itemgraph.tools import wording

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TextIO

# Seconds before anything is said, and between two lines.
_QUIET = 3.0
_EVERY = 10.0
_BAR_AFTER = 0.5
_ALL = 1000  # of a bar whose length is a share


class Progress:
    """Says how far a piece of work is, in lines: the first after 3 s, then one every 10 s.

    `what` names the work, `unit` what it counts; `say` takes the lines.
    """

    def __init__(
        self,
        what: str,
        unit: str,
        say: Callable[[str], None],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.what = what
        self.unit = unit
        self.done = 0
        self.total: int | None = None
        self.share: float | None = None
        self._say = say
        self._clock = clock
        self._began = clock()
        self._first = 0
        self._next = self._began + _QUIET
        self.has_said = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_due(self) -> bool:
        """Whether a line would be said now; who has to count for it may wait until then."""
        return self._clock() >= self._next

    def start_at(self, done: int) -> None:
        """Note what others had done before, for how fast it goes on."""
        self.done = self._first = done
        self._began = self._clock()

    def reach(self, done: int, *, total: int | None = None, share: float | None = None) -> None:
        """Note that so much is done: of a total, or a share from 0 to 1, where that is known."""
        self.done = done
        self.total = total
        self.share = share if share is not None else done / total if total else None
        if self.is_due:
            self._next = self._clock() + _EVERY
            self.has_said = True
            self._say(self.line())

    def line(self) -> str:
        """Return how far it is: "apply: 3,000 of 9,000 operations (33%), 1,200 a second"."""
        of = "" if self.total is None else f" of {self.total:,}"
        line = f"{self.what}: {self.done:,}{of} {self.unit}"
        if self.share is not None:
            line += f" ({min(self.share, 1.0):.0%})"
        seconds = self._clock() - self._began
        made = self.done - self._first
        if made and seconds > 0:
            line += f", {made / seconds:,.0f} a second"
            if self.total is not None and self.done < self.total:
                left = (self.total - self.done) * seconds / made
                line += f", {wording.format_period(max(1, round(left)))} left"
        return line

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Keep out of the way while something else is written to the terminal."""
        yield

    def close(self) -> None:
        """Say no more."""


class Bar(Progress):
    """Shows how far a piece of work is as a bar on a terminal, which goes when the work ends."""

    def __init__(self, what: str, unit: str, stream: TextIO) -> None:
        super().__init__(what, unit, lambda _: None)
        self._next = self._began + _BAR_AFTER
        self._stream = stream
        self._shown: Any = None
        self._task: Any = None

    def reach(self, done: int, *, total: int | None = None, share: float | None = None) -> None:
        """Note that so much is done."""
        super().reach(done, total=total, share=share)
        if self._shown is None:
            if self._clock() - self._began < _BAR_AFTER:
                return
            self._begin()
        self._update()

    def _begin(self) -> None:
        from rich import progress  # noqa: PLC0415 - most commands are over before a bar is shown
        from rich.console import Console  # noqa: PLC0415

        self._shown = progress.Progress(
            progress.TextColumn("{task.description}", markup=False),
            progress.BarColumn(),
            progress.TextColumn("{task.fields[line]}", markup=False),
            console=Console(file=self._stream),
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._task = self._shown.add_task(self.what, total=None, line="")
        self._shown.start()

    def _update(self) -> None:
        self._shown.update(
            self._task,
            line=self.line().removeprefix(f"{self.what}: "),
            total=None if self.share is None else _ALL,
            completed=0 if self.share is None else min(self.share, 1.0) * _ALL,
        )

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Take the bar away while something else is written to the terminal."""
        if self._shown is not None:
            self._shown.stop()
        yield
        if self._shown is not None:
            self._shown.start()

    def close(self) -> None:
        """Take the bar away."""
        if self._shown is not None:
            self._shown.stop()


def on(stream: TextIO, what: str, unit: str) -> Progress:
    """Return what shows progress on a stream: a bar on a terminal, else lines."""
    if stream.isatty():
        return Bar(what, unit, stream)

    def say(line: str) -> None:
        stream.write(line + "\n")
        stream.flush()

    return Progress(what, unit, say)
