"""Simulations: what one execution would do to the graph, which stays as it is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from scrapy_itemgraph.model.operations import Changeset, CreateItem, Operation
    from scrapy_itemgraph.model.work import Applied


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationPlan:
    """The task, or plain callback, and the item of a simulation.

    `made` makes up an item that does not exist, for the simulation alone. `given` is committed
    before, to a crawl that must be new and is deleted afterwards: callbacks can ask for it.
    `request` is a stored request in the place of the item's own. With `is_saved` the page of the
    claim's request is there already, and nothing is downloaded for it.
    """

    task: str
    item: str
    made: CreateItem | None = None
    given: Sequence[Operation] = ()
    request: Mapping[str, Any] | None = None
    is_saved: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPage:
    """An item that the graph has, which a page's name led to."""

    item: str
    tags: Mapping[str, Any]
    data: Mapping[str, Any]


class WantedPage(Protocol):
    """A page of a plain callback that is to be simulated, as somebody named it."""

    @property
    def names(self) -> Sequence[str]:
        """By which names the graph may have it, the first that it has being meant."""

    @property
    def shown(self) -> str:
        """What tables show of it: its URL, with its method before it unless that is GET."""

    def plan(self, found: StoredPage | None) -> SimulationPlan:
        """Return the simulation of what was found, or of a page that nobody has seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultPicture:
    """A task's result of an item, at one moment."""

    state: str
    version: str
    metadata: dict[str, Any]
    completed_at: datetime | None
    expires_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkPicture:
    """A task's outstanding work of an item, at one moment."""

    is_stale: bool
    nice: int
    not_before: datetime | None
    slot: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobPicture:
    """A blob of an item, at one moment: bytes, type, and the hash in hexadecimal."""

    size: int
    mime: str | None
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemPicture:
    """An item with its blobs, and its results and its work by task, at one moment."""

    id: str
    aliases: tuple[str, ...]
    tags: Mapping[str, Any]
    data: Mapping[str, Any]
    created_by: str | None
    blobs: Mapping[str, BlobPicture] = field(default_factory=dict)
    results: Mapping[str, ResultPicture] = field(default_factory=dict)
    work: Mapping[str, WorkPicture] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What became of an item: "new", "changed", "renamed", "merged" (`into` what), "deleted"."""

    kind: str
    before: ItemPicture | None = None
    after: ItemPicture | None = None
    into: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """What a changeset came to, and what it changed of which items.

    `is_made_up`: the graph does not have the item under work.
    """

    changeset: Changeset
    applied: Applied
    changes: tuple[Change, ...] = ()
    now: datetime | None = None  # the server's, as of the end
    is_made_up: bool = False
