"""What a request does to a draft: it becomes an item, or has its item fetched again."""

from __future__ import annotations

from scrapy_itemgraph.changesets.effects.item_operations import (
    ChangesetRun,
    applies,
    create,
    set_data,
)
from scrapy_itemgraph.changesets.state import Handled, Item, Result
from scrapy_itemgraph.model.request_operations import OF_REQUESTS, EnqueueRequest
from scrapy_itemgraph.model.tasks import callback_tag, is_callback_tag


@applies(EnqueueRequest)
def enqueue_request(run: ChangesetRun, operation: EnqueueRequest) -> None:
    """Create the item of a request, or have it fetched again."""
    owner = run.draft.owner(operation.id)
    if owner is None:
        create(run, operation)
        return
    may_be_again = operation.again is not None or operation.changed_at is not None
    if may_be_again and _fetch_again(run, run.draft.item(owner), operation):
        run.note(operation, "again", operation)
    else:
        run.note(operation, "known", operation)


def _fetch_again(run: ChangesetRun, item: Item | None, operation: EnqueueRequest) -> bool:
    """Make an item's old results stale; say whether there are any.

    What is stale already is fetched anyway, or just now.
    """
    if item is None:
        return False
    is_own, again = item.name == operation.id, operation.again
    is_other = is_own and not set(operation.tags) & item.tags.keys()  # another callback's
    if is_other and again is not None and not operation.only_gone:
        return _take_callback(run, item, operation, again)
    old = {
        task_id: result
        for task_id, result in item.results.items()
        if _is_of_request(run, item, task_id, operation)
        and _is_to_be_stale(run, task_id, result, operation)
        and not _is_stopped(run, task_id, result)
    }
    for task_id, result in old.items():
        result.make_stale(run.draft.state.moment)
        run.draft.effects.failures.append(Handled((item.id, task_id), by="fetched again"))
    if old and is_own:
        _take_request(run, item, operation)
    return bool(old)


def _is_to_be_stale(
    run: ChangesetRun, task_id: int, result: Result, operation: EnqueueRequest
) -> bool:
    is_fresh = result.is_fresh(run.draft.state.task_numbered(task_id).version)
    if is_fresh and operation.changed_at is not None and result.is_before(operation.changed_at):
        return True
    if operation.again is None or result.run >= operation.again:
        return False
    if operation.only_gone:
        return result.is_gone or result.is_left
    return result.is_left or result.is_held or is_fresh


def _take_request(run: ChangesetRun, item: Item, operation: EnqueueRequest) -> None:
    """Give an item its request as it is now; what others put beside the old one stays."""
    others = {key: value for key, value in item.data.items() if key not in OF_REQUESTS}
    set_data(run, item, {**operation.data, **others})


def _take_callback(run: ChangesetRun, item: Item, operation: EnqueueRequest, again: int) -> bool:
    """Give an item of an earlier run the callback that its request has by now."""
    if not item.results or any(result.run >= again for result in item.results.values()):
        return False
    for tag in list(filter(is_callback_tag, item.tags)):
        item.drop_tag(tag)
    for tag in operation.tags:
        item.set_tag(tag, None)
    _take_request(run, item, operation)
    return True


def _is_stopped(run: ChangesetRun, task_id: int, result: Result) -> bool:
    """Tell whether a result is held by a failure that has stopped its task."""
    return result.is_held and run.draft.state.task_numbered(task_id).is_stopped


def _is_of_request(run: ChangesetRun, item: Item, task_id: int, operation: EnqueueRequest) -> bool:
    """Tell whether a task runs the callback of a request, or of one that was redirected to it."""
    task = run.draft.state.task_numbered(task_id)
    if item.name == operation.id:
        return callback_tag(task.name) in operation.tags
    return task.is_callback
