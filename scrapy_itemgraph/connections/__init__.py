"""Connections to PostgreSQL: how a process opens them, keeps them alive, and is known to live.

`connect` and `transactions` open them, `patience` and `awaited_answers` say when the server does
not answer. `process` has this process live in the eyes of the others: by a `session`, and a `lease`
on it. It imports `changesets`, `store`, `postgres`, `model`, `tools` and `exceptions`. `contents`
and `graph` import it.
"""
