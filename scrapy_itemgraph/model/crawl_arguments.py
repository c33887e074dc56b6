"""A spider's arguments: which count, what is shown of them, and the name of the crawl they make."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import shlex
from dataclasses import dataclass, field
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import TYPE_CHECKING, Any
from uuid import UUID
from zoneinfo import ZoneInfo

from scrapy_itemgraph.tools.hiding import FROM_ENVIRONMENT

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

LONGEST_LABEL = 60  # letters of a crawl's name
NEVER = frozenset({"crawler", "name"})
"""Arguments that no crawl of the queue may have: spiders name them to pass them on to Scrapy."""

# Attributes of `scrapy.Spider`, Scrapy 2.14 to 2.19, which an argument would replace.
RESERVED = NEVER | {
    *("custom_settings", "logger", "settings", "start_urls"),
    *("close", "from_crawler", "handles_request", "log", "parse", "start", "start_requests"),
    *("update_settings", "_parse", "_set_crawler"),
}
"""Arguments that a crawl of the queue may have where the spider's own `__init__` names them."""
_SECRET = re.compile(r"passw|secret|token|keys?$|(^|_)(pass|pwd|o?auth)(_|$)", re.IGNORECASE)
_UNSAFE = re.compile(r"[^A-Za-z0-9_.:=,-]+")  # in a shell, or in a URL
_TEXTS = (Enum, date, time, timedelta, Decimal, UUID, PurePath, bytes, bytearray)
_DIGEST = 8  # letters of a digest in a name


@dataclass(frozen=True, slots=True)
class CrawlStart:
    """Who starts, and with which arguments; `name` is what ITEMGRAPH_CRAWL calls the crawl.

    `old_digests` is what earlier versions kept of the spider: digests of its text attributes.
    `uncounted` are the names of arguments that do not tell crawls apart, see `counted`.
    """

    spider: str
    given: Mapping[str, str] = field(default_factory=dict)
    name: str | None = None
    old_digests: Mapping[str, str] = field(default_factory=dict)
    uncounted: tuple[str, ...] = ()


def is_secret(name: str) -> bool:
    """Tell whether an argument's name looks like that of a secret."""
    return _SECRET.search(name) is not None


def reserved(names: Iterable[str], refused: Collection[str]) -> list[str]:
    """Return the names that are refused, with those that Python keeps to itself: `__class__`."""
    return [one for one in names if one in refused or one.startswith("__")]


def reserved_error(name: str, spider: str) -> str:
    """Say why a crawl of the queue may not have an argument, and what to do."""
    return (
        f"the argument {name!r:.80} would replace what Scrapy itself has on the spider {spider}, "
        "so crawls of the queue may not have it; name it otherwise"
        + ("" if name in NEVER else ", or let the spider's __init__ name it")
    )


def counted(
    given: Mapping[str, Any], ignored: Collection[str] = ()
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the arguments that count, as text by name, and the names of those that cannot.

    Text and numbers count as `-a name=value` has them, dates and the like as their text, all else
    as JSON. Names that begin with an underscore, and `ignored` ones, do not count. A value that
    has a part of any other type cannot.
    """
    counts: dict[str, str] = {}
    uncounted: list[str] = []
    for name, value in sorted(given.items()):
        if name.startswith("_") or name in ignored:
            continue
        try:
            counts[name] = _text(value)
        except (TypeError, ValueError, RecursionError):
            uncounted.append(name)
    return counts, tuple(uncounted)


def _text(value: Any) -> str:
    """Return a value as text that PostgreSQL can store."""
    if value is None or isinstance(value, str | int | float):
        text = str(value)
    else:
        plain = _as_json(value)
        is_text = isinstance(plain, str)
        text = plain if is_text else json.dumps(plain, ensure_ascii=False, sort_keys=True)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(text)
    return json.dumps(text) if "\0" in text else text


def _as_json(value: Any) -> Any:
    """Return a value of a closed set of types as JSON has it, equal for equal values.

    Raises:
        TypeError: it, or a part of it, is of another type.

    """
    match value:
        case None | str() | int() | float():
            return value
        case list() | tuple():
            return [_as_json(one) for one in value]
        case set() | frozenset():
            return _sorted(_as_json(one) for one in value)
        case dict():
            return _dict_as_json(value)
    return _as_text(value) if isinstance(value, _TEXTS) else _fields_as_json(value)


def _as_text(value: Any) -> str:
    match value:
        case Enum():
            return f"{type(value).__qualname__}.{value.name}"
        case date() | time():
            zone = getattr(value, "tzinfo", None)
            named = f"[{zone.key}]" if isinstance(zone, ZoneInfo) else ""
            return value.isoformat() + named
        case bytes() | bytearray():
            return repr(bytes(value))
    return str(value)


def _fields_as_json(value: Any) -> Any:
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        raise TypeError(f"{type(value)} tells no crawls apart")
    compared = [one.name for one in dataclasses.fields(value) if one.compare]
    return {type(value).__qualname__: {name: _as_json(getattr(value, name)) for name in compared}}


def _dict_as_json(value: dict[Any, Any]) -> Any:
    """Return an object where all keys are text, numbers or None; else a list of sorted pairs."""
    kinds = {_kind(key) for key in value}
    if kinds in (set(), {str}, {float}, {type(None)}):
        return {key: _as_json(part) for key, part in value.items()}
    return _sorted([_as_json(key), _as_json(part)] for key, part in value.items())


def _kind(key: Any) -> type:
    if isinstance(key, int | float):
        return float
    return str if isinstance(key, str) else type(key)


def _sorted(parts: Iterable[Any]) -> list[Any]:
    return sorted(parts, key=lambda part: json.dumps(part, sort_keys=True))


def shown(given: Mapping[str, str], salt: str) -> dict[str, str]:
    """Return arguments as they are stored and shown: of what looks secret a digest."""
    return {
        name: f"digest-{_digest(f'{salt} {name} {value}')}" if is_secret(name) else value
        for name, value in sorted(given.items())
    }


def identity(spider: str, arguments: Mapping[str, str]) -> str:
    """Return a digest of a spider and its arguments, as they are shown."""
    text = json.dumps([spider, sorted(arguments.items())])
    return hashlib.sha256(text.encode()).hexdigest()


def label(spider: str, arguments: Mapping[str, str]) -> str:
    """Return the name of a spider's crawl with these arguments: `cats:cat=books,page=2`.

    It is safe in a shell and in a URL. Where that takes something away, or it is longer than 60
    letters, it ends in a digest.
    """
    if not arguments:
        return spider
    pairs = ",".join(f"{name}={value}" for name, value in sorted(arguments.items()))
    safe = _UNSAFE.sub("-", pairs)
    is_plain = safe == pairs and not any(
        mark in text for pair in arguments.items() for text in pair for mark in ",="
    )
    if is_plain and len(spider) + 1 + len(safe) <= LONGEST_LABEL:
        return f"{spider}:{safe}"
    room = max(0, LONGEST_LABEL - len(spider) - 2 - _DIGEST)
    return f"{spider}:{safe[:room]}-{_digest(pairs)}"


def as_path_part(name: str) -> str:
    """Return a crawl's name as one part of a path: `cats@cat=books` of `cats:cat=books`.

    Where that takes something away it ends in a digest, so that no two names become one.
    """
    safe = _UNSAFE.sub("-", name).replace(":", "@")
    is_plain = safe.replace("@", ":") == name and not safe.startswith(".")
    return safe if is_plain else f"{safe.lstrip('.')}-{_digest(name)}"


def as_options(arguments: Mapping[str, str]) -> str:
    """Return arguments as they are typed in a shell: `-a cat=books`; "none" without any.

    In the place of a secret stand three dots.
    """
    return (
        " ".join(
            f"-a {name}=…" if is_secret(name) else f"-a {shlex.quote(f'{name}={value}')}"
            for name, value in arguments.items()
        )
        or "none"
    )


def texts(given: Mapping[str, Any]) -> dict[str, str]:
    """Return values as `-a NAME=VALUE` and `-s NAME=VALUE` would have them."""
    return {name: value if isinstance(value, str) else str(value) for name, value in given.items()}


def without_secrets(arguments: Mapping[str, str]) -> dict[str, str]:
    """Return arguments as programs are shown them: three dots in the place of a secret."""
    return {
        name: "…" if is_secret(name) and not str(value).startswith(FROM_ENVIRONMENT) else value
        for name, value in arguments.items()
    }


def old_digests(attributes: Mapping[str, str]) -> dict[str, str]:
    """Return what earlier versions kept of text attributes: digests, and nothing of secrets."""
    return {
        name: hashlib.sha256(value.encode(errors="surrogatepass")).hexdigest()[:12]
        for name, value in attributes.items()
        if not is_secret(name)
    }


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST]
