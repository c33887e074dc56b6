"""State of a Request subclass: what its instances have beyond Request's own attributes.

It is read from the instance and put back into another one. Neither runs code of the class: no
constructor, no property.
"""

from __future__ import annotations

import inspect
from functools import lru_cache
from types import MemberDescriptorType
from typing import Any

from scrapy import Request

from scrapy_itemgraph.exceptions import InvalidDataError

_ABSENT = object()
_SAMPLE = Request("http://example.com")
# Scrapy from 2.15 on has slots, earlier ones a dict.
_OWN = frozenset({*getattr(_SAMPLE, "__dict__", ()), *getattr(Request, "__slots__", ())})


def of(request: Request) -> dict[str, Any]:
    """Return what an instance has beyond Request's own attributes, by the attributes' names."""
    kind: Any = type(request)
    state = {
        name: value for name, value in getattr(request, "__dict__", {}).items() if name not in _OWN
    }
    for name in _slots(kind):
        value = inspect.getattr_static(kind, name)
        try:
            state[name] = value.__get__(request, kind)
        except AttributeError:  # nothing was assigned
            continue
    return state


def put(request: Request, state: dict[Any, Any]) -> None:
    """Give a request the state that another one had.

    Raises:
        InvalidDataError: an attribute is Request's own, or one that the class does not keep so.

    """
    for name, value in state.items():
        if not _may_keep(type(request), name):
            raise InvalidDataError(
                f"a stored request has the attribute {name!r:.80}, which "
                f"{type(request).__qualname__} does not keep any more; put it back"
            )
        object.__setattr__(request, name, value)


def _may_keep(kind: type[Request], name: Any) -> bool:
    """Tell whether instances keep an attribute as a value, and setting it runs no code."""
    if not isinstance(name, str) or name in _OWN or name.startswith("__"):
        return False
    held = inspect.getattr_static(kind, name, _ABSENT)
    if isinstance(held, MemberDescriptorType):
        return True
    has_dict = kind.__dictoffset__ != 0
    return has_dict and not callable(held) and not hasattr(type(held), "__get__")


@lru_cache(maxsize=1000)
def _slots(kind: Any) -> tuple[str, ...]:
    """Return the names of the slots that a class adds to Request's."""
    added = [base for base in kind.__mro__ if base not in Request.__mro__]
    return tuple(
        name
        for base in added
        for name, held in vars(base).items()
        if isinstance(held, MemberDescriptorType)
    )
