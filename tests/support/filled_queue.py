"""A queue with something of each kind, as its pages show it; written without running anything."""

from __future__ import annotations

import sqlalchemy as sa

from scrapy_itemgraph.graph import ItemGraph
from scrapy_itemgraph.model.schedule_terms import NewSchedule
from scrapy_itemgraph.model.schedules import CatchUp, Rule
from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.store.registry import crawl_queue, schedules
from support import steering

LOG = """2026-11-26 13:40:02 [scrapy.core.engine] INFO: Spider opened
2026-11-26 13:40:02 [scrapy.extensions.logstats] INFO: Crawled 0 pages (at 0 pages/min)
2026-11-26 13:40:07 [scrapy.core.engine] DEBUG: Crawled (200) <GET https://books.example/1>
2026-11-26 13:40:08 [scrapy.core.scraper] ERROR: Spider error processing <GET https://b.example/2>
Traceback (most recent call last):
  File "shop/spiders/books.py", line 17, in parse
    price = float(response.css(".price::text").get())
TypeError: float() argument must be a string or a real number, not 'NoneType'
"""

CRAWLS = {
    "books": {"concurrency": 2, "note": "the whole shop, weekly"},
    "books:category=travel": {"arguments": {"category": "travel"}, "nice": -5},
    "prices": {"spider": "prices", "nice": 0, "keeps_fresh": True},
    "archive 2019": {"spider": "archive", "tag": "big", "settings": {"DOWNLOAD_DELAY": "2"}},
    "reviews": {"spider": "reviews", "nice": 5, "resource": "login"},
    "stock": {"spider": "stock", "is_paused": True},
    "sitemap": {"spider": "sitemap", "tag": "big"},
    "old shop": {"spider": "books", "note": "asked for by Ann"},
}

SCHEDULES = (
    ("books", {"at": "03:00"}, CatchUp.ONE),
    ("old shop", {"every": "6h"}, CatchUp.NONE),
    ("stock", {"cron": "30 2 * * 1-5"}, CatchUp.ALL),
)

PROCESSES = """
    INSERT INTO processes (kind, host, process_id, lease_until)
    SELECT 'runner', host, 4711, now() + interval '1 day' FROM unnest(ARRAY['crawl-1', 'crawl-2'])
        AS host
    RETURNING id
"""
RUNNERS = """
    INSERT INTO runners (name, project, places, tags, only_tagged, process_id, memory_free,
        disk_free, disk_total, load, logs)
    SELECT p.host, 'proj', 2, CAST('{}' AS text[]), false, p.id, 6200000000,
        81000000000, 120000000000, 0.71, '/srv/shop/.scrapy/itemgraph/logs'
    FROM processes p WHERE p.kind = 'runner'
    UNION ALL
    SELECT 'old-box', 'proj', 1, '{big}', true, NULL, NULL, NULL, NULL, NULL, NULL
"""
PLACES = """
    INSERT INTO places (runner_id, number)
    SELECT r.id, n FROM runners r CROSS JOIN LATERAL generate_series(1, r.places) AS n
"""
JOBS = """
    INSERT INTO jobs (crawl_id, origin, runner_id, place, state, host, process_id, started_at,
        ended_at, exit_code, reason, attempts, output, output_lines, log, memory, created_at)
    SELECT c.id, 'runner', r.id, j.place, j.state, r.name, 5000 + j.place,
        now() - j.began, now() - j.ended, j.code, j.reason, j.tries, CAST(:log AS text), 40,
        '/srv/shop/.scrapy/itemgraph/logs/' || c.name || '/1.log', 212000000, now() - j.began
    FROM (VALUES
        ('old shop', 'crawl-1', 1, 'completed', interval '9 h', interval '8 h', 0, 'finished', 1),
        ('prices', 'crawl-2', 2, 'temporary-error', interval '50 min', interval '49 min', -9,
            'killed by signal 9', 1),
        ('prices', 'crawl-2', 2, 'temporary-error', interval '49 min', interval '40 min', 1,
            'the spider could not start: no such file: prices.csv', 2),
        ('stock', 'crawl-1', 2, 'cancelled', interval '30 min', interval '20 min', 0, 'paused', 1),
        ('books:category=travel', 'crawl-1', 1, 'running', interval '12 min', NULL, NULL, NULL, 1),
        ('books', 'crawl-1', 2, 'running', interval '10 min', NULL, NULL, NULL, 1),
        ('books', 'crawl-2', 1, 'running', interval '4 min', NULL, NULL, NULL, 1)
    ) AS j (crawl, runner, place, state, began, ended, code, reason, tries)
    JOIN crawls c ON c.name = j.crawl JOIN runners r ON r.name = j.runner
"""
TAKEN = """
    UPDATE places x SET crawl_id = j.crawl_id, job_id = j.id, since = j.started_at
    FROM jobs j WHERE j.runner_id = x.runner_id AND j.place = x.number AND j.ended_at IS NULL
"""
LOCKED = """
    UPDATE places SET locked_to = (SELECT id FROM crawls WHERE name = 'prices'),
        lock = 'until finished'
    WHERE runner_id = (SELECT id FROM runners WHERE name = 'crawl-2') AND number = 2
"""


def fill(url: str) -> None:
    """Put crawls of each state into a database's queue, with runners, jobs and a log."""
    engine = engines.sync_engine(url)
    with engine.begin() as connection:
        for name, terms in CRAWLS.items():
            steering.add(connection, **{"spider": "books", "name": name} | terms)
        for statement in (PROCESSES, RUNNERS, PLACES):
            connection.execute(sa.text(statement))
        connection.execute(sa.text(JOBS), {"log": LOG})
        connection.execute(sa.text(TAKEN))
        connection.execute(sa.text(LOCKED))
        steering.change(connection, "sitemap", "abort", reason="the site asked us to stop")
        crawl_queue.set_terms(connection, "books", {"nice": -1}, by="anna@desk")
        for crawl, rule, catch_up in SCHEDULES:
            new = NewSchedule(rule=Rule.read(rule), catch_up=catch_up)
            schedules.add(connection, crawl, new, by="anna@desk")
        connection.execute(sa.text("UPDATE crawls SET run = 1 WHERE name IN ('books', 'old shop')"))
        connection.execute(sa.text("UPDATE crawls SET state = 'finished' WHERE name = 'old shop'"))
    engine.dispose()


def pages(url: str) -> dict[str, str]:
    """Return the paths of the pages of a filled queue, by the names of their pictures."""
    with ItemGraph.open(url) as graph:
        running = graph.jobs.list(is_open=True)[-1].id
        failed = graph.jobs.list(crawl="prices")[0].id
        schedule = graph.schedules.list()[-1].id
    tabs = ("queue", "runners", "jobs", "schedules", "notices")
    return {
        **{tab: f"/{tab}" for tab in tabs},
        "queued-crawl": "/crawls/books/queue",
        "new-crawl": "/queue/add",
        "job": f"/jobs/{running}",
        "job-failed": f"/jobs/{failed}",
        "schedule": f"/schedules/{schedule}",
    }
