"""The documentation is complete, its links lead somewhere, and its examples are Python."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import textwrap
from dataclasses import fields
from pathlib import Path

import pytest
import sqlalchemy as sa

from scrapy_itemgraph import ItemGraph, settings, task, testing
from scrapy_itemgraph.commands import COMMANDS, GROUPS
from scrapy_itemgraph.model import operations
from scrapy_itemgraph.postgres import tables

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"


def section(page: str, heading: str) -> str | None:
    """Return what stands under a heading of a page of the reference."""
    text = (REFERENCE / page).read_text()
    found = re.search(
        rf"^#+ `?{re.escape(heading)}`?$\n(.*?)(?=^#+ |\Z)", text, re.MULTILINE | re.DOTALL
    )
    return None if found is None else found[1]


def test_each_command_has_a_heading():
    """Each command has a heading, with its usage, its options, and its form in JSON."""
    for name, command in COMMANDS.items():
        said = section("cli.md", name)

        assert said is not None, name
        assert f"`scrapy itemgraph {name}" in said
        assert "JSON:" in said
        for argument in command.arguments:
            shown = argument.flags[0] if argument.is_option else argument.options["metavar"]
            assert shown in said, (name, shown)


def test_each_group_of_commands_has_a_heading():
    """A group's section names its commands."""
    for name, group in GROUPS.items():
        said = section("cli.md", name)

        assert said is not None, name
        assert f"`scrapy itemgraph {name} COMMAND`" in said
        assert all(f"[{verb}](#{name}-{verb})" in said for verb in group.verbs)


# All the other pages.

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "SECURITY.md", *sorted(DOCS.rglob("*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^(#+) (.+)$", re.MULTILINE)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")


def without_code(text):
    """Return a page without its fenced blocks and its code in lines."""
    return re.sub(r"`[^`\n]*`", "", FENCE.sub("", text))


def sections(path):
    """Return the text below each heading of a page, by the heading."""
    text = FENCE.sub(lambda m: m[0].replace("\n#", "\n "), path.read_text())
    found = list(HEADING.finditer(text))
    ends = [match.start() for match in found[1:]] + [len(text)]
    return {
        m[2].strip("`"): text[m.end() : end].strip() for m, end in zip(found, ends, strict=True)
    }


def anchors(path):
    """Return the fragments that a page's headings make, as GitHub names them."""
    headings = (match[2] for match in HEADING.finditer(FENCE.sub("", path.read_text())))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def blocks(language):
    """Return the fenced blocks of a language on all pages."""
    return [
        pytest.param(textwrap.dedent(body), id=f"{page.relative_to(ROOT)}:{number}")
        for page in PAGES
        for number, (name, body) in enumerate(FENCE.findall(page.read_text()), 1)
        if name == language
    ]


@pytest.mark.parametrize("name", sorted(settings.NAMES))
def test_every_setting_has_a_section(name):
    """A setting that is read has a heading, and says its default."""
    section = sections(DOCS / "reference/settings.md")[name]

    assert section.startswith("Default: ")


def test_every_setting_with_a_section_is_read():
    """The reference names no setting of ours that does not exist."""
    named = sections(DOCS / "reference/settings.md").keys()

    assert {name for name in named if name.startswith("ITEMGRAPH_")} == settings.NAMES


@pytest.mark.parametrize("name", inspect.getfullargspec(task).kwonlyargs)
def test_every_option_of_a_task_has_a_section(name):
    """A keyword of `@task` has a heading."""
    assert sections(DOCS / "reference/tasks.md")[name]


@pytest.mark.parametrize("name", operations.CLASSES)
def test_every_operation_has_a_section_with_its_fields(name):
    """An operation has a heading, a line for each field, and its JSON form if there is one."""
    section = sections(DOCS / "reference/operations.md")[name]

    given = [f.name for f in fields(operations.CLASSES[name]) if f.init]
    documented = re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
    assert sorted(documented) == sorted(given)
    if name != "AllowFailure":
        spelling = "setTTL" if name == "SetTTL" else name[0].lower() + name[1:]
        assert f'"op": "{spelling}"' in section


def methods(one):
    """Return the public methods and properties of a class, by name."""
    return {name: member for name, member in inspect.getmembers(one) if not name.startswith("_")}


OFFLINE = ItemGraph(sa.create_engine("postgresql+psycopg://"), "books")
PARTS = {name: type(part) for name, part in vars(OFFLINE).items() if not name.startswith("_")}
DOOR = methods(ItemGraph) | {
    f"{noun}.{name}": member
    for noun, part in PARTS.items()
    for name, member in methods(part).items()
}


@pytest.mark.parametrize("name", DOOR)
def test_every_method_of_the_door_has_a_section(name):
    """A public method of `ItemGraph` or of a part has a heading that gives its parameters."""
    section = sections(DOCS / "reference/python.md")[name]

    if not isinstance(DOOR[name], property):
        wanted = set(inspect.signature(DOOR[name]).parameters) - {"self", "given"}
        assert not {one for one in wanted if not re.search(rf"\b{one}\b", section)}


def test_every_part_of_the_door_has_a_section():
    """Each noun has a heading and a line of the table; items alone are the graph's own."""
    page = DOCS / "reference/python.md"
    assert set(PARTS) <= set(sections(page))
    assert re.findall(r"^\| \[`graph\.(\w+)`\]", page.read_text(), re.MULTILINE) == list(PARTS)
    assert len([one for one in methods(ItemGraph) if one != "crawl"]) <= 20


@pytest.mark.parametrize("name", testing.__all__)
def test_every_name_of_testing_has_a_section(name):
    """A function has a heading that gives its parameters, and what it returns its fields."""
    section = sections(DOCS / "reference/testing.md")[name]

    one = getattr(testing, name)
    wanted = inspect.signature(one).parameters
    assert not [each for each in wanted if not re.search(rf"\b{each}\b", section)]


@pytest.mark.parametrize("name", tables.metadata.tables)
def test_every_table_has_a_section_with_its_columns(name):
    """A table has a heading, and each of its columns is named there."""
    section = sections(DOCS / "reference/schema.md")[name]

    columns = [column.name for column in tables.metadata.tables[name].columns]
    assert not [column for column in columns if f"`{column}`" not in section]


def test_every_stat_has_a_line():
    """A stat that the code counts has a line in the tables of stats, and no other has."""
    package = ROOT / "scrapy_itemgraph"
    committer = (package / "worker" / "committer.py").read_text()
    counted = set(re.findall(r'(?:Outcome\.\w+|None): "(\w+)"', committer))
    for module in package.rglob("*.py"):
        counted |= set(re.findall(r'inc_value\("itemgraph/(\w+)"', module.read_text()))
    # AllowFailure changes nothing itself, and makes no note to count.
    changing = [cls for name, cls in operations.CLASSES.items() if name != "AllowFailure"]
    counted |= {f"op/{cls.__new__(cls).verb}" for cls in changing}

    stats = (DOCS / "reference/stats.md").read_text()

    assert set(re.findall(r"^\| `itemgraph/([\w/]+)` \|", stats, re.MULTILINE)) == counted


def test_every_label_in_the_log_is_explained():
    """A label that an operation notes is in the table of labels."""
    modules = ("effects/item_operations", "effects/result_operations")
    appliers = "".join((ROOT / f"scrapy_itemgraph/changesets/{m}.py").read_text() for m in modules)
    labels = set(re.findall(r'run\.note\(operation, "([\w ]+)"', appliers))

    stats = (DOCS / "reference/stats.md").read_text()

    assert labels
    assert not [label for label in labels if f"`[{label}]`" not in stats]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    """A relative link names a file that exists, and a heading of it."""
    for link in LINK.findall(without_code(page.read_text())):
        if re.match(r"\w+:", link):
            continue
        name, _, fragment = link.partition("#")
        target = page.parent / name if name else page
        assert target.exists(), f"{page}: {link}"
        if fragment:
            assert fragment in anchors(target), f"{page}: {link}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_heading_stands_alone(page):
    """Below each heading there is a text, or a heading of a lower level."""
    text = FENCE.sub("text\n", page.read_text())

    assert not re.findall(r"^(#+) (.+)\n+(?=#{1,6} )(?!\1#)", text + "\n# ", re.MULTILINE)


def test_every_page_is_in_the_index():
    """The index links to each page, but for single decisions."""
    linked = {
        (DOCS / link.partition("#")[0]).resolve()
        for link in LINK.findall((DOCS / "index.md").read_text())
    }
    pages = set(DOCS.rglob("*.md")) - {DOCS / "index.md"}

    single = {page for page in pages if page.parent.name == "decisions"}
    assert not pages - single - linked


@pytest.mark.parametrize("code", blocks("python"))
def test_python_examples_compile(code):
    """An example in Python compiles, says something, and imports what is there."""
    tree = ast.parse(code)
    compile(tree, "example", "exec")

    assert tree.body
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module.startswith("scrapy_itemgraph"):
            module = importlib.import_module(node.module)
            names = [one.name for one in node.names if one.name != "*"]
            assert not [name for name in names if not hasattr(module, name)]


@pytest.mark.parametrize("line", blocks("json"))
def test_json_examples_are_operations(line):
    """A JSON form that the docs show is read, and can be stored."""
    import json

    operation = operations.from_json(json.loads(line))

    assert operations.checked(operation, "docs")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_page_says_what_is_no_longer_so(page):
    """No page puts off what is there, and "held" is said of pairs, not of requests in memory."""
    text = " ".join(without_code(page.read_text()).split())

    assert not re.findall(
        r"(?i)in this version|(?:with|in) a later version|## not yet|each process paces itself"
        r"|held in memory|held request",
        text,
    )


def test_the_glossary_has_the_words_of_the_first_page():
    """Words that the README makes bold or stresses, and the states of a pair, are explained."""
    glossary = (DOCS / "glossary.md").read_text()

    words = ("item graph", "item", "alias", "tag", "task", "fresh", "stale", "held", "never run")
    assert not [word for word in words if f"\n| **{word}** |" not in glossary]


def test_tests_that_pages_name_are_there():
    """Each `file.py::test` on a page is a test below tests/."""
    for page in PAGES:
        for file, name in re.findall(r"`([\w/]+\.py)::(\w+)`", page.read_text()):
            path = ROOT / "tests" / file
            assert path.exists(), (page, file)
            assert re.search(rf"^(async )?def {name}\(", path.read_text(), re.MULTILINE), name


def test_each_promise_names_a_test():
    """What the page of guarantees promises, up to what is not promised, has tests below it."""
    page = (DOCS / "explanation" / "guarantees.md").read_text()
    promises = re.findall(
        r"^- \*\*.+(?:\n  .*)*", page.partition("## What is not promised")[0], re.MULTILINE
    )

    assert len(promises) > 30
    assert not [promise for promise in promises if ".py::test_" not in promise]


def test_the_readme_says_what_it_is_what_to_type_and_when_to_use_it():
    """What comes before tasks says so in no word of ours, with a picture, and why not others."""
    text = (ROOT / "README.md").read_text()
    first = text.partition("\n## Items and tasks")[0]

    assert len(re.split(r"\.\s", first.split("\n\n")[1])) == 2
    assert first.count("![") == 1
    assert first.index("pip install") < 1_000
    for said in ("Why not `JOBDIR`?", "Why not scrapy-redis?", "Why not Scrapyd alone?"):
        assert first.count(said) == 1
    assert text.count("`make demo`") == text.count("`make test`") == 1
    plain = re.sub(r"```.*?```|`[^`]*`", "", first, flags=re.DOTALL)
    assert not re.findall(r"(?i)\b(frontier|claim|lease|execution|alias|tag|stale|held)\b", plain)


def test_the_architecture_page_names_what_there_is():
    """Each `module: name` and each module of a room that it names can be imported."""
    page = (DOCS / "explanation" / "architecture.md").read_text()
    rooms = {path.parent.name for path in (ROOT / "scrapy_itemgraph").glob("*/__init__.py")}
    named = re.findall(r"`([a-z_.]+): ([A-Za-z_.]+)`", page)
    named += [(name, "") for name in re.findall(r"`((?:[a-z_]+\.)+[a-z_]+)`", page)]
    named = [one for one in named if one[1] or one[0].partition(".")[0] in rooms]

    assert len(named) > 30
    for module, name in named:
        found = importlib.import_module(f"scrapy_itemgraph.{module}")
        for part in filter(None, name.split(".")):
            found = getattr(found, part)


def test_the_architecture_pages_picture_has_all_rooms():
    """The picture shows each room, and each module that Scrapy calls."""
    page = (DOCS / "explanation" / "architecture.md").read_text()
    picture = page.partition("```text")[2].partition("```")[0]

    for path in (ROOT / "scrapy_itemgraph").glob("*/__init__.py"):
        assert re.search(rf"\b{path.parent.name}\b", picture), path
