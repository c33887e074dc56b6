"""Serves the HTML of Debian's python3-doc and postgresql-doc-15 from memory: `python site.py`.

Prints its address when it listens. `GET /log` tells how often each page was fetched.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOTS = {
    "python": Path("/usr/share/doc/python3-doc/html"),
    "postgresql": Path("/usr/share/doc/postgresql-doc-15/html"),
}


def is_installed() -> bool:
    """Tell whether both packages' HTML is here."""
    return all((root / "index.html").exists() for root in ROOTS.values())


def load() -> dict[str, bytes]:
    """Read every HTML page, by its path on the site; the front page links to both manuals."""
    pages = {
        f"/{name}/{path.relative_to(root.resolve())}": path.read_bytes()
        for name, root in ROOTS.items()
        for path in sorted(root.resolve().rglob("*.html"))
    }
    links = "".join(f'<li><a href="/{name}/index.html">{name}</a>' for name in ROOTS)
    return {"/": f"<title>Manuals</title><h1>Manuals</h1><ul>{links}</ul>".encode(), **pages}


class Site(asyncio.Protocol):
    """As much HTTP/1.1 as a crawler needs."""

    pages: dict[str, bytes]
    log: Counter[str]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self.transport = transport
        self.buffer = b""

    def data_received(self, data: bytes) -> None:
        """Answer each request that is complete."""
        self.buffer += data
        while b"\r\n\r\n" in self.buffer:
            head, self.buffer = self.buffer.split(b"\r\n\r\n", 1)
            path = unquote(urlsplit(head.split(b" ", 2)[1].decode("latin-1")).path)
            self.transport.write(self.answer(path))

    def answer(self, path: str) -> bytes:
        """Return the whole response to a path."""
        status, kind = b"200 OK", b"text/html; charset=utf-8"
        if path == "/log":
            body, kind = json.dumps(self.log).encode(), b"application/json"
        elif path in self.pages:
            self.log[path] += 1
            body = self.pages[path]
        else:
            status, body = b"404 Not Found", b"no such page"
        return (
            b"HTTP/1.1 %b\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n"
            % (status, kind, len(body))
        ) + body


async def main() -> None:
    """Serve until killed."""
    Site.pages, Site.log = load(), Counter()
    server = await asyncio.get_running_loop().create_server(Site, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    sys.stdout.write(f"http://127.0.0.1:{port}/\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
