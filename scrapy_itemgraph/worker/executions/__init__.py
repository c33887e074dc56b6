"""The executions of this process, and the requests that wait for the engine.

No I/O, and nothing of Scrapy's. It imports `model`, `tools` and `exceptions`, and of `throttle` the
types. Everything else in `worker`, and Scrapy's components, import it.
"""
