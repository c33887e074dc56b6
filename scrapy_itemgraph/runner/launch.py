"""Becomes a process of a crawl: run by path in a bare Python, which execs the real command.

    python -I -S launch.py PARENT COMMAND…

The process gets SIGTERM when its runner dies, and is killed before the runner or PostgreSQL where
memory is short. This is not done between fork and exec of the runner, which has threads.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_OOM_SCORE = "500"  # of 1000, beside what its memory counts
_GONE = 75  # the exit code where the runner died meanwhile


def main(parent: int, command: list[str]) -> None:
    """Tie this process to its parent, and become the command."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(_GONE)
    try:
        with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:  # noqa: PTH123 - light
            file.write(_OOM_SCORE)
    except OSError:
        pass  # not in every container; it is a courtesy
    os.execv(command[0], command)  # noqa: S606 - the command of the runner


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
