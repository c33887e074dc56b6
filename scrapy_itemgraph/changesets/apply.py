"""Applies a batch of changesets in the caller's transaction: all that each yielded, or nothing.

The order of locks is the same everywhere: the batch's own work rows, names by key, items by number,
then other work rows, which are never waited for while a claim may wait for us.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from scrapy_itemgraph.changesets import found_links, found_urls, kept_links
from scrapy_itemgraph.changesets.batch_names import MovedNamesError
from scrapy_itemgraph.changesets.effects import (
    item_operations,
    request_operations,  # noqa: F401 - its functions are known by their operations
    result_operations,
)
from scrapy_itemgraph.changesets.flush import flush, tell_freed
from scrapy_itemgraph.changesets.load import load, read_tasks, send_tasks
from scrapy_itemgraph.changesets.state import Draft, Found, Moved, Result, State
from scrapy_itemgraph.changesets.taken_names import is_settled, may_free
from scrapy_itemgraph.exceptions import OperationError
from scrapy_itemgraph.model.operations import CreateItem, DeleteAlias
from scrapy_itemgraph.model.request_operations import EnqueueRequest
from scrapy_itemgraph.model.set_aside import Hold
from scrapy_itemgraph.model.work import NEW, Applied, ErrorRecord, Outcome
from scrapy_itemgraph.postgres.event_loop import (
    CHUNK,
    LARGE_CHUNK,
    chunks,
    clear_gradually,
    gradually,
    yield_after,
    yield_to_loop,
)
from scrapy_itemgraph.store import (
    attempts,
    failures,
    lost_commit_answers,
    queues,
    scraped_items,
    set_aside,
)
from scrapy_itemgraph.store import slots as stored_slots
from scrapy_itemgraph.store.columns import columns
from scrapy_itemgraph.store.urls import marks
from scrapy_itemgraph.store.worklist import claims, refresh
from scrapy_itemgraph.tools.async_tools import Turns

if TYPE_CHECKING:
    from collections.abc import (
        Collection,
        Container,
        Hashable,
        Iterable,
        Iterator,
        Mapping,
        Sequence,
    )
    from uuid import UUID

    from sqlalchemy import Connection

    from scrapy_itemgraph.changesets.state import Item, New
    from scrapy_itemgraph.changesets.taken_names import TakenNames
    from scrapy_itemgraph.model.operations import Changeset, Operation
    from scrapy_itemgraph.model.work import Claim, Note, Pair
    from scrapy_itemgraph.store.registry.crawls import SharedCrawl
    from scrapy_itemgraph.store.slots import SentLimits

__all__ = ["MovedNamesError", "answered", "apply"]

# Checks, locks and ends claims in one statement: the fence is in the row itself.
END_CLAIMS = text("""
    DELETE FROM work w
    USING unnest(CAST(:items AS bigint[]), CAST(:tasks AS int[]), CAST(:tokens AS uuid[]))
        AS ended(item_id, task_id, token)
    WHERE w.item_id = ended.item_id AND w.task_id = ended.task_id AND w.token = ended.token
    RETURNING w.token
""")

_KEPT = {Outcome.RETRY, Outcome.RELEASED, Outcome.SKIPPED}
_LINKS = {CreateItem.verb, EnqueueRequest.verb}


def apply(
    connection: Connection,
    changesets: Sequence[Changeset],
    *,
    crawl: SharedCrawl,
    worker_id: int | None,
    spider: str | None = None,
    is_again: bool = False,
    taken: TakenNames | None = None,
    is_from_outside: bool = False,
    incremental: Collection[str] | None = None,
) -> list[Applied]:
    """Apply changesets in order; one that cannot be is a failure and leaves the others alone.

    With `is_again` a claim that is not ours any more may be on record as ended: the answer to the
    first commit was lost. Names that are `taken` are not looked up to be created. What came over
    HTTP `is_from_outside`, and marks its items so. Results of `incremental` callbacks stay fresh
    over runs; None: those of all.
    Returns what became of each changeset, in the same order.
    """
    kept = [c for c in changesets if c.claim is not None and c.outcome in _KEPT]
    running = [c for c in changesets if c.claim is None or c.outcome not in _KEPT]
    tasks = send_tasks(connection, crawl.id)
    freed = _give_back(connection, kept, crawl)
    sent_slots = _send_slots(connection, running)
    ended = _end(connection, [c.claim for c in running if c.claim is not None])
    running = [c for c in running if c.claim is None or c.claim.token in ended]
    carried = [c.operations for c in running if _applies(c)]
    operations: Sequence[Operation] = (
        carried[0] if len(carried) == 1 else list(chain.from_iterable(carried))
    )
    freed_items = {row.item_id for row in freed}
    ended_pairs = {_pair(c.claim) for c in running if c.claim is not None}
    claimed_items = freed_items | {item_id for item_id, _ in ended_pairs}
    state = State(
        crawl.id,
        crawl.now,
        read_tasks(tasks),
        size=len(operations),
        run=crawl.run,
        is_from_outside=is_from_outside,
        sent_slots=sent_slots,
    )
    if taken is not None:
        operations = _unsettled(connection, state, operations, taken.as_of(crawl.names_freed))
    state.links = kept_links.find(connection, state, running, incremental)
    load(connection, state, operations, claimed_items | _linked(state))
    given_back = {row.token for row in freed}
    state.claimed_pairs |= ended_pairs | {(row.item_id, row.task_id) for row in freed}
    urls = marks.Marking(connection, crawl.id, state.items) if crawl.has_frontier else None
    endings = _run_in_turn(connection, state, changesets, ended | given_back, spider)
    frees_names = flush(connection, state)
    kept_links.keep(connection, _read(state, running, endings))
    if urls is not None:
        urls.mark(found_urls.tagged(connection, state))
    tried = [c for c in kept if c.claim is not None and c.claim.token in given_back]
    if skipped := [_item(c) for c in tried if c.outcome is Outcome.SKIPPED]:
        set_aside.hold(connection, skipped, Hold.SKIPPED)
    _record(connection, tried, running, endings, state, worker_id=worker_id)
    depths = _depths(connection, state, running, endings) if crawl.tracks_depth else {}
    groups = alike(connection, state.new, depths)
    refresh.refresh(connection, {*state.items, *freed_items}, new=groups, crawl=crawl)
    if urls is not None:
        urls.count()
    queues.wake(connection, [row.queue_id for row in freed])
    _keep_scraped(connection, running, endings, crawl.id)
    if frees_names:
        tell_freed(connection, crawl.id)
    ours = ended | {row.token for row in freed if row.item_id in state.items}
    done = _recorded(connection, changesets, ours, crawl.id) if is_again else {}
    applied = [_applied(c, ours, endings, done) for c in changesets]
    clear_gradually(connection, state.new, state.owners, state.stored_owners, state.candidates)
    clear_gradually(connection, state.reserved, state.taken, state.items)
    return applied


def _linked(state: State) -> set[int]:
    """Return the numbers of the items that unchanged pages link to."""
    return {item_id for pairs in state.links.values() for item_id, _ in pairs}


def _read(
    state: State, running: Sequence[Changeset], endings: Mapping[int, _Ending]
) -> Iterator[tuple[int, Changeset]]:
    """Yield executions that were carried out as they ended, each with the item that survived it."""
    for changeset in running:
        ending = endings[id(changeset)]
        if ending.item_id is None or ending.failed_at is not None:
            continue
        item = state.survivor(ending.item_id)
        if item is not None:
            yield item.id, changeset


def _send_slots(connection: Connection, running: Sequence[Changeset]) -> SentLimits | None:
    """Ask for the slots of the claims, to which most of what they found goes, if they found any."""
    slots = {c.claim.slot for c in running if c.claim is not None and c.operations}
    return stored_slots.send_slots(connection, slots) if slots else None


def _unsettled(
    connection: Connection,
    state: State,
    operations: Sequence[Operation],
    known: Container[str],
) -> Sequence[Operation]:
    """Return the operations without those whose names are known, which become `taken`."""
    if any(may_free(part) for part in chunks(connection, operations, LARGE_CHUNK)):
        return operations  # what is known may be free by the end of the same batch
    unsettled: list[Operation] = []
    taken = state.taken
    for operation in gradually(connection, operations):
        if is_settled(operation, taken):
            continue
        if is_settled(operation, known):
            taken.add(operation.id)
        else:
            unsettled.append(operation)
    return unsettled


def answered(
    connection: Connection, changesets: Sequence[Changeset], crawl_id: int
) -> list[Applied]:
    """Return what became of changesets whose commit was made, and its answer lost."""
    done = _recorded(connection, changesets, set(), crawl_id)
    return [
        Applied(outcome=c.outcome if c.claim is None else done.get(_pair(c.claim)))
        for c in changesets
    ]


def _recorded(
    connection: Connection,
    changesets: Sequence[Changeset],
    ours: set[UUID],
    crawl_id: int,
) -> dict[Pair, Outcome]:
    """Return how claims that are not ours ended, as far as that is on record."""
    lost = {
        c.claim.token: (c.claim, c.outcome)
        for c in changesets
        if c.claim is not None and c.claim.token not in ours
    }
    done = attempts.recorded(connection, [claim for claim, _ in lost.values()], crawl_id)
    for token in lost_commit_answers.noted(connection, list(lost)):
        claim, outcome = lost[token]
        done[_pair(claim)] = outcome
    return done


class _Ending:
    """How one changeset ended: its outcome (None: its item was gone), its error, its notes."""

    def __init__(self, outcome: Outcome | None, error: ErrorRecord | None = None) -> None:
        self.outcome = outcome
        self.error = error
        self.notes: tuple[Note, ...] = ()
        self.item_id: int | None = None
        self.is_expired = False  # by somebody else, while it was claimed
        self.found: Found | None = None  # its failure
        self.failed_at: int | None = None  # which operation could not be carried out, from 0
        self.done = 0  # operations that were carried out
        self.may_free = False  # names, by what was done


def _item(changeset: Changeset) -> int:
    """Return the item of a changeset that has a claim."""
    assert changeset.claim is not None
    return changeset.claim.item_id


def _pair(claim: Claim) -> Pair:
    return claim.item_id, claim.task_id


def _applies(changeset: Changeset) -> bool:
    """Whether the changeset's operations are carried out."""
    outcome = changeset.outcome
    return outcome.is_complete or outcome is Outcome.GONE or changeset.allow_failure


def _end(connection: Connection, claims: Sequence[Claim]) -> set[UUID]:
    """End claims; return the tokens of those that were still ours.

    Of one pair there may be two: a worker that stalled may claim again what it still runs.
    """
    if not claims:
        return set()
    given = columns(claims, items="item_id", tasks="task_id", tokens="token")
    return set(connection.execute(END_CLAIMS, given).scalars())


def _give_back(
    connection: Connection, kept: Sequence[Changeset], crawl: SharedCrawl
) -> list[claims.Freed]:
    """Take the token off work that will be tried again."""
    returns = [
        claims.Return(
            c.claim,
            int(c.outcome is Outcome.RETRY),
            None if c.delay is None else crawl.now + c.delay,
            c.attempts_left or 0,
        )
        for c in kept
        if c.claim is not None
    ]
    return claims.give_back(connection, returns)


def _run_in_turn(
    connection: Connection,
    state: State,
    changesets: Sequence[Changeset],
    ours: Container[UUID],
    spider: str | None,
) -> dict[int, _Ending]:
    """Carry out the changesets whose claims were ours, or which have none; return their endings.

    What each has claimed, or gives back, is claimed until its turn.
    """
    endings: dict[int, _Ending] = {}
    for state.turn, changeset in enumerate(changesets):
        claim = changeset.claim
        if claim is not None:
            if claim.token not in ours:
                continue
            state.claimed_pairs.discard(_pair(claim))
        if claim is None or changeset.outcome not in _KEPT:
            endings[id(changeset)] = _run(connection, state, changeset, spider)
    return endings


def _run(connection: Connection, state: State, changeset: Changeset, spider: str | None) -> _Ending:
    """Carry out one changeset on a draft, and keep the draft if all of it could be."""
    claim = changeset.claim
    if claim is not None:
        item = state.items.get(claim.item_id)
        if item is None or item.is_deleted:
            return _Ending(None)
    draft = Draft(state)
    current = claim.item_id if claim else None
    run = item_operations.ChangesetRun(draft=draft, claim=claim, current=current)
    ending = _Ending(changeset.outcome, changeset.error)
    is_expired = claim is not None and result_operations.is_expired_since(
        state.items[claim.item_id], claim
    )
    try:
        if _applies(changeset):
            _carry_out(connection, changeset.operations, run, ending)
            if changeset.outcome is Outcome.REFUSED:
                result_operations.leave_own(run)
            else:
                is_failed = changeset.outcome is Outcome.FAILED
                is_held = not changeset.outcome.is_complete and not is_expired
                result_operations.end_own(
                    run,
                    is_failed=is_failed,
                    is_held=is_held,
                    led_to=changeset.led_to,
                    validators=changeset.validators,
                    is_unchanged=changeset.outcome is Outcome.UNCHANGED,
                )
                if changeset.outcome is Outcome.UNCHANGED and current is not None:
                    kept_links.visit(connection, run, state.links.get(current, ()))
        draft.keep()
        yield_after(connection, len(run.notes))
        ending.notes = tuple(run.notes)
        ending.item_id = run.current
    except OperationError as error:
        at, ending = ending.done, _Ending(Outcome.FAILED, _describe(error, claim, spider))
        ending.failed_at = at
        ending.item_id = claim.item_id if claim else None
        if claim is not None and changeset.is_of_callback:
            _keep_requests(connection, state, changeset, claim, ending, is_held=not is_expired)
    ending.is_expired = is_expired
    no_failure = {Outcome.OK, Outcome.UNCHANGED, Outcome.KNOWN, Outcome.GONE}
    is_failure = ending.outcome not in no_failure
    if claim is not None and is_failure:
        _hold(state, claim, ending)
    return ending


def _carry_out(
    connection: Connection,
    operations: Sequence[Operation],
    run: item_operations.ChangesetRun,
    ending: _Ending,
) -> None:
    """Carry out operations, and let the event loop turn meanwhile."""
    turns = Turns()
    for part in chunks(connection, operations):
        ending.may_free = ending.may_free or may_free(part)
        for operation in part:
            run.apply(operation)
            ending.done += 1
            if turns.is_due:  # one may take long, such as a user's merger
                yield_to_loop(connection)
                turns.begin()


def _hold(state: State, claim: Claim, ending: _Ending) -> None:
    """Hold the pair of an execution that failed: what comes after it in the batch sees that."""
    item = None if ending.item_id is None else state.items.get(ending.item_id)
    if item is None or item.is_deleted:
        return
    result = item.results.get(claim.task_id)
    if result is None:
        result = item.results[claim.task_id] = Result(version=claim.version)
    result.is_successful = False
    result.led_to = None
    result.is_held = result.is_held or not ending.is_expired
    result.run = state.run
    result.is_changed = True
    ending.found = Found((item.id, claim.task_id))
    state.effects.failures.append(ending.found)


def _keep_requests(
    connection: Connection,
    state: State,
    changeset: Changeset,
    claim: Claim,
    ending: _Ending,
    *,
    is_held: bool,
) -> None:
    """Let the requests of a plain callback go on although an operation of it cannot be."""
    draft = Draft(state)
    run = item_operations.ChangesetRun(draft=draft, claim=claim, current=claim.item_id)
    for operation in gradually(connection, changeset.operations, CHUNK):
        if isinstance(operation, EnqueueRequest):
            run.apply(operation)
    result_operations.end_own(run, is_failed=True, is_held=is_held)
    draft.keep()
    ending.notes = tuple(run.notes)


def _depths(
    connection: Connection,
    state: State,
    running: Sequence[Changeset],
    endings: dict[int, _Ending],
) -> Mapping[int, int]:
    """Write what the changesets found of pages; return the depths of those that are new."""
    findings: list[found_links.Finding] = []
    for changeset in running:
        ending = endings[id(changeset)]
        if ending.outcome is None or not _applies(changeset):
            continue
        claim, operations = changeset.claim, changeset.operations
        if ending.failed_at is not None:  # see _keep_requests
            is_kept = claim is not None and changeset.is_of_callback
            operations = tuple(
                one for one in operations if is_kept and isinstance(one, EnqueueRequest)
            )
        page = None if claim is None else ending.item_id
        findings.append(found_links.Finding(page, operations, changeset.links, changeset.roots))
    return found_links.record(connection, state, findings)


def alike(
    connection: Connection, made: Mapping[int, New], depths: Mapping[int, int]
) -> Iterable[list[int]]:
    """Return the numbers of new items, in groups that are alike in what decides about work."""
    groups: dict[Hashable, list[int]] = {}
    for number, new in gradually(connection, made.items()):
        operation = new.operation
        depth = depths.get(number)
        alike = new.slot, operation.nice, new.not_before, tuple(operation.tags), depth
        groups.setdefault(alike, []).append(number)
    return groups.values()


def _describe(error: OperationError, claim: Claim | None, spider: str | None) -> ErrorRecord:
    where: dict[str, Any] = {} if claim is None else {"task": claim.task, "item": claim.item.id}
    return replace(ErrorRecord.of(error), spider=spider, **where)


def _record(
    connection: Connection,
    tried: Sequence[Changeset],
    running: Sequence[Changeset],
    endings: dict[int, _Ending],
    state: State,
    *,
    worker_id: int | None,
) -> None:
    """Write the attempts that ended, and the failures that were found.

    `tried` are those that will be tried again, `running` the others.
    """
    ended: list[attempts.Attempt] = []
    for changeset in tried:
        claim = changeset.claim
        item = None if claim is None else state.survivor(claim.item_id)
        if claim is not None and item is not None:
            ending = _Ending(changeset.outcome, changeset.error)
            ended.append(_attempt(claim, changeset, ending, worker_id, item))
    failed: list[failures.Failed] = []
    unnamed: list[UUID] = []
    handled, _ = state.effects.settled_failures()
    for changeset in running:
        ending, claim = endings[id(changeset)], changeset.claim
        if claim is None or ending.outcome is None:
            continue
        item = None if ending.item_id is None else state.survivor(ending.item_id)
        if item is None or ending.item_id is None:
            unnamed.append(claim.token)
            continue  # nobody could look at it
        if item.id != claim.item_id and _drops_names(changeset):
            unnamed.append(claim.token)
        ended.append(_attempt(claim, changeset, ending, worker_id, item))
        bearer = _bearer(state, ending.item_id, claim.task_id)
        if ending.found is None or bearer is None or bearer.is_deleted:
            continue
        failed.append(
            failures.Failed(
                item_id=bearer.id,
                task_id=claim.task_id,
                version=claim.version,
                error=ending.error,
                is_refusal=ending.outcome is Outcome.REFUSED,
                handled_by="expired" if ending.is_expired else handled.get(ending.found),
            )
        )
    failures.write(connection, failed)
    attempts.record(connection, ended)
    lost_commit_answers.note(connection, unnamed)


def _attempt(
    claim: Claim, changeset: Changeset, ending: _Ending, worker_id: int | None, item: Item
) -> attempts.Attempt:
    """Return the record of a claim that ended with a changeset, on the item that survived it."""
    outcome = ending.outcome or changeset.outcome
    page = changeset.page
    return attempts.Attempt.of(
        claim,
        outcome,
        worker_id,
        error=ending.error,
        item_id=item.id,
        log=changeset.log,
        scraped=changeset.items_scraped,
        page=None if page is None else page.as_json(sum(map(_is_new_link, ending.notes))),
    )


def _is_new_link(note: Note) -> bool:
    """Tell whether a note is on an item that an execution's link or operation made."""
    return note.label == NEW and note.operation in _LINKS


def _drops_names(changeset: Changeset) -> bool:
    """Tell whether an item may have lost the name by which an attempt at it is found."""
    return any(isinstance(operation, DeleteAlias) for operation in changeset.operations)


def _keep_scraped(
    connection: Connection,
    running: Sequence[Changeset],
    endings: dict[int, _Ending],
    crawl_id: int,
) -> None:
    """Keep the scraped items of the changesets whose operations were carried out."""
    kept: list[scraped_items.Entry] = []
    for changeset in running:
        ending, claim = endings[id(changeset)], changeset.claim
        is_done = ending.outcome is not None and ending.error is changeset.error
        if changeset.scraped and is_done and _applies(changeset):
            task_id = None if claim is None else claim.task_id
            for part in chunks(connection, changeset.scraped):
                kept += [scraped_items.Entry(one, ending.item_id, task_id) for one in part]
    scraped_items.append(connection, crawl_id, kept)
    clear_gradually(connection, kept)


def _bearer(state: State, item_id: int, task_id: int) -> Item | None:
    """Return the item that bears a pair's result, where later merges of the batch took it."""
    went = {e.pair: e.into for e in state.effects.failures if isinstance(e, Moved)}
    while (item_id, task_id) in went:
        item_id = went[item_id, task_id]
    return state.items.get(item_id)


def _applied(
    changeset: Changeset,
    ours: set[UUID],
    endings: dict[int, _Ending],
    done: Mapping[Pair, Outcome],
) -> Applied:
    claim = changeset.claim
    if claim is not None and claim.token not in ours:
        return Applied(outcome=done.get(_pair(claim)))
    ending = endings.get(id(changeset))
    if ending is None:
        return Applied(outcome=changeset.outcome)
    found = ending.error if ending.error is not changeset.error else None
    return Applied(
        outcome=ending.outcome,
        error=found,
        notes=ending.notes,
        failed_at=ending.failed_at,
        may_free=ending.may_free,
    )
