"""Connections to PostgreSQL: how a process opens them, keeps them alive, and is known to live.

`connect` and `transactions` open them, the watchdogs say when the server does not answer, and
`heartbeat` holds a process's lock and lease. It imports `changesets`, `store`, `postgres`, `model`,
`tools` and `exceptions`. `contents` and `graph` import it.
"""
