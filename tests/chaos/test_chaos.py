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
KILLS = ["kill a worker", "kill postgres", "kill all workers", "kill a worker", "kill postgres"]


@pytest.mark.parametrize(("names", "is_local"), [(SOME, False), (KILLS, True)])
def test_a_crawl_that_is_disturbed_has_the_graph_of_one_that_is_not(names, is_local, capsys):
    """Nothing is lost, committed twice, left claimed or a failure, whatever struck."""
    report = drive(len(names), 20261123, names, longest=2.0, local=float(is_local))

    assert report.wrongs == []
    assert sorted(blow.fault for blow in report.blows) == sorted(names)
