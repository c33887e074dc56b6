"""What people ask for and change by hand: status, explanations, limits, crawls, pruning.

It imports the whole of `store`; `graph` imports it, and nothing else in `store` does.
"""
