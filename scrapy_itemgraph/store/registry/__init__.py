"""What is known of a crawl beside its items: tasks, sweeps, runs, workers.

It imports `worklist`, `limits` and what stands below them. `admin` imports it.
"""
