"""One running crawl process: it claims work, runs it, and commits what comes of it.

`worker.Worker` has its parts. It imports `throttle`, `graph`, `serialize`, `settings` and what
stands below them. Scrapy's components, `feeds`, `addon` and `commands` import it.
"""
