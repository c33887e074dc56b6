"""Torn lines: the end of a file that a killed process wrote, cut so that another may go on."""

from __future__ import annotations

import csv
import io
import json
import os
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_BLOCK = 1 << 16
_PLAIN = '\n\r"'


@dataclass(frozen=True, slots=True)
class Mended:
    """What was done to the end of a file, and what is known of its beginning."""

    removed: int = 0  # bytes that were taken off
    was_ended: bool = False  # a line end was added
    header: tuple[str, ...] | None = None  # the columns that a CSV file's first line names


def is_plain(encoding: str | None) -> bool:
    """Tell whether bytes are enough to find lines and quotes in an encoding; None: UTF-8."""
    try:
        return _PLAIN.encode(encoding or "utf-8") == _PLAIN.encode("ascii")
    except LookupError:
        return False


def mend_json(path: Path, encoding: str | None = None) -> Mended:
    """End the last line of a JSON lines file; one that is not whole is taken off.

    In an encoding whose bytes do not show where lines end, nothing is done.
    """
    if not is_plain(encoding):
        return Mended()
    with path.open("r+b") as file:
        begin = _last_line(file)
        file.seek(begin)
        line = file.read()
        if not line:
            return Mended()
        try:
            json.loads(line.decode(encoding or "utf-8"))
        except (ValueError, RecursionError):
            file.truncate(begin)
            return Mended(removed=len(line))
        file.write(b"\n")
        return Mended(was_ended=True)


def mend_csv(path: Path, encoding: str | None = None, *, dialect: Mapping[str, Any]) -> Mended:
    """End the last row of a CSV file; one with too few fields or an open quote is taken off.

    The file is read whole, for a line may end within quotes. In an unusual `dialect` (the arguments
    of `csv.reader`) or encoding it can only be ended.
    """
    header = read_header(path, encoding, dialect)
    if dialect.keys() - {"delimiter"} or not is_plain(encoding):
        return _end_line(path, encoding, header)
    with path.open("r+b") as file:
        begin = _last_row(file)
        file.seek(begin)
        row = file.read()
        if not row:
            return Mended(header=header)
        fields = None if row.count(b'"') % 2 else _first(row, encoding, dialect)
        if begin == 0 or header is None or fields is None or len(fields) < len(header):
            file.truncate(begin)
            return Mended(removed=len(row), header=header if begin else None)
        file.write(b"\r\n")
        return Mended(was_ended=True, header=header)


def read_header(
    path: Path, encoding: str | None, dialect: Mapping[str, Any]
) -> tuple[str, ...] | None:
    """Return the first row of a CSV file; None if there is none."""
    try:
        with path.open(encoding=encoding or "utf-8", newline="") as file:
            header = next(csv.reader(file, **dialect), None)
    except (ValueError, csv.Error):
        return None
    return tuple(header) if header else None


def _end_line(path: Path, encoding: str | None, header: tuple[str, ...] | None) -> Mended:
    end = "\n".encode(encoding or "utf-8").removeprefix("".encode(encoding or "utf-8"))
    with path.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - len(end)))
        if file.read() in {b"", end}:
            return Mended(header=header)
        file.write(end)
        return Mended(was_ended=True, header=header)


def _last_line(file: IO[bytes]) -> int:
    """Return where the last line begins; at the end of the file if all lines are ended."""
    place = file.seek(0, os.SEEK_END)
    while place > 0:
        begin = max(0, place - _BLOCK)
        file.seek(begin)
        found = file.read(place - begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        place = begin
    return 0


def _last_row(file: IO[bytes]) -> int:
    """Return where the last row begins; at the end of the file if all rows are ended."""
    file.seek(0)
    place, begin, is_open = 0, 0, False
    for line in file:
        place += len(line)
        is_open ^= line.count(b'"') % 2 == 1
        if not is_open and line.endswith(b"\n"):
            begin = place
    return begin


def _first(row: bytes, encoding: str | None, dialect: Mapping[str, Any]) -> list[str] | None:
    try:
        text = io.StringIO(row.decode(encoding or "utf-8"), newline="")
        return next(csv.reader(text, strict=True, **dialect), None)
    except (ValueError, csv.Error):
        return None


# What is gone on with by whoever comes next
