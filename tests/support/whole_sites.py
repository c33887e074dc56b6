"""A small website as archivists meet them: with files from elsewhere, and everything a bit odd."""

from __future__ import annotations

from urllib.parse import urlsplit

from support.sites import Site

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 100

PAGES: dict[str, tuple[str, bytes]] = {
    "/": (
        "text/html",
        b"""<head><base href="/docs/"><link rel=stylesheet href="/s.css"></head>
        <a href="one">1</a> <a href="/moved">moved</a> <a href="/gone#x">gone</a>
        <a href="http://localhost:PORT/outside">outside</a> <a href="mailto:a@b">mail</a>
        <a href="/one?replytocom=1">reply</a> <a href="/private">private</a>
        <img srcset="http://localhost:PORT/far.png 2x" src="/near.png"><iframe src="/frame">""",
    ),
    "/s.css": ("text/css", b'@import "t.css"; p { background: url("bg.png") }'),
    "/t.css": ("text/css", b"@font-face { src: url(font.woff2) }"),
    "/docs/one": (
        "text/html; charset=shift_jis",
        '<title>\u65e5\u672c</title><a href="two">2</a><img src="/near.png">'.encode("shift_jis"),
    ),
    "/docs/two": ("text/html", b'<a href="three">3</a><img src="deep.png"><a href="one">1</a>'),
    "/docs/three": ("text/html", b'<a href="four">4</a><img src="deepest.png">'),
    "/docs/four": ("text/html", b"the end"),
    "/target": ("text/html", b'<a href="/manual.pdf">manual</a>'),
    "/frame": ("text/html", b'<meta name=robots content=nofollow><a href="/hidden">hidden</a>'),
    "/manual.pdf": ("application/pdf", b"%PDF-1.7" + b"\0" * 1000),
    "/empty": ("text/html", b""),
    **{
        path: ("image/png", PNG + path.encode())
        for path in ("/near.png", "/far.png", "/bg.png", "/docs/deep.png", "/docs/deepest.png")
    },
    "/font.woff2": ("font/woff2", b"wOF2"),
}
NEEDED = ("/s.css", "/t.css", "/bg.png", "/font.woff2", "/near.png", "/far.png")
"""What its first page needs, one file of it from another host."""


class WholeSite(Site):
    """Serves the pages; `localhost` is another host than `127.0.0.1`."""

    def __init__(self, port: int = 0, host: str = "127.0.0.1") -> None:
        super().__init__(port, host)
        self.robots = "User-agent: *\nDisallow: /private\n"

    def answer(self, target: str) -> tuple[int, dict[str, str], bytes]:
        """Answer with a page, a redirect, or 404."""
        path = urlsplit(target).path
        if path == "/robots.txt" or path.startswith("/status"):
            return super().answer(target)
        self.hits[target] += 1
        if path == "/moved":
            return 301, {"Location": "/target", "Content-Type": "text/html"}, b"moved"
        if path == "/outside":
            return 200, {"Content-Type": "text/html"}, b'<a href="/further">further</a>'
        if path == "/elsewhere":
            place = f"http://localhost:{self.server.server_port}/docs/two"
            return 302, {"Location": place, "Content-Type": "text/html"}, b""
        if path not in PAGES:
            return 404, {"Content-Type": "text/html"}, b"not here"
        mime, body = PAGES[path]
        port = str(self.server.server_port).encode()
        return 200, {"Content-Type": mime, "X-Made-By": "hand"}, body.replace(b"PORT", port)
