"""The rules that a worker's claims keep to: read and compiled once, when they have changed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from scrapy_itemgraph.model.rule_matching import CompiledRules
from scrapy_itemgraph.store import notify
from scrapy_itemgraph.store.registry import rulesets
from scrapy_itemgraph.tools import logs
from scrapy_itemgraph.tools.async_tools import either

if TYPE_CHECKING:
    from scrapy_itemgraph.connections.process import OwnProcess
    from scrapy_itemgraph.connections.transactions import Transactions
    from scrapy_itemgraph.model.rules import StoredRuleset
    from scrapy_itemgraph.model.work import Claim

logger = logs.logger(__name__)

_LONGEST = 3600.0  # seconds that news are waited for at a time


class WorkerRules:
    """The rules of one worker's crawl, as of its last claim; without any it asks nothing.

    `compiled` are those of the last claim, None as long as there are none.
    """

    def __init__(self, transactions: Transactions, process: OwnProcess) -> None:
        self.compiled: CompiledRules | None = None
        self._call = transactions.call
        self._crawl_id = transactions.crawl_id
        self._news = process.session.subscribe(notify.of_rules(transactions.crawl_id))
        self._id: int | None = None  # of those that are compiled
        self._seen: int | None = None  # of those that others have put in force meanwhile
        self._told: int | None = None  # of those for which a wait has ended
        self._changed = asyncio.Event()

    def see(self, ruleset_id: int | None) -> None:
        """Take note of which rules are in force, as a transaction has read it beside others."""
        if ruleset_id != self._seen:
            self._seen = ruleset_id
            self._changed.set()

    async def make_ready(self, ruleset_id: int | None) -> None:
        """Have the rules compiled that a claim keeps to.

        Raises:
            ConfigurationError: google-re2 is not installed.

        """
        if ruleset_id == self._id:
            return
        self._seen = ruleset_id
        found = None if ruleset_id is None else await self._call(rulesets.one, ruleset_id)
        if found is None:
            self._id, self.compiled = ruleset_id, None
            return
        self.compiled = await asyncio.to_thread(CompiledRules, found.ruleset)
        self._id = ruleset_id
        _say(found)

    def of(self, claim: Claim) -> CompiledRules | None:
        """Return the rules that a claim of the last transaction keeps to; None: there are none."""
        return None if claim.ruleset_id is None else self.compiled

    async def wait_for_others(self) -> None:
        """Wait until other rules are in force than those of the last claim; once for each."""
        while self._seen in {self._id, self._told}:
            self._changed.clear()
            news = await either(self._changed, self._news.wait(_LONGEST))
            if not news.cancelled() and news.result():
                self.see(await self._call(rulesets.id_in_force, self._crawl_id))
        self._told = self._seen


def _say(found: StoredRuleset) -> None:
    count = len(found.ruleset.rules)
    rules = "1 rule" if count == 1 else f"{count:,} rules"
    logger.info(
        "From now on pages keep to ruleset %s of the crawl, %s, made by %s",
        f"{found.number:,}",
        rules,
        found.created_by,
        extra={"action": "rules", "ruleset": found.number},
    )
