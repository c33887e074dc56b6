"""What is refused whoever asks: other sites' pages, other names, bad bodies; and all headers."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

import pytest
from support import raw_clients

ADD = "/items/add"
ITEM = {"data": {}}
JSON = {"content-type": "application/json"}


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:1"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "cross-site", "origin": "{own}"},
    ],
)
def test_a_page_of_another_site_changes_nothing(web, headers):
    """Without tokens, too, what a browser sends for another site's page is refused."""
    own = web.url.rstrip("/")
    headers = {name: value.replace("{own}", own) for name, value in headers.items()}

    assert web.ask("POST", ADD, ITEM, headers=headers).status_code == 403
    assert web.ask("DELETE", "/items/NEW", headers=headers).status_code == 403
    assert web.ask("GET", "/items/NEW").status_code == 200


@pytest.mark.parametrize("field", ["Origin: https://evil.example", "Host: evil.example"])
def test_what_is_refused_before_its_body_is_the_last_of_its_connection(web, field):
    """The answer says so: a client that keeps connections would send its next request in vain."""
    fields = ["Content-Type: application/json", "Content-Length: 12", field]
    sent = raw_clients.head("POST", ADD, *fields)
    if field.startswith("Host"):
        sent = sent.replace(b"Host: localhost\r\n", b"")
    with raw_clients.connection(web) as one:
        one.sendall(sent)
        came = raw_clients.read(one).lower()

    assert came.startswith((b"http/1.1 403", b"http/1.1 421"))
    assert b"\r\nconnection: close\r\n" in came
    assert (
        web.ask("GET", "/items/NEW", headers={"host": "evil.example"}).headers.get("connection")
        != "close"
    )


def test_its_own_pages_may(web):
    """A request of a page of this server passes, with either header."""
    own = web.url.rstrip("/")
    for headers in ({"origin": own}, {"sec-fetch-site": "same-origin", "origin": own}):
        assert web.ask("POST", ADD, ITEM, headers=headers).status_code == 201


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "192.0.2.1", "", "[::1", "localhost.evil"]
)
def test_names_that_are_not_ours_are_refused(web, host):
    """A website whose name is made to lead here is refused, for reading as well."""
    answer = web.ask("GET", "/items/NEW", headers={"host": host})

    assert answer.status_code in {400, 421}
    assert "data" not in answer.json()


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:1", "[::1]:8808", "127.0.0.2", "a.localhost"]
)
def test_names_of_this_machine_pass(web, host):
    """Loopback addresses and names are ours, with any port."""
    assert web.ask("GET", "/items/NEW", headers={"host": host}).status_code == 200


ADD_EVIL = b'{"data": {"url": "http://192.0.2.1/"}}'


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("GET", "/items/NEW%2Fhealthz"),
        ("GET", "/items/healthz"),
        ("GET", "/crawls/books/item/healthz?id=NEW"),
        ("GET", "/%68ealthz"),
        ("GET", "/items%2F..%2Fhealthz"),
        ("GET", "//healthz"),
        ("GET", "/healthz/"),
        ("GET", "http://evil.example/healthz"),
        ("OPTIONS", "/healthz"),
        ("POST", "/healthz"),
        ("POST", "/items/healthz"),
        ("POST", "/items/EVIL%2Fhealthz"),
        ("POST", "/items/EVIL%2F%68%65%61%6C%74%68%7A"),
        ("DELETE", "/items/NEW%2Fhealthz"),
    ],
)
def test_no_path_but_that_of_health_is_served_under_names_of_others(web, method, target):
    """A website whose name leads here gets nothing where a path only ends as that of health."""
    head = (
        f"{method} {target} HTTP/1.1\r\nHost: evil.example\r\nSec-Fetch-Site: same-origin\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(ADD_EVIL)}\r\n\r\n"
    )

    assert exchanged(web, head.encode() + ADD_EVIL).startswith(b"HTTP/1.1 421 ")


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_health_is_told_under_any_name(web, method):
    """Monitoring may call the server by an address that it does not know."""
    answer = web.ask(method, "/healthz?a=b", headers={"host": "evil.example"})

    assert answer.status_code == 200


@pytest.mark.parametrize(
    "header",
    [
        "x-forwarded-for: 192.0.2.1",
        "x-forwarded-for: 127.0.0.1",
        "x-forwarded: for=192.0.2.1",
        "x-forwarded-host: crawl.example",
        "x-forwarded-port: 443",
        "x-forwarded-prefix: /graph",
        "x-forwarded-proto: http",
        "x-forwarded-server: crawl.example",
        "forwarded: for=192.0.2.1",
        "forwarded-for: 192.0.2.1",
        "via: 1.1 varnish",
        "x-real-ip: 192.0.2.1",
        "x-client-ip: 192.0.2.1",
        "x-cluster-client-ip: 192.0.2.1",
        "x-remote-ip: 192.0.2.1",
        "x-original-url: /",
        "x-original-forwarded-for: 192.0.2.1",
        "x-rewrite-url: /",
        "x-envoy-external-address: 192.0.2.1",
        "true-client-ip: 192.0.2.1",
        "cf-connecting-ip: 192.0.2.1",
        "cf-ray: 1",
        "fly-client-ip: 192.0.2.1",
        "fastly-client-ip: 192.0.2.1",
        "tailscale-user-login: anna",
        "x-amzn-trace-id: Root=1",
        "x-auth-request-user: anna",
        "cdn-loop: a",
        "authorization: Basic YTpi",
        "origin: https://{host}",
    ],
)
def test_what_comes_through_a_proxy_needs_tokens(web, header):
    """Without tokens nobody is served who asks a proxy on this machine, where that shows."""
    name, value = header.replace("{host}", urlsplit(web.url).netloc).split(": ")
    answer = web.ask("GET", "/items/NEW", headers={name: value})

    assert answer.status_code in {401, 403}
    assert name == "authorization" or "token add" in answer.json()["detail"]


def test_a_proxy_of_http_1_0_needs_tokens(web):
    """nginx, set up without a word on versions and headers, speaks HTTP/1.0: it is not served."""
    asked = b"GET /items/NEW HTTP/1.0\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"

    for version, status in ((b"1.0", b"403"), (b"1.1", b"200")):
        answer = exchanged(web, asked.replace(b"1.0", version), ends=False)
        assert answer.startswith(b"HTTP/1.1 " + status)


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"", JSON, 422),
        (b"{", JSON, 400),
        (b'{"data": {}}', {}, 415),
        (b'{"data": {}}', {"content-type": "text/plain"}, 415),
        (b'{"data": {}}', {"content-type": "application/x-www-form-urlencoded"}, 415),
        (b"\xff\xfe", JSON, 400),
        (b'"text"', JSON, 422),
        (b"[]", JSON, 422),
        (b"null", JSON, 422),
        (b'{"data": []}', JSON, 422),
        (b'{"data": {}, "more": 1}', JSON, 422),
        (b'{"data": {"a": NaN}}', JSON, 422),
        (b'{"data": {"a": "\\u0000"}}', JSON, 422),
        (b'{"data": {"a": "\\ud800"}}', JSON, 422),
        (b'{"data": {}, "id": "\\ud800"}', JSON, 422),
        (b'{"data": {}, "id": ""}', JSON, 422),
        (b'{"data": {}, "id": "' + b"x" * 8193 + b'"}', JSON, 422),
        (b'{"data": {"a": ' + b"9" * 5000 + b"}}", JSON, 400),
        (b'{"data": {"a": ' + b"[" * 101 + b"]" * 101 + b"}}", JSON, 422),
        (b'{"data": {"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}}", JSON, 400),
        (b'{"data": {}, "nice": 2147483648}', JSON, 422),
        (b'{"data": {}, "nice": true}', JSON, 422),
        (b'{"data": {}, "not_before": "soon"}', JSON, 422),
    ],
)
def test_a_body_that_is_none_is_refused_with_a_sentence(web, body, headers, status):
    """What is no JSON, too deep, or of a wrong shape is a problem of the sender's, in words."""
    answer = web.client.post(web.url.rstrip("/") + ADD, content=body, headers=headers)

    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["detail"]


def test_a_body_that_is_too_large_is_refused(web):
    """A body of more than 16 MB is refused, whether its size is declared or not."""
    large = b'{"data": {"a": "' + b"x" * (16 << 20) + b'"}}'

    def chunks():
        yield large

    for content in (large, chunks()):
        answer = web.client.post(web.url.rstrip("/") + ADD, content=content, headers=JSON)
        assert answer.status_code == 413


@pytest.mark.parametrize(
    "path", ["/items/%FF", "/items/%00", "/items/a?crawl=%00", "/items/%C3%28"]
)
def test_addresses_that_are_no_text_are_refused(web, path):
    """Bytes that are no UTF-8, and NUL, are refused before anything is looked up."""
    assert web.ask("GET", path).status_code == 400


def test_an_id_that_is_too_long_is_none(web):
    """An id of more than 8,192 bytes is found nowhere, and cannot be made."""
    path = "/items/" + "x" * 8193

    assert web.ask("GET", path).status_code == 404
    assert web.ask("POST", path, ITEM).status_code == 422


def test_a_head_of_more_than_64_kilobytes_is_refused(web):
    """What is longer than an id can be is refused by the server itself."""
    line = b"GET /items/" + b"x" * 70_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n"

    assert exchanged(web, line).startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 431 "))


@pytest.mark.parametrize(
    "path", ["/", "/items/NEW", "/nothing", "/static/cockpit.css", "/login", "/healthz"]
)
def test_all_answers_have_the_headers(web, path):
    """Every answer says that no script but ours runs, that no frame shows it, and what it is."""
    headers = web.ask("GET", path).headers

    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
    assert "frame-ancestors 'none'" in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "same-origin"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert "server" not in headers


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x00",
        b"GET  \r\n\r\n",
        b"POST /items/add HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nx",
    ],
    ids=["no host", "TLS", "no address", "a body that ends early"],
)
def test_what_is_no_http_does_not_hurt(web, sent):
    """What is no request, or half of one, is refused or dropped, and the next is answered."""
    assert b" 500 " not in exchanged(web, sent)
    assert web.ask("GET", "/healthz").status_code == 200


def test_a_body_with_two_lengths_is_refused(web):
    """A body that is declared and comes in chunks, which servers read differently, is refused."""
    both = ["Content-Length: 3", "Transfer-Encoding: chunked", "Content-Type: application/json"]
    sent = raw_clients.head("POST", "/items/NEW", *both) + raw_clients.chunked(b'{"data": {}}')

    with raw_clients.connection(web) as one:
        one.sendall(sent)
        assert raw_clients.read(one).startswith(b"HTTP/1.1 400 ")


def exchanged(web, sent: bytes, *, ends: bool = True) -> bytes:
    """Send bytes, and the end if that is all; return what comes back."""
    at = urlsplit(web.url)
    with socket.create_connection((at.hostname, at.port), timeout=30) as one:
        one.sendall(sent)
        if ends:
            one.shutdown(socket.SHUT_WR)
        return one.recv(1000)
