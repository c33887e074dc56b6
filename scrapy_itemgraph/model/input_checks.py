"""The values that users hand us: ids, texts, JSON. Checked here, once."""

from __future__ import annotations

import json
import math
from typing import Any

from scrapy_itemgraph.exceptions import InvalidDataError, InvalidIdError, OperationError

MAX_ID_BYTES = 8192
MAX_TAG_BYTES = 1000
MAX_CRAWL_BYTES = 255
MAX_DEPTH = 100
_LONG = 2**63
_READABLE = 400  # levels: values of 100 have up to three of JSON each, and older ones may be deeper
# Made once: `json.dumps` makes an encoder for each value unless all its options are the defaults,
# which takes longer than a usual value.
write_json = json.JSONEncoder(ensure_ascii=False).encode
_write_strictly = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


def check_id(value: Any, what: str = "id") -> str:
    """Return `value` when it can be an item's id: 1 to 8,192 bytes of UTF-8 without NUL."""
    if _is_plain_text(value) and 0 < len(value) <= MAX_ID_BYTES:
        return value  # type: ignore[no-any-return]
    if not isinstance(value, str):
        raise InvalidIdError(f"{what} must be a string, not {type(value).__name__}: {value!r:.80}")
    if not value:
        raise InvalidIdError(f"{what} is empty; an id has 1 to {MAX_ID_BYTES:,} bytes")
    check_text(value, what, error=InvalidIdError)
    size = len(value.encode())
    if size > MAX_ID_BYTES:
        raise InvalidIdError(
            f"{what} has {size:,} bytes, more than {MAX_ID_BYTES:,}: {value[:60]!r}…; "
            "shorten it, for instance with a hash, and keep the long form in the data"
        )
    return value


def check_tag(value: Any, what: str = "tag") -> str:
    """Return `value` when it can be a tag's name: as an id, but of 1,000 bytes at most."""
    if _is_plain_text(value) and 0 < len(value) <= MAX_TAG_BYTES:
        return value  # type: ignore[no-any-return]
    tag = check_id(value, what)
    size = len(tag.encode())
    if size > MAX_TAG_BYTES:
        raise InvalidIdError(
            f"{what} has {size:,} bytes, more than {MAX_TAG_BYTES:,}: {tag[:60]!r}…; "
            "shorten its name, and keep the long form in its value or in the item's data"
        )
    return tag


class CrawlNameError(InvalidIdError):
    """The name is too long for a crawl's."""


def check_crawl(value: Any) -> str:
    """Return `value` when it can be a crawl's name: as an id, but of 255 bytes at most.

    Raises:
        CrawlNameError: it is too long.
        InvalidIdError: it is no text that can be stored.

    """
    name = check_id(value, "the crawl's name")
    size = len(name.encode())
    if size > MAX_CRAWL_BYTES:
        raise CrawlNameError(
            f"the crawl's name has {size:,} bytes, more than {MAX_CRAWL_BYTES}: {name[:60]!r}…; "
            "shorten it (ITEMGRAPH_CRAWL, --crawl)"
        )
    return name


def _is_plain_text(value: Any) -> bool:
    """Tell at a glance of nearly all texts that they can be stored."""
    return type(value) is str and value.isascii() and "\0" not in value


def _is_plain(value: Any) -> bool:
    """Tell at a glance of nearly all values that are no containers that they can be stored."""
    kind = type(value)
    is_small = kind is int and -_LONG < value < _LONG
    return _is_plain_text(value) or value is None or kind is bool or is_small


def check_text(value: str, what: str, error: type[Exception] = InvalidDataError) -> str:
    """Return `value` when PostgreSQL can store it: no NUL and no lone surrogate."""
    if "\0" in value:
        raise error(f"{what} has a NUL character, which PostgreSQL cannot store: {value!r:.80}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise error(f"{what} has a lone surrogate, which is no text: {value!r:.80}") from None
    return value


def dump_json(value: Any, what: str) -> str:
    """Serialise `value`, keeping the order of keys, or say which part of it is not JSON."""
    try:
        text = _write_strictly(value)
        text.encode()
        suspect = "\\u0000" in text or _is_odd(value, MAX_DEPTH)
    except (TypeError, ValueError, RecursionError):
        suspect = True
    if suspect:
        try:
            _explain(value, what, ())
            text = _write_strictly(value)
        except RecursionError:
            raise InvalidDataError(too_deep(what)) from None
    return text


class Unreadable(str):
    """JSON of the database that Python cannot read, as it is stored; nobody takes it for a dict."""

    __slots__ = ()


def _finite(text: str) -> float:
    """Read a number; one beyond a float's range could not be written again."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text:.20} is no number that can be kept")
    return number


_read = json.JSONDecoder(parse_float=_finite).decode


def load_json(text: str | bytes) -> Any:
    """Read JSON of the database; what cannot be read spoils no other row."""
    raw = text.encode() if isinstance(text, str) else bytes(text)
    try:
        value = _read(raw.decode())
        if raw.count(b"[") + raw.count(b"{") <= _READABLE or not _is_odd(value, _READABLE):
            return value
    except (ValueError, RecursionError):
        pass
    return Unreadable(raw.decode())


def copy_json(value: Any, what: str) -> Any:
    """Return a private copy of a JSON value; later changes to `value` do not show in it."""
    if _is_plain(value):
        return value
    return json.loads(dump_json(value, what))


def copy_mapping(value: Any, what: str) -> dict[str, Any]:
    """Return a private copy of a JSON object."""
    if not isinstance(value, dict):
        raise InvalidDataError(f"{what} must be a dict, not {type(value).__name__}: {value!r:.80}")
    if type(value) is dict:
        for key, part in value.items():
            if not (_is_plain_text(key) and _is_plain(part)):
                break
        else:
            return dict(value)
    copy: dict[str, Any] = copy_json(value, what)
    return copy


def _is_odd(value: Any, depth: int) -> bool:
    """Tell whether keys are no text, or there are more than `depth` levels."""
    if isinstance(value, dict):
        return not depth or any(
            not isinstance(k, str) or _is_odd(v, depth - 1) for k, v in value.items()
        )
    if isinstance(value, (list, tuple)):
        return not depth or any(_is_odd(v, depth - 1) for v in value)
    return False


def _check_depth(value: Any, what: str, path: tuple[int, ...]) -> None:
    if id(value) in path:
        raise InvalidDataError(f"{what:.200} contains itself, so it is not JSON")
    if len(path) == MAX_DEPTH and isinstance(value, (dict, list, tuple)):
        raise InvalidDataError(too_deep(what.partition("[")[0]))


def too_deep(what: str) -> str:
    """Return what is said of a value that has too many levels."""
    return f"{what} is nested more than {MAX_DEPTH} levels deep; flatten it"


def _explain(value: Any, what: str, path: tuple[int, ...]) -> None:
    """Raise an InvalidDataError that names the first part of `value` that is not JSON."""
    _check_depth(value, what, path)
    path = (*path, id(value))
    if isinstance(value, str):
        check_text(value, what)
    elif isinstance(value, dict):
        for key, part in value.items():
            if not isinstance(key, str):
                raise InvalidDataError(
                    f"{what} has the key {key!r} of type {type(key).__name__}; "
                    "keys in JSON are strings"
                )
            check_text(key, what)
            _explain(part, f"{what}[{key!r}]", path)
    elif isinstance(value, (list, tuple)):
        for index, part in enumerate(value):
            _explain(part, f"{what}[{index}]", path)
    elif isinstance(value, float) and not math.isfinite(value):
        raise InvalidDataError(f"{what} is {value}, which JSON has no number for")
    elif not (value is None or isinstance(value, (bool, int, float))):
        raise InvalidDataError(
            f"{what} is of type {type(value).__name__}, which is not JSON: {value!r:.80}"
        )


def check_nice(nice: Any) -> None:
    """Check when work is to have its turn; None is as its task says.

    Raises:
        OperationError: it is no integer of 32 bits.

    """
    if nice is None:
        return
    if isinstance(nice, bool) or not isinstance(nice, int) or not -(2**31) <= nice < 2**31:
        raise OperationError(f"nice must be an integer of 32 bits, not {nice!r}")
