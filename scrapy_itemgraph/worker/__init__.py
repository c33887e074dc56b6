"""One running crawl process: it claims work, runs it, and commits what comes of it.

`wiring` builds its parts, `worker.Worker` runs and ends them. It imports `throttle`, `graph`,
`serialize`, `settings` and what stands below them. Scrapy's components, `feed_exports`, `addon`,
`testing` and `commands` import it.
"""
