"""The package's loggers: what comes from outside cannot forge a line, nor steer a terminal."""

from __future__ import annotations

import logging
import sys
import traceback
from decimal import Decimal
from typing import Any

from scrapy_itemgraph.tools.wording import one_line

_NUMBERS = (int, float, Decimal)
_CONTINUED = "\n    | "  # so a line within an error's text begins, and no log line does


def logger(name: str) -> logging.Logger:
    """Return the logger of a module; every module of the package gets its own here.

    Texts among the arguments of its records are shown by `one_line`, and so are the messages of
    errors in tracebacks, line by line.
    """
    found = logging.getLogger(name)
    if _make_safe not in found.filters:
        found.addFilter(_make_safe)
    return found


def is_heard(logger: logging.Logger, level: int) -> bool:
    """Tell whether a record of a level would be written anywhere.

    Scrapy's LOG_LEVEL is that of its handlers; its loggers take everything.
    """
    if not logger.isEnabledFor(level):
        return False
    one: logging.Logger | None = logger
    while one is not None:
        if any(_writes(handler, level) for handler in one.handlers):
            return True
        one = one.parent if one.propagate else None
    return False


def error(logger: logging.Logger, message: str, *, action: str) -> None:
    """Log an error that ends a process; where nobody writes a log, stderr has its message."""
    logger.error("%s", message, extra={"action": action})
    if not is_heard(logger, logging.ERROR):
        print(f"scrapy-itemgraph: {one_line(message)}", file=sys.stderr)  # noqa: T201


def _writes(handler: logging.Handler, level: int) -> bool:
    return handler.level <= level and not isinstance(handler, logging.NullHandler)


def _make_safe(record: logging.LogRecord) -> bool:
    if isinstance(record.msg, str) and not record.msg.isprintable():
        record.msg = one_line(record.msg)
    if isinstance(record.args, tuple):
        record.args = tuple(map(_safe, record.args))
    elif record.args:
        record.args = {name: _safe(value) for name, value in record.args.items()}
    if record.exc_info and record.exc_info[1] is not None:
        record.exc_text = _traceback(record.exc_info[1])
    return True


def _safe(value: Any) -> Any:
    is_safe = value.isprintable() if type(value) is str else isinstance(value, _NUMBERS)
    return value if is_safe else _Shown(value)


class _Shown:
    """An argument of a record that is shown in one line, by `%s` and by `%r`."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __str__(self) -> str:
        return one_line(self._value)

    def __repr__(self) -> str:
        return one_line(repr(self._value))


def _traceback(error: BaseException) -> str:
    described = traceback.TracebackException.from_exception(error)
    waiting: list[Any] = [described]
    while waiting:
        part = waiting.pop()
        part._str = _lines(part._str)  # noqa: SLF001 - no public name, the same in 3.11 to 3.13
        if part.__notes__:
            part.__notes__ = [_lines(note) for note in part.__notes__]
        waiting += filter(None, [part.__cause__, part.__context__, *(part.exceptions or ())])
    return "".join(described.format()).rstrip("\n")


def _lines(text: Any) -> str:
    return _CONTINUED.join(map(one_line, str(text).split("\n")))
