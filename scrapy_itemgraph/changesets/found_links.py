"""What a batch found of pages where depths are tracked: which pages link to which."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from scrapy_itemgraph.changesets.state import TOMBSTONE
from scrapy_itemgraph.model import item_names
from scrapy_itemgraph.model.operations import CreateItem, UpdateData
from scrapy_itemgraph.postgres.event_loop import gradually
from scrapy_itemgraph.store.depths import links

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from sqlalchemy import Connection

    from scrapy_itemgraph.changesets.state import State
    from scrapy_itemgraph.model.operations import Operation


class Finding(NamedTuple):
    """What one changeset found: `page` is the item that it worked on, None where it had none.

    `operations` are those that were carried out. `links` are the keys of other names that the page
    links to, as hex, `roots` of those that begin a path all the same.
    """

    page: int | None
    operations: Sequence[Operation]
    links: Collection[str] = ()
    roots: Collection[str] = ()


def record(connection: Connection, state: State, findings: Sequence[Finding]) -> Mapping[int, int]:
    """Write the links that a batch found, in the order of its changesets; return new depths."""
    found = links.Found()
    _note_ends(state, found)
    unresolved: list[tuple[int | None, bool, str]] = []
    for one in findings:
        page, is_kept = _page(state, one.page)
        for name in gradually(connection, list(_named(one.operations))):
            owner = state.owner(name)
            key = item_names.hex_key(name) if owner is None or one.roots else ""
            source = None if key in one.roots else page
            if owner is not None:
                _link(state, found, source, owner, is_kept=is_kept)
            elif name in state.taken:
                unresolved.append((source, is_kept, key))
        unresolved += [(None if key in one.roots else page, is_kept, key) for key in one.links]
    owners = links.owners(connection, state.crawl_id, {key for *_, key in unresolved})
    for source, is_kept, key in gradually(connection, unresolved):
        if (owner := owners.get(key)) is not None:
            _link(state, found, source, owner, is_kept=is_kept)
    return links.record(connection, state.crawl_id, found)


def _note_ends(state: State, found: links.Found) -> None:
    """Take note of what the batch made, merged and deleted."""
    found.new.update(state.new)
    for item in state.items.values():
        if not item.is_deleted:
            if item.is_new:
                found.new.add(item.id)
        elif not item.is_new:
            survivor = state.survivor(item.id)
            if survivor is None:
                found.gone.add(item.id)
            else:
                found.moved[item.id] = survivor.id


def _named(operations: Sequence[Operation]) -> Iterator[str]:
    """Yield the names of items that operations create, or would."""
    for operation in operations:
        is_left_out = isinstance(operation, UpdateData) and not operation.upsert
        if isinstance(operation, CreateItem | UpdateData) and not is_left_out:
            yield from () if operation.id is None else (operation.id,)


def _page(state: State, page: int | None) -> tuple[int | None, bool]:
    """Return where merges took the page that links, and whether it is still there."""
    if page is None:
        return None, True
    survivor = state.survivor(page)
    return (page, False) if survivor is None else (survivor.id, True)


def _link(
    state: State, found: links.Found, source: int | None, owner: int, *, is_kept: bool
) -> None:
    """Take note of a link to the item that has a name; without a source it begins a path."""
    if owner == TOMBSTONE:
        return
    if (item := state.items.get(owner)) is not None and item.is_deleted:
        survivor = state.survivor(owner)
        if survivor is None:
            return
        owner = survivor.id
    if source is None:
        found.roots.add(owner)
    else:
        found.link(source, owner, is_kept=is_kept)
