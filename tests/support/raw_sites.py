"""A site that answers each path with the bytes it was given, whatever they are, and hangs up."""

from __future__ import annotations

import socketserver
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def page(body: bytes, *headers: bytes, status: bytes = b"200 OK") -> bytes:
    """Return an answer whose headers end with its body's true length."""
    lines = [b"HTTP/1.1 " + status, *headers, b"Content-Length: %d" % len(body)]
    return b"\r\n".join([*lines, b"Connection: close", b"", body])


@contextmanager
def raw_site(answers: Mapping[str, bytes]) -> Iterator[str]:
    """Serve the answers by path, others as an empty page, for as long as the block lasts."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            target = self.rfile.readline().split(b" ")[1:2]
            while self.rfile.readline().strip():
                pass
            path = target[0].decode("latin-1") if target else ""
            with suppress(OSError):  # who asked may have had enough
                self.wfile.write(answers.get(path, page(b"", b"Content-Type: text/html")))

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        request_queue_size = 128

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
