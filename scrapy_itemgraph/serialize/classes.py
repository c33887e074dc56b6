"""Classes whose instances are stored: found by import path, and taken apart into fields.

What is read here was written by whoever can write to the database, so nothing of it may choose
what runs: a class is looked up among those that are loaded, and never imported, asked or called.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import sys
from contextlib import suppress
from enum import Enum, Flag, IntFlag
from types import MemberDescriptorType, ModuleType
from typing import TYPE_CHECKING, Any

import attrs
from scrapy import Item

from scrapy_itemgraph.exceptions import ConfigurationError, InvalidDataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

# Modules of ours whose classes stored values may name as they were called before there were rooms.
_MOVED = {
    f"scrapy_itemgraph.{name}": f"scrapy_itemgraph.model.{name}"
    for name in ("operations", "rates", "tasks", "types")
}


def path_of(kind: type) -> str | None:
    """Return the path that `find` finds a class by, or None when there is none."""
    path = f"{kind.__module__}:{kind.__qualname__}"
    try:
        return path if _resolve(path) is kind else None
    except InvalidDataError:
        return None


def find(path: Any) -> type:
    """Return the class of an import path such as "shop.items:Product".

    Nothing is imported: it is an InvalidDataError if its module is not loaded, or lacks the class.
    """
    found = _resolve(path)
    if not isinstance(found, type):
        raise InvalidDataError(f"{path!r} is no class")
    return found


def find_dotted(path: str) -> type:
    """Return the class of a dotted path such as "shop.items.Product", as `find` does."""
    parts = path.split(".")
    for count in range(len(parts) - 1, 0, -1):
        module = ".".join(parts[:count])
        if _MOVED.get(module, module) in sys.modules:
            return find(f"{module}:{'.'.join(parts[count:])}")
    return find(f"{'.'.join(parts[:-1])}:{parts[-1]}")


def load_modules(names: Iterable[str]) -> None:
    """Import the modules of `ITEMGRAPH_ALLOWED_MODULES`, or raise a ConfigurationError."""
    for name in names:
        try:
            importlib.import_module(name)
        except Exception as error:
            raise ConfigurationError(
                f"ITEMGRAPH_ALLOWED_MODULES: {name!r} cannot be imported: "
                f"{type(error).__name__}: {error}"
            ) from error


def _resolve(path: Any) -> Any:
    """Follow an import path through what modules and classes hold themselves.

    Attributes are looked up in the dicts alone: a module's `__getattr__`, a lazy module and a
    property would run code.
    """
    module_name, colon, name = path.partition(":") if isinstance(path, str) else ("", "", "")
    if not colon or not all(part.isidentifier() for part in module_name.split(".")):
        raise InvalidDataError(f'{path!r:.200} is no import path such as "shop.items:Product"')
    found: Any = sys.modules.get(_MOVED.get(module_name, module_name))
    if found is None:
        raise InvalidDataError(
            f"the class {path!r:.200} is in a module that nothing here imports, and what is stored "
            "imports none; import it in the spider's module, name the module in "
            "ITEMGRAPH_ALLOWED_MODULES, or put the class back"
        )
    for part in name.split("."):
        held = _held_by(found)
        if part not in held:
            raise InvalidDataError(
                f"there is no class {path!r:.200} any more; put it back, or leave its old name "
                "there"
            )
        found = held[part]
    return found


def _held_by(holder: Any) -> Mapping[str, Any]:
    """Return the attributes of a module or a class itself, without asking either."""
    if issubclass(type(holder), ModuleType):
        held: Mapping[str, Any] = object.__getattribute__(holder, "__dict__")
        return held
    if issubclass(type(holder), type):
        return type.__dict__["__dict__"].__get__(holder)  # type: ignore[no-any-return]
    return {}


@functools.lru_cache(maxsize=1000)
def sort_of(kind: type) -> str | None:
    """Return the tag of the instances of a class, or None when they have none.

    Classes with a finaliser have none: it would run on whatever the fields are.
    """
    is_named = isinstance(inspect.getattr_static(kind, "_fields", None), tuple)
    sorts = {
        "enum": Enum in kind.__mro__,
        "item": Item in kind.__mro__,
        "attrs": _has(kind, "__attrs_attrs__"),
        "dataclass": _has(kind, "__dataclass_fields__"),
        "namedtuple": tuple in kind.__mro__ and is_named,
    }
    return (
        None
        if _has(kind, "__del__")
        else next((sort for sort, is_it in sorts.items() if is_it), None)
    )


def _has(kind: type, name: str) -> bool:
    return any(name in vars(base) for base in kind.__mro__)


def member(kind: Any, value: Any) -> Enum:
    """Return the member of an enum that has a value, or raise an InvalidDataError.

    Its own `_missing_` is not asked.
    """
    try:
        found = kind._value2member_map_.get(value)
    except TypeError:  # not hashable
        found = next((one for one in kind if one.value == value), None)
    if found is None and Flag in kind.__mro__ and type(value) is int:
        own = next(vars(base)["_missing_"] for base in kind.__mro__ if "_missing_" in vars(base))
        if own in (vars(Flag)["_missing_"], vars(IntFlag).get("_missing_")):
            with suppress(ValueError):
                found = kind(value)  # several flags at once
    if type(found) is not kind:
        raise InvalidDataError(
            f"'{kind.__module__}:{kind.__qualname__}' has no member of the value {value!r:.80} "
            "any more; put it back"
        )
    return found  # type: ignore[no-any-return]


def is_assigned_by_code(kind: type, name: str) -> bool:
    """Tell whether setting a field of an instance would run a property or its like."""
    held = next((vars(base)[name] for base in kind.__mro__ if name in vars(base)), None)
    return hasattr(type(held), "__set__") and type(held) is not MemberDescriptorType


def is_plain(kind: type) -> bool:
    """Tell whether instances are made of attributes alone, and not a dict or list as well."""
    try:
        object.__new__(kind)
    except TypeError:
        return False
    return True


def other_slots(kind: type, names: tuple[str, ...]) -> frozenset[str]:
    """Return the slots of a class that are not its fields."""
    slots: set[str] = set()
    for base in kind.__mro__:
        own = vars(base).get("__slots__", ())
        slots.update((own,) if isinstance(own, str) else own)
    return frozenset(slots - {*names, "__weakref__", "__dict__"})


@functools.lru_cache(maxsize=1000)
def fields(kind: Any) -> Mapping[str, Callable[[], Any] | None]:
    """Return the fields of a class, each with what makes its default, or None.

    A default that is made of other fields is none: its code would run on what is stored.
    """
    sort = sort_of(kind)
    if sort == "item":
        return dict.fromkeys(kind.fields)
    if sort == "namedtuple":
        defaults = kind._field_defaults
        return {name: _constant(defaults.get(name, kind), kind) for name in kind._fields}
    if sort == "attrs":
        return {field.name: _attrs_default(field.default) for field in attrs.fields(kind)}
    return {field.name: _dataclass_default(field) for field in dataclasses.fields(kind)}


def _constant(default: Any, missing: Any) -> Callable[[], Any] | None:
    return None if default is missing else lambda: default


def _attrs_default(default: Any) -> Callable[[], Any] | None:
    if isinstance(default, attrs.Factory):  # type: ignore[arg-type]
        return None if default.takes_self else default.factory
    return _constant(default, attrs.NOTHING)


def _dataclass_default(field: dataclasses.Field[Any]) -> Callable[[], Any] | None:
    factory = field.default_factory
    if factory is not dataclasses.MISSING:
        return factory
    return _constant(field.default, dataclasses.MISSING)
