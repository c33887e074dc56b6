"""What the gRPC door speaks: names, numbers and types of URLFrontier 2.6 and of the proposed 3."""

from __future__ import annotations

from importlib.resources import files

import pytest
from google.protobuf import descriptor_pb2

from scrapy_itemgraph.urlfrontier import descriptors, v2, v3

PROTOS = files("scrapy_itemgraph.urlfrontier") / "protos"
V2, V3 = "urlfrontier", "urlfrontier_v3"
SERVICE = "urlfrontier.URLFrontier"
SERVICES = {V2: SERVICE, V3: "urlfrontier.v3.URLFrontier"}

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


# Of version 3 each takes NAMERequest and gives NAMEResponse; + is beyond the proposal.
METHODS_3 = """
ListNodes
ListCrawls
DeleteCrawl
ListQueues
GetURLs *
PutURLs * *
+PutDiscovered * *
GetStats
DeleteQueue
BlockQueueUntil
SetActive
GetActive
SetDelay
SetLogLevel
SetCrawlLimit
GetURLStatus
ListURLs *
+CountURLs
+PurgeURLs
"""

# Fields with a + are beyond the proposal.
MESSAGES_3 = """
AckMessage: 1 id string, 2 status AckMessage.Status
BlockQueueUntilRequest: 1 key string, 2 time google.protobuf.Timestamp, 3 crawl_id string, \
4 local bool
BlockQueueUntilResponse:
+CountURLsRequest: 1 key string, 2 crawl_id string, 3 filter ?string, 4 ignore_case ?bool, \
5 local ?bool
+CountURLsResponse: 1 count uint64
DeleteCrawlRequest: 1 crawl_id string, 2 local bool
DeleteCrawlResponse: 1 urls_removed google.protobuf.Int64Value
DeleteQueueRequest: 1 key string, 2 crawl_id string, 3 local bool
DeleteQueueResponse: 1 urls_removed google.protobuf.Int64Value
DiscoveredURLItem: 1 info URLInfo
GetActiveRequest: 1 local bool
GetActiveResponse: 1 state google.protobuf.BoolValue
GetStatsRequest: 1 key string, 2 crawl_id string, 3 local bool
GetStatsResponse: 1 size uint64, 2 in_process uint32, 3 counts *GetStatsResponse.CountsEntry, \
4 number_of_queues uint64, 5 crawl_id string
GetStatsResponse.CountsEntry: 1 key string, 2 value uint64
GetURLStatusRequest: 1 url string, 2 key string, 3 crawl_id string
GetURLStatusResponse: 1 url URLItem
GetURLsRequest: 1 max_urls_per_queue uint32, 2 max_queues uint32, 3 key string, \
4 delay_requestable uint32, 5 any_crawl_id |bool, 6 crawl_id |string
GetURLsResponse: 1 url URLInfo
KnownURLItem: 1 info URLInfo, 2 refetchable_from_date uint64
ListCrawlsRequest:
ListCrawlsResponse: 1 values *string
ListNodesRequest:
ListNodesResponse: 1 values *string
ListQueuesRequest: 1 start uint32, 2 size uint32, 3 include_inactive bool, 4 crawl_id string, \
5 local bool
ListQueuesResponse: 1 values *string, 2 total uint64, 3 start uint32, 4 size uint32, \
5 crawl_id string
ListURLsRequest: 1 start uint32, 2 size uint32, 3 key string, 4 crawl_id string, 5 local bool, \
+6 filter ?string, +7 ignore_case ?bool
ListURLsResponse: 1 url URLItem
+PurgeURLsRequest: 1 key string, 2 crawl_id string, 3 days uint32
+PurgeURLsResponse: 1 urls_removed google.protobuf.Int64Value
+PutDiscoveredRequest: 1 id string, 2 items *URLInfo
+PutDiscoveredResponse: 1 id string, 2 statuses *AckMessage.Status
PutURLsRequest: 1 url URLInfo, +2 item URLItem
PutURLsResponse: 1 ack AckMessage
SetActiveRequest: 1 state bool, 2 local bool
SetActiveResponse:
SetCrawlLimitRequest: 1 key string, 2 limit uint32, 3 crawl_id string
SetCrawlLimitResponse:
SetDelayRequest: 1 key string, 2 delay_requestable uint32, 3 crawl_id string, 4 local bool
SetDelayResponse:
SetLogLevelRequest: 1 package string, 2 level SetLogLevelRequest.Level, 3 local bool
SetLogLevelResponse:
StringList: 1 values *string
URLInfo: 1 url string, 2 key string, 3 metadata *URLInfo.MetadataEntry, 4 crawl_id string
URLInfo.MetadataEntry: 1 key string, 2 value StringList
URLItem: 1 discovered |DiscoveredURLItem, 2 known |KnownURLItem, 3 id string, \
+4 creation_date uint64
"""

ENUMS_3 = """
AckMessage.Status: STATUS_UNSPECIFIED 0, STATUS_OK 1, STATUS_SKIPPED 2, STATUS_FAIL 3
SetLogLevelRequest.Level: LEVEL_UNSPECIFIED 0, LEVEL_TRACE 1, LEVEL_DEBUG 2, LEVEL_INFO 3, \
LEVEL_WARN 4, LEVEL_ERROR 5
"""


def lines(text):
    """Return the lines of a table, in their order of the alphabet."""
    return sorted(line.strip() for line in text.replace("+", "").strip().splitlines())


def read(name):
    """Return the last file of a descriptor set, which is ours, and the names of those before."""
    found = descriptor_pb2.FileDescriptorSet.FromString((PROTOS / f"{name}.bin").read_bytes())
    *before, last = found.file
    return last, {one.name for one in before}


def all_messages(parts, prefix=""):
    """Yield messages with their names below the package, and those inside of them."""
    for one in parts:
        yield prefix + one.name, one
        yield from all_messages(one.nested_type, f"{prefix}{one.name}.")


def field(one, message, package):
    """Return a field as the table has it."""
    kind = descriptor_pb2.FieldDescriptorProto.Type.Name(one.type).removeprefix("TYPE_").lower()
    kind = one.type_name.removeprefix(f".{package}.").removeprefix(".") or kind
    mark = "*" if one.label == one.LABEL_REPEATED else ""
    if one.proto3_optional:
        mark = "?"
    elif one.HasField("oneof_index"):
        named = {"GetURLsRequest": "crawl"}.get(message.name, "item")
        assert message.oneof_decl[one.oneof_index].name == named
        mark = "|"
    return f"{one.number} {one.name} {mark}{kind}"


def methods_3():
    """Return the table of methods of version 3 as that of 2.6 is written."""
    for line in lines(METHODS_3):
        name, *marks = line.split()
        takes, gives = {0: ("", ""), 1: ("", "*"), 2: ("*", "*")}[len(marks)]
        yield f"{name} {takes}{name}Request {gives}{name}Response"


@pytest.mark.parametrize(
    ("name", "methods"), [(V2, lines(METHODS)), (V3, sorted(methods_3()))], ids=[V2, V3]
)
def test_its_methods_are_those_of_the_api(name, methods):
    """All 19 methods have the names, messages and streams of their version (UF-1, UF-2, UF-16)."""
    (service,) = read(name)[0].service
    found = [
        f"{one.name} {'*' * one.client_streaming}{one.input_type.rpartition('.')[2]} "
        f"{'*' * one.server_streaming}{one.output_type.rpartition('.')[2]}"
        for one in service.method
    ]

    assert f"{read(name)[0].package}.{service.name}" == SERVICES[name]
    assert sorted(found) == methods


@pytest.mark.parametrize(("name", "table"), [(V2, MESSAGES), (V3, MESSAGES_3)], ids=[V2, V3])
def test_its_messages_are_those_of_the_api(name, table):
    """All messages have the fields, numbers, types and labels of their version (UF-4, UF-15)."""
    file, _ = read(name)
    found = [
        f"{named}: {', '.join(field(part, one, file.package) for part in one.field)}".strip()
        for named, one in all_messages(file.message_type)
    ]

    assert sorted(found) == lines(table)
    assert file.syntax == "proto3"


@pytest.mark.parametrize(("name", "table"), [(V2, ENUMS), (V3, ENUMS_3)], ids=[V2, V3])
def test_its_enumerations_are_those_of_the_api(name, table):
    """Both enumerations have the names and numbers of their version (UF-3, UF-16)."""
    found = [
        f"{named}.{part.name}: {', '.join(f'{value.name} {value.number}' for value in part.value)}"
        for named, one in all_messages(read(name)[0].message_type)
        for part in one.enum_type
    ]

    assert sorted(found) == lines(table)


@pytest.mark.parametrize("name", [V2, V3])
def test_its_descriptor_set_is_that_of_its_text(name, tmp_path):
    """The descriptor sets in the package are what protoc makes of the texts beside them (UF-14)."""
    protoc = pytest.importorskip("grpc_tools.protoc")
    made = tmp_path / "made.bin"
    known = files("grpc_tools") / "_proto"

    given = ["", f"-I{PROTOS}", f"-I{known}", "--include_imports", f"--descriptor_set_out={made}"]
    assert protoc.main([*given, f"{name}.proto"]) == 0

    *before, last = descriptor_pb2.FileDescriptorSet.FromString(made.read_bytes()).file
    assert (last, {one.name for one in before}) == read(name)


def test_version_3_imports_what_there_is():
    """The proposal's two imports do not exist; ours are those that have these types (UF-14)."""
    assert read(V3)[1] == {"google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"}


def test_a_file_is_moved_whole():
    """Under the path of 2.6 version 3 has the same names, and none of its own package (UF-2)."""
    file, _ = read(V3)

    moved = descriptors.moved(file, "urlfrontier")

    moved.options.Clear()
    assert b"urlfrontier.v3" not in moved.SerializeToString()
    assert moved.package == "urlfrontier"
    pool = descriptors.pool_of([*v3.API.files[:-1], moved])
    service = pool.FindServiceByName(SERVICE)
    assert {one.name for one in service.methods} == set(v3.API.methods)


def test_another_client_of_the_same_names_may_live_in_the_process():
    """The names stay free in the pool that a process shares, as upstream's own module needs."""
    from google.protobuf import descriptor_pool

    shared = descriptor_pool.Default()

    for name in ("urlfrontier.URLItem", "urlfrontier.v3.URLItem"):
        with pytest.raises(KeyError):
            shared.FindMessageTypeByName(name)
    assert v2.API.pool is not shared
    assert v3.API.pool is not shared
    assert {V2: v2.API.service, V3: v3.API.service} == SERVICES
