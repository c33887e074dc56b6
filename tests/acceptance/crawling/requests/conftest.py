"""A site that answers by a script."""

from __future__ import annotations

import pytest
from support import sites


class Scripted(sites.Site):
    """Answers a path by its script, where it has one: a status each time, "gate" waits first."""

    def __init__(self) -> None:
        super().__init__()
        self.scripts: dict[str, list[str]] = {}

    def answer(self, target):
        script = self.scripts.get(target)
        step = script.pop(0) if script else None
        status, headers, body = super().answer(target)
        if step == "gate":
            self.arrived.set()
            self.may_answer.wait(120)
        elif step is not None:
            status = int(step)
        return status, headers, body


@pytest.fixture(scope="module")
def site_kind():
    """Return a site that answers by scripts."""
    return Scripted
