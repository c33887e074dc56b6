"""The gRPC door: a URL frontier for other crawlers, as the URLFrontier API says.

It asks the graph alone; `commands.frontier` alone imports it.
"""

from __future__ import annotations

import os

# In a child that is forked, as the embedded PostgreSQL is, gRPC would start its threads anew until
# the child executes what it is for, and write of their errors to the child's standard error.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")

# gRPC would write a line for each connection at a port of TLS that is no TLS, such as a scan's.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
