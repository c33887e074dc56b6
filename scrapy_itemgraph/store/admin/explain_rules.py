"""What the rules of a crawl have to do with a page, for who asks why it runs or does not."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlalchemy import text

from scrapy_itemgraph.exceptions import ConfigurationError
from scrapy_itemgraph.model.rule_matching import compiled
from scrapy_itemgraph.model.rules import Setting
from scrapy_itemgraph.model.set_aside import Hold
from scrapy_itemgraph.store.registry import rulesets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

    from scrapy_itemgraph.model.rules import StoredRuleset
    from scrapy_itemgraph.store.admin.explain import Explanation

URL = text("""
    SELECT CASE WHEN i.url_key IS NOT NULL AND json_typeof(i.data->'url') = 'string'
        THEN i.data->>'url' END FROM items i WHERE i.id = :item
""")


def with_rules(
    connection: Connection, crawl_id: int, item_id: int, found: Sequence[Explanation]
) -> list[Explanation]:
    """Return explanations with what the rules in force say of the item's URL."""
    stored = rulesets.in_force(connection, crawl_id)
    url = connection.execute(URL, {"item": item_id}).scalar() if stored.number else None
    if url is None:
        return list(found)
    skips, others = _said(stored, url)
    explained = []
    for one in found:
        is_skipped = one.state == Hold.SKIPPED
        own = [skips if is_skipped or not skips else f"at its turn {skips}"]
        if is_skipped and not skips:
            own = [
                "no rule skips it now; scrapy itemgraph rules apply takes back what rules skipped"
            ]
        reasons = (*one.reasons, *(said for said in (*own, *others) if said))
        explained.append(replace(one, reasons=reasons))
    return explained


def _said(stored: StoredRuleset, url: str) -> tuple[str, list[str]]:
    """Say by which rule a page is skipped, if one does; and what else rules say of it."""
    try:
        decided = compiled(stored.ruleset).decide(url)
    except ConfigurationError as error:
        return "", [str(error)]
    patterns = {place: one.match for place, one in enumerate(stored.ruleset.rules, start=1)}

    def by(setting: Setting) -> str:
        place = decided.by.get(setting)
        return "" if place is None else f"rule {place} ({patterns[place]})"

    skips = f"{by(Setting.SKIP)} skips it" if decided.skip else ""
    others = []
    if not decided.accept:
        others.append(f"links to it are refused now, by {by(Setting.ACCEPT) or 'default'}")
    return skips, others
