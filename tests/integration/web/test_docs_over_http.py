"""The examples of docs/howto/http.md are run as they stand there."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from support import web_servers
from support.graphs import Crawl

PAGE = Path(__file__).parents[3] / "docs" / "howto" / "http.md"
EXAMPLE = re.compile(r"^```sh\n(.*?)^```$(?:\n\n```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)
BOOK = {"parse_book": {"tags": ["book"], "ttl": "1d"}}


@pytest.mark.skipif(not shutil.which("curl"), reason="there is no curl; apt-get install curl")
def test_the_examples_of_the_notes_endpoints_run(database, engine):
    """Each curl line is answered with 2xx and JSON; where the page shows it, with that."""
    with engine.begin() as connection:
        Crawl.of(connection, **BOOK)
    examples = EXAMPLE.findall(PAGE.read_text())
    lines = [line for block, _ in examples for line in re.split(r"(?<!\\)\n", block) if line]
    shown = {block.strip(): text for block, text in examples if text}

    assert len(lines) == 9
    with web_servers.serving(database) as server:
        for line in lines:
            assert line.startswith("curl ")
            command = line.replace("curl ", "curl --fail-with-body -sS ", 1)
            command = command.replace("http://127.0.0.1:8808/", server.url)
            done = subprocess.run(
                ["bash", "-c", command], capture_output=True, text=True, check=False, timeout=30
            )
            assert done.returncode == 0, (line, done.stdout, done.stderr)
            answer = json.loads(done.stdout)
            if line in shown:
                assert answer == json.loads(shown[line])
    (deleted,) = web_servers.rows(database, "SELECT count(*) FROM items")
    assert deleted == (0,)


def test_the_page_lists_every_path_of_the_api(database):
    """What OpenAPI knows below /api/v1 stands in the page's table or among its examples."""
    fastapi = pytest.importorskip("fastapi")
    assert fastapi
    from scrapy_itemgraph.graph import ItemGraph
    from scrapy_itemgraph.web.app import create_app
    from scrapy_itemgraph.web.graphs import Graphs

    text = PAGE.read_text()
    with ItemGraph.open(database) as graph:
        paths = create_app(Graphs(graph)).openapi()["paths"]
    for path in paths:
        last = [part for part in path.split("/") if part and not part.startswith("{")][-1]
        assert last in text, path
