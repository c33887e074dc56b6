"""What of a robots.txt counts, and where it is parsed."""

from __future__ import annotations

import asyncio

import pytest

from scrapy_itemgraph.worker.downloads import robots

RULE = b"Disallow: /*/private-%d$\n"
SIZE = 6_000_000


def rules(size):
    """Return a robots.txt of so many bytes."""
    return b"User-agent: *\n" + b"".join(RULE % n for n in range(size // len(RULE)))


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_half_a_rule_is_none(end):
    """What is cut off ends at the end of a line, whatever ends lines there."""
    body = b"Disallow: /private-place" + end
    whole = robots.whole_lines(body * (robots.MOST // len(body) + 5))

    assert robots.MOST - len(body) < len(whole) <= robots.MOST
    assert whole == body * (len(whole) // len(body))
    assert robots.whole_lines(b"x" * SIZE) == b""


def test_a_large_file_is_parsed_beside_the_event_loop():
    """The event loop turns meanwhile, and Scrapy's middleware does not parse it again."""

    async def turns():
        parsing = asyncio.create_task(robots.parsed(rules(SIZE)))
        count = 0
        while not parsing.done():
            await asyncio.sleep(0)
            count += 1
        return count, parsing.result()

    count, body = asyncio.run(turns())

    parser = robots.RobotParser.from_crawler(None, body)
    assert count > 5  # in the event loop: 2
    assert len(body) <= robots.MOST
    assert parser.rp is body.parsed
    assert not parser.allowed("http://a.example/a/private-7", "bot")
    assert parser.allowed("http://a.example/a/private-200000", "bot")


def test_a_body_that_nobody_parsed_is_parsed_as_scrapy_does():
    """Scrapy's middleware may ask for a parser of any bytes."""
    parser = robots.RobotParser.from_crawler(None, b"User-agent: *\nDisallow: /a")

    assert (parser.allowed("/a", "bot"), parser.allowed("/b", "bot")) == (False, True)
