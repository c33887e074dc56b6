"""`scrapy itemgraph schedules`: what people say of them, and what they are told (SS-6)."""

from __future__ import annotations

import pytest

SPIDERS = """
import scrapy

class BooksSpider(scrapy.Spider):
    name = "books"
"""


@pytest.fixture
def queued(scrapy, database, tmp_path, monkeypatch):
    """Return a function that runs a command in a project with a spider."""
    name = f"spiders_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(SPIDERS)
    monkeypatch.syspath_prepend(tmp_path)

    def run(*arguments, **settings):
        return scrapy(*arguments, BOT_NAME="shop", SPIDER_MODULES=[name], **settings)

    return run


def test_a_crawl_is_added_for_its_schedule_alone(queued):
    """It waits for the time of the day that it was added with, and what is shown says so."""
    added = queued("crawls", "add", "books", "--at", "3:00", "--time-zone", "Europe/Berlin")
    explained = queued("crawls", "explain", "books")
    (listed,) = queued("schedules", "list", "--json").document
    table = queued("schedules", "list")

    assert added.code == 0
    assert "is in the queue of the project shop, finished" in added.out
    assert "its schedule 1 is due next at" in explained.out
    assert "it was not started since it was added, and waits for that" in explained.out
    assert (listed["crawl"], listed["rule"]) == ("books", "at 03:00 Europe/Berlin")
    assert "at 03:00 Europe/Berlin" in table.out


def test_schedules_are_added_changed_and_removed_by_number(queued):
    """Each answer says when it is due next; what is due next is shown on its zone's clock."""
    queued("crawls", "add", "books")
    added = queued("schedules", "add", "books", "--cron", "30 2 * * 1-5", "--jitter", "5m")
    several = queued("schedules", "next", "1", "3", "--from", "2026-03-27T12:00:00Z")
    changed = queued("schedules", "set", "1", "--every", "6h", "--no-jitter", "--json").document
    disabled = queued("schedules", "disable", "1")
    shown = queued("schedules", "list")
    enabled = queued("schedules", "enable", "1")
    removed = queued("schedules", "remove", "1")

    assert "the schedule 1 starts the crawl books cron 30 2 * * 1-5 UTC, next at" in added.out
    assert [line.split()[0] for line in several.out.splitlines()[1:]] == [
        "2026-03-30",
        "2026-03-31",
        "2026-04-01",
    ]
    assert (changed["rule"], changed["jitter"]) == ("every 6h", None)
    assert "starts nothing until it is enabled" in disabled.out
    assert "disabled" in shown.out
    assert "next at" in enabled.out
    assert removed.out == "the schedule 1 is removed; what had not begun is cancelled\n"
    assert "there are no schedules yet" in queued("schedules", "list").out
    history = queued("crawls", "history", "books")
    assert "schedule set" in history.out


def test_another_time_is_one_of_the_zone_that_the_schedule_has(queued):
    """SS-10: a zone lasts until another one is given; a period takes it away."""
    queued("crawls", "add", "books", "--at", "3:00", "--time-zone", "Europe/Berlin")

    def changed(*arguments) -> str:
        return queued("schedules", "set", "1", *arguments, "--json").document["rule"]

    assert changed("--at", "4:30") == "at 04:30 Europe/Berlin"
    assert changed("--cron", "30 2 * * *") == "cron 30 2 * * * Europe/Berlin"
    assert changed("--at", "4:30", "--time-zone", "UTC") == "at 04:30 UTC"
    assert changed("--every", "6h") == "every 6h"


@pytest.mark.parametrize(
    ("arguments", "said", "code"),
    [
        (["add", "boats", "--every", "6h"], "there is no crawl 'boats'", 1),
        (["add", "books"], "say when: --every 6h, --at 03:00", 2),
        (["add", "books", "--every", "1s"], "a minute or more", 2),
        (["add", "books", "--at", "25:00"], 'write "03:00"', 2),
        (["add", "books", "--at", "3:00", "--every", "6h"], "give one of every=", 2),
        (["add", "books", "--cron", "0 0 31 2 *"], "bad day-of-month", 2),
        (["add", "books", "--at", "3:00", "--time-zone", "Berlin"], "Europe/Berlin", 2),
        (["add", "books", "--time-zone", "UTC"], "goes with --at or --cron", 2),
        (["set", "1"], "say what is to be changed, such as --at 04:00", 2),
        (["set", "1", "--at", "4:00"], "there is no schedule 1", 1),
        (["remove", "1"], "schedules list shows them", 1),
    ],
)
def test_what_cannot_be_kept_is_refused_with_what_to_do(queued, arguments, said, code):
    """A wrong crawl, rule, zone or number is found before anything is stored."""
    queued("crawls", "add", "books")
    refused = queued("schedules", *arguments)

    assert (refused.code, said in refused.err) == (code, True), refused.err
    assert queued("schedules", "list", "--json").document == []
