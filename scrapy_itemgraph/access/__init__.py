"""Who may what at a door: bearers of tokens, and this machine while there are none.

It decides and does no I/O. It imports `model`. Both doors ask it, `web` and `urlfrontier`, and
`commands` what to say where a server is not started.
"""
