"""A server that speaks TLS, to anybody or to those who show a certificate."""

from __future__ import annotations

import socket
from contextlib import ExitStack

import grpc
import httpx
import pytest
from support import certificates, frontier
from support.frontier import Client, discovered
from support.frontier_doors import DENIED, OK, UNAUTHENTICATED, add_token, outcome, tls

A = "http://a.example/"
HALF_A_GREETING = b"\x16\x03\x01\x02\x00\x01\x00"


@pytest.fixture
def authority(tmp_path):
    """Return what signs certificates."""
    return certificates.Authority(tmp_path)


def trusting(authority, pair=None):
    """Return what a client connects with: whom it trusts, and its own certificate."""
    own = () if pair is None else (pair.key.read_bytes(), pair.certificate.read_bytes())
    return grpc.ssl_channel_credentials(authority.path.read_bytes(), *own)


def test_what_is_sent_is_encrypted(database, authority):
    """UF-1: with a certificate clients speak TLS, and one in clear gets nothing."""
    secret = add_token(database, "anna")
    with frontier.serving(database, *tls(authority.pair("server"))) as served:
        with Client(served.address, token=secret, credentials=trusting(authority)) as client:
            assert client.put(discovered(A)) == [(A, "OK")]
            assert client.get() == [A]
        assert outcome(served.client)[0] is grpc.StatusCode.UNAVAILABLE


def test_a_client_with_a_certificate_needs_no_token(database, authority, tmp_path):
    """UF-1: with a CA of clients each shows a certificate that it signed, and no token is asked."""
    reading = add_token(database, "anna", "read")
    stranger = certificates.Authority(tmp_path, "stranger").pair("other")
    server = tls(authority.pair("server"), authority.path)
    with frontier.serving(database, "--host", "0.0.0.0", *server) as served:
        address = f"127.0.0.1:{served.address.rpartition(':')[2]}"
        own = trusting(authority, authority.pair("crawler"))
        with Client(address, credentials=own) as client:
            assert client.put(discovered(A)) == [(A, "OK")]
        with Client(address, credentials=own, token=reading) as reader:
            assert outcome(reader, "GetURLs")[0] is DENIED
        with Client(address, credentials=own, token="itemgraph_wrong") as wrong:
            assert outcome(wrong)[0] is UNAUTHENTICATED
        for pair in (None, stranger):
            with Client(address, credentials=trusting(authority, pair)) as refused:
                assert outcome(refused)[0] is grpc.StatusCode.UNAVAILABLE


def test_a_certificate_is_renewed_while_it_serves(database, authority):
    """UF-1: a server takes the certificate that its files have when a client connects."""
    pair = authority.pair("server")
    with frontier.serving(database, "--metrics-port", "0", *tls(pair)) as served:
        scrape(served, authority)
        with Client(served.address, credentials=trusting(authority)) as client:
            assert outcome(client)[0] is OK
        pair.key.write_bytes(b"half of a renewal")
        with Client(served.address, credentials=trusting(authority)) as client:
            assert outcome(client)[0] is OK
        scrape(served, authority)
        renewed = certificates.Authority(authority.path.parent, "renewed")
        renewed.pair("server")
        with Client(served.address, credentials=trusting(renewed)) as client:
            assert outcome(client)[0] is OK
        scrape(served, renewed)
        code, said = served.stop()

    assert code == 0
    assert "server.key" in said


def connected(address):
    """Return a connection to a server, without TLS."""
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)))


def scrape(served, authority):
    """Read the numbers of a server whose certificate an authority signed."""
    context = certificates.trusting(authority.path)
    answer = httpx.get(f"https://{served.said['metrics']}/metrics", verify=context)
    assert answer.status_code == 200


def test_connections_without_tls_write_no_line(database, authority):
    """However many a scan makes, and whatever they send or do not: others are served on."""
    with frontier.serving(database, *tls(authority.pair("server"))) as served, ExitStack() as stack:
        for said in (b"", b"GET / HTTP/1.1\r\n\r\n", HALF_A_GREETING) * 20:
            stack.enter_context(connected(served.address)).sendall(said)
        with Client(served.address, credentials=trusting(authority)) as client:
            assert client.put(discovered(A)) == [(A, "OK")]
        code, said = served.stop()

    assert (code, said) == (0, "")


def test_files_that_are_no_certificate_are_one_line(authority, tmp_path):
    """UF-1: what cannot be read, or does not fit, is refused at start by one line that says so."""
    server, other = authority.pair("server"), authority.pair("other")
    locked, text = authority.pair("locked", b"secret"), tmp_path / "text"
    text.write_text("no certificate")
    none = tmp_path / "none.pem"
    refused = {
        "cannot be read": certificates.Pair(none, server.key),
        "another certificate": certificates.Pair(server.certificate, other.key),
        "password": locked,
        "no certificate and": certificates.Pair(text, server.key),
    }
    for said, pair in refused.items():
        line = frontier.refusal(None, *tls(pair))
        assert said in line
        assert "Traceback" not in line
    assert "has no certificate" in frontier.refusal(None, *tls(server, text))
    assert "go together" in frontier.refusal(None, "--tls-cert", str(server.certificate))
    assert "--tls-cert" in frontier.refusal(None, "--tls-client-ca", str(authority.path))
