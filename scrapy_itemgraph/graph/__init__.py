"""The one door to the graph: it opens transactions and delegates the rest."""

from __future__ import annotations

from scrapy_itemgraph.graph.crawl_graph import CrawlGraph
from scrapy_itemgraph.graph.item_graph import ItemGraph
from scrapy_itemgraph.graph.limiting import terms_of
from scrapy_itemgraph.graph.patience import Patience

__all__ = ["CrawlGraph", "ItemGraph", "Patience", "terms_of"]
