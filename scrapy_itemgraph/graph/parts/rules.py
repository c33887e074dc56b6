"""`graph.rules`: which pages belong to a crawl, and how they are asked for."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from scrapy_itemgraph.exceptions import NotFoundError, OperationError
from scrapy_itemgraph.model import input_checks
from scrapy_itemgraph.model.page_names import stored_urls
from scrapy_itemgraph.model.rule_matching import CompiledRules, compiled
from scrapy_itemgraph.model.rules import PageRule, Ruleset, StoredRuleset, added, checked
from scrapy_itemgraph.postgres import engine
from scrapy_itemgraph.store.admin import progress_reports
from scrapy_itemgraph.store.registry import rule_sweeps, rulesets

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import Connection

    from scrapy_itemgraph.graph.crawl_transactions import CrawlTransactions
    from scrapy_itemgraph.model.rule_matching import Decision
    from scrapy_itemgraph.store.admin.progress_reports import Sweep

_LONGEST_NOTE = 1000  # characters


class Rules:
    """The rules of one crawl. Each change makes another ruleset, in force from the next claim on.

    Who makes it says who they are: `by`, which the history of the crawl keeps. With `only_after`,
    the number of a ruleset, a change is refused where another one is in force.
    """

    def __init__(self, transactions: CrawlTransactions) -> None:
        self._transactions = transactions

    def get(self, number: int | None = None) -> StoredRuleset:
        """Return the ruleset in force, or the one of a number; an empty one before the first.

        Raises:
            NotFoundError: there is none of this number.

        """
        if number is None:
            return self._transactions.of_crawl(rulesets.in_force)
        found = self._transactions.of_crawl(partial(rulesets.numbered, number=number))
        if found is None:
            raise NotFoundError(
                f"the crawl has no ruleset {number}; scrapy itemgraph rules list --versions shows "
                "them"
            )
        return found

    def versions(self, *, before: int | None = None, limit: int = 100) -> Sequence[StoredRuleset]:
        """Return the crawl's rulesets, the newest first, of those with numbers below `before`."""
        return self._transactions.of_crawl(partial(rulesets.rulesets, before=before, limit=limit))

    def put(
        self,
        ruleset: Ruleset,
        *,
        by: str,
        only_after: int | None = None,
        note: str | None = None,
    ) -> StoredRuleset:
        """Put rules in force in the place of those that are.

        Raises:
            OperationError: a rule that cannot be, or others were faster.

        """
        new = checked(ruleset)
        return self.change(
            lambda _: new, by=by, said="all of them", only_after=only_after, note=note
        )

    def add(
        self,
        *rules: PageRule,
        by: str,
        at: int | None = None,
        only_after: int | None = None,
        note: str | None = None,
    ) -> StoredRuleset:
        """Add rules: the last ones, or before the one that is `at` now, from 1; raises likewise."""
        return self.change(
            lambda now: now.with_rules(rules, at),
            by=by,
            said=added(rules),
            only_after=only_after,
            note=note,
        )

    def remove(
        self,
        which: int | str,
        *,
        by: str,
        only_after: int | None = None,
        note: str | None = None,
    ) -> StoredRuleset:
        """Remove a rule, given by its number from 1 or by its pattern.

        Raises:
            NotFoundError: there is no such rule, or there are several.
            OperationError: others were faster.

        """
        return self.change(
            lambda now: now.without(which),
            by=by,
            said=f"removed {which}",
            only_after=only_after,
            note=note,
        )

    def move(
        self,
        which: int | str,
        to: int,
        *,
        by: str,
        only_after: int | None = None,
        note: str | None = None,
    ) -> StoredRuleset:
        """Move a rule to another place, from 1; raises as `remove` does."""
        return self.change(
            lambda now: now.moved(which, to),
            by=by,
            said=f"moved {which} to {to}",
            only_after=only_after,
            note=note,
        )

    def change(
        self,
        changed: Callable[[Ruleset], Ruleset],
        *,
        by: str,
        said: str,
        only_after: int | None = None,
        note: str | None = None,
    ) -> StoredRuleset:
        """Put in force what a function makes of the present rules; it may be called repeatedly.

        `said` tells in the history what was done. Raises as `put` does.
        """
        if note is not None:
            note = input_checks.check_text(note, "the note", OperationError)[:_LONGEST_NOTE]
        while True:
            before = self.get()
            if only_after is not None and before.number != only_after:
                raise OperationError(_outrun(before, only_after))
            ruleset = changed(before.ruleset)
            CompiledRules(ruleset)  # raises for a pattern that is none
            stored = self._transactions.of_crawl(
                partial(
                    rulesets.put, ruleset=ruleset, after=before.number, by=by, said=said, why=note
                )
            )
            if stored is not None:
                return stored

    def test(self, url: str, number: int | None = None) -> Decision:
        """Return what the rules in force, or those of a number, say of a URL as it is requested.

        Raises:
            NotFoundError: there is none of this number.
            OperationError: the text has no scheme, so no request has it as its URL.

        """
        if ":" not in url.partition("/")[0].strip():
            raise OperationError(f"{url!r:.200} is no URL; write one such as https://example.com/")
        return compiled(self.get(number).ruleset).decide(stored_urls(url)[-1])

    def diff(self, ruleset: Ruleset | None = None) -> rule_sweeps.Difference:
        """Return what rules, by default those in force, would change of what waits if applied.

        Raises:
            OperationError: a pattern that is none.

        """
        wanted = self.get().ruleset if ruleset is None else checked(ruleset)
        return self._transactions.of_crawl(partial(rule_sweeps.compare, ruleset=wanted))

    def apply(self) -> None:
        """Have the rules in force applied to what waits, and to what is skipped.

        Workers of the crawl do it, a thousand rows of work in a transaction; of a crawl that nobody
        runs any process that attends to it, or who calls `apply_step`.

        Raises:
            OperationError: the crawl has no rules.

        """
        if not self._transactions.of_crawl(rule_sweeps.begin):
            raise OperationError(
                "the crawl has no rules that could be applied; scrapy itemgraph rules add makes one"
            )

    def apply_step(self) -> bool:
        """Do a step of that, unless another process does one; tell whether it goes on."""

        def step(connection: Connection, crawl_id: int) -> bool:
            engine.hot_path(connection)
            return rule_sweeps.do_step(connection, crawl_id)

        return self._transactions.of_crawl(step)

    def applying(self) -> Sweep | None:
        """Return how far rules are that are being applied; None where none are."""
        found = self._transactions.of_crawl(progress_reports.sweeps)
        return next((one for one in found if one.ruleset is not None), None)


def _outrun(before: StoredRuleset, expected: int) -> str:
    who = f", made by {before.created_by}" if before.created_by else ""
    return (
        f"the rules were changed meanwhile: ruleset {before.number} is in force{who}, and not "
        f"{expected}; look at them (scrapy itemgraph rules list), and change them then"
    )
