"""Two days at the tea shop, a queue of crawls, and an archive. `make demo` runs this.

The shop is crawled, a day passes, and it is crawled again; then three crawls of it are queued for a
runner with two places, and one of their processes is killed; at last the shop's pages that are near
enough are archived, by the spider that comes with the package. Every number comes from the shop's
own access log or from the database. It exits with 1 when a step fails, when the graph and the shop
differ, or when something ran again that was still fresh.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urljoin, urlsplit

HERE = Path(__file__).resolve().parent
WORK = HERE / ".scrapy" / "demo"  # apart from .scrapy/itemgraph, which is yours
DATA_DIR = WORK / "itemgraph"
SCRAPY = [sys.executable, "-m", "scrapy"]
SEEN = ("name", "price", "stock")
STEP_TIMEOUT = 300  # seconds
QUEUED = ("morning", "noon", "night")
PLACES = 2
ARCHIVED = 2  # links
BAD_REQUEST = 400
TASKS = (
    "parse_shop",
    "parse_category",
    "parse_page",
    "parse_product",
    "parse_reviews",
    "fetch_photo",
    "make_card",
)


RUNNER = ("work", "--processes", str(PLACES), "--once", "--min-memory", "50M", "--min-disk", "50M")


class DemoError(Exception):
    """A step failed, or the outcome is not what the demo promises."""


# The shop: its pages, its log and its catalogue.


@contextmanager
def shop_site():
    """Run the shop on a free port and yield its address."""
    command = [sys.executable, "-m", "shop.site", "--port", "0", "--day", "1"]
    with subprocess.Popen(command, cwd=HERE, stdout=subprocess.PIPE, text=True) as process:
        try:
            address = process.stdout.readline().strip()
            if not address:
                raise DemoError("the shop's site did not start")
            yield address
        finally:
            process.terminate()


def ask(address, method="GET"):
    request = urllib.request.Request(address, method=method)
    with urllib.request.urlopen(request, timeout=10) as response:
        return response.read()


def access_log(site):
    return json.loads(ask(f"{site}/log.json"))["log"]


def catalog(site):
    return {f"SKU:{line['sku']}": line for line in json.loads(ask(f"{site}/catalog.json"))}


def task_of(line):
    """Tell by its path for which task the shop was asked for a page."""
    url = urlsplit(line["path"])
    kind = url.path.split("/")[1]
    if url.query.startswith("page="):
        return "parse_page"
    if url.path == "/offers":
        return "parse_category"
    return {
        "": "parse_shop",
        "category": "parse_category",
        "product": "parse_product",
        "offers": "parse_product",
        "reviews": "parse_reviews",
        "images": "fetch_photo",
    }.get(kind, url.path)


# The crawl and the graph.


def command_of(*arguments):
    """Say which Scrapy command is run in this project, and return it."""
    print(f"  $ scrapy {' '.join(arguments)}")
    return [*SCRAPY, *arguments, "-s", f"ITEMGRAPH_DATA_DIR={DATA_DIR}"]


def scrapy(*arguments, log):
    """Run a Scrapy command in this project, with its log in a file; return what it printed."""
    command = command_of(*arguments)
    with log.open("w") as file:
        try:
            done = subprocess.run(
                command,
                cwd=HERE,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
                timeout=STEP_TIMEOUT,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise DemoError(f"still not done after {STEP_TIMEOUT} s; see {log}") from None
    if done.returncode:
        tail = "\n".join((done.stdout + log.read_text()).splitlines()[-20:])
        raise DemoError(f"exit code {done.returncode}; the end of {log}:\n{tail}")
    return done.stdout


def crawl(site, run):
    """Crawl the shop once; return the lines that this run added to the shop's log."""
    before = len(access_log(site))
    log = WORK / f"{run}.log"
    scrapy(
        "crawl",
        "shop",
        "-a",
        f"site={site}",
        "-O",
        os.path.relpath(WORK / f"{run}.jsonl", HERE),
        log=log,
    )
    if "'finish_reason': 'finished'" not in log.read_text():
        raise DemoError(f"the crawl did not finish; see {log}")
    return access_log(site)[before:]


@contextmanager
def open_graph():
    from scrapy_itemgraph import ItemGraph  # noqa: PLC0415 (so that a missing install is reported)
    from scrapy_itemgraph.postgres.embedded_server import EmbeddedServer  # noqa: PLC0415

    server = EmbeddedServer.start(DATA_DIR)
    try:
        with ItemGraph.open(server.url, crawl="shop") as graph:
            yield graph
    finally:
        server.close()


def field(thing, name, default=None):
    """Read a field of what the graph returned, be it a mapping or an object."""
    if isinstance(thing, dict):
        return thing.get(name, default)
    return getattr(thing, name, default)


def moment(value):
    return datetime.fromisoformat(value) if isinstance(value, str) else value


def results_of(graph, item_id):
    """Return an item's results by task."""
    found = graph.results(item_id) or []
    if isinstance(found, dict):
        return found
    return {field(result, "task"): result for result in found}


def is_fresh(result):
    expires_at = moment(field(result, "expires_at"))
    return (
        field(result, "completed_at") is not None
        and not field(result, "is_invalidated", False)
        and field(result, "is_successful", True)
        and (expires_at is None or expires_at > datetime.now(UTC))
    )


def open_failures(graph):
    """Return (item, task, reason) of each failure that waits for a person."""
    return [
        (field(failure, "item"), field(failure, "task"), reason_of(field(failure, "error")))
        for failure in graph.failures.list()
    ]


def reason_of(error):
    if isinstance(error, dict):
        parts = [str(error[key]) for key in ("type", "message") if error.get(key)]
        return ": ".join(parts) or json.dumps(error)
    return str(error)


class Snapshot:
    """What the graph knows at one moment of the items with these ids, and of their tasks."""

    def __init__(self, ids):
        self.items, self.results, self.waiting = {}, {}, {}
        with open_graph() as graph:
            for item_id in ids:
                item = graph.get(item_id)
                if item is None:
                    continue
                self.items[item_id] = item
                for task, result in results_of(graph, item_id).items():
                    self.results[item_id, task] = result
            self.failures = open_failures(graph)
            for task in TASKS:
                self.waiting[task] = len(list(graph.worklist(task=task, limit=1000)))

    def all_data(self, item_id):
        return field(self.items.get(item_id), "data", {})

    def data(self, item_id):
        """Return what the shop's catalogue says, too."""
        return {key: self.all_data(item_id).get(key) for key in SEEN}

    def tags(self, item_id):
        return set(field(self.items[item_id], "tags", {}))

    def done(self):
        """Return the pairs that have a result, and when each was completed."""
        times = {pair: moment(field(r, "completed_at")) for pair, r in self.results.items()}
        return {pair: time for pair, time in times.items() if time is not None}

    def fresh(self):
        return {pair for pair, result in self.results.items() if is_fresh(result)}


# What is shown.


def heading(text):
    print(f"\n{text}\n{'─' * len(text)}")


def table(titles, rows):
    """Print rows in columns, numbers to the right."""
    cells = [titles, *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(titles))]
    right = [all(isinstance(row[i], int | float) for row in rows) for i in range(len(titles))]
    for number, line in enumerate(cells):
        columns = zip(line, widths, right, strict=True)
        text = "  ".join(c.rjust(w) if is_right else c.ljust(w) for c, w, is_right in columns)
        print(f"  {text.rstrip()}")
        if number == 0:
            print(f"  {'  '.join('─' * width for width in widths)}")


def per_task(pairs):
    return Counter(task for _, task in pairs)


def show_downloads(downloads):
    notes = Counter(task_of(line) for line in downloads if task_of(line) not in TASKS)
    notes.update(f"HTTP {line['status']}" for line in downloads if line["status"] >= BAD_REQUEST)
    of_these = ", ".join(f"{count} {what}" for what, count in sorted(notes.items()))
    print(f"\n  {len(downloads)} requests reached the shop (of these {of_these or 'all pages'}).")


def show_first_day(snapshot, downloads):
    done, fresh = per_task(snapshot.done()), per_task(snapshot.fresh())
    failed = per_task((item, task) for item, task, _ in snapshot.failures)
    asked = Counter(task_of(line) for line in downloads)
    rows = [(t, done[t], fresh[t], failed[t], snapshot.waiting[t], asked[t]) for t in TASKS]
    table(("task", "results", "fresh", "failed", "waiting", "downloads"), rows)
    print("\n  parse_page leaves no results: its items are pages that go when they were read.")
    print("  make_card needs no download: it joins what the others found.")
    show_downloads(downloads)


def show_names(snapshot):
    """Show an item of each way in which several names came to mean one thing."""
    ways = {
        "found at two addresses": lambda i: sum("/offers/" in a for a in aliases(snapshot, i)),
        "taken in from a customer's wish": lambda i: "wanted" in snapshot.tags(i),
        "known by an old page, too": lambda i: "old_url" in snapshot.all_data(i),
    }
    print("\n  One item, many names:")
    for way, fits in ways.items():
        item_id = next((i for i in snapshot.items if fits(i)), None)
        if item_id is None:
            raise DemoError(f"no item was {way}")
        print(f"    {item_id} ({way}): {snapshot.data(item_id)['name']}")
        for alias in aliases(snapshot, item_id):
            print(f"      = {alias}")


def aliases(snapshot, item_id):
    return sorted(set(field(snapshot.items[item_id], "aliases", ())) - {item_id})


def show_failures(snapshot):
    print("\n  Failures that wait for a person:" if snapshot.failures else "\n  No failures.")
    for item_id, task, reason in snapshot.failures:
        print(f"    {task} of {item_id}\n      {reason}")


def show_second_day(before, after, downloads):
    ran = reran(before, after)
    old, fresh = before.fresh(), per_task(before.fresh() - ran)
    stale = per_task(set(before.done()) - old)
    new = per_task(ran - set(before.done()))
    again = per_task(ran & set(before.done()))
    asked = Counter(task_of(line) for line in downloads)
    rows = [(t, stale[t], again[t], new[t], fresh[t], asked[t]) for t in TASKS]
    table(("task", "was stale", "ran again", "first time", "left alone", "downloads"), rows)
    show_downloads(downloads)


def show_changes(before, after):
    print("\n  What is new in the graph:\n")
    rows = []
    for item_id in after.items:
        old, new = before.data(item_id), after.data(item_id)
        if "gone" in after.tags(item_id) - set(field(before.items.get(item_id), "tags", {})):
            rows.append((item_id, new["name"], "gone", "gone"))
        elif item_id not in before.items:
            rows.append((item_id, new["name"], f"new: {new['price']}", f"new: {new['stock']}"))
        elif old != new:
            rows.append((item_id, new["name"], *(change(old, new, key) for key in SEEN[1:])))
    table(("item", "name", "price", "stock"), rows)


def change(old, new, key):
    return "" if old[key] == new[key] else f"{old[key]} → {new[key]}"


# What must hold.


def reran(before, after):
    """Return the pairs that were completed between two snapshots."""
    old = before.done()
    return {pair for pair, time in after.done().items() if old.get(pair) != time}


def check_catalog(site, snapshot):
    """The graph must say what the shop says, except where a failure waits."""
    goods = catalog(site)
    failing = {item_id for item_id, _, _ in snapshot.failures}
    wrong = []
    for item_id, line in goods.items():
        expected = {"name": line["name"], "price": float(line["price"]), "stock": line["stock"]}
        if item_id not in snapshot.items:
            continue
        if snapshot.data(item_id) != expected:
            wrong.append(f"{item_id}: {snapshot.data(item_id)}, the shop says {expected}")
        if f"EAN:{line['ean']}" not in aliases(snapshot, item_id):
            wrong.append(f"{item_id} is not known by its EAN {line['ean']}")
    missing = [item_id for item_id in goods if item_id not in snapshot.items]
    if len(missing) > len(failing):
        wrong.append(f"not found: {', '.join(missing)}")
    if wrong:
        raise DemoError("the graph and the shop differ:\n  " + "\n  ".join(wrong))
    print(
        f"\n  Checked: {len(goods) - len(missing)} of {len(goods)} products in the graph,", end=" "
    )
    print("name, price and stock as the shop says.")


def check_only_stale(before, after, downloads):
    """What was fresh may only have run because the spider expired it, for the reason it gives."""
    ran, fresh = reran(before, after), before.fresh()
    repriced = {i for i in before.items if before.data(i)["price"] != after.data(i)["price"]}
    excused = {(item_id, "parse_reviews") for item_id in repriced}
    excused |= {
        (item_id, "make_card") for item_id, t in ran if t in {"parse_product", "parse_reviews"}
    }
    wrong = [f"{task} of {item_id} ran again" for item_id, task in (ran & fresh) - excused]
    # The same from the other side, the shop's log.
    for line in downloads:
        item_id = f"SKU:{Path(urlsplit(line['path']).path).stem}"
        pair = ("SHOP:tea" if line["path"] == "/" else item_id, task_of(line))
        if pair in fresh - excused:
            wrong.append(f"{line['path']} was downloaded again")
    if not fresh - ran:
        wrong.append("nothing was left alone")
    if wrong:
        raise DemoError("what was fresh ran again:\n  " + "\n  ".join(sorted(wrong)))
    print(f"\n  Checked: {len(fresh - ran)} results were fresh and left alone.", end=" ")
    print(f"{len(ran & fresh)} fresh ones ran again\n  because the spider expired them:", end=" ")
    print(f"reviews where the price changed ({len(repriced)}), and cards.")


def check_third(before, after, downloads):
    ran = reran(before, after)
    if downloads or ran:
        raise DemoError(f"a third run should find nothing to do, but it ran {sorted(ran)}")
    print("\n  The shop was not asked for a single page, and no task ran: all is fresh.")


def play(site):
    heading("Day 1: the first crawl")
    downloads = crawl(site, "day-1")
    ids = ["SHOP:tea", *(f"CATEGORY:{n}" for n in ("tea", "coffee", "cups", "offers"))]
    ids += catalog(site)
    first = Snapshot(ids)
    show_first_day(first, downloads)
    show_names(first)
    show_failures(first)
    check_catalog(site, first)

    heading("A day passes; a person sees to the failures")
    scrapy("itemgraph", "age", "shop", "1d", log=WORK / "age.log")
    for task in {task for _, task, _ in first.failures}:
        scrapy("itemgraph", "handle", "--task", task, log=WORK / "handle.log")
    ask(f"{site}/day/2", method="POST")
    ids = list(dict.fromkeys([*ids, *catalog(site)]))
    before = Snapshot(ids)

    heading("Day 2: the shop has changed, and is crawled again")
    downloads = crawl(site, "day-2")
    second = Snapshot(ids)
    show_second_day(before, second, downloads)
    show_changes(before, second)
    show_failures(second)
    check_catalog(site, second)
    check_only_stale(before, second, downloads)

    heading("Right after: a third run")
    check_third(second, Snapshot(ids), crawl(site, "third"))


def play_queue(site):
    heading("Three crawls in the queue, two places, and one process that is killed")
    terms = ("-a", f"site={site}", "-s", "DOWNLOAD_DELAY=0.02")
    for name in QUEUED:
        scrapy("itemgraph", "crawls", "add", "shop", name, *terms, log=WORK / "add.log")
    killed = run_queue()
    print(f"  The process of the crawl {killed} was killed, kill -9, and started again.\n")
    for shown in (("jobs", "list"), ("crawls", "history", killed)):
        print(scrapy("itemgraph", *shown, log=WORK / "shown.log"))
    check_queue(killed)


def run_queue():
    """Run what is in the queue, and kill a process of it; return the name of its crawl."""
    with (
        (WORK / "runner.log").open("w") as log,
        subprocess.Popen(command_of("itemgraph", *RUNNER), cwd=HERE, stderr=log) as runner,
    ):
        try:
            job = first_that_works(runner)
            os.kill(job.process_id, signal.SIGKILL)
            if runner.wait(STEP_TIMEOUT):
                raise DemoError(f"the runner failed; see {log.name}")
        except subprocess.TimeoutExpired:
            raise DemoError(f"still not done after {STEP_TIMEOUT} s; see {log.name}") from None
        finally:
            runner.terminate()
    return job.crawl


def first_that_works(runner):
    """Wait until a process of the queue has done a page; return its job."""
    deadline = time.monotonic() + STEP_TIMEOUT
    with open_graph() as graph:
        while time.monotonic() < deadline and runner.poll() is None:
            for job in graph.jobs.list(is_open=True):
                done = sum(one.done for one in graph.of(job.crawl).activity.totals())
                if job.worker is not None and done:
                    return job
            time.sleep(0.1)
    raise DemoError(f"nothing of the queue was run; see {WORK / 'runner.log'}")


def check_queue(killed):
    """Each crawl must have ended with the whole shop, and the killed one by two processes."""
    with open_graph() as graph:
        crawls = {one.name: str(one.state) for one in graph.queue.named(QUEUED)}
        jobs = Counter(job.crawl for job in graph.jobs.list())
        products = {name: sum(1 for _ in graph.of(name).items(tag="product")) for name in QUEUED}
    if set(crawls.values()) != {"finished"} or len(set(products.values())) != 1:
        raise DemoError(f"the crawls of the queue ended as {crawls}, with products {products}")
    if jobs != Counter([*QUEUED, killed]):
        raise DemoError(f"the crawls of the queue were run by so many processes: {dict(jobs)}")
    print(f"  Checked: all three are finished, each with {products[killed]} products.")


def play_archive(site):
    heading(f"The shop as an archive: what is at most {ARCHIVED} links away, with its pictures")
    rule = rf"^{re.escape(site)}/(category|product|reviews|offers)"
    terms = ("-a", f"url={site}/", "--depth", str(ARCHIVED), "--accept", rule)
    scrapy("itemgraph", "crawls", "add", "site", "archive", *terms, log=WORK / "add.log")
    scrapy("itemgraph", *RUNNER, log=WORK / "archive.log")
    print(scrapy("itemgraph", "status", "--crawl", "archive", log=WORK / "shown.log"))
    expected = near(site, rule)
    with open_graph() as graph:
        archive = graph.of("archive")
        kept = {one.url for one in archive.items(limit=10_000) if "fresh" in one.states.values()}
        pages = {url for url in kept if re.match(rule, url)} | {f"{site}/"}
        too_deep = archive.depths.standing().too_deep
    if pages != expected:
        raise DemoError(
            f"the archive lacks {expected - pages}, and has {pages - expected} too many"
        )
    print(
        f"  Checked: the {len(pages)} pages that are near, {len(kept - pages)} pictures and other"
    )
    print(f"  things that they need, and {too_deep} pages that wait, for they are too deep.")


def near(site, rule):
    """Return the pages that are near enough, by a search over the shop's own links."""
    found, front = {f"{site}/"}, [f"{site}/"]
    for _ in range(ARCHIVED):
        links = [urljoin(page, href) for page in front for href in hrefs(page)]
        front = list(dict.fromkeys(one for one in links if re.match(rule, one)))
        front = [one for one in front if one not in found]
        found.update(front)
    return found


def hrefs(page):
    with suppress(HTTPError):
        return re.findall(r'<a [^>]*href="([^"#]+)', ask(page).decode())
    return []


def main():
    sys.stdout.reconfigure(line_buffering=True)  # in step with errors, also into a pipe
    try:
        if WORK.exists():
            shutil.rmtree(WORK)
        WORK.mkdir(parents=True)
        with shop_site() as site:
            print(f"The tea shop is open at {site}; logs are in {WORK}.")
            play(site)
            play_queue(site)
            play_archive(site)
        heading("Look around in it")
        here = os.path.relpath(HERE, Path.cwd())
        in_project = "" if here == "." else f"cd {here} && "
        serve = f"{sys.executable} -m scrapy itemgraph serve"
        data = DATA_DIR.relative_to(HERE)
        print(f"  {in_project}{serve} -s ITEMGRAPH_DATA_DIR={data}")
        print("  shows what was crawled in the browser, at http://127.0.0.1:8808/")
    except (DemoError, ImportError, OSError) as error:
        print(f"\nThe demo failed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
