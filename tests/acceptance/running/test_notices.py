"""Notices sent by real processes: a runner, a crawl by hand, and one that is killed."""

from __future__ import annotations

import signal
from datetime import timedelta

from support import queued
from support.projects import until
from support.receivers import receiver

BOOKS = """
class S(scrapy.Spider):
    name = "s"

    async def start(self):
        return
        yield
"""


def told(there):
    """Return (what, crawl) of what came."""
    return [(one["what"], one["crawl"]) for one in there.documents]


def test_a_runner_tells_of_crawls_that_end_and_a_crawl_by_hand_tells_itself(project, site):
    """The last process sends what it wrote; nobody else is there. No command shows the secret."""
    with receiver() as there:
        hook = f'"{there.url}/?token=hidden"'
        project.write(
            BOOKS,
            settings=f"ITEMGRAPH_NOTIFY_URLS = [{hook}]\n"
            'ITEMGRAPH_NOTIFY_SECRET = "whsec_c2l4dGVlbiBsZXR0ZXJzIGFuZCBlaWdodA=="',
        )
        queued.add(project, "one", "two")
        by_hand = project.crawl("-s", "ITEMGRAPH_CRAWL=one")
        assert by_hand.code == 0, by_hand.log
        assert told(there) == [("finished", "one")]
        run = project.finish(queued.work(project, "--once"))
        assert run.code == 0, run.log

    assert told(there) == [("finished", "one"), ("finished", "two")]
    assert all("webhook-signature" in headers for headers, _ in there.came)


def test_what_a_killed_sender_had_is_sent_by_the_next_with_the_same_id(project, site):
    """Killed while the receiver was silent: the notice falls due again, and is sent once more."""
    with receiver(20.0) as there:
        project.write(BOOKS, settings=f'ITEMGRAPH_NOTIFY_URLS = "{there.url}"')
        queued.add(project, "one")
        queued.change(project, "one", "abort")
        runner = queued.work(project, "--name", "a")
        until(lambda: there.came, lambda: project.log(runner))
        runner.send_signal(signal.SIGKILL)
        runner.wait()
        [(tries, is_put_off)] = project.rows("SELECT tries, next_at > now() FROM notices")
        with queued.transaction(project.url) as connection:
            connection.exec_driver_sql(
                "UPDATE notices SET next_at = next_at - %s", (timedelta(hours=1),)
            )
        run = project.finish(queued.work(project, "--once", "--name", "b"))
        assert run.code == 0, run.log

    assert (tries, is_put_off) == (1, True)
    assert told(there)[:2] == [("aborted", "one")] * 2
    assert there.documents[0]["id"] == there.documents[1]["id"]
    assert project.rows("SELECT DISTINCT sent_at IS NULL FROM notices") == [(False,)]
