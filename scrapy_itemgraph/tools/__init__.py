"""Plain helpers that know nothing of items and tasks: logs, file locks, progress, turns.

It may import `exceptions` alone; everything else may import it.
"""
