"""Requests on their way to the network: where they wait, when they leave, what sites answer.

It imports `worker.executions`, `worker.scrapy_internals` and the rooms below `worker`. `worker` and
Scrapy's components import it.
"""
