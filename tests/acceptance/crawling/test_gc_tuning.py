"""A crawl tunes Python's collector, unless ITEMGRAPH_TUNE_GC says no."""

from __future__ import annotations

import pytest

from scrapy_itemgraph.tools import gc_tuning

SPIDER = """
import gc
import pathlib


class S(scrapy.Spider):
    name = "s"
    start_urls = [SITE + "/index"]

    def parse(self, response):
        pathlib.Path("thresholds").write_text(repr(gc.get_threshold()))
"""


@pytest.mark.parametrize(
    ("settings", "thresholds"),
    [("", gc_tuning.THRESHOLDS), ("ITEMGRAPH_TUNE_GC = False\n", (700, 10, 10))],
    ids=["by default", "not wanted"],
)
def test_callbacks_run_with_the_collector_as_the_setting_says(project, settings, thresholds):
    """While a spider runs collections are rarer, or as Python has them where that is refused."""
    project.write(SPIDER, "import gc\ngc.set_threshold(700, 10, 10)\n" + settings)

    project.crawl()

    assert (project.directory / "thresholds").read_text() == repr(thresholds)
