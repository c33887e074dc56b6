"""The SQL, by subject: each module is about one table or one question.

All functions take a connection, and none commits. It imports `postgres`, `model`, `tools` and
`exceptions`. `changesets` and `graph` import it. Inside, imports go from `admin` over `registry`,
`worklist` and `limits` down to `queues` and the rest.
"""
