"""Random calls of a URL frontier: the model and the servers answer the same after each."""

from __future__ import annotations

import pytest
from hypothesis import seed, settings
from hypothesis.stateful import run_state_machine_as_test
from model import any_frontier
from model.any_frontier import AnyFrontier
from model.histories import EXAMPLES, PROFILE, SEED

pytestmark = pytest.mark.server

FEW = 8  # histories, in `make test`


def test_any_calls_are_answered_as_the_api_says(database):
    """UF-1 to UF-13: what two servers answer, list, count and hand out is what the model says."""
    servers = any_frontier.opened(database)
    try:
        machine = type("AnyFrontierHere", (AnyFrontier,), {"servers": servers})
        if EXAMPLES:
            machine = seed(SEED)(machine)
        profile = settings(PROFILE, max_examples=EXAMPLES or FEW)

        run_state_machine_as_test(machine, settings=profile)
    finally:
        servers.close()
