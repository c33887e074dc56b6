"""Who has which limit: what is declared, who holds it, and who gets what of it.

It imports the modules of `store` below it: `queues` and the rest. `worklist`, `registry` and
`admin` import it.
"""
