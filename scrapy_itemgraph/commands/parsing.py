"""The arguments of a command, after Scrapy has taken its own from anywhere between them."""

from __future__ import annotations

import argparse
import json
import math
import re
import textwrap
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from scrapy.exceptions import UsageError

from scrapy_itemgraph.commands import printing
from scrapy_itemgraph.model import input_checks, moments, periods
from scrapy_itemgraph.settings.readers import number

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from scrapy_itemgraph.commands.command import Argument, Command

_COMMON = """\
Every command also takes --json, --crawl NAME, and Scrapy's own options, such as -s NAME=VALUE
and -L LEVEL, before or after its arguments. An ID that begins with a dash goes after `--`."""


_WIDEST = 100  # columns of help
_LAST_PORT = 65535
_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?([kMGT]?)B?", re.IGNORECASE)
_UNITS = ("", "K", "M", "G", "T")


class _Parser(argparse.ArgumentParser):
    """A parser that leaves the exit to Scrapy's command, and takes `-o -:json`, as Scrapy does."""

    def _parse_optional(self, arg_string: str) -> Any:
        return None if arg_string.startswith("-:") else super()._parse_optional(arg_string)

    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def parse(command: Command, arguments: Sequence[str]) -> argparse.Namespace:
    """Read a command's arguments in any order, dropping none, or raise a UsageError."""
    given = list(arguments)
    for one in given:
        try:
            one.encode()
        except UnicodeEncodeError:
            raise UsageError(f"{one!r} is not UTF-8") from None
    end = given.index("--") if "--" in given else len(given)
    before, after = given[:end], given[end + 1 :]
    options = parser(command, (a for a in command.arguments if a.is_option))
    found, rest = options.parse_known_args(before)
    stray = [one for one in rest if one.startswith("-") and one != "-"]
    if stray:
        raise UsageError(f"unknown option {stray[0]}; an ID that begins with a dash goes after --")
    positionals = [*rest, *after]
    declared = [a for a in command.arguments if not a.is_option]
    takes_many = bool(declared) and declared[-1].options.get("nargs") in {"*", "+"}
    if len(positionals) > len(declared) and not takes_many:
        raise UsageError(f"unexpected argument {positionals[len(declared)]!r}; nothing was done")
    # Behind the dashes an ID may begin with one.
    values = ["--", *positionals] if positionals else []
    return parser(command, declared).parse_args(values, found)


def parser(command: Command, arguments: Iterable[Argument]) -> argparse.ArgumentParser:
    """Return what reads some of a command's arguments, and says what it takes."""
    reader = _Parser(
        prog=f"scrapy itemgraph {command.name}",
        description=filled(f"{command.summary}."),
        epilog=filled(f"{command.notes}\n\n{_COMMON}" if command.notes else _COMMON),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,
        allow_abbrev=False,
    )
    for one in arguments:
        reader.add_argument(*one.flags, **one.options)
    return reader


def width() -> int:
    """Return how wide help is: as the terminal, up to 100 columns."""
    return min(printing.width() or _WIDEST, _WIDEST)


def filled(text: str) -> str:
    """Return a text with the lines of its paragraphs filled, but for those that are indented."""
    return "\n\n".join(
        part if "\n " in f"\n{part}" else textwrap.fill(part, width(), break_on_hyphens=False)
        for part in text.split("\n\n")
    )


def json_value(text: str) -> Any:
    """Read a JSON value."""
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise argparse.ArgumentTypeError(input_checks.too_deep("it")) from None
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"{text!r:.80} is not JSON ({error}); text needs double quotes"
        ) from None


def json_object(text: str) -> dict[str, Any]:
    """Read a JSON object."""
    value = json_value(text)
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f"{text!r:.80} is not a JSON object")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"JSON has no {name}")


def tag(text: str) -> tuple[str, Any]:
    """Read NAME or NAME=JSON."""
    name, equals, value = text.partition("=")
    if not name:
        raise argparse.ArgumentTypeError(f"{text!r} names no tag")
    return name, json_value(value) if equals else None


def spider_argument(text: str) -> tuple[str, str]:
    """Read NAME=VALUE."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def count(text: str) -> int:
    """Read a number from 1."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if not 1 <= number < 2**63:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1")
    return number


def depth(text: str) -> float:
    """Read how many links deep: a whole number from 0, or "inf"."""
    if text == "inf":
        return math.inf
    try:
        return natural(text)
    except argparse.ArgumentTypeError:
        why = f"{text!r} is not a whole number from 0, or inf"
        raise argparse.ArgumentTypeError(why) from None


def natural(text: str) -> int:
    """Read a whole number from 0."""
    return 0 if text == "0" else count(text)


def count_or_name(text: str) -> int | str:
    """Read a number from 1, or what is none as it is."""
    return count(text) if text.isascii() and text.lstrip("-").isdecimal() else text


def size(text: str) -> int:
    """Read a number of bytes: "500M", "5G", or a number alone; units are decimal."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r:.20} is no size; write one such as 500M or 5G")
    return int(float(found[1]) * 1000 ** _UNITS.index(found[2].upper()))


def port(text: str) -> int:
    """Read a port's number; 0 is a free one."""
    if not (text.isdecimal() and text.isascii() and int(text) <= _LAST_PORT):
        raise argparse.ArgumentTypeError(f"{text!r:.20} is no port: 0 to {_LAST_PORT}")
    return int(text)


def period(text: str, or_else: str = "") -> timedelta:
    """Read a period: "90s", "1d12h", or a number of seconds; `or_else` ends its error."""
    try:
        return periods.parse_period(number(text), "it")
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}{or_else}") from None


def delay(text: str) -> float | None:
    """Read a number of seconds, or a period; or "none", which is None."""
    return None if text == "none" else period(text, '; or "none"').total_seconds()


def ttl(text: str) -> Any:
    """Read a time to live: a period, "never", or "default" for the task's own, which is None."""
    if text in {"never", "default"}:
        return None if text == "default" else text
    return period(text, '; or "never" or "default"')


def point(text: str) -> datetime:
    """Read a moment, in UTC unless it says otherwise."""
    read = _moment(text)
    if read is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no moment; write one such as 2026-11-21T10:00Z"
        )
    return read


def moment(text: str) -> datetime | timedelta:
    """Read a moment, in UTC unless it says otherwise, or a period that lasts until now."""
    read = _moment(text)
    if read is not None:
        return read
    try:
        return periods.parse_period(text, "it")
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no moment; write one such as 2026-11-21T10:00Z, or a period such as 1d12h"
        ) from None


def _moment(text: str) -> datetime | None:
    try:
        read = datetime.fromisoformat(text)
    except ValueError:
        return None
    read = read if read.tzinfo else read.replace(tzinfo=UTC)
    return read if moments.is_sayable(read) else None
