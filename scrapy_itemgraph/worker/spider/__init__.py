"""What a spider's requests and yields need: built, checked, sorted and enqueued.

It imports `worker.downloads`, `worker.executions` and the rooms below `worker`. `worker` and
Scrapy's components import it, and `commands` what it says of settings.
"""
