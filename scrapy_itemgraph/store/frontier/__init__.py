"""A URL frontier: URLs that other crawlers put into queues and take from them."""
