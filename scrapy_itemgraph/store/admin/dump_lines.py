"""The lines of a dump, as they are read: what they say, with documents letter by letter.

A document, such as an item's data, is read as Python reads JSON where Python would write the same
again. Where it would not, for digits or escapes of another program's making, its text is taken.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from scrapy_itemgraph.exceptions import OperationError
from scrapy_itemgraph.model import input_checks, moments
from scrapy_itemgraph.store.admin.dump import FORMAT, FORMAT_WITH_BLOBS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_DOCUMENTS = {"arguments", "data", "error", "fields", "log", "metadata", "page", "request", "value"}
# What is a moment, in a line and in its parts.
_MOMENTS = {
    *("created_at", "updated_at", "not_before", "completed_at", "invalidated_at", "expires_at"),
    *("due_at", "started_at", "ended_at", "occurred_at", "handled_at", "attached_at"),
    *("run_started_at", "run_finished_at", "changed_at", "opened_at", "source_changed_at"),
}
_PARTS = ("results", "attempts", "work", "blobs")
_LONGEST_INT = 4000  # digits; Python refuses to read 4,301


def head(line: str) -> str:
    """Return the crawl's name of a dump's first line.

    Raises:
        OperationError: when it is none, or of a format that this version does not know.

    """
    try:
        read = json.loads(line)
        made, name = read["itemgraph_dump"], read["crawl"]
    except (ValueError, TypeError, KeyError):
        raise OperationError(
            'line 1: this is no dump of a crawl; one begins with {"itemgraph_dump": …}'
        ) from None
    if made not in (FORMAT, FORMAT_WITH_BLOBS):
        raise OperationError(
            f"line 1: a dump of format {made} was made by a newer version than this, which reads "
            f"formats {FORMAT} and {FORMAT_WITH_BLOBS}; upgrade scrapy-itemgraph"
        )
    return str(name)


def read(where: str, line: str, part: Callable[[str, list[str]], str]) -> dict[str, Any]:
    """Return what a line says; `part` returns the text of its part at a path.

    Raises:
        OperationError: naming the line, when it is no JSON object.

    """
    try:
        try:
            said = _EXACT.decode(line)
        except _OddError:
            said = _TEXTS.decode(line)
            for path, parent, name in _documents(said):
                parent[name] = input_checks.Unreadable(part(line, path))
    except (ValueError, RecursionError) as error:
        raise OperationError(f"{where}: it is not JSON: {error}") from None
    if not isinstance(said, dict):
        raise OperationError(f"{where}: it is not a JSON object")
    _clamp_moments(said)
    return said


def _clamp_moments(line: dict[str, Any]) -> None:
    """Have moments that Python cannot say be the nearest that it can, so that items can be read."""
    parts = (line.get(name) for name in _PARTS)
    for part in (line, *(one for each in parts if isinstance(each, list) for one in each)):
        if isinstance(part, dict):
            for name in _MOMENTS & part.keys():
                part[name] = moments.clamped(part[name])


def text(value: Any) -> str:
    """Return a document as it is stored."""
    return value if isinstance(value, input_checks.Unreadable) else input_checks.write_json(value)


def text_of(given: Mapping[str, Any], name: str) -> str | None:
    """Return a member that is a document as it is stored; None where there is none."""
    return text(given[name]) if name in given else None


def object_text(given: Mapping[str, Any], name: str) -> str:
    """Return a member that is a document, and must be a JSON object, as it is stored.

    Raises:
        ValueError: it is another kind of JSON.

    """
    value = given[name]
    is_object = (
        value.lstrip().startswith("{")
        if isinstance(value, input_checks.Unreadable)
        else isinstance(value, dict)
    )
    if not is_object:
        raise ValueError(f"{name!r} is no JSON object: {value!r:.80}")
    return text(value)


def object_text_of(given: Mapping[str, Any], name: str) -> str | None:
    """Return such a member; None where there is none."""
    return object_text(given, name) if name in given else None


class _OddError(Exception):
    """There is a number, or text, that Python would write otherwise than it stands there."""


def _same_float(given: str) -> float:
    number = float(given)
    if repr(number) != given:
        raise _OddError
    return number


def _same_int(given: str) -> int:
    if len(given) > _LONGEST_INT or given == "-0":
        raise _OddError
    return int(given)


class _Exact(json.JSONDecoder):
    """Reads what Python writes again as it was, and raises an _OddError for all else."""

    def decode(self, given: str) -> Any:  # type: ignore[override]
        if "\\u" in given:
            raise _OddError
        return super().decode(given)


_EXACT = _Exact(parse_float=_same_float, parse_int=_same_int)
_TEXTS = json.JSONDecoder(parse_float=str, parse_int=str)


def _documents(line: Any) -> Iterator[tuple[list[str], dict[str, Any], str]]:
    """Yield the path, the object and the name of each document of a line."""
    if not isinstance(line, dict):
        return
    for name in _DOCUMENTS & line.keys():
        yield [name], line, name
    for name in line.get("tags", ()) if isinstance(line.get("tags"), dict) else ():
        if line["tags"][name] is not None:
            yield ["tags", name], line["tags"], name
    for many in ("results", "attempts", "work"):
        for at, one in enumerate(line.get(many, ())):
            for name in _DOCUMENTS & one.keys():
                yield [many, str(at), name], one, name
