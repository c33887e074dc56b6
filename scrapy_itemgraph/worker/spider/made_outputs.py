"""Operations and requests that a simulated callback makes, and which of them it never yields.

Only a simulation looks at this: while it does, the constructors tell of what the project's own code
makes in a callback. What somebody still holds at the end may be yielded later, and is not told.
"""

from __future__ import annotations

import gc
import sys
import weakref
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, NamedTuple

from scrapy import Request

from scrapy_itemgraph.model import item_names, operations
from scrapy_itemgraph.worker.executions import error_records
from scrapy_itemgraph.worker.executions.execution import current_leg
from scrapy_itemgraph.worker.spider import callback_arguments, callbacks, yield_lines
from scrapy_itemgraph.worker.spider.spider_output import SpiderOutput

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence
    from types import FrameType

    from scrapy.http import Response

    from scrapy_itemgraph.worker.executions.execution import Execution, Leg

_INIT = "__init__"
_OF_REQUESTS = "scrapy.http"  # the modules that make requests for who calls them
_COPIES = "replace"  # the method there that makes one of another
_NAMES = ("id", "into", "to", "alias", "tag", "name")  # what an operation is about
_MOST_SHOWN = 100  # characters of a name


class NotYielded(NamedTuple):
    """What a callback made and did not yield: "CreateItem A", where, and how often there."""

    made: str
    line: str  # `File "/s.py", line 3, in S.parse`
    times: int


@dataclass(slots=True, eq=False)
class _Made:
    """One operation or request, which is not kept alive."""

    output: weakref.ref[Any]
    shown: str
    line: str
    is_used: bool = False

    @property
    def is_lost(self) -> bool:
        """Whether nobody has it, and nobody got it."""
        return not self.is_used and self.output() is None


@dataclass(slots=True, weakref_slot=True, eq=False, repr=False)
class MadeOutputs:
    """Notes what a callback makes, and what it yields of it."""

    has_yielded: bool = False
    _all: list[_Made] = field(default_factory=list)
    _by_id: dict[int, _Made] = field(default_factory=dict)
    _misfits: dict[str, list[str]] = field(default_factory=dict)  # requests by what they fail by
    _looked_at: weakref.WeakSet[Request] = field(default_factory=weakref.WeakSet)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Have the constructors of operations and requests tell of what they make."""
        classes: list[type] = [*operations.CLASSES.values(), Request]
        own = {cls: vars(cls)[_INIT] for cls in classes}
        for cls, init in own.items():
            setattr(cls, _INIT, self._noting(init))
        try:
            yield
        finally:
            for cls, init in own.items():
                setattr(cls, _INIT, init)

    def _noting(self, init: Callable[..., None]) -> Callable[..., None]:
        @wraps(init)
        def noting(output: Any, *args: Any, **kwargs: Any) -> None:
            init(output, *args, **kwargs)
            leg = current_leg.get()
            if leg is not None and leg.execution.claim is not None:
                self._note(output, sys._getframe(1))  # noqa: SLF001 - who makes it

        return noting

    def _note(self, output: Any, frame: FrameType | None) -> None:
        """Note an output that the project's own code makes; a copy stands for what it is of."""
        while frame is not None and _is_of_output(frame, output):
            if frame.f_code.co_name == _COPIES:
                self.use(frame.f_locals.get("self"))
            frame = frame.f_back
        if frame is not None and error_records.is_of_project(frame.f_code):
            line = error_records.line_of(frame.f_code, frame.f_lineno)
            made = _Made(weakref.ref(output), _shown(output), line)
            self._all.append(made)
            self._by_id[id(output)] = made

    def use(self, output: Any) -> None:
        """Take note that somebody got an output: it was yielded, copied or downloaded."""
        made = self._by_id.get(id(output))
        if made is not None and made.output() is output:
            made.is_used = True

    def downloaded(self, request: Request) -> None:
        """Take note that a callback downloads a request by itself."""
        self.use(request)

    async def seen(
        self, outputs: AsyncIterator[Any], misfit: Callable[[Request], str | None]
    ) -> AsyncIterator[Any]:
        """Pass on outputs, and note that they are yielded; `misfit` says of requests what fails."""
        async for output in outputs:
            self.has_yielded = self.has_yielded or output is not None
            self.use(output)
            if isinstance(output, Request) and output not in self._looked_at:
                self._looked_at.add(output)
                self._note_misfit(output, misfit(output), outputs)
            yield output

    def _note_misfit(self, request: Request, said: str | None, outputs: Any) -> None:
        if said is None:
            return
        made = self._by_id.get(id(request))
        line = yield_lines.line(outputs) or (None if made is None else made.line)
        where = said if line is None else f"{said} ({line})"
        self._misfits.setdefault(where, []).append(_shown(request))

    def misfits(self) -> Iterator[str]:
        """Yield what is wrong with requests that were yielded, what is alike in one sentence."""
        for said, requests in self._misfits.items():
            more = f" and {len(requests) - 1:,} more" if len(requests) > 1 else ""
            yield f"{requests[0]}{more}: {said}"

    def not_yielded(self) -> Sequence[NotYielded]:
        """Return what was made and is gone without having been yielded, in the order made."""
        gc.collect()
        lost = [one for one in self._all if one.is_lost]
        times = Counter(one.line for one in lost)
        first = {one.line: one for one in reversed(lost)}
        return [NotYielded(first[line].shown, line, count) for line, count in times.items()]


@dataclass(eq=False, repr=False)
class WatchedOutput(SpiderOutput):
    """Sorts what callbacks give back, and has that noted."""

    made: MadeOutputs = field(default_factory=MadeOutputs)

    async def taken(
        self,
        leg: Leg,
        callback: Any,
        result: AsyncIterator[Any],
        response: Response | None = None,
    ) -> AsyncIterator[Any]:
        """Do the same; an errback's outputs are seen here first."""
        seen = self.made.seen(result, partial(self._misfit, leg.execution))
        async for output in super().taken(leg, callback, seen, response):
            yield output

    async def in_turns(
        self, execution: Execution, response: Response, result: AsyncIterator[Any]
    ) -> AsyncIterator[Any]:
        """Do the same; before a middleware drops outputs."""
        seen = self.made.seen(result, partial(self._misfit, execution))
        async for output in super().in_turns(execution, response, seen):
            yield output

    def _misfit(self, execution: Execution, request: Request) -> str | None:
        """Return why the callback of a request will fail when its page has been fetched."""
        callback = callbacks.callback_of(request, self.spider)
        given = dict(request.cb_kwargs)
        if execution.is_of_task and callbacks.takes_item(callback):
            given.setdefault("item", None)  # which is added to what goes on with a task
        why = callback_arguments.misfit(callback, given)
        name = getattr(callback, "__name__", "its callback")
        return None if why is None else f"{name} fails with its cb_kwargs: {why}"


def _is_of_output(frame: FrameType, output: Any) -> bool:
    """Tell whether a frame is of a constructor, or of what makes requests for its caller."""
    if frame.f_globals.get("__name__", "").startswith(_OF_REQUESTS):
        return True
    return frame.f_code.co_name == _INIT and frame.f_locals.get("self") is output


def _shown(output: Any) -> str:
    kind = type(output).__name__
    if isinstance(output, Request):
        return f"{kind} {item_names.page(output.url, output.method)}"
    names = (getattr(output, name, None) for name in _NAMES)
    name = next((str(one) for one in names if one is not None), "")
    return f"{kind} {name:.{_MOST_SHOWN}}".rstrip()
