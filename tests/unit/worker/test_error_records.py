"""Errors as they are recorded: what a traceback shows of the project's code."""

from __future__ import annotations

import importlib
import linecache
import sys

from scrapy_itemgraph.worker.executions import error_records

SPIDER = """
def parse(price):
    return float(price)  # as it runs
"""


def test_a_traceback_has_the_lines_that_ran(tmp_path, monkeypatch):
    """Who edits a spider while it runs sees the line that failed, and not what stands there now."""
    file = tmp_path / "edited_spider.py"
    file.write_text(SPIDER)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(linecache, "cache", {})
    spider = importlib.import_module("edited_spider")
    monkeypatch.setitem(sys.modules, "edited_spider", spider)
    error_records.keep_source_lines()

    file.write_text("# a new first line\n" * 9 + SPIDER.replace("as it runs", "as it is now"))
    try:
        spider.parse("ask us")
    except ValueError as error:
        record = error_records.describe(error, {}, status=200)

    assert "return float(price)  # as it runs" in record.traceback
    assert "as it is now" not in record.traceback
    assert (record.place, record.status) == ("edited_spider.parse", 200)
