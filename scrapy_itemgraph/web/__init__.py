"""The HTTP door: an API for programs and pages for people, as one ASGI application.

It imports `graph`, `model`, `tools` and `exceptions`, and the libraries of the extra `web`. Only
`commands.serve` imports it, when it is called.
"""
