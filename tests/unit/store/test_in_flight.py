"""Which new claims may begin at once: as many as the engine and their slots take."""

from __future__ import annotations

from support.parts import a_claim

from scrapy_itemgraph.model.limits import SlotTerms, Terms
from scrapy_itemgraph.model.work import InFlight
from scrapy_itemgraph.store.in_flight import first_of

CLAIMS = [a_claim(n, slot=slot) for n, slot in enumerate(("a", "a", "b", "b", ""), 1)]


def items(given: InFlight, terms: SlotTerms | None = None) -> list[int]:
    """Return the items of what begins at once."""
    return sorted(item for item, _ in first_of(CLAIMS, given, terms or SlotTerms()))


def test_a_slot_in_hand_has_the_places_that_its_limit_has_left():
    """Of a slot without a limit all may begin, and without a download, too."""
    assert items(InFlight(room=9, places={"a": 1})) == [1, 3, 4, 5]
    assert items(InFlight(room=9, places={"a": 0, "b": 2})) == [3, 4, 5]


def test_a_slot_that_the_claim_took_has_its_places_whole():
    """One where it keeps a gap, else as many as may run at once."""
    terms = SlotTerms(Terms(gap=1.0, concurrency=8), {"b": Terms(concurrency=2)})

    assert items(InFlight(room=9), terms) == [1, 3, 4, 5]


def test_no_more_begin_than_the_engine_takes():
    """The first ones of the claim do."""
    assert items(InFlight(room=2)) == [1, 2]
    assert items(InFlight(room=0)) == []
