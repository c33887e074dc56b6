"""Channels: the ways in which people are told what happens, and processes that send by them.

`channel` says which there are by the settings, `sending` starts a short-lived process for each,
`child` is that process. It imports `settings`, `model`, `tools` and `exceptions`. `graph`, and what
starts a process that sends, import it.
"""
