"""Work taken from the graph, handed out, and found to be over.

`claimer` takes work, and asks `suspects` when to take what must run alone; `hand_out` makes its
requests and gives them to the engine; `no_work_left` finds that nothing is left. It imports
`worker.spider` and what stands below it; `worker.wiring` imports it.
"""
