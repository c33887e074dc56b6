"""The runner's host: what of its memory and disk is free, and whether that is too little."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from scrapy_itemgraph.model.runners import HostState
from scrapy_itemgraph.tools.wording import format_size

_MEMORY = Path("/proc/meminfo")


def memory_free() -> int:
    """Return how many bytes of memory processes may take without swapping."""
    for line in _MEMORY.read_text().splitlines():
        name, _, rest = line.partition(":")
        if name == "MemAvailable":
            return int(rest.split()[0]) * 1024
    return 0


def state(folders: list[Path], *, min_memory: int, min_disk: int) -> HostState:
    """Return how the host is; of the disks of several folders the one with the least room."""
    memory = memory_free()
    disks = (shutil.disk_usage(_existing(one)) for one in folders)
    disk = min(disks, key=lambda one: one.free)
    return HostState(
        disk_free=disk.free,
        disk_total=disk.total,
        memory_free=memory,
        load=os.getloadavg()[0],
        low=_low("memory", memory, min_memory) or _low("disk", disk.free, min_disk),
    )


def _existing(folder: Path) -> Path:
    """Return a folder, or what is there of its path."""
    return next(one for one in (folder, *folder.parents) if one.exists())


def _low(what: str, free: int, least: int) -> str | None:
    if free >= least:
        return None
    return f"{what}: {format_size(free)} free, and {format_size(least)} are wanted"
