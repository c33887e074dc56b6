"""Python values as JSON: what JSON has no form for becomes a tagged dict, of a closed set.

A tag is a dict with the key "$", such as `{"$": "bytes", "v": "AP8="}`.

**What is promised of a value that somebody else wrote.** Nothing that is read is executed:
- No module is imported. A class must be loaded already: by the spider's modules, by what they
  import, or because `ITEMGRAPH_ALLOWED_MODULES` names its module.
- Only enums, dataclasses, attrs classes, `scrapy.Item`s and namedtuples are classes here, and none
  that has a finaliser (`__del__`).
- Instances are filled field by field. No `__new__`, `__init__`, `__post_init__`, `__setstate__`,
  validator, converter, property or `_missing_` of theirs runs, and no attribute beside the fields
  can be set.
- What does run of a class: the default or the factory (without arguments) of a field that is not
  stored, and the `__hash__` and `__eq__` of what lies in a set or is the key of a dict.
- Whatever is raised on the way, `SystemExit` included, becomes an `InvalidDataError`.
"""

from __future__ import annotations

import base64
import functools
import json
import math
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any, NoReturn
from uuid import UUID
from zoneinfo import ZoneInfo

from scrapy.link import Link
from scrapy.utils.trackref import object_ref

from scrapy_itemgraph.exceptions import InvalidDataError, UnstorableError
from scrapy_itemgraph.model.input_checks import MAX_DEPTH
from scrapy_itemgraph.serialize import classes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_TAG = "$"
_BIG = 10**1000  # Python reads no longer numbers than 4,300 digits
_SCALARS = frozenset({str, int, float, bool, type(None)})


class _Refusal(Exception):  # noqa: N818 - never leaves this module
    """Why a value cannot be stored; `path` grows on the way out."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.path: list[str] = []


def dump(value: Any, what: str) -> Any:
    """Return a private copy of `value` that is made of JSON values only.

    Stored besides JSON: bytes, bytearrays, dates and times (zones of zoneinfo and
    `datetime.timezone`), timedeltas, Decimals, UUIDs, tuples, sets, dicts with any keys, NaN,
    infinities, any text, Scrapy's Links, and instances of importable classes: enums, dataclasses,
    attrs classes, `scrapy.Item`s and namedtuples. Text of a subclass of str becomes a plain str.
    A part that occurs twice becomes two parts. An UnstorableError names the first part that is
    anything else.
    """
    try:
        return _dump(value, MAX_DEPTH)
    except _Refusal as refusal:
        path = "".join(reversed(refusal.path))
        if len(path) > 200:  # noqa: PLR2004 - enough to find the part by
            path = path[:200] + "…"
        raise UnstorableError(f"{what}{path} {refusal}") from None


def load(value: Any) -> Any:
    """Return the value that `dump` got.

    It is an InvalidDataError if a tag is unknown or damaged, or its class is gone or has changed.
    """
    try:
        return _load(value)
    except RecursionError:
        raise InvalidDataError("a stored value is nested too deeply to be read") from None


def is_text(value: str) -> bool:
    """Tell whether PostgreSQL can store `value` as it is: no NUL and no lone surrogate."""
    if "\0" in value:
        return False
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            return False
    return True


# Values into JSON


def _dump(value: Any, depth: int) -> Any:
    kind = type(value)
    return (_DUMPERS.get(kind) or _dumper_of(kind))(value, depth)


def _deeper(depth: int) -> int:
    if depth <= 0:
        raise _Refusal(
            f"contains itself or is nested more than {MAX_DEPTH} levels deep; flatten it"
        )
    return depth - 1


def _str(value: str, _depth: int) -> Any:
    if is_text(value):
        return value
    return {_TAG: "str", "v": _base64(value.encode("utf-8", "surrogatepass"))}


def _list(value: Iterable[Any], depth: int) -> list[Any]:
    depth = _deeper(depth)
    copy: list[Any] = []
    try:
        for part in value:
            copy.append(_dump(part, depth))  # noqa: PERF401 - its length is the path
    except _Refusal as refusal:
        refusal.path.append(f"[{len(copy)}]")
        raise
    return copy


def _dict(value: dict[Any, Any], depth: int) -> Any:
    inner = _deeper(depth)
    copy: dict[str, Any] = {}
    key: Any = None
    try:
        for key, part in value.items():
            if type(key) is not str or key == _TAG or not is_text(key):
                break
            kind = type(part)
            if kind is str and part.isascii() and "\0" not in part:  # the usual ones, at once
                copy[key] = part
            else:
                copy[key] = (_DUMPERS.get(kind) or _dumper_of(kind))(part, inner)
        else:
            return copy
    except _Refusal as refusal:
        refusal.path.append(f"[{key!r:.80}]")
        raise
    return {_TAG: "dict", "v": _pairs(value, inner)}


def _pairs(value: dict[Any, Any], depth: int) -> list[Any]:
    pairs = []
    for key, part in value.items():
        try:
            name = _dump(key, depth)
        except _Refusal as refusal:
            raise _Refusal(f"has a key that cannot be stored: it {refusal}") from None
        try:
            pairs.append([name, _dump(part, depth)])
        except _Refusal as refusal:
            refusal.path.append(f"[{key!r:.80}]")
            raise
    return pairs


def _set(tag: str, value: Iterable[Any], depth: int) -> Any:
    return {_TAG: tag, "v": sorted(_list(value, depth), key=json.dumps)}


def _base64(value: bytes | bytearray) -> str:
    return base64.b64encode(value).decode("ascii")


def _moment(tag: str, value: datetime | time, _depth: int) -> Any:
    zone = value.tzinfo
    stored: dict[str, Any] = {_TAG: tag}
    if zone is None:
        stored["v"] = value.isoformat()
    elif type(zone) is timezone:
        offset, name = zone.utcoffset(None), zone.tzname(None)
        named = name != timezone(offset).tzname(None)
        if named or offset.microseconds:  # isoformat leaves out the one, fromisoformat the other
            stored["v"] = value.replace(tzinfo=None).isoformat()
            parts = [offset.days, offset.seconds, offset.microseconds]
            stored["zone"] = [*parts, _str(name, 0)] if named else parts
        else:
            stored["v"] = value.isoformat()
    elif type(zone) is ZoneInfo and zone.key:
        stored["v"] = value.replace(tzinfo=None).isoformat()
        stored["zone"] = zone.key
    else:
        _refuse(value, "zoneinfo.ZoneInfo or datetime.timezone", f"has a time zone {type(zone)!r}")
    if value.fold:
        stored["fold"] = 1
    return stored


def _refuse(value: Any, instead: str, why: str = "") -> NoReturn:
    kind = type(value)
    why = why or f"is of type {kind.__module__}.{kind.__qualname__}"
    raise _Refusal(f"{why}, which cannot be stored; use {instead}")


def _dumper_of(kind: Any) -> Callable[[Any, int], Any]:
    """Return what dumps the instances of a class that was not met before, and remember it."""
    if issubclass(kind, str) and not issubclass(kind, Enum):
        # Text from lxml holds on to the whole page.
        _DUMPERS[kind] = _str_of_lxml if kind.__module__ == "lxml.etree" else _plain_str
        return _DUMPERS[kind]
    full_name = f"{kind.__module__}.{kind.__qualname__}"
    tag = classes.sort_of(kind)
    if tag is None or (tag not in {"enum", "namedtuple"} and not classes.is_plain(kind)):
        raise _Refusal(
            f"is of type {full_name}, which cannot be stored; use plain dicts, lists, text and "
            "numbers, or a dataclass"
        )
    path = classes.path_of(kind)
    if path is None:
        raise _Refusal(
            f"is of type {full_name}, which cannot be imported by that name; "
            "move the class to the top of its module"
        )
    if tag == "enum":
        _DUMPERS[kind] = functools.partial(_enum, path)
    else:
        names = ("_values",) if tag == "item" else tuple(classes.fields(kind))
        for name in names:
            if tag in {"attrs", "dataclass"} and classes.is_assigned_by_code(kind, name):
                raise _Refusal(f"is of type {full_name}, whose field {name!r} is no plain field")
        _DUMPERS[kind] = _InstanceDumper(tag, path, names, classes.other_slots(kind, names))
    return _DUMPERS[kind]


def _str_of_lxml(value: str, depth: int) -> Any:
    return _str(str(value), depth)


def _plain_str(value: str, depth: int) -> Any:
    """Dump the text of a subclass of str; one that has more than its text is refused."""
    if getattr(value, "__dict__", None) or classes.other_slots(type(value), ()):
        _refuse(value, "text with nothing beside it")
    return _str(str.__str__(value), depth)


def _link(value: Link, depth: int) -> Any:
    parts = [value.url, value.text, value.fragment, value.nofollow]
    return {_TAG: "link", "v": _list(parts, _deeper(depth))}


def _enum(path: str, value: Enum, depth: int) -> Any:
    try:
        found: Any = classes.member(type(value), value.value)
    except InvalidDataError:
        found = None
    if found is not value:
        _refuse(value, "a member that its class finds by its value")
    return {_TAG: "enum", "c": path, "v": _dump(value.value, _deeper(depth))}


@dataclass(frozen=True, slots=True)
class _InstanceDumper:
    """What dumps instances of a class by their fields, and refuses those with other state."""

    tag: str
    path: str
    names: tuple[str, ...]
    slots: frozenset[str]

    def __call__(self, value: Any, depth: int) -> Any:
        depth = _deeper(depth)
        is_item = self.tag == "item"
        stored = {}
        for name in value if is_item else self.names:
            try:
                part = value[name] if is_item else getattr(value, name)
            except AttributeError:
                _refuse(value, "a value for each field", f"has no value for its field {name!r}")
            try:
                stored[name] = _dump(part, depth)
            except _Refusal as refusal:
                refusal.path.append(f"[{name!r}]" if is_item else f".{name}")
                raise
        others = set(getattr(value, "__dict__", ())).difference(self.names)
        others.update(slot for slot in self.slots if hasattr(value, slot))
        for name in others:
            attribute = getattr(type(value), name, None)
            if not isinstance(attribute, functools.cached_property):
                _refuse(value, "a field for it", f"has the attribute {name!r} beside its fields")
        return {_TAG: self.tag, "c": self.path, "v": stored}


# Classes are added as they are met.
_DUMPERS: dict[type, Callable[[Any, int], Any]] = {
    str: _str,
    int: lambda value, _: value if -_BIG < value < _BIG else {_TAG: "int", "v": hex(value)},
    float: lambda value, _: value if math.isfinite(value) else {_TAG: "float", "v": repr(value)},
    bool: lambda value, _: value,
    type(None): lambda value, _: value,
    list: _list,
    dict: _dict,
    tuple: lambda value, depth: {_TAG: "tuple", "v": _list(value, depth)},
    set: functools.partial(_set, "set"),
    frozenset: functools.partial(_set, "frozenset"),
    bytes: lambda value, _: {_TAG: "bytes", "v": _base64(value)},
    bytearray: lambda value, _: {_TAG: "bytearray", "v": _base64(value)},
    datetime: functools.partial(_moment, "datetime"),
    time: functools.partial(_moment, "time"),
    date: lambda value, _: {_TAG: "date", "v": value.isoformat()},
    timedelta: lambda value, _: {
        _TAG: "timedelta",
        "v": [value.days, value.seconds, value.microseconds],
    },
    Decimal: lambda value, _: {_TAG: "decimal", "v": str(value)},
    UUID: lambda value, _: {_TAG: "uuid", "v": str(value)},
    Link: _link,
}


# JSON into values


def _load(value: Any) -> Any:
    kind = type(value)
    if kind is dict:
        if _TAG in value:
            return _load_tagged(value)
        return {key: part if type(part) in _SCALARS else _load(part) for key, part in value.items()}
    if kind is list:
        return [part if type(part) in _SCALARS else _load(part) for part in value]
    if kind in _SCALARS:
        return value
    raise InvalidDataError(f"a stored value is of type {kind.__name__}, which is not JSON")


def _load_tagged(stored: dict[str, Any]) -> Any:
    tag = stored[_TAG]
    loader = _LOADERS.get(tag) if isinstance(tag, str) else None
    if loader is None:
        raise InvalidDataError(
            f"a stored value has the unknown tag {tag!r:.80}; "
            "was it written by a later version of scrapy-itemgraph?"
        )
    try:
        return loader(stored)
    except (InvalidDataError, RecursionError):
        raise
    except BaseException as error:  # a factory or a hash may raise anything, SystemExit too
        raise InvalidDataError(
            f"a stored {tag} is damaged ({type(error).__name__}: {error}): {stored!r:.200}"
        ) from error


def _bytes(stored: dict[str, Any]) -> bytes:
    return base64.b64decode(_text(stored), validate=True)


def _load_link(stored: dict[str, Any]) -> Link:
    url, text, fragment, nofollow = _parts(stored)
    if not all(isinstance(one, str) for one in (url, text, fragment)):
        raise TypeError("a link is made of text")
    return Link(url, text, fragment, bool(nofollow))


def _text(stored: dict[str, Any]) -> str:
    text = stored["v"]
    if not isinstance(text, str):
        raise TypeError(f"expected text, not {type(text).__name__}")
    return text


def _parts(stored: dict[str, Any]) -> list[Any]:
    parts = stored["v"]
    if not isinstance(parts, list):
        raise TypeError(f"expected a list, not {type(parts).__name__}")
    return [_load(part) for part in parts]


def _load_moment(kind: type[datetime | time], stored: dict[str, Any]) -> datetime | time:
    moment = kind.fromisoformat(_text(stored))
    zone = moment.tzinfo
    if "zone" in stored:
        place = stored["zone"]
        if isinstance(place, str):
            zone = ZoneInfo(place)
        else:
            zone = timezone(timedelta(*place[:3]), *[_load(name) for name in place[3:]])
    return moment.replace(tzinfo=zone, fold=stored.get("fold", 0))


def _load_class(stored: dict[str, Any]) -> Any:
    """Return the class of a tagged instance, if it still is of the sort that the tag says."""
    kind = classes.find(stored["c"])
    if classes.sort_of(kind) != stored[_TAG]:
        raise InvalidDataError(
            f"{stored['c']!r} is no {stored[_TAG]} class any more; change it back, "
            "or give the new class another name"
        )
    return kind


def _load_instance(stored: dict[str, Any]) -> Any:
    kind, tag = _load_class(stored), stored["$"]
    fields = classes.fields(kind)
    values = {name: _load(part) for name, part in stored["v"].items()}
    for name in values.keys() - fields.keys():
        raise InvalidDataError(f"{stored['c']!r} has no field {name!r} any more; put it back")
    if tag == "item":
        item = object_ref.__new__(kind)
        object.__setattr__(item, "_values", values)
        return item
    for name, default in fields.items():
        if name not in values:
            if default is None:
                raise InvalidDataError(
                    f"a stored {stored['c']!r} has no value for its new field {name!r}; "
                    "give it a default that takes no other field"
                )
            values[name] = default()
    if tag == "namedtuple":
        return tuple.__new__(kind, [values[name] for name in fields])
    instance = object.__new__(kind)
    for name in fields:
        if classes.is_assigned_by_code(kind, name):
            raise InvalidDataError(
                f"the field {name!r} of {stored['c']!r} is a property or its like, and no code "
                "runs for what is stored; make it a plain field"
            )
        object.__setattr__(instance, name, values[name])
    return instance


_LOADERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "str": lambda stored: _bytes(stored).decode("utf-8", "surrogatepass"),
    "int": lambda stored: int(_text(stored), 16),
    "float": lambda stored: float(_text(stored)),
    "bytes": _bytes,
    "bytearray": lambda stored: bytearray(_bytes(stored)),
    "datetime": functools.partial(_load_moment, datetime),
    "time": functools.partial(_load_moment, time),
    "date": lambda stored: date.fromisoformat(_text(stored)),
    "timedelta": lambda stored: timedelta(*_parts(stored)),
    "decimal": lambda stored: Decimal(_text(stored)),
    "uuid": lambda stored: UUID(_text(stored)),
    "link": _load_link,
    "tuple": lambda stored: tuple(_parts(stored)),
    "set": lambda stored: set(_parts(stored)),
    "frozenset": lambda stored: frozenset(_parts(stored)),
    "dict": lambda stored: dict(_parts(stored)),
    "enum": lambda stored: classes.member(_load_class(stored), _load(stored["v"])),
    "dataclass": _load_instance,
    "attrs": _load_instance,
    "item": _load_instance,
    "namedtuple": _load_instance,
}
