"""Work that tests look at as it is claimed."""

from __future__ import annotations


def claimed(crawl, limit=1000):
    """Claim, and return what was claimed as "item task"."""
    return [f"{claim.item.id} {claim.task}" for claim in crawl.claim(limit)]
