"""Secrets of the runner's environment: no file, row or page that the runner keeps has them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from support import queued, web_servers

from scrapy_itemgraph.graph import ItemGraph
from scrapy_itemgraph.runner.log_files import JobLog

SECRET = "s3same/öffne dich"
TELLS = """
class S(scrapy.Spider):
    name = "s"

    def seeds(self):
        yield seed("PAGE")

    @task(tags=["page"], max_attempts=1)
    def parse_page(self, response, item):
        assert self.token == self.settings["USER_AGENT"] == os.environ["SHOP_TOKEN"]
        print(json.dumps(self.token), flush=True)
        item.log("info", f"it has {self.token}")
        raise RuntimeError(f"refused: {self.token}")


import json
"""


def test_nothing_that_a_runner_keeps_has_a_secret(project, site, monkeypatch):
    """SS-3: no log, list of settings in it, row, route or record of an error has one."""
    monkeypatch.setenv("SHOP_TOKEN", SECRET)
    monkeypatch.setenv("PIN", "1234")
    project.write(TELLS)
    arguments = {"token": "@env:SHOP_TOKEN", "place": "@env:SHOP_TOKEN"}
    with ItemGraph.open(project.url) as graph:
        for name, more in {"a": {"PIN": "@env:PIN"}, "b": {"LOG_FILE": "own.log"}}.items():
            queued.add(project, name, arguments=arguments)
            settings = {"USER_AGENT": "@env:SHOP_TOKEN", **more}
            graph.queue.set(name, by="ann", start_settings=settings)

    run = project.finish(queued.work(project, "--once"))

    assert run.code == 0, run.log
    kept = [json.dumps(project.rows(f"SELECT to_json(t)::text FROM {one} t")) for one in TABLES]
    (log,) = (project.directory / ".scrapy" / "itemgraph-logs" / "a").iterdir()
    kept += [said := log.read_text(), run.log]
    with web_servers.serving(project.url) as server:
        kept += [server.ask("GET", path).text for path in ROUTES]
    for text in kept:
        for part in ("s3same", "ffne dich"):
            assert part not in text
    assert said.startswith("scrapy-itemgraph: the value of PIN is not hidden in this log")
    assert "'USER_AGENT': '…'" in said
    assert '"@env:SHOP_TOKEN"\n' in said
    assert "RuntimeError: refused: @env:SHOP_TOKEN" in said
    assert '"place": "@env:SHOP_TOKEN"' in kept[2].replace("\\", "")
    assert kept[0].count("refused: @env:SHOP_TOKEN") > 1
    own = (project.directory / "own.log").read_text()
    assert "'USER_AGENT': '…'" in own, "a file of the project's own has no list of its settings"
    assert [one.stat().st_mode & 0o077 for one in (log, log.parent)] == [0, 0]


TABLES = ("attempts", "jobs", "crawls", "crawl_events", "notices", "processes", "runs")
ROUTES = (
    *("/api/v1/jobs/1/log", "/api/v1/jobs/1", "/api/v1/queue", "/jobs/1", "/crawls/a/failures"),
    *("/crawls/a/queue", "/api/v1/crawls/a/failures", "/api/v1/crawls/a/failures/1"),
)


def test_files_of_logs_are_their_owners_alone(tmp_path):
    """SS-3: the log, and what was rotated away, whatever the umask is."""
    log = JobLog(tmp_path / "logs", "c", 1)
    log.write(b"line\n")
    log.rotate()
    log.close()

    files = list(Path(log.path.parent).iterdir())
    assert {one.name: one.stat().st_mode & 0o777 for one in files} == {
        "1.log": 0o600,
        "1.log.1.gz": 0o600,
    }
    assert gzip.decompress(log.path.with_suffix(".log.1.gz").read_bytes()) == b"line\n"
