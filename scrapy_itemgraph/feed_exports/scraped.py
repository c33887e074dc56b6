"""Scraped items, as the journal kept them: found again as what they were."""

from __future__ import annotations

import dataclasses
from functools import lru_cache
from typing import Any

import attrs
from itemadapter import ItemAdapter
from scrapy import Field, Item

from scrapy_itemgraph.exceptions import InvalidDataError
from scrapy_itemgraph.serialize import classes, json_values


def item_of(item_class: str, stored: Any) -> Any:
    """Return a kept item as what it was scraped as, or else its fields with what is declared.

    Only classes of modules that are loaded are found, and their `__init__` is not called.
    """
    fields = json_values.load(stored)
    cls = class_of(item_class)
    if cls is None or cls is dict:
        return fields
    try:
        made = _made(cls, fields)
    except Exception:  # noqa: BLE001 - whatever a class raises that is not as it was
        made = None
    return declared(cls, fields) if made is None else made


def declared(cls: type | None, fields: dict[str, Any]) -> Any:
    """Return fields with what their class declares of them, if it declares all of them."""
    declaring = None if cls is None else _declaring(cls)
    if declaring is None or not fields.keys() <= declaring.fields.keys():
        return fields
    return declaring(fields)


def class_of(item_class: str) -> type | None:
    """Return the class of an import path, None if no module that is loaded has it."""
    if item_class == "dict":
        return dict
    try:
        return classes.find_dotted(item_class)
    except InvalidDataError:
        return None


def _made(cls: Any, fields: dict[str, Any]) -> Any:
    """Return an instance that has the fields, of a kind that is known; None for another one."""
    if issubclass(cls, Item):
        made = cls()
        for name, value in fields.items():
            made[name] = value
        return made
    if dataclasses.is_dataclass(cls) or attrs.has(cls):
        kind: Any = cls
        made = object.__new__(kind)
        for name, value in fields.items():
            object.__setattr__(made, name, value)
        return made
    construct = getattr(cls, "model_construct", None)  # pydantic's
    return None if construct is None else construct(**fields)


@lru_cache
def _declaring(cls: type) -> Any:
    """Return a class with the fields of an item class, for their order and their serializers.

    The class itself need not take what was kept. None for a class without declared fields.
    """
    names = ItemAdapter.get_field_names_from_class(cls)
    if names is None:
        return None
    declaring: Any = type(cls.__name__, (Item,), {"__module__": __name__})
    declaring.fields = {
        name: Field(ItemAdapter.get_field_meta_from_class(cls, name)) for name in names
    }
    return declaring
