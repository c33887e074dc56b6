"""What others may ask of any gRPC server: whether it serves, and what it speaks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2

from scrapy_itemgraph.exceptions import DatabaseUnavailableError
from scrapy_itemgraph.urlfrontier.descriptors import pool_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    from scrapy_itemgraph.graph.frontier_graph import FrontierGraph

LOOK_EVERY = 2.0  # seconds between two looks whether the database answers

_STATES = health_pb2.HealthCheckResponse


class Health:
    """Tells by grpc.health.v1 whether calls are answered: not without a database."""

    def __init__(self, graph: FrontierGraph, services: Iterable[str]) -> None:
        self._graph = graph
        self._names = ("", *services)
        self._servicer = health.aio.HealthServicer()

    def add_to(self, server: Any) -> None:
        """Have a server answer what its health is."""
        health_pb2_grpc.add_HealthServicer_to_server(self._servicer, server)

    async def look(self) -> None:
        """See whether the database answers."""
        try:
            await self._graph.check()
        except DatabaseUnavailableError:
            await self._tell(_STATES.NOT_SERVING)
            raise
        await self._tell(_STATES.SERVING)

    async def end(self) -> None:
        """Tell from now on that nothing more is served."""
        await self._servicer.enter_graceful_shutdown()

    async def _tell(self, state: Any) -> None:
        for name in self._names:
            await self._servicer.set(name, state)


def reflect(server: Any, services: Iterable[str], described: Iterable[FileDescriptorProto]) -> None:
    """Have a server describe services by their files, and what it speaks besides."""
    pool = pool_of(described)
    for file in (health_pb2.DESCRIPTOR, reflection_pb2.DESCRIPTOR):
        pool.AddSerializedFile(file.serialized_pb)
    names = (*services, health.SERVICE_NAME, reflection.SERVICE_NAME)
    reflection.enable_server_reflection(names, server, pool=pool)
