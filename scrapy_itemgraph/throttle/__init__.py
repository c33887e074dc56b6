"""When a request of this process may start, by the limits in hand. Nothing of Scrapy's.

It imports `model`, `tools` and `exceptions`. `worker` imports it.
"""
