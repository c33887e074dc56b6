"""Receivers of notices: a web server that notes what comes, and answers as it is told."""

from __future__ import annotations

import json
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass
class Receiver:
    """A server of webhooks: the next answers, then 204; what came, as headers and body."""

    url: str = ""
    answers: list[int | float] = field(default_factory=list)  # a float: so many seconds of silence
    came: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def documents(self) -> list[dict[str, Any]]:
        """What came, as JSON."""
        return [json.loads(body) for _, body in self.came]

    def of(self, what: str) -> list[dict[str, Any]]:
        """Return the documents of a kind."""
        return [one for one in self.documents if one["what"] == what]

    def take(self, headers: dict[str, str], body: bytes) -> int | float:
        """Note what came, and return how it is answered."""
        with self.lock:
            self.came.append((headers, body))
            return self.answers.pop(0) if self.answers else 204


@contextmanager
def receiver(*answers: float) -> Iterator[Receiver]:
    """Run a receiver for as long as the block lasts."""
    made = Receiver(answers=list(answers))

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            answer = made.take({name.lower(): one for name, one in self.headers.items()}, body)
            if isinstance(answer, float):
                time.sleep(answer)
                return
            self.send_response(answer)
            if 300 <= answer < 400:
                self.send_header("Location", "/elsewhere")
            self.end_headers()

        def log_message(self, *_given: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        server.block_on_close = False
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        made.url = f"http://127.0.0.1:{server.server_port}"
        try:
            yield made
        finally:
            server.shutdown()
            thread.join()
