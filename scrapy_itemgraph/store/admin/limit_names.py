"""Names of limits: what people call them, and which limit is meant by what a person wrote."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import text

from scrapy_itemgraph.exceptions import NotFoundError, OperationError
from scrapy_itemgraph.model import input_checks, slots
from scrapy_itemgraph.store.slots import intern_slots
from scrapy_itemgraph.tools.wording import closest

if TYPE_CHECKING:
    from sqlalchemy import Connection

_PREFIXED = re.compile(r"(task|group|tags|slot):(.+)", re.DOTALL)
_HOST = re.compile(r"[^\s/:@]+\.[^\s/:@]+(:\d+)?")
_LIKE_A_LIMIT = re.compile(r"(task|group|tags|slot):|.*://", re.DOTALL)

FIND = text("SELECT id FROM limits WHERE kind = :kind AND name = :name")

ALL_NAMED = text("SELECT kind, name FROM limits WHERE kind <> 'slot' ORDER BY kind, name")

# Slots whose names could be meant by another of about the same length.
LIKE_SLOTS = text("""
    SELECT name FROM limits
    WHERE kind = 'slot' AND name <> '' AND name <> :name
        AND abs(length(name) - length(:name)) <= 3
    LIMIT 10000
""")


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundLimit:
    """A limit that is meant by what a person wrote.

    `is_new` when nothing had named the slot before; `hint` is what its name resembles.
    """

    id: int
    kind: str
    name: str
    is_new: bool = False
    hint: str = ""


def find(connection: Connection, written: str, *, may_create: bool) -> FoundLimit:
    """Return the limit that is meant by what people write."""
    kind, name = _split(written)
    if kind == "slot":
        return find_slot(connection, written, may_create=may_create)
    number = _number(connection, kind, name)
    if number is not None:
        return FoundLimit(id=number, kind=kind, name=name)
    known = [limit_name(*row) for row in connection.execute(ALL_NAMED).all()]
    raise NotFoundError(
        f"no task declares a limit {written!r}{closest(written, known)}; there "
        + (f"are {', '.join(known)}" if known else "is none yet: the start of a spider makes them")
    )


def find_slot(connection: Connection, written: str, *, may_create: bool = True) -> FoundLimit:
    """Return a slot by its name, a page's URL, or `slot:` and its name."""
    kind, name = _split(written)
    if kind != "slot":
        raise OperationError(
            f"{written!r} is no slot; set-limit (in Python set_limit) changes such a limit, and a "
            f"slot of that name is written slot:{written}"
        )
    number = _number(connection, kind, name)
    if number is None:
        name = _normal(name)
        number = _number(connection, kind, name)
    if number is not None:
        return FoundLimit(id=number, kind=kind, name=name)
    hint = closest(name, connection.execute(LIKE_SLOTS, {"name": name}).scalars())
    if not may_create:
        raise NotFoundError(
            f"no work has ever named the slot {name!r}{hint}; `scrapy itemgraph slots` lists them"
        )
    (number,) = intern_slots(connection, [name]).values()
    return FoundLimit(id=number, kind=kind, name=name, is_new=True, hint=hint)


def _split(written: str) -> tuple[str, str]:
    """Return the kind and the name of a limit."""
    if not isinstance(written, str):
        raise OperationError(f"a limit's name is text, not {written!r:.80}")
    input_checks.check_text(written, "the name", error=OperationError)
    if written == "global":
        return "global", ""
    prefixed = _PREFIXED.fullmatch(written)
    kind, name = prefixed.groups() if prefixed else ("slot", written)
    if kind == "slot" and not prefixed and "://" in name:
        name = slots.slot_of({"url": name})
        if not name:
            raise OperationError(f"{written!r} has no host; give a slot's name, or a page's URL")
    if kind == "slot" and not (name and slots.is_usable(name)):
        raise OperationError(
            f"no slot is called {written!r:.80}: it has 1 to {slots.MAX_BYTES} bytes"
        )
    return kind, name


def _normal(name: str) -> str:
    """Return what looks like a host as requests have it: small, in ASCII, without a port."""
    host = slots.slot_of({"url": f"http://{name}/"}) if _HOST.fullmatch(name) else ""
    return host or name


def _number(connection: Connection, kind: str, name: str) -> int | None:
    number: int | None = connection.execute(FIND, {"kind": kind, "name": name}).scalar()
    return number


def limit_name(kind: str, name: str) -> str:
    """Return what people call a limit: `global`, `task:shop/parse`, or a slot's name alone.

    A slot whose name reads like another limit's has `slot:` before it.
    """
    if kind == "slot":
        is_unclear = name == "global" or _LIKE_A_LIMIT.match(name)
        return f"slot:{name}" if is_unclear else name
    return f"{kind}:{name}" if name else kind
