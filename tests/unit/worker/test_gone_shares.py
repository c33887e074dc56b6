"""How many of a slot's last answers are of pages that are gone."""

from __future__ import annotations

import logging

from scrapy_itemgraph.worker.spider.gone_shares import LAST, MOST, GoneShares


def answer(shares: GoneShares, *answers: str, slot: str = "a.example") -> None:
    """Have a slot answer: "gone" or anything else."""
    for one in answers:
        shares.answered(slot)
        if one == "gone":
            shares.found_gone(slot)


def test_more_than_a_fifth_of_the_last_answers_is_doubtful(caplog):
    """It is said once of each slot, with the figures and what to do."""
    shares = GoneShares()
    caplog.set_level(logging.WARNING)

    answer(shares, *["ok"] * 50, *["gone", "ok", "ok", "ok"] * MOST)
    before = shares.are_doubtful("a.example")
    answer(shares, *["gone"] * 20)
    answer(shares, "gone", slot="b.example")

    assert not before
    assert shares.are_doubtful("a.example")
    assert not shares.are_doubtful("b.example")
    (record,) = caplog.records
    assert record.getMessage().startswith(
        f"{MOST + 1} of the last {MOST * 4 + 1} answers of a.example say"
    )
    assert "scrapy itemgraph handle --gone" in record.getMessage()


def test_old_answers_do_not_count():
    """What was gone before the last 500 answers says nothing of the website now."""
    shares = GoneShares()
    answer(shares, *["gone"] * (MOST + 1))
    assert shares.are_doubtful("a.example")

    answer(shares, *["ok"] * (LAST - MOST))

    assert not shares.are_doubtful("a.example")


def test_a_small_share_is_never_doubtful():
    """One page in ten that is gone is the web as it is."""
    shares = GoneShares()

    answer(shares, *["gone", *["ok"] * 9] * 200)

    assert not shares.are_doubtful("a.example")
