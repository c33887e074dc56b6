"""What people read of a simulation, wide and narrow, with colours and without."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta

import pytest

from scrapy_itemgraph.commands import printing, simulation_lines
from scrapy_itemgraph.model.operations import Changeset
from scrapy_itemgraph.model.simulations import (
    Change,
    ItemPicture,
    ResultPicture,
    Simulation,
    WorkPicture,
)
from scrapy_itemgraph.model.work import Applied, Outcome

NOW = datetime(2026, 3, 1, tzinfo=UTC)
COLOUR = re.compile(r"\x1b\[\d*m")
ENDING = "\nnothing was changed: this was a simulation"


def picture(name, **fields):
    """Return an item as it is at one moment."""
    plain = {"aliases": (), "tags": {}, "data": {}, "created_by": None}
    return ItemPicture(id=name, **{**plain, **fields})


def result(state, hours=None, **metadata):
    """Return a result that expires in so many hours."""
    return ResultPicture(
        state=state,
        version="2",
        metadata=metadata,
        completed_at=None if state == "never run" else NOW,
        expires_at=None if hours is None else NOW + timedelta(hours=hours),
    )


def work(slot="a.example", **fields):
    """Return outstanding work."""
    return WorkPicture(**{"is_stale": False, "nice": 0, "not_before": None, "slot": slot, **fields})


def written(*changes, **more):
    """Return the lines of a simulation with these changes."""
    document = {
        "task": "parse",
        "item": "A",
        "url": None,
        "method": None,
        "is_made_up": False,
        "is_fetched_again": False,
        "yielded": [],
        "has_yielded": True,
        "not_yielded": [],
        "outcome": "ok",
        "error": None,
        "allow_failure": False,
        "released_because": None,
        "retry_in": None,
        "requests": [],
        "dropped": [],
        "scraped": [],
        "log": [],
        "warnings": [],
        **more,
    }
    simulation = Simulation(
        changeset=Changeset(operations=(), outcome=Outcome.OK),
        applied=Applied(outcome=Outcome.OK),
        changes=changes,
        now=NOW,
    )
    return "\n".join(simulation_lines.lines(document, simulation, ()))


CHANGED = Change(
    kind="renamed",
    before=picture(
        "URL:1",
        tags={"page": None, "rank": 1},
        data={"price": 1, "old": True, "same": [1]},
        results={"parse": result("stale", a=1)},
        work={"parse": work(), "late": work()},
    ),
    after=picture(
        "SKU:1",
        aliases=("URL:1",),
        tags={"rank": 2, "new": None},
        data={"price": 2, "same": [1], "title": "T"},
        results={"parse": result("fresh", 24, a=2)},
        work={"reviews": work(), "again": work(is_stale=True, slot="", not_before=NOW)},
    ),
)


def test_an_item_is_written_key_by_key():
    """Names, tags, data, results, metadata and work are told by what was added, changed or went."""
    assert written(CHANGED) == (
        """parse of A: ok

~ URL:1 -> SKU:1 (renamed)
    + alias SKU:1
    - tag page
    ~ tag rank: 1 -> 2
    + tag new
    ~ data.price: 1 -> 2
    - data.old: true
    + data.title: "T"
    ~ parse: stale -> fresh, version 2, expires in 1d
      ~ metadata.a: 1 -> 2
    - work for late
    + work for reviews: never run, slot a.example
    + work for again: stale, not before 2026-03-01 00:00:00Z
"""
        + ENDING
    )


def test_a_page_that_a_new_run_fetches_again_is_not_said_never_to_expire():
    """A plain page that is done says what a new run does with it; "never" is of what stays done."""
    page = picture("REQ:1", results={"parse": result("held"), "other": result("stale")})
    done = picture("REQ:1", results={"parse": result("fresh"), "other": result("fresh")})
    changed = Change(kind="changed", before=page, after=done)

    again = written(changed, is_fetched_again=True).splitlines()
    never = written(changed).splitlines()

    assert again[3] == "    ~ parse: held -> fresh, version 2"
    assert again[4] == (
        "      a new run fetches it again when it comes to it, unless ITEMGRAPH_DEFAULT_TTL "
        "(-s ITEMGRAPH_DEFAULT_TTL=never) or ITEMGRAPH_CALLBACKS says how long it stays done"
    )
    assert again[5] == never[4] == "    ~ other: stale -> fresh, version 2, expires never"
    assert never[3] == "    ~ parse: held -> fresh, version 2, expires never"

    failed = Change(kind="changed", before=done, after=page)
    held = written(failed, is_fetched_again=True).splitlines()
    assert held[3:5] == [
        "    ~ parse: fresh -> held, version 2",
        "    ~ other: fresh -> stale, version 2",
    ]


def test_items_come_and_go():
    """New items are written whole, up to twenty; of those that go it is told where to."""
    new = [
        Change(kind="new", after=picture(f"N{n}", tags={"t": 1}, data={"n": n})) for n in range(22)
    ]
    merged = Change(kind="merged", before=picture("B"), into="C")
    deleted = Change(kind="deleted", before=picture("D"))

    said = written(*new, merged, deleted)

    assert said.startswith("parse of A: ok\n\n- B (merged into C)\n\n- D (deleted)\n\n+ N0 (new)\n")
    assert "+ N19 (new)\n    + tag t: 1\n    + data.n: 19\n\nand 2 more new items" in said
    assert "N20" not in said


def test_a_failure_is_written():
    """An error is told with the line that raised it, and with what would not be kept."""
    error = {
        "type": "ValueError",
        "message": "no price",
        "traceback": 'Traceback:\n  File "lib.py", line 1, in f\n  File "s.py", line 9, in parse\n',
    }
    dropped = [{"op": "createItem", "id": "X", "data": {"n": 1}}] * 21

    said = written(outcome="failed", error=error, dropped=dropped)

    assert said.startswith(
        'parse of A: failed\n    ValueError: no price\n    File "s.py", line 9, in parse\n'
        "    the pair would be held; what it yielded is not kept\n"
    )
    assert 'not kept: 21 operations\n    createItem id="X", data={"n": 1}\n' in said
    assert "    and 1 more; --json has all\n" in said


@pytest.mark.parametrize("columns", [30, 50, 100])
def test_lines_fit_the_terminal(monkeypatch, columns):
    """A value is cut in its middle where it needs more than three lines."""
    monkeypatch.setattr(printing, "width", lambda: columns)
    long = picture("URL:" + "x" * 300, data={"text": "ab " * 300})

    lines = written(Change(kind="new", after=long), requests=[_request()]).split("\n")

    assert max(map(len, lines)) <= max(columns, len(ENDING))
    assert len(lines) < 20


def test_a_terminal_has_colours(monkeypatch):
    """What is new is green, what went red, what changed yellow; the text is the same without."""
    plain = written(CHANGED)
    monkeypatch.setattr(printing.sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)

    coloured = written(CHANGED)

    assert COLOUR.sub("", coloured) == plain
    assert '\x1b[32m+ data.title: "T"\x1b[0m' in coloured
    assert "\x1b[31m- data.old: true\x1b[0m" in coloured
    assert "\x1b[33m~ data.price: 1 -> 2\x1b[0m" in coloured


def test_what_comes_from_a_page_steers_no_terminal():
    """Control characters in data, ids and logs are escaped."""
    said = written(
        Change(kind="new", after=picture("A\x1b[2J", data={"t": "\x1b[31m"})),
        log=[{"seconds": 0.1, "category": "info", "message": "\x1b[2J"}],
        scraped=["{'a': '\x1b'}"],
    )

    assert "\x1b" not in said


def _request():
    return {
        "method": "GET",
        "url": "http://a.example/" + "y" * 200,
        "status": 200,
        "source": "saved",
        "cookies": {},
    }


def test_requests_are_written_by_their_urls():
    """Those that the graph has not seen come first; none is written as an item again."""
    found = [
        {"url": "http://a.example/1", "method": "GET", "is_new": False},
        {"url": "http://a.example/2", "method": "POST", "is_new": True},
    ]
    requests = [
        {**one, "item": f"REQ:{place}", "callback": "parse"} for place, one in enumerate(found)
    ]
    new = Change(kind="new", after=picture("REQ:1", data={"url": found[1]["url"], "request": {}}))

    said = written(
        new, item="REQ:9", url="http://a.example/", method="GET", yielded=requests
    ).splitlines()

    assert said[0] == "parse of http://a.example/: ok"
    assert said[2:5] == [
        "requests: 1 new, 1 known",
        "    + POST http://a.example/2 -> parse",
        "    http://a.example/1 -> parse (known)",
    ]
    assert not any("REQ:" in line for line in said)


def test_what_was_made_and_not_yielded_is_written_with_its_line():
    """A callback without a `yield` is told from one that had nothing to say; a failure is not."""
    made = {"made": "CreateItem A", "line": 'File "/s.py", line 3, in S.parse', "times": 2}

    assert written(has_yielded=False, not_yielded=[made], is_made_up=True) == (
        """parse of A: ok
    made up: the graph does not have this item
    nothing was yielded
    made and not yielded, 2 times: CreateItem A
        File "/s.py", line 3, in S.parse
"""
        + ENDING
    )
    assert "nothing was yielded" not in written(outcome="failed", has_yielded=False)


def test_cookies_of_a_request_are_written_and_long_values_cut():
    """What may be a secret is not written whole."""
    cookies = {"lang": "en", "session": "s" * 40}
    got = {"status": 200, "method": "GET", "url": "http://a.example/", "source": "website"}

    assert written(requests=[{**got, "cookies": cookies}]).splitlines()[1] == (
        "    cookies: lang=en; session=ssssssssssss… (40 characters)"
    )


def test_the_line_of_the_project_is_written_where_a_library_raised():
    """What a person can mend is named; a page is held, and no pair."""
    own = '  File "/home/a/books.py", line 41, in parse'
    theirs = f'  File "{json.__file__}", line 1, in loads'
    error = {"type": "ValueError", "message": "no", "traceback": f"Traceback\n{own}\n{theirs}\nno"}

    said = written(outcome="failed", error=error, method="GET", allow_failure=True)
    unknown = written(outcome="failed", error={**error, "traceback": f"{theirs}\nno"})

    assert f"    {own.strip()}\n    the page would be held; what it yielded is kept\n" in said
    assert theirs not in said
    assert theirs in unknown


def test_names_by_which_requests_are_stored_are_not_written():
    """An alias that a carried or redirected request leaves says nothing to a person."""
    after = picture("REQ:1", aliases=("REQ:2", "B"))

    changed = written(Change(kind="changed", before=picture("REQ:1"), after=after))

    assert "alias B" in changed
    assert "REQ:2" not in changed
