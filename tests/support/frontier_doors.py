"""Doors of a frontier: tokens of its database, what it answers to whom, and its numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc
import httpx
from prometheus_client.parser import text_string_to_metric_families

from scrapy_itemgraph.graph import ItemGraph
from scrapy_itemgraph.urlfrontier import v2

if TYPE_CHECKING:
    from pathlib import Path

    from support.certificates import Pair
    from support.frontier import Client, Frontier

UNAUTHENTICATED = grpc.StatusCode.UNAUTHENTICATED
DENIED = grpc.StatusCode.PERMISSION_DENIED
OK = grpc.StatusCode.OK


def add_token(database: str, name: str, role: str = "operate") -> str:
    """Make a token, and return its secret."""
    with ItemGraph.open(database) as graph:
        return graph.tokens.add(name, role)


def remove_token(database: str, name: str) -> None:
    """Remove a token."""
    with ItemGraph.open(database) as graph:
        graph.tokens.remove(name)


def outcome(client: Client, name: str = "ListCrawls") -> tuple[grpc.StatusCode, str]:
    """Return the code of an empty call, and what is said of it."""
    method = v2.API.methods[name]
    given = method.takes()
    try:
        answer = client.call(name)(iter([given]) if method.takes_stream else given, timeout=60)
        if method.gives_stream:
            list(answer)
    except grpc.RpcError as error:
        return error.code(), error.details()
    return OK, ""


def tls(pair: Pair, client_ca: Path | None = None) -> list[str]:
    """Return the options of a server with a certificate."""
    options = ["--tls-cert", str(pair.certificate), "--tls-key", str(pair.key)]
    return options if client_ca is None else [*options, "--tls-client-ca", str(client_ca)]


def scraped(served: Frontier, **options: Any) -> dict[tuple[str, ...], float]:
    """Return the numbers of a server, by their names and labels."""
    answer = httpx.get(f"http://{served.said['metrics']}/metrics", **options)
    assert answer.status_code == 200, answer.text
    return {
        (one.name, *one.labels.values()): one.value
        for family in text_string_to_metric_families(answer.text)
        for one in family.samples
    }
