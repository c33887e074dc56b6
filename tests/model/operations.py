"""What each operation does to the graph, from the requirements and `docs/reference/operations`."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from model.item_graph import Blob, Item, ItemGraph, Pair, Refused, Result

from scrapy_itemgraph.model import operations as ops

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CHANGED = 0.4  # hours; no other period of the histories


@dataclass(frozen=True)
class Enqueue:
    """A Request that a spider without tasks yields: its name, its callback, where it leads.

    `again` says when one that is known is fetched again: "never"; "in each run", once, as one of
    `start()`; "whenever" it is yielded, as one with `dont_filter`; "if gone", or left by an earlier
    run, as links where pages are incremental; "if changed", where its result is older than the
    hint `CHANGED` hours ago that its page changed.
    """

    name: str
    callback: str
    url: str
    again: str = "never"
    nice: int = 0

    verb = "enqueue"

    @property
    def data(self) -> dict[str, Any]:
        """The data of its item."""
        return {"url": self.url, "request": {"callback": self.callback}}


@dataclass
class Run:
    """Operations that are carried out together: of an execution, or from outside (`own` is None).

    `own` is the item under work; after a rename or merge the one that survives, after a deletion
    None, and then the execution's result is dropped.
    """

    graph: ItemGraph
    own: int | None = None
    task: str | None = None
    answers: int | None = None  # the expiry that the claim answers
    own_name: str | None = None
    ttl: tuple[float | None, bool] | None = None  # of the result to come: hours, and whether own
    has_metadata: bool = False  # yielded for the result to come
    updated: set[int] = field(default_factory=set)
    deleted: set[str] = field(default_factory=set)  # names
    expired: int | None = None  # the tick at which this execution expired its own pair
    named: list[str] = field(default_factory=list)  # what it created, or would have

    def carry_out(self, given: Sequence[ops.Operation]) -> None:
        """Carry operations out in their order."""
        for operation in given:
            getattr(self, operation.verb)(operation)

    def item(self, name: str | None) -> int:
        """Return the item that an operation is for: by any name, or the one under work."""
        if name is not None:
            return self.graph.resolve(name)
        if self.own is None:
            raise Refused("OperationError")
        return self.own

    def tasks(self, number: int, task: str | None) -> list[str]:
        """Return the tasks that `Expire` and `SetTTL` mean: this one, or outside all there are.

        A claim counts as a result to come.
        """
        if task is not None or self.task is not None:
            return [self.known(task)]
        work = self.graph.work.items()
        claimed = {pair.task for pair, one in work if pair.item == number and one.token is not None}
        return sorted(claimed | self.graph.items[number].results.keys())

    def known(self, task: str | None) -> str:
        """Return the task of a name, which must be there."""
        task = self.task if task is None else task
        if task not in self.graph.tasks:
            raise Refused("OperationError")
        return task

    def result(self, number: int, task: str) -> Result:
        """Return a pair's result; one that never ran is made where there is none."""
        return self.graph.items[number].results.setdefault(task, Result(self.graph.tick))

    def is_own(self, number: int, task: str) -> bool:
        """Tell whether this execution will complete a pair."""
        return number == self.own and task == self.task

    def touch(self, name: str | None) -> int:
        """Return the item whose data or metadata is updated, and note that it is (SRAP-45)."""
        number = self.item(name)
        self.updated.add(number)
        return number

    # Items and names

    def create_item(self, one: ops.CreateItem) -> None:
        """Make an item unless its name is taken (SRAP-41), also by a deleted item."""
        graph = self.graph
        self.named.append(one.id)
        if one.id in graph.names:
            if one.fail_if_exists:
                raise Refused("NameTakenError")
            number = graph.names[one.id]
            if one.merge_tags and number is not None:
                tags = graph.items[number].tags
                tags |= {tag: value for tag, value in _tags(one.tags).items() if tag not in tags}
            return
        if one.fail_if_exists and not graph.names.keys().isdisjoint(one.aliases):
            raise Refused("NameTakenError")
        number = graph.numbers = graph.numbers + 1
        wait = one.not_before
        created_by = one.created_by
        if created_by is None and self.task is not None:
            created_by = self.own_name if self.own is None else graph.items[self.own].name
        graph.items[number] = Item(
            name=one.id,
            data=dict(one.data),
            tags=_tags(one.tags),
            created_by=created_by,
            nice=one.nice,
            not_before=graph.now + _hours(wait) if isinstance(wait, timedelta) else None,
            updated=graph.tick,
        )
        graph.names[one.id] = number
        for alias in one.aliases:
            graph.names.setdefault(alias, number)

    def enqueue(self, one: Enqueue) -> None:
        """Make a request an item, or have it fetched again (docs: requests without tasks).

        What waits or is stale is fetched anyway. If the item is known by this name as an alias, the
        request led here once: whatever callback it has runs again, and its own request stays.
        """
        graph = self.graph
        self.named.append(one.name)
        if one.name not in graph.names:
            tags = [f"callback:{one.callback}"]
            self.create_item(ops.CreateItem(one.name, tags, one.data, nice=one.nice))
            return
        number = graph.names[one.name]
        if number is None or one.again == "never":
            return
        item = graph.items[number]
        is_whenever = one.again == "whenever"
        is_its_own = item.name == one.name
        only_gone = one.again == "if gone"
        if_changed = one.again == "if changed"
        is_any = not (only_gone or if_changed)
        if is_its_own and is_any and f"callback:{one.callback}" not in item.tags:
            results = item.results.values()
            if results and all(is_whenever or result.run < graph.run for result in results):
                # The code gave the request another callback since.
                others = {tag: value for tag, value in item.tags.items() if "callback:" not in tag}
                item.tags = others | {f"callback:{one.callback}": None}
                self._take_request(item, one)
            return
        is_again = False
        for task, result in item.results.items():
            is_meant = task == one.callback or not is_its_own
            is_left = item.holds.get(task) == "left"
            is_done = is_left or result.is_held or graph.is_fresh(Pair(number, task))
            if only_gone:
                is_done = is_left or (result.is_held and result.is_gone)
            is_old = is_whenever or result.run < graph.run
            if if_changed:
                is_done = not is_left and not result.is_held and graph.is_fresh(Pair(number, task))
                is_old = is_done and result.completed[0] < graph.now - CHANGED
            is_old = is_old and not (result.is_held and task in graph.stopped)
            if graph.tasks[task].is_callback and is_meant and is_done and is_old:
                result.expired = graph.tick
                result.let_run()
                item.free_left(task)
                is_again = True
        if is_again and is_its_own:
            self._take_request(item, one)

    def _take_request(self, item: Item, one: Enqueue) -> None:
        """Give an item the request of now; what others put beside the old one stays."""
        of_request = {"url", "request", "download_slot"}
        others = {key: value for key, value in item.data.items() if key not in of_request}
        item.data = {**one.data, **others}
        item.updated = self.graph.tick

    def rename_item(self, one: ops.RenameItem) -> None:
        """Give an item another id; the old one stays an alias (SRAP-42)."""
        number = self.item(one.id)
        if one.to in self.graph.names:
            owner = self.graph.names[one.to]
            if owner != number and (owner is None or one.if_taken != "merge"):
                raise Refused("NameTakenError")
            if owner != number:
                self._merge(number, owner, one.merge, one.merge_metadata)
                return
        self.graph.names[one.to] = number
        self.graph.items[number].name = one.to

    def merge_item(self, one: ops.MergeItem) -> None:
        """Merge an item into another (SRAP-43); into itself changes nothing."""
        number, into = self.item(one.id), self.graph.resolve(one.into)
        if number != into:
            self._merge(number, into, one.merge, one.merge_metadata)

    def _merge(self, number: int, into: int, merge: Any, mergers: Mapping[str, Any]) -> None:
        graph = self.graph
        gone, stays = graph.items.pop(number), graph.items[into]
        graph.moved[number] = into
        if number in self.updated:
            self.updated.add(into)
        if merge is not None:
            stays.data = _called(merge, stays.data, gone.data)
        elif gone.updated > stays.updated:
            stays.data = {**stays.data, **gone.data}
        else:
            stays.data = {**gone.data, **stays.data}
        stays.updated = graph.tick
        stays.tags = {**gone.tags, **stays.tags}
        for task in {*gone.results, *mergers}:
            self.known(task)
            if task in gone.results:
                pairs = Pair(number, task), Pair(into, task)
                self._merge_result(*pairs, gone.results[task], stays.results, mergers.get(task))
        for task, attempts in gone.attempts.items():
            stays.attempts[task] = sorted([*stays.attempts.get(task, []), *attempts])
        stays.take_blobs(gone)
        for name in [name for name, owner in graph.names.items() if owner == number]:
            graph.names[name] = into
        if self.own == number:
            self.own = into

    def _merge_result(
        self, gone: Pair, stays: Pair, theirs: Result, results: dict[str, Result], merger: Any
    ) -> None:
        """Keep the result that completed later, whole (SRAP-44); this execution's is the latest.

        That is, of its metadata if it has yielded some; else those that are there are kept.
        """
        task = gone.task
        ours = results.setdefault(task, theirs)
        if ours is theirs:
            return
        metadata = None if merger is None else _called(merger, ours.metadata, theirs.metadata)
        never = (-1.0, -1)
        is_later = (theirs.completed or never) > (ours.completed or never)
        if self.has_metadata and task == self.task and self.own in {gone.item, stays.item}:
            is_later = self.own == gone.item
        if is_later:
            results[task] = theirs
        if metadata is not None:
            results[task].metadata = metadata

    def delete_item(self, one: ops.DeleteItem) -> None:
        """Delete an item; `forget=False` leaves its names taken."""
        number = self.item(one.id)
        if number in self.updated:
            raise Refused("OperationError")
        if number == self.own:
            self.own, self.own_name = None, self.graph.items[number].name
        del self.graph.items[number]
        for name in self.graph.names_of(number):
            self.deleted.add(name)
            if one.forget:
                del self.graph.names[name]
            else:
                self.graph.names[name] = None

    def create_alias(self, one: ops.CreateAlias) -> None:
        """Give an item another name, unless that is taken (SRAP-46)."""
        number = self.item(one.to)
        if one.alias in self.graph.names:
            if one.fail_if_exists:
                raise Refused("NameTakenError")
            return
        self.graph.names[one.alias] = number

    def delete_alias(self, one: ops.DeleteAlias) -> None:
        """Free a name, also that of a deleted item; none that is an item's own id (SRAP-47)."""
        number = self.graph.names.get(one.alias)
        if number is not None and self.graph.items[number].name == one.alias:
            raise Refused("OperationError")
        self.graph.names.pop(one.alias, None)

    # Tags and data

    def add_tag(self, one: ops.AddTag) -> None:
        """Tag an item (SRAP-8)."""
        self.graph.items[self.item(one.id)].tags[one.tag] = one.value

    def remove_tag(self, one: ops.RemoveTag) -> None:
        """Take a tag from an item."""
        self.graph.items[self.item(one.id)].tags.pop(one.tag, None)

    def update_data(self, one: ops.UpdateData) -> None:
        """Change an item's data (SRAP-48); `upsert` makes the item."""
        if one.upsert and one.id is not None:
            self.named.append(one.id)
        if one.upsert and one.id is not None and one.id not in self.graph.names:
            if one.id in self.deleted:
                raise Refused("OperationError")
            self.create_item(ops.CreateItem(one.id))
        item = self.graph.items[self.touch(one.id)]
        item.data = _merged(one.merge, item.data)
        item.updated = self.graph.tick

    # Binary data

    def attach_blob(self, one: ops.AttachBlob) -> None:
        """Attach content to an item; what it had under the name is replaced.

        It counts as an update: whoever attaches cannot delete the item as well.
        """
        number, graph = self.touch(one.id), self.graph
        graph.blobs_attached += 1
        attached = graph.now, graph.tick, graph.blobs_attached
        graph.items[number].blobs[one.name] = Blob(one.content, one.mime, attached)

    def detach_blob(self, one: ops.DetachBlob) -> None:
        """Take binary data from an item; none that is not there."""
        self.graph.items[self.touch(one.id)].blobs.pop(one.name, None)

    # Results

    def update_metadata(self, one: ops.UpdateMetadata) -> None:
        """Change metadata; state and times stay (SRAP-49)."""
        number, task = self.touch(one.id), self.known(one.task)
        result = self.result(number, task)
        self.has_metadata = self.has_metadata or self.is_own(number, task)
        result.metadata = _merged(one.merge, result.metadata)

    def store_result(self, one: ops.StoreResult) -> None:
        """Store a result as if the task had just run (SRAP-57)."""
        graph = self.graph
        number, task = self.touch(one.id), self.known(one.task)
        ttl = graph.tasks[task].ttl
        graph.items[number].results[task] = Result(
            self.result(number, task).made,
            metadata=dict(one.metadata),
            version=graph.tasks[task].version,
            completed=(graph.now, graph.tick),
            expires=None if ttl is None else graph.now + ttl,
            run=graph.run,
        )

    def expire(self, one: ops.Expire) -> None:
        """Make results stale, and let what is held run again (SRAP-50)."""
        number = self.item(one.id)
        for task in self.tasks(number, one.task):
            work = self.graph.work.get(Pair(number, task))
            is_claimed = self.is_own(number, task) or (work is not None and work.token is not None)
            if task not in self.graph.items[number].results and not is_claimed:
                continue
            result = self.result(number, task)
            result.let_run()
            self.graph.items[number].free_left(task)
            result.expired = self.graph.tick  # which means nothing before it is complete
            if self.is_own(number, task):
                self.expired = result.expired

    def set_ttl(self, one: ops.SetTTL) -> None:
        """Change when results expire, counted from their completion (SRAP-51)."""
        number = self.item(one.id)
        for task in self.tasks(number, one.task):
            own = self.graph.tasks[task].ttl
            ttl = own if one.ttl is None else hours_of(one.ttl)
            if self.is_own(number, task):
                self.ttl = (ttl, one.ttl is not None)
                continue
            result = self.graph.items[number].results.get(task)
            if result is not None and result.completed is not None:
                result.expires = None if ttl is None else result.completed[0] + ttl
                result.has_own_ttl = one.ttl is not None


def hours_of(ttl: str) -> float | None:
    """Return a time to live of the tests, such as "3h", in hours."""
    return None if ttl == "never" else float(ttl.removesuffix("h"))


def _hours(period: timedelta) -> float:
    return period.total_seconds() / 3600


def _tags(given: Any) -> dict[str, Any]:
    return dict(given) if hasattr(given, "keys") else dict.fromkeys(given)


def _merged(merge: Any, old: dict[str, Any]) -> dict[str, Any]:
    return _called(merge, old) if callable(merge) else {**old, **merge}


def _called(merge: Any, *given: dict[str, Any]) -> dict[str, Any]:
    try:
        return dict(merge(*(dict(one) for one in given)))
    except Exception as error:
        raise Refused("OperationError") from error
