"""A robots.txt: what of it counts, and parsed beside the event loop where it is large.

Scrapy's middleware for robots.txt parses in the event loop, so that a file of some megabytes would
stop all sites of the process.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from scrapy.robotstxt import ProtegoRobotParser

if TYPE_CHECKING:
    from protego import Protego
    from scrapy.crawler import Crawler

MOST = 500 * 1024  # bytes that count, as RFC 9309 says in 2.5
LARGE = 64 * 1024  # bytes from which on it is parsed in a thread


class ParsedBody(bytes):
    """A body with what it was parsed to."""

    parsed: Protego


class RobotParser(ProtegoRobotParser):
    """Scrapy's default parser, which does not parse a `ParsedBody` again."""

    @classmethod
    def from_crawler(cls, crawler: Crawler, robotstxt_body: bytes) -> RobotParser:
        """Return the parser of a body."""
        if not isinstance(robotstxt_body, ParsedBody):
            return super().from_crawler(crawler, robotstxt_body)
        made = cls(b"", crawler.spider if crawler else None)
        made.rp = robotstxt_body.parsed
        return made


async def parsed(body: bytes) -> ParsedBody:
    """Return what counts of a body, parsed; the event loop turns meanwhile if it is large."""
    counted = ParsedBody(whole_lines(body))
    if len(counted) < LARGE:
        counted.parsed = _parse(counted)
    else:
        counted.parsed = await asyncio.to_thread(_parse, counted)
    return counted


def whole_lines(body: bytes) -> bytes:
    """Return the lines that are whole within what counts: half a rule would be another rule."""
    if len(body) <= MOST:
        return body
    end = max(body.rfind(b"\n", 0, MOST), body.rfind(b"\r", 0, MOST))
    return body[: end + 1]


def _parse(body: bytes) -> Protego:
    return ProtegoRobotParser(body, None).rp
