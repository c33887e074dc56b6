"""Files of items: JSON lines, CSV, Parquet.

Lines are written as they come. A table needs all its columns first, so its rows wait on the disk,
in a file without a name, and memory stays flat.
"""

from __future__ import annotations

import csv
import io
import json
import tempfile
from contextlib import contextmanager
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from scrapy.exceptions import UsageError

from scrapy_itemgraph.exceptions import ConfigurationError
from scrapy_itemgraph.model import documents, item_columns
from scrapy_itemgraph.model.item_columns import MOMENTS, OWN

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import IO

    from scrapy_itemgraph.model.snapshots import ListedItem

_BATCH = 10_000  # rows
_INT64 = 2**63


class Writer(Protocol):
    """Writes items to a file, one by one."""

    def add(self, item: ListedItem) -> None:
        """Take an item."""


@contextmanager
def writer(
    kind: str, file: IO[bytes], *, columns: Sequence[str], folder: Path | None
) -> Iterator[Writer]:
    """Yield what writes items to a file in a format; at the end all of them are there.

    With `columns` a table has these alone. `folder` is where its rows wait; None: among the
    system's temporary files.

    Raises:
        UsageError: columns are given for lines of JSON.
        ConfigurationError: what the format needs is not installed.

    """
    if kind == "jsonl":
        if columns:
            raise UsageError("--column is for tables; a line of JSON has all of an item")
        yield JsonLines(file)
        return
    with tempfile.TemporaryFile("w+", encoding="ascii", dir=folder) as waiting:
        table = _TABLES[kind](file, _Rows(waiting, columns))
        yield table
        table.finish()


def line(item: ListedItem) -> dict[str, Any]:
    """Return what a line of JSON has of an item."""
    return {
        "id": item.id,
        "url": item.url,
        "aliases": list(item.aliases),
        "tags": dict(item.tags),
        "data": item.data,
        "metadata": dict(item.metadata),
        "states": dict(item.states),
        **{name: getattr(item, name) for name in MOMENTS},
    }


def _cells(item: ListedItem) -> dict[str, Any]:
    """Return an item's cells by column: those that every item has, and those of its data."""
    own = line(item)
    return {name: own[name] for name in OWN} | item_columns.data_of(item)


class JsonLines:
    """An item a line, with all its data."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def add(self, item: ListedItem) -> None:
        """Write an item."""
        self._file.write(_json(line(item)).encode(errors="backslashreplace") + b"\n")


class _Rows:
    """Rows that wait on the disk until all columns are known, in the order in which they come.

    With `columns` there are these alone.
    """

    def __init__(self, file: IO[str], columns: Sequence[str]) -> None:
        self.columns: dict[str, _Column] = {name: _Column() for name in columns or OWN}
        self._is_closed = bool(columns)
        self._file = file

    def add(self, item: ListedItem) -> None:
        """Keep an item's row."""
        found = _cells(item)
        if not self._is_closed:
            for name in found:
                self.columns.setdefault(name, _Column())
        row = []
        for name, column in self.columns.items():
            value = found.get(name)
            column.saw(value)
            row.append(value)
        self._file.write(json.dumps(row, default=documents.plain) + "\n")

    def __iter__(self) -> Iterator[list[Any]]:
        self._file.seek(0)
        wide = len(self.columns)
        for row in map(json.loads, self._file):
            yield row + [None] * (wide - len(row))


class _Column:
    """What kind of values a column has."""

    def __init__(self) -> None:
        self._kinds: set[type] = set()

    def saw(self, value: Any) -> None:
        """Take note of a value."""
        is_large = type(value) is int and not -_INT64 <= value < _INT64
        if value is not None:
            self._kinds.add(str if is_large else type(value))

    @property
    def kind(self) -> type:
        """The type that all values are of: bool, int, float or datetime; for others str."""
        if self._kinds == {int, float}:
            return float
        kinds = self._kinds & {bool, int, float, datetime}
        return next(iter(kinds)) if len(self._kinds) == 1 and kinds else str


class _Table:
    """Takes items as rows, which wait until `finish` writes them to the file."""

    def __init__(self, file: IO[bytes], rows: _Rows) -> None:
        self._file = file
        self._rows = rows

    def add(self, item: ListedItem) -> None:
        """Keep an item's row."""
        self._rows.add(item)


class Csv(_Table):
    """A table with a head; nested values are JSON."""

    def finish(self) -> None:
        """Write the table."""
        wrapped = io.TextIOWrapper(self._file, "utf-8", "backslashreplace", newline="")
        lines = csv.writer(wrapped)
        lines.writerow(self._rows.columns)
        lines.writerows(map(text, row) for row in self._rows)
        wrapped.flush()
        wrapped.detach()


class Parquet(_Table):
    """A table with a type for each column; nested values, and mixed ones, are JSON."""

    def __init__(self, file: IO[bytes], rows: _Rows) -> None:
        try:
            self._arrow: Any = import_module("pyarrow")
            self._parquet: Any = import_module("pyarrow.parquet")
        except ImportError:
            raise ConfigurationError(
                "a Parquet file needs pyarrow: pip install 'scrapy-itemgraph[parquet]'"
            ) from None
        super().__init__(file, rows)

    def finish(self) -> None:
        """Write the table, ten thousand rows at a time."""
        types = {
            bool: self._arrow.bool_(),
            int: self._arrow.int64(),
            float: self._arrow.float64(),
            datetime: self._arrow.timestamp("us", tz="UTC"),
            str: self._arrow.string(),
        }
        kinds = [column.kind for column in self._rows.columns.values()]
        named = zip(self._rows.columns, kinds, strict=True)
        schema = self._arrow.schema([(_utf8(name), types[kind]) for name, kind in named])
        with self._parquet.ParquetWriter(self._file, schema) as batches:
            for rows in _batches(self._rows):
                columns = zip(*rows, strict=True)
                arrays = [
                    [_typed(value, kind) for value in column]
                    for column, kind in zip(columns, kinds, strict=True)
                ]
                batches.write_batch(
                    self._arrow.RecordBatch.from_arrays(
                        list(map(self._arrow.array, arrays, schema.types)), schema=schema
                    )
                )


_TABLES: dict[str, type[Csv | Parquet]] = {"csv": Csv, "parquet": Parquet}
FORMATS = ("jsonl", *_TABLES)


def read_name(given: str) -> tuple[str, str]:
    """Return a file's name and format, of FILE or FILE:FORMAT; `-` is standard output.

    Raises:
        UsageError: it says no format that there is.

    """
    name, colon, said = given.rpartition(":")
    if colon and said in FORMATS:
        return name, said
    if given == "-":
        return given, "jsonl"
    said = Path(given.removesuffix(".gz")).suffix.removeprefix(".")
    if said not in FORMATS:
        raise UsageError(
            f"{given!r} says no format; let it end in .{', .'.join(FORMATS)}, or write FILE:FORMAT"
        )
    return given, said


def _batches(rows: _Rows) -> Iterator[list[list[Any]]]:
    batch: list[list[Any]] = []
    for row in rows:
        batch.append(row)
        if len(batch) == _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _typed(value: Any, kind: type) -> Any:
    if value is None:
        return None
    if kind is datetime:
        return datetime.fromisoformat(value)
    return _utf8(text(value)) if kind is str else kind(value)


def text(value: Any) -> str:
    """Return a value as the text of a cell: what is neither text nor missing is JSON."""
    if value is None:
        return ""
    return value if isinstance(value, str) else _json(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=documents.plain)


def _utf8(given: str) -> str:
    return given.encode(errors="backslashreplace").decode()
