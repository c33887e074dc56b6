"""The effect of each operation on a draft, by what it changes; `apply` alone calls them.

`items` has the decorator that names the class of operations to which a function belongs.
"""
