"""Which items of a crawl are URLs of its frontier, and how many of a queue are completed."""
