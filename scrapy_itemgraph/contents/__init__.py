"""Contents of binary data: the stores that keep them, and their transfer into one.

`stores` writes to a folder or to a URL of fsspec, `transfer` measures, announces, writes and
collects contents in transactions. It imports `connections`, `store`, `model`, `tools` and
`exceptions`. `graph` imports it.
"""
