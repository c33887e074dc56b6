"""The effect of each operation on a draft, by what it changes; `apply` alone calls them.

`item_operations` has the decorator that names the class of operations that a function carries out.
"""
