"""Progress: when a line is said, what it says, and what a bar leaves behind."""

from __future__ import annotations

import io

import pytest

from scrapy_itemgraph.tools import progress
from scrapy_itemgraph.tools.progress import Progress


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock():
    """Yield a clock that stands."""
    return Clock()


@pytest.fixture
def said():
    """Yield a list for lines."""
    return []


def test_short_work_says_nothing(clock, said):
    """Work of less than 3 s needs no line, however much it did."""
    with Progress("apply", "operations", said.append, clock=clock) as shown:
        for done in range(100):
            shown.reach(done)
        clock.now += 2.9
        shown.reach(100)

    assert said == []


def test_long_work_says_a_line_now_and_then(clock, said):
    """The first line comes after 3 s, the next ones 10 s apart, whatever is reached between."""
    shown = Progress("apply", "operations", said.append, clock=clock)

    for second in range(1, 25):
        clock.now = 100.0 + second
        shown.reach(1000 * second, total=30_000)

    assert said == [
        "apply: 3,000 of 30,000 operations (10%), 1,000 a second, 27s left",
        "apply: 13,000 of 30,000 operations (43%), 1,000 a second, 17s left",
        "apply: 23,000 of 30,000 operations (77%), 1,000 a second, 7s left",
    ]


def test_what_is_not_known_is_left_out(clock, said):
    """Without a total there is no end to tell; a share of a file's bytes is a share."""
    shown = Progress("apply", "operations", said.append, clock=clock)

    clock.now += 4
    shown.reach(2000)
    clock.now += 10
    shown.reach(7000, share=0.5)

    assert said == [
        "apply: 2,000 operations, 500 a second",
        "apply: 7,000 operations (50%), 500 a second",
    ]


def test_what_others_did_before_is_no_speed_of_ours(clock, said):
    """A sweep that another worker began goes on as fast as it does now."""
    shown = Progress("sweep", "items", said.append, clock=clock)
    shown.start_at(9000)

    clock.now += 4
    shown.reach(9400, total=10_000)

    assert said == ["sweep: 9,400 of 10,000 items (94%), 100 a second, 6s left"]


def test_a_stream_that_is_no_terminal_gets_lines(clock, monkeypatch):
    """In a file or a pipe there is no bar, and no control sequence."""
    monkeypatch.setattr(progress, "_QUIET", 0.0)
    stream = io.StringIO()

    with progress.on(stream, "export", "items") as shown:
        shown.reach(5, total=10)

    assert stream.getvalue().startswith("export: 5 of 10 items (50%)")
    assert "\x1b" not in stream.getvalue()


def test_a_terminal_gets_a_bar_that_goes_away(monkeypatch, capsys):
    """The bar is drawn on the stream it was given, makes room, and is erased at the end."""
    monkeypatch.setattr(progress, "_BAR_AFTER", 0.0)
    stream = Terminal()

    with progress.on(stream, "export", "items") as shown:
        shown.reach(5, total=10)
        with shown.aside():
            stream.write("[new] A\n")
        shown.reach(9, total=10)

    drawn = stream.getvalue()
    assert "export" in drawn
    assert "5 of 10 items (50%)" in drawn
    assert "9 of 10 items (90%)" in drawn
    assert "[new] A\n" in drawn
    assert drawn.endswith("\x1b[2K")  # the line is empty again
    written = capsys.readouterr()
    assert (written.out, written.err) == ("", "")


def test_a_bar_of_short_work_is_never_drawn():
    """Nothing flashes up for work that is over at once."""
    stream = Terminal()

    with progress.on(stream, "migrate", "versions") as shown:
        shown.reach(1, total=1)

    assert stream.getvalue() == ""
