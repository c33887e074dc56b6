"""Whether a download failed because the process had no file descriptor left."""

from __future__ import annotations

import errno
import os
import resource

import pytest
from twisted.internet.error import ConnectBindError, DNSLookupError, TCPTimedOutError
from twisted.python.failure import Failure
from twisted.web.client import ResponseFailed

from scrapy_itemgraph.worker.spider.descriptors import Descriptors


def caused(by: BaseException) -> Exception:
    """Return an error that another one led to."""
    error = RuntimeError("wrapped")
    error.__cause__ = by
    return error


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EMFILE, os.strerror(errno.EMFILE)),
        OSError(errno.ENFILE, os.strerror(errno.ENFILE)),
        ConnectBindError(errno.EMFILE, "Too many open files"),
        caused(ConnectBindError(errno.EMFILE, "Too many open files")),
        ResponseFailed([Failure(OSError(errno.EMFILE, "x"))]),
    ],
)
def test_an_error_for_want_of_descriptors_is_one_however_it_is_wrapped(error, caplog):
    """The system's number is found in causes, and in what Twisted makes of it; it is said once."""
    descriptors = Descriptors()

    assert descriptors.are_used_up(error)
    assert descriptors.are_used_up(error)

    assert len(caplog.messages) == 1
    assert "ulimit -n" in caplog.messages[0]


def test_the_process_looks_itself_where_an_error_does_not_say():
    """A resolver that cannot open a socket says only that it found no address."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    error = DNSLookupError("no results for hostname lookup")
    assert not Descriptors().are_used_up(error)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        found = Descriptors().are_used_up(error)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert found


@pytest.mark.parametrize(
    "error", [TCPTimedOutError(), OSError(errno.ECONNREFUSED, "x"), ValueError("x")]
)
def test_other_errors_are_the_pages(error, caplog):
    """What a website does is no want of descriptors."""
    assert not Descriptors().are_used_up(error)
    assert not caplog.messages
