"""What `ItemGraph.apply` does before its transaction; a thread can do it while another one runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from scrapy_itemgraph.changesets import additions
from scrapy_itemgraph.model import operations

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
    """Check operations, unless they are `Checked` or `Prepared`.

    Raises:
        OperationError: naming the operation by `names`, or by its number.

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
    return Prepared(given, names, additions.of(given))
