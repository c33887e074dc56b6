"""What each operation on results does to a draft, and how an execution's own result ends."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from scrapy_itemgraph.changesets.effects.item_operations import applies, merged
from scrapy_itemgraph.changesets.state import Handled, Result
from scrapy_itemgraph.exceptions import OperationError
from scrapy_itemgraph.model import due_times, item_names, moments, periods
from scrapy_itemgraph.model import operations as ops

if TYPE_CHECKING:
    from scrapy_itemgraph.changesets.effects.item_operations import ChangesetRun
    from scrapy_itemgraph.changesets.state import Item, TaskRow
    from scrapy_itemgraph.model.validators import Validators
    from scrapy_itemgraph.model.work import Claim


@applies(ops.UpdateMetadata)
def update_metadata(run: ChangesetRun, operation: ops.UpdateMetadata) -> None:
    """Change a task's metadata of an item; the time to live of another task stays as it is."""
    item = run.item(operation.id)
    if operation.task is None and run.claim is None:
        raise OperationError("task must be given outside an execution")
    task = run.tasks_meant(operation.task, item)[0]
    run.update(item)
    result = item.results.get(task.id)
    if result is None:
        result = item.results[task.id] = Result(version=task.version)
    result.metadata = merged(operation.merge, result.metadata)
    result.is_changed = True
    result.is_pending = result.is_pending or run.is_own(item, task)
    run.note(operation, "metadata", item, task.name)


@applies(ops.StoreResult)
def store_result(run: ChangesetRun, operation: ops.StoreResult) -> None:
    """Store a result as if the task had just run."""
    item = run.item(operation.id)
    task = run.task(operation.task)
    run.update(item)
    complete(run, item, task, version=task.version, metadata=dict(operation.metadata))
    run.note(operation, "result", item, task.name)


@applies(ops.Expire)
def expire(run: ChangesetRun, operation: ops.Expire) -> None:
    """Make results stale, and let failed ones run again."""
    item, bound = run.item(operation.id), _bound(run, operation)
    has_expired = bound is None
    for task in run.tasks_meant(operation.task, item):
        result = item.results.get(task.id)
        is_before = bound is None or (result is not None and result.is_before(bound))
        if not is_before or (bound is not None and run.is_own(item, task)):
            continue
        if run.is_own(item, task):
            run.own_expired = True
        if result is None:
            if (item.id, task.id) not in run.draft.state.claimed_pairs or run.is_own(item, task):
                continue
            result = item.results[task.id] = Result(version=task.version)
        result.make_stale(run.draft.state.moment)
        if bound is None:
            result.validators = None  # whoever says so wants it made again
        run.draft.effects.failures.append(Handled((item.id, task.id), by="expired"))
        has_expired = True
    if has_expired:
        run.note(operation, "expired", item)


def _bound(run: ChangesetRun, operation: ops.Expire) -> datetime | None:
    """Return the moment before which results are old; None: all are."""
    age = operation.if_older_than
    if age is None or isinstance(age, datetime):
        return age
    return moments.later(run.draft.state.moment, -periods.parse_period(age, "if_older_than"))


@applies(ops.SetTTL)
def set_ttl(run: ChangesetRun, operation: ops.SetTTL) -> None:
    """Change when results expire, counted from their own time."""
    item = run.item(operation.id)
    for task in run.tasks_meant(operation.task, item):
        if run.is_own(item, task):
            run.own_ttl = operation
            continue
        result = item.results.get(task.id)
        if result is not None and result.completed_at is not None:
            _set_expiry(run, item, result, task, operation)
        else:
            run.note(operation, "no result", item, task.name)
    run.note(operation, "ttl", item, str(operation.ttl))


def _set_expiry(
    run: ChangesetRun, item: Item, result: Result, task: TaskRow, operation: ops.SetTTL
) -> None:
    assert result.completed_at is not None
    if operation.ttl is None:
        moment = _next_due(result.completed_at, task, item)
    else:
        moment = due_times.next_due(result.completed_at, periods.parse_ttl(operation.ttl))
    result.expire_at(moment, run.draft.state.moment, overridden=operation.ttl is not None)


def _next_due(completed_at: datetime, task: TaskRow, item: Item) -> datetime | None:
    return due_times.next_due(completed_at, task.ttl, task.expiry, item_id=item.id)


def complete(
    run: ChangesetRun,
    item: Item,
    task: TaskRow,
    *,
    version: str,
    metadata: dict[str, Any] | None = None,
    is_held: bool = False,
) -> Result:
    """Make a pair's result complete as of now; without `metadata` it keeps what it has."""
    now = run.draft.state.moment
    result = item.results.get(task.id)
    if result is None:
        result = item.results[task.id] = Result(version=version)
    if metadata is not None:
        result.metadata = metadata
    result.version = version
    result.completed_at = now
    result.invalidated_at = None
    result.is_held = is_held
    result.is_successful = not is_held
    result.is_pending = False
    result.free()
    result.run = run.draft.state.run
    result.led_to = result.validators = None
    result.expire_at(_next_due(now, task, item), now, overridden=False)
    run.draft.effects.failures.append(Handled((item.id, task.id)))
    return result


def is_expired_since(item: Item, claim: Claim) -> bool:
    """Tell whether the claim's own pair was expired by somebody else since it was claimed."""
    result = item.results.get(claim.task_id)
    return result is not None and result.invalidated_at not in {None, claim.invalidated_at}


def _own_item(run: ChangesetRun) -> Item | None:
    """Return the item that the execution is of, or that it was merged into; None: it is deleted."""
    return None if run.current is None else run.draft.item(run.current)


def leave_own(run: ChangesetRun) -> None:
    """End an execution that does not complete its own pair, whatever metadata it has updated."""
    claim, item = run.claim, _own_item(run)
    result = None if claim is None or item is None else item.results.get(claim.task_id)
    if result is not None:
        result.is_pending = False


def end_own(
    run: ChangesetRun,
    *,
    is_failed: bool,
    is_held: bool,
    led_to: str | None = None,
    validators: Validators | None = None,
    is_unchanged: bool = False,
) -> None:
    """Complete the execution's own pair, on the item that survived it; none after a deletion.

    What is held and did not fail is gone. `led_to` names the known page that it led to.
    `validators` are those of the response that it was made from. What `is_unchanged` keeps the
    time to live that its callback gave it.
    """
    claim, item = run.claim, _own_item(run)
    if claim is None or item is None:
        return
    task = run.draft.state.task_numbered(claim.task_id)
    before = item.results.get(task.id)
    invalidated_at = None if before is None else before.invalidated_at
    has_own_ttl = is_unchanged and before is not None and before.ttl_overridden
    own_ttl = None if before is None else before.ttl
    result = complete(run, item, task, version=claim.version, is_held=is_held)
    result.is_successful = not is_failed
    result.led_to = None if led_to is None else item_names.name_key(led_to)
    is_expired = run.own_expired or invalidated_at not in {None, claim.invalidated_at}
    if validators is not None and not (is_failed or is_expired):
        result.validators = validators.as_json()
    if has_own_ttl:
        now = run.draft.state.moment
        result.expire_at(due_times.next_due(now, own_ttl), now, overridden=True)
    if run.own_ttl is not None:
        _set_expiry(run, item, result, task, run.own_ttl)
    if (is_failed and task.is_callback) or (is_held and not is_failed):
        result.invalidated_at = run.draft.state.moment  # to run again once it is freed
    elif is_expired:
        result.invalidated_at = invalidated_at or run.draft.state.moment
