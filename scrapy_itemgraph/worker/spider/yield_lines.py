"""The line of the project at which a callback yielded something that is found to be wrong.

A callback waits at its `yield` while what it yielded is looked at. The generators between it and us
hold each other: Scrapy's, those of middlewares, the callback's own. Nothing is noted meanwhile, and
nothing of this runs unless there is an error.
"""

from __future__ import annotations

import gc
import inspect
from collections.abc import AsyncIterator, Iterator
from types import AsyncGeneratorType, FrameType, GeneratorType, TracebackType
from typing import TYPE_CHECKING, Any

from scrapy_itemgraph.worker.executions import error_records

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeAlias

    Generator: TypeAlias = GeneratorType[Any, Any, Any] | AsyncGeneratorType[Any, Any]

_MOST = 100  # iterators that are looked at
_LEADING = (Iterator, AsyncIterator, tuple)  # `map` has what it is of in a tuple
_OURS = __name__.rpartition(".")[0]
# Whose generators stand next to the spider; further away middlewares have theirs.
_NEXT_TO_SPIDER = {f"{_OURS}.spider_output", f"{_OURS}.callbacks"}
_OF_MIDDLEWARES = ("process_spider_output", "process_start")


def show(error: BaseException, outputs: Any, callback: Any = None) -> None:
    """Have the traceback of an error be the line that yielded what is wrong, and not ours.

    `outputs` is the iterator from which the callback's outputs come. Of a callback that returned a
    list the error has a note that says which function that is.
    """
    frames = _frames(outputs)
    if frames:
        error.__traceback__ = _traceback(frames)
    elif (returning := _returning(callback)) is not None:
        error.add_note(returning)


def line(outputs: Any) -> str | None:
    """Return where the last output was yielded, as a traceback has it; None if that is unknown."""
    frames = _frames(outputs)
    if not frames:
        return None
    return error_records.line_of(frames[-1].f_code, frames[-1].f_lineno)


def name(error: BaseException, outputs: Any) -> None:
    """Have the message of an error say where the last output was yielded, if that is known."""
    where = line(outputs)
    if where is not None:
        error.args = (f"{error} ({where})", *error.args[1:])


def _frames(outputs: Any) -> Sequence[FrameType]:
    """Return the frames of the callback and of what it delegates to, the innermost last."""
    frames = []
    generator = _callback(outputs)
    while generator is not None:
        frame = _frame(generator)
        if frame is None or not error_records.is_of_project(frame.f_code):
            break
        frames.append(frame)
        inner = getattr(generator, "gi_yieldfrom", None)
        generator = inner if isinstance(inner, GeneratorType) else None
    return frames


def _callback(outputs: Any) -> Generator | None:
    """Return the generator of the callback: the project's first one that is no middleware's."""
    ours = [one for one in _generators(outputs) if _module(one) in _NEXT_TO_SPIDER]
    behind = _generators(ours[-1] if ours else outputs)
    return next(filter(_is_of_callback, behind), None)


def _is_of_callback(generator: Generator) -> bool:
    frame = _frame(generator)
    return (
        frame is not None
        and error_records.is_of_project(frame.f_code)
        and not frame.f_code.co_name.startswith(_OF_MIDDLEWARES)
    )


def _generators(outputs: Any) -> Iterator[Generator]:
    """Yield the generators from which an iterator gets its values, those it has itself first."""
    found = [outputs]
    for one in found:
        if isinstance(one, GeneratorType | AsyncGeneratorType):
            yield one
        for inner in gc.get_referents(one):
            is_leading = isinstance(inner, _LEADING) and len(found) < _MOST
            if is_leading and all(inner is not other for other in found):
                found.append(inner)


def _frame(generator: Generator) -> FrameType | None:
    if isinstance(generator, GeneratorType):
        return generator.gi_frame
    return generator.ag_frame


def _module(generator: Generator) -> str | None:
    frame = _frame(generator)
    return None if frame is None else frame.f_globals.get("__name__")


def _traceback(frames: Sequence[FrameType]) -> TracebackType | None:
    traceback = None
    for frame in reversed(frames):
        traceback = TracebackType(traceback, frame, frame.f_lasti, frame.f_lineno)
    return traceback


def _returning(callback: Any) -> str | None:
    """Return which function of the project returned a list; None if it is none."""
    function = inspect.unwrap(getattr(callback, "__func__", callback))
    code = getattr(function, "__code__", None)
    if code is None or not error_records.is_of_project(code):
        return None
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        return None  # a middleware has taken all that it yielded, and it has ended
    return f"{error_records.line_of(code, code.co_firstlineno)}, which returned it"
