"""The gRPC door: a URL frontier for other crawlers, as the URLFrontier API says.

It asks the graph alone; `commands.frontier` alone imports it.
"""
