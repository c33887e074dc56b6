"""The feeds of scraped items: written from the database, or with each commit.

It imports `worker`, `serialize` and what stands below them. `addon` and `commands` import it.
"""
