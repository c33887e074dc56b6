"""Chaos: a crawl whose answer is known, disturbed by faults; nothing may be lost or done twice."""
