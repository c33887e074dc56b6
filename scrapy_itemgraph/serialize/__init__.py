"""Requests and values as JSON, and back.

Nothing that is read imports a module or runs code. It imports `model`, `tools` and `exceptions`.
`worker`, `feeds`, `pipelines` and `commands` import it.
"""
