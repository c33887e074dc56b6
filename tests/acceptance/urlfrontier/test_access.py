"""Who may call what: with tokens, without any, and where others reach the server."""

from __future__ import annotations

import socket
import time

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)
from support import frontier
from support.frontier import Client, discovered
from support.frontier_doors import (
    DENIED,
    OK,
    UNAUTHENTICATED,
    add_token,
    outcome,
    remove_token,
)

from scrapy_itemgraph.urlfrontier import v2

READING = {
    "CountURLs",
    "GetActive",
    "GetStats",
    "GetURLStatus",
    "ListCrawls",
    "ListNodes",
    "ListQueues",
    "ListURLs",
}
A = "http://a.example/"


def outcomes(client):
    """Return the codes of all 19 calls."""
    return {name: outcome(client, name)[0] for name in v2.API.methods}


def test_each_call_asks_who_is_there(database):
    """UF-1: without a token nothing is answered, one to read reads, and one to operate may all."""
    secrets = {role: add_token(database, role, role) for role in ("read", "queue", "operate")}
    with frontier.serving(database) as served:
        assert served.said["has_tokens"]
        assert set(outcomes(served.client).values()) == {UNAUTHENTICATED}
        with Client(served.address, token="itemgraph_wrong") as stranger:
            assert set(outcomes(stranger).values()) == {UNAUTHENTICATED}
        for role in ("read", "queue"):
            with Client(served.address, token=secrets[role]) as reader:
                found = outcomes(reader)
            assert {name for name, code in found.items() if code is not DENIED} == READING
            assert UNAUTHENTICATED not in found.values()
        with Client(served.address, token=secrets["operate"]) as operator:
            assert not {UNAUTHENTICATED, DENIED} & set(outcomes(operator).values())


def test_health_and_reflection_are_open(database):
    """UF-1: whoever can connect may ask whether it serves, and what it speaks."""
    add_token(database, "anna")
    with frontier.serving(database, "--reflection") as served:
        channel = served.client.channel
        assert outcome(served.client)[0] is UNAUTHENTICATED
        health = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
        assert health.status == health_pb2.HealthCheckResponse.SERVING
        assert v2.API.service in ProtoReflectionDescriptorDatabase(channel).get_services()


def test_a_refusal_says_what_to_do(database):
    """UF-1: who has no token, or one to read, is told which is needed and how it is made."""
    reading = add_token(database, "anna", "read")
    with frontier.serving(database) as served, Client(served.address, token=reading) as reader:
        _, without = outcome(served.client)
        _, read_only = outcome(reader, "GetURLs")

    assert "authorization: Bearer TOKEN" in without
    assert "scrapy itemgraph token add NAME --role operate" in without
    assert "'anna'" in read_only
    assert "--role operate" in read_only


def test_tokens_come_and_go_while_it_serves(database):
    """UF-1: a new token lets in at once; one that is removed ends even streams that are open."""
    with frontier.serving(database) as served:
        anonymous = served.client.opened("PutURLs", timeout=60)
        anonymous.send(discovered(A))
        assert anonymous.read(1) == [(A, "OK")]
        secret = add_token(database, "anna")
        with pytest.raises(grpc.RpcError) as ended:
            anonymous.read(1)
        assert ended.value.code() is UNAUTHENTICATED

        with Client(served.address, token=secret) as client:
            stream = client.opened("PutURLs", timeout=60)
            stream.send(discovered(A))
            assert stream.read(1) == [(A, "SKIPPED")]
            remove_token(database, "anna")
            with pytest.raises(grpc.RpcError) as ended:
                stream.read(1)
            assert ended.value.code() is UNAUTHENTICATED
            assert outcome(client)[0] is UNAUTHENTICATED
        code, why = outcome(served.client)
        assert (code, "--no-tokens" in why) == (DENIED, True)
        assert served.stop() == (0, "")


def test_a_server_of_this_machine_is_not_started_for_nobody(database):
    """UF-1: after the last token was removed a start is refused, unless it is told --no-tokens."""
    add_token(database, "anna")
    remove_token(database, "anna")

    assert "--no-tokens" in frontier.refusal(database)
    with frontier.serving(database, "--no-tokens") as served:
        assert outcome(served.client)[0] is OK
        served.client.metadata.append(("x-forwarded-for", "192.0.2.1"))
        assert outcome(served.client)[0] is DENIED


def own_address():
    """Return an address by which others reach this machine."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as tried:
        try:
            tried.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no network")
        return tried.getsockname()[0]


def test_others_need_a_token(database):
    """UF-1: beyond this machine nothing is served without tokens, and with one whoever has it."""
    refused = frontier.refusal(database, "--host", "0.0.0.0")
    for way in ("token add", "--tls-client-ca", "--open-to-all"):
        assert way in refused

    secret = add_token(database, "anna")
    with frontier.serving(database, "--host", "0.0.0.0") as served:
        port = served.address.rpartition(":")[2]
        with Client(f"{own_address()}:{port}", token=secret) as client:
            assert outcome(client)[0] is OK
        with Client(f"{own_address()}:{port}") as stranger:
            assert outcome(stranger)[0] is UNAUTHENTICATED
        remove_token(database, "anna")
        with Client(f"127.0.0.1:{port}") as near:
            until = time.monotonic() + 10
            while outcome(near)[0] is UNAUTHENTICATED and time.monotonic() < until:
                pass  # the token is remembered
            assert outcome(near)[0] is DENIED
        _, said = served.stop()
    assert "in clear" in said


def test_who_says_so_is_open_to_all(database):
    """UF-1: with --open-to-all no token is asked for, as upstream's server asks none; it warns."""
    add_token(database, "anna")
    with frontier.serving(database, "--host", "0.0.0.0", "--open-to-all") as served:
        with Client(f"{own_address()}:{served.address.rpartition(':')[2]}") as anybody:
            assert anybody.put(discovered(A)) == [(A, "OK")]
            assert anybody.get() == [A]
        code, said = served.stop()

    assert code == 0
    assert "open to all" in said
