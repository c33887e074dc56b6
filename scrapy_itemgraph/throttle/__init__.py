"""When a request of this process may start: limits in hand, and what websites answer.

It imports `model`, `tools` and `exceptions`. `worker` and Scrapy's components import it.
"""
