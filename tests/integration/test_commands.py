"""`scrapy itemgraph COMMAND`: what it says, in both forms, what it changes, and how it exits."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import select
import subprocess
import sys
import termios
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import logs
import pytest
import sqlalchemy as sa
from graphs import Crawl
from scrapy import cmdline
from scrapy.settings import Settings

from scrapy_itemgraph.commands import COMMANDS, parsing, printing
from scrapy_itemgraph.model.operations import Expire, RenameItem, SetTTL, UpdateMetadata
from scrapy_itemgraph.model.work import ErrorRecord, Outcome
from scrapy_itemgraph.store.admin import status
from scrapy_itemgraph.store.registry import crawls, workers
from scrapy_itemgraph.tools import url_secrets

TASKS = {
    "parse": {"tags": ["page"], "ttl": "1d", "max_failures": 3},
    "reviews": {"tags": ["page"], "depends_on": ["parse"]},
}
DAY = 86400
NOWHERE = "postgresql://nobody@127.0.0.1:1/none"


@dataclass(frozen=True)
class Ran:
    """What a command wrote, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def document(self):
        """The JSON document on standard output."""
        return json.loads(self.out)


@pytest.fixture
def crawl(engine):
    """Yield a crawl with two tasks, on a connection that `scrapy` commits before each command."""
    with engine.connect() as connection:
        crawl = Crawl.of(connection, **TASKS)
        connection.commit()
        yield crawl


@pytest.fixture
def scrapy(capsys, monkeypatch, tmp_path, request):
    """Return a function that runs `scrapy itemgraph` in this process, outside a project.

    A test that asks for no database has none that answers.
    """
    monkeypatch.chdir(tmp_path)
    database = NOWHERE
    if "database" in request.fixturenames:
        database = request.getfixturevalue("database")

    def run(*arguments, stdin="", **settings) -> Ran:
        if "crawl" in request.fixturenames:
            request.getfixturevalue("crawl").connection.commit()
        given = stdin.encode() if isinstance(stdin, str) else stdin
        read = io.BytesIO(given) if isinstance(given, bytes) else given
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=read))
        given = Settings({"ITEMGRAPH_DATABASE_URL": database, **settings}, priority="project")
        capsys.readouterr()
        with pytest.raises(SystemExit) as exited:
            cmdline.execute(["scrapy", "itemgraph", *arguments], given)
        written = capsys.readouterr()
        return Ran(exited.value.code, written.out, written.err)

    return run


COLOUR = re.compile(r"\x1b\[\d*m")


@pytest.fixture
def terminal(scrapy, monkeypatch):
    """Return a function that runs a command on a terminal of a width, and returns what it shows."""
    monkeypatch.setenv("TERM", "xterm")
    for name in ("NO_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)

    def run(columns, *arguments):
        master, slave = pty.openpty()
        termios.tcsetwinsize(slave, (24, columns))
        read = b""
        with os.fdopen(slave, "w", encoding="utf-8") as screen, monkeypatch.context() as patched:
            patched.setattr(sys, "stdout", screen)
            ran = scrapy(*arguments)
            screen.flush()
            while select.select([master], [], [], 0)[0]:
                read += os.read(master, 65536)
        os.close(master)
        assert ran.code == 0, ran.err
        return read.decode().replace("\r\n", "\n")

    return run


def subprocess_scrapy(*arguments, cwd, **options):
    """Run the real command in a process of its own."""
    ran = subprocess.run(
        [sys.executable, "-m", "scrapy", "itemgraph", *arguments],
        cwd=cwd,
        capture_output=True,
        check=False,
        timeout=60,
        **options,
    )
    logs.take(ran.stderr.decode())
    return ran


# The command itself


def test_lists_the_commands(scrapy):
    """Without a command it prints each command on a line."""
    ran = scrapy()

    assert ran.code == 0
    for name, command in COMMANDS.items():
        assert f"  {name} " in ran.out
        assert command.summary in ran.out
    assert max(map(len, ran.out.splitlines())) <= 100


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_each(scrapy, name):
    """`--help` says what a command takes, and does nothing."""
    ran = scrapy(name, "--help")

    assert ran.code == 0
    assert ran.out.startswith(f"usage: scrapy itemgraph {name}")
    for argument in COMMANDS[name].arguments:
        assert argument.options.get("help")
        assert (argument.options.get("metavar") or argument.flags[0]) in ran.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["shwo"], "did you mean 'show'?"),
        (["show"], "required: ID"),
        (["show", "A", "B"], "unexpected argument 'B'"),
        (["show", "A", "--tag", "x"], "unknown option --tag"),
        (["show", "-A"], "goes after --"),
        (["show", "A", "-s", "NOTHING"], "Invalid -s value"),
        (["show", "A", "--js"], "unknown option --js"),
        (["status", "x"], "unexpected argument 'x'"),
        (["status", "--crawl", ""], "names no crawl"),
        (["status", "--crawl"], "expected one argument"),
        (["add", "A", "--prefix", "B"], "not both"),
        (["add", "A", "--data", "{}", "--url", "http://a.example/"], "not both"),
        (["add", "A", "--data", "[1]"], "not a JSON object"),
        (["add", "A", "--data", "{"], "is not JSON"),
        (["add", "A", "--data", '{"a": NaN}'], "JSON has no NaN"),
        (["add", "A", "--tag", "a=b"], "text needs double quotes"),
        (["add", "A", "--tag", "=1"], "names no tag"),
        (["add", "A", "--nice", "high"], "invalid int"),
        (["add", "A\udcff"], "is not UTF-8"),
        (["worklist", "--limit", "0"], "whole number from 1"),
        (["handle"], "give one of"),
        (["handle", "1", "--all"], "give one of"),
        (["handle", "one"], "whole number from 1"),
        (["handle", "9" * 20], "whole number from 1"),
        (["set-ttl", "A"], "give ID and TTL"),
        (["set-ttl", "A", "soon"], '"never" or "default"'),
        (["set-ttl", "A", "1d", "--task", "parse", "--recompute"], "no ID"),
        (["set-ttl", "--recompute"], "takes --task"),
        (["age", "books"], "required: PERIOD"),
        (["age", "books", "0s"], "above 0"),
        (["restart", "books", "--crawl", "books"], "as its argument"),
        (["apply"], "required: FILE"),
        (["migrate", "now"], "unexpected argument 'now'"),
    ],
)
def test_misuse(scrapy, arguments, said):
    """Arguments that are wrong, missing or too many are refused with exit code 2."""
    ran = scrapy(*arguments)

    assert ran.code == 2
    assert ran.out == ""
    assert said in ran.err
    assert "Traceback" not in ran.err


def test_options_stand_anywhere(scrapy, crawl):
    """Scrapy's options and ours apply before, between and after a command's arguments."""
    crawl.work("A")

    before = scrapy("--json", "-s", "ITEMGRAPH_CRAWL=books", "explain", "A", "parse")
    between = scrapy(
        "explain", "--crawl", "books", "A", "-s", "ITEMGRAPH_CRAWL=nope", "parse", "--json"
    )
    after = scrapy("explain", "A", "parse", "--json", "-s", "ITEMGRAPH_CRAWL=nope")

    assert before.document == between.document
    assert [one["task"] for one in between.document] == ["parse"]
    assert after.code == 1
    assert "no crawl 'nope'" in after.err


@pytest.mark.parametrize("name", ["two words", "Ünï-日本", "-s", "--", "--json", "a\nb", "%", "'"])
def test_odd_ids(scrapy, crawl, name):
    """Any id can be given, after `--` also one that looks like an option."""
    added = scrapy("add", "--json", "--", name)
    shown = scrapy("show", "--json", "--", name)
    human = scrapy("show", "--", name)

    assert added.document["id"] == shown.document["id"] == name
    assert human.code == 0
    assert printing.clean(name) in human.out


def test_ids_that_cannot_be(scrapy, crawl):
    """An empty id and one of 10,000 characters are refused, in one line."""
    for name in ("", "x" * 10_000):
        for command in (["show"], ["add"], ["delete"], ["expire"], ["explain"]):
            ran = scrapy(*command, name)

            assert ran.code == 1
            assert len(ran.err.splitlines()) == 1


# Which crawl, which database


def test_the_crawl_that_is_meant(scrapy, crawl):
    """--crawl counts, then ITEMGRAPH_CRAWL, then the only crawl; else the crawls are listed."""
    only = scrapy("status", "--json", ITEMGRAPH_CRAWL="{name}-{category}")
    crawls.make_crawl(crawl.connection, "films")
    fixed = scrapy("status", "--json", ITEMGRAPH_CRAWL="films")
    named = scrapy("status", "--json", "--crawl", "books", ITEMGRAPH_CRAWL="films")
    unclear = scrapy("status")
    unknown = scrapy("status", "--crawl", "boks")

    assert only.document["crawl"] == "books"
    assert fixed.document["crawl"] == "films"
    assert named.document["crawl"] == "books"
    assert unclear.code == unknown.code == 1
    assert "books, films" in unclear.err
    assert "did you mean 'books'?" in unknown.err


def test_no_crawl_yet(scrapy, database):
    """In a new database the crawl must be named, and adding makes it."""
    refused = scrapy("status")
    also = scrapy("add", "A")
    added = scrapy("add", "A", "--crawl", "books")

    assert refused.code == also.code == 1
    assert "none yet" in refused.err
    assert added.code == 0
    assert "made the crawl 'books'" in added.err
    assert scrapy("show", "A").code == 0


def test_init_and_migrate(scrapy, empty_database, tmp_path):
    """`init` makes the schema once and says what settings.py lacks; `migrate` says it is new."""
    url = {"ITEMGRAPH_DATABASE_URL": empty_database}
    first = scrapy("init", **url)
    again = scrapy("init", "--json", **url)
    complete = scrapy("init", "--json", **url, ADDONS={"scrapy_itemgraph.Addon": 500})
    migrated = scrapy("migrate", **url)

    assert first.code == 0
    assert "was made" in first.out
    assert 'ADDONS = {"scrapy_itemgraph.Addon": 500}' in first.out
    assert again.document["previous_schema"] == again.document["schema"]
    assert again.document["is_embedded"] is False
    assert again.document["location"].startswith("postgresql://")
    assert complete.document["missing_settings"] == []
    assert "up to date" in migrated.out


def test_the_lacking_settings_include_what_was_given(scrapy, database):
    """`init` repeats a URL of the command line, which a crawl would not know."""
    ran = scrapy("init", "--json", "-s", f"ITEMGRAPH_DATABASE_URL={database}")

    shown = json.dumps(url_secrets.shown(database))
    assert f"ITEMGRAPH_DATABASE_URL = {shown}" in ran.document["missing_settings"]


@pytest.mark.parametrize("form", ["login", "option"])
@pytest.mark.parametrize("port", ["right", "wrong"])
def test_no_command_shows_a_password(scrapy, database, form, port):
    """However it is given, whether the server answers or not, and with `--json` too."""
    url = sa.make_url(database).set(drivername="postgresql")
    if port == "wrong":
        url = url.set(query={}, host="127.0.0.1", port=1)
    if form == "login":
        url = url.set(username=url.username or "postgres", password="s3same")
    else:
        url = url.update_query_dict({"password": "s3same", "sslpassword": "s3same"})
    given = f"ITEMGRAPH_DATABASE_URL={url.render_as_string(hide_password=False)}"

    runs = [
        scrapy(*command, "-s", given)
        for command in (("init",), ("init", "--json"), ("migrate",), ("migrate", "--json"))
    ]

    assert [ran.code for ran in runs] == [0 if port == "right" else 1] * 4
    assert not any("s3same" in ran.out + ran.err for ran in runs)
    if port == "right":
        assert "***" in runs[0].out
        assert "~/.pgpass" in runs[0].out


def test_a_newer_database(scrapy, engine):
    """A database made by newer code is refused in one line, by `migrate` too."""
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE itemgraph_version SET version_num = '9999'")

    for command in ("status", "migrate"):
        ran = scrapy(command)

        assert ran.code == 1
        assert "upgrade the package" in ran.err
        assert len(ran.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("url", "said"),
    [
        (NOWHERE, "refuses connections"),
        ("mysql://x", "only PostgreSQL"),
        ("no url", "is no URL"),
    ],
)
def test_no_server(scrapy, url, said):
    """A database that cannot be used is one line and exit code 1."""
    ran = scrapy("status", ITEMGRAPH_DATABASE_URL=url)

    assert ran.code == 1
    assert said in ran.err
    assert len(ran.err.splitlines()) == 1


def test_a_statement_that_the_server_refuses(scrapy, crawl, engine):
    """An error of the server about a statement is one line, too."""
    with engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE tasks RENAME TO lost")

    ran = scrapy("tasks")

    assert ran.code == 1
    assert "The database refuses" in ran.err
    assert len(ran.err.splitlines()) == 1


def test_nothing_is_made_by_looking(scrapy, tmp_path):
    """Without a server of one's own, only init, migrate, add and apply make an embedded one."""
    ran = scrapy("status", ITEMGRAPH_DATABASE_URL=None)

    assert ran.code == 1
    assert "scrapy itemgraph init" in ran.err
    assert list(tmp_path.iterdir()) == []


def test_a_data_directory_that_is_a_file(scrapy, tmp_path):
    """What the system refuses is one line, too."""
    (tmp_path / "file").touch()

    ran = scrapy("init", ITEMGRAPH_DATABASE_URL=None, ITEMGRAPH_DATA_DIR="file")

    assert ran.code == 1
    assert len(ran.err.splitlines()) == 1


# Items


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


# Work


def test_worklist(scrapy, crawl):
    """`worklist` lists outstanding work, never-run before stale (SRAP-15, SRAP-16)."""
    crawl.done("A")
    crawl.do(Expire(id="A", task="parse"))
    crawl.work("B", nice=7)

    listed = scrapy("worklist", "--json").document
    first = scrapy("worklist", "--limit", "1")
    of_task = scrapy("worklist", "--task", "reviews")
    unknown = scrapy("worklist", "--task", "review")

    assert [(one["item"], one["task"], one["is_stale"]) for one in listed] == [
        ("B", "parse", False),
        ("A", "parse", True),
    ]
    assert listed[0]["slot"] == "a.example"
    assert "never run" in first.out
    assert "--limit shows more" in first.out
    assert of_task.out == "no work is outstanding\n"
    assert unknown.code == 1
    assert "did you mean 'reviews'?" in unknown.err


LONG = "URL:https://a.example/" + "very-long/" * 30 + "end"
STORED_ERROR = {"type": "ValueError", "message": "no price"}
ERROR_TEXT = "long " * 90 + "the cause"


def fail_at_length(crawl):
    """Make a failure whose message is longer than three lines."""
    claim = crawl.claimed("A", "parse")
    error = ErrorRecord(type="ValueError", message=ERROR_TEXT)
    crawl.end(claim, outcome=Outcome.FAILED, error=error)


@pytest.mark.parametrize("columns", [50, 100])
def test_long_ids_fit(crawl, terminal, columns):
    """Tables are as wide as the terminal, also with long ids and wide characters."""
    crawl.work(LONG)
    crawl.work("日本" * 60)
    fail_at_length(crawl)

    listed = COLOUR.sub("", terminal(columns, "worklist"))
    failed = COLOUR.sub("", terminal(columns, "failures"))

    for lines in (listed.splitlines(), failed.splitlines()):
        assert columns - 15 <= max(map(printing._width, lines)) <= columns
    assert "end" in listed
    assert "long the cause" in " ".join(failed.split())
    assert len([line for line in failed.splitlines() if line.startswith("    ")]) == 3


def test_nothing_is_cut_or_coloured_in_a_pipe(scrapy, crawl, monkeypatch):
    """Where nobody looks, lines are whole: ids and errors can be searched for."""
    monkeypatch.delenv("COLUMNS", raising=False)
    crawl.work(LONG)
    fail_at_length(crawl)

    for command, said in (("worklist", LONG), ("failures", ERROR_TEXT)):
        out = scrapy(command).out
        assert said in out
        assert "\x1b" not in out


def test_states_have_colours_on_a_terminal(crawl, terminal, monkeypatch):
    """Heads are bold and states coloured; with NO_COLOR, or a dumb terminal, nothing is."""
    crawl.done("A")
    crawl.do(Expire(id="A", task="parse"))
    crawl.failed("B")

    worklist = terminal(100, "worklist")
    shown = terminal(100, "show", "B")
    explained = terminal(100, "explain", "A", "parse")
    monkeypatch.setenv("NO_COLOR", "1")
    plain = terminal(100, "worklist")
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    dumb = terminal(100, "worklist")

    assert worklist.startswith("\x1b[1mITEM")
    assert "\x1b[33mstale" in worklist
    assert "\x1b[31mheld\x1b[0m" in shown
    assert "\x1b[31mfailed" in shown
    assert "    \x1b[31mValueError: no price\x1b[0m" in shown
    assert "\x1b[32mmay run now\x1b[0m" in explained
    assert plain == dumb == COLOUR.sub("", worklist)


def reasons(scrapy, item, task="parse"):
    """Return whether the task of an item may run now, and the reasons."""
    (one,) = scrapy("explain", item, task, "--json").document
    human = scrapy("explain", item, task).out
    assert human.count("\n  - ") == len(one["reasons"])
    return one["is_eligible"], one["state"], "; ".join(one["reasons"])


def test_explain_what_runs(scrapy, crawl):
    """Outstanding work that is free says its slot and why it runs."""
    crawl.work("A")

    eligible, state, why = reasons(scrapy, "A")

    assert (eligible, state) == (True, "never run")
    assert "'a.example'" in why


def test_explain_a_dependency(scrapy, crawl):
    """A dependency that is not fresh is named, with its own state (SRAP-21)."""
    crawl.work("A")
    never = reasons(scrapy, "A", "reviews")
    crawl.failed("A")
    held = reasons(scrapy, "A", "reviews")

    assert never[0] is held[0] is False
    assert "depends on 'parse', which is never run" in never[2]
    assert "depends on 'parse', which is held by a failure" in held[2]


def test_explain_a_failure(scrapy, crawl):
    """A failure that holds the pair is named with its number and message (SRAP-18)."""
    crawl.failed("A")
    number = scrapy("failures", "--json").document[0]["id"]

    eligible, state, why = reasons(scrapy, "A")

    assert (eligible, state) == (False, "held")
    assert f"failure {number}: ValueError: no price" in why


def test_explain_a_ttl(scrapy, crawl):
    """A fresh result says for how long; an expired one that it did."""
    crawl.done("A")
    fresh = reasons(scrapy, "A")
    crawl.age(days=2)
    stale = reasons(scrapy, "A")

    assert fresh[:2] == (False, "fresh")
    assert "fresh for " in fresh[2]
    assert stale[:2] == (True, "stale")
    assert "expired 1d ago" in stale[2]


def test_explain_versions_and_expiry_by_hand(scrapy, crawl):
    """A result of another version, or expired by hand, says so (SRAP-20)."""
    crawl.done("A")
    crawl.do(Expire(id="A", task="parse"))
    by_hand = reasons(scrapy, "A")
    crawl.done("A")
    crawl.register(**{**TASKS, "parse": {**TASKS["parse"], "version": "2"}})
    bumped = reasons(scrapy, "A")

    assert "expired by hand" in by_hand[2]
    assert "version '1', not '2'" in bumped[2]
    assert by_hand[0] is bumped[0] is True


def test_explain_a_claim(scrapy, crawl):
    """A claim names its worker."""
    crawl.claimed("A")

    eligible, _, why = reasons(scrapy, "A")

    assert not eligible
    assert f"worker {crawl.worker} (process 1 on here) has it" in why


def test_explain_a_tag(scrapy, crawl):
    """Tags that do not call for the task are listed, beside those that would."""
    crawl.item("A", tags=["other"])

    eligible, _, why = reasons(scrapy, "A")

    assert not eligible
    assert "none of the tags page; it has other" in why
    assert scrapy("explain", "A").out.startswith("no task is called for")


def test_explain_a_disabled_task(scrapy, crawl):
    """A disabled task says how to enable it."""
    crawl.work("A")
    disabled = scrapy("disable", "parse", "--json")
    off = reasons(scrapy, "A")
    enabled = scrapy("enable", "parse")
    on = reasons(scrapy, "A")

    assert disabled.document == {"task": "parse", "is_enabled": False}
    assert enabled.out == "parse is enabled\n"
    assert off[0] is False
    assert "scrapy itemgraph enable parse" in off[2]
    assert on[0] is True


def test_explain_max_failures(scrapy, crawl):
    """A task that failures stopped says how many they are (SRAP-28)."""
    for name in "ABC":
        crawl.failed(name)
    crawl.work("D")

    eligible, _, why = reasons(scrapy, "D")

    assert not eligible
    assert "3 open failures (max_failures=3)" in why
    assert "stopped by failures" in scrapy("tasks").out


def test_explain_not_before(scrapy, crawl):
    """Work that has to wait says how long, and after how many tries."""
    crawl.work("A", not_before=timedelta(hours=2))
    claim = crawl.claimed("B")
    crawl.end(claim, outcome=Outcome.RETRY, delay=timedelta(minutes=5))

    later, retried = reasons(scrapy, "A"), reasons(scrapy, "B")

    assert later[0] is retried[0] is False
    assert "may not start for another " in later[2]
    assert "after 1 tries" in retried[2]


def test_explain_a_vanished_task(scrapy, crawl):
    """A task that no spider declares any more says so."""
    crawl.done("A")
    crawl.done("A", task="reviews")
    crawl.register(parse=TASKS["parse"])

    eligible, _, why = reasons(scrapy, "A", "reviews")

    assert not eligible
    assert "no spider declares this task any more" in why
    assert "reviews (gone)" in scrapy("tasks").out


def test_explain_a_sweep(scrapy, crawl):
    """An item that an open sweep has not reached says so, and `status` shows the sweep."""
    crawl.item("A", tags=["page", "book"])
    crawl.register(swept=False, **TASKS, card={"tags": ["book"]})

    eligible, _, why = reasons(scrapy, "A", "card")

    assert not eligible
    assert "a sweep" in why
    assert "of the task card is open" in scrapy("status").out
    assert scrapy("status", "--json").document["sweeps"][0]["task"] == "card"


def test_explain_deaths_and_blocked_slots(scrapy, crawl):
    """Work that killed workers, and a slot that is blocked, are said."""
    crawl.work("A")
    crawl.die()
    crawl.die()
    crawl.connection.exec_driver_sql("UPDATE limits SET blocked_until = now() + interval '1 day'")

    eligible, _, why = reasons(scrapy, "A")

    assert not eligible
    assert "2 workers died on it" in why
    assert "'a.example' is blocked until" in why


def test_explain_all_tasks(scrapy, crawl):
    """Without a task each one is explained; an unknown one has a near miss."""
    crawl.work("A")

    every = scrapy("explain", "A", "--json").document
    unknown = scrapy("explain", "A", "pars")

    assert [one["task"] for one in every] == ["parse", "reviews"]
    assert unknown.code == 1
    assert "did you mean 'parse'?" in unknown.err


def test_failures_and_handle(scrapy, crawl):
    """Failures are listed and handled: one, a task's, all; with or without a retry (SRAP-29)."""
    for name in "ABC":
        crawl.failed(name)
    listed = scrapy("failures", "--json").document
    human = scrapy("failures", "--task", "parse").out

    one = scrapy("handle", str(listed[0]["id"]), "--json")
    gone = scrapy("handle", str(listed[0]["id"]))
    held = scrapy("handle", "--no-retry", str(listed[1]["id"]))
    rest = scrapy("handle", "--all")
    none = scrapy("handle", "--task", "parse", "--json")

    assert [(f["item"], f["task"], f["error"]) for f in listed] == [
        (name, "parse", STORED_ERROR) for name in "ABC"
    ]
    assert "ValueError: no price" in human
    assert one.document == {"handled": 1, "retry": True}
    assert gone.code == 1
    assert "stay held" in held.out
    assert rest.out == "1 handled; they may run again\n"
    assert none.document["handled"] == 0
    assert scrapy("failures").out == "no failure is open\n"
    assert [w["item"] for w in scrapy("worklist", "--json").document] == ["A", "C"]


@pytest.mark.parametrize(
    "arguments",
    [["failures", "--task"], ["handle", "--task"], ["enable"], ["disable"], ["set-ttl", "--task"]],
)
def test_unknown_tasks(scrapy, crawl, arguments):
    """A task that does not exist is refused with a near miss."""
    more = ["--recompute"] if arguments[0] == "set-ttl" else []

    ran = scrapy(*arguments, "parze", *more)

    assert ran.code == 1
    assert ran.err == "scrapy itemgraph: there is no task 'parze'; did you mean 'parse'?\n"


# The crawl


def test_status(scrapy, crawl):
    """`status` counts items and each task's work, and lists workers."""
    crawl.done("A")
    crawl.claimed("B")
    crawl.failed("C")
    crawl.work("D")

    found = scrapy("status", "--json").document
    human = scrapy("status").out

    parse = next(one for one in found["tasks"] if one["name"] == "parse")
    counts = ("waiting", "claimed", "completed", "fresh", "held", "failures")
    assert [parse[name] for name in counts] == [1, 1, 1, 1, 1, 1]
    assert found["items"] == 4
    assert found["workers"][0]["id"] == crawl.worker
    assert parse["ttl"] == DAY
    assert datetime.fromisoformat(found["next_due"]) > datetime.now(UTC)
    assert "next result falls due" in human
    assert "WAITING" in human


def test_status_counts_what_is_due(scrapy, crawl):
    """What fell due and no run has staged yet is due in `status`, and not fresh."""
    crawl.done("A")
    crawl.done("A", task="reviews")
    crawl.failed("B")

    before = scrapy("status").out
    assert scrapy("age", "books", "2d").code == 0
    ran = scrapy("status", "--json").document
    human = scrapy("status").out

    counts = {one["name"]: (one["due"], one["fresh"], one["completed"]) for one in ran["tasks"]}
    assert counts == {"parse": (1, 0, 1), "reviews": (0, 1, 1)}
    assert "next result falls due" in before
    assert "first result fell due" in human
    assert re.search(r"^parse +0 +0 +0 +1 +1 +0 +1 +1", human, re.MULTILINE)
    summary = status.summary(crawl.connection, crawl.id)
    assert (summary.due, summary.fresh) == (1, 1)
    assert "1 that fell due since (the next run takes them)" in summary.lines()[1]


def test_tasks(scrapy, crawl):
    """`tasks` lists what is declared; times to live are seconds for programs."""
    listed = scrapy("tasks", "--json").document
    human = scrapy("tasks").out

    assert [(one["name"], one["ttl"], one["depends_on"]) for one in listed] == [
        ("parse", DAY, []),
        ("reviews", None, ["parse"]),
    ]
    assert "1d" in human
    assert "never" in human


def test_restart(scrapy, crawl):
    """`restart` says what it would delete, refuses while a worker lives, and then deletes."""
    crawl.done("A")

    asked = scrapy("restart", "books")
    living = scrapy("restart", "books", "--yes")
    assert scrapy("show", "A").code == 0
    workers.stop(crawl.connection, crawl.worker, "finished")
    done = scrapy("restart", "books", "--yes", "--json")

    assert asked.code == living.code == 1
    assert "1 items" in asked.out
    assert "add --yes" in asked.out
    assert f"worker {crawl.worker}" in living.err
    assert done.code == 0
    assert done.document["is_deleted"] is True
    assert done.document["rows"]["items"] == 1
    assert scrapy("status", "--json").document["items"] == 0
    assert len(scrapy("tasks", "--json").document) == 2


def test_restart_after_a_kill(scrapy, crawl):
    """A worker that died does not keep a crawl from being restarted."""
    crawl.work("A")
    workers.mark_locked(crawl.connection, crawl.worker)  # a lock that nobody holds any more

    assert scrapy("restart", "books", "--yes").code == 0


def test_restart_or_age_of_no_crawl(scrapy, crawl):
    """A crawl that does not exist is refused with a near miss, never made."""
    for arguments in (["restart", "book", "--yes"], ["age", "book", "1d"]):
        ran = scrapy(*arguments)

        assert ran.code == 1
        assert "did you mean 'books'?" in ran.err
    assert scrapy("status").code == 0


def test_age(scrapy, crawl):
    """`age` moves every time back."""
    crawl.done("A")
    before = scrapy("show", "A", "--json").document

    ran = scrapy("age", "books", "1d12h", "--json")

    after = scrapy("show", "A", "--json").document
    assert ran.document == {"crawl": "books", "seconds": 1.5 * DAY}
    moved = datetime.fromisoformat(before["created_at"]) - datetime.fromisoformat(
        after["created_at"]
    )
    assert moved == timedelta(days=1.5)


# Small parts


def test_json_without_utf8():
    """For a terminal without UTF-8, JSON is ASCII and lines are escaped."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")

    printing.write(stream, "日 é")

    stream.flush()
    assert stream.buffer.getvalue() == b"\\u65e5 \xe9\n"
    assert printing.dump({"a": "日"}, stream).isascii()


def test_parsing_leaves_nothing_out():
    """Options and positional arguments are told apart in any order."""
    found = parsing.parse(COMMANDS["set-ttl"], ["A", "--task", "T", "1d", "--"])

    assert (found.id, found.ttl, found.task) == ("A", timedelta(days=1), "T")


# The real thing


@pytest.mark.edge
def test_in_a_project(database, tmp_path):
    """In a project's subdirectory its settings count, -s overrides, and stdout is clean."""
    project = tmp_path / "shop"
    (project / "sub").mkdir(parents=True)
    (tmp_path / "scrapy.cfg").write_text("[settings]\ndefault = shop.settings\n")
    (project / "__init__.py").touch()
    (project / "settings.py").write_text(
        f"BOT_NAME = 'shop'\nLOG_LEVEL = 'DEBUG'\nITEMGRAPH_DATABASE_URL = {database!r}\n"
    )
    cwd = project / "sub"

    init = subprocess_scrapy("init", cwd=cwd)
    added = subprocess_scrapy("add", "-s", "ITEMGRAPH_CRAWL=books", "--json", "A", cwd=cwd)
    shown = subprocess_scrapy(
        *("show", "A", "-s", "ITEMGRAPH_CRAWL=books", "--json", "-L", "DEBUG"), cwd=cwd
    )
    other = subprocess_scrapy("show", "A", "-s", "ITEMGRAPH_CRAWL=films", cwd=cwd)

    assert init.returncode == 0, init.stderr
    assert b"ADDONS" in init.stdout
    assert json.loads(added.stdout)["created"] is True
    assert json.loads(shown.stdout)["id"] == "A"
    assert other.returncode == 1
    assert b"Traceback" not in other.stderr


@pytest.mark.edge
def test_no_reactor_and_no_sqlalchemy_are_imported():
    """Loading the command, as every `scrapy` does, imports neither a reactor nor SQLAlchemy."""
    code = (
        "import sys; from scrapy_itemgraph.commands import ItemGraphCommand as C; C();"
        "print([m for m in ('twisted.internet.reactor', 'sqlalchemy', 'psycopg', 'alembic')"
        " if m in sys.modules])"
    )

    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)

    assert ran.stdout.strip() == b"[]"


def test_a_reader_that_leaves(scrapy, crawl, database, tmp_path):
    """`| head` ends without a traceback."""
    for number in range(300):
        crawl.item(f"ITEM:{number:0200}", tags=["page"])
    crawl.connection.commit()
    reader, writer = os.pipe()
    os.close(reader)
    arguments = ["worklist", "--limit", "1000", "-s", f"ITEMGRAPH_DATABASE_URL={database}"]
    command = [sys.executable, "-m", "scrapy", "itemgraph", *arguments]

    with os.fdopen(writer, "wb") as pipe:
        ran = subprocess.run(
            command, cwd=tmp_path, stdout=pipe, stderr=subprocess.PIPE, check=False, timeout=60
        )

    assert ran.stderr == b""
    assert ran.returncode == 0


def test_a_terminal_without_utf8(scrapy, crawl, database, tmp_path):
    """On an ASCII terminal what it cannot show is escaped, not an error."""
    crawl.work("日本")
    crawl.connection.commit()
    ascii_terminal = {**os.environ, "PYTHONIOENCODING": "ascii"}
    url = ["-s", f"ITEMGRAPH_DATABASE_URL={database}"]

    human = subprocess_scrapy("worklist", *url, cwd=tmp_path, env=ascii_terminal)
    machine = subprocess_scrapy("worklist", "--json", *url, cwd=tmp_path, env=ascii_terminal)

    assert b"\\u65e5\\u672c" in human.stdout
    assert json.loads(machine.stdout)[0]["item"] == "日本"
    assert human.stderr == machine.stderr == b""


@pytest.mark.edge
def test_embedded_outside_a_project(tmp_path):
    """Outside a project the embedded database is made under the working directory."""
    made = subprocess_scrapy("init", "--json", cwd=tmp_path)
    empty = subprocess_scrapy("status", cwd=tmp_path)

    assert made.returncode == 0, made.stderr
    place = Path(json.loads(made.stdout)["location"])
    assert place == (tmp_path / ".scrapy/itemgraph").resolve()
    assert empty.returncode == 1
    assert b"none yet" in empty.stderr
