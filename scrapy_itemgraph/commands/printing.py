"""What people and programs read: tables and paragraphs, or one JSON document."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TextIO

from scrapy_itemgraph import values

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

WIDTH = 100
GAP = "  "
_LEAST = 8
_CUT = "..."


def write(stream: TextIO, line: str) -> None:
    """Write a line; what the terminal's encoding lacks is escaped."""
    encoding = stream.encoding or "utf-8"
    safe = line.encode(encoding, "backslashreplace").decode(encoding)
    stream.write(safe + "\n")


def dump(document: Any, stream: TextIO) -> str:
    """Return a document as JSON, in ASCII where the terminal has no UTF-8."""
    is_utf8 = (stream.encoding or "utf-8").lower().replace("-", "") == "utf8"
    return json.dumps(document, ensure_ascii=not is_utf8, indent=2, default=_plain)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Mapping):
        return dict(value)
    return str(value)


def clean(value: Any) -> str:
    """Return text without control characters, which a crawled page may have brought."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape", "surrogatepass").decode()
        for char in str(value)
    )


def moment(value: datetime | None) -> str:
    """Write a time, in UTC."""
    return "" if value is None else f"{value:%Y-%m-%d %H:%M:%S}Z"


def period(value: timedelta | None) -> str:
    """Write a time to live."""
    return "never" if value is None else values.format_period(value.total_seconds())


def fields(pairs: Iterable[tuple[str, Any]]) -> Iterator[str]:
    """Write names and values, a line each; values that are empty are left out."""
    kept = [(name, clean(value)) for name, value in pairs if value not in {None, ""}]
    width = max((len(name) for name, _ in kept), default=0)
    for name, value in kept:
        yield f"{name:<{width}}{GAP}{value}"


def table(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """Write rows under their heads, numbers to the right, at most `WIDTH` wide.

    Columns that are empty in every row are left out; where it is too wide, the widest are cut.
    """
    cells = [["" if value is None else value for value in row] for row in rows]
    shown = [n for n in range(len(heads)) if any(_text(row[n]) for row in cells)]
    columns = [[heads[n], *(_text(row[n]) for row in cells)] for n in shown]
    widths = _fit([max(map(_width, column)) for column in columns])
    rights = [all(isinstance(row[n], int) or row[n] == "" for row in cells) for n in shown]
    for line in zip(*columns, strict=True):
        padded = map(_padded, line, widths, rights)
        yield GAP.join(padded).rstrip()


def shortened(line: str) -> str:
    """Leave out the middle of a line that is too wide."""
    return line if _width(line) <= WIDTH else _cut(line, WIDTH)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else ""
    return f"{value:,}" if isinstance(value, int) else clean(value)


def _fit(widths: list[int]) -> list[int]:
    """Narrow the widest columns until all fit."""
    spare = WIDTH - len(GAP) * (len(widths) - 1)
    while sum(widths) > spare and max(widths) > _LEAST:
        widest = widths.index(max(widths))
        widths[widest] -= 1
    return widths


def _padded(text: str, width: int, right: bool) -> str:
    if _width(text) > width:
        text = _cut(text, width)
    pad = " " * (width - _width(text))
    return pad + text if right else text + pad


def _cut(text: str, width: int) -> str:
    """Leave out the middle: the ends tell ids apart."""
    room = width - len(_CUT)
    start, end = text[: room // 2], text[len(text) - (room - room // 2) :]
    while _width(start) > room // 2:
        start = start[:-1]
    while _width(end) > room - room // 2:
        end = end[1:]
    return start + _CUT + end


def _width(text: str) -> int:
    """Return how many columns a terminal needs."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 1 + (unicodedata.east_asian_width(char) in "WF")
        for char in text
    )
