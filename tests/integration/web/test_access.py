"""Every endpoint and page asks who is there."""

from __future__ import annotations

from typing import Any

from fastapi.routing import APIRoute
from starlette.routing import Mount, Route

from scrapy_itemgraph.graph import ItemGraph
from scrapy_itemgraph.web.access import operator, reader
from scrapy_itemgraph.web.app import create_app
from scrapy_itemgraph.web.graphs import Graphs

OPEN = {"/login", "/logout", "/healthz"}


def calls(dependant: Any) -> set[Any]:
    """Return all that a route depends on."""
    found = {dependant.call}
    for one in dependant.dependencies:
        found |= calls(one)
    return found


def routes(router: Any) -> list[APIRoute]:
    """Return all routes, those of routers within too."""
    found = []
    for one in router.routes:
        if isinstance(one, APIRoute):
            found.append(one)
        elif hasattr(one, "routes") and one.routes:
            found += routes(one)
        elif hasattr(one, "original_router"):
            found += routes(one.original_router)
    return found


def test_each_path_wants_a_reader_and_each_change_an_operator(database):
    """Nobody forgot to ask: what reads depends on `Reader`, what changes on `Operator`."""
    with ItemGraph.open(database) as graph:
        app = create_app(Graphs(graph))
    found = routes(app)
    asked = [one for one in found if one.path not in OPEN]

    assert len(asked) > 60
    others = {getattr(one, "path", None) for one in app.routes if type(one) in {Mount, Route}}
    assert others == {"/static"}
    for route in asked:
        wanted = reader if route.methods <= {"GET", "HEAD"} else operator
        assert wanted in calls(route.dependant), (route.path, route.methods)
