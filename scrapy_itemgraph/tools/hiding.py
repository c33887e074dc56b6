"""Secrets that a runner took from its environment, hidden in what processes write and record.

Where a value stood, the variable is named as whoever added the crawl wrote it: `@env:SHOP_TOKEN`.
"""

from __future__ import annotations

import base64
import html
import json
import os
import re
from functools import cache
from typing import TYPE_CHECKING
from urllib.parse import quote, quote_plus, unquote

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

FROM_ENVIRONMENT = "@env:"  # before the name of a variable of the runner's environment
VARIABLES = "ITEMGRAPH_HIDDEN"
"""In the environment of a job's process: the names of the variables whose values are hidden."""

SHORTEST = 6  # characters of a value that is hidden; a shorter one stands in any text by chance
_START = 3  # bytes by which forms are looked up
_IN_URLS = ":/?#[]@!$&'()*+,;=%|~-._"  # as a URL that Scrapy made safe has them
_PASSWORD = re.compile(r"://[^\s:/?#@]*:([^\s/?#@]+)@")


class Hiding:
    """Replaces the values of variables in texts, also quoted or encoded as is usual.

    `too_short` are the variables whose values are shown.
    """

    def __init__(self, values: Mapping[str, str]) -> None:
        self.is_empty = not values
        self.too_short = [name for name, value in values.items() if 0 < len(value) < SHORTEST]
        self._names = {
            form: f"{FROM_ENVIRONMENT}{name}".encode()
            for name, value in reversed(list(values.items()))
            for form in _forms(value)
        }
        forms = sorted(self._names, key=len, reverse=True)
        self._longest = len(forms[0]) if forms else 0
        self._by_start: dict[bytes, list[bytes]] = {}
        for form in forms:
            for length in range(1, _START + 1):
                self._by_start.setdefault(form[:length], []).append(form)
        self._pattern = re.compile(b"|".join(map(re.escape, forms)) or b"(?!)")

    @classmethod
    def of(cls, environment: Mapping[str, str], names: Iterable[str]) -> Hiding:
        """Return what hides the values of variables; one that is not set has none."""
        return cls({name: environment[name] for name in names if name in environment})

    def in_text(self, text: str) -> str:
        """Return a text without the values."""
        data = text.encode(errors="surrogatepass")
        return self._pattern.sub(self._named, data).decode(errors="surrogatepass")

    def _named(self, found: re.Match[bytes]) -> bytes:
        return self._names[found[0]]

    def split(self, data: bytes) -> tuple[bytes, bytes]:
        """Return the beginning of some output without the values, and what of it has to wait.

        What waits may be the beginning of a value; it goes before what is read next.
        """
        parts: list[bytes] = []
        end, waits_from = 0, self._open_from(data, 0)
        for found in self._pattern.finditer(data):
            if found.start() >= waits_from:
                break
            parts += data[end : found.start()], self._named(found)
            end = found.end()
            if end > waits_from:
                waits_from = self._open_from(data, end)
        return b"".join([*parts, data[end:waits_from]]), data[waits_from:]

    def _open_from(self, data: bytes, start: int) -> int:
        """Return from where on data may be the beginning of a value that goes on."""
        for place in range(max(start, len(data) - self._longest + 1), len(data)):
            forms = self._by_start.get(data[place : place + _START], ())
            length = len(data) - place
            if any(len(form) > length and form.startswith(data[place:]) for form in forms):
                return place
        return len(data)


class HidingStream:
    """Hides values in the output of a process, however it is cut into reads."""

    def __init__(self, hiding: Hiding) -> None:
        self._hiding = hiding
        self._waits = b""

    def take(self, data: bytes) -> bytes:
        """Return what may be written now."""
        written, self._waits = self._hiding.split(self._waits + data)
        return written

    def rest(self) -> bytes:
        """Return the end of the output: of a value that was cut off only a few characters."""
        waits, self._waits = self._waits, b""
        return waits if len(waits) < SHORTEST else b"[...]"


def _forms(value: str) -> Iterator[bytes]:
    """Yield a value as programs write it: as it is, quoted, encoded, and line by line."""
    texts = {value, value.strip(), *value.splitlines()}
    for password in _PASSWORD.findall(value):
        texts |= {password, unquote(password)}
    for text in texts:
        if len(text) < SHORTEST:
            continue
        data = text.encode(errors="surrogateescape")
        yield data
        yield base64.b64encode(data)
        for one in (
            quote(data),
            quote(data, safe=""),
            quote(data, safe=_IN_URLS),
            quote_plus(data),
            repr(text)[1:-1],
            repr(data)[2:-1],
            json.dumps(text)[1:-1],
            json.dumps(text, ensure_ascii=False)[1:-1],
            html.escape(text),
        ):
            yield one.encode(errors="surrogateescape")


@cache
def _of_process() -> Hiding | None:
    names = os.environ.get(VARIABLES)
    return Hiding.of(os.environ, names.split(",")) if names else None


def hidden(text: str) -> str:
    """Return a text without the secrets that the runner gave this process."""
    hiding = _of_process()
    return text if hiding is None else hiding.in_text(text)
