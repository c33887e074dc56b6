"""The parts of `ItemGraph`, each under a noun: `graph.failures`, `graph.limits` and so on.

A part takes a crawl's transactions, and no part knows the graph or another part. A method `list`
stands last in its class: below it, `list[int]` in an annotation would mean the method.
"""
