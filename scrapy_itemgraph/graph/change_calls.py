"""Calls that change items: operations, and the changes that people ask for by a name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from scrapy_itemgraph.changesets import additions, apply
from scrapy_itemgraph.exceptions import OperationError
from scrapy_itemgraph.graph.item_documents import ItemCalls
from scrapy_itemgraph.graph.parts.blobs import BlobCalls
from scrapy_itemgraph.graph.prepared import prepare
from scrapy_itemgraph.model import operations
from scrapy_itemgraph.model.work import NEW, Outcome
from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.store.registry import crawls

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import Connection

    from scrapy_itemgraph.graph.prepared import Prepared
    from scrapy_itemgraph.model.snapshots import ResultSnapshot
    from scrapy_itemgraph.model.work import Note


class ChangeCalls(BlobCalls, ItemCalls):
    """Applies operations; a crawl that does not exist yet is made."""

    def apply(
        self, given: Iterable[operations.Operation] | Prepared, *, names: Sequence[str] = ()
    ) -> list[Note]:
        """Apply operations in one transaction; a crawl that does not exist yet is made.

        `names` are what errors call the operations, such as "line 7".

        Raises:
            OperationError: naming the operation; then nothing is changed.

        """
        prepared = prepare(given, names)

        def run(connection: Connection) -> list[Note]:
            crawl_id = crawls.make_crawl(connection, self.crawl)
            engines.hot_path(connection)
            crawl = crawls.share_crawl(connection, crawl_id)
            if (new := prepared.additions) is not None:
                return additions.add(
                    connection,
                    new,
                    crawl_id=crawl_id,
                    now=crawl.now,
                    is_from_outside=self._is_from_outside,
                )
            changeset = operations.Changeset(operations=prepared.operations, outcome=Outcome.OK)
            (applied,) = apply.apply(
                connection,
                [changeset],
                crawl=crawl,
                worker_id=None,
                is_from_outside=self._is_from_outside,
            )
            if applied.error is not None:
                name = prepared.names[applied.failed_at or 0]
                raise OperationError(f"{name}: {applied.error.message}")
            return list(applied.notes)

        if prepared.additions is None and operations.attachments(prepared.operations):
            return self._with_contents(prepared, run)
        return self._call(run)

    def add(self, created: operations.CreateItem) -> dict[str, Any]:
        """Add an item, unless its id is taken; return `id`, `created`, `aliases` and `tasks`.

        `id` is that of the item that there is now, and `tasks` those that its tags call for.
        """
        notes = self.apply([created], names=["add"])
        item = self.get(str(created.id))
        tasks = [] if item is None else [one.task for one in self.results(str(created.id))]
        return {
            "id": created.id if item is None else item.id,
            "created": any(note.label == NEW for note in notes),
            "aliases": [] if item is None else list(item.aliases),
            "tasks": tasks,
        }

    def merge(
        self, name: str, *, data: Mapping[str, Any] | None = None, tags: operations.Tags = ()
    ) -> bool:
        """Merge data and tags into an item, which is made if there is none; return whether it was.

        Data is merged key by key. Tags are added; one that is there gets the value that is given.
        """
        valued = dict(tags) if isinstance(tags, Mapping) else dict.fromkeys(tags)
        changes = [
            operations.CreateItem(name),
            operations.UpdateData(dict(data or {}), id=name),
            *(operations.AddTag(tag, value, id=name) for tag, value in valued.items()),
        ]
        named = ["item", "data", *(f"tag {tag}" for tag in valued)]
        return self.apply(changes, names=named)[0].label == NEW

    def delete(self, name: str, *, keep_name: bool = False) -> Note:
        """Delete an item, its results and its work; return what was. Its names may stay taken.

        Raises:
            NotFoundError: there is no such item.

        """
        self.results(name)  # raises for an unknown name, saying why
        deleted = operations.DeleteItem(name, forget=not keep_name)
        return self.apply([deleted], names=["delete"])[0]

    def expire(self, name: str, task: str | None = None) -> list[ResultSnapshot]:
        """Make an item's results stale, so that its tasks run again; return what they are now.

        A task that a failure holds back may run again, too.

        Raises:
            NotFoundError: there is no such item.

        """
        return self._change(operations.Expire(id=name, task=task), name, task)

    def set_ttl(self, name: str, ttl: Any, task: str | None = None) -> list[ResultSnapshot]:
        """Change when an item's results expire, as `SetTTL` says; return what they are now.

        Raises:
            NotFoundError: there is no such item.

        """
        return self._change(operations.SetTTL(ttl, id=name, task=task), name, task)

    def _change(
        self, operation: operations.Operation, name: str, task: str | None
    ) -> list[ResultSnapshot]:
        self.results(name)  # raises for an unknown name, saying why
        self.apply([operation], names=[name])
        return [one for one in self.results(name) if task is None or one.task == task]
