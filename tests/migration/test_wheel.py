"""The wheel, built and installed elsewhere: it carries its migrations and its types."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa

from scrapy_itemgraph.postgres import migrate

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {k: v for k, v in os.environ.items() if k not in {"PYTHONPATH", "MYPYPATH"}}
# Only the dependencies come from here; a `.pth` of an editable install is not followed.
DEPENDENCIES = str(Path(sa.__file__).parents[1])

SPIDER = """
from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import scrapy
from scrapy.http import Response

from scrapy_itemgraph import CreateItem, ItemContext, ItemGraph, RenameItem, UpdateData, task


class BooksSpider(scrapy.Spider):
    name = "books"

    def seeds(self) -> Iterator[CreateItem]:
        yield CreateItem(id="CATEGORY:travel", tags=["category"], data={"url": "https://b.example"})

    @task(tags=["category"], ttl="6h", rate_limit="1/s")
    def parse_category(self, response: Response, item: ItemContext) -> Iterator[CreateItem]:
        for href in response.css("h3 a::attr(href)").getall():
            yield CreateItem(id=f"URL:{href}", tags={"book": None}, data={"url": href})

    @task(tags=["book"], version="2", backoff=["1m", 3600.0])
    async def parse_book(self, response: Response, item: ItemContext) -> AsyncIterator[Any]:
        seen = await item.get_metadata(only_fresh=True)
        yield UpdateData({"title": response.css("h1::text").get(), "again": seen is not None})
        yield UpdateData(lambda data: {**data, "attempt": item.attempt})
        yield RenameItem(to=f"UPC:{item.data['upc']}", if_taken="merge")


def look(url: str) -> list[str]:
    with ItemGraph.open(url, crawl="books") as graph:
        return [failure.item for failure in graph.failures.list()]
"""
WRONG = """
import scrapy
from scrapy_itemgraph import CreateItem, ItemContext, task


class S(scrapy.Spider):
    @task(tag="page")
    def parse_page(self, response: object, item: ItemContext) -> int:
        reveal_type(item.attempt)
        return item.id


reveal_type(S.parse_page)
CreateItem(id=3)
"""


def run(*command, cwd=ROOT, **variables):
    """Run a command, and return its code and its output."""
    ran = subprocess.run(
        [str(one) for one in command],
        cwd=cwd,
        env=ENVIRONMENT | variables,
        text=True,
        check=False,
        capture_output=True,
    )
    return ran.returncode, ran.stdout + ran.stderr


def must(*command, **options):
    """Run a command that has to end well, and return its output."""
    code, output = run(*command, **options)
    assert code == 0, output
    return output


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Build the wheel, install it into a fresh environment, and return its site-packages."""
    directory = tmp_path_factory.mktemp("wheel")
    build = f"from hatchling.build import build_wheel; print(build_wheel({str(directory)!r}))"
    wheel = directory / must(sys.executable, "-c", build).splitlines()[-1]
    must(sys.executable, "-m", "venv", "--without-pip", directory / "venv")
    python = directory / "venv" / "bin" / "python"
    must(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", wheel)
    (site,) = (directory / "venv").glob("lib/python*/site-packages")
    return site


def test_an_installed_wheel_carries_its_migrations(empty_database, site):
    """A wheel, built and installed elsewhere, migrates a database without the checkout."""
    output = must(
        site.parents[2] / "bin" / "python",
        "-c",
        "import sys; from scrapy_itemgraph.postgres import engine, migrate\n"
        "with engine.sync_engine(sys.argv[1]).begin() as connection:\n"
        "    migrate.ensure(connection, auto=False)\n"
        "    print(migrate.__file__, migrate._directory(), migrate.current(connection))",
        empty_database,
        cwd=site,
        PYTHONPATH=f"{site}{os.pathsep}{DEPENDENCIES}",
    )

    module, directory, version = output.split()
    assert Path(module).is_relative_to(site)
    assert directory == str(site / "scrapy_itemgraph" / "migrations")
    assert version == migrate.head()


def test_an_installed_wheel_carries_its_pages(site):
    """A wheel has the templates and files of the cockpit, and the application is made of it."""
    output = must(
        site.parents[2] / "bin" / "python",
        "-c",
        "from scrapy_itemgraph.web import app, pages\n"
        "from scrapy_itemgraph.web.pages.rendering import ENVIRONMENT\n"
        "ENVIRONMENT.get_template('login.html')\n"
        "print(app.__file__, (app.STATIC / 'cockpit.css').is_file())",
        cwd=site,
        PYTHONPATH=f"{site}{os.pathsep}{DEPENDENCIES}",
    )

    module, has_files = output.split()
    assert Path(module).is_relative_to(site)
    assert has_files == "True"


def test_an_installed_wheel_describes_itself_and_has_its_documentation(site):
    """The long description links to no file; it names pages, each of which `docs` shows."""
    (metadata,) = site.glob("scrapy_itemgraph-*.dist-info/METADATA")
    description = metadata.read_text().partition("\n\n")[2]
    pages = site / "scrapy_itemgraph" / "docs"

    assert re.findall(r"\]\((?!https?://)", description) == []
    named = re.findall(r"[\w?] \(`([\w/-]+)`\)", description)
    assert "howto/data" in named
    assert [one for one in named if not (pages / f"{one}.md").is_file()] == []


def test_an_installed_wheel_types_a_users_spider(site, tmp_path):
    """Mypy, strict, sees the types of task, operations and item; and what is used wrongly."""
    (site / "dependencies.pth").write_text(DEPENDENCIES)
    (tmp_path / "spider.py").write_text(SPIDER)
    (tmp_path / "wrong.py").write_text(WRONG)

    python = site.parents[2] / "bin" / "python"
    code, output = run(
        *(sys.executable, "-m", "mypy", "--strict", "--python-executable", python),
        *("--config-file", os.devnull, "--cache-dir", tmp_path / "cache"),
        *("spider.py", "wrong.py"),
        cwd=tmp_path,
    )

    assert code == 1, output
    assert "spider.py:" not in output
    assert re.findall(r"wrong\.py:\d+: error: .*\[([\w-]+)\]$", output, re.MULTILINE) == [
        "call-arg",
        "return-value",
        "arg-type",
    ], output
    assert 'Revealed type is "int"' in output
    assert "-> int" in output, "the decorator keeps the method's own type"
