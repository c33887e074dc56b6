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
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from google.protobuf.descriptor_pb2 import FileDescriptorProto


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
    files: Sequence[FileDescriptorProto]  # those that are imported first
    pool: descriptor_pool.DescriptorPool


def load(name: str, service: str) -> Api:
    """Load a service from the descriptor set `protos/NAME.bin` of this package."""
    given = (files(__package__) / "protos" / f"{name}.bin").read_bytes()
    described_files = descriptor_pb2.FileDescriptorSet.FromString(given).file
    pool = pool_of(described_files)
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
    return Api(service, messages, methods, described_files, pool)


def pool_of(described: Iterable[FileDescriptorProto]) -> descriptor_pool.DescriptorPool:
    """Return a pool with files, each of which is there once; what is imported comes first."""
    pool = descriptor_pool.DescriptorPool()
    for one in {one.name: one for one in described}.values():
        pool.AddSerializedFile(one.SerializeToString())
    return pool


def moved(file: FileDescriptorProto, package: str) -> FileDescriptorProto:
    """Return a file with the same names in another package."""
    made = descriptor_pb2.FileDescriptorProto()
    made.CopyFrom(file)
    made.name, made.package = f"{package}/{file.name}", package
    before, after = f".{file.package}.", f".{package}."
    for message in _all(made.message_type):
        for field in message.field:
            if field.type_name:  # of a message, or an enumeration
                field.type_name = _moved(field.type_name, before, after)
    for service in made.service:
        for method in service.method:
            method.input_type = _moved(method.input_type, before, after)
            method.output_type = _moved(method.output_type, before, after)
    return made


def _moved(name: str, before: str, after: str) -> str:
    return after + name.removeprefix(before) if name.startswith(before) else name


def _all(messages: Iterable[Any]) -> Iterator[Any]:
    """Yield messages, and those inside of them."""
    for one in messages:
        yield one
        yield from _all(one.nested_type)
