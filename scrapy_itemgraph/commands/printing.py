"""What people and programs read: tables and paragraphs, or one JSON document."""

from __future__ import annotations

import json
import os
import re
import sys
import textwrap
import unicodedata
from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TextIO, TypeAlias

from scrapy_itemgraph.model import counts, documents, page_records
from scrapy_itemgraph.model.attempt_logs import LEVELS
from scrapy_itemgraph.model.health import Health
from scrapy_itemgraph.model.work import ErrorRecord
from scrapy_itemgraph.tools import wording

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

# The heads of a table, each with the name of its value in a row, or what makes it of a row.
Columns: TypeAlias = "Mapping[str, str | Callable[[Any], Any]]"

GAP = "  "
_LEAST = 8
_BEGIN = 30  # columns, in which the beginning of an error tells it from others
_ENOUGH = 60  # columns, in which the ends of a URL tell it from others
_CUT = "..."
_INDENT = "    "
_MOST_LINES = 3
_TALL = 30  # columns, from which on a column may have lines of its own
_LONG_NAME = 15  # likewise, of names that people copy
_NAMES = {"CRAWL", "RUNNER"}
_LEAST_OF_SENTENCE = 30
_BOLD, _DIM, _RED, _GREEN, _YELLOW = "1", "2", "31", "32", "33"
BOLD, ADDED, REMOVED, CHANGED = _BOLD, _GREEN, _RED, _YELLOW
_EVERY = "*"  # category
_CUT_AT_END = {"ERROR"}  # what is said first is what tells it
_COLOURED_HEADS = {"STATE", "HEALTH", "NOW", "OUTCOME", "KIND"}
_COLOURS = {
    **dict.fromkeys(("fresh", "ok", "unchanged", "may run now", Health.GREEN.word), _GREEN),
    **dict.fromkeys(("retry", "died", "stalled", "does not run now"), _YELLOW),
    **dict.fromkeys(("held", "failed", "error"), _RED),
    **dict.fromkeys(("warn", Health.AMBER.word), _YELLOW),
    Health.RED.word: _RED,
}
_NO_BREAK = "\N{NO-BREAK SPACE}"
# The words of a command that stay on a line: those of its name, options and numbers.
_COMMAND = re.compile(
    r"scrapy itemgraph (?:(?:crawls|jobs|runners|schedules|notices) )?[^\s:;,]+"
    r"(?: (?:-[^\s;,]+|[A-Z\d][^\s;,]*))*|scrapy crawl \S+|-s \S+"
)
_UNSAFE = re.compile(r"[^ -~]")
_COLOUR = re.compile(r"(\x1b\[[0-9;]*m|\n)")

clean = wording.one_line


def write(stream: TextIO, line: str) -> None:
    """Write a line; what the terminal's encoding lacks is escaped, and so is what steers it.

    Colours and newlines pass: they are ours, for what comes from outside was cleaned before.
    """
    parts = _COLOUR.split(line)
    line = "".join(part if _COLOUR.fullmatch(part) else clean(part) for part in parts)
    write_lines(stream, [line])


def write_lines(stream: TextIO, lines: Iterable[str]) -> None:
    """Write lines that were cleaned; what the terminal's encoding lacks is escaped."""
    encoding = stream.encoding or "utf-8"
    text = "".join(f"{line}\n" for line in lines)
    stream.write(text.encode(encoding, "backslashreplace").decode(encoding))


def dump(document: Any, stream: TextIO) -> str:
    """Return a document as JSON, in ASCII where the terminal has no UTF-8.

    What would steer a terminal or cannot be written is escaped: the same values, as valid JSON.
    """
    is_utf8 = (stream.encoding or "utf-8").lower().replace("-", "") == "utf8"
    text = json.dumps(document, ensure_ascii=not is_utf8, indent=2, default=documents.plain)
    return escaped(text)


def escaped(text: str) -> str:
    """Escape in JSON what `clean` escapes in other text; newlines between values stay."""
    return _UNSAFE.sub(lambda match: _escape(match[0]), text)


def _escape(char: str) -> str:
    return char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1]


def width() -> int | None:
    """Return how many columns lines may have: the terminal's, or COLUMNS; None without either."""
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given):
        return int(given)
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or None
    except (OSError, ValueError):  # a pipe, a file, or no stream at all
        return None


def coloured(text: str, style: str | None = None) -> str:
    """Return text in a colour, by default that of the state which it names.

    It stays as it is where no terminal shows it, or NO_COLOR is set.
    """
    style = style or _COLOURS.get(text.strip())
    has_colour = (
        sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    )
    return f"\x1b[{style}m{text}\x1b[0m" if style and has_colour else text


def moment(value: datetime | None) -> str:
    """Write a time, in UTC."""
    return "" if value is None else f"{value:%Y-%m-%d %H:%M:%S}Z"


def period(value: timedelta | None) -> str:
    """Write a time to live."""
    return "never" if value is None else wording.format_period(value.total_seconds())


def fields(pairs: Iterable[tuple[str, Any]]) -> Iterator[str]:
    """Write names and values, a line each; values that are empty are left out."""
    kept = [(name, clean(value)) for name, value in pairs if value not in {None, ""}]
    longest = max((len(name) for name, _ in kept), default=0)
    for name, value in kept:
        yield from sentence(value, f"{name:<{longest}}{GAP}")


def sentence(said: str, first: str = "", style: str | None = None) -> Iterator[str]:
    """Write a text behind `first`, broken between words where the terminal ends, and never cut.

    Further lines begin below the text. Words that are longer than a line, such as URLs, stay whole,
    and so do the first words of commands.
    """
    text, columns = clean(said), width()
    if columns is None or columns - len(first) < _LEAST_OF_SENTENCE:
        lines = [text]
    else:
        room = columns - len(first)
        text = _COMMAND.sub(lambda found: found[0].replace(" ", _NO_BREAK), text)
        wrapped = textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False) or [""]
        lines = [line.replace(_NO_BREAK, " ") for line in wrapped]
    for number, line in enumerate(lines):
        yield f"{' ' * len(first) if number else first}{coloured(line, style)}"


def table(rows: Iterable[Any], columns: Columns, *, in_lines: bool = False) -> Iterator[str]:
    """Write rows under their heads, numbers to the right, as wide as the terminal.

    Columns that are empty in every row are left out. Where it is too wide, moments are written to
    the minute, without the year; then the widest column has lines of its own, above what else is in
    its row, and what is still too wide is cut. Rows `in_lines` have one line each: all wide columns
    are cut.
    """
    rows = list(rows)
    every = [_Column(head, [_value(row, of) for row in rows]) for head, of in columns.items()]
    shown = [one for one in every if any(one.texts[1:])]
    room = width()
    if room is not None and sum(one.width + len(GAP) for one in shown) - len(GAP) > room:
        for one in shown:
            one.shorten()
    tall = None if in_lines else _too_wide(shown, room)
    if tall is not None:
        shown.remove(tall)
    widths = _fit(shown, room - 2 if room and tall else room)
    for number in range(len(rows) + 1):
        padded = [one.cell(number, wide) for one, wide in zip(shown, widths, strict=True)]
        line = GAP.join(padded).rstrip()
        if tall is not None:
            line = f"{tall.cell(number, min(tall.width, room or 0)).rstrip()}\n{GAP}{line}"
        yield "\n".join(coloured(one, _BOLD) for one in line.split("\n")) if number == 0 else line


def first(rows: Sequence[Any], lines: Iterator[str], limit: int, otherwise: str) -> Iterator[str]:
    """Yield the lines of a list, and that there may be more; `otherwise` where it is empty."""
    yield from lines if rows else sentence(otherwise)
    if len(rows) == limit:
        yield f"(the first {limit:,}; --limit shows more)"


def table_of_errors(
    rows: Sequence[Any], columns: Columns, categories: Collection[str] = ()
) -> Iterator[str]:
    """Write rows as `table` does, each with its error and its log of some categories under it."""
    head, *lines = table(rows, columns)
    yield head
    for line, row in zip(lines, rows, strict=True):
        yield line
        yield from page(_value(row, "page"))
        yield from error(_value(row, "error"))
        yield from log(_value(row, "log"), categories)


def shown(lines: Sequence[Any], categories: Collection[str] = ()) -> list[Any]:
    """Return the lines of a log that are shown: of categories asked for, else those of levels."""
    if _EVERY in categories:
        return list(lines)
    return [line for line in lines if line["category"] in (categories or LEVELS)]


def log(lines: Sequence[Mapping[str, Any]], categories: Collection[str] = ()) -> Iterator[str]:
    """Write what an attempt logged, indented, each line in three at most; say what is hidden."""
    kept = shown(lines, categories)
    for line in kept:
        text = f"+{line['seconds']:.2f}s [{line['category']}] {line['message']}"
        yield from _indented(text, _COLOURS.get(line["category"]))
    hidden = Counter(line["category"] for line in lines if line not in kept)
    if hidden:
        names = ", ".join(f"{name} ({count})" for name, count in hidden.most_common())
        yield from _indented(f"hidden without --category: {names}", _DIM)


class _Column:
    """A column's head and texts, as wide as the widest of them."""

    def __init__(self, head: str, cells: list[Any]) -> None:
        self._cells = cells
        self.has_moments = any(isinstance(cell, datetime) for cell in cells)
        self.texts = [head, *map(_text, cells)]
        self.width = max(map(_width, self.texts))
        self._is_right = all(isinstance(cell, int) or cell in {None, ""} for cell in cells)
        self._is_state = head in _COLOURED_HEADS
        self.has_begin = head in _CUT_AT_END
        self.is_name = head in _NAMES

    def shorten(self) -> None:
        """Write moments to the minute, without the year."""
        if self.has_moments:
            self.texts[1:] = [
                f"{cell:%m-%d %H:%M}Z" if isinstance(cell, datetime) else _text(cell)
                for cell in self._cells
            ]
            self.width = max(map(_width, self.texts))

    def cell(self, number: int, room: int) -> str:
        """Return the text of a row (0: the head) in so many columns, in its colour."""
        text = self.texts[number]
        if _width(text) > room:
            text = _narrowed(text, room, has_begin=self.has_begin)
        pad = " " * (room - _width(text))
        padded = pad + text if self._is_right else text + pad
        return coloured(padded) if self._is_state and number else padded


def _value(row: Any, of: str | Callable[[Any], Any]) -> Any:
    if callable(of):
        return of(row)
    return row[of] if isinstance(row, Mapping) else getattr(row, of)


def _too_wide(columns: Sequence[_Column], room: int | None) -> _Column | None:
    """Return the widest column where too little of it would be left beside the others."""
    if room is None or len(columns) < 2:  # noqa: PLR2004 - there is no other
        return None
    tall = [one for one in columns if one.width >= (_LONG_NAME if one.is_name else _TALL)]
    if not tall:
        return None
    widest = max(tall, key=lambda one: one.width)
    left = room - sum(one.width + len(GAP) for one in columns if one is not widest)
    return widest if left < min(widest.width, _ENOUGH) else None


def page(kept: Mapping[str, Any] | None) -> Iterator[str]:
    """Write what is kept of an attempt's page, indented, in three lines at most."""
    if kept:
        yield from _indented(page_records.shown(kept), _DIM)


def error(described: Mapping[str, Any] | None) -> Iterator[str]:
    """Write a recorded error's type and message, indented, in three lines at most.

    Of a longer one the middle is left out, most of what stays being the end: a chain of errors,
    or what another program said, ends with the cause.
    """
    if described:
        yield from _indented(str(ErrorRecord.read(described)).rstrip(": "), _RED)


def _indented(said: str, style: str | None) -> Iterator[str]:
    return paragraph(said, style, indent=len(_INDENT))


def paragraph(said: str, style: str | None = None, *, indent: int = 0) -> Iterator[str]:
    """Write a text in a colour, in three lines at most, whose middle is left out if need be."""
    text = clean(" ".join(said.split()))
    columns = width()
    margin = " " * indent
    if columns is None:
        yield f"{margin}{coloured(text, style)}"
        return
    room = max(columns - indent, _LEAST)
    lines = list(_wrapped(text, room))
    size = _MOST_LINES * room
    while len(lines) > _MOST_LINES:
        lines = list(_wrapped(_cut(text, size, start=size // 4), room))
        size -= _LEAST // 2  # lines end between words, before they are full
    for line in lines:
        yield f"{margin}{coloured(line, style)}"


def _wrapped(text: str, room: int) -> Iterator[str]:
    while text:
        line = _fitting(text, room)
        space = line.rfind(" ", len(line) // 2)
        if len(line) < len(text) and space > 0 and text[len(line)] != " ":
            line = line[:space]
        text = text[len(line) :].lstrip()
        yield line


def _text(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return "yes" if value else ""
    if isinstance(value, datetime):
        return moment(value)
    return counts.shown(value) if isinstance(value, int) else clean(value)


def _fit(columns: Sequence[_Column], room: int | None) -> list[int]:
    """Narrow the widest columns until all fit: first those of which the beginning is enough.

    Moments are not cut.
    """
    widths = [one.width for one in columns]
    if room is None:
        return widths
    spare = room - len(GAP) * (len(widths) - 1)

    def how_wide(number: int) -> tuple[bool, int]:
        is_spare = columns[number].has_begin and widths[number] > _BEGIN
        return is_spare, widths[number]

    some = [number for number, one in enumerate(columns) if not one.has_moments]
    while sum(widths) > spare and max((widths[one] for one in some), default=0) > _LEAST:
        widths[max(some, key=how_wide)] -= 1
    return widths


def _cut(text: str, room: int, *, start: int | None = None) -> str:
    """Leave out the middle: the ends tell ids apart. `start` is the width of the first of them."""
    room -= len(_CUT)
    start = room // 2 if start is None else start
    return _fitting(text, start) + _CUT + _fitting(text[::-1], room - start)[::-1]


def _narrowed(text: str, room: int, *, has_begin: bool) -> str:
    """Cut the text of a cell: at its end, or in its middle; of a URL most of the end stays.

    Its scheme goes first. A method before it stays.
    """
    if has_begin:
        return _cut(text, room, start=room - len(_CUT))
    begin, is_url, rest = text.partition("://")
    if not is_url:
        return _cut(text, room)
    rest = f"{begin.rpartition(' ')[0]} {rest}".lstrip()
    if _width(rest) + len(_CUT) <= room:
        return f"{_CUT}{rest}"
    return _cut(rest, room, start=(room - len(_CUT)) // 4)


def _fitting(text: str, room: int) -> str:
    """Return as much of a text's beginning as fits."""
    fits = text[:room]
    while _width(fits) > room:
        fits = fits[:-1]
    return fits


def _width(text: str) -> int:
    """Return how many columns a terminal needs."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 1 + (unicodedata.east_asian_width(char) in "WF")
        for char in text
    )
