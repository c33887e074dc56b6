"""A server of the URL frontier: how it begins, is called, and ends."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time

import grpc
import pytest
from support import frontier
from support.frontier import batch, discovered, known


def test_a_url_goes_in_and_comes_out(served):
    """What is put is acked by its URL, or its ID, and handed out once (UF-1, UF-5)."""
    put = served.client.put(
        discovered("http://a.example/1"), discovered("http://a.example/2", name="two")
    )

    assert sorted(put) == [("http://a.example/1", "OK"), ("two", "OK")]
    assert sorted(served.client.get()) == ["http://a.example/1", "http://a.example/2"]
    assert served.client.get() == []


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_when_it_is_told_to(served, how):
    """The server ends in order, and warns of nothing."""
    served.client.put(known("http://a.example/1"))

    code, errors = served.stop(how)

    assert (code, errors) == (0, "")


def test_batches_are_acked_as_wholes(served):
    """A batch has a status for each URL in order; an empty one is acked by its ID (UF-16)."""
    first = served.client.put_batches(
        batch("b1", "http://a.example/1", "mailto:", "http://a.example/1", "http:///x"),
        batch("probe"),
    )

    assert dict(first) == {"b1": ["OK", "OK", "SKIPPED", "SKIPPED"], "probe": []}


def test_an_error_has_a_code(served):
    """What cannot be stored is an invalid argument, and no failure of the server."""
    with pytest.raises(grpc.RpcError) as refused:
        served.client.get(crawlID="a\0b")

    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_the_embedded_server_starts_beneath_it(tmp_path):
    """UF-1: without a database one is started, and gRPC says nothing of the processes for it."""
    with frontier.serving(None, folder=tmp_path) as served:
        served.client.put(discovered("http://a.example/1"))
        assert served.client.get() == ["http://a.example/1"]
        code, said = served.stop()

    assert code == 0
    assert "PostgreSQL started" in said
    assert "fork" not in said
    assert "epoll" not in said


def test_without_its_extra_it_says_what_to_install():
    """Without gRPC one line says which extra has it (UF-1)."""
    code = "import sys; sys.argv[1:1] = ['itemgraph', 'frontier']; sys.modules['grpc'] = None;"
    done = subprocess.run(
        [sys.executable, "-c", f"{code} from scrapy.cmdline import execute; execute()"],
        cwd=tempfile.gettempdir(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert done.returncode, done
    assert 'pip install "scrapy-itemgraph[frontier]"' in done.stderr


def test_what_keeps_urls_from_crawlers_is_logged(database):
    """UF-6, UF-16: a pause, also at the next start, URLs that are unusable, and deletions."""
    with frontier.serving(database) as served:
        served.client.put(discovered("http://a.example/1"), discovered("http:///x"))
        served.client.ask("SetActive", state=False)
        time.sleep(1.5)  # what was made in this second is not purged
        served.client.ask("PurgeURLs")
        served.client.ask("DeleteCrawl", value="DEFAULT")
        _, said = served.stop()

    assert "All servers of the database hand out nothing (SetActive)" in said
    assert "Not stored, and acked as SKIPPED: 1 URL without a host" in said
    assert "Purged the crawl DEFAULT: 1 URL, all that are older than 0 days" in said
    assert "Deleted the crawl DEFAULT: 0 URLs" in said
    with frontier.serving(database) as served:
        assert "The frontier is paused (SetActive)" in served.stop()[1]
