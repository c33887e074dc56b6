"""The numbers of /metrics: how all crawls stand, and what was done, in Prometheus's words."""

from __future__ import annotations

import http
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from scrapy_itemgraph.exceptions import NotFoundError
from scrapy_itemgraph.model.latencies import BOUNDS
from scrapy_itemgraph.model.tallies import NO_ANSWER
from scrapy_itemgraph.web.problems import RETRY_AFTER, Problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from prometheus_client import Metric

    from scrapy_itemgraph.store.admin.totals import TaskTotals
    from scrapy_itemgraph.store.latencies import SlotLatencies, TaskLatencies
    from scrapy_itemgraph.web.graphs import Graphs

REMEMBERED = 5.0  # seconds that numbers are given out without being counted again
SHARE = 0.1  # of the time is spent counting, at most
MOST_CRAWLS, MOST_TASKS = 100, 200  # of which there are numbers: labels are bounded
PATIENCE = 5.0  # seconds that the database has to answer

_OF_TASKS = {
    "waiting": "Work that could be claimed",
    "delayed": "Work that waits for a later time",
    "claimed": "Work that workers have",
    "completed": "Results",
    "fresh": "Results that are fresh",
    "due": "Results whose time is over, and which no run has taken up",
    "held": "Pairs that do not run until somebody handles them",
    "gone": "Pairs whose pages are no more, as their website says",
    "skipped": "Pairs that are set aside, for nobody wants them",
    "stashed": "Pairs that are set aside for later",
    "left": "Pairs that were outstanding when the spider closed its run",
    "failures": "Failures that nobody has handled",
    "refusals": "Refusals that nobody has handled",
}

_OUTCOMES = ("done", "failed", "gone", "refused", "retried")
_KNOWN_STATUSES = {str(int(one)) for one in http.HTTPStatus} | {NO_ANSWER}
_OTHER = "other"  # statuses that HTTP does not know: labels are bounded


class Counters:
    """What was done since a crawl began, from its totals; it never falls but after a restart."""

    def __init__(self) -> None:
        of_task = ["crawl", "task"]
        self.pages = CounterMetricFamily(
            "itemgraph_pages", "Executions by how they ended", labels=[*of_task, "outcome"]
        )
        self.scraped = CounterMetricFamily(
            "itemgraph_items_scraped", "Scraped items", labels=of_task
        )
        self.requests = CounterMetricFamily(
            "itemgraph_requests", "Requests by HTTP status", labels=[*of_task, "status"]
        )
        self.bytes = CounterMetricFamily(
            "itemgraph_response_bytes", "Bytes of answers' bodies, as sent", labels=of_task
        )

    def add(self, crawl: str, one: TaskTotals) -> None:
        """Add a task's totals; what is of none has an empty label."""
        labels = [crawl, one.task or ""]
        for outcome in _OUTCOMES:
            self.pages.add_metric([*labels, outcome], getattr(one, outcome))
        self.scraped.add_metric(labels, one.scraped)
        self.bytes.add_metric(labels, one.bytes)
        by_status: Counter[str] = Counter()
        for status, number in one.statuses.items():
            by_status[status if status in _KNOWN_STATUSES else _OTHER] += number
        for status, number in by_status.items():
            self.requests.add_metric([*labels, status], number)

    def families(self) -> Iterator[Metric]:
        """Return all of them."""
        yield from (self.pages, self.scraped, self.requests, self.bytes)


class Histograms:
    """In how many seconds websites answered, by task and by slot, where workers tell it."""

    def __init__(self) -> None:
        self.of_tasks = HistogramMetricFamily(
            "itemgraph_latency_seconds",
            "Seconds until websites began to answer, by task",
            labels=["crawl", "task"],
        )
        self.of_slots = HistogramMetricFamily(
            "itemgraph_slot_latency_seconds",
            "Seconds until websites began to answer, by slot, of all crawls",
            labels=["slot"],
        )

    def add(self, crawl: str, one: TaskLatencies) -> None:
        """Add those of a task; what is of none has an empty label."""
        self.of_tasks.add_metric([crawl, one.task or ""], _buckets(one.answers), one.seconds)

    def add_slot(self, one: SlotLatencies) -> None:
        """Add those of a slot."""
        self.of_slots.add_metric([one.slot], _buckets(one.answers), one.seconds)

    def families(self) -> Iterator[Metric]:
        """Return all of them."""
        yield from (self.of_tasks, self.of_slots)


def _buckets(answers: Sequence[int]) -> list[tuple[str, float]]:
    """Return how many answers came within each bound, as Prometheus counts them."""
    known = [*answers, *[0] * len(BOUNDS)][: len(BOUNDS)]
    within = [(str(bound), float(sum(known[: n + 1]))) for n, bound in enumerate(BOUNDS)]
    return [*within, ("+Inf", float(sum(answers)))]


class LastRuns:
    """When each crawl's present or last run began and ended, how it stands, and why it ended."""

    def __init__(self) -> None:
        self.began = GaugeMetricFamily(
            "itemgraph_last_run_start_timestamp_seconds",
            "When the present or last run began",
            labels=["crawl"],
        )
        self.ended = GaugeMetricFamily(
            "itemgraph_last_run_end_timestamp_seconds",
            "When the last run ended; absent while it goes on",
            labels=["crawl"],
        )
        self.info = GaugeMetricFamily(
            "itemgraph_last_run_info",
            "How the present or last run stands, and why it ended",
            labels=["crawl", "state", "reason"],
        )

    def add(self, crawl: str, run: dict[str, Any]) -> None:
        """Add a crawl's run, as `status` has it."""
        self.began.add_metric([crawl], run["started_at"].timestamp())
        if run["ended_at"] is not None:
            self.ended.add_metric([crawl], run["ended_at"].timestamp())
        self.info.add_metric([crawl, run["state"], run["reason"] or ""], 1)

    def families(self) -> Iterator[Metric]:
        """Return all of them."""
        yield from (self.began, self.ended, self.info)


class Numbers:
    """Collects the numbers of all crawls; those of the last seconds are given out again."""

    def __init__(self, graphs: Graphs) -> None:
        self._graphs = graphs
        self._lock = threading.Lock()
        self._text = b""
        self._due_at = 0.0
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def text(self) -> bytes:
        """Return the numbers in Prometheus's words."""
        if not self._lock.acquire(timeout=0 if self._text else PATIENCE):
            if not self._text:
                raise Problem(503, "the database does not answer", RETRY_AFTER)
            return self._text  # somebody counts just now
        try:
            began = time.monotonic()
            if began >= self._due_at:
                self._text = generate_latest(self._registry)
                took = time.monotonic() - began
                self._due_at = time.monotonic() + max(REMEMBERED, took / SHARE)
            return self._text
        finally:
            self._lock.release()

    def describe(self) -> list[Metric]:
        """Return nothing: what there is, is known when it is counted."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Count, as `status` does."""
        items = GaugeMetricFamily("itemgraph_items", "Items", labels=["crawl"])
        workers = GaugeMetricFamily("itemgraph_workers", "Workers", labels=["crawl"])
        claims = GaugeMetricFamily("itemgraph_worker_claims", "Claims", labels=["crawl"])
        tasks = {
            name: GaugeMetricFamily(f"itemgraph_{name}", said, labels=["crawl", "task"])
            for name, said in _OF_TASKS.items()
        }
        counters, runs, histograms = Counters(), LastRuns(), Histograms()
        for crawl in self._graphs.served.crawls.names()[:MOST_CRAWLS]:
            seen = self._seen(crawl)
            if seen is None:
                continue
            found, totals, latencies = seen
            items.add_metric([crawl], found["items"])
            workers.add_metric([crawl], len(found["workers"]))
            claims.add_metric([crawl], sum(one["claims"] for one in found["workers"]))
            for task in found["tasks"][:MOST_TASKS]:
                for name, family in tasks.items():
                    family.add_metric([crawl, task["name"]], task[name])
            for one in totals[:MOST_TASKS]:
                counters.add(crawl, one)
            for task_latencies in latencies[:MOST_TASKS]:
                histograms.add(crawl, task_latencies)
            if found["run"] is not None:
                runs.add(crawl, found["run"])
        yield from (items, workers, claims, *tasks.values())
        yield from counters.families()
        yield from runs.families()
        for slot_latencies in self._graphs.served.activity.slot_latencies():
            histograms.add_slot(slot_latencies)
        yield from histograms.families()

    def _seen(
        self, crawl: str
    ) -> tuple[dict[str, Any], list[TaskTotals], list[TaskLatencies]] | None:
        try:
            graph = self._graphs.of(crawl)
            return graph.status(), graph.activity.totals(), graph.activity.latencies()
        except NotFoundError:  # it has just been deleted
            return None
