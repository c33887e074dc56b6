"""What every contestant makes of a page."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urldefrag


def scraped(response):
    """Return a page's address, title and headings, and the pages of its site that it links to."""
    found = {urldefrag(response.urljoin(a))[0] for a in response.css("a::attr(href)").getall()}
    site = response.urljoin("/")
    return {
        "url": response.url,
        "title": response.css("title::text").get(),
        "headings": ["".join(h.css("::text").getall()) for h in response.css("h1, h2")],
        "links": sorted(url for url in found if url.startswith(site) and url.endswith(".html")),
    }


def addresses(path):
    """Return the lines of a file."""
    return Path(path).read_text().split()
