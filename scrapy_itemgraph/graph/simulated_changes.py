"""Simulations: the changeset of an execution that no worker claimed, in a transaction undone.

Nothing is decided here. The tasks are registered as a start would, the work is claimed, and the
changeset goes through `apply`; pictures of the items before and after it say what it changed.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlalchemy import text

from scrapy_itemgraph.changesets import apply, batch_names
from scrapy_itemgraph.changesets.state import TOMBSTONE
from scrapy_itemgraph.exceptions import NotFoundError, OperationError
from scrapy_itemgraph.model.crawl_arguments import as_options
from scrapy_itemgraph.model.operations import Changeset
from scrapy_itemgraph.model.simulations import Change, Simulation
from scrapy_itemgraph.model.work import Applied, Claim, ErrorRecord, Outcome, attempt_after
from scrapy_itemgraph.postgres import engine
from scrapy_itemgraph.store import blobs as stored_blobs
from scrapy_itemgraph.store import items as stored_items
from scrapy_itemgraph.store.admin import pictures
from scrapy_itemgraph.store.registry import crawls, rulesets
from scrapy_itemgraph.store.registry import tasks as stored_tasks
from scrapy_itemgraph.store.worklist import claims as stored_claims
from scrapy_itemgraph.store.worklist import refresh
from scrapy_itemgraph.tools.wording import closest

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from datetime import timedelta

    from sqlalchemy import Connection

    from scrapy_itemgraph.model.limits import Limit
    from scrapy_itemgraph.model.operations import Operation
    from scrapy_itemgraph.model.simulations import ItemPicture, SimulationPlan
    from scrapy_itemgraph.model.tasks import Task

LOCK_TIMEOUT = "55P03"
LOCK_MS = 3000  # how long a lock is waited for: others are not to wait behind
_MOST_NAMES = 5000  # among which a near miss is looked for
NEWEST_OTHERS = text(
    "SELECT c.id, c.name, c.arguments FROM crawls c WHERE c.id <> :crawl "
    "ORDER BY c.id DESC LIMIT 100"
)
_NO_PAGE = "a page that nobody has seen yet is named by its URL, http://… or https://…"


class UndoneError(Exception):
    """Ends a transaction that is not to be committed, with what it found."""

    def __init__(self, found: Prepared | Simulation) -> None:
        super().__init__("a simulation is not committed")
        self.found = found


@dataclass(frozen=True, kw_only=True)
class Code:
    """What a start of the spider would register."""

    crawl: str
    spider: str
    tasks: Mapping[str, Task]
    default_ttl: timedelta | None
    of_callback: Callable[[str], Task] | None
    limits_of: Callable[[Task], Sequence[Limit]]
    of_all: Sequence[Limit]

    def task(self, name: str) -> Task:
        """Return a task of the spider, or the one of a plain callback."""
        if name in self.tasks or self.of_callback is None:
            return self.tasks[name]
        return self.of_callback(name)


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A claim that could be made, and the plain callbacks that have had requests."""

    crawl_id: int
    claim: Claim
    callbacks: frozenset[str]


def lay(connection: Connection, plan: SimulationPlan, code: Code) -> None:
    """Make the plan's crawl, with the tasks of the code and what is given; to be committed.

    Raises:
        OperationError: the crawl exists, or an operation cannot be carried out.

    """
    if crawls.find_crawl(connection, code.crawl) is not None:
        raise OperationError(f"the crawl {code.crawl!r} exists; what is given needs a new one")
    crawl_id, _ = _register(connection, code, _callbacks(plan, code))
    _apply(connection, crawl_id, plan.given)


def look(connection: Connection, plan: SimulationPlan, code: Code) -> None:
    """Raise an UndoneError with the claim of the plan's item and task.

    Raises:
        NotFoundError: there is no such item, and none is made up.
        OperationError: the item that is made up exists, or cannot be.

    """
    crawl_id, callbacks = _register(connection, code, _callbacks(plan, code))
    item_id = _item(connection, crawl_id, plan, is_page=code.task(plan.task).is_callback)
    claim = _claim(connection, crawl_id, plan, item_id, worker_id=0)
    raise UndoneError(Prepared(crawl_id=crawl_id, claim=claim, callbacks=callbacks))


def simulate(
    connection: Connection,
    plan: SimulationPlan,
    code: Code,
    changeset: Changeset,
    *,
    met: Sequence[Task],
    worker_id: int,
) -> None:
    """Raise an UndoneError with what a changeset comes to; `met` are callbacks that are new.

    Raises:
        NotFoundError: the item is gone meanwhile.

    """
    crawl_id, _ = _register(connection, code, _callbacks(plan, code, met))
    item_id = _item(connection, crawl_id, plan)
    mentioned = batch_names.Mentioned.by(changeset.operations)
    names = {*mentioned.names, plan.item}
    touched = {item_id, *_owners(connection, crawl_id, names)}
    # What the code makes outstanding by itself is no doing of the execution.
    refresh.refresh(connection, stored_items.lock_items(connection, touched))
    before = pictures.of_items(connection, touched)
    claim = _claim(connection, crawl_id, plan, item_id, worker_id=worker_id)
    crawl = crawls.share_crawl(connection, crawl_id)
    given = replace(changeset, claim=claim)
    if changeset.attached:
        stored_blobs.pretend(connection, [one.content for one in changeset.attached])
    (applied,) = apply.apply(
        connection, [given], crawl=crawl, worker_id=worker_id, spider=code.spider
    )
    went = {one.id for one in before.values()}
    owners = _owners(connection, crawl_id, names | went)
    after = pictures.of_items(connection, {*touched, *owners})
    into = {
        one.id: after[number].id
        for one in before.values()
        for number in _owners(connection, crawl_id, [one.id])
        if number in after
    }
    raise UndoneError(
        Simulation(
            changeset=given,
            applied=applied,
            changes=tuple(_changes(before, after, into)),
            now=connection.execute(engine.NOW).scalar_one(),
            is_made_up=plan.made is not None,
        )
    )


def refused(changeset: Changeset, error: Exception, plan: SimulationPlan) -> Simulation:
    """Return what a changeset comes to that the database refuses."""
    applied = Applied(outcome=Outcome.FAILED, error=ErrorRecord.of(error))
    return Simulation(changeset=changeset, applied=applied, is_made_up=plan.made is not None)


def _callbacks(plan: SimulationPlan, code: Code, met: Sequence[Task] = ()) -> Sequence[Task]:
    """Return the plain callbacks of a simulation: those that it met, and its own."""
    own = code.task(plan.task)
    is_known = any(one.name == own.name for one in met)
    return [*met, own] if own.is_callback and not is_known else met


def _apply(connection: Connection, crawl_id: int, given: Sequence[Operation]) -> None:
    crawl = crawls.share_crawl(connection, crawl_id)
    made = Changeset(operations=tuple(given), outcome=Outcome.OK)
    (applied,) = apply.apply(connection, [made], crawl=crawl, worker_id=None)
    if applied.error is not None:
        raise OperationError(applied.error.message)


def _register(
    connection: Connection, code: Code, met: Sequence[Task]
) -> tuple[int, frozenset[str]]:
    """Make the crawl's tasks those of the code; return its number, and its plain callbacks."""
    engine.hot_path(connection)
    connection.exec_driver_sql(f"SET LOCAL lock_timeout = {LOCK_MS}")
    crawl_id = crawls.make_crawl(connection, code.crawl)
    ttl = code.default_ttl
    if not stored_tasks.are_in_force(connection, crawl_id, code.spider, code.tasks, ttl):
        stored_tasks.register_tasks(
            connection,
            crawl_id,
            code.spider,
            code.tasks,
            ttl,
            of_callback=code.of_callback,
            limits_of=code.limits_of,
            of_all=code.of_all,
        )
    known = stored_tasks.known_callbacks(connection, crawl_id, code.spider)
    names = {one.name for one in known.values()}
    new = [one for one in met if one.name not in names]
    if new:
        stored_tasks.register_callbacks(connection, crawl_id, code.spider, new, ttl)
    crawls.share_crawl(connection, crawl_id)
    return crawl_id, frozenset(names)


def _item(
    connection: Connection, crawl_id: int, plan: SimulationPlan, *, is_page: bool = False
) -> int:
    item_id = stored_items.resolve(connection, crawl_id, plan.item)
    if plan.made is None:
        if item_id is not None:
            return item_id
        near = closest(plan.item, pictures.some_names(connection, crawl_id, _MOST_NAMES))
        otherwise = _NO_PAGE if is_page else "--data or --url, and --tag, make one up"
        otherwise = _elsewhere(connection, crawl_id, plan.item) or otherwise
        raise NotFoundError(f"the item {plan.item!r} does not exist{near}; {otherwise}")
    if item_id is not None:
        raise OperationError(
            f"the item {plan.item!r} exists; --data, --url and --tag make one up that does not"
        )
    _apply(connection, crawl_id, (plan.made,))
    item_id = stored_items.resolve(connection, crawl_id, plan.item)
    if item_id is None:
        raise OperationError(f"the item {plan.item!r} was deleted, and its name stays taken")
    return item_id


def _elsewhere(connection: Connection, crawl_id: int, name: str) -> str:
    """Say which of the newest other crawls has an item; an empty text where none has it."""
    for crawl in connection.execute(NEWEST_OTHERS, {"crawl": crawl_id}):
        if stored_items.resolve(connection, crawl.id, name) is not None:
            return (
                f"the crawl {crawl.name} has it (spider arguments: {as_options(crawl.arguments)}); "
                f"simulate it there with --crawl {crawl.name}"
            )
    return ""


def _claim(
    connection: Connection, crawl_id: int, plan: SimulationPlan, item_id: int, *, worker_id: int
) -> Claim:
    """Claim the pair, whoever has it and whether it is outstanding or not."""
    tasks = stored_tasks.known_tasks(connection, crawl_id)
    task = next(one for one in tasks if one.name == plan.task)
    given = {"item": item_id, "task": task.id, "crawl": crawl_id, "worker": worker_id}
    row = connection.execute(stored_claims.TAKE_ANYWAY, {**given, "token": uuid.uuid4()}).one()
    item = stored_items.snapshots(connection, [item_id])[item_id]
    if plan.request is not None:
        item = replace(item, data={**item.data, "request": plan.request})
    return Claim(
        item_id=item_id,
        task_id=task.id,
        task=task.name,
        version=task.version,
        token=row.token,
        attempt=attempt_after(row.tries),
        claimed_at=row.claimed_at,
        slot=row.slot,
        is_alone=False,
        item=item,
        metadata=row.metadata or {},
        invalidated_at=row.invalidated_at,
        is_refiled=True,  # its request may go where it will
        is_saved=plan.is_saved,
        ruleset_id=rulesets.id_in_force(connection, crawl_id),
    )


def _owners(connection: Connection, crawl_id: int, names: Collection[str]) -> set[int]:
    """Return the numbers of the items that have names."""
    ordered, keys = batch_names.keyed(connection, names, len(names))
    owners = batch_names.resolve(connection, crawl_id, keys, ordered).values()
    return {owner for owner in owners if owner is not None and owner != TOMBSTONE}


def _changes(
    before: Mapping[int, ItemPicture], after: Mapping[int, ItemPicture], into: Mapping[str, str]
) -> Iterable[Change]:
    for number, old in before.items():
        new = after.get(number)
        if new is None:
            name = into.get(old.id)
            yield Change(kind="deleted" if name is None else "merged", before=old, into=name)
        elif new != old:
            yield Change(kind="changed" if new.id == old.id else "renamed", before=old, after=new)
    for number, new in after.items():
        if number not in before:
            yield Change(kind="new", after=new)
