"""Notices: claimed, sent by real processes to real receivers, tried again, and given up."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import signal
import socket
import threading
from contextlib import suppress
from datetime import timedelta

import pytest
import sqlalchemy as sa
from support.projects import until
from support.receivers import receiver

from scrapy_itemgraph.channels import channel, sending
from scrapy_itemgraph.channels.channel import Channels
from scrapy_itemgraph.exceptions import ConfigurationError
from scrapy_itemgraph.graph import ItemGraph
from scrapy_itemgraph.graph.crawl_transactions import CrawlTransactions
from scrapy_itemgraph.graph.parts.notices import Notices
from scrapy_itemgraph.graph.parts.queue import Queue
from scrapy_itemgraph.model.crawl_states import NewCrawl
from scrapy_itemgraph.model.notices import Arrival, Kind
from scrapy_itemgraph.settings import Settings
from scrapy_itemgraph.store import pruning
from scrapy_itemgraph.store.registry import notices as stored
from scrapy_itemgraph.web.notices import sending_notices

SECRET = "whsec_" + base64.b64encode(b"k" * 32).decode()


@pytest.fixture
def notices(engine):
    """Return the notices of an empty database."""
    return Notices(CrawlTransactions(engine, None))


def channels(*urls, project="shop", **given):
    """Return the channels of a project."""
    return Channels.of(Settings.of(notify_urls=urls, **given).notices, project)


def write(engine, what=Kind.FINISHED, project="shop", crawl="books", **body):
    """Write a notice."""
    with engine.begin() as connection:
        stored.write(connection, None, what, project=project, crawl=crawl, **body)


def age(engine, period):
    """Have notices be older, and their next try nearer, by a period."""
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "UPDATE notices SET created_at = created_at - %(by)s, next_at = next_at - %(by)s",
            {"by": period},
        )


def test_a_webhook_gets_what_happened_signed_as_standard_webhooks_says(notices, engine):
    """The id is that of the list, and over id, time and body as they came is signed."""
    write(engine, reason="left: 3 failures open", run=2)
    with receiver() as there:
        sent_to = channels(there.url + "/hook", notify_secret=SECRET)
        pause = notices.deliver(sent_to)
        assert notices.deliver(sent_to) > 0

    [(headers, body)] = there.came
    given = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    signature = base64.b64encode(hmac.digest(b"k" * 32, given, hashlib.sha256)).decode()
    [line] = notices.list()
    assert pause == 0
    assert headers["webhook-signature"] == f"v1,{signature}"
    assert headers["content-type"] == "application/json"
    assert there.documents == [
        {
            "id": line.key,
            "what": "finished",
            "project": "shop",
            "crawl": "books",
            "reason": "left: 3 failures open",
            "at": line.created_at.isoformat(),
            "text": "The crawl books is finished: left: 3 failures open",
            "detail": {"run": 2},
            "link": None,
        }
    ]
    assert (headers["webhook-id"], line.state, line.tries) == (line.key, "sent", 1)


def test_a_notice_links_to_the_failure_or_the_crawl(notices, engine):
    """It does where the project says at which address people open the cockpit."""
    write(engine, Kind.FAILURES, crawl="books:cat=a/b", failure=17)
    write(engine)
    write(engine, Kind.RUNNER_GONE, crawl=None, runner="host:1")
    with receiver() as there:
        notices.deliver(channels(there.url, cockpit_url="https://crawls.example/shop"))

    assert [one["link"] for one in there.documents] == [
        "https://crawls.example/shop/crawls/books%3Acat%3Da%2Fb/failures/17",
        "https://crawls.example/shop/crawls/books",
        "https://crawls.example/shop",
    ]


def test_what_fails_is_tried_again_by_the_channel_that_failed(notices, engine):
    """A 500 is waited for, each time longer; who has it already is not told twice."""
    write(engine)
    with receiver(500, 503) as failing, receiver() as well:
        sent_to = channels(failing.url, well.url)
        notices.deliver(sent_to)
        [first] = notices.list()
        assert notices.deliver(sent_to) > 0  # not yet
        for _ in range(2):
            age(engine, timedelta(minutes=1))
            notices.deliver(sent_to)

    [line] = notices.list()
    name = failing.url
    assert first.state == "failed"
    assert first.error == f"{name}: 500 Internal Server Error"
    assert first.answers[well.url]["arrival"] == "sent"
    assert (line.state, line.tries, line.error) == ("sent", 3, None)
    assert len({one["id"] for one in failing.documents}) == 1
    assert (len(failing.came), len(well.came)) == (3, 1)


def test_a_notice_is_given_up_after_a_day_and_at_once_by_410(notices, engine, caplog):
    """Both say so; a redirect is not followed, and no answer shows what the URL hides."""
    with receiver(302, 410) as there:
        sent_to = channels(there.url.replace("//", "//ann:pass@") + "/?token=hidden")
        write(engine, crawl="late")
        notices.deliver(sent_to)
        age(engine, timedelta(hours=23, minutes=59, seconds=55))
        there.answers.insert(0, 500)
        notices.deliver(sent_to)
        write(engine, crawl="gone")
        notices.deliver(sent_to)
        age(engine, timedelta(days=1))
        notices.deliver(sent_to)

    gone, late = notices.list()
    assert len(there.came) == 3
    assert there.came[0][0]["authorization"].startswith("Basic ")
    assert (late.state, gone.state) == ("given up", "given up")
    assert "500" in late.error
    assert "410 Gone: it takes no more" in gone.error
    assert "given up (The crawl late is finished)" in caplog.text
    assert not {"pass", "hidden"} & {*repr([gone, late]).replace("@", " ").split(), caplog.text}
    assert "hidden" not in repr([gone, late]) + caplog.text + repr(sent_to)


def test_who_gives_no_answer_in_time_is_killed_and_the_others_are_not_held_up(notices, engine):
    """A receiver that is silent, and a port where nobody listens, fail; the third one has it."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with receiver(30.0) as silent, receiver() as well:
            write(engine)
            sent_to = channels(silent.url, nobody, well.url)
            [notice] = _claimed(engine, sent_to)
            answers = sending.send(sent_to, [notice], seconds=2)[notice.id]

    said = {one.channel: (one.arrival, one.said) for one in answers}
    assert said[silent.url] == (Arrival.FAILED, "no answer within 2 seconds")
    assert said[nobody] == (Arrival.FAILED, "it cannot be reached: Connection refused")
    assert said[well.url] == (Arrival.SENT, "204 No Content")


def _claimed(engine, sent_to):
    with engine.begin() as connection:
        return stored.claim(
            connection, sent_to.project, kinds=sent_to.kinds, lease=sending.LEASE, limit=10
        )


def test_two_senders_at_once_send_each_notice_once(notices, engine):
    """A claim of one is passed over by the other; what was claimed by a dead one comes back."""
    for number in range(25):
        write(engine, crawl=f"crawl {number}")
    with receiver() as there:
        sent_to = channels(there.url)
        dead = _claimed(engine, sent_to)  # and nothing of it is sent
        threads = [threading.Thread(target=_deliver_all, args=(engine, sent_to)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        before = [one["crawl"] for one in there.documents]
        age(engine, sending.LEASE)
        _deliver_all(engine, sent_to)

    after = [one["crawl"] for one in there.documents]
    assert len(dead) == 10
    assert (len(before), len(set(before))) == (15, 15)
    assert sorted(after) == sorted(f"crawl {number}" for number in range(25))
    assert {one.state for one in notices.list()} == {"sent"}


def _deliver_all(engine, sent_to):
    part = Notices(CrawlTransactions(engine, None))
    while part.deliver(sent_to) == 0:
        pass


def test_a_project_gets_its_own_notices_of_the_kinds_that_it_wants(notices, engine):
    """Another project's wait for that; kinds left out are kept, and old ones are not sent late."""
    with receiver() as there:
        write(engine, crawl="old")
        age(engine, timedelta(days=2))
        write(engine)
        write(engine, Kind.ABORTED)
        write(engine, project="other")
        sent_to = channels(there.url, notify_kinds=("finished",))
        while notices.deliver(sent_to) == 0:
            pass

    states = {(one.crawl, one.what, one.project): one.state for one in notices.list()}
    assert [one["project"] for one in there.documents] == ["shop"]
    assert states == {
        ("old", "finished", "shop"): "given up",
        ("books", "finished", "shop"): "sent",
        ("books", "aborted", "shop"): "kept",
        ("books", "finished", "other"): "waits",
    }
    assert [one.what for one in notices.list(crawl="books", limit=2)] == ["finished", "aborted"]
    assert [one.crawl for one in notices.list(before=notices.list()[-1].id + 1)] == ["old"]


def test_what_nobody_is_told_of_does_not_delay_what_is_sent(engine, notices):
    """MNB-3: behind 1,500 of other kinds and too old ones the first look finds it."""
    with engine.begin() as connection:
        for number in range(1500):
            stored.write(connection, None, Kind.FINISHED, project="shop", crawl=f"c{number}")
    for _ in range(20):
        write(engine, Kind.CRASH_LOOP, crawl="old")
    age(engine, timedelta(days=2))
    write(engine, Kind.CRASH_LOOP)
    sent_to = channels("http://localhost/", notify_kinds=(Kind.CRASH_LOOP,))

    assert [one.crawl for one in _claimed(engine, sent_to)] == ["books"]
    assert _claimed(engine, sent_to) == []
    states = {(one.crawl == "old", one.state) for one in notices.list(limit=2000)}
    assert states == {(True, "given up"), (False, "kept"), (False, "waits")}


DAEMON = """
import os
import time

def tell(notice):
    if os.fork() == 0:
        os.setsid()
        with open("daemon.txt", "w") as file:
            print(os.getpid(), file=file)
        time.sleep(90)
        open("daemon.txt", "w").write("over")
        os._exit(0)
    while not os.path.exists("daemon.txt") or not os.path.getsize("daemon.txt"):
        time.sleep(0.01)
"""


def test_a_daemon_that_a_function_leaves_behind_holds_up_no_notice(tmp_path, engine, notices):
    """The answer is there as soon as the function returned, and the daemon goes on."""
    (tmp_path / "chat.py").write_text(DAEMON)
    write(engine)
    settings = Settings.of(notify_function="chat.tell").notices
    try:
        notices.deliver(Channels.of(settings, "shop", tmp_path))
        [line] = notices.list()
        assert (line.state, (tmp_path / "daemon.txt").read_text().strip().isdigit()) == (
            "sent",
            True,
        )
    finally:
        with suppress(ProcessLookupError, ValueError):
            os.kill(int((tmp_path / "daemon.txt").read_text()), signal.SIGKILL)


FUNCTION = """
import sys

def tell(notice):
    print("told of", notice["crawl"])
    if notice["crawl"] == "bad":
        raise ValueError("no such chat")
    with open("told.txt", "a") as file:
        print(notice["text"], file=file)

async def later(notice):
    tell(notice)
"""


def test_a_function_of_no_module_is_refused_at_start(tmp_path):
    """Who misspells the module hears of it before a notice is lost."""
    settings = Settings.of(notify_function="no_such.tell").notices

    with pytest.raises(ConfigurationError, match="there is no module 'no_such'"):
        Channels.of(settings, "shop", tmp_path)


@pytest.mark.parametrize("name", ["tell", "later"])
def test_a_function_of_the_project_is_called_in_its_directory(tmp_path, engine, notices, name):
    """It gets the document; what it raises is the last error, with its traceback."""
    (tmp_path / "chat.py").write_text(FUNCTION)
    for crawl in ("bad", "good"):
        write(engine, crawl=crawl)
    settings = Settings.of(notify_function=f"chat.{name}").notices
    notices.deliver(Channels.of(settings, "shop", tmp_path))

    good, bad = notices.list()
    assert (tmp_path / "told.txt").read_text() == "The crawl good is finished\n"
    assert (good.state, bad.state) == ("sent", "failed")
    assert bad.error.startswith(f"function chat.{name}: Traceback")
    assert bad.error.rstrip().endswith("ValueError: no such chat")


def watched(engine, **given):
    """Have somebody look, by settings; return (crawl, text) of what people are told."""
    part = Notices(CrawlTransactions(engine, None))
    part.deliver(channels(**given))
    return [(one.crawl, one.what, one.reason) for one in part.list()][::-1]


LIVES = """
    INSERT INTO crawls (name, project) VALUES ('still', 'shop'), ('busy', 'shop'), ('far', 'other');
    INSERT INTO processes (kind, host, process_id, lease_until, started_at, crawl_id)
    SELECT 'worker', 'h', 1, now() + interval '1 day', now() - interval '2 hours', id FROM crawls;
    INSERT INTO task_minutes (crawl_id, minute, task_id, done, retried)
    SELECT id, date_trunc('minute', now()) - interval '5 minutes', 1,
        CASE name WHEN 'busy' THEN 1 ELSE 0 END, 7 FROM crawls;
"""


def test_that_nothing_is_done_is_said_once_until_something_is(engine):
    """Of a crawl whose process lives and only retries, and of the first of the queue."""
    with engine.begin() as connection:
        connection.exec_driver_sql(LIVES)
    queue = Queue(CrawlTransactions(engine, None))
    for name in ("first", "second"):
        queue.add(
            NewCrawl(name=name, spider=name, project="shop", arguments={}, settings={}), by="ann"
        )
    hour = {"notify_idle": timedelta(hours=1)}
    before = watched(engine, **hour)
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE crawl_events SET at = at - interval '2 hours'")
    first = watched(engine, **hour)
    again = watched(engine, **hour)
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE notices SET created_at = now() - interval '1 hour'")
        connection.exec_driver_sql(
            "UPDATE task_minutes SET done = 1 FROM crawls WHERE id = crawl_id AND name = 'still'"
        )
    watched(engine, **hour)
    with engine.begin() as connection:
        holds = connection.exec_driver_sql("SELECT body->>'crawl' FROM notices WHERE holds")
        assert [*holds.scalars()] == ["first"]
        connection.exec_driver_sql("UPDATE task_minutes SET done = 0")

    assert before == [("still", "nothing done", "for 1h or more")]
    assert first == again == [*before, ("first", "nothing done", "for 1h or more")]
    assert [one[0] for one in watched(engine, **hour)] == ["still", "first", "still", "busy"]


FAILS = """
    INSERT INTO tasks (crawl_id, name, spider, version, definition)
    SELECT id, 'parse', 's', '1', gen_random_uuid() FROM crawls;
    INSERT INTO results (item_id, task_id, task_version, is_successful)
    SELECT n, t.id, '1', false FROM tasks t CROSS JOIN generate_series(1, 3) AS n;
    INSERT INTO failures (item_id, task_id, fingerprint, error)
    SELECT item_id, task_id, gen_random_uuid(), '{"type": "ValueError"}' FROM results
"""


def test_that_more_fails_than_may_is_said_once_until_it_is_handled(engine):
    """At the number nobody is told; above it once; after they were handled, again."""
    with engine.begin() as connection:
        connection.exec_driver_sql(LIVES + FAILS)
    assert watched(engine, notify_failures=3) == []
    some = watched(engine, notify_failures=2)
    assert watched(engine, notify_failures=2) == some
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE failures SET handled_at = now()")
    watched(engine, notify_failures=2)
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE failures SET handled_at = NULL")

    last = "the last: ValueError in parse, see scrapy itemgraph failures"
    assert [(crawl, what, why[:-2]) for crawl, what, why in sorted(some)] == [
        ("busy", "failures open", f"more than 2; {last}"),
        ("still", "failures open", f"more than 2; {last}"),
    ]
    assert len(watched(engine, notify_failures=2)) == 4


def test_notices_say_that_a_crawl_is_broken_and_why(engine):
    """What is finished without a page, or gets nothing done, does not read as if it were well."""
    with engine.begin() as connection:
        connection.exec_driver_sql(LIVES + FAILS)
        connection.exec_driver_sql(
            "INSERT INTO runs (crawl_id, number, started_at, failures, pages) "
            "SELECT id, 1, '2026-03-01 07:34:41+00', 1, CASE name WHEN 'far' THEN 9 ELSE 0 END "
            "FROM crawls"
        )
        for name in ("busy", "far"):
            crawl = connection.scalar(
                sa.text("SELECT id FROM crawls WHERE name = :name"), {"name": name}
            )
            stored.write(
                connection, crawl, Kind.FINISHED, project="shop", crawl=name, reason="left: 1"
            )
    why = "run 1 did no page, since 2026-03-01 07:34:41Z: ValueError in parse"

    with receiver() as there:
        part = Notices(CrawlTransactions(engine, None))
        for _ in range(2):
            part.deliver(channels(there.url, notify_idle=timedelta(hours=1)))

    assert sorted(one["text"] for one in there.documents) == [
        f"The crawl busy is finished: {why}; left: 1",
        "The crawl far is finished: left: 1",
        f"The crawl still gets nothing done: for 1h or more; {why}",
    ]


def test_a_server_sends_too_where_its_role_may(engine, database):
    """`serve` has a thread for it; a role that only reads has none, and says nothing."""
    write(engine)
    with (
        receiver() as there,
        ItemGraph.open(database) as graph,
        sending_notices(graph, channels(there.url)),
    ):
        until(lambda: graph.notices.list()[0].state == "sent")
    assert [one["crawl"] for one in there.documents] == ["books"]


def test_mail_and_chats_go_through_apprise(notices, engine):
    """What apprise knows is sent by it, and what it does not know is said without its secrets."""
    pytest.importorskip("apprise")
    write(engine, reason="nothing left")
    with receiver(200) as there:
        url = there.url.replace("http:", "json:")
        answers = notices.test(channels(f"{url}/secret", "nonsense://secret"), by="ann@desk")
        notices.deliver(channels(f"{url}/secret"))

    said = [(one.channel, one.arrival, one.said) for one in answers]
    assert sorted(said) == [
        ("apprise json", "sent", "sent"),
        (
            "apprise nonsense",
            "failed",
            "apprise does not know such a URL, or misses a part of it",
        ),
    ]
    assert [json.loads(body)["message"] for _, body in there.came] == [
        "This is a test of the notices of the project shop",
        "The crawl books is finished: nothing left",
    ]


def test_a_package_that_is_not_installed_is_named_at_the_start(monkeypatch):
    """Before anything runs, with what to type, and without the URL."""
    monkeypatch.setattr(channel, "find_spec", lambda _: None)
    with pytest.raises(ConfigurationError, match=r"scrapy-itemgraph\[apprise\]") as raised:
        channels("mailtos://ann:hidden@example.com")
    assert "hidden" not in str(raised.value)


def test_notices_are_kept_for_a_month_and_what_lasts_until_it_is_over(notices, engine):
    """Sent or not, an old one goes; where it still says what is so it stays, or it came again."""
    for crawl in ("old", "lasts"):
        write(engine, crawl=crawl)
    age(engine, timedelta(days=31))
    write(engine, crawl="new")
    [rule] = [one for one in pruning.RULES if one.table == "notices"]
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE notices SET holds = true WHERE body->>'crawl' = 'lasts'")
        assert pruning.prune(connection, rule) == 1

    assert [one.crawl for one in notices.list()] == ["new", "lasts"]
