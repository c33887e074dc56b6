"""Errors as they are recorded with failed attempts."""

from __future__ import annotations

import linecache
import os
import sys
import sysconfig
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scrapy_itemgraph.model.work import ErrorRecord
from scrapy_itemgraph.tools.hiding import hidden

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import CodeType

# Where modules are that are not the project's: ours, installed ones, Python's own.
_INSTALLED = tuple(
    f"{folder}{os.sep}"
    for folder in (
        Path(__file__).parents[2],
        *map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib")),
    )
)
_MAX_TRACEBACK = 8000  # characters
_MAX_MESSAGE = 2000  # characters


def keep_source_lines() -> None:
    """Keep the lines of the project's modules as they are now, which is what this process runs.

    A traceback would have the lines of the files as they are when it is written: others, if
    somebody has edited them since. A module that is imported later has them all the same.
    """
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if isinstance(path, str) and path.endswith(".py") and not path.startswith(_INSTALLED):
            lines = linecache.getlines(path, vars(module))
            size = sum(map(len, lines))
            linecache.cache[path] = (size, None, lines, path)  # no time: never looked at again


def is_of_project(code: CodeType) -> bool:
    """Tell whether code is neither ours nor of what is installed."""
    return is_project_file(code.co_filename)


def is_project_file(path: str) -> bool:
    """Tell whether a file of code is neither ours nor of what is installed."""
    return not path.startswith(_INSTALLED)


def line_of(code: CodeType, line: int) -> str:
    """Return a line of a function as a traceback has it: `File "/s.py", line 3, in S.parse`."""
    return f'File "{code.co_filename}", line {line}, in {code.co_qualname}'


def type_name(error: BaseException) -> str:
    """Return the name of an error's class, with its module unless that is built in."""
    cls = type(error)
    return cls.__name__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def describe(
    error: BaseException,
    where: Mapping[str, Any],
    *,
    kind: str | None = None,
    url: str = "",
    snippet: str | None = None,
    status: int | None = None,
) -> ErrorRecord:
    """Return an error as it is recorded with a failed attempt; `where` has what else is known.

    `snippet` and `status`, of HTTP, are of the response at which it was raised.
    """
    frames = ""
    if kind is None:
        frames = hidden("".join(traceback.format_exception(error, limit=-10)))[-_MAX_TRACEBACK:]
    return ErrorRecord(
        type=kind or type_name(error),
        message=_shortened(_clean(_message(error))),
        traceback=_clean(frames),
        url=_clean(hidden(url)),
        place=_place(error) if kind is None else None,
        snippet=None if snippet is None else _clean(hidden(snippet)),
        status=status,
        **where,
    )


def _place(error: BaseException) -> str | None:
    """Return the last function of the project that an error came through; without lines."""
    places = [
        f"{frame.f_globals.get('__name__', '?')}.{frame.f_code.co_qualname}"
        for frame, _ in traceback.walk_tb(error.__traceback__)
        if is_of_project(frame.f_code)
    ]
    return _clean(places[-1]) if places else None


def _shortened(message: str) -> str:
    """Leave out the middle of a long message: what the cause is stands at one of its ends."""
    if len(message) <= _MAX_MESSAGE:
        return message
    start = _MAX_MESSAGE // 4
    return f"{message[:start]} […] {message[start - _MAX_MESSAGE :]}"


def _message(error: BaseException) -> str:
    try:
        return hidden(str(error))
    except Exception as raised:  # noqa: BLE001 - a user's exception may do anything
        return f"{type_name(error)}, whose message cannot be read ({type_name(raised)})"


def _clean(text: str) -> str:
    return text.replace("\0", "\N{SYMBOL FOR NULL}").encode(errors="replace").decode()
