"""PostgreSQL: engines and their errors, tables, migrations, and the embedded server.

It knows nothing of what the tables mean. It imports `model`, `tools` and `exceptions`. `store` and
`graph` import it, and `commands` what they say of the embedded server.
"""
