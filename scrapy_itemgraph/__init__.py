"""A persistent item-graph frontier for Scrapy, on PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy_itemgraph.exceptions import SessionExpired
from scrapy_itemgraph.model import tasks as _tasks
from scrapy_itemgraph.model.operations import (
    AddTag,
    AllowFailure,
    AttachBlob,
    CreateAlias,
    CreateItem,
    DeleteAlias,
    DeleteItem,
    DetachBlob,
    Expire,
    MergeItem,
    RemoveTag,
    RenameItem,
    SetTTL,
    StoreResult,
    UpdateData,
    UpdateMetadata,
)
from scrapy_itemgraph.model.rates import RateLimit
from scrapy_itemgraph.model.tasks import task
from scrapy_itemgraph.model.try_again import TryAgain
from scrapy_itemgraph.worker.executions.context import ItemContext

if TYPE_CHECKING:
    from scrapy_itemgraph.addon import Addon
    from scrapy_itemgraph.graph import ItemGraph
    from scrapy_itemgraph.serialize.json_values import load as load_value

__all__ = [
    "AddTag",
    "Addon",
    "AllowFailure",
    "AttachBlob",
    "CreateAlias",
    "CreateItem",
    "DeleteAlias",
    "DeleteItem",
    "DetachBlob",
    "Expire",
    "ItemContext",
    "ItemGraph",
    "MergeItem",
    "RateLimit",
    "RemoveTag",
    "RenameItem",
    "SessionExpired",
    "SetTTL",
    "StoreResult",
    "TryAgain",
    "UpdateData",
    "UpdateMetadata",
    "load_value",
    "task",
]


def _watch() -> None:
    """Have a spider with tasks say so where the add-on is missing."""
    from scrapy_itemgraph.worker.spider import missing_addon  # noqa: PLC0415 - it needs Scrapy, as the spider does

    missing_addon.watch()


_tasks.on_declared = _watch


def __getattr__(name: str) -> Any:
    """Import what needs Scrapy or SQLAlchemy only when it is asked for."""
    if name == "Addon":
        from scrapy_itemgraph.addon import Addon  # noqa: PLC0415

        return Addon
    if name == "ItemGraph":
        from scrapy_itemgraph.graph import ItemGraph  # noqa: PLC0415

        return ItemGraph
    if name in {"load_value", "tagged"}:  # the second is what the module was called
        from scrapy_itemgraph.serialize import json_values  # noqa: PLC0415

        return json_values.load if name == "load_value" else json_values
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
