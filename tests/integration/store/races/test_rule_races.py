"""Races of rules: changed while they are applied, applied while their pages are claimed or end."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from support.raced_books import book
from support.races import ended

from scrapy_itemgraph.model.rules import PageRule, Ruleset
from scrapy_itemgraph.model.work import Outcome
from scrapy_itemgraph.store.registry import item_sweeps, rule_sweeps, rulesets

pytestmark = pytest.mark.server

JUNK = Ruleset(rules=(PageRule(match="/junk", skip=True),))
HOLDS = "SELECT i.name FROM results r JOIN items i ON i.id = r.item_id WHERE r.hold = 'skipped'"


@pytest.fixture
def junk(crawl):
    """Return a crawl with three pages, of which rules skip two; they are being applied."""
    crawl.seed(book("junk1"), book("junk2"), book("good"))
    with crawl.engine.begin() as connection:
        rulesets.put(connection, crawl.id, JUNK, after=0, by="ann")
        assert rule_sweeps.begin(connection, crawl.id)
    return crawl


def skipped(crawl):
    """Return what is skipped, as committed."""
    return sorted(name for (name,) in crawl.rows(HOLDS))


def test_rules_that_change_while_they_are_applied_are_applied_in_their_place(junk, pair):
    """MNB-12: a change waits for the step under way, and the next step begins anew with it."""
    stepper, changer = pair
    stepper.pause_before(rule_sweeps.ADVANCE)
    stepper.start(item_sweeps.sweep, junk.id)
    stepper.until_paused()
    changer.start(rulesets.put, junk.id, Ruleset(), after=1, by="bob")
    changer.until_blocked()
    assert stepper.resume()
    stepper.commit()
    assert changer.resume().number == 2
    changer.commit()

    assert skipped(junk) == ["junk1", "junk2"]
    (row,) = junk.rows(
        "SELECT r.number, s.task_id, s.after_item_id FROM sweeps s JOIN rulesets r "
        "ON r.id = s.ruleset_id"
    )
    assert tuple(row) == (2, None, 0)
    junk.sweep()
    assert skipped(junk) == []
    assert len(junk.outstanding()) == 3


def test_two_processes_apply_rules_one_step_at_a_time(junk, pair):
    """MNB-12: who finds a step under way leaves it to the other, and waits for nothing."""
    first, second = pair
    first.pause_before(rule_sweeps.ADVANCE)
    first.start(item_sweeps.sweep, junk.id)
    first.until_paused()
    assert second.run(rule_sweeps.do_step, junk.id)  # it goes on, elsewhere
    second.commit()
    assert first.resume()
    first.commit()

    assert skipped(junk) == ["junk1", "junk2"]


def test_a_page_that_is_claimed_keeps_to_the_rules_of_its_claim(junk, pair):
    """MNB-12: what applying rules meets under a claim ends as its own rules have it."""
    worker = junk.worker()
    claims = {one.item.id: one for one in junk.claimed(worker)}
    junk.sweep()
    assert skipped(junk) == []  # all were claimed
    first, second = pair
    first.run(junk.apply, ended(claims["junk1"]), worker=worker)
    first.commit()
    second.run(junk.apply, ended(claims["junk2"], outcome=Outcome.SKIPPED), worker=worker)
    second.commit()

    assert skipped(junk) == ["junk2"]
    outcomes = junk.rows("SELECT outcome FROM attempts ORDER BY id")
    assert [one for (one,) in outcomes] == ["ok", "skipped"]


def test_a_page_that_is_skipped_at_its_turn_while_others_free_it_is_one_or_the_other(junk, pair):
    """MNB-7: rules skip a page as they are changed: it is set aside once, and no work is left."""
    worker = junk.worker()
    claims = {one.item.id: one for one in junk.claimed(worker)}
    skipper, freer = pair
    skipper.run(junk.apply, ended(claims["junk1"], outcome=Outcome.SKIPPED), worker=worker)
    at = sa.text("UPDATE sweeps SET task_id = :task").bindparams(task=junk.task_id("parse"))
    freer.run(lambda connection: connection.execute(at))
    freer.run(rulesets.put, junk.id, Ruleset(), after=1, by="bob")
    freer.commit()
    skipper.commit()
    junk.sweep()

    assert skipped(junk) == []  # the sweep came after it
    assert ("junk1", "parse") in {
        tuple(one)[:2]
        for one in junk.rows(
            "SELECT i.name, t.name FROM work w JOIN items i ON i.id = w.item_id "
            "JOIN tasks t ON t.id = w.task_id"
        )
    }
