"""Files of code: whether the one that a process runs is the one that is on this machine's disk."""

from __future__ import annotations

import hashlib
import socket
from pathlib import Path

_LARGEST = 10_000_000  # bytes of a file that is read


def digest(path: str | Path) -> str | None:
    """Return eight digits of a digest of a file; None where it cannot be read, or is no file."""
    try:
        file = Path(path)
        if not file.is_file() or file.stat().st_size > _LARGEST:
            return None
        return hashlib.sha256(file.read_bytes()).hexdigest()[:8]
    except (OSError, ValueError):
        return None


def has_changed(host: str, path: str | None, code: str | None) -> bool:
    """Tell whether a process of a host runs another version of a file than is here.

    It does not where that cannot be told: on another host, or where the file is not here.
    """
    if path is None or code is None or host != socket.gethostname():
        return False
    here = digest(path)
    return here is not None and here != code
