"""What any gRPC server is asked: its health, and what it speaks."""

from __future__ import annotations

import time

from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)
from support import frontier, proxies
from support.frontier import discovered

SERVICE = "urlfrontier.URLFrontier"
STATES = health_pb2.HealthCheckResponse


def health(served, service=SERVICE):
    """Return the state that a server tells."""
    stub = health_pb2_grpc.HealthStub(served.client.channel)
    return stub.Check(health_pb2.HealthCheckRequest(service=service)).status


def becomes(served, state):
    """Tell whether a server's health becomes a state shortly."""
    until = time.monotonic() + 60
    while health(served) != state and time.monotonic() < until:
        time.sleep(0.1)
    return health(served) == state


def test_it_serves_while_the_database_answers(engine):
    """A server's health is that of its database (UF-16)."""
    with (
        proxies.proxy(engine) as (way, url),
        frontier.serving(url, "-s", "ITEMGRAPH_PATIENCE=2s") as served,
    ):
        assert becomes(served, STATES.SERVING)
        assert health(served, "") == STATES.SERVING
        before = way.lead(("127.0.0.1", 9))
        way.cut()
        assert becomes(served, STATES.NOT_SERVING)
        way.lead(before)
        assert becomes(served, STATES.SERVING)


def test_it_says_what_it_speaks(database):
    """With reflection tools see the service with its 19 calls, and that of health (UF-16)."""
    with frontier.serving(database, "--reflection") as served:
        known = ProtoReflectionDescriptorDatabase(served.client.channel)

        assert {SERVICE, "grpc.health.v1.Health"} <= set(known.get_services())
        file = known.FindFileContainingSymbol(SERVICE)
        assert len(file.service[0].method) == 19
        assert served.client.put(discovered("http://a.example/")) == [("http://a.example/", "OK")]
