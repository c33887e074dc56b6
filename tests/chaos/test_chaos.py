"""A small dose of the driver; `make chaos` runs as much as one likes."""

from __future__ import annotations

import pytest

from chaos.drive import drive

pytestmark = [
    pytest.mark.server,
    # What crawls and their commands say of a database that is gone.
    pytest.mark.tracebacks("Error"),
]
SOME = ["kill a worker", "cut connections", "stop postgres at once", "disable tasks"]


def test_a_crawl_that_is_disturbed_has_the_graph_of_one_that_is_not(capsys):
    """Nothing is lost, committed twice, left claimed or a failure, whatever struck."""
    report = drive(len(SOME), seed=20261123, names=SOME, longest=2.0)

    assert report.wrongs == []
    assert {blow.fault for blow in report.blows} == set(SOME)
