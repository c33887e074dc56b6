"""Every endpoint and page asks who is there."""

from __future__ import annotations

import re
from typing import Any

from fastapi.routing import APIRoute
from starlette.routing import Mount, Route
from support.web_servers import asked

from scrapy_itemgraph.graph import ItemGraph
from scrapy_itemgraph.model.access_tokens import Role
from scrapy_itemgraph.web import pages
from scrapy_itemgraph.web.access import operator, reader, steerer
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


def test_each_path_wants_a_reader_and_each_change_who_may_do_it(database):
    """Nobody forgot to ask: what reads wants a reader, what steers a steerer, else an operator."""
    with ItemGraph.open(database) as graph:
        app = create_app(Graphs(graph))
    found = routes(app)
    asked = [one for one in found if one.path not in OPEN]

    assert len(asked) > 60
    others = {getattr(one, "path", None) for one in app.routes if type(one) in {Mount, Route}}
    assert others == {"/static"}
    for route in asked:
        wanted = reader if route.methods <= {"GET", "HEAD"} else steerer
        assert wanted in calls(route.dependant), (route.path, route.methods)
        if wanted is steerer:
            is_free = operator not in calls(route.dependant)
            assert is_free == is_steering(route.path), (route.path, route.methods)


def is_steering(path: str) -> bool:
    """Tell whether changes at a path are those that a token with the role `queue` may make."""
    path = path.removeprefix("/api/v1")
    steered = r"/(queue|schedules)($|/)|/jobs/{\w+}/(cancel|retry)$|(/crawls/{[\w:]+})?/rules($|/)"
    return re.match(steered, path) is not None


def test_each_role_may_what_it_says_and_no_more(database):
    """MNB-1: of each change, who may read is refused, and who may queue unless it steers crawls."""
    with ItemGraph.open(database) as graph:
        secrets = {role: graph.tokens.add(role, role) for role in Role}
        app = create_app(Graphs(graph))
        described = app.openapi()["paths"].items()
        changes = [(method, path) for path, methods in described for method in methods]
        for route in routes(pages.router):
            changes += [(method, route.path) for method in route.methods]
        changes = [one for one in changes if one[0].lower() not in {"get", "head"}]
        assert len(changes) > 50
        for method, template in changes:
            path = re.sub(r"{[^}]*}", "1", template)
            found = {
                role: asked(app, method, path, headers=headers_of(secrets[role]), content="{}")
                for role in Role
            }
            statuses = {role: answer.status_code for role, answer in found.items()}
            refused = {role for role, status in statuses.items() if status == 403}

            wanted = {Role.READ} if is_steering(template) else {Role.READ, Role.QUEUE}
            assert refused == wanted, (method, path, statuses)


def headers_of(secret: str) -> dict[str, str]:
    """Return the headers of a change."""
    return {"authorization": f"Bearer {secret}", "content-type": "application/json"}
