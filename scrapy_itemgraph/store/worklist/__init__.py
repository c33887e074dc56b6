"""The outstanding work: kept true, searched, claimed, and put off until it is due.

It imports `limits`, `queues` and the rest of `store`. `registry` and `admin` import it.
"""
