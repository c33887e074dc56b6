"""Validators: headers and a digest that tell later whether a page has changed.

ETag and Last-Modified are opaque, so they are sent back byte for byte (RFC 9110, section 8.8).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

_MOST = 1_000  # characters of each; a longer one is not kept
_OF_APACHE = '-gzip"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Validators:
    """ETag, Last-Modified and digest of the response from `url`; None if it has none.

    `code` is a digest of the code that made the result. `unchanged` counts the 304 answers in a row
    since then.
    """

    url: str
    etag: str | None = None
    last_modified: str | None = None
    digest: str | None = None
    code: str = ""
    unchanged: int = 0

    @classmethod
    def of(
        cls,
        url: str,
        etag: bytes | None,
        last_modified: bytes | None,
        *,
        digest: str | None = None,
        code: str = "",
    ) -> Validators | None:
        """Return those of a response, by its headers; None where it has none that can be sent."""
        kept = cls(
            url=url,
            etag=_text(etag),
            last_modified=_text(last_modified),
            digest=digest,
            code=code,
        )
        return kept if kept.headers or digest else None

    @classmethod
    def read(cls, stored: Any) -> Validators | None:
        """Return those that were stored as this JSON; None of what another release has stored."""
        try:
            return cls(**stored)
        except TypeError:
            return None

    def as_json(self) -> str:
        """Return the JSON that is stored."""
        return json.dumps({key: one for key, one in asdict(self).items() if one})

    @property
    def headers(self) -> dict[str, bytes]:
        """The headers of a request that asks for the page only if it has changed.

        Apache marks the ETag of a compressed page, and does not know it again: both forms are sent.
        """
        found = {}
        if self.etag is not None:
            found["If-None-Match"] = self.etag
            if self.etag.endswith(_OF_APACHE):
                found["If-None-Match"] += f', {self.etag.removesuffix(_OF_APACHE)}"'
        if self.last_modified is not None:
            found["If-Modified-Since"] = self.last_modified
        return {name: value.encode("latin-1") for name, value in found.items()}


def _text(header: bytes | None) -> str | None:
    """Return a header as text; None if it is missing, long, or has characters of control."""
    text = "" if header is None else header.decode("latin-1")
    return text if text.isprintable() and 0 < len(text) <= _MOST else None
