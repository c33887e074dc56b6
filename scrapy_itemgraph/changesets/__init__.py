"""A batch of operations: names and rows are loaded, changed in memory, and flushed.

`apply.apply` is the way in. It imports `store`, `postgres`, `model`, `tools` and `exceptions`;
`graph` imports it.
"""
