"""The end-to-end benchmark's arguments, sites and tables; its crawls take no part in tests."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest
from end_to_end import report, rounds, served
from end_to_end.crawls import Cost

DOCS = Path(__file__).parents[2] / "docs"


def cost(seconds):
    """Return what a run of 100 pages took."""
    return Cost(pages=100, seconds=seconds, cpu=0.3, server_cpu=0.05, peak=90_000_000, wal=100_000)


@pytest.fixture
def contest():
    """Return three rounds of three contestants."""
    costs = {
        "memory": [cost(1.0), cost(0.5), cost(2.0)],
        "fixed": [cost(0.5), cost(0.25), cost(1.0)],
        "task": [cost(0.5), cost(0.5), cost(1.0)],
    }
    return report.Contest("the site", costs)


def test_a_table_has_medians_and_spread(contest):
    """A row gives each figure's median, least and most, and ratios to runs of the same round."""
    rows = report.table(contest).splitlines()

    task = [cell.strip() for cell in rows[-1].strip("|").split("|")]
    assert task == [
        "ours, task",
        "200 (100 to 200)",
        "2.00 (1.00 to 2.00)",
        "1.00 (0.50 to 1.00)",
        "-",
        "3.00 (3.00 to 3.00)",
        "0.50 (0.50 to 0.50)",
        "90 (90 to 90)",
        "1,000 (1,000 to 1,000)",
    ]
    assert {row.count("|") for row in rows} == {len(report.HEADER) + 1}


def test_what_was_not_run_is_left_open(contest):
    """Without the memory queue there is no ratio to it, and without a server no CPU of one."""
    del contest.costs["memory"]

    fixed = report.table(contest).splitlines()[2]
    assert "| Scrapy, a fixed list | 200 (100 to 400) | - | - | - |" in fixed
    assert fixed.endswith("| - | 90 (90 to 90) | - |")


def test_contestants_with_fewer_rounds_are_compared(contest):
    """Where an interruption left a contestant without its last run, the rounds of both count."""
    contest.costs["task"].pop()

    assert contest.ratios("task", "memory") == [2.0, 1.0]


def test_what_others_took_is_told():
    """The CPU that has no part in a crawl is told in cores, and is not below none."""
    costs = [replace(cost(2.0), foreign_cpu=cpu) for cpu in (-0.01, 1.0, 3.0)]

    assert "0.50 cores busy (median of all runs; at most 1.50)" in report.foreign(
        [report.Contest("the site", {"task": costs})]
    )


def test_the_picture_is_svg(contest):
    """The picture has a bar for each contestant of each site."""
    drawn = ET.fromstring(report.picture([contest, contest]))

    bars = drawn.findall("{http://www.w3.org/2000/svg}rect")
    assert len(bars) == 1 + 2 * len(contest.costs)


def test_figures_go_between_the_markers_of_the_page(contest):
    """What stood between the markers is replaced, and all else of the docs' page stays."""
    page = (DOCS / "benchmarks.md").read_text()

    once = report.placed(page, report.section(contest))
    again = report.placed(once, "other")

    assert once.partition(report.BEGIN)[0] == page.partition(report.BEGIN)[0]
    assert "ours, task | 200" in once
    assert "ours, task | 200" not in again
    with pytest.raises(ValueError, match="begin"):
        report.placed("no markers", "text")


def test_a_part_can_be_run():
    """Options choose sites, contestants, rounds and pages; only a run of all is written."""
    chosen = rounds.arguments(
        ["--site", "deep", "--only", "task,memory", "--rounds", "1", "--pages", "600"]
    )

    assert (chosen.site, chosen.only) == (["deep"], ["memory", "task"])
    assert (chosen.rounds, chosen.pages, chosen.is_full) == (1, 600, False)
    assert rounds.contests_of(chosen) == [("deep", "")]
    full = rounds.arguments([])
    assert full.is_full
    assert rounds.contests_of(full) == [
        *((site, "") for site in served.SITES),
        ("deep", "items100"),
        ("deep", "gc"),
    ]


def test_other_settings_can_be_run_alone():
    """Other settings go to the site that they are tried on, or to the one that is named."""
    alone = rounds.arguments(["--settings", "gc"])
    named = rounds.arguments(["--settings", "items100", "--site", "broad"])

    assert rounds.contests_of(alone) == [("deep", "gc")]
    assert rounds.contests_of(named) == [("broad", "items100")]


@pytest.mark.parametrize("given", ["--site shallow", "--only all", "--rounds 0", "--pages x"])
def test_what_is_unknown_is_refused(given, capsys):
    """A name that there is not, or no number, ends the program with its usage."""
    with pytest.raises(SystemExit):
        rounds.arguments(given.split())

    assert "usage" in capsys.readouterr().err


@pytest.mark.parametrize("count", [30, 3000])
def test_every_page_of_a_numbered_site_is_reached(count):
    """Each page links to 8 to 10 others, and a crawl from the first one comes to all."""
    links = {number: served.linked(number, count) for number in range(count)}

    assert {len(set(found)) for found in links.values()} == {8, 9, 10}
    seen, todo = {0}, [0]
    while todo:
        new = set(links[todo.pop()]) - seen
        seen |= new
        todo += new
    assert len(seen) == count


def test_pages_are_found_by_their_files(tmp_path):
    """The pages of a site of files are those that its links lead to and that are there."""
    root = tmp_path / "site"
    root.mkdir()
    (root / "a.html").write_text('<a class="x" href="b.html#part">b</a> <a href="gone.html">')
    (root / "b.html").write_text("<a href='/site/a.html'>a</a> <a href='http://else/a.html'>")
    (root / "lonely.html").write_text("")

    found = served.reached(tmp_path, "http://127.0.0.1:1", "http://127.0.0.1:1/site/a.html")

    assert found == [f"http://127.0.0.1:1/site/{name}.html" for name in "ab"]
