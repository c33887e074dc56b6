"""Requests made up from the API's own description: no error of the server, answers as it says."""

from __future__ import annotations

import itertools
import os
import warnings
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest
import schemathesis
from conftest import new_database
from hypothesis import strategies
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)
from support import steering, web_servers
from support.graphs import Crawl

from scrapy_itemgraph.postgres import engine as engines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from schemathesis import Case
    from support.web_servers import Server

EXAMPLES = int(os.environ.get("ITEMGRAPH_TEST_REQUESTS", "3"))  # of each operation and mode
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
TASKS = {"parse": {"tags": ["page"], "ttl": "1d"}, "reviews": {"tags": ["page"]}}
KNOWN = {"crawl": "books", "item": "A", "task": "parse", "tag": "page", "slot": "a.example"}
KNOWN |= {"blob": "picture", "job": 1, "runner": "box"}
OPERATIONS = "/api/v1/crawls/books/operations"
TOO_LARGE = 431  # before anybody looks at what is in it
ENDLESS = "/api/v1/crawls/{crawl}/events"


@pytest.fixture(scope="module")
def server(server_url, template) -> Iterator[Server]:
    """Yield a server of a crawl in which there is something of each kind, with a token."""
    with new_database(server_url, template) as url:
        engine = engines.sync_engine(url)
        with engine.begin() as connection:
            crawl = Crawl.of(connection, **TASKS)
            crawl.done("A", data={"url": "http://a.example/A"})
            crawl.failed("FAILED", task="reviews")
            crawl.claimed("CLAIMED")
            steering.add(connection, name="queued")
            connection.exec_driver_sql(
                "UPDATE crawls SET state = 'active', spider = 's', project = 'proj', "
                "start_arguments = '{}', start_settings = '{}', queued_at = now() "
                "WHERE name = 'books'; "
                "INSERT INTO jobs (crawl_id, origin) SELECT id, 'runner' FROM crawls; "
                "INSERT INTO runners (name, project, places) VALUES ('box', 'proj', 1); "
                "INSERT INTO places (runner_id, number) SELECT id, 1 FROM runners"
            )
        engine.dispose()
        with web_servers.serving(url, "--crawl", "books") as server:
            blob = {"op": "attachBlob", "id": "A", "name": "picture", "content": "AAAA"}
            attached = {"operations": [blob]}
            assert server.ask("POST", OPERATIONS, attached).status_code == 200
            yield server
            assert server.process.poll() is None


@pytest.mark.parametrize("mode", list(GenerationMode))
def test_no_request_makes_an_error_of_the_server(server, mode):
    """Whatever is sent, the answer is one that the description has, and never a 500."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        description = server.get("/api/v1/openapi.json")
        for path in description["paths"].values():
            for operation in path.values():
                operation.pop("security", None)  # test_tokens is about these
        schema = schemathesis.openapi.from_dict(description)
        schema.config.update(base_url=server.url)
        found = [one.ok() for one in schema.get_all_operations()]
        operations = [one for one in found if one.path != ENDLESS]
        if mode is GenerationMode.NEGATIVE:
            operations = [one for one in operations if not takes_anything(one)]
        operations.sort(key=lambda one: ["get", "put", "patch", "post", "delete"].index(one.method))
        assert len(operations) > 40
        failed: list[str] = []
        for operation in operations:
            try:
                tried(server, operation, mode)
            except (Exception, BaseExceptionGroup) as error:
                failed.append(f"{operation.label}: {error}")
    assert not failed, "\n\n".join(failed)


def takes_anything(operation: Any) -> bool:
    """Tell whether no request can be wrong: all that it has is text in its path, of any length."""
    any_text = {"type", "title", "description", "minLength"}  # no part of a path is empty
    return not (operation.query or operation.headers or list(operation.body)) and all(
        schema["type"] == "string" and schema.keys() <= any_text
        for schema in (one.definition["schema"] for one in operation.path_parameters)
    )


def tried(server: Server, operation: Any, mode: GenerationMode) -> None:
    """Send made-up requests of one operation, some of them to what there is."""
    numbers = itertools.count()

    @hypothesis.settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize="ITEMGRAPH_TEST_REQUESTS" not in os.environ,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=[hypothesis.Phase.generate],
    )
    @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
    def send(case: Case) -> None:
        if next(numbers) % 3 and mode is GenerationMode.POSITIVE:
            known = {name: KNOWN[name] for name in case.path_parameters if name in KNOWN}
            case.path_parameters |= known
        answer = case.call(timeout=30)
        is_read = mode is GenerationMode.NEGATIVE and answer.status_code != TOO_LARGE
        extra = [negative_data_rejection] if is_read else []
        case.validate_response(answer, checks=CHECKS + extra)

    send()


def test_text_that_is_none_is_refused(server):
    """Keys, values and ids of any characters are stored and shown again, or refused with 4xx."""

    @hypothesis.settings(max_examples=10 * EXAMPLES, deadline=None, database=None, derandomize=True)
    @hypothesis.given(
        name=strategies.text(min_size=1), key=strategies.text(), value=strategies.text()
    )
    def send(name: str, key: str, value: str) -> None:
        path = "/items/" + web_servers.encoded(name)
        answer = server.ask("POST", path, {"data": {key: value}})
        if answer.status_code in {200, 201}:
            assert server.get(path)["data"][key] == value
            assert server.ask("DELETE", path).status_code == 200
        else:
            assert answer.status_code in {400, 404, 405, 422}, answer.text
            assert answer.status_code == 404 or "\0" in name + key + value

    send()
