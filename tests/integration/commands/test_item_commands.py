"""Commands of items: show, add, delete, apply, and when results expire."""

from __future__ import annotations

import json
from datetime import datetime, timedelta

import pytest
import sqlalchemy as sa
from support.commands_run import DAY, STORED_ERROR, TASKS
from support.graphs import Crawl

from scrapy_itemgraph.model.operations import RenameItem, SetTTL, UpdateMetadata
from scrapy_itemgraph.store.admin import expirable


def test_show(scrapy, crawl):
    """`show` tells an item's names, tags, data, results, attempts and origin (SRAP-5, SRAP-6)."""
    crawl.work("PAGE:1")
    crawl.work("URL:1", aliases=["EAN:1"], created_by="PAGE:1", tags={"page": None, "rank": 3})
    crawl.done("URL:1", UpdateMetadata({"price": 3}))
    crawl.failed("URL:1", "reviews")
    crawl.do(RenameItem("SKU:1", id="PAGE:1"))

    shown = scrapy("show", "EAN:1", "--json").document
    human = scrapy("show", "EAN:1").out

    assert shown["id"] == "URL:1"
    assert shown["aliases"] == ["EAN:1"]
    assert shown["tags"] == {"page": None, "rank": 3}
    assert (shown["created_by"], shown["created_by_item"]) == ("PAGE:1", "SKU:1")
    parse, reviews = shown["results"]
    assert (parse["task"], parse["state"], parse["metadata"]) == ("parse", "fresh", {"price": 3})
    expiry = datetime.fromisoformat(parse["expires_at"])
    assert expiry - datetime.fromisoformat(parse["completed_at"]) == timedelta(days=1)
    assert reviews["state"] == "held"
    assert [(one["task"], one["outcome"]) for one in shown["attempts"]] == [
        ("reviews", "failed"),
        ("parse", "ok"),
    ]
    assert shown["attempts"][0]["error"] == STORED_ERROR
    for text in ("EAN:1", "rank = 3", "PAGE:1 (now SKU:1)", '"price": 3', "ValueError: no price"):
        assert text in human


def test_show_says_that_the_creator_is_gone(scrapy, crawl):
    """`created_by` may name an item that is no more (SRAP-2)."""
    crawl.work("A", created_by="B")

    assert "B (no such item any more)" in scrapy("show", "A").out


def test_show_escapes_control_characters(scrapy, crawl):
    """A page's text cannot steer the terminal."""
    crawl.work("A", data={"title": "\x1b[31mred"}, tags={"page": "\x1b[2J"})

    assert "\x1b" not in scrapy("show", "A").out
    assert scrapy("show", "A", "--json").document["data"] == {"title": "\x1b[31mred"}


def test_no_such_item(scrapy, crawl):
    """What does not exist, or was deleted, is said in one line."""
    crawl.work("A")
    scrapy("delete", "A", "--keep-name")

    for command in (["show"], ["explain"], ["delete"], ["expire"], ["set-ttl"]):
        more = ["1d"] if command == ["set-ttl"] else []
        missing = scrapy(*command, "B", *more)
        deleted = scrapy(*command, "A", *more)

        assert missing.code == deleted.code == 1
        assert missing.err == "scrapy itemgraph: the item 'B' does not exist\n"
        assert "its name stays taken" in deleted.err


def test_add(scrapy, crawl):
    """`add` creates an item, says its tasks, and changes nothing where the name is taken."""
    added = scrapy(
        *("add", "URL:1", "--tag", "page", "--tag", 'shelf={"row": 2}', "--nice", "-5"),
        *("--url", "https://a.example/?a=1", "--alias", "EAN:1", "--alias", "EAN:2", "--json"),
    )
    again = scrapy("add", "EAN:1", "--tag", "other")
    shown = scrapy("show", "URL:1", "--json").document

    assert added.document == {
        "id": "URL:1",
        "created": True,
        "aliases": ["EAN:1", "EAN:2"],
        "tasks": ["parse", "reviews"],
    }
    assert again.code == 0
    assert "EAN:1 exists already as an alias of URL:1; nothing was changed" in again.out
    assert shown["tags"] == {"page": None, "shelf": {"row": 2}}
    assert shown["data"] == {"url": "https://a.example/?a=1"}
    assert scrapy("worklist", "--json").document[0]["nice"] == -5


def test_add_draws_an_id(scrapy, crawl):
    """Without an id a random one is drawn, with the prefix in front (SRAP-31)."""
    drawn = scrapy("add", "--prefix", "NOTE:", "--data", '{"a": [1.5, null]}', "--json").document

    assert drawn["id"].startswith("NOTE:")
    assert drawn["tasks"] == []
    assert scrapy("show", drawn["id"], "--json").document["data"] == {"a": [1.5, None]}


@pytest.mark.parametrize("levels", [100, 20_000])
def test_add_refuses_data_that_is_nested_too_deep(scrapy, crawl, levels):
    """Data of more than a hundred levels is refused by one line, and nothing is added."""
    ran = scrapy("add", "A", "--data", '{"a": ' + "[" * levels + "]" * levels + "}")

    assert ran.code in {1, 2}
    assert "nested more than 100 levels deep; flatten it" in ran.err
    assert crawl.connection.scalar(sa.text("SELECT count(*) FROM items")) == 0


def test_delete(scrapy, crawl):
    """`delete` frees the names, or with --keep-name leaves them taken."""
    crawl.work("A", aliases=["B"])
    crawl.work("C")

    freed = scrapy("delete", "B")
    kept = scrapy("delete", "C", "--keep-name", "--json")

    assert freed.out == "deleted A\n"
    assert kept.document == {"deleted": "C", "names_kept": True}
    assert scrapy("add", "A", "--json").document["created"] is True
    assert scrapy("add", "C", "--json").document["created"] is False


def test_apply(scrapy, crawl, tmp_path):
    """`apply` applies JSON lines in one transaction, from standard input or a file."""
    lines = [
        {"op": "createItem", "id": "A", "tags": ["page"], "data": {"n": 1}},
        {"op": "updateData", "id": "A", "merge": {"t": "é"}},
        {"op": "createAlias", "alias": "B", "to": "A"},
    ]
    text = "\n".join(json.dumps(line) for line in lines) + "\n\n"
    (tmp_path / "lines").write_text(text)

    ran = scrapy("apply", "-", "--json", stdin=text)
    again = scrapy("apply", "lines")

    assert ran.document["operations"] == 3
    assert [note["label"] for note in ran.document["notes"]] == ["new", "updated", "alias"]
    assert "[known] A\n" in again.out
    assert "3 operations applied" in again.out
    assert scrapy("show", "B", "--json").document["data"] == {"n": 1, "t": "é"}


DEEP = '{"op": "createItem", "id": "B", "data": {"a": %s%s}}'


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "line 3: Expecting"),
        ("[1]", "line 3: an operation is an object"),
        ('{"op": "explode"}', "line 3: unknown operation 'explode'"),
        ('{"op": "createItem", "colour": 1}', "line 3: createItem has no field colour"),
        ('{"op": "createItem", "id": ""}', "line 3: CreateItem: id is empty"),
        ('{"op": "createItem", "id": "B", "data": {"a": NaN}}', "line 3: CreateItem: data['a']"),
        ('{"op": "createItem", "id": "B", "not_before": "soon"}', "line 3: "),
        ('{"op": "updateData", "id": "nobody", "merge": {}}', "line 3: UpdateData: there is no"),
        ('{"op": "updateData", "merge": {}}', "line 3: UpdateData: id must be given"),
        ('{"op": "storeResult", "id": "A", "task": "prase", "metadata": {}}', "did you mean"),
        ('{"op": "createItem", "id": "A", "fail_if_exists": true}', "line 3: CreateItem: 'A'"),
        (b'{"op": "createItem", "id": "\xff"}', "line 3: 'utf-8' codec"),
        (DEEP % ("[" * 100, "]" * 100), "line 3: CreateItem: data is nested more than 100 levels"),
        (DEEP % ("[" * 100_000, "]" * 100_000), "line 3: "),
    ],
)
def test_apply_a_bad_line(scrapy, crawl, line, said):
    """One bad line is named, and then nothing is changed."""
    line = line if isinstance(line, bytes) else line.encode()
    stdin = b'{"op": "createItem", "id": "A"}\n\n' + line + b'\n{"op": "createItem", "id": "Z"}\n'

    ran = scrapy("apply", "-", stdin=stdin)

    assert ran.code == 1
    assert said in ran.err
    assert len(ran.err.splitlines()) == 1
    assert crawl.connection.scalar(sa.text("SELECT count(*) FROM items")) == 0


def test_apply_a_missing_file(scrapy):
    """A file that cannot be read is one line."""
    ran = scrapy("apply", "nowhere.jsonl")

    assert ran.code == 1
    assert ran.err == "scrapy itemgraph: nowhere.jsonl cannot be read: No such file or directory\n"


def test_expire_many(scrapy, crawl, monkeypatch):
    """Results of a task, of a tag, or of all go stale, in transactions of a few items (SRAP-23)."""
    monkeypatch.setattr(expirable, "STEP", 2)
    crawl.register(**TASKS, callbacks={"parse_author": {}})
    for number in range(5):
        crawl.done(f"I{number}", tags=["page", "odd"] if number % 2 else ["page"])
    crawl.done("I0", task="reviews")
    crawl.failed("BAD")
    crawl.work("NEVER")

    reviews = scrapy("expire", "--task", "reviews")
    odd = scrapy("expire", "--task", "parse", "--tag", "odd", "--json")
    states = {name: crawl.state(name) for name in ("I0", "I1", "BAD")}
    none = scrapy("expire", "--task", "parse_author")
    every = scrapy("expire", "--all")

    assert reviews.out == "1 result is stale\n"
    assert odd.document == {"task": "parse", "tag": "odd", "expired": 2}
    assert states == {"I0": "fresh", "I1": "stale", "BAD": "held"}
    assert none.out == "0 results are stale\n"
    assert every.out == "7 results are stale\n"
    assert scrapy("failures").out == "no failure is open\n"
    assert {crawl.state(f"I{number}") for number in range(5)} == {"stale"}
    assert crawl.state("BAD") == "never run"
    for wrong in (["expire"], ["expire", "I0", "--all"], ["expire", "--all", "--task", "parse"]):
        assert scrapy(*wrong).code == 2
    assert scrapy("expire", "--task", "parze").code == 1


def test_a_misspelt_tag_is_refused(scrapy, crawl):
    """Commands name the tag that was meant, also one that is no task's; other tags are free."""
    crawl.done("A", tags=["page", "bargain"])

    for words in (["expire"], ["items"], ["pages", "skip"], ["pages", "stash"]):
        of_task = scrapy(*words, "--tag", "paeg")
        free = scrapy(*words, "--tag", "bargian")
        assert (of_task.code, of_task.out, free.code, free.out) == (1, "", 1, "")
        assert "no item has the tag 'paeg'; did you mean 'page'?" in of_task.err
        assert "no item has the tag 'bargian'; did you mean 'bargain'?" in free.err
        assert scrapy(*words, "--tag", "sold").code == 0
    crawl.item("B", tags=["day-2026-11-28"])
    assert scrapy("items", "--tag", "day-2026-11-29").code == 0
    assert crawl.state("A") == "fresh"


def test_an_item_with_a_misspelt_tag_is_added_with_a_hint(scrapy, crawl):
    """The item is added as it is, and the line that it has no task names the tag that has one."""
    crawl.register(**TASKS)

    assert scrapy("add", "A", "--tag", "paeg").out == (
        "added A\nno task that is known yet is called for by its tags; did you mean 'page'?\n"
    )


def test_a_tag_of_a_task_without_items_is_none_that_is_misspelt(scrapy, crawl):
    """It is the crawl's, though no item has it yet and another one is much like it."""
    crawl.item("A", tags=["pages"])

    assert scrapy("items", "--tag", "page").out == "no item is there\n"


def test_items_that_cannot_be_expired_are_left_out(scrapy, crawl, monkeypatch):
    """One that is deleted meanwhile, or has lost its name, does not keep the others from it."""
    for name in "ABC":
        crawl.done(name)
    assert crawl.rows("DELETE FROM aliases WHERE name = 'B' RETURNING 1")
    look = expirable.look

    def and_one_that_is_gone(*args, **kwargs):
        found = look(*args, **kwargs)
        return found._replace(names=["GONE", *found.names])

    monkeypatch.setattr(expirable, "look", and_one_that_is_gone)

    assert scrapy("expire", "--all").out == "2 results are stale\n"
    assert (crawl.state("A"), crawl.state("C")) == ("stale", "stale")


def test_what_runs_while_its_task_is_expired_runs_again(scrapy, crawl):
    """A claim that stands stores its result, and the page is outstanding once more (SRAP-50)."""
    claim = crawl.claimed("A")

    scrapy("expire", "--task", "parse")
    crawl.end(claim)

    assert crawl.state("A") == "stale"


def test_expire(scrapy, crawl):
    """`expire` makes results stale, of one task or all (SRAP-23, SRAP-50)."""
    crawl.done("A")
    crawl.done("A", task="reviews")

    one = scrapy("expire", "A", "--task", "parse", "--json")
    unknown = scrapy("expire", "A", "--task", "prase")
    every = scrapy("expire", "A")

    assert [(r["task"], r["state"]) for r in one.document] == [("parse", "stale")]
    assert unknown.code == 1
    assert "did you mean 'parse'?" in unknown.err
    assert every.out.count("stale") == 2


def test_set_ttl(scrapy, crawl):
    """`set-ttl` counts from the last result; "default" gives the task's back (SRAP-51)."""
    crawl.done("A")

    def expiry(*arguments):
        (result,) = scrapy("set-ttl", "A", *arguments, "--task", "parse", "--json").document
        if result["expires_at"] is None:
            return None
        completed = datetime.fromisoformat(result["completed_at"])
        return (datetime.fromisoformat(result["expires_at"]) - completed).total_seconds()

    assert expiry("2d") == 2 * DAY
    assert expiry("90") == 90
    assert expiry("never") is None
    assert expiry("default") == DAY


def test_recompute_ttl(scrapy, crawl):
    """A new TTL in code reaches old results on demand, but not overridden ones (SRAP-24)."""
    crawl.done("A")
    crawl.done("B")
    crawl.do(SetTTL("5d", id="B"))
    crawl.register(**{**TASKS, "parse": {**TASKS["parse"], "ttl": "3d"}})

    ran = scrapy("set-ttl", "--task", "parse", "--recompute", "--json")

    assert ran.document == {"task": "parse", "changed": 1}
    results = scrapy("show", "A", "--json").document["results"]
    parse = next(one for one in results if one["task"] == "parse")
    kept = datetime.fromisoformat(parse["expires_at"]) - datetime.fromisoformat(
        parse["completed_at"]
    )
    assert kept == timedelta(days=3)


def test_an_item_is_looked_for_in_all_crawls(scrapy, crawl):
    """Without --crawl the one crawl that has the item is used, and said; several are listed."""
    crawl.work("URL:1", data={"url": "https://a.example/1"})
    other = Crawl(crawl.connection, "other")
    other.register(**TASKS)
    other.work("URL:2", data={"url": "https://a.example/2"})
    other.work("URL:both", data={"url": "https://a.example/both"})
    crawl.work("URL:both", data={"url": "https://a.example/both"})

    for url, item, name in [
        ("https://a.example/2", "URL:2", "other"),
        ("URL:1", "URL:1", "books"),
    ]:
        shown = scrapy("show", url, "--json")
        assert shown.document["id"] == item
        assert shown.err == f"of the crawl {name}\n"
    both = scrapy("explain", "https://a.example/both")
    assert both.code == 1
    assert "several crawls have the page 'https://a.example/both': books, other" in both.err
    assert "say which with --crawl NAME" in both.err
    assert scrapy("explain", "https://a.example/both", "--crawl", "books").code == 0
    none = scrapy("show", "URL:3")
    assert "no crawl has the item 'URL:3'" in none.err
    near = scrapy("show", "http://a.example/2/", "--crawl", "other")
    assert "did you mean 'URL:2'?" in near.err
