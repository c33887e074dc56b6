"""What the gRPC door speaks is the URLFrontier API 2.6: names, numbers and types."""

from __future__ import annotations

from importlib.resources import files

import pytest
from google.protobuf import descriptor_pb2

from scrapy_itemgraph.urlfrontier import v2

PROTOS = files("scrapy_itemgraph.urlfrontier") / "protos"
SERVICE = "urlfrontier.URLFrontier"

# Method: what it takes, what it gives; * is a stream.
METHODS = """
ListNodes Empty StringList
ListCrawls Local StringList
DeleteCrawl DeleteCrawlMessage Long
ListQueues Pagination QueueList
GetURLs GetParams *URLInfo
PutURLs *URLItem *AckMessage
PutDiscovered *DiscoveredBatch *BatchAck
GetStats QueueWithinCrawlParams Stats
DeleteQueue QueueWithinCrawlParams Long
BlockQueueUntil BlockQueueParams Empty
SetActive Active Empty
GetActive Local Boolean
SetDelay QueueDelayParams Empty
SetLogLevel LogLevelParams Empty
SetCrawlLimit CrawlLimitParams Empty
GetURLStatus URLStatusRequest URLItem
ListURLs ListUrlParams *URLItem
CountURLs CountUrlParams Long
PurgeURLs PurgeUrlParams Long
"""

# Message: number, name and type of each field; ? is optional, * repeated, | a member of `item`.
MESSAGES = """
Active: 1 state bool, 2 local bool
AnyCrawlID:
AckMessage: 1 ID string, 2 status AckMessage.Status
BatchAck: 1 ID string, 2 statuses *AckMessage.Status
BlockQueueParams: 1 key string, 2 time uint64, 3 crawlID string, 4 local bool
Boolean: 1 state bool
CountUrlParams: 1 key string, 2 crawlID string, 3 filter ?string, 4 ignoreCase ?bool, 5 local ?bool
CrawlLimitParams: 1 key string, 2 limit uint32, 3 crawlID string, 4 local bool
DeleteCrawlMessage: 1 value string, 2 local bool
DiscoveredBatch: 1 ID string, 2 items *URLInfo
DiscoveredURLItem: 1 info URLInfo
Empty:
GetParams: 1 max_urls_per_queue uint32, 2 max_queues uint32, 3 key string, \
4 delay_requestable uint32, 5 anyCrawlID |AnyCrawlID, 6 crawlID |string
KnownURLItem: 1 info URLInfo, 2 refetchable_from_date uint64
ListUrlParams: 1 start uint32, 2 size uint32, 3 key string, 4 crawlID string, 5 local bool, \
6 filter ?string, 7 ignoreCase ?bool
Local: 1 local bool
LogLevelParams: 1 package string, 2 level LogLevelParams.Level, 3 local bool
Long: 1 value uint64
Pagination: 1 start uint32, 2 size uint32, 3 include_inactive bool, 4 crawlID string, 5 local bool
PurgeUrlParams: 1 key string, 2 crawlID string, 3 days uint32
QueueDelayParams: 1 key string, 2 delay_requestable uint32, 3 crawlID string, 4 local bool
QueueList: 1 values *string, 2 total uint64, 3 start uint32, 4 size uint32, 5 crawlID string
QueueWithinCrawlParams: 1 key string, 2 crawlID string, 3 local bool
Stats: 1 size uint64, 2 inProcess uint32, 3 counts *Stats.CountsEntry, 4 numberOfQueues uint64, \
5 crawlID string
Stats.CountsEntry: 1 key string, 2 value uint64
StringList: 1 values *string
URLInfo: 1 url string, 2 key string, 3 metadata *URLInfo.MetadataEntry, 4 crawlID string
URLInfo.MetadataEntry: 1 key string, 2 value StringList
URLItem: 1 discovered |DiscoveredURLItem, 2 known |KnownURLItem, 3 ID string, \
4 creation_date uint64
URLStatusRequest: 1 url string, 2 key string, 3 crawlID string
"""

ENUMS = """
AckMessage.Status: OK 0, SKIPPED 1, FAIL 2
LogLevelParams.Level: TRACE 0, DEBUG 1, INFO 2, WARN 3, ERROR 4
"""


def lines(text):
    """Return the lines of a table, in their order of the alphabet."""
    return sorted(line.strip() for line in text.strip().splitlines())


def read():
    """Return the one file of the descriptor set."""
    (one,) = descriptor_pb2.FileDescriptorSet.FromString(
        (PROTOS / "urlfrontier.bin").read_bytes()
    ).file
    return one


def all_messages(parts, prefix=""):
    """Yield messages with their names below the package, and those inside of them."""
    for one in parts:
        yield prefix + one.name, one
        yield from all_messages(one.nested_type, f"{prefix}{one.name}.")


def field(one, message):
    """Return a field as the table has it."""
    kind = descriptor_pb2.FieldDescriptorProto.Type.Name(one.type).removeprefix("TYPE_").lower()
    kind = one.type_name.removeprefix(".urlfrontier.") or kind
    mark = "*" if one.label == one.LABEL_REPEATED else ""
    if one.proto3_optional:
        mark = "?"
    elif one.HasField("oneof_index"):
        assert message.oneof_decl[one.oneof_index].name == "item"
        mark = "|"
    return f"{one.number} {one.name} {mark}{kind}"


def test_its_methods_are_those_of_the_api():
    """All 19 methods have the names, the messages and the streams of version 2.6 (UF-16)."""
    (service,) = read().service
    found = [
        f"{one.name} {'*' * one.client_streaming}{one.input_type.rpartition('.')[2]} "
        f"{'*' * one.server_streaming}{one.output_type.rpartition('.')[2]}"
        for one in service.method
    ]

    assert f"{read().package}.{service.name}" == SERVICE
    assert sorted(found) == lines(METHODS)


def test_its_messages_are_those_of_the_api():
    """All messages have the fields, numbers, types and labels of version 2.6 (UF-16)."""
    found = [
        f"{name}: {', '.join(field(part, one) for part in one.field)}".strip()
        for name, one in all_messages(read().message_type)
    ]

    assert sorted(found) == lines(MESSAGES)
    assert read().syntax == "proto3"


def test_its_enumerations_are_those_of_the_api():
    """Both enumerations have the names and numbers of version 2.6 (UF-16)."""
    found = [
        f"{name}.{part.name}: {', '.join(f'{value.name} {value.number}' for value in part.value)}"
        for name, one in all_messages(read().message_type)
        for part in one.enum_type
    ]

    assert sorted(found) == lines(ENUMS)


def test_its_descriptor_set_is_that_of_its_text(tmp_path):
    """The descriptor set in the package is what protoc makes of the text beside it."""
    protoc = pytest.importorskip("grpc_tools.protoc")
    made = tmp_path / "made.bin"

    given = ["", f"-I{PROTOS}", "--include_imports", f"--descriptor_set_out={made}"]
    assert protoc.main([*given, "urlfrontier.proto"]) == 0

    fresh = descriptor_pb2.FileDescriptorSet.FromString(made.read_bytes())
    assert list(fresh.file) == [read()]


def test_another_client_of_the_same_names_may_live_in_the_process():
    """The names stay free in the pool that a process shares, as upstream's own module needs."""
    from google.protobuf import descriptor_pool

    shared = descriptor_pool.Default()

    with pytest.raises(KeyError):
        shared.FindMessageTypeByName("urlfrontier.URLItem")
    assert v2.API.pool is not shared
    assert v2.API.service == SERVICE
