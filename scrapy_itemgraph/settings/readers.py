"""How values of settings are read: from Python, and from the text that a command line gives.

A reader raises a ValueError, TypeError or SyntaxError whose text follows the setting's name.
"""

from __future__ import annotations

import ast
import base64
import json
import re
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from scrapy_itemgraph.exceptions import InvalidIdError
from scrapy_itemgraph.model import input_checks, periods
from scrapy_itemgraph.model.answers import read_answers
from scrapy_itemgraph.model.notices import Kind
from scrapy_itemgraph.model.rates import RateLimit
from scrapy_itemgraph.tools.wording import closest

_TRUE = {True, "1", "true", "True"}
_FALSE = {False, "0", "false", "False"}


def boolean(value: Any) -> bool:
    """Read True or False."""
    if value in _TRUE:
        return True
    if value in _FALSE:
        return False
    raise ValueError(f"write True or False, not {value!r}")


def kept(value: Any) -> bool | timedelta:
    """Read whether scraped items are kept, or for how long."""
    try:
        return boolean(value)
    except ValueError:
        return period(value)


def integer(value: Any, least: int = 1) -> int:
    """Read a whole number from `least`."""
    number = int(value)
    if number < least:
        raise ValueError(f"write a whole number from {least}, not {value!r}")
    return number


def natural(value: Any) -> int:
    """Read a whole number from 0."""
    return integer(value, least=0)


def seconds(value: Any) -> float:
    """Read a period, in seconds."""
    return period(value).total_seconds()


def number(value: Any) -> Any:
    """Read text such as "60" from a command line as the number it is."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def period(value: Any) -> timedelta:
    """Read a period."""
    return periods.parse_period(number(value), "it")


def ttl(value: Any) -> timedelta | None:
    """Read a time to live; None: never."""
    return periods.parse_ttl(number(value), "it")


def idle(value: Any) -> str:
    """Read what an idle crawl does."""
    if value not in {"close", "wait"}:
        raise ValueError(f'write "close" or "wait", not {value!r}')
    return str(value)


def text(value: Any) -> str:
    """Read a text that is not empty."""
    if not isinstance(value, str) or not value:
        raise ValueError(f"write a text, not {value!r}")
    return input_checks.check_text(value, "it", error=ValueError)


def url(value: Any) -> str:
    """Read a URL, which no error may quote: it may hold a password."""
    if not isinstance(value, str) or not value:
        what = "an empty one" if isinstance(value, str) else f"a {type(value).__name__}"
        raise ValueError(f"write a text, not {what}")
    try:
        return input_checks.check_text(value, "it", error=ValueError)
    except ValueError:
        raise ValueError("it has a NUL character or a lone surrogate, as no URL has") from None


def channels(value: Any) -> tuple[str, ...]:
    """Read URLs to which notices go, a list or text with blanks between; no error may quote one."""
    given = value.split() if isinstance(value, str) else list(value)
    for number, one in enumerate(given, 1):
        scheme, mark, rest = url(one).partition("://")
        if not (mark and rest and _SCHEME.fullmatch(scheme)) or any(map(str.isspace, one)):
            raise ValueError(
                f"number {number} is no URL; write https://…, or one that apprise knows, such as "
                "mailtos://…"
            )
        if scheme in {"http", "https"}:
            _check_web(one, number)
    return tuple(dict.fromkeys(given))


_SCHEME = re.compile("[a-z][a-z0-9+.-]*")


def _check_web(given: str, number: int) -> None:
    try:
        parts = urlsplit(given)
        is_whole = bool(parts.hostname) and parts.port != 0 and given.isascii()
    except ValueError:
        is_whole = False
    if not is_whole:
        raise ValueError(f"number {number} has no host, a bad port, or characters to be quoted")


def web_address(value: Any) -> str | None:
    """Read a URL of http or https, and drop a slash at its end; an empty value is None."""
    if not value:
        return None
    parts = urlsplit(str(value))
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
        raise ValueError(
            f'write the address at which people open the cockpit, such as "https://host", not '
            f"{value!r}"
        )
    return str(value).rstrip("/")


def secret(value: Any) -> str:
    """Read the key that webhooks are signed with, `whsec_` and base64; no error may quote it."""
    if not isinstance(value, str) or not value.startswith(_PREFIX):
        raise ValueError(
            f"write {_PREFIX} and a key in base64, as Standard Webhooks has it; this makes "
            "one: python -c \"import base64, os; print('whsec_' + base64.b64encode(os.urandom(32))"
            '.decode())"'
        )
    try:
        key = base64.b64decode(value.removeprefix(_PREFIX), validate=True)
    except ValueError:
        raise ValueError("what follows whsec_ is no base64; write it as it was made") from None
    if len(key) < _SHORTEST_KEY:
        raise ValueError(f"its key has fewer than {_SHORTEST_KEY} bytes; make a longer one")
    return value


_PREFIX = "whsec_"
_SHORTEST_KEY = 24  # bytes, as Standard Webhooks asks for


def function(value: Any) -> str | None:
    """Read the import path of a function; None where it is empty."""
    if not value:
        return None
    if not isinstance(value, str) or "." not in value:
        raise ValueError(
            f'write the import path of a function, such as "shop.notices.tell", not {value!r}'
        )
    modules(value)
    return value


def notice_kinds(value: Any) -> tuple[str, ...]:
    """Read kinds of notices."""
    given = listed(value)
    for one in given:
        if one not in set(Kind):
            near = closest(str(one), [kind.value for kind in Kind])
            raise ValueError(f"there are no notices {one!r}{near}; there are: {', '.join(Kind)}")
    return tuple(given)


def idle_period(value: Any) -> timedelta | None:
    """Read after which period without anything done people are told; None where it is empty."""
    if value in {"", "None"}:
        return None
    read = period(value)
    if not _SHORTEST_IDLE <= read <= _LONGEST_IDLE:
        raise ValueError(f"write a period from a minute to a day, not {value!r}")
    return read


_SHORTEST_IDLE, _LONGEST_IDLE = timedelta(minutes=1), timedelta(days=1)


def most_failures(value: Any) -> int | None:
    """Read above how many open failures people are told; None where it is empty."""
    if value in {"", "None"}:
        return None
    read = natural(value)
    if read > _MOST_FAILURES:
        raise ValueError(f"write a whole number from 0 to {_MOST_FAILURES}, not {value!r}")
    return read


_MOST_FAILURES = 100_000


def blobs(value: Any) -> str:
    """Read where binary data is kept: a path, a URL, or "database"."""
    if isinstance(value, Path):
        return str(value)
    read = url(value)
    if _CUT_SCHEME.match(read):
        raise ValueError(
            'a URL has "://" behind its protocol, such as s3://bucket/prefix; begin a folder that '
            "has a colon in its name with ./"
        )
    return read


_CUT_SCHEME = re.compile(r"[a-z][a-z0-9+]*:(?!//)")


def mapping(value: Any) -> dict[Any, Any]:
    """Read a dict, also as JSON or Python writes it."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            value = ast.literal_eval(value)
    if not isinstance(value, Mapping):
        raise TypeError(f"write a dict, not {value!r}")
    return dict(value)


def hooks(value: Any) -> dict[str, Any]:
    """Read functions by name: import paths, or the functions themselves."""
    given = mapping(value)
    for name, path in given.items():
        if not isinstance(name, str) or not name:
            raise TypeError(f"a hook's name is text, not {name!r:.80}")
        if not (callable(path) or (isinstance(path, str) and "." in path)):
            raise TypeError(
                f"{name!r}: write an import path such as shop.hooks.{name}, not {path!r}"
            )
    return given


def answers(value: Any) -> dict[int, str]:
    """Read what HTTP statuses mean."""
    return dict(read_answers(mapping(value), "it"))


def listed(value: Any) -> list[Any]:
    """Return the parts of a list, or of comma-separated text."""
    given = value.split(",") if isinstance(value, str) else list(value)
    return [one.strip() if isinstance(one, str) else one for one in given]


def modules(value: Any) -> tuple[str, ...]:
    """Read names of modules."""
    names = listed(value)
    for name in names:
        if not isinstance(name, str) or not all(map(str.isidentifier, name.split("."))):
            raise ValueError(f'write names of modules such as "shop.items", not {name!r}')
    return tuple(names)


def names(value: Any) -> tuple[str, ...]:
    """Read names of arguments."""
    names = listed(value)
    if not all(isinstance(name, str) and name for name in names):
        raise ValueError('write names of arguments such as ["depth", "dry_run"]')
    return tuple(names)


def renames(value: Any) -> dict[str, str]:
    """Read new names of tags, by their old ones."""
    names = [name for pair in mapping(value).items() for name in pair]
    try:
        for name in names:
            input_checks.check_id(name, "a tag")
    except InvalidIdError as error:
        raise ValueError(str(error)) from None
    return mapping(value)


def rate_groups(value: Any) -> dict[str, RateLimit]:
    """Read rates, by patterns of names of tasks."""
    groups = mapping(value)
    try:
        for name in groups:
            input_checks.check_tag(name, "the name of a group")
    except InvalidIdError as error:
        raise ValueError(
            f'{error}; write names of tasks, with * for any text, such as {{"shop:*": "1/s"}}'
        ) from None
    return {name: RateLimit.read(rate, f"the group {name!r}") for name, rate in groups.items()}


def path(value: Any) -> Path | None:
    """Read a path, in which ~ is the user's home; None where it is empty."""
    return Path(text(value)).expanduser() if value else None


def rate(value: Any) -> RateLimit:
    """Read a rate, such as "10/s"."""
    return RateLimit.read(value, "it")
