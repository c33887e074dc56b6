"""Classes whose instances are stored: found by import path, and taken apart into fields."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import sys
from enum import Enum
from typing import TYPE_CHECKING, Any

import attrs
from scrapy import Item

from scrapy_itemgraph.exceptions import InvalidDataError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def path_of(kind: type) -> str | None:
    """Return the path that `find` finds a class by, or None when there is none."""
    path = f"{kind.__module__}:{kind.__qualname__}"
    try:
        return path if _resolve(path) is kind else None
    except InvalidDataError:
        return None


def find(path: Any) -> type:
    """Return the class of an import path such as "shop.items:Product".

    A module is imported only if its top-level package is in use already.
    """
    found = _resolve(path)
    if not isinstance(found, type):
        raise InvalidDataError(f"{path!r} is no class")
    return found


def _resolve(path: Any) -> Any:
    module_name, colon, name = path.partition(":") if isinstance(path, str) else ("", "", "")
    parts = module_name.split(".")
    if not colon or not all(part.isidentifier() for part in parts):
        raise InvalidDataError(f'{path!r:.200} is no import path such as "shop.items:Product"')
    module = sys.modules.get(module_name)
    if module is None:
        if parts[0] not in sys.modules:
            raise InvalidDataError(
                f"the class {path!r} is in a package that nothing here imports; "
                "import it in the spider's module, or put the class back"
            )
        try:
            module = importlib.import_module(module_name)
        except Exception as error:
            raise InvalidDataError(
                f"the class {path!r} cannot be imported: {error}; put it back where it was"
            ) from error
    found: Any = module
    for part in name.split("."):
        if part not in getattr(found, "__dict__", ()):
            raise InvalidDataError(
                f"there is no class {path!r} any more; put it back, or leave its old name there"
            )
        found = vars(found)[part]
    return found


def sort_of(kind: type) -> str | None:
    """Return the tag of the instances of a class, or None when they have none."""
    if issubclass(kind, Enum):
        return "enum"
    if issubclass(kind, Item):
        return "item"
    if attrs.has(kind):
        return "attrs"
    if dataclasses.is_dataclass(kind):
        return "dataclass"
    if issubclass(kind, tuple) and isinstance(getattr(kind, "_fields", None), tuple):
        return "namedtuple"
    return None


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
def fields(kind: Any) -> Mapping[str, Callable[[Any], Any] | None]:
    """Return the fields of a class, each with what makes its default, or None."""
    if issubclass(kind, Item):
        return dict.fromkeys(kind.fields)
    if issubclass(kind, tuple):
        return {name: _default_in(kind._field_defaults, name) for name in kind._fields}
    if attrs.has(kind):
        return {field.name: _attrs_default(field.default) for field in attrs.fields(kind)}
    return {field.name: _dataclass_default(field) for field in dataclasses.fields(kind)}


def _default_in(defaults: Mapping[str, Any], name: str) -> Callable[[Any], Any] | None:
    return (lambda _: defaults[name]) if name in defaults else None


def _attrs_default(default: Any) -> Callable[[Any], Any] | None:
    if default is attrs.NOTHING:
        return None
    if isinstance(default, attrs.Factory):  # type: ignore[arg-type]
        if default.takes_self:
            return default.factory  # type: ignore[no-any-return]
        return lambda _: default.factory()
    return lambda _: default


def _dataclass_default(field: dataclasses.Field[Any]) -> Callable[[Any], Any] | None:
    factory = field.default_factory
    if factory is not dataclasses.MISSING:
        return lambda _: factory()
    if field.default is not dataclasses.MISSING:
        return lambda _: field.default
    return None
