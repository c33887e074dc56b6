"""What `ItemGraph.apply` does before its transaction; a thread can do it while another one runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scrapy_itemgraph.changesets import additions
from scrapy_itemgraph.exceptions import OperationError
from scrapy_itemgraph.model import operations, schemes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from scrapy_itemgraph.model.operations import Checked, Operation


@dataclass(frozen=True, slots=True)
class Prepared:
    """Operations that can be stored, and what errors call each.

    `additions` is what there is to write, where they do no more than create items.
    """

    operations: Checked
    names: Sequence[str]
    additions: additions.Additions | None


def prepare(given: Iterable[Operation] | Prepared, names: Sequence[str] = ()) -> Prepared:
    """Check operations, as far as they are not `Checked` or `Prepared`.

    Raises:
        OperationError: naming the operation by `names`, or by its number; also of a request that
            only the project's own code may have fetched.

    """
    if isinstance(given, Prepared):
        return given
    if not isinstance(given, operations.Checked):
        given = list(given)
    names = names or [f"operation {number}" for number in range(1, len(given) + 1)]
    if not isinstance(given, operations.Checked):
        given = operations.Checked(
            operations.checked(one, name) for one, name in zip(given, names, strict=True)
        )
    for one, name in zip(given, names, strict=True):
        _check_request(one, name)
    return Prepared(given, names, additions.of(given))


def _check_request(operation: Operation, name: str) -> None:
    if isinstance(operation, operations.CreateItem):
        data: Any = operation.data
    elif isinstance(operation, operations.UpdateData):
        data = operation.merge
    else:
        return
    try:
        schemes.check_given(data)
    except OperationError as error:
        raise OperationError(f"{name}: {type(operation).__name__}: {error}") from None
