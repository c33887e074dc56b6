"""What operations on blobs do to a draft."""

from __future__ import annotations

from datetime import timedelta

from scrapy_itemgraph.changesets.item_operations import ChangesetRun, applies
from scrapy_itemgraph.changesets.state import Blob
from scrapy_itemgraph.exceptions import OperationError
from scrapy_itemgraph.model import operations as ops


@applies(ops.AttachBlob)
def attach_blob(run: ChangesetRun, operation: ops.AttachBlob) -> None:
    """Attach content to an item; what it had under the name is replaced."""
    item = run.item(operation.id)
    number = operation.content.number
    if number is None:
        raise OperationError("its content is in no store yet")
    run.update(item)
    state = run.draft.state
    state.attached += 1  # of one transaction's the later is later, too
    moment = state.now + timedelta(microseconds=state.attached)
    label = "replaced" if operation.name in item.blobs else "attached"
    item.set_blob(operation.name, Blob(number, operation.mime, moment))
    run.note(operation, label, item, operation.name)


@applies(ops.DetachBlob)
def detach_blob(run: ChangesetRun, operation: ops.DetachBlob) -> None:
    """Take a blob from an item."""
    item = run.item(operation.id)
    run.update(item)
    label = "detached" if operation.name in item.blobs else "unknown"
    item.drop_blob(operation.name)
    run.note(operation, label, item, operation.name)
