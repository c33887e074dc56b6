"""Messages and methods of an API, from its descriptor set, without generated code.

Each set has a pool of its own: in the one that a process shares, the same names of another client
of URLFrontier would be an error.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Method:
    """A method of a service: the classes of its messages, and which of them come in streams."""

    name: str
    takes: Any
    gives: Any
    takes_stream: bool
    gives_stream: bool


@dataclass(frozen=True, slots=True)
class Api:
    """A service, and the classes of the messages of its package."""

    service: str  # with its package
    messages: Mapping[str, Any]
    methods: Mapping[str, Method]
    pool: descriptor_pool.DescriptorPool


def load(name: str, service: str) -> Api:
    """Load a service from the descriptor set `protos/NAME.bin` of this package."""
    pool = descriptor_pool.DescriptorPool()
    given = (files(__package__) / "protos" / f"{name}.bin").read_bytes()
    found = descriptor_pb2.FileDescriptorSet.FromString(given)
    for file in found.file:
        pool.AddSerializedFile(file.SerializeToString())
    described = pool.FindServiceByName(service)
    messages = {
        one.name: message_factory.GetMessageClass(one)
        for one in described.file.message_types_by_name.values()
    }
    methods = {
        one.name: Method(
            one.name,
            messages[one.input_type.name],
            messages[one.output_type.name],
            one.client_streaming,
            one.server_streaming,
        )
        for one in described.methods
    }
    return Api(service, messages, methods, pool)
