"""`scrapy itemgraph` itself: help, misuse, which crawl and which database."""

from __future__ import annotations

import json
from urllib.parse import quote, quote_plus

import pytest
import sqlalchemy as sa
from support.commands_run import NOWHERE

from scrapy_itemgraph.commands import COMMANDS, GROUPS, printing
from scrapy_itemgraph.store.registry import crawls
from scrapy_itemgraph.tools import url_secrets

# The command itself


def test_lists_the_commands(scrapy):
    """Without a command it prints each command on a line, and each group with its verbs."""
    ran = scrapy()

    assert ran.code == 0
    alone = {name: command for name, command in COMMANDS.items() if " " not in name}
    for name, shown in {**alone, **GROUPS}.items():
        assert f"  {name} " in ran.out
        assert shown.summary in " ".join(ran.out.split())
    for group in GROUPS.values():
        assert f"{group.summary}: {', '.join(group.verbs)}" in " ".join(ran.out.split())
    assert max(map(len, ran.out.splitlines())) <= 100


@pytest.mark.parametrize("name", GROUPS)
def test_help_of_each_group(scrapy, name):
    """`--help` after a group's name lists its commands."""
    ran = scrapy(name, "--help")

    assert ran.code == 0
    assert ran.out.startswith(f"usage: scrapy itemgraph {name} COMMAND")
    for verb, command in GROUPS[name].verbs.items():
        assert f"  {verb} " in ran.out
        assert command.summary in ran.out
    assert max(map(len, ran.out.splitlines())) <= 100


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_each(scrapy, name):
    """`--help` says what a command takes, and does nothing."""
    ran = scrapy(*name.split(), "--help")

    assert ran.code == 0
    assert ran.out.startswith(f"usage: scrapy itemgraph {name}")
    for argument in COMMANDS[name].arguments:
        assert argument.options.get("help")
        assert (argument.options.get("metavar") or argument.flags[0]) in ran.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["shwo"], "did you mean 'show'?"),
        (["tokn", "list"], "did you mean 'token'?"),
        (["token"], "say which: add, list, remove"),
        (["token", "remov", "anna"], "did you mean 'remove'?"),
        (["token", "remov", "--help"], "unknown command 'token remov'"),
        (["retry", "1"], "unknown command 'retry'; did you mean 'handle'?"),
        (["token", "--role", "read", "add", "anna"], "unknown command 'token --role'"),
        (["token", "add", "anna"], "required: --role"),
        (["token", "list", "anna"], "unexpected argument 'anna'"),
        (["crawls", "list", "--yes"], "unknown option --yes"),
        (["crawls", "delete"], "takes names, or --spider"),
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
        (["handle"], "say which: FAILURE numbers"),
        (["handle", "1", "--all"], "give FAILURE numbers, or options"),
        (["handle", "0"], "whole number from 1"),
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
    unclear = scrapy("tasks")
    all_of_them = scrapy("status", "--json")
    unknown = scrapy("status", "--crawl", "boks")

    assert only.document["crawl"] == "books"
    assert fixed.document["crawl"] == "films"
    assert named.document["crawl"] == "books"
    assert unclear.code == unknown.code == 1
    assert "books, films" in unclear.err
    assert [one["crawl"] for one in all_of_them.document] == ["books", "films"]
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
    secret = str(url.password or "s3same")
    if port == "wrong":
        url = url.set(query={}, host="127.0.0.1", port=1)
    if form == "login":
        url = url.set(username=url.username or "postgres", password=secret)
    else:
        query = {"password": secret, "sslpassword": secret}
        url = url._replace(password=None).update_query_dict(query)
    given = f"ITEMGRAPH_DATABASE_URL={url.render_as_string(hide_password=False)}"

    runs = [
        scrapy(*command, "-s", given)
        for command in (("init",), ("init", "--json"), ("migrate",), ("migrate", "--json"))
    ]

    assert [ran.code for ran in runs] == [0 if port == "right" else 1] * 4
    said = "".join(ran.out + ran.err for ran in runs)
    assert not [text for text in (secret, quote(secret), quote_plus(secret)) if text in said]
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


def test_the_documentation_is_listed_and_written(scrapy):
    """A page is asked for by its name, its last part, or a link; what is unclear is said."""
    listed = scrapy("docs")
    page = scrapy("docs", "howto/data").out

    assert listed.out.splitlines()[1].startswith("index ")
    assert "howto/data " in listed.out
    assert "contributing" not in listed.out
    assert page.startswith("# How do I get my data?\n")
    assert (
        scrapy("docs", "data").out == scrapy("docs", "docs/howto/data.md#from-python").out == page
    )
    assert scrapy("docs", "glossary", "--json").document["title"] == "Glossary"
    assert "howto/testing or reference/testing" in scrapy("docs", "testing").err
    assert "did you mean 'howto/data'?" in scrapy("docs", "howto/dat").err
