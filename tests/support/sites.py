"""A small web site on a free local port, for spiders to crawl."""

from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from email.message import Message
    from typing import Any


class Site:
    """Pages by path; what was asked for is counted in `hits`."""

    def __init__(self, port: int = 0, host: str = "127.0.0.1") -> None:
        self.hits: Counter[str] = Counter()
        self.robots = ""
        self.arrived = threading.Event()
        self.may_answer = threading.Event()
        self._lock = threading.Lock()
        site = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                answer = site.respond(self.command, self.path, self.headers, sent)
                if answer is None:
                    self.close_connection = True
                    return
                status, headers, body = answer
                try:
                    self.send_response(status)
                    for name, value in headers.items():
                        for each in value if isinstance(value, list) else [value]:
                            self.send_header(name, each)
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    if self.command != "HEAD":
                        self.wfile.write(body)
                except OSError:
                    pass

            do_HEAD = do_POST = do_PUT = do_GET  # noqa: N815 - the names that http.server wants

            def log_message(self, *_args) -> None:
                pass

        self.server = ThreadingHTTPServer((host, port), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def release(self) -> None:
        """Answer whoever still waits for an answer."""
        self.may_answer.set()

    def respond(
        self,
        method: str,
        target: str,
        headers: Message,
        body: bytes,
    ) -> tuple[int, dict[str, Any], bytes] | None:
        """Answer a request of any method, or close; a header may have a list of values."""
        return self.answer(target)

    def answer(self, target: str) -> tuple[int, dict[str, str], bytes]:
        """Answer a request: /redirect?to=, /loop, /status/N, /flaky/N, /slow/N, /gate, /page/…."""
        parts = urlsplit(target)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        with self._lock:
            self.hits[target] += 1
            hit = self.hits[target]
        kind, _, rest = parts.path.lstrip("/").partition("/")
        headers = {"Content-Type": "text/html"}
        if kind == "robots.txt":
            return (
                (200 if self.robots else 404),
                {"Content-Type": "text/plain"},
                self.robots.encode(),
            )
        if kind == "loop":
            return 302, {"Location": target}, b""
        if kind == "redirect":
            return 302, {"Location": query["to"]}, b""
        if kind == "status":
            if "retry-after" in query:
                headers["Retry-After"] = query["retry-after"]
            return int(rest), headers, b"as you say"
        if kind == "flaky" and hit <= int(rest.partition("/")[0]):
            return 503, headers, b"not yet"
        if kind == "gate":
            self.arrived.set()
            self.may_answer.wait(120)
        if kind == "slow":
            time.sleep(float(rest.partition("/")[0]))
        body = f"<html><title>{target}</title><body><h1>{target}</h1></body></html>"
        return 200, headers, body.encode()


@contextmanager
def site(kind: type[Site] = Site, port: int = 0) -> Iterator[Site]:
    """Serve a site for as long as the block lasts, on a free port or the given one."""
    one = kind(port) if port else kind()
    thread = threading.Thread(target=one.server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield one
    finally:
        one.release()
        one.server.shutdown()
        thread.join()
        one.server.server_close()
