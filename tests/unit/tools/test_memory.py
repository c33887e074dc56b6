"""How much memory there is: the machine's, or less where a container has less."""

from __future__ import annotations

import psutil

from scrapy_itemgraph.tools import memory


def test_it_is_the_machines_where_nothing_limits_it(tmp_path, monkeypatch):
    """Without control groups, or with a limit of "max", it is what the machine has."""
    (tmp_path / "max").write_text("max\n")
    monkeypatch.setattr(memory, "_LIMITS", (tmp_path / "max", tmp_path / "absent"))

    assert memory.total() == psutil.virtual_memory().total


def test_a_container_has_what_it_is_given(tmp_path, monkeypatch):
    """A control group's limit counts where it is less."""
    (tmp_path / "limit").write_text("500000000\n")
    monkeypatch.setattr(memory, "_LIMITS", (tmp_path / "limit",))

    assert memory.total() == 500_000_000
