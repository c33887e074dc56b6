"""When rules are due, beside another computation; and what is done about what is late."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, example, settings
from hypothesis import given as of
from hypothesis import strategies as st

from scrapy_itemgraph.model.due_times import Expiry, stored_expiry
from scrapy_itemgraph.model.schedules import CatchUp, Rule, fire, jitter

MINUTE = timedelta(minutes=1)
STEP = timedelta(minutes=15)  # of the other computation, whose times are all such
GRACE = timedelta(minutes=10)
ZONES = ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"]
DAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]
YEAR = datetime(2025, 12, 31, 0, 0, tzinfo=UTC)


def at(text: str) -> datetime:
    """Return a moment in UTC."""
    return datetime.fromisoformat(text).astimezone(UTC)


@cache
def walls(zone: str) -> list[tuple[datetime, datetime]]:
    """Return each quarter of a year with what a clock shows, as zoneinfo alone has it."""
    place = ZoneInfo(zone)
    moments = [YEAR + n * STEP for n in range(366 * 96)]
    return [(one, one.astimezone(place).replace(tzinfo=None, fold=0)) for one in moments]


def fixed(zone: str, times: set[tuple[int, int]]) -> list[datetime]:
    """Return when times of the day come: shown first, or else leapt over between two quarters."""
    found, shown = [], set()
    for (_, before), (moment, wall) in pairwise(walls(zone)):
        leapt = [before + n * STEP for n in range(1, (wall - before) // STEP)]
        due = [one for one in (*leapt, wall) if (one.hour, one.minute) in times]
        if any(one not in shown for one in due):
            found.append(moment)
        shown.update(due)
    return found


@pytest.mark.parametrize("zone", ZONES)
def test_times_of_the_day(zone):
    """SS-6: a year of times of the day, also those that a clock leaps over or shows twice."""
    times = {(0, 0), (1, 45), (2, 0), (2, 15), (2, 30), (3, 0), (15, 30)}
    rule = Rule.read({"at": [f"{hour}:{minute:02}" for hour, minute in times]}, time_zone=zone)

    wanted = fixed(zone, times)

    assert list(islice(rule.following(YEAR), len(wanted))) == wanted


@pytest.mark.parametrize("zone", ZONES)
def test_cron_of_fixed_times(zone):
    """A line of cron without a star in minute and hour is due by the clock, as Debian has it."""
    rule = Rule.read({"cron": "15,30 2 * * 0,1"}, time_zone=zone)
    sundays = [
        one
        for one in fixed(zone, {(2, 15), (2, 30)})
        if one.astimezone(ZoneInfo(zone)).isoweekday() in {7, 1}
    ]

    assert list(islice(rule.following(YEAR), len(sundays))) == sundays


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize(
    ("line", "minutes", "hours"),
    [("0,30 */3 * * *", {0, 30}, range(0, 24, 3)), ("*/15 1,2 * * *", {0, 15, 30, 45}, {1, 2})],
)
def test_cron_of_real_time(zone, line, minutes, hours):
    """A line with a star in them is due whenever the clock shows it, twice in an hour of two."""
    rule = Rule.read({"cron": line}, time_zone=zone)
    wanted = [one for one, wall in walls(zone)[1:] if wall.minute in minutes and wall.hour in hours]

    assert list(islice(rule.following(YEAR), len(wanted))) == wanted


# The first and the last value of each field, and the names of some.
FIELDS = ((0, 59, ()), (0, 23, ()), (1, 31, ()), (1, 12, ["JAN", "FEB", "MAR"]), (0, 7, DAYS))


@st.composite
def cron_fields(draw, first, last, names):
    """Return a field of cron as a text, and its values, as the manual of cron has them."""
    text, values = [], set()

    def shown(value):
        name = names[value - first] if value - first < len(names) else f"{value:02}"
        return draw(st.sampled_from([str(value), f"{value:02}", name]))

    for _ in range(draw(st.integers(1, 3))):
        begin = draw(st.integers(first, last))
        end = draw(st.sampled_from([begin, draw(st.integers(begin, last)), last]))
        step = draw(st.integers(1, 9))
        if draw(st.booleans()):
            text.append(f"{shown(begin)}-{shown(end)}/{step}")
        elif draw(st.booleans()):
            text.append(f"{shown(begin)}-{shown(end)}")
            step = 1
        elif draw(st.booleans()):
            text.append(shown(begin))
            end = begin
        else:
            text.append(f"*/{step}" if step > 1 else "*")
            begin, end = first, last
        values.update(range(begin, end + 1, step))
    return ",".join(text), values


def on_day(line, days, weekdays, day):
    """Tell whether a line is due on a day: if none of its two fields has a star, one suffices."""
    in_month, in_week = day.day in days, day.isoweekday() in {one or 7 for one in weekdays}
    has_star = any(line.split()[at].startswith("*") for at in (2, 4))
    return (in_month and in_week) if has_star else (in_month or in_week)


@of(st.tuples(*(cron_fields(*one) for one in FIELDS)))
@example(
    (
        ("5", {5}),
        ("23-23/3", {23}),
        ("*", set(range(1, 32))),
        ("*", set(range(1, 13))),
        ("*", {*range(8)}),
    )
)
@example(
    (("7-07/3", {7}), ("0-0/5", {0}), ("*", set(range(1, 32))), ("2-FEB/2", {2}), ("SUN-0/2", {0}))
)
@settings(max_examples=200, deadline=None)
def test_cron_beside_an_oracle(fields):
    """Values, ranges, steps, lists and names of a line mean what the manual of cron says."""
    line = " ".join(text for text, _ in fields)
    minutes, hours, days, months, weekdays = (values for _, values in fields)
    begin = datetime(2026, 2, 27, tzinfo=UTC)
    dates = (begin + timedelta(days=n) for n in range(800))
    due = (
        day.replace(hour=hour, minute=minute)
        for day in dates
        if day.month in months and on_day(line, days, weekdays, day)
        for hour in sorted(hours)
        for minute in sorted(minutes)
    )
    wanted = list(islice((one for one in due if one > begin), 100))
    assume(wanted)

    assert list(islice(Rule.read({"cron": line}).following(begin), len(wanted))) == wanted


def test_change_of_clock():
    """A leap runs right after it, an hour of two the first time, and what was is never due."""
    rule = Rule.read({"cron": "30 2 * * *"}, time_zone="Europe/Berlin")

    assert rule.next_after(at("2026-03-28T12:00Z")) == at("2026-03-29T03:00+02:00")
    assert rule.next_after(at("2026-10-24T12:00Z")) == at("2026-10-25T02:30+02:00")
    assert rule.next_after(at("2026-10-25T02:15+01:00")) == at("2026-10-26T02:30+01:00")


def test_days_without_a_midnight():
    """A day that begins at one, and one that a place left out, are due right after the leap."""
    night = Rule.read({"at": "00:30"}, time_zone="Africa/Cairo")
    left_out = Rule.read({"at": "03:00"}, time_zone="Pacific/Apia")

    assert night.next_after(at("2026-04-23T12:00Z")) == at("2026-04-24T01:00+03:00")
    assert list(islice(left_out.following(at("2011-12-29T20:00Z")), 2)) == [
        at("2011-12-31T00:00+14:00"),
        at("2011-12-31T03:00+14:00"),
    ]


def test_periods():
    """A period counts real time from its start, which is due itself."""
    rule = Rule.read({"every": "36h"}, starts_at=at("2026-03-28T12:00Z"))

    assert list(islice(rule.following(at("2026-01-01T00:00Z")), 3)) == [
        at("2026-03-28T12:00Z"),
        at("2026-03-30T00:00Z"),
        at("2026-03-31T12:00Z"),
    ]


@pytest.mark.parametrize(
    ("given", "zone", "said"),
    [
        ({"cron": "0 0 30 2 *"}, None, "bad day-of-month"),
        ({"cron": "0 0 31 4,6 *"}, None, "bad day-of-month"),
        ({"cron": "0 0 * *"}, None, "has 4 fields; write five, minute hour"),
        ({"cron": "61 0 * * *"}, None, "bad minute"),
        ({"cron": "0 3 * * MON-SUN"}, None, "SUN (0), which 7 is as well: write 1-7 for MON-SUN"),
        ({"cron": "0 3 * * 3,fri-mon"}, None, "write 5-7,1 for FRI-MON"),
        ({"cron": "0 3 * * 6-2"}, None, "write 6-7,1-2 for 6-2"),
        ({"at": "25:00"}, None, 'write "03:00"'),
        ({"at": []}, None, 'write "03:00"'),
        ({"every": "30s"}, None, "a minute or more"),
        ({"every": "6h"}, "Europe/Berlin", "leave time_zone out"),
        ({"at": "03:00"}, "berlin", "did you mean 'Europe/Berlin'"),
        ({"at": "03:00"}, "Europe/Berln", "did you mean 'Europe/Berlin'"),
        ({"at": "03:00"}, "Europe", "there is no time zone"),
        ({"at": "03:00"}, "../etc/passwd", "there is no time zone"),
        ({"at": "03:00"}, 3, "there is no time zone 3"),
        ({"at": "03:00", "every": "6h"}, None, "give one of every= or at= or cron="),
        ({}, None, "not none"),
    ],
)
def test_wrong_rules(given, zone, said):
    """What can never be due, or is no rule, is refused with what to write."""
    with pytest.raises(ValueError, match=re.escape(said)):
        Rule.read(given, time_zone=zone)


@pytest.mark.parametrize(
    ("catch_up", "runs", "missed"), [("one", 1, 71), ("none", 0, 72), ("all", 72, 0)]
)
def test_three_days_late(catch_up, runs, missed):
    """Of three days that nobody noticed the latest due time runs, or none, or all."""
    rule = Rule.read({"cron": "0 * * * *"}, time_zone="America/New_York")
    now = at("2026-11-04T00:30Z")

    fired = fire(
        rule, at("2026-11-01T01:00Z"), now, catch_up=CatchUp(catch_up), grace=timedelta(minutes=5)
    )

    assert (len(fired.runs), fired.missed) == (runs, missed)
    assert fired.runs[-1:] == [at("2026-11-04T00:00Z")][: len(fired.runs)]
    assert fired[2:] == (at("2026-11-04T00:00Z"), at("2026-11-04T01:00Z"))


@pytest.mark.parametrize("given", [{"every": "1m"}, {"cron": "* * * * *"}])
def test_years_late(given):
    """After years the latest hundred may run, and missed ones are counted up to ten thousand."""
    rule, now = Rule.read(given), at("2026-11-04T00:30:30Z")

    fired = fire(rule, at("2024-01-01T00:00Z"), now, catch_up=CatchUp.ALL, grace=GRACE)

    assert fired.runs == [at("2026-11-04T00:30Z") - n * MINUTE for n in range(99, -1, -1)]
    assert fired.missed == 9_900
    assert fired.next_at == at("2026-11-04T00:31Z")


def test_rare_and_late():
    """A leap year's day that was missed is found."""
    rule = Rule.read({"cron": "0 0 29 2 *"})

    fired = fire(
        rule, at("2024-02-29T00:00Z"), at("2026-11-04T00:00Z"), catch_up=CatchUp.ONE, grace=GRACE
    )

    assert fired == ([at("2024-02-29T00:00Z")], 0, at("2024-02-29T00:00Z"), at("2028-02-29T00:00Z"))


def test_in_time():
    """Without a delay one due time runs, whatever is done about missed ones."""
    rule, due = Rule.read({"at": "03:00"}), at("2026-11-04T03:00Z")

    for catch_up in CatchUp:
        fired = fire(rule, due, due + timedelta(seconds=1), catch_up=catch_up, grace=GRACE)
        assert fired == ([due], 0, due, due + timedelta(days=1))


def test_jitter():
    """The same due time is always later by the same, and others are spread."""
    due, most = at("2026-11-04T03:00Z"), timedelta(hours=1)
    found = {jitter(schedule, due, most) for schedule in range(100)}

    assert jitter(1, due, most) == jitter(1, due.astimezone(ZoneInfo("Asia/Tokyo")), most)
    assert len(found) == 100
    assert timedelta() <= min(found) < timedelta(minutes=5)
    assert timedelta(minutes=55) < max(found) < most


def test_expiry():
    """A result expires at the next due time after its completion, each item at its own."""
    alone = Expiry.read({"at": "03:00"}, time_zone="Europe/Berlin")
    spread = Expiry.read({"at": "03:00"}, time_zone="Europe/Berlin", spread="1h")
    done, due = at("2026-11-04T12:00:30Z"), at("2026-11-05T03:00+01:00")
    found = [spread.next_due(done, item) for item in range(50)]

    assert alone.next_due(done, 1) == due
    assert len({*found}) == 50
    assert all(due <= one < due + timedelta(hours=1) for one in found)
    assert spread.next_due(found[7], 7) == found[7] + timedelta(days=1)
    assert alone.next_due(due, 1) == due + timedelta(days=1)


def test_stored_expiry():
    """What is stored with a task says the same again, and how it reads."""
    for given, zone, spread, words in [
        ({"every": "90m"}, None, None, "every 1h30m"),
        ({"at": "15:30,3:00"}, "Asia/Kathmandu", None, "at 03:00 and 15:30 Asia/Kathmandu"),
        ({"cron": "0 3 * * mon"}, None, "1h", "cron 0 3 * * MON UTC, spread over 1h"),
    ]:
        expiry = Expiry.read(given, time_zone=zone, spread=spread)
        assert stored_expiry(expiry.as_json()) == expiry
        assert str(expiry) == words
    assert stored_expiry(None) is None
