"""What the graph is made of, as plain data: operations, tasks, limits, rates, values.

It checks what users say and does no I/O. It may import `tools` and `exceptions`; everything above
may import it.
"""
