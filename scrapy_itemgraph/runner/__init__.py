"""The runner: a daemon that runs processes of the crawls that people queue.

It does not load Scrapy: its processes do. It imports `graph`, `settings`, `model` and `tools`;
`commands.work` alone imports it.
"""
