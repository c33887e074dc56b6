"""A server of the URL frontier: how it begins, is called, and ends."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile

import grpc
import pytest
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


def refusal(*arguments, hides=""):
    """Return how the command refuses to start, on a database that is never asked."""
    code = "import sys; sys.argv[1:1] = ['itemgraph', 'frontier'];"
    code += f"sys.modules.update({{'{hides}': None}});" if hides else ""
    code += "from scrapy.cmdline import execute; execute()"
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=tempfile.gettempdir(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode, done
    return done.stderr


def test_an_address_that_others_reach_is_refused():
    """Beyond this machine it serves only if that is said to be meant (UF-1)."""
    assert "--open-to-all" in refusal("--host", "0.0.0.0")


def test_without_its_extra_it_says_what_to_install():
    """Without gRPC one line says which extra has it (UF-1)."""
    assert 'pip install "scrapy-itemgraph[frontier]"' in refusal(hides="grpc")
